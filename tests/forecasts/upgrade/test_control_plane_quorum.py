"""A control-plane node is down: no other one is rebooted while etcd would lose its majority."""

import pytest

from tests.builders import complete, manifest, node, partial
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.outage.outages import Question, outages
from virt_admit.forecasts.repair import judging
from virt_admit.forecasts.repair.repair_plan import Goal
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2026-01-01T12:00:00Z"
LONG, SHORT = "2026-01-01T08:40:00Z", "2026-01-01T11:57:00Z"
ROLE = {"node-role.kubernetes.io/control-plane": ""}
OPERATOR = "machineconfiguration.openshift.io"


def member(name, ready="True", since=LONG, labels=ROLE, annotations=None):
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    metadata = {"labels": labels, "annotations": annotations or {}}
    return manifest("v1", "Node", name, metadata=metadata, status={"conditions": [condition]})


def etcd(on, since=LONG):
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}],
    }
    metadata = {
        "labels": {"component": "etcd"},
        "ownerReferences": [{"kind": "Node", "name": on, "controller": True}],
    }
    metadata["annotations"] = {"kubernetes.io/config.mirror": "x"}
    return manifest(
        "v1",
        "Pod",
        f"etcd-{on}",
        "kube-system",
        metadata=metadata,
        spec={"nodeName": on},
        status=status,
    )


def cluster(*objects, **fields):
    return Snapshot([*objects, node("w", runs_vms=False)], complete=["*"], time=NOW, **fields)


def rehearse(*objects, **options):
    return rehearsal.rehearse(
        cluster(*objects), Options(Driver.PLAIN, **options), forecast_only=True
    )


def test_no_control_plane_node_is_rebooted_while_another_one_of_three_is_down():
    found = rehearse(member("a"), member("b"), member("c", "Unknown"))
    assert found.possible is False
    (stop,) = found.stops
    assert stop.reason == (
        "c does not report for 3 h 20: a reboot of a leaves 1 of 3 control-plane nodes, too few "
        "for etcd, and the API stops"
    )
    assert stop.remedy == (
        "Repair c first, or remove it and its member of etcd and add a new node: kubectl "
        "describe node c"
    )
    assert str(stop.problem) == "ControlPlaneNodeDown:c"


@pytest.mark.parametrize(
    ("third", "possible"),
    [
        ([member("c"), etcd("c")], False),
        ([member("c"), etcd("c", SHORT)], None),
        ([member("c", "Unknown", SHORT)], None),  # it may be rebooting
        ([member("c", "Unknown", None)], None),
        ([member("c", "False")], None),  # its kubelet reports, and its etcd may work
        ([member("c")], True),
    ],
    ids=[
        "etcd down",
        "etcd starting",
        "silent",
        "silent since an unknown time",
        "not ready",
        "healthy",
    ],
)
def test_what_a_third_node_says(third, possible):
    found = rehearse(member("a"), member("b"), *third)
    assert found.possible is possible, found
    assert bool(found.unseen) is (possible is None)
    assert all("a reboot of a may leave 1 of 3" in what for what in found.unseen)


@pytest.mark.parametrize(
    "nodes",
    [
        # the API stops while one is rebooted, and goes on after that
        [member(name) for name in "ab"],
        [member("a")],
        [member(name) for name in "abcd"] + [member("e", "False")],  # 3 of 5 are left
        # no control plane is here
        [member(name, labels={}) for name in "ab"] + [member("c", "False", labels={})],
    ],
    ids=["two", "one", "five", "outside"],
)
def test_what_does_not_stop_it(nodes):
    assert rehearse(*nodes).possible is True


def test_without_a_majority_the_api_would_not_have_answered():
    """Their kubelets do not reach the API server, but their members of etcd vote."""
    found = rehearse(member("a"), member("b", "Unknown"), member("c", "Unknown"))
    assert found.possible is None


def test_a_node_that_is_being_updated_comes_back():
    config = {f"{OPERATOR}/{key}Config": "new" for key in ("current", "desired")}
    old = {f"{OPERATOR}/{key}Config": "old" for key in ("current", "desired")}
    config |= {f"{OPERATOR}/state": "Done"}
    begun = {
        f"{OPERATOR}/currentConfig": "old",
        f"{OPERATOR}/desiredConfig": "new",
        f"{OPERATOR}/state": "Rebooting",
    }
    labels = {"node-role.kubernetes.io/master": ""}
    pool = manifest(
        "machineconfiguration.openshift.io/v1",
        "MachineConfigPool",
        "master",
        spec={"nodeSelector": {"matchLabels": labels}, "configuration": {"name": "new"}},
        status={"conditions": [{"type": "Updating", "status": "True"}], "machineCount": 3},
    )
    masters = [
        member("a", labels=labels, annotations=config),
        member("b", labels=labels, annotations=old),
    ]
    away = member("c", "Unknown", SHORT, labels, begun)
    found = rehearsal.rehearse(cluster(*masters, away, pool), Options(), forecast_only=True)
    assert found.possible is True, found


def test_drain_says_that_the_node_must_not_be_rebooted():
    objects = cluster(member("a"), member("b"), member("c", "Unknown"))
    notes = {each.name: each.notes for each in drain_plan.plan(objects).nodes}
    assert "a reboot of a leaves 1 of 3" in notes["a"][0]
    assert "a drain alone does not stop it" in notes["a"][0]
    assert notes["c"] == ()
    assert notes["w"] == ()


def test_outage_counts_a_node_that_is_down():
    found = outages(Question(("a",)), cluster(member("a"), member("b"), member("c", "Unknown")))
    assert found.quorum == (3, 1, False)
    assert "1 of 3 control-plane nodes is left (c does not report for 3 h 20)" in found.because[0]
    found = outages(
        Question(("a",)), cluster(member("a"), member("b"), member("c", "Unknown", SHORT))
    )
    assert found.quorum == (3, 2, None)
    assert found.because[0] == "c does not report for 3 min, which decides whether the API stops"


def test_plan_names_the_node():
    found = judging.judge(Goal.UPGRADE, cluster(member("a"), member("b"), member("c", "Unknown")))
    (problem,) = found.problems
    assert (problem.subject.kind.kind, problem.subject.name) == ("Node", "c")


def test_more_control_plane_nodes_may_exist():
    nodes = [member("a"), member("b"), member("c", "Unknown")]
    # no time
    assert (
        rehearsal.rehearse(complete(*nodes), Options(Driver.PLAIN), forecast_only=True).possible
        is None
    )
    found = rehearsal.rehearse(partial(*nodes), Options(Driver.PLAIN), forecast_only=True)
    assert (found.possible, found.stops) == (None, ())


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("a", "the reboot of a, the only control-plane node"),
        ("ab", "each reboot of a, b, of 2 control-plane nodes"),
        ("abc", ""),
    ],
)
def test_the_api_is_away_while_few_control_plane_nodes_are_rebooted(names, said):
    found = rehearse(*map(member, names))
    assert [what for what in found.rests_on if "the API" in what] == (
        [f"the API answers again after {said}"] if said else []
    )
