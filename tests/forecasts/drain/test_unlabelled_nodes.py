"""A VM runs with a machine type or CPU feature that no node is labelled with, not even its own."""

import pytest

from tests.builders import complete, kubevirt, node
from tests.forecasts.drain.test_control_path import ROOM, guest, machine
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes.objects import Object

OLD, NEW = (f"machine-type.node.kubevirt.io/pc-q35-rhel9.{minor}.0" for minor in (4, 6))
RELEASE = kubevirt(status={"observedKubeVirtVersion": "v1.6.3"})


def server(name, *labels, **spec):
    return node(name, dict.fromkeys(labels, "true"), allocatable=ROOM, **spec)


def running(labels=None, **domain):
    found = guest("db", machine={"type": "pc-q35-rhel9.6.0"})
    spec = found["spec"].value | {"domain": {"machine": {"type": "q35"}, "devices": {}, **domain}}
    metadata = found.data["metadata"] | {"labels": labels or {}}
    return Object(found.data | {"metadata": metadata, "spec": spec})


def drained(*objects):
    (found,) = plan(complete(*objects, machine("db"), RELEASE), "a").nodes
    (row,) = found.forecasts
    return row


def test_not_even_its_own_node_has_the_label():
    row = drained(running(), server("a", OLD), server("b", OLD))
    assert row.outcome is VmOutcome.UNKNOWN
    assert "whether another node offers machine type pc-q35-rhel9.6.0: not even a" in row.reason
    assert f"kubectl get nodes -L {NEW}" in row.remedy


def test_a_cpu_feature_of_the_vm():
    own, other = (f"cpu-feature.node.kubevirt.io/{name}" for name in ("vmx", "aes"))
    cpu = {"model": "host-passthrough", "features": [{"name": "vmx", "policy": "require"}]}
    row = drained(running(cpu=cpu), server("a", NEW, other), server("b", NEW, other))
    assert row.outcome is VmOutcome.UNKNOWN
    assert f"-L {own}" in row.remedy


@pytest.mark.parametrize(
    ("labels", "nodes"),
    [
        ({}, (server("a", NEW), server("b", OLD))),
        ({"kubevirt.io/outdatedLauncherImage": ""}, (server("a", OLD), server("b", OLD))),
    ],
    ids=["its own node has it", "its launcher is of an older release"],
)
def test_the_labels_are_believed(labels, nodes):
    row = drained(running(labels), *nodes)
    assert row.outcome is VmOutcome.BLOCKS
    assert "no other node can take it: machine type pc-q35-rhel9.6.0" in row.reason


def test_another_cause_keeps_it_as_well():
    row = drained(running(), server("a", OLD), server("b", OLD, unschedulable=True))
    assert row.outcome is VmOutcome.BLOCKS
    assert (
        row.reason == "LiveMigrate, but no node that could take it is schedulable now: b (cordoned)"
    )


def test_another_node_has_the_label():
    row = drained(running(), server("a", OLD), server("b", NEW))
    assert row.outcome is VmOutcome.MIGRATES


def test_its_next_vmi_has_the_machine_type_of_the_spec():
    alias = "machine-type.node.kubevirt.io/q35"
    cluster = complete(running(), machine("db"), RELEASE, server("a", NEW), server("b", OLD, alias))
    (vmi,) = (each for each in cluster.known(candidates.VMI))
    assert candidates.target(vmi, cluster, moves=False).placement.candidates == ("b",)
    assert candidates.target(vmi, cluster, moves=True).placement.candidates == ()
