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
    pod,
    snapshot,
    vm,
)
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import Goal
from virt_admit.reports.outage import text

NODES = [node("n1"), node("n2"), node("n3")]
SPACE = "longhorn-system"
CSI = {"driver": "driver.longhorn.io", "volumeHandle": "pvc-data"}
ZONE = "topology.kubernetes.io/zone"
NEVER = "2027-01-01T00:00:00Z"


def replica(on, *, failed="", healthy=NEVER, number=0):
    spec = {"volumeName": "pvc-data", "nodeID": on, "healthyAt": healthy, "failedAt": failed}
    return manifest("longhorn.io/v1beta2", "Replica", f"pvc-data-r-{on}-{number}", SPACE, spec=spec)


def longhorn(*replicas, wanted=1, on="n1", **spec):
    """Return a VM with a Longhorn volume that has these copies."""
    volume = manifest(
        "longhorn.io/v1beta2",
        "Volume",
        "pvc-data",
        SPACE,
        spec={"numberOfReplicas": wanted, **spec},
    )
    own = vm("db", on, "20Gi", volumes=[disk("data")]), claim("data", "ReadWriteMany", csi=CSI)
    return [*own, volume, *replicas]


def outcome(*parts, lost=("n1",), **options):
    found = lose(snapshot(NODES, parts, **options), *lost)
    return found.survives, [row.outcome for row in found.outages[0].vms], found


TITLE = "Longhorn volume pvc-data (claim shop/data)"


@pytest.mark.parametrize(
    ("replicas", "wanted", "survives", "says", "remedy"),
    [
        (
            [replica("n1")],
            1,
            False,
            f"the only healthy copy of {TITLE} is on n1",
            '{"spec":{"numberOfReplicas":2}}',
        ),
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
        (
            [replica("n1"), replica("n1", failed=NEVER, number=1)],
            1,
            False,
            "the only healthy copy",
            "add a copy",
        ),
        (
            [replica("n1"), replica("n2", failed=NEVER)],
            2,
            None,
            f"on n2, which failed at {NEVER} and is older",
            "wait",
        ),
        ([], 1, True, "", ""),
    ],
    ids=[
        "one copy",
        "two",
        "elsewhere",
        "both here",
        "not rebuilt",
        "failed here",
        "failed elsewhere",
        "not known",
    ],
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
    found, outcomes, answer = outcome(
        *longhorn(*replicas, wanted=2), nhc(minimum=1), lost=("n1", "n2")
    )
    assert (found, outcomes) == (False, ["waits for its node"])
    assert f"all 2 healthy copies of {TITLE} are on n1, n2" in answer.because[0]


def test_no_hand_starts_a_vm_without_its_disk():
    _, outcomes, answer = outcome(*longhorn(replica("n1")))
    assert outcomes == ["never restarts"]
    assert answer.outages[0].vms[0].by_hand is None


@pytest.mark.parametrize(
    ("copies", "survives"), [(["n1"], False), (["n1", "n2"], True), (["n2"], True)]
)
def test_a_vm_of_another_node_loses_its_disk(copies, survives):
    parts = [*longhorn(*map(replica, copies), on="n2"), nhc()]
    found, outcomes, answer = outcome(*parts)

    assert (found, outcomes) == (survives, [])
    if not survives:
        says = f"the only healthy copy of {TITLE} is on n1"
        assert answer.because == (f"shop/db on n2 cannot use its disk: {says}",)
        assert text.text(answer).count("to do: add a copy on another node") == 1
        (left,) = repair(snapshot(NODES, parts), Goal.OUTAGE).remaining
        assert (left.problem.cause, left.problem.reason) == ("DiskLost", says)
        assert "numberOfReplicas" in left.why


# --- Ceph -----------------------------------------------------------------------------------------

NOW = "2027-03-01T11:00:00Z"
HOURS_AGO = "2027-03-01T06:00:00Z"


def monitor(name, on, *, ready=True, since=HOURS_AGO, bound=True, space="rook-ceph", **labels):
    """Return the pod of a Ceph monitor; ``since``: when its readiness changed."""
    found = pod(
        f"rook-ceph-mon-{name}",
        on,
        "1Gi",
        **({"nodeSelector": {"kubernetes.io/hostname": on}} if bound else {}),
    )
    found["metadata"] |= {
        "namespace": space,
        "labels": {"app": "rook-ceph-mon", "mon": name} | labels,
    }
    status = "True" if ready else "False"
    found["status"]["conditions"] = [
        {"type": "Ready", "status": status, "lastTransitionTime": since}
    ]
    return found


def ceph(*monitors, wanted=3, on="n1", space="rook-ceph", named="", **spec):
    """Return a VM with a disk of a Ceph cluster."""
    csi = {"driver": "rook-ceph.rbd.csi.ceph.com", "volumeHandle": "pvc-data"}
    csi |= {"volumeAttributes": {"clusterID": named}} if named else {}
    cluster = manifest(
        "ceph.rook.io/v1", "CephCluster", "store", space, spec={"mon": {"count": wanted}} | spec
    )
    return [
        *vm("db", on, "20Gi", volumes=[disk("data")]),
        claim("data", "ReadWriteMany", csi=csi),
        cluster,
        *monitors,
    ]


def after_the_loss(*parts, lost=("n1",)):
    known = snapshot(NODES, parts, nhc(minimum=1))
    known.time = NOW
    return lose(known, *lost)


THREE = [monitor("a", "n1"), monitor("b", "n2"), monitor("c", "n3")]


@pytest.mark.parametrize(
    ("monitors", "wanted", "survives", "says", "remedy"),
    [
        (THREE, 3, True, "", ""),
        (
            THREE[:2],
            2,
            False,
            "1 of 2 in namespace rook-ceph is left",
            '{"spec":{"mon":{"count":3}}}',
        ),
        (THREE[:1], 1, False, "0 of 1 in namespace rook-ceph are left", "run three monitors"),
        (THREE[1:], 2, True, "", ""),
        (
            [*THREE[:2], monitor("c", "n3", ready=False)],
            3,
            False,
            "1 of 3",
            "repair monitor c first",
        ),
        (
            [*THREE[:2], monitor("c", "n3", ready=False, since=NOW)],
            3,
            None,
            "until c starts",
            "repair monitor c",
        ),
        (
            [monitor("a", "n1"), monitor("b", "n1"), THREE[2]],
            3,
            False,
            "1 of 3",
            "on more nodes or zones",
        ),
        (
            [monitor("a", "n1", bound=False), THREE[1]],
            2,
            None,
            "until a starts",
            "run three monitors",
        ),
        ([*THREE, monitor("a", "n2", ready=False, since=NOW)], 3, True, "", ""),
        ([*THREE, monitor("d", "n2", ready=False, mon_canary="true")], 3, True, "", ""),
        ([*THREE[1:], monitor("d", "n1")], 5, None, "CephCluster store wants 5", "on more nodes"),
        ([], 3, True, "", ""),
    ],
    ids=[
        *(
            "three",
            "two",
            "one",
            "two elsewhere",
            "one is down",
            "one restarts",
            "two on one node",
            "not bound",
        ),
        *("being moved", "a probe", "fewer than wanted", "not known"),
    ],
)
def test_the_monitors_of_ceph(monitors, wanted, survives, says, remedy):
    answer = after_the_loss(*ceph(*monitors, wanted=wanted))
    (row,) = answer.outages[0].vms

    assert answer.survives is survives
    assert row.outcome == {True: "restarts", False: "waits for its node", None: "unknown"}[survives]
    assert says in row.reason
    assert remedy in row.remedy


def test_the_disks_of_all_nodes_hang():
    answer = after_the_loss(*ceph(*THREE[:2], on="n3"))
    says = "Ceph stops without a majority of its monitors: 1 of 2 in namespace rook-ceph is left"
    assert answer.because == (f"shop/db on n3 cannot use its disk: {says}",)
    (maybe,) = after_the_loss(
        *ceph(*THREE[:2], monitor("c", "n3", ready=False, since=NOW), on="n3")
    ).because
    assert maybe.startswith("shop/db on n3 may not be able to use its disk: Ceph stops")


@pytest.mark.parametrize(
    ("parts", "survives"),
    [
        (ceph(*THREE[:2], external={"enable": True}), True),
        (ceph(*THREE[:2], named="rook-ceph"), False),
        (ceph(*THREE[:2], named="b9127830-b0cc-4e34-aa47-9d1a2e9949a8"), True),
        (
            [
                *ceph(*THREE[:2]),
                manifest("ceph.rook.io/v1", "CephCluster", "store", "other", spec={}),
            ],
            True,
        ),
    ],
    ids=["outside", "named", "another Ceph", "one of two"],
)
def test_the_ceph_cluster_of_a_disk(parts, survives):
    assert after_the_loss(*parts).survives is survives


def osd(number, on, *, domain="host", where=None):
    found = pod(f"rook-ceph-osd-{number}", on, "1Gi")
    labels = {
        "app": "rook-ceph-osd",
        "ceph-osd-id": str(number),
        f"topology-location-{domain}": where or on,
    }
    found["metadata"] |= {"namespace": "rook-ceph", "labels": labels}
    return found


def pool(size, name="replicapool", **spec):
    spec = {"replicated": {"size": size}} | spec
    return manifest("ceph.rook.io/v1", "CephBlockPool", name, "rook-ceph", spec=spec)


OSDS = [osd(index, f"n{index + 1}") for index in range(3)]


@pytest.mark.parametrize(
    ("parts", "lost", "survives", "says"),
    [
        ([*OSDS, pool(3)], ["n1"], True, ""),
        ([*OSDS, pool(2)], ["n1"], True, ""),
        (
            [*OSDS, pool(1)],
            ["n1"],
            False,
            "pool replicapool of Ceph keeps 0 of 1 copy of some data, and needs 1",
        ),
        ([*OSDS[1:], pool(1)], ["n1"], True, ""),
        ([*OSDS[:2], pool(3)], ["n1"], False, "keeps 1 of 3 copies of some data, and needs 2"),
        ([*OSDS, osd(3, "n4"), pool(3)], ["n1", "n2"], None, "may keep 1 of 3 copies"),
        ([*OSDS, pool(3, failureDomain="osd")], ["n1"], True, ""),
        (
            [*OSDS, osd(3, "n1"), pool(3, failureDomain="osd")],
            ["n1"],
            None,
            "may keep 1 of 3 copies",
        ),
        (
            [
                osd(0, "n1", domain="zone", where="a"),
                osd(1, "n2", domain="zone", where="b"),
                pool(2, failureDomain="zone"),
            ],
            ["n1"],
            True,
            "",
        ),
        ([*OSDS, pool(1), pool(3, "safe")], ["n1"], True, ""),
        (
            [*OSDS, pool(1, erasureCoded={"dataChunks": 2}, replicated={"size": 0})],
            ["n1"],
            True,
            "",
        ),
        (OSDS, ["n1"], True, ""),
    ],
    ids=[
        *(
            "three copies",
            "two",
            "one",
            "one elsewhere",
            "two hosts for three",
            "two of four hosts",
            "by OSD",
        ),
        *("two OSDs of one host", "zones", "which pool is not known", "erasure coded", "no pool"),
    ],
)
def test_the_copies_of_a_pool(parts, lost, survives, says):
    monitors = [monitor(name, "n3") for name in "abc"]
    answer = after_the_loss(*ceph(*monitors), parts, node("n4"), lost=lost)
    rows = [row for row in answer.outages[0].vms if row.vmi.name == "db"]

    assert answer.survives is survives
    assert [says in row.reason for row in rows] == [True]
    if survives is False:
        assert "replicated" in rows[0].remedy or "add OSDs" in rows[0].remedy


def test_the_pool_that_a_volume_names():
    for named, survives in (("replicapool", False), ("safe", True)):
        parts = [*ceph(*THREE), OSDS, pool(1), pool(3, "safe")]
        volume = next(each for each in flat(parts) if each["kind"] == "PersistentVolume")
        volume["spec"]["csi"]["volumeAttributes"] = {"pool": named, "clusterID": "rook-ceph"}
        assert after_the_loss(*parts).survives is survives


def test_a_vm_of_another_node_whose_pool_keeps_too_few_copies():
    (why,) = after_the_loss(*ceph(*THREE, on="n3"), OSDS, pool(1)).because
    assert why.startswith(
        "shop/db on n3 cannot use its disk: pool replicapool of Ceph keeps 0 of 1 copy"
    )


@pytest.mark.parametrize(
    "parts",
    [
        longhorn(replica("n1"), dataLocality="strict-local"),
        ceph(*THREE[:2]),
        [*ceph(*THREE), OSDS, pool(1)],
    ],
)
def test_what_a_live_cluster_keeps(parts):
    whole, kept = test_reads.answers([*flat([NAMESPACES, KUBEVIRT, NODES, parts, nhc()])])
    assert whole == kept
    assert "1 VM waits for its node" in whole[0]["because"][0]


def bound_to(key, value, checks=()):
    """Lose the node of a VM whose disk can be used there alone."""
    affinity = {
        "required": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
            ]
        }
    }
    csi = {"driver": "ebs.csi.aws.com", "volumeHandle": "d"}
    nodes = [node(f"n{number}", zone=zone) for number, zone in enumerate("abc", 1)]
    own = vm("db", "n1", "20Gi", volumes=[disk("d")]), claim("d", csi=csi, nodeAffinity=affinity)
    return lose(snapshot(nodes, own, checks), "n1").outages[0].vms[0]


@pytest.mark.parametrize(
    ("key", "value", "place", "remedy"),
    [
        (
            ZONE,
            "a",
            "in zone a",
            (
                f"add another node in zone a ({ZONE}=a), or move its disk to storage that other "
                "nodes reach"
            ),
        ),
        (
            "topology.topolvm.io/node",
            "n1",
            "on node n1",
            "move its disk to storage that other nodes reach",
        ),
    ],
)
@pytest.mark.parametrize("checked", [False, True])
def test_a_disk_that_no_other_node_reaches(key, value, place, remedy, checked):
    found = bound_to(key, value, nhc() if checked else ())

    assert f"no other node can run it: on n2 volume of claim d is {place} alone" in found.reason
    assert found.reason.startswith(
        "no other" if checked else "no health check watches n1; and no other"
    )
    assert found.remedy == remedy + (
        "" if checked else ", and create a health check that acts for n1"
    )
    assert found.by_hand is None
