"""No plan stops a VM that nothing would start again."""

import pytest

from tests.healthy.clusters import plain
from tests.healthy.parts import Object, ago
from tests.incidents.machines import find, guest
from virt_admit.forecasts.drain.vm_outcomes import forecast
from virt_admit.forecasts.repair import stopped_vms
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import Goal
from virt_admit.model.kubernetes import objects
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import VMI

KVM = "devices.kubevirt.io/kvm"
ALL = ("w1", "w2", "w3")


def crashing(*on: str, **since: float) -> list[Object]:
    """Return a cluster with a VM on w1, whose virt-handlers crash on these nodes for some time."""
    items = plain() + guest("web")
    for each in items:
        handler = each["kind"] == "Pod" and each["metadata"]["name"].startswith("virt-handler")
        if handler and each["spec"]["nodeName"] in on:
            state = {"waiting": {"reason": "CrashLoopBackOff"}}
            ended = {"terminated": {"exitCode": 1, "finishedAt": ago(minutes=1)}}
            each["status"]["containerStatuses"][0] |= {
                "ready": False,
                "restartCount": 30,
                "state": state,
                "lastState": ended,
            }
            for condition in each["status"]["conditions"]:
                if condition["type"] in ("Ready", "ContainersReady"):
                    condition |= {"status": "False", "lastTransitionTime": ago(**since)}
    return items


def without_kvm(*on: str) -> list[Object]:
    items = plain() + guest("web")
    for name in on:
        find(items, "Node", name)["status"]["allocatable"][KVM] = "0"
    launcher = next(each for each in items if each["metadata"]["name"].startswith("virt-launcher"))
    launcher["spec"]["containers"][0]["resources"]["requests"][KVM] = "1"
    return items


def known(items: list[Object]) -> Snapshot:
    return Snapshot(list(map(objects.Object, items)), ["*"], time=ago())


def planned(items: list[Object]) -> tuple[list[str], str]:
    """Return the steps of the plan for drains, and what it says of problems that no step ends."""
    found = repair(known(items), Goal.DRAIN, ["w1"])
    return [step.title for step in found.steps], " ".join(each.remedy for each in found.problems)


@pytest.mark.parametrize("on", [ALL, ("w2", "w3")])
def test_a_vm_is_not_restarted_where_no_virt_handler_works(on):
    steps, remedy = planned(crashing(*on, hours=2))

    assert steps == []
    assert "kubectl logs virt-handler-" in remedy


def test_a_vm_is_not_restarted_where_its_node_lost_the_device():
    items = without_kvm(*ALL)
    cluster = known(items)
    vmi = cluster.get(VMI, "vms", "web")
    remedy = forecast(vmi, cluster).remedy

    assert planned(items)[0] == []
    assert stopped_vms.refused_at_home(vmi, cluster) == KVM
    assert "do not stop the VM before" in remedy
    assert "shut the guest down" not in remedy


def test_a_vm_whose_own_node_has_the_device_may_be_restarted():
    cluster = known(without_kvm("w2", "w3"))
    vmi = cluster.get(VMI, "vms", "web")

    assert not stopped_vms.refused_at_home(vmi, cluster)
    assert not stopped_vms.kept(vmi, cluster)
    assert "let drains shut the guest down" in forecast(vmi, cluster).remedy
