"""Ended launcher pods among the active ones of a VMI: they are named,
and only they are to be deleted.
"""

from tests.builders import NAMESPACE, complete, manifest
from virt_admit.forecasts.drain.starts.storage import ended_launchers

SAID = "Unable to determine virt-launcher UID"


def vmi(*active, said=SAID):
    synchronized = {
        "type": "Synchronized",
        "status": "False",
        "reason": "Synchronizing failed",
        "message": said,
    }
    status = {
        "phase": "Running",
        "nodeName": "w1",
        "activePods": dict.fromkeys(active, "w1"),
        "conditions": [synchronized],
    }
    return manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        "db",
        NAMESPACE,
        metadata={"uid": "vmi"},
        status=status,
    )


def launcher(name, on, phase="Succeeded"):
    labels = {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "db"}
    metadata = {
        "uid": name,
        "labels": labels,
        "ownerReferences": [{"kind": "VirtualMachineInstance", "name": "db", "controller": True}],
    }
    return manifest(
        "v1",
        "Pod",
        name,
        NAMESPACE,
        metadata=metadata,
        spec={"nodeName": on},
        status={"phase": phase},
    )


PODS = (launcher("a", "w1"), launcher("b", "w2"), launcher("c", "w1", "Running"))


def test_the_pods_that_have_ended_are_named():
    found = ended_launchers.of(vmi("a", "b", "c"), complete(*PODS))

    assert found.reason == (
        f"virt-handler on w1 does not find the launcher of the VM ({SAID}), because "
        "status.activePods of the VMI still names "
        "launcher pods that have ended: a (w1), b (w2)"
    )
    assert found.remedy.startswith("delete only the launcher pods that have ended; ")
    assert found.remedy.endswith(f": kubectl delete pod a b -n {NAMESPACE}")


def test_nothing_is_said_without_the_error_or_without_an_ended_pod_on_the_node():
    assert ended_launchers.of(vmi("a", "b", "c", said="another error"), complete(*PODS)) is None
    assert ended_launchers.of(vmi("b", "c"), complete(*PODS)) is None
    assert ended_launchers.of(vmi("c"), complete(*PODS)) is None
