"""Orders to update nodes that stand still: what certainly holds one, what is only quoted,
and what goes on.
"""

import pytest

from tests.builders import kubevirt, manifest
from tests.work import measured
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates import talos_upgrades, upgrade_plans
from virt_admit.model.node_updates.rancher import plan_selectors
from virt_admit.reports.upgrade.text import text

NOON, LONG_AGO, JUST_NOW = "2026-01-01T12:00:00Z", "2025-12-31T12:00:00Z", "2026-01-01T11:55:00Z"
PLANS, TUPPR = "upgrade.cattle.io", "tuppr.home-operations.com"
TAINT = {"key": "dedicated", "effect": "NoSchedule"}


def cluster(*objects, complete=("*",)):
    return Snapshot(list(objects), complete=list(complete), time=NOON)


# --- Plans ----------------------------------------------------------------------------------------


def plan(*conditions, **spec):
    found = manifest(f"{PLANS}/v1", "Plan", "servers", "system-upgrade", spec=spec)
    resolved = {"type": "LatestResolved", "status": "True", "lastUpdateTime": LONG_AGO}
    found.data["status"] = {"conditions": [*conditions] if conditions else [resolved]}
    return found


def pod(*, on="", said="0/1 nodes are available", **more):
    unplaced = {"type": "PodScheduled", "status": "False", "message": said}
    labels = {f"{PLANS}/plan": "servers", f"{PLANS}/node": "a"}
    return manifest(
        "v1",
        "Pod",
        "apply",
        "system-upgrade",
        metadata={"labels": labels, "creationTimestamp": JUST_NOW},
        spec={"nodeName": on, **more},
        status={"phase": "Pending", "conditions": [unplaced]},
    )


def node(*taints):
    return manifest("v1", "Node", "a", spec={"taints": list(taints)})


def plans(*objects):
    return [(each.certain, each.reason) for each in upgrade_plans.standing(cluster(*objects))]


def test_a_taint_that_the_plan_does_not_tolerate():
    ((certain, reason),) = plans(plan(), pod(), node(TAINT))
    assert certain
    assert reason.startswith(
        "Plan system-upgrade/servers tolerates no taint dedicated:NoSchedule of a"
    )


def test_a_node_that_starts_has_taints_for_a_moment():
    young = plan({"type": "LatestResolved", "status": "True", "lastUpdateTime": JUST_NOW})
    assert plans(young, pod(), node(TAINT)) == []


def test_a_pod_without_a_node_for_ten_minutes():
    """The Plan is younger than an hour, but a node that starts does not explain it any more."""
    young = plan({"type": "LatestResolved", "status": "True", "lastUpdateTime": JUST_NOW})
    waits = pod()
    waits.data["metadata"]["creationTimestamp"] = "2026-01-01T11:49:00Z"
    ((certain, reason),) = plans(young, waits, node(TAINT))
    assert certain
    assert "tolerates no taint dedicated:NoSchedule of a" in reason


ROLE = "node-role.kubernetes.io/control-plane"


def selecting(*values, key=ROLE, operator="In", version="v1.31.5-rke2r1", applying=()):
    asked = {"key": key, "operator": operator, "values": list(values)}
    found = plan({"type": "Complete", "status": "True"}, nodeSelector={"matchExpressions": [asked]})
    found.data["status"] |= {"latestVersion": version, "applying": list(applying)}
    return found


def server(value, key=ROLE):
    own = {"labels": {key: value, "kubernetes.io/hostname": "a"}}
    status = {"nodeInfo": {"kubeletVersion": "v1.30.9+rke2r1"}}
    return manifest("v1", "Node", "a", metadata=own, status=status)


def test_a_plan_that_selects_no_node_for_the_value_of_a_role():
    agents = manifest(f"{PLANS}/v1", "Plan", "agents", "system-upgrade")
    agents.data["spec"] = {"prepare": {"args": ["prepare", "servers"]}}
    assert plans(selecting("true"), server(""), agents) == [
        (
            True,
            f"Plan system-upgrade/servers selects no node: it asks for {ROLE} In ['true'], and a "
            "has '' there. So it makes no Job, and a stays at v1.30.9+rke2r1; agents waits for it "
            "in its step prepare",
        )
    ]


def test_many_plans_and_nodes_are_compared_in_time():
    nodes = [Object({**server("").data, "metadata": named(each)}) for each in range(600)]
    orders = [Object({**selecting("true").data, "metadata": named(each)}) for each in range(600)]
    seen = cluster(*nodes, *orders)
    with measured() as work:
        assert all(plan_selectors.selects_none(each, seen) for each in orders)
    assert work.seconds < 2


def named(number):
    return {"name": f"n{number}", "namespace": "x", "labels": {ROLE: ""}}


@pytest.mark.parametrize(
    "objects",
    [
        (selecting("true"), server("true")),
        (selecting("true", version="v1.30.9-rke2r1"), server("")),
        (selecting("true", version="v1.29.2-rke2r1"), server("")),
        (selecting("true", version="latest"), server("")),
        (selecting("a", key="pool"), server("b", key="pool")),
        (selecting("true", applying=["a"]), server("")),
        (selecting("true"), server("", key="node-role.kubernetes.io/worker")),
    ],
    ids=[
        *("selected", "has the version", "is newer", "not a version", "a pool of its own"),
        *("just changed", "no such role"),
    ],
)
def test_a_plan_that_has_nothing_to_do(objects):
    assert plans(*objects) == []


@pytest.mark.parametrize(
    "objects",
    [
        (pod(on="a"), node(TAINT)),
        (pod(said="", tolerations=[{"operator": "Exists"}]), node(TAINT)),
        (pod(said=""), node({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"})),
        (pod(said=""), node({"key": "dedicated", "effect": "PreferNoSchedule"})),
        (pod(said=""),),
        (node(TAINT),),
    ],
    ids=["it runs", "tolerated", "passes by itself", "only preferred", "no such node", "no pod"],
)
def test_a_plan_that_goes_on(objects):
    assert plans(plan(), *objects) == []


def test_a_plan_that_is_complete():
    assert plans(plan({"type": "Complete", "status": "True"}), pod(), node(TAINT)) == []


def test_a_pod_that_finds_no_node_for_another_reason():
    ((certain, reason),) = plans(plan(), pod(said="Insufficient cpu"), node())
    assert not certain
    assert reason == (
        "Plan system-upgrade/servers goes on: no node takes its pod apply for 5 min: "
        "Insufficient cpu"
    )
    young = {"type": "LatestResolved", "status": "True", "lastUpdateTime": JUST_NOW}
    assert plans(plan(young), pod(said="Insufficient cpu"), node()) == []


@pytest.mark.parametrize(
    ("condition", "reason", "since", "quoted"),
    [
        ("Validated", "Error", LONG_AGO, True),
        ("LatestResolved", "Error", LONG_AGO, True),
        ("Complete", "JobFailed", LONG_AGO, True),
        ("Complete", "SyncJob", LONG_AGO, False),
        ("Complete", "JobFailed", JUST_NOW, False),
    ],
)
def test_what_the_controller_says_of_a_plan(condition, reason, since, quoted):
    own = {
        "type": condition,
        "status": "False",
        "reason": reason,
        "message": "no such host",
        "lastUpdateTime": since,
    }
    words = f"Plan system-upgrade/servers goes on: {condition} is False for 24 h: no such host"
    assert plans(plan(own)) == ([(False, words)] if quoted else [])


# --- tuppr ----------------------------------------------------------------------------------------


def upgrade(
    phase="Pending", *, kind="TalosUpgrade", since=LONG_AGO, notes=None, checks=(), **status
):
    status = {"phase": phase, "startedAt": since, "lastUpdated": since, "message": "why", **status}
    notes = {"annotations": notes or {}}
    spec = {"healthChecks": list(checks)}
    return manifest(f"{TUPPR}/v1alpha1", kind, "own", metadata=notes, spec=spec, status=status)


def check(expression, name="x"):
    return {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "name": name,
        "namespace": "shop",
        "expr": expression,
    }


THING = manifest(
    "example.com/v1", "Thing", "x", "shop", status={"phase": "ready", "ceph": {"health": "OK"}}
)


def orders(own, *objects, complete=("*",)):
    found = cluster(own, *objects, complete=complete)
    return [(each.certain, each.reason) for each in talos_upgrades.standing(found)]


@pytest.mark.parametrize("kind", ["TalosUpgrade", "KubernetesUpgrade"])
def test_an_upgrade_that_has_waited_for_long_is_quoted(kind):
    assert orders(upgrade(kind=kind)) == [
        (False, f"{kind} own begins: it is Pending for 24 h: why")
    ]
    assert orders(upgrade(kind=kind, since=JUST_NOW)) == []


@pytest.mark.parametrize("phase", ["Completed", "MaintenanceWindow"])
def test_an_upgrade_that_is_over_or_waits_for_its_time(phase):
    assert orders(upgrade(phase)) == []


SOON = "2026-01-01T14:30:00Z"


@pytest.mark.parametrize("phase", ["Pending", "MaintenanceWindow"])
def test_an_upgrade_that_waits_for_its_window(phase):
    own = upgrade(phase, nextMaintenanceWindow=SOON)
    assert orders(own) == []
    assert talos_upgrades.before_nodes(cluster(own)) == (
        "TalosUpgrade own waits for its maintenance window, which begins at 2026-01-01T14:30:00Z "
        "(in 2 h 30)"
    )


@pytest.mark.parametrize(
    "own",
    [
        upgrade("MaintenanceWindow", nextMaintenanceWindow=JUST_NOW),
        upgrade("Completed", nextMaintenanceWindow=SOON),
        upgrade("Upgrading", nextMaintenanceWindow=SOON),
        upgrade("Pending"),
        upgrade("Pending", kind="KubernetesUpgrade", nextMaintenanceWindow=SOON),
        upgrade("Pending", notes={f"{TUPPR}/suspend": "yes"}, nextMaintenanceWindow=SOON),
    ],
    ids=["it has begun", "over", "under way", "no window", "reboots no node", "suspended"],
)
def test_an_upgrade_that_waits_for_no_window(own):
    assert talos_upgrades.before_nodes(cluster(own)) == ""


def test_a_rehearsal_counts_from_the_window():
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    vms = {"labels": {"kubevirt.io/schedulable": "true"}}
    there = cluster(
        manifest("v1", "Node", "a", metadata=vms, status=ready),
        kubevirt(),
        upgrade("Pending", nextMaintenanceWindow=SOON),
    )
    said = text(rehearse(there, Options()))
    assert "after that.\nTalosUpgrade own waits for its maintenance window" in said
    assert "begins now" not in said


def test_an_upgrade_that_waits_for_another_one():
    assert orders(upgrade(kind="KubernetesUpgrade"), upgrade("Upgrading", since=JUST_NOW)) == []


def test_an_upgrade_that_does_not_move():
    assert orders(upgrade("Rebooting")) == [
        (False, "TalosUpgrade own goes on: it is Rebooting and unchanged for 24 h: why")
    ]


def test_an_upgrade_that_its_administrator_has_to_continue():
    assert orders(upgrade("Failed")) == [
        (True, "TalosUpgrade own has failed, and tuppr does not try it again: why")
    ]
    held = upgrade("Draining", notes={f"{TUPPR}/suspend": "yes"})
    assert orders(held) == [(True, "TalosUpgrade own is suspended by its annotation")]


@pytest.mark.parametrize(
    ("expression", "missing"),
    [
        ("status.phase == 'ready' && !status.busy", "status.busy"),
        ("object.status.busy == false", "status.busy"),
        ("status.ceph.state == 'OK'", "status.ceph.state"),
        ("status.conditions.exists(c, c.status == 'True')", "status.conditions"),
        ("status.phase == 'ready'", ""),
        ("status.ceph.health in ['OK']", ""),
        ("status.phase == 'ready' || status.busy", ""),
        ("has(status.busy) && status.busy", ""),
        ("status.?busy.orValue(false)", ""),
        ("object.spec.status.busy", ""),
        ("status.phase == 'status.busy'", ""),
    ],
)
def test_a_check_that_reads_a_missing_field(expression, missing):
    ((certain, reason),) = orders(upgrade(checks=[check(expression)]), THING)
    assert certain is bool(missing)
    assert (
        f"has no {missing} " in reason if missing else reason.startswith("TalosUpgrade own begins")
    )


@pytest.mark.parametrize(("name", "complete"), [("", ("*",)), ("y", ("*",)), ("x", ("nodes",))])
def test_a_check_of_an_object_that_is_not_known(name, complete):
    ((certain, _),) = orders(upgrade(checks=[check("status.busy", name)]), complete=complete)
    assert not certain


@pytest.mark.parametrize(
    ("systems", "unread"),
    [
        (["Talos (v1.11.5)"], 2),
        (["Ubuntu 24.04.3 LTS", "Talos (v1.11.5)"], 2),
        (["Ubuntu 24.04.3 LTS", None], 2),  # it may run Talos
        (["Ubuntu 24.04.3 LTS", "Harvester v1.6.1"], 0),
    ],
)
def test_upgrades_of_talos_are_missed_only_where_a_node_may_run_it(systems, unread):
    nodes = [
        manifest("v1", "Node", f"n{index}", status={"nodeInfo": {"osImage": system}})
        for index, system in enumerate(systems)
    ]
    assert len(list(talos_upgrades.unread(cluster(*nodes, complete=["nodes"])))) == unread
