"""VMs whose disks are on lost nodes: storage that runs in the cluster itself goes with them."""

import pytest

from tests.forecasts.outage import test_reads
from tests.forecasts.outage.losses import (
    KUBEVIRT,
    NAMESPACES,
    claim,
    disk,
    flat,
    lose,
    manifest,
    nhc,
    node,
    snapshot,
    vm,
)
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import Goal
from virt_admit.reports.outage import text

NODES = [node("n1"), node("n2"), node("n3")]
SPACE = "longhorn-system"
CSI = {"driver": "driver.longhorn.io", "volumeHandle": "pvc-data"}
NEVER = "2027-01-01T00:00:00Z"


def replica(on, *, failed="", healthy=NEVER, number=0):
    spec = {"volumeName": "pvc-data", "nodeID": on, "healthyAt": healthy, "failedAt": failed}
    return manifest("longhorn.io/v1beta2", "Replica", f"pvc-data-r-{on}-{number}", SPACE, spec=spec)


def longhorn(*replicas, wanted=1, on="n1", **spec):
    """Return a VM with a Longhorn volume that has these copies."""
    volume = manifest("longhorn.io/v1beta2", "Volume", "pvc-data", SPACE, spec={"numberOfReplicas": wanted, **spec})
    own = vm("db", on, "20Gi", volumes=[disk("data")]), claim("data", "ReadWriteMany", csi=CSI)
    return [*own, volume, *replicas]


def outcome(*parts, lost=("n1",), **options):
    found = lose(snapshot(NODES, parts, **options), *lost)
    return found.survives, [row.outcome for row in found.outages[0].vms], found


TITLE = "Longhorn volume pvc-data (claim shop/data)"


@pytest.mark.parametrize(
    ("replicas", "wanted", "survives", "says", "remedy"),
    [
        ([replica("n1")], 1, False, f"the only healthy copy of {TITLE} is on n1", '{"spec":{"numberOfReplicas":2}}'),
        ([replica("n1"), replica("n2")], 2, True, "", ""),
        ([replica("n2")], 1, True, "", ""),
        (
            [replica("n1"), replica("n1", number=1)],
            2,
            False,
            f"all 2 healthy copies of {TITLE} are on n1",
            '{"spec":{"numberOfReplicas":3,"replicaSoftAntiAffinity":"disabled"}}',
        ),
        (
            [replica("n1"), replica("n2", healthy="")],
            2,
            False,
            "the only healthy copy",
            "wait until Longhorn has rebuilt",
        ),
        ([replica("n1"), replica("n1", failed=NEVER, number=1)], 1, False, "the only healthy copy", "add a copy"),
        ([replica("n1"), replica("n2", failed=NEVER)], 2, None, f"on n2, which failed at {NEVER} and is older", "wait"),
        ([], 1, True, "", ""),
    ],
    ids=["one copy", "two", "elsewhere", "both here", "not rebuilt", "failed here", "failed elsewhere", "not known"],
)
def test_the_copies_of_a_longhorn_volume(replicas, wanted, survives, says, remedy):
    found, outcomes, answer = outcome(*longhorn(*replicas, wanted=wanted), nhc())
    (row,) = answer.outages[0].vms

    assert found is survives
    assert outcomes == [{True: "restarts", False: "waits for its node", None: "unknown"}[survives]]
    assert says in row.reason
    assert remedy in row.remedy
    assert all(says in why for why in answer.because)


def test_one_copy_that_must_be_where_the_vm_runs():
    _, _, answer = outcome(*longhorn(replica("n1"), dataLocality="strict-local"), nhc())
    assert "set dataLocality: best-effort" in answer.outages[0].vms[0].remedy


def test_copies_that_cannot_be_read():
    found, outcomes, answer = outcome(*longhorn(), nhc(), unreadable=("replicas.longhorn.io",))
    assert (found, outcomes) == (None, ["unknown"])
    assert f"where the copies of {TITLE} are cannot be read" in answer.because[0]
    assert "longhorn.io" in answer.unseen[0]


def test_a_known_copy_elsewhere_is_enough():
    replicas = replica("n1"), replica("n2")
    found, _, _ = outcome(*longhorn(*replicas), nhc(), unreadable=("replicas.longhorn.io",))
    assert found is True


def test_both_nodes_with_a_copy_are_lost():
    replicas = replica("n1"), replica("n2")
    found, outcomes, answer = outcome(*longhorn(*replicas, wanted=2), nhc(minimum=1), lost=("n1", "n2"))
    assert (found, outcomes) == (False, ["waits for its node"])
    assert f"all 2 healthy copies of {TITLE} are on n1, n2" in answer.because[0]


def test_no_hand_starts_a_vm_without_its_disk():
    _, outcomes, answer = outcome(*longhorn(replica("n1")))
    assert outcomes == ["never restarts"]
    assert answer.outages[0].vms[0].by_hand is None


@pytest.mark.parametrize(("copies", "survives"), [(["n1"], False), (["n1", "n2"], True), (["n2"], True)])
def test_a_vm_of_another_node_loses_its_disk(copies, survives):
    parts = [*longhorn(*map(replica, copies), on="n2"), nhc()]
    found, outcomes, answer = outcome(*parts)

    assert (found, outcomes) == (survives, [])
    if not survives:
        says = f"the only healthy copy of {TITLE} is on n1"
        assert answer.because == (f"shop/db on n2 loses its disk: {says}",)
        assert text.text(answer).count("to do: add a copy on another node") == 1
        (left,) = repair(snapshot(NODES, parts), Goal.OUTAGE).remaining
        assert (left.problem.cause, left.problem.reason) == ("DiskLost", says)
        assert "numberOfReplicas" in left.why


def test_what_a_live_cluster_keeps():
    parts = [NAMESPACES, KUBEVIRT, NODES, longhorn(replica("n1"), dataLocality="strict-local"), nhc()]
    whole, kept = test_reads.answers([*flat(parts)])
    assert whole == kept
    assert "the only healthy copy" in whole[0]["because"][0]
