"""``virt-admit drain``: node by node, as text and as data, and how long it takes."""

import json

import pytest

from tests.builders import EVERY_NODE, manifest
from tests.cli.drain_cases import BLOCKING_REASON, BLOCKING_REMEDY, TEXT
from tests.forecasts.drain.test_annotated_budgets import portworx
from tests.work import measured
from virt_admit.cli.commands.drain import LOOKS_UP, forecast
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.model.evidence import full_ranges
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.events import EVENT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.drain import report as drain_report
from virt_admit.reports.drain.text import summary, text
from virt_admit.reports.values import as_data

KUBEVIRT = "kubevirt.io/v1"


def drain(cluster, name, form):
    """Return what the command prints, and its exit code."""
    found = forecast(plan(cluster, *[name] if name else []), cluster)
    return found.render(form), found.code


def made(api_version, kind, name, namespace="shop", **fields):
    metadata = {"name": name, "namespace": namespace} | fields.pop("metadata", {})
    return Object({"apiVersion": api_version, "kind": kind, "metadata": metadata} | fields)


def node(name, ready="True", **spec):
    return made(
        "v1",
        "Node",
        name,
        "",
        metadata={"labels": {"kubevirt.io/schedulable": "true"}},
        spec=spec,
        status={
            "conditions": [{"type": "Ready", "status": ready}],
            "allocatable": {
                "cpu": "64",
                "memory": "256Gi",
                "pods": "250",
                "ephemeral-storage": "100Gi",
            }
            | {
                f"devices.kubevirt.io/{device}": "1k"
                for device in ("kvm", "tun", "vhost-net", "vhost-vsock")
            },
        },
    )


def kubevirt(*methods):
    return made(
        KUBEVIRT,
        "KubeVirt",
        "kubevirt",
        spec={"workloadUpdateStrategy": {"workloadUpdateMethods": list(methods)}},
    )


def vm(name, run_strategy="Always"):
    return made(KUBEVIRT, "VirtualMachine", name, spec={"runStrategy": run_strategy})


def vmi(name, on, strategy="LiveMigrate", migratable=True):
    return made(
        KUBEVIRT,
        "VirtualMachineInstance",
        name,
        metadata={
            "ownerReferences": [{"apiVersion": KUBEVIRT, "kind": "VirtualMachine", "name": name}]
        },
        spec={
            "evictionStrategy": strategy,
            "domain": {"cpu": {"model": "host-model"}, "devices": {}},
        },
        status={
            "phase": "Running",
            "nodeName": on,
            "conditions": [
                {
                    "type": "LiveMigratable",
                    "status": str(migratable),
                    "reason": "DisksNotLiveMigratable",
                }
            ],
        },
    )


NODES = [node("a"), node("b", unschedulable=True), node("c"), node("d", "Unknown")]
BLOCKING = [vmi("oracle", "b", migratable=False), vm("oracle")]
STOPPING = [vmi("batch", "a", "None"), vm("batch", "Manual")]
RESTARTING = [vmi("cache", "a", "None"), vm("cache")]
MIGRATING = [vmi("web", "b"), vm("web")]


def seen(*groups):
    return Snapshot([each for group in groups for each in group], complete=["*"])


EVERYTHING = (NODES, BLOCKING, STOPPING, RESTARTING, MIGRATING)


def test_the_worst_comes_first():
    found = plan(seen(*EVERYTHING))

    assert [each.name for each in found.nodes] == ["b", "a", "c", "d"]
    assert [[each.vmi.name for each in of.forecasts] for of in found.nodes[:2]] == [
        ["oracle", "web"],
        ["batch", "cache"],
    ]
    assert [each.state for each in found.nodes] == [("cordoned",), (), (), ("not Ready",)]


@pytest.mark.parametrize(
    ("groups", "node", "code"),
    [
        (EVERYTHING, None, 1),
        (EVERYTHING, "b", 1),
        (EVERYTHING, "a", 0),
        (EVERYTHING, "c", 0),
        ((NODES, STOPPING, RESTARTING, MIGRATING), None, 0),
        ((NODES, [vmi("cache", "a", None)]), "a", 2),
        (([vmi("lost", "gone", migratable=False)],), None, 1),
    ],
)
def test_exit_codes(groups, node, code):
    for output in ("text", "json"):
        assert drain(seen(*groups), node, output)[1] == code


def test_vms_out_of_sight_leave_the_answer_open():
    cluster = Snapshot([*NODES, *MIGRATING])

    report, code = drain(cluster, "b", "text")

    assert code == 2
    assert "Not available: " in report
    for kind in (
        "nodes",
        "virtualmachineinstances.kubevirt.io",
        "pods",
        "poddisruptionbudgets.policy",
    ):
        assert kind in report


@pytest.mark.parametrize(
    ("kind", "may_lack_vms"),
    [
        ("nodes", True),
        ("pods", True),
        ("virtualmachineinstances.kubevirt.io", True),
        ("limitranges", False),
        ("resourcequotas", False),
        ("poddisruptionbudgets.policy", False),
    ],
)
def test_only_some_kinds_may_hide_vms(kind, may_lack_vms):
    result = plan(Snapshot([*NODES, *MIGRATING], ["*"], [kind]), "b")
    for report in (text(result), summary(result)):
        more = " There may be more VMs." if may_lack_vms else ""
        assert f"Not available: {kind}.{more}" in report.splitlines()


def test_what_is_not_an_object_is_not_called_unavailable():
    silent = node("c")
    del silent.data["status"]["allocatable"]
    lines = text(plan(seen([node("a"), silent], [vmi("web", "a")]), "a")).splitlines()
    assert "Cannot be determined: room on node c." in lines


@pytest.mark.parametrize("strategy", ["LiveMigrate", "None"])
def test_a_vm_that_fits_nowhere_is_reported_once(strategy):
    small = node("b")
    small.data["status"]["allocatable"]["memory"] = "1Ki"
    result = plan(seen([node("a"), small], [vmi("web", "a", strategy), vm("web")]), "a")
    # shut down, it waits for its own node
    assert result.nodes[0].packing.fits is (strategy == "None")
    assert result.drainable is (strategy == "None")
    assert "memory: " in text(result)
    assert "no room at the same time" not in text(result)


def test_vms_without_room_at_the_same_time_are_named():
    small = node("b")
    small.data["status"]["allocatable"]["pods"] = "1"
    vms = [each for name in ("web", "wiki") for each in (vmi(name, "a"), vm(name))]
    assert "  no room at the same time for shop/" in text(plan(seen([node("a"), small], vms), "a"))


@pytest.mark.parametrize(
    ("group", "code"), [(MIGRATING, 2), (BLOCKING, 1), (RESTARTING, 2), (STOPPING, 2)]
)
def test_nodes_out_of_sight_leave_all_but_a_no_open(group, code):
    cluster = Snapshot([NODES[1], *group], complete=["*"], unreadable=["nodes"])

    assert drain(cluster, group[0].at("status", "nodeName").text, "text")[1] == code


@pytest.mark.parametrize(
    "limit", ["parallelMigrationsPerCluster", "parallelOutboundMigrationsPerNode"]
)
def test_an_unread_kubevirt_may_have_a_limit_of_zero(limit):
    limits = {"configuration": {"migrations": {limit: 0}}}
    objects = [
        node("a"),
        node("c"),
        vmi("web", "a"),
        vm("web"),
        made(KUBEVIRT, "KubeVirt", "kubevirt", spec=limits),
    ]
    blind = Snapshot(objects[:-1], ["*"], ["kubevirts.kubevirt.io"])

    assert drain(Snapshot(objects, ["*"]), "a", "text")[1] == 1
    assert drain(blind, "a", "text")[1] == 2
    assert plan(blind, "a").nodes[0].forecasts[0].outcome == "unknown"
    assert "kubevirts.kubevirt.io" in plan(blind, "a").unseen


def test_an_unread_kubevirt_leaves_a_certain_no():
    objects = [*NODES, *BLOCKING, *MIGRATING]
    assert drain(Snapshot(objects, ["*"], ["kubevirts.kubevirt.io"]), "b", "text")[1] == 1


def test_a_vm_that_may_stay_off_is_not_called_without_room():
    small = node("c")
    small.data["status"]["allocatable"]["pods"] = "0"
    manual = vmi("batch", "a", "None")

    whole = plan(seen([node("a"), small, manual, vm("batch", "Manual")]), "a").nodes[0]
    blind = plan(
        Snapshot([node("a"), small, manual], ["*"], ["virtualmachines.kubevirt.io"]), "a"
    ).nodes[0]

    assert (whole.drainable, whole.packing.fits) == (True, True)
    assert (blind.drainable, blind.packing.fits) == (None, None)


def test_what_certainly_blocks_blocks_whatever_cannot_be_seen():
    assert drain(Snapshot([*NODES, *BLOCKING]), "b", "text")[1] == 1


@pytest.mark.parametrize(("group", "code"), [(RESTARTING, 2), (MIGRATING, 2)])
def test_budgets_out_of_sight_leave_the_answer_open(group, code):
    cluster = Snapshot([*NODES, *group], complete=["*"], unreadable=["poddisruptionbudgets.policy"])

    assert drain(cluster, None, "text")[1] == code


def test_a_node_that_does_not_exist():
    with pytest.raises(LookupError, match=r"node z does not exist\. The nodes are: a, b, c, d"):
        plan(seen(NODES), "z")


def test_a_node_that_cannot_be_seen():
    assert plan(Snapshot(BLOCKING), "b").nodes[0].state == ("not seen",)


def test_the_text_of_a_cluster():
    assert text(plan(seen(*EVERYTHING, [kubevirt("LiveMigrate")]))) == TEXT


def test_the_text_of_a_node():
    assert (
        text(plan(seen(*EVERYTHING), "c"))
        == "node c: 0 VMs\nA drain of c ends. It has nothing to evict.\n"
    )


def test_two_of_a_sort_are_counted_in_the_plural():
    more = [vmi("tape", "b", migratable=False), vm("tape"), vmi("wiki", "b"), vm("wiki")]
    headline = text(plan(seen(*EVERYTHING, more), "b")).splitlines()[0]
    assert headline == "node b (cordoned): 4 VMs: 2 block the drain, 2 migrate"


def paused_pool(annotations=None):
    """Return a pool of all nodes."""
    spec = {"paused": True, "nodeSelector": EVERY_NODE}
    metadata = {"annotations": annotations or {}}
    group = "machineconfiguration.openshift.io/v1"
    return manifest(group, "MachineConfigPool", "worker", spec=spec, metadata=metadata)


REPORTING = [*NODES[:3], node("d", "False")]


@pytest.mark.parametrize(
    ("cluster", "answer"),
    [
        (seen(REPORTING, MIGRATING), "Yes: 4 nodes can be drained."),
        (
            seen(REPORTING, STOPPING),
            "Yes, at a cost: 4 nodes can be drained. 1 VM would stay stopped.",
        ),
        (seen(REPORTING, BLOCKING), "No: 1 of 4 nodes cannot be drained (1 VM): b."),
        (
            seen(REPORTING, [vmi("cache", "a", None)]),
            "Unknown: the outcome for 1 VM cannot be determined, so a drain may be blocked.",
        ),
        (
            seen(REPORTING, MIGRATING, [paused_pool()]),
            "No: MachineConfigPool worker is paused, so its 4 nodes are not updated. 4 nodes can "
            "be drained.",
        ),
        (
            seen(REPORTING, MIGRATING, [paused_pool({"example.com/paused-until": "Sunday"})]),
            "No: MachineConfigPool worker is paused (paused-until: Sunday), so its 4 nodes are not "
            "updated.",
        ),
        (
            seen(REPORTING, MIGRATING, [paused_pool({"x.openshift.io/reason": "its own"})]),
            "No: MachineConfigPool worker is paused, so",
        ),
        (seen(NODES, MIGRATING), "No: node d does not report. 3 of 4 nodes can be drained, d is"),
        (Snapshot([*REPORTING]), "Unknown: not all data could be read, so a drain may be blocked."),
        (
            seen(REPORTING, [each for each in portworx("2") if each.kind != "Node"]),
            "Unknown: whether its operator makes way for PodDisruptionBudget portworx/px-storage "
            "cannot be determined, so a drain may be blocked.",
        ),
    ],
)
def test_can_the_cluster_be_upgraded(cluster, answer):
    assert f"Can the cluster be upgraded today? {answer}" in text(plan(cluster))


AT_REST = {
    "state": "still",
    "flags": [],
    "since": None,
    "until": None,
    "attempts": 0,
    "failure": None,
    "from": None,
    "downtime": None,
}


COUNTS = {
    "blocks the drain": 1,
    "stops for good": 0,
    "waits for its node": 0,
    "unknown": 0,
    "restarts elsewhere": 0,
    "migrates": 1,
}


def test_the_data():
    data = json.loads(drain(seen(*EVERYTHING, [kubevirt("LiveMigrate", "Evict")]), None, "json")[0])

    assert data["drainable"] is False
    assert data["nodes"][0] == {
        "name": "b",
        "state": ["cordoned"],
        "drainable": False,
        "fits": True,
        "counts": COUNTS,
        "vms": [
            {
                "namespace": "shop",
                "name": "oracle",
                "outcome": "blocks the drain",
                "reason": BLOCKING_REASON,
                "remedy": BLOCKING_REMEDY,
                "candidates": ["a", "c"],
                "short": [{"node": "d", "what": "not Ready"}],
                **AT_REST | {"state": "refused", "downtime": None},
                "problems": [
                    "DisksNotLiveMigratable:shop/oracle",
                    "InterfaceNotLiveMigratable:shop/oracle",
                ],
            },
            {
                "namespace": "shop",
                "name": "web",
                "outcome": "migrates",
                "reason": "LiveMigrate, and it can migrate",
                "remedy": "",
                "candidates": ["a", "c"],
                "short": [{"node": "d", "what": "not Ready"}],
                **AT_REST,
                "downtime": {"low": 0, "high": 0},
                "problems": [],
            },
        ],
        "blockers": [],
        "waits": [],
        "needs": [],
        "control": [],
        "updater": None,
        "notes": [],
        "unseen": [],
    }
    assert [each["drainable"] for each in data["nodes"]] == [False, True, True, True]
    assert data["updates"]["methods"] == ["Evict", "LiveMigrate"]
    assert data["updates"]["counts"]["never"] == 1
    assert data["updates"]["vms"][2]["reach"] == "never"
    assert data["unseen"] == []


def test_one_node_says_nothing_of_updates():
    assert (
        as_data(drain_report.report(plan(seen(*EVERYTHING, [kubevirt("LiveMigrate")]), "b")))[
            "updates"
        ]
        is None
    )


class Recorder(Snapshot):
    """Notes which kinds are looked up."""

    read: set = set()  # noqa: RUF012 - one for the test

    def get(self, kind, namespace, name):
        self.read.add(kind)
        return super().get(kind, namespace, name)

    def known(self, kind, namespace=None):
        self.read.add(kind)
        return super().known(kind, namespace)


def test_it_looks_up_only_what_it_declares():
    cluster = Recorder([each for group in EVERYTHING for each in group], complete=["*"])

    drain(cluster, None, "text")
    found = "read where a snapshot or the discovery of a live cluster has them"
    calico = {each for each in cluster.read if each.group.endswith("projectcalico.org")}
    assert cluster.read <= {*LOOKS_UP, EVENT, full_ranges.CILIUM_NODE, *calico}, found


@pytest.mark.slow
def test_a_thousand_vms_on_fifty_nodes_take_less_than_two_seconds():
    """Of CPU time on the reference machine of tests/work.py,
    where it takes about a tenth of a second.
    """
    nodes = [node(f"node-{number:02}") for number in range(50)]
    ways = ("LiveMigrate", True), ("LiveMigrate", False), ("None", True)
    strategies = [*ways, ("LiveMigrateIfPossible", False)]
    vmis = [
        vmi(f"vm-{number}", f"node-{number % 50:02}", *strategies[number % 4])
        for number in range(1_000)
    ]
    cluster = seen(
        nodes, vmis, [vm(each.name) for each in vmis], [kubevirt("LiveMigrate", "Evict")]
    )

    with measured() as work:
        report, code = drain(cluster, None, "text")

    assert code == 1
    assert "No: 25 of 50 nodes cannot be drained (250 VMs)" in report
    assert work.seconds < 2


def test_a_node_that_does_not_say_how_much_room_it_has():
    labels, ready = {"kubevirt.io/schedulable": "true"}, [{"type": "Ready", "status": "True"}]
    given = {"metadata": {"labels": labels}, "status": {"conditions": ready}}
    silent = made("v1", "Node", "s", "", **given)

    def drained(*nodes):
        return json.loads(drain(seen([*nodes, silent], RESTARTING), "a", "json")[0])["nodes"][0]

    alone = drained(NODES[0])
    assert (alone["drainable"], alone["fits"], alone["vms"][0]["candidates"]) == (True, None, None)
    assert alone["unseen"] == ["room on node s"]
    helped = drained(NODES[0], NODES[2])
    assert (helped["drainable"], helped["fits"], helped["unseen"]) == (True, True, [])
