"""``virt-admit explain node/NAME``: the drain and the loss of one node on one page."""

from types import SimpleNamespace

import pytest

from tests.builders import manifest, vm
from tests.cli.explain_vm_cases import OTHER, WORLD, Explainer, without
from tests.forecasts.drain import vm_motion as motion
from tests.model.node_updates import test_plan_progress as plans
from virt_admit.reports.explain import judged_rules, rehearsed
from virt_admit.reports.explain.node import collect
from virt_admit.reports.explain.node import text as words_of_node
from virt_admit.reports.explain.node.report import UpgradeOfNode
from virt_admit.reports.explain.said_once import Said
from virt_admit.rules import Rules

TEMPLATE = {
    "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
    "kind": "SelfNodeRemediationTemplate",
}
CHECK = manifest(
    "remediation.medik8s.io/v1alpha1",
    "NodeHealthCheck",
    "workers",
    spec={
        "minHealthy": 1,
        "selector": {},
        "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": "300s"}],
        "remediationTemplate": TEMPLATE | {"name": "snr", "namespace": "shop"},
    },
)
SNR = manifest(
    TEMPLATE["apiVersion"], TEMPLATE["kind"], "snr", "shop", spec={"template": {"spec": {}}}
)


@pytest.fixture
def explain(tmp_path):
    run = Explainer(tmp_path)
    return lambda *objects, node="node/a", **options: run(*objects, target=node, **options)


def test_drain_and_loss_on_one_page(explain):
    code, data = explain(*WORLD, *OTHER, CHECK, SNR)
    assert code == 0
    assert data["node"] == {"name": "a", "state": [], "vms": ["shop/db", "shop/web"]}
    assert data["outage"]["survives"] is True
    (actor,) = data["outage"]["actors"]
    assert (actor["check"], actor["refuses"]) == ("NodeHealthCheck workers", "")
    assert actor["at"]["low"] >= 350
    assert [vm["outcome"] for vm in data["outage"]["vms"]] == ["restarts", "restarts"]
    assert (data["drain"]["drainable"], data["upgrade"]["possible"]) == (True, True)
    assert "kubectl drain a --ignore-daemonsets" in data["commands"]
    _, drained = explain(*WORLD, *OTHER, CHECK, SNR, node="a", verb="drain")
    assert data["drain"] == drained["nodes"][0]
    _, lost = explain(*WORLD, *OTHER, CHECK, SNR, node="a", verb="outage")
    assert data["outage"] == lost["outages"][0]


def test_a_node_that_takes_no_vm(explain):
    world = [motion.node("c", unschedulable=True), *WORLD]
    _, text = explain(*world, node="node/c", form="text")
    _, data = explain(*world, node="node/c")
    assert "  takes VMs     none now: cordoned\n" in text
    assert data["upgrade"]["takes_no_vm"] == "cordoned"
    _, drained = explain(*world, node="--all", verb="drain")
    assert drained["takes_no_vm"] == [{"node": "c", "reason": "cordoned"}]
    assert explain(*world)[1]["upgrade"]["takes_no_vm"] is None


def test_the_text(explain):
    _, text = explain(*WORLD, CHECK, SNR, form="text")
    words = [" ".join(line.split()) for line in text.splitlines()]
    assert words[:3] == [
        "Drain",
        "node a: 1 VM: 1 migrates",
        "migrates shop/db LiveMigrate, and it can migrate",
    ]
    assert "Loss: the node stops reporting and does not come back" in words
    assert "loss of a: every VM runs again; 1 VM: 1 restarts" in words
    assert any(line.startswith("NodeHealthCheck workers (a) frees the pods") for line in words)
    assert any(line.startswith("restarts shop/db: after") for line in words)


def test_an_upgrade_with_a_cost(explain):
    stops = motion.vmi("batch", on="b", spec={"evictionStrategy": "None"})
    world = (*WORLD, vm(name="batch", runStrategy="Manual"), stops, motion.launcher("batch", "b"))
    _, text = explain(*world, node="node/b", form="text")
    _, page = explain(*world, node="node/b", form="html")
    _, data = explain(*world, node="node/b")
    _, drained = explain(*world, node="b", verb="drain", form="html")
    said = "yes, at a cost: 1 VM would stay stopped."
    assert f"possible {said}" in " ".join(text.split())
    assert (said in page, "Yes, at a cost" in drained) == (True, True)
    assert data["upgrade"]["stays_stopped"] == 1
    assert explain(*WORLD)[1]["upgrade"]["stays_stopped"] == 0


def test_a_node_whose_update_is_under_way():
    cluster = plans.cluster(plans.plan(), plans.A, plans.B, plans.C, plans.pod("drain"))
    opinion = judged_rules.Opinion(Rules(()), None)
    lines = {
        name: dict(words_of_node.upgrade(collect.report(name, cluster, opinion).report))
        for name in ("b", "c")
    }
    assert lines["b"]["begun"] == "its drain, maintenance or update is under way"
    assert "begins after" in lines["c"]


def test_a_check_that_does_nothing_is_named(explain):
    _, data = explain(*WORLD, CHECK)  # its template does not exist
    assert data["outage"]["survives"] is False
    (actor,) = data["outage"]["actors"]
    assert "snr" in actor["refuses"]
    assert data["outage"]["vms"][0]["outcome"] == "never restarts"


def test_a_vm_that_blocks_has_a_command(explain):
    blocked = motion.vmi(reported=False, conditions=[{"type": "LiveMigratable", "status": "False"}])
    _, data = explain(*WORLD[:3], blocked, WORLD[4])
    assert data["drain"]["drainable"] is False
    assert data["commands"][0] == "virt-admit explain vm/db -n shop"


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        ("VirtualMachineInstance", "virtualmachineinstances.kubevirt.io"),
        ("NodeHealthCheck", "nodehealthchecks.remediation.medik8s.io"),
    ],
)
def test_what_may_not_be_read_is_null_and_forbidden(explain, kind, resource):
    objects = without(kind, *WORLD, CHECK, SNR)
    _, data = explain(*objects, unreadable=(resource,))
    assert resource in data["unseen"]
    if kind == "VirtualMachineInstance":
        assert data["node"]["vms"] is None
    else:
        assert data["outage"]["survives"] is None
        assert data["outage"]["vms"][0]["outcome"] == "unknown"
    _, text = explain(*objects, unreadable=(resource,), form="text")
    assert (
        f"forbidden: this account may not list {resource}, so what rests on it is not judged. Ask "
        in text
    )
    assert "cannot be determined" in text


@pytest.mark.parametrize("target", ["node/a", "nodes/a", "no/a", "Node/a"])
def test_ways_to_name_it(explain, target):
    assert explain(*WORLD, node=target)[0] == 0


def test_a_node_that_does_not_exist(explain):
    assert explain(*WORLD, node="node/worker") == (
        1,
        "node worker does not exist. The nodes are: a, b",
    )


@pytest.mark.parametrize(
    ("objects", "level"),
    [
        ((*WORLD, CHECK, SNR), "good"),  # after the loss the VM restarts
        (WORLD, "severe"),  # no health check, so it never restarts
        (without("VirtualMachine", *WORLD, CHECK, SNR), "severe"),
    ],
)
def test_the_page_is_green_only_where_all_is_well(explain, objects, level):
    _, page = explain(*objects, form="html")
    assert f'class="verdict {level}"' in page or f"verdict {level}" in page
    assert "Loss of the node" in page


def test_nothing_is_offered_for_a_node_with_nothing_to_evict(explain):
    spare = [*WORLD, motion.node("c")]
    _, data = explain(*spare, node="node/c")
    assert (data["drain"]["drainable"], data["commands"]) == (True, ["kubectl describe node c"])
    _, text = explain(*spare, node="node/c", form="text")
    assert "A drain of c ends. It has nothing to evict." in text
    other = manifest(
        "v1", "Pod", "web", "shop", spec={"nodeName": "c"}, status={"phase": "Running"}
    )
    _, data = explain(*spare, other, node="node/c")
    assert "kubectl drain c --ignore-daemonsets --force" in data["commands"]


def test_a_member_of_etcd_that_is_held_is_not_drained(explain):
    hook = {"name": "EtcdQuorumOperator", "owner": "clusteroperator/etcd"}
    held = manifest(
        "machine.openshift.io/v1beta1",
        "Machine",
        "m0",
        "openshift-machine-api",
        metadata={
            "deletionTimestamp": motion.ago(9000),
            "finalizers": ["machine.machine.openshift.io"],
        },
        spec={"lifecycleHooks": {"preDrain": [hook]}},
        status={"nodeRef": {"kind": "Node", "name": "c"}},
    )
    other = manifest(
        "v1", "Pod", "web", "shop", spec={"nodeName": "c"}, status={"phase": "Running"}
    )
    world = (*WORLD, motion.node("c"), held, other)
    _, text = explain(*world, node="node/c", form="text")
    assert "A drain of c would end, but do not start it: see the note about its Machine." in text
    assert "kubectl drain c" not in text
    _, everything = explain(*world, node="--all", verb="drain", form="text")
    assert "Nodes that can be drained now: a, b\n" in everything


def test_a_long_remedy_is_told_once():
    told = "  to do: power the node off by hand, then taint it out-of-service."
    again = "    to do: Power the node off by hand, then taint it out-of-service"
    lines = words_of_node._without_told([again, "to do: short", "another line"], [told])
    assert list(lines) == ["    to do: see above", "to do: short", "another line"]


def test_no_drain_is_offered_for_a_node_that_something_drains_already(explain):
    maintenance = manifest(
        "nodemaintenance.medik8s.io/v1beta1",
        "NodeMaintenance",
        "a",
        spec={"nodeName": "a"},
        status={"phase": "Running"},
    )
    _, data = explain(*WORLD, *OTHER, CHECK, SNR, maintenance)
    assert not any(each.startswith("kubectl drain") for each in data["commands"])


def test_a_stop_that_is_told_above_keeps_its_statement_and_that_of_its_pool():
    own = "Node a: its kubelet does not report, so evicted pods (2 already) are not seen to end"
    pool = "the next update of pool w would not begin: a uses up its maxUnavailable 1"
    stops = SimpleNamespace(
        stops=[
            SimpleNamespace(node=each, reason=why)
            for each, why in (("a", own), ("", pool), ("", "pool x stands still"))
        ]
    )
    assert rehearsed.of_pools(stops, "a") == (pool,)

    found = UpgradeOfNode(False, own, None, None, (own, pool), None, None, 0)
    said = (Said("see above", f"blocks now: {own}"),)
    assert list(words_of_node.upgrade(SimpleNamespace(upgrade=found), said)) == [
        ("possible", "no"),
        ("stops here", "Node a: its kubelet does not report: see above"),
        ("stops here", pool),
    ]


def test_a_cause_that_is_told_above_keeps_its_statement():
    why = "KubeVirt kubevirt/kubevirt is not available for 2 h (DeploymentInProgress): pod x fails"
    found = UpgradeOfNode(False, why, None, None, (), None, None, 0)
    report = SimpleNamespace(upgrade=found, drain=SimpleNamespace(notes=(f"{why}. Repair x",)))
    assert list(words_of_node.upgrade(report)) == [
        ("possible", "no"),
        ("because", "KubeVirt kubevirt/kubevirt is not available for 2 h: see above"),
    ]
