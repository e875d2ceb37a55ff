"""A kind that cannot be read never turns a Yes into a No, nor another answer into a Yes."""

import pytest

from tests.builders import kubevirt, manifest, node, vmi
from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.test_control_path import guest, machine
from tests.forecasts.remediation import test_overdue_returns as overdue
from tests.forecasts.upgrade import test_skipped_drains as single
from tests.forecasts.upgrade.test_awaited_nodes import draining
from tests.healthy.motion import updates
from virt_admit.cli.commands import drain
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.drain.report import verdict

NOW, JUST, LONG = "2026-01-01T12:00:00Z", "2026-01-01T11:57:00Z", "2026-01-01T09:00:00Z"
NHC, SNR = "NodeHealthCheck", "SelfNodeRemediation"
CHECKS = "nodehealthchecks.remediation.medik8s.io"
REMEDIATIONS = "selfnoderemediations.self-node-remediation.medik8s.io"
CDIS = "cdis.cdi.kubevirt.io"
POOLS = "machineconfigpools.machineconfiguration.openshift.io"


def without(items, resource, time=NOW):
    """Return a cluster in which one kind could not be read."""
    left = [each for each in items if (kinds.of(each) or "") != kinds.by_resource(resource)]
    return Snapshot(left, ["*"], [resource], time=time)


def answers(cluster):
    """Return the answers of ``drain`` by node and of all nodes, and that of ``upgrade``."""
    every = plan(cluster)
    found = {each.name: each.drainable for each in every.nodes}
    found["all"] = verdict(drain.rehearsed(every, cluster)).answer
    return found, rehearse(cluster, Options(), forecast_only=True)


def silent(name="c", *, since=JUST, **spec):
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": since}
    return manifest("v1", "Node", name, spec=spec, status={"conditions": [ready]})


def remediated(name="c", started="2026-01-01T11:58:00Z", fenced="2026-01-01T11:59:00Z"):
    """Return a remediation of a node, which fenced it."""
    of = {"kind": SNR, "name": name, "namespace": "medik8s"}
    status = {
        "unhealthyNodes": [{"name": name, "remediations": [{"resource": of, "started": started}]}]
    }
    check = manifest("remediation.medik8s.io/v1alpha1", NHC, "nhc", spec={}, status=status)
    done = {"type": "Succeeded", "status": "True", "lastTransitionTime": fenced}
    group = "self-node-remediation.medik8s.io/v1alpha1"
    return [check, manifest(group, SNR, name, "medik8s", spec={}, status={"conditions": [done]})]


def fenced(*more):
    return [node("a"), node("b"), silent(), *remediated(), *more]


def scaled_in():
    """Return an OpenShift pool of which one node goes with its Machine."""
    labels, owner = {"node-role.kubernetes.io/worker": ""}, "machine.openshift.io/machine"
    every = [node(name, labels, runs_vms=False) for name in "abc"]
    every[2].data["spec"] = {"unschedulable": True}
    every[2].data["metadata"]["annotations"] = {owner: "openshift-machine-api/m-c"}
    spec = {"nodeSelector": {"matchLabels": labels}, "maxUnavailable": 1}
    group = "machineconfiguration.openshift.io/v1"
    pool = manifest(group, "MachineConfigPool", "worker", spec=spec, status={})
    gone, status = {"deletionTimestamp": JUST}, {"nodeRef": {"name": "c"}}
    api, space = "machine.openshift.io/v1beta1", "openshift-machine-api"
    leaves = {"phase": "Running", "nodeName": "c", "evacuationNodeName": "c"}
    machine = manifest(api, "Machine", "m-c", space, metadata=gone, status=status)
    return [*every, pool, machine, vmi(status=leaves), kubevirt()]


CLUSTERS = {
    "a node of a roll-out guards Ceph": draining(),
    "fenced": fenced(),
    "scaled in": scaled_in(),
    "a single node": [single.node("SingleReplica"), single.POOL, guest("db"), machine("db")],
    **{each.name: [Object(item) for item in each.snapshot["items"]] for each in updates()},
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_no_certain_answer_rests_on_a_kind_that_is_left_out(name):
    items = CLUSTERS[name]
    time = next((each.snapshot["time"] for each in updates() if each.name == name), NOW)
    nodes, whole = answers(Snapshot(items, ["*"], time=time))
    assert whole.possible is True
    for resource in sorted({str(kinds.of(each)) for each in items if kinds.of(each)}):
        found, upgraded = answers(without(items, resource, time))
        assert upgraded.possible is not False, (resource, upgraded.stops)
        turned = {name: (nodes.get(name), each) for name, each in found.items()}
        wrong = [
            name
            for name, (before, after) in turned.items()
            if {before, after} == {True, False} or (after and not before)
        ]
        assert not wrong, (resource, turned)


@pytest.mark.parametrize("resource", [CHECKS, REMEDIATIONS])
def test_a_remediation_that_cannot_be_read_may_bring_a_node_back(resource):
    kept = vmi(status={"phase": "Running", "nodeName": "c"})
    for items in (fenced(), fenced(kept)):
        found, upgraded = answers(without(items, resource))
        assert found["c"] is (None if kept in items else True)
        assert found["all"] is None
        assert upgraded.possible is None
        assert any(resource in what for what in upgraded.unseen)


def test_a_remediation_that_was_read_and_does_not_exist_brings_no_node_back():
    kept = vmi(status={"phase": "Running", "nodeName": "c"})
    lost = [node("a"), node("b"), silent(), kept]
    for unread in ([], ["virtualmachinepools.pool.kubevirt.io"]):
        found, upgraded = answers(Snapshot(lost, ["*"], unread, time=NOW))
        assert (found["c"], upgraded.possible) == (False, False)


@pytest.mark.parametrize(
    ("since", "cordoned", "unread", "drainable"),
    [
        (JUST, True, "nodemaintenances.nodemaintenance.medik8s.io", None),
        (JUST, None, "nodemaintenances.nodemaintenance.medik8s.io", False),
        (JUST, None, POOLS, None),
        (LONG, True, POOLS, False),
    ],
    ids=["cordoned", "not cordoned", "OpenShift", "for longer than a reboot"],
)
def test_an_update_that_cannot_be_read_may_bring_a_node_back(since, cordoned, unread, drainable):
    kept = vmi(status={"phase": "Running", "nodeName": "c"})
    lost = silent(since=since, **({"unschedulable": True} if cordoned else {}))
    found = plan(Snapshot([node("a"), node("b"), lost, kept], ["*"], [unread], time=NOW), "c")
    (only,) = found.nodes
    assert only.drainable is drainable
    assert any(unread in what for what in only.unseen) is (drainable is None)


def test_a_guard_of_a_roll_out_that_cannot_be_read_is_not_a_certain_stop():
    """The pod of a monitor waits for node b, which something drains."""
    waiting = world.pod("mon-b", "rook-ceph", {"app": "mon"}, "", ready=False)
    waiting.data |= {"spec": {"nodeSelector": {"host": "b"}}, "status": {"phase": "Pending"}}
    others = [world.pod(f"mon-{on}", "rook-ceph", {"app": "mon"}, on) for on in "ac"]
    guard = world.budget("mon", "rook-ceph", {"app": "mon"}, allowed=0, expected=3, minAvailable=2)
    counts = {"desiredHealthy": 2, "currentHealthy": 2, "expectedPods": 3}
    guard.data["status"] = {"disruptionsAllowed": 0} | counts
    nodes = [node(name, {"host": name}, runs_vms=False) for name in "abc"]
    nodes[1].data["spec"] = {"unschedulable": True}
    items = [*nodes, waiting, *others, guard]
    for unread, drainable in (([POOLS], None), ([], False), ([CHECKS], False)):
        (found,) = plan(Snapshot(items, ["*"], unread, time=NOW), "a").nodes
        assert found.drainable is drainable, unread


@pytest.mark.parametrize(
    ("resource", "mark", "possible"),
    [
        ("machines.machine.openshift.io", True, None),
        ("virtualmachineinstances.kubevirt.io", True, None),
        ("machines.machine.openshift.io", False, False),
    ],
)
def test_a_cordoned_node_may_go_with_a_machine_that_cannot_be_read(resource, mark, possible):
    items = scaled_in()
    if not mark:
        items[2].data["metadata"]["annotations"] = {}
    upgraded = rehearse(without(items, resource), Options(), forecast_only=True)
    assert upgraded.possible is possible
    assert any(resource in what for what in upgraded.unseen) is (possible is None)


def test_a_late_reboot_may_be_remediated_by_a_check_that_cannot_be_read():
    for since, unread, possible in (
        ("2026-01-01T11:20:00Z", [], False),
        ("2026-01-01T11:20:00Z", [CHECKS], None),
        ("2026-01-01T09:30:00Z", [CHECKS], False),  # it would have acted before
    ):
        late = overdue.cluster(silent=since)
        found = Snapshot(late, ["*"], unread, time=late.time)
        assert rehearse(found, Options(), forecast_only=True).possible is possible


@pytest.mark.parametrize("resource", ["jobs.batch", "cephclusters.ceph.rook.io", CDIS])
def test_an_operator_that_cannot_be_read_may_be_held(resource):
    nodes = [node(name) for name in "ab"]
    read = Snapshot(nodes, ["*"], time=NOW)
    assert rehearse(read, Options(), forecast_only=True).possible is True
    found = rehearse(Snapshot(nodes, ["*"], [resource], time=NOW), Options(), forecast_only=True)
    assert (found.possible, found.nodes_complete, found.unseen) == (None, True, (resource,))
    guard = world.budget("single", "shop", {"app": "single"}, allowed=0, minAvailable=1)
    kept = [world.pod("single", "shop", {"app": "single"}, "a"), guard]
    stopped = Snapshot([*nodes, *kept], ["*"], [resource], time=NOW)
    assert rehearse(stopped, Options(), forecast_only=True).possible is False


@pytest.mark.parametrize(("unread", "answer"), [([], False), ([CHECKS], None)])
def test_a_silent_node_beside_the_others_of_its_pool(unread, answer):
    items = [*scaled_in()[:2], silent(), scaled_in()[3], kubevirt()]
    items[2].data["metadata"]["labels"] = {"node-role.kubernetes.io/worker": ""}
    items[3].data["spec"]["maxUnavailable"] = 2
    found, _ = answers(Snapshot(items, ["*"], unread, time=NOW))
    assert found["all"] is answer
