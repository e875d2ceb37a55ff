"""Which nodes the first line names: those whose drain can begin now, and those after a wait."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.drain.text import text
from virt_admit.reports.upgrade import text as upgrade_text

from .test_planned_reboots import masters
from .test_pod_evictions import guest, launcher
from .test_static_pods import BACK, NOW, at, down, master, static

NONE = "No node can certainly be drained now"


def cluster(*objects, nodes=None):
    group = "machineconfiguration.openshift.io"
    pool = manifest(
        f"{group}/v1",
        "MachineConfigPool",
        "master",
        spec={"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/master": ""}}},
        status={"configuration": {"name": "rendered-2"}},
    )
    nodes = nodes or [master(name) for name in "abc"]
    return Snapshot([*nodes, pool, *objects], complete=["*"], time=NOW)


def lines(found):
    return text(drain_plan.plan(found)).splitlines()


ROLLS = [*down(at("11:58:57")), static("openshift-kube-scheduler-c", created=at("11:59:24"))]
RETURNS = [
    *map(master, "ab"),
    master("c", ready=at("11:59:26"), cordoned=at("11:50:00"), notes=BACK),
]


LOST = masters(changed=at("11:30:00"), cordoned=at("11:20:00"))


@pytest.mark.parametrize(
    ("found", "first", "last"),
    [
        (cluster(), "Nodes that can be drained now: a, b, c", "Yes: 3 nodes can be drained."),
        (
            cluster(*ROLLS),
            "Nodes that can be drained now: c; after a wait: a, b",
            "Yes: 3 nodes can be drained.",
        ),
        (
            cluster(nodes=RETURNS),
            "Nodes that can be drained now: a, b",
            "Yes: 2 of 3 nodes can be drained, c is drained already.",
        ),
        (
            masters(),
            f"{NONE}; after a wait: a, c",
            "Yes: 2 of 3 nodes can be drained, b is not Ready.",
        ),
        (LOST, f"{NONE}.", "0 of 3 nodes can be drained, etcd needs a, c, b is not Ready."),
    ],
    ids=["at rest", "guards refuse", "is being updated", "reboots", "is lost"],
)
def test_a_node_that_has_to_wait_is_not_among_those_of_now(found, first, last):
    said = lines(found)
    assert (said[0], said[-1].endswith(last)) == (first, True)


def test_nodes_without_vms_have_their_waits_and_pods_without_a_controller():
    found = lines(cluster(*ROLLS))
    waits = [line.partition(": waits for: ") for line in found if ": waits for: " in line]
    assert {node for node, _, _ in waits} == {"  a", "  b"}
    assert waits[0][2].startswith(
        "PodDisruptionBudget openshift-kube-scheduler/openshift-kube-scheduler-guard-pdb: "
        "openshift-kube-scheduler on c has been rolling to revision 15 for 63 s"
    )
    forced = next(line for line in found if "--force" in line)
    assert forced.startswith("  a, b: kubectl drain needs --force for openshift-kube-scheduler/")
    assert forced.endswith("make their guard pods again, once the node is uncordoned.")


def test_a_guest_that_was_read_is_named_where_its_end_is_open():
    starts = guest(phase="Scheduling")
    starts.data["spec"] = {**starts.data["spec"], "evictionStrategy": "LiveMigrate"}
    assert (
        "Can the cluster be upgraded today? Unknown: what becomes of VM shop/db is not known, so a "
        "drain may be blocked."
    ) in lines(cluster(launcher(phase="Pending"), starts))


@pytest.mark.parametrize(("found", "waits"), [(cluster(*ROLLS), True), (cluster(), False)])
def test_an_upgrade_says_the_same_of_the_node_with_which_it_begins(found, waits):
    said = upgrade_text.text(rehearse(found, Options()))
    assert ("\n  begins after a wait, ends +10 min: a\n    waits for: PodDis" in said) is waits
    assert ("\n  begins now, ends +10 min: a\n" in said) is not waits
