"""Nodes where no volume of a driver can be mounted take no VM that has one,
whatever their CSINode says.
"""

import pytest

from tests.healthy.clusters import plain
from tests.healthy.parts import ago
from tests.incidents.component_faults import claim
from tests.incidents.machines import find, guest
from tests.incidents.node_plugins import NO_DRIVER, ROOK, on_node, plugins
from tests.incidents.starts import starting
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome, forecast
from virt_admit.forecasts.outage.outages import Question, outages
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.objects import Object

GPU = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


def cluster(on, tolerations=(), listed=("w1", "w2", "w3"), taint=GPU, said=None):
    """Return a VM on w1 that w2 alone could take, which has a taint;
    pods of the driver run on these nodes.
    """
    items = plain() + plugins(list(on), tolerations=list(tolerations))
    own = guest("web", "w1")
    items += [each for each in own if not each["kind"].startswith("PersistentVolume")] + claim(
        "web", driver=ROOK
    )
    find(items, "Node", "w2")["spec"]["taints"] = [taint] if taint else []
    find(items, "Node", "w3")["spec"]["taints"] = [{"key": "other", "effect": "NoSchedule"}]
    for kind in ("VirtualMachineInstance", "VirtualMachine"):
        spec = find(items, kind, "web")["spec"]
        (spec if kind == "VirtualMachineInstance" else spec["template"]["spec"])["tolerations"] = [
            {"key": "dedicated", "operator": "Exists"}
        ]
    for each in items:
        if each["kind"] == "CSINode" and each["metadata"]["name"] not in listed:
            each["spec"] = {"drivers": []}
    if said is not None:
        items += on_node(
            starting("train", "Scheduling"), "train", "w2", "FailedMapVolume", NO_DRIVER
        )
        items[-1] |= said
    return Snapshot(map(Object, items), ["*"])


def drained(found):
    vmi = found.get(VMI, "vms", "web")
    return forecast(vmi, found)


@pytest.mark.parametrize("listed", [("w1", "w2", "w3"), ("w1", "w3")])
def test_a_driver_without_its_pod_blocks(listed):
    found = drained(cluster(["w1", "w3"], listed=listed))

    assert found.outcome is VmOutcome.BLOCKS
    assert (
        f"CSI driver {ROOK} is not registered on w2 (no pod there: DaemonSet "
        "rook-ceph/csi-rbdplugin does not"
    ) in (found.reason)
    assert "let DaemonSet rook-ceph/csi-rbdplugin tolerate it" in found.remedy


def test_a_pod_that_may_come_back_leaves_it_open():
    found = drained(cluster(["w1", "w3"], [{"operator": "Exists"}]))

    assert found.outcome is VmOutcome.UNKNOWN
    assert f"it is not known whether driver {ROOK} works on w2 (no pod there: " in found.reason


def test_a_kubelet_that_knows_no_such_driver_blocks():
    found = drained(cluster(["w1", "w2", "w3"], said={}))

    assert found.outcome is VmOutcome.BLOCKS
    assert f"CSI driver {ROOK} is not registered on w2" in found.reason


@pytest.mark.parametrize(
    "said",
    [{"firstTimestamp": ago(minutes=1)}, {"lastTimestamp": ago(minutes=8)}],
    ids=["after-a-boot", "over"],
)
def test_a_moment_without_the_driver_does_not(said):
    assert drained(cluster(["w1", "w2", "w3"], said=said)).outcome is VmOutcome.MIGRATES


@pytest.mark.parametrize(
    "found",
    [
        cluster(["w1", "w2", "w3"]),  # it runs since before the taint
        cluster(["w1", "w2", "w3"], [{"operator": "Exists"}]),
        cluster([], [{"operator": "Exists"}]),  # something else than the DaemonSet may register it
        # known of no node
        cluster(["w1", "w3"], taint=None, tolerations=[{"operator": "Exists"}], listed=()),
    ],
    ids=["pod-there", "tolerates", "no-pods", "nowhere-listed"],
)
def test_a_node_with_the_driver_takes_it(found):
    assert drained(found).outcome is VmOutcome.MIGRATES


def test_the_loss_of_its_node_says_the_same():
    found = outages(Question(nodes=("w1",)), cluster(["w1", "w3"]))
    (row,) = found.outages[0].vms

    assert f"on w2 CSI driver {ROOK} is not registered on w2" in row.reason
    assert row.remedy.startswith("let DaemonSet rook-ceph/csi-rbdplugin tolerate it")
