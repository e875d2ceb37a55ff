"""CPU models: what nodes offer, what a VMI runs with."""

import pytest

from tests import builders
from tests.builders import complete, instancetype, kubevirt, node
from tests.for_each import for_each
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen
from virt_admit.model.kubevirt.instances.cpu_models import named, offers
from virt_admit.model.kubevirt.instances.expand import expand

OFFERED = "cpu-model.node.kubevirt.io/"


def offering(name, **models):
    """A node that offers these CPU models."""
    return node(name, {OFFERED + model: value for model, value in models.items()})


def of_model(name, model):
    return instancetype(
        "VirtualMachineClusterInstancetype", name, {"cpu": {"guest": 1, "model": model}}
    )


def vm(model=None, architecture=None, instancetype=None):
    spec = {"architecture": architecture, "domain": {"cpu": {"model": model}}}
    return builders.vm({"spec": spec}, instancetype=instancetype and {"name": instancetype})


def test_what_nodes_offer():
    found = offers(
        complete(
            offering("b", Haswell="true"),
            offering("a", Haswell="true", Skylake="true", Penryn="false"),
        )
    )

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
    [
        ((), False),
        ((offering("a"),), False),
        ((offering("a"), offering("b", Penryn="false")), True),
    ],
)
def test_labels_are_conclusive_once_the_labeller_has_run(nodes, conclusive):
    assert offers(complete(*nodes)).conclusive is conclusive


def test_nodes_out_of_sight_could_offer_anything():
    with pytest.raises(Unseen, match="nodes"):
        offers(Snapshot())


OWN = "spec.template.spec.domain.cpu.model"


@for_each(
    "subject, objects, expected",
    [
        (vm("Haswell"), (), ("Haswell", OWN, "")),
        (vm("Haswell", architecture="s390x"), (), ("Haswell", OWN, "")),
        (vm("Haswell", architecture="arm64"), (), None),
        (vm("Haswell"), (kubevirt(status={"defaultArchitecture": "arm64"}),), None),
        (vm("host-model"), (kubevirt({"cpuModel": "Haswell"}),), None),
        (vm("host-passthrough"), (kubevirt({"cpuModel": "Haswell"}),), None),
        (vm(), (kubevirt(),), None),
        (vm(), (kubevirt({"cpuModel": "host-model"}),), None),
        (
            vm(),
            (kubevirt({"cpuModel": "Haswell"}),),
            ("Haswell", "spec.template.spec.domain.cpu", "KubeVirt"),
        ),
        (
            vm(""),
            (kubevirt({"cpuModel": "Haswell"}),),
            ("Haswell", "spec.template.spec.domain.cpu", "KubeVirt"),
        ),
        (
            vm(instancetype="u1"),
            (of_model("u1", "Skylake"),),
            ("Skylake", "spec.instancetype", "instance type 'u1'"),
        ),
        (vm("Haswell", instancetype="u1"), (of_model("u1", "Skylake"),), ("Haswell", OWN, "")),
        (vm(instancetype="u1"), (of_model("u1", None), kubevirt()), None),
    ],
)
def test_the_model_of_a_vm(subject, objects, expected):
    cluster = complete(*objects)

    found = named(expand(subject, cluster), cluster)

    assert (found and (found.name, str(found.path), found.source)) == expected


@pytest.mark.parametrize(
    ("subject", "what"),
    [(vm(), "kubevirts"), (vm(instancetype="u1"), "virtualmachineclusterinstancetypes.* u1")],
)
def test_a_model_that_comes_from_something_unseen(subject, what):
    with pytest.raises(Unseen, match=what):
        named(expand(subject, Snapshot()), Snapshot())


def test_its_own_model_needs_no_cluster():
    assert named(expand(vm("Haswell"), Snapshot()), Snapshot()).name == "Haswell"
