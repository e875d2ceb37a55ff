"""A guest with host-model whose node has CPU features that no other node has."""

from tests import builders
from tests.builders import kubevirt
from tests.forecasts.drain.test_vm_states import BLOCKS, MIGRATES, row
from tests.forecasts.drain.vm_motion import ROOM, cluster, launcher, vmi
from virt_admit.forecasts.drain import vm_outcomes
from virt_admit.forecasts.placement.refusals import refusal_remedies
from virt_admit.model.kubevirt.instances.cpu_models import HOST

MODEL = "Skylake-Server-IBRS"
FAMILIES = ("host-model-cpu", "cpu-model-migration", "cpu-model")
SHARED = dict.fromkeys((f"{each}.node.kubevirt.io/{MODEL}" for each in FAMILIES), "true")
MORE = dict.fromkeys(
    (f"{each}.node.kubevirt.io/mds-no" for each in ("host-model-required-features", "cpu-feature")),
    "true",
)


def drained(model="host-model", own=MORE, shared=SHARED, **cpu):
    spec = {"domain": {"cpu": {"model": model, **cpu}, "memory": {"guest": "4Gi"}, "devices": {}}}
    known = kubevirt({}, status={"observedKubeVirtVersion": "v1.4.1"})
    here = builders.node("a", shared | own, allocatable=dict(ROOM))
    others = [builders.node(each, SHARED, allocatable=dict(ROOM)) for each in "bc"]
    return row(cluster(vmi(spec=spec), launcher(), here, *others, known))


def test_the_common_model_is_named_and_no_bare_restart():
    found = drained()

    assert found.outcome == BLOCKS
    assert "CPU feature mds-no, as with CPU model host-model the guest keeps" in found.reason
    assert found.remedy.startswith(f"set CPU model {MODEL}, which every node offers (for all VMs ")
    assert "KubeVirt spec.configuration.cpuModel" in found.remedy
    assert "firmware and microcode" in found.reason
    assert f'"cpu":{{"model":"{MODEL}"}}' in found.remedy
    assert "a restart alone gives it the features of one node again" in found.remedy


def test_a_feature_that_the_vm_itself_requires_is_no_matter_of_its_model():
    features = [{"name": "mds-no", "policy": "require"}]
    found = drained(
        model=MODEL, own={"cpu-feature.node.kubevirt.io/mds-no": "true"}, features=features
    )

    assert "CPU feature mds-no" in found.reason
    assert "host-model" not in found.reason
    assert "set CPU model" not in found.remedy


def test_processors_of_another_kind_are_named_and_no_firmware():
    other = "Icelake-Server"
    own = dict.fromkeys((f"{each}.node.kubevirt.io/{other}" for each in FAMILIES[:2]), "true")
    without = {key: value for key, value in SHARED.items() if not key.startswith(FAMILIES[0])}
    found = drained(own=own | MORE, shared=without)

    assert f"host model {other}" in found.reason
    assert f"while other nodes have another one (b, c: {MODEL})" in found.reason
    assert "firmware" not in found.reason


def test_nodes_with_the_same_features_take_it():
    assert drained(own={}).outcome == MIGRATES


def test_the_labels_of_all_nodes_are_read_once(monkeypatch):
    read = []
    host_models = refusal_remedies._host_models
    monkeypatch.setattr(
        refusal_remedies, "_host_models", lambda node: read.append(node) or host_models(node)
    )
    here = builders.node("a", {f"{HOST}Icelake-Server": "true"}, allocatable=dict(ROOM))
    other = builders.node("b", {f"{HOST}{MODEL}": "true"}, allocatable=dict(ROOM))
    vmis = [vmi(name) for name in ("db", "web", "mail")]
    known = cluster(*vmis, *(launcher(each.name) for each in vmis), here, other)
    said = [vm_outcomes.forecast(each, known).reason for each in vmis]

    assert all(f"while other nodes have another one (b: {MODEL})" in each for each in said)
    assert sorted(each.name for each in read) == ["a", "b", "c"]
