"""CPU models: what nodes offer, what a VMI runs with."""

import pytest

from virt_admit.model.cluster import Snapshot, Unseen
from virt_admit.model.kubevirt.cpu_models import named, offers
from virt_admit.model.kubevirt.effective import effective
from virt_admit.model.objects import Object

OFFERED = "cpu-model.node.kubevirt.io/"


def node(name, **models):
    return Object(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {OFFERED + model: value for model, value in models.items()}},
        }
    )


def kubevirt(configuration=None, status=None):
    return Object(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "KubeVirt",
            "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
            "spec": {"configuration": configuration or {}},
            "status": status or {},
        }
    )


def instancetype(name, model):
    return Object(
        {
            "apiVersion": "instancetype.kubevirt.io/v1beta1",
            "kind": "VirtualMachineClusterInstancetype",
            "metadata": {"name": name},
            "spec": {"cpu": {"guest": 1, "model": model}},
        }
    )


def vm(model=None, architecture=None, instancetype=None):
    return Object(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": "db", "namespace": "shop"},
            "spec": {
                "instancetype": instancetype and {"name": instancetype},
                "template": {"spec": {"architecture": architecture, "domain": {"cpu": {"model": model}}}},
            },
        }
    )


def seen(*objects):
    return Snapshot(objects, complete=["*"])


def test_what_nodes_offer():
    found = offers(seen(node("b", Haswell="true"), node("a", Haswell="true", Skylake="true", Penryn="false")))

    assert found.conclusive
    assert found.by("Haswell") == ("a", "b")
    assert found.by("Penryn") == ()
    assert found.by("haswell") == ()
    assert found.alike("haswell") == ("Haswell",)
    assert found.alike("Haswell") == ()
    assert found.most_common(2) == ("Haswell", "Skylake")
    assert found.most_common(2, without=frozenset({"Haswell"})) == ("Skylake",)


@pytest.mark.parametrize(
    ("nodes", "conclusive"),
    [((), False), ((node("a"),), False), ((node("a"), node("b", Penryn="false")), True)],
)
def test_labels_are_conclusive_once_the_labeller_has_run(nodes, conclusive):
    assert offers(seen(*nodes)).conclusive is conclusive


def test_nodes_out_of_sight_could_offer_anything():
    with pytest.raises(Unseen, match="nodes"):
        offers(Snapshot())


OWN = "spec.template.spec.domain.cpu.model"


@pytest.mark.parametrize(
    ("subject", "objects", "expected"),
    [
        (vm("Haswell"), (), ("Haswell", OWN, "")),
        (vm("Haswell", architecture="s390x"), (), ("Haswell", OWN, "")),
        (vm("Haswell", architecture="arm64"), (), None),
        (vm("Haswell"), (kubevirt(status={"defaultArchitecture": "arm64"}),), None),
        (vm("host-model"), (kubevirt({"cpuModel": "Haswell"}),), None),
        (vm("host-passthrough"), (kubevirt({"cpuModel": "Haswell"}),), None),
        (vm(), (kubevirt(),), None),
        (vm(), (kubevirt({"cpuModel": "host-model"}),), None),
        (vm(), (kubevirt({"cpuModel": "Haswell"}),), ("Haswell", "spec.template.spec.domain.cpu", "KubeVirt")),
        (vm(""), (kubevirt({"cpuModel": "Haswell"}),), ("Haswell", "spec.template.spec.domain.cpu", "KubeVirt")),
        (
            vm(instancetype="u1"),
            (instancetype("u1", "Skylake"),),
            ("Skylake", "spec.instancetype", "instance type 'u1'"),
        ),
        (vm("Haswell", instancetype="u1"), (instancetype("u1", "Skylake"),), ("Haswell", OWN, "")),
        (vm(instancetype="u1"), (instancetype("u1", None), kubevirt()), None),
    ],
)
def test_the_model_of_a_vm(subject, objects, expected):
    cluster = seen(*objects)

    found = named(effective(subject, cluster), cluster)

    assert (found and (found.name, str(found.path), found.source)) == expected


@pytest.mark.parametrize(
    ("subject", "what"),
    [(vm(), "kubevirts"), (vm(instancetype="u1"), "virtualmachineclusterinstancetypes.* u1")],
)
def test_a_model_that_comes_from_something_unseen(subject, what):
    with pytest.raises(Unseen, match=what):
        named(effective(subject, Snapshot()), Snapshot())


def test_its_own_model_needs_no_cluster():
    assert named(effective(vm("Haswell"), Snapshot()), Snapshot()).name == "Haswell"
