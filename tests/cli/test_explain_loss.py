"""What ``explain`` says about the loss of a node: as such while the node reports,
and at once when it is lost.
"""

import json

import pytest
from click.testing import CliRunner

from tests.healthy.clusters import plain
from tests.healthy.parts import ago, obj, snapshot
from tests.incidents.machines import find, guest, launcher_of
from tests.remedies import joined
from virt_admit.cli.main import virt_admit
from virt_admit.forecasts.drain.workload_updates import Reach

TAINT = (
    "confirm that w1 is powered off, then: kubectl taint nodes w1 "
    "node.kubernetes.io/out-of-service=nodeshutdown:"
)


BEAT = "kubevirt.io/heartbeat"


def silent(*, handler=False, pod=True, **lost):
    """Return a VM on a node whose kubelet stopped; handler: whether virt-handler still reports;
    pod: whether its pod exists.
    """
    items = plain((1, 6)) + guest("db")
    node = find(items, "Node", "w1")
    for condition in node["status"]["conditions"]:
        condition |= {
            "status": "Unknown",
            "lastTransitionTime": ago(**lost),
            "lastHeartbeatTime": ago(**lost),
        }
    node["metadata"]["annotations"] |= {} if handler else {BEAT: ago(**lost)}
    for each in items:
        # as the node controller does
        if each["kind"] == "Pod" and each["spec"].get("nodeName") == "w1":
            next(one for one in each["status"]["conditions"] if one["type"] == "Ready")[
                "status"
            ] = "False"
    return [each for each in items if pod or each is not launcher_of(items, "db")]


@pytest.fixture
def ask(tmp_path):
    """Return a function that asks about a cluster."""

    def run(items, what="vm/db", *options):
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps(snapshot(items)))
        where = ("-n", "vms") if what.startswith("vm/") else ()
        return (
            CliRunner()
            .invoke(virt_admit, ["explain", what, *where, *options, "--cluster", str(path)])
            .stdout
        )

    return run


@pytest.fixture
def explained(ask):
    """Return a function that returns the part "To do" about a VM on a node without a health
    check.
    """

    def run(**lost):
        items = silent(**lost) if lost else plain((1, 6)) + guest("db")
        return joined(ask(items)).partition("To do\n")[2].partition("\n\n")[0]

    return run


def test_the_loss_of_a_healthy_node_is_named_as_what_may_come(explained):
    (line,) = explained().splitlines()
    assert line.startswith(
        "  for the loss of its node: create a health check that acts for w1; or, after such a "
        "loss, "
    )
    assert TAINT in line


def test_a_lost_node_is_fenced_now(explained):
    said = explained(minutes=70)
    assert f"as a decision, {TAINT}" in said
    assert said.endswith("; or create a health check that acts for w1")
    assert "for the loss of its node" not in said


def test_nothing_but_the_loss_is_known_of_a_vm_on_a_lost_node(ask):
    events = {
        each["event"]: each["outcome"]
        for each in json.loads(ask(silent(minutes=70), "vm/db", "-o", "json"))["events"]
    }
    assert (events["update"], events["reboot"], events["migration"]) == (
        "unknown",
        "unknown",
        "does not start",
    )


@pytest.mark.parametrize("pod", [True, False])
def test_a_guest_runs_on_without_its_kubelet(ask, pod):
    world = silent(handler=True, pod=pod, minutes=55)
    text, data = ask(world), json.loads(ask(world, "vm/db", "-o", "json"))
    events = {each["event"]: each for each in data["events"]}
    assert (data["vm"]["node_reports"], data["vm"]["node_lost"]) == (False, False)
    assert all(part["healthy"] for part in data["control"])
    assert "lost already" not in events["loss"]["reason"]
    assert events["reboot"]["outcome"] == "stays on its node"
    assert (events["update"]["outcome"], events["migration"]["outcome"]) == (
        Reach.RETRIED,
        "does not start",
    )
    assert "is not known" not in text
    assert text.startswith("VM vms/db: Running on w1, whose kubelet does not report\n")
    assert "repair or fence" not in text
    for said in (text, ask(world, "node/w1")):
        assert "epair its kubelet: virt-handler there reports, so guests probably run on" in said
        assert "kubectl describe node w1" in said
        assert said.count("\n  kubectl describe node w1\n") <= 1
        assert "Its guest probably runs on, as virt-handler there reports" in said
        assert ("its pod no longer exists" in said) is not pod
    assert (
        "Or, as a decision, let virt-handler stop the guest (virtctl stop db -n vms), and" in text
    )
    assert "start the VM elsewhere once its VMI is gone: virtctl start db -n vms" in text
    assert ("the guest reboots inside its pod" in text) is pod
    assert ("so it may end while this guest runs" in text) is not pod
    assert (events["drain"]["outcome"] == "blocks the drain") is pod
    assert ("this VM blocks the drain of its node too" in text) is pod


def remediated():
    """Return a VM whose node was lost 7 minutes ago,
    and whose health check has acted for 2 minutes.
    """
    items = silent(minutes=7)
    unhealthy = [{"name": "w1", "remediations": [{"started": ago(minutes=2)}]}]
    spec = {
        "minHealthy": 1,
        "selector": {
            "matchExpressions": [{"key": "node-role.kubernetes.io/worker", "operator": "Exists"}]
        },
        "unhealthyConditions": [
            {"type": "Ready", "status": each, "duration": "300s"} for each in ("False", "Unknown")
        ],
        "remediationTemplate": {
            "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
            "kind": "SelfNodeRemediationTemplate",
            "name": "automatic",
            "namespace": "medik8s",
        },
    }
    check = obj("NodeHealthCheck", "remediation.medik8s.io/v1alpha1", "workers")
    return [*items, check | {"spec": spec, "status": {"unhealthyNodes": unhealthy}}]


def test_a_remediation_in_time_is_awaited(ask):
    wait = "ait for NodeHealthCheck workers, which has been remediating it for 2 min"
    world = remediated()
    for said in (ask(world), ask(world, "node/w1")):
        assert wait in said
        assert not [
            each
            for each in ("blocks", "does not end", "never completes", "stops here")
            if each in said
        ]
    assert "w1 has not reported for 7 min: times count from its loss" in ask(world, "node/w1")


def test_an_outage_that_has_begun_is_told_as_one(tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(snapshot(remediated())))
    said = [
        CliRunner().invoke(virt_admit, ["outage", node, "--cluster", str(path)]).stdout
        for node in ("w1", "w2")
    ]
    known = "w1 has not reported for 7 min: times count from its loss\nloss of w1"
    assert (known in said[0], "has not reported" in said[1]) == (True, False)


def test_launchers_that_a_lost_node_does_not_end_are_named(tmp_path):
    items, path = silent(minutes=7), tmp_path / "cluster.json"
    (pod,) = [
        each
        for each in items
        if each["kind"] == "Pod"
        and each["metadata"]["name"].startswith("virt-launcher")
        and each["spec"]["nodeName"] == "w1"
    ]
    said = []
    for ending in ({}, {"deletionTimestamp": ago(minutes=1)}):
        pod["metadata"] |= ending
        path.write_text(json.dumps(snapshot(items)))
        said += [
            CliRunner().invoke(virt_admit, ["outage", node, "--cluster", str(path)]).stdout
            for node in ("w1", "w2")
        ]
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    told = f"Terminating: {name}. No kubelet of w1 ends them, and KubeVirt starts a VM elsewhere"
    assert [told in each for each in said] == [False, False, True, False]
    past = ["before VMs of the lost nodes have no room" in each for each in said]
    assert past == [True, False, True, False]


def test_a_launcher_that_its_vm_has_left_is_not_awaited(tmp_path):
    items, path = silent(minutes=7), tmp_path / "cluster.json"
    launcher_of(items, "db")["metadata"]["deletionTimestamp"] = ago(minutes=1)
    find(items, "VirtualMachineInstance", "db")["status"]["nodeName"] = "w2"
    path.write_text(json.dumps(snapshot(items)))

    said = CliRunner().invoke(virt_admit, ["outage", "w1", "--cluster", str(path)]).stdout
    assert ("loss of w1" in said, "Terminating" in said) == (True, False)
