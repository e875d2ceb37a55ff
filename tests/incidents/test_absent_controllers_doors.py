"""A cluster without kube-scheduler or kube-controller-manager, as each command tells of it."""

import pytest

from tests.forecasts.placement.test_absent_controllers import KCM, SCHEDULER, lease, pod
from tests.healthy.clusters import plain

from .machines import guest

UNPLACED = "so no new pod gets a node"
UNREPLACED = "so no pod of a lost node is replaced"


def cluster(*objects):
    return [*plain(), *guest("web", "w1"), *objects]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("drain", "w1"), "A drain of w1 does not end"),
        (("explain", "vm", "vms/web"), "does not start"),
        (("outage", "w1"), "never restart"),
    ],
)
def test_without_kube_scheduler_no_door_says_that_a_vm_gets_a_node(ask, command, said):
    found = " ".join(ask(cluster(pod(f"{SCHEDULER}-w2", f"!{SCHEDULER}").data), *command).split())
    assert UNPLACED in found
    assert said in found


def test_without_kube_controller_manager_no_lost_vm_restarts(ask):
    down = pod(f"{KCM}-w2", f"!{KCM}").data
    assert UNREPLACED in " ".join(ask(cluster(down), "outage", "w1").split())
    assert UNREPLACED not in ask(cluster(down, lease(KCM, 1).data), "outage", "w1")
