"""Harvester drains no node while an attached volume is degraded; what a degraded MachineConfigPool says."""

import pytest

from tests.builders import manifest, node
from virt_admit.forecasts.upgrade import rollouts
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes.cluster import Snapshot

HARVESTER = [node(name, {"harvesterhci.io/managed": "true"}) for name in "abc"]


def volume(state="attached", robustness="degraded", scheduled="False"):
    conditions = [{"type": "Scheduled", "status": scheduled, "reason": "ReplicaSchedulingFailure"}]
    status = {"state": state, "robustness": robustness, "conditions": conditions}
    spec = {"numberOfReplicas": 3}
    return manifest("longhorn.io/v1beta2", "Volume", "pvc-1", "longhorn-system", spec=spec, status=status)


def obstacle(*objects, driver=Driver.PLAIN):
    cluster = Snapshot(objects, complete=["*"])
    (pool,) = rollouts.pools(driver, cluster, None, ["a", "b", "c"])
    return pool.obstacle


def test_a_volume_that_cannot_be_rebuilt_holds_the_upgrade():
    found = obstacle(*HARVESTER, volume())
    assert "pvc-1 stays degraded: no node takes the last of its 3 replicas" in found.reason
    assert "kubectl edit" in found.remedy
    assert str(found.problem) == "VolumeDegraded:longhorn-system/pvc-1"


@pytest.mark.parametrize(
    "other",
    [volume(state="detached"), volume(robustness="healthy"), volume(scheduled="True")],
    ids=["detached", "healthy", "rebuilding"],
)
def test_volumes_that_do_not_hold_it(other):
    assert obstacle(*HARVESTER, other) is None


def test_harvester_does_not_wait_on_two_nodes_and_others_never_do():
    assert obstacle(*HARVESTER[:2], volume()) is None
    assert obstacle(*map(node, "abc"), volume()) is None


@pytest.mark.parametrize(("nodes", "asked"), [(HARVESTER, 1), ([*map(node, "abc")], 0)], ids=["harvester", "other"])
def test_volumes_that_were_not_read(nodes, asked):
    cluster = Snapshot(nodes, complete=["*"], unreadable=["volumes.longhorn.io"])
    assert len(list(rollouts.unread(cluster, Driver.PLAIN))) == asked


def test_a_degraded_pool_quotes_the_condition_that_names_the_node():
    conditions = [
        {"type": "NodeDegraded", "status": "True", "message": 'Node a is reporting: "content mismatch for file"'},
        {"type": "Degraded", "status": "True", "message": ""},
    ]
    spec = {"nodeSelector": {"matchLabels": {"kubevirt.io/schedulable": "true"}}}
    pool = manifest(
        "machineconfiguration.openshift.io/v1",
        "MachineConfigPool",
        "worker",
        spec=spec,
        status={"conditions": conditions},
    )
    workers = [node(name, {"node-role.kubernetes.io/worker": ""}) for name in "abc"]
    found = obstacle(*workers, pool, driver=Driver.MACHINE_CONFIG)
    assert 'worker is degraded: Node a is reporting: "content mismatch for file"' in found.reason
