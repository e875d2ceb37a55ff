"""What a loss of nodes costs: the examples of a host, a zone, the control plane, and who acts."""

import pytest

from tests.forecasts.outage import losses
from tests.forecasts.outage.losses import (
    claim,
    deployed,
    disk,
    filler,
    lose,
    master,
    nhc,
    node,
    snapshot,
    vm,
)
from virt_admit.forecasts.outage.outages import Question, outages
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.forecasts.placement import candidates
from virt_admit.reports.outage.text import of_loss

NODES = [node("n1"), node("n2"), node("n3")]
FULL = [filler("n2", "40Gi"), filler("n3", "40Gi")]


def outcomes(found):
    return {row.vmi.name: str(row.outcome) for one in found.outages for row in one.vms}


def only(found):
    (one,) = found.outages
    return one


def test_free_memory_in_pieces_is_not_room():
    found = lose(
        snapshot(NODES, FULL, vm("db", "n1", "30Gi"), vm("web", "n1", "10Gi"), nhc()), "n1"
    )

    assert found.survives is False
    assert only(found).room.fits is False
    assert found.because[0] == "shop/db (30Gi): on n2 memory: 6Gi missing"
    assert outcomes(found) == {"db": "waits for room", "web": "restarts"}
    (short,) = only(found).room.short
    assert short == ("memory", 6 * 2**30, 1)


def test_vms_that_fit_restart_after_detection_patience_fence_and_start():
    found = lose(
        snapshot(NODES, FULL, vm("db", "n1", "20Gi"), vm("web", "n1", "20Gi"), nhc()), "n1"
    )

    assert found.survives is True
    assert outcomes(found) == {"db": "restarts", "web": "restarts"}
    assert {row.to for row in only(found).vms} == {"n2", "n3"}
    at = only(found).vms[0].at
    assert at.low == 50 + 300 + 180 + 0 + 10
    assert at.high == 55 + 300 + 180 + 20 + 120


def test_without_a_health_check_nobody_acts_but_room_is_judged():
    found = lose(snapshot(NODES, FULL, vm("db", "n1", "20Gi")), "n1")

    (row,) = only(found).vms
    assert found.survives is False
    assert row.outcome == "never restarts"
    assert row.reason == "no health check watches n1"
    assert row.by_hand == (60, 195)
    assert only(found).room.fits is True
    assert "out-of-service" in row.remedy
    assert "powered off" in row.remedy


def test_without_a_health_check_and_without_room_both_are_said():
    found = lose(snapshot(NODES, FULL, vm("db", "n1", "40Gi"), vm("web", "n1", "20Gi")), "n1")

    rows = {row.vmi.name: row for row in only(found).vms}
    assert rows["db"].outcome == "never restarts"
    assert rows["db"].reason.startswith("no health check watches n1; and no node takes it: ")
    assert (
        rows["db"].remedy == "free room or add a node, and create a health check that acts for n1"
    )
    assert rows["db"].by_hand is None
    assert "room" not in rows["web"].remedy
    assert rows["web"].by_hand is not None


def test_a_vm_that_no_node_takes_for_another_cause_than_room_needs_no_room():
    pinned = vm("db", "n1", "1Gi", nodeSelector={"rack": "r1"})
    down = node("n3", ready="Unknown", rack="r1")
    down["spec"] = {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}
    (row,) = only(lose(snapshot(NODES, down, pinned), "n1")).vms

    assert "no node takes it: on n2 node selector rack=r1" in row.reason
    way = (
        "add a node that takes it, or let n2 take it (node selector rack=r1), and create a health "
        "check"
    )
    assert row.remedy.startswith(way)


def test_without_a_health_check_vms_may_take_the_room_of_each_other():
    found = lose(
        snapshot(NODES, FULL, [vm(name, "n1", "20Gi") for name in ("db", "mail", "web")]), "n1"
    )

    assert only(found).room.fits is False
    assert {row.reason for row in only(found).vms} == {
        "no health check watches n1; and not all VMs find a place"
    }


def zoned(*zones):
    return [node(f"{zone}{index}", zone=zone) for index, zone in enumerate(zones)]


@pytest.mark.parametrize(("zones", "survives"), [("aaabbbccc", True), ("aaaaaabbc", False)])
def test_a_zone_is_lost_within_or_beyond_the_limit(zones, survives):
    cluster = snapshot(zoned(*zones), vm("db", "a0"), nhc())
    found = outages(Question(zone="a"), cluster)

    assert found.survives is survives
    assert outcomes(found) == {"db": "restarts" if survives else "never restarts"}
    if not survives:
        assert "minHealthy 51%" in only(found).actors[0].refuses


def test_the_api_stops_without_a_majority_of_the_control_plane():
    masters = [master("m1", zone="a"), master("m2", zone="a"), master("m3", zone="b")]
    found = outages(Question(zone="a"), snapshot(masters, node("n1", zone="b"), nhc()))

    assert found.survives is False
    assert found.quorum == (3, 1, False)
    assert "1 of 3 control-plane nodes" in found.because[0]


def test_the_drain_of_a_dead_node_waits_for_vms_that_must_migrate():
    objects = [vm("db", "n1", evictionStrategy="LiveMigrate", terminationGracePeriodSeconds=30)]
    found = lose(snapshot(NODES, objects, losses.machines("n1", "n2", "n3")), "n1")

    (row,) = only(found).vms
    assert row.outcome == "restarts"
    assert (
        sum(part.low for part in row.parts if part.what in ("detected", "waited", "remediated"))
        == 411
    )
    assert row.at.high is None


MASTERS = [master(f"m{index}") for index in range(3)]
WORKERS = [f"n{index}" for index in range(6)]


def in_trouble(*vms):
    """Lose five of nine nodes without zones."""
    return lose(
        snapshot(MASTERS, [node(name) for name in WORKERS], vms, losses.machines(*WORKERS)),
        *WORKERS[:5],
    )


def test_the_drain_never_ends_where_kubernetes_deletes_no_pods():
    found = in_trouble(
        *(vm(f"db-{name}", name, evictionStrategy="LiveMigrate") for name in WORKERS[:2])
    )

    for row in only(found).vms:
        assert row.outcome == "never restarts"
        assert "the drain of the dead node never ends" in row.reason


def test_one_node_may_be_tainted_before_its_zone_is_in_trouble():
    """Seen in kube-controller-manager's own controllers:
    seed 32 of ``tests/upstream/clocks.py``.
    """
    found = in_trouble(vm("db", "n0", evictionStrategy="LiveMigrate"))

    (row,) = only(found).vms
    assert (found.survives, row.outcome) == (None, "unknown")
    assert row.unseen == ("whether n0 is tainted before its zone counts as in trouble",)


def test_no_node_is_tainted_for_a_pod_that_tolerates_it():
    forever = [{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]
    found = in_trouble(vm("db", "n0", evictionStrategy="LiveMigrate", tolerations=forever))

    (row,) = only(found).vms
    assert row.outcome == "never restarts"


def test_words_of_the_run_strategy():
    objects = [
        vm("bare", "n1", strategy=None),
        vm("manual", "n1", strategy="Manual"),
        vm("rerun", "n1", strategy="RerunOnFailure"),
    ]
    found = lose(snapshot(NODES, objects, nhc()), "n1")

    assert found.survives is False
    assert outcomes(found) == {"bare": "lost", "manual": "stays off", "rerun": "restarts"}


def test_a_vm_that_is_off_afterwards_does_not_count_against_survival():
    assert (
        lose(snapshot(NODES, vm("manual", "n1", strategy="Manual"), nhc()), "n1").survives is True
    )


@pytest.mark.parametrize(
    "spec", [{"nodeSelector": {"kubernetes.io/hostname": "n1"}}, {"volumes": [disk("local")]}]
)
def test_a_vm_bound_to_its_node_waits_for_it(spec):
    only_here = {
        "required": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
                    ]
                }
            ]
        }
    }
    volumes = claim("local", local={"path": "/data"}, nodeAffinity=only_here)
    found = lose(snapshot(NODES, volumes, vm("db", "n1", **spec), nhc()), "n1")

    assert outcomes(found) == {"db": "waits for its node"}
    assert found.survives is False
    assert only(found).room.fits is True


@pytest.mark.parametrize(
    ("remediator", "mode", "detached"),
    [
        ("SelfNodeRemediation", "ReadWriteOnce", 0),
        ("FenceAgentsRemediation", "ReadWriteOnce", 360),
        ("FenceAgentsRemediation", "ReadWriteMany", 0),
    ],
)
def test_disks_of_one_node_wait_for_the_force_detach(remediator, mode, detached):
    cluster = snapshot(
        NODES, claim("disk", mode), vm("db", "n1", volumes=[disk("disk")]), nhc(remediator)
    )
    (row,) = only(lose(cluster, "n1")).vms

    assert row.outcome == "restarts"
    assert {part.what: part.low for part in row.parts}["detached"] == detached
    assert ("remediated", 0, 320) in {
        (part.what, part.low, part.high) for part in row.parts
    } or "Self" in remediator


def test_other_pods_compete_for_the_same_room():
    objects = [filler("n3", "64Gi"), filler("n2", "40Gi"), vm("db", "n1", "20Gi")]
    other = deployed("web", "n1", "10Gi")

    assert lose(snapshot(NODES, objects, nhc()), "n1").survives is True
    found = lose(snapshot(NODES, objects, other, nhc()), "n1")
    assert found.survives is None
    assert only(found).room.fits is None
    assert "who starts first" in found.because[0]
    assert outcomes(found) == {"db": "unknown"}


@pytest.mark.parametrize(("priority", "survives"), [(1000, True), (-1, False)])
def test_priority_decides_between_vms_and_other_pods(priority, survives):
    objects = [
        filler("n3", "64Gi"),
        filler("n2", "40Gi"),
        vm("db", "n1", "20Gi", priority=priority),
    ]
    objects[0]["spec"]["priority"] = objects[1]["spec"]["priority"] = 2000
    found = lose(snapshot(NODES, objects, deployed("web", "n1", "10Gi"), nhc()), "n1")
    assert found.survives is survives


def test_which_of_equal_vms_waits_is_chance():
    objects = [
        filler("n2", "54Gi"),
        filler("n3", "64Gi"),
        [vm(f"vm{index}", "n1", "10Gi") for index in range(3)],
    ]
    found = lose(snapshot(NODES, objects, nhc()), "n1")

    assert found.survives is False
    assert [short.vms for short in only(found).room.short if short.resource == "memory"] == [2]
    assert [short.amount for short in only(found).room.short if short.resource == "memory"] == [
        20 * 2**30
    ]
    assert set(outcomes(found).values()) == {"unknown"}


def test_preemption_is_not_room():
    objects = [filler("n2", "60Gi"), filler("n3", "64Gi"), vm("db", "n1", "20Gi", priority=1000)]
    objects[1]["spec"]["priority"] = 2000
    found = lose(snapshot(NODES, objects, nhc()), "n1")
    assert found.survives is None
    assert outcomes(found) == {"db": "unknown"}


def test_preemption_names_the_vms_that_it_shuts_down():
    victim = vm("victim", "n2", "60Gi")
    objects = [victim, filler("n3", "64Gi"), vm("db", "n1", "20Gi", priority=1000)]
    objects[1]["spec"]["priority"] = 2000
    found = lose(snapshot(NODES, objects, nhc()), "n1")
    assert found.survives is None
    assert found.because[0].startswith(
        "shop/db: no node takes it now, and kube-scheduler would preempt pods"
    )
    assert "shut down: shop/victim" in found.because[0]


def test_the_worst_node_comes_first():
    objects = [FULL, vm("db", "n1", "30Gi"), vm("web", "n2", "10Gi")]
    found = outages(Question(worst=1), snapshot(NODES, objects, nhc()))

    assert found.survives is False
    assert [one.nodes for one in found.outages if one.survives is False] == [("n1",)]
    assert found.total == 3


def test_any_two_nodes():
    found = outages(Question(worst=2), snapshot(NODES, vm("db", "n1", "30Gi"), nhc(minimum=0)))
    assert found.survives is True
    assert len(found.outages) == 1
    assert found.total == 3


def test_vms_of_a_node_that_is_lost_already_need_the_room_of_the_others():
    silent = [node(name) for name in ("n1", "n2", "n3")]
    silent[0]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    found = outages(Question(nodes=("n1",)), snapshot(silent, vm("db", "n1", "30Gi")))

    assert found.capacity["memory"] == (2 * 64 - 30) * 2**30


def test_what_can_still_start_is_what_the_worst_loss_leaves():
    found = outages(
        Question(worst=1),
        snapshot(NODES, FULL, filler("n1", "10Gi"), vm("db", "n1", "30Gi"), nhc()),
    )
    free = (64 - 40) * 3
    assert found.capacity["memory"] == (free - (24 + 30)) * 2**30


@pytest.mark.parametrize("kind", ["pods", "virtualmachineinstances.kubevirt.io", "nodes"])
def test_a_yes_needs_all_that_it_rests_on(kind):
    parts = (NODES, vm("db", "n1", "20Gi"), nhc())
    assert lose(snapshot(*parts), "n1").survives is True
    assert lose(snapshot(*parts, unreadable=(kind,)), "n1").survives is None


def test_unread_health_checks_may_act():
    unread = tuple(
        f"{plural}.{group}" for plural, group in (("nodehealthchecks", "remediation.medik8s.io"),)
    )
    found = lose(snapshot(NODES, vm("db", "n1"), unreadable=unread), "n1")
    assert found.survives is None
    assert outcomes(found) == {"db": "unknown"}


def test_health_checks_of_the_management_cluster_may_act():
    nodes = [node("n1"), node("n2")]
    nodes[0]["metadata"]["annotations"] = {"cluster.x-k8s.io/machine": "m1"}
    found = lose(snapshot(nodes, vm("db", "n1")), "n1")
    assert found.survives is None
    assert any("management cluster" in what for what in found.unseen)


@pytest.mark.parametrize("spec", [{"pauseRequests": ["upgrade"]}, {"minHealthy": "100%"}])
def test_a_check_that_refuses_is_named(spec):
    check = nhc()
    check[0]["spec"] |= spec
    (row,) = only(lose(snapshot(NODES, vm("db", "n1"), check), "n1")).vms
    assert row.outcome == LossOutcome.NEVER
    assert row.reason.startswith("NodeHealthCheck workers refuses: ")


def test_a_label_excludes_one_node_alone():
    nodes = [node("n1"), node("n2"), node("n3")]
    nodes[0]["metadata"]["labels"]["remediation.medik8s.io/exclude-from-remediation"] = "true"
    found = outages(Question(worst=1), snapshot(nodes, vm("db", "n1"), vm("web", "n2"), nhc()))
    assert [(one.nodes, one.survives) for one in found.outages] == [(("n1",), False)]


def test_no_such_node_or_zone():
    with pytest.raises(LookupError, match="Did you mean n1"):
        lose(snapshot(NODES), "n11")
    with pytest.raises(LookupError, match="zone=x"):
        outages(Question(zone="x"), snapshot(NODES))


def test_other_pods_that_can_start_nowhere_do_not_restart():
    gpu = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    others = [deployed("web", "n1", "1Gi"), deployed("ml", "n1", "1Gi")]
    others[1]["spec"]["containers"] = [gpu]
    nodes = [node(name) for name in ("n1", "n2")]
    nodes[0]["status"]["allocatable"] |= {"nvidia.com/gpu": "1"}
    (found,) = lose(snapshot(nodes, others, nhc()), "n1").outages
    said = list(of_loss(found))

    assert "  1 other pod can start on no node that is left: shop/ml-1" in said
    assert "  1 other pod of these nodes restarts too; drain counts VMs alone" in said


@pytest.mark.parametrize("kind", ["InstanceManager", "BackingImageManager", "DaemonSet"])
def test_the_pods_of_a_node_restart_nowhere_else(kind):
    other = deployed("im", "n1", "1Gi")
    other["metadata"]["ownerReferences"][0]["kind"] = kind
    (found,) = lose(snapshot([node("n1"), node("n2")], [other], nhc()), "n1").outages

    assert "other pod" not in "".join(of_loss(found))


def test_the_loss_of_a_large_zone_is_answered():
    """200 VMs and 300 other pods at once: sums decide, and the exact search is not tried."""
    nodes = [node(f"n{index}", zone="abc"[index % 3]) for index in range(30)]
    vms = [vm(f"vm{index}", f"n{index % 30}", "1Gi") for index in range(600)]
    others = [deployed(f"web{index}", f"n{index % 30}", "200Mi") for index in range(900)]
    fitting = outages(Question(zone="a"), snapshot(nodes, vms, others, nhc(minimum=1)))
    assert fitting.survives is True
    larger = [deployed(f"web{index}", f"n{index % 30}", "900Mi") for index in range(900)]
    between = outages(Question(zone="a"), snapshot(nodes, vms, larger, nhc(minimum=1)))
    assert between.survives is None
    assert "who starts first" in between.because[0]
    full = [filler(f"n{index}", "40Gi") for index in range(30)]
    assert outages(Question(zone="a"), snapshot(nodes, vms, full, nhc(minimum=1))).survives is False


def test_a_vm_whose_claim_is_lost_finds_no_place():
    claims = claim("disk")
    claims[0]["status"]["phase"] = "Lost"
    found = lose(snapshot(NODES, claims, vm("db", "n1", volumes=[disk("disk")]), nhc()), "n1")
    assert (found.survives, only(found).room.fits) == (False, False)
    assert outcomes(found) == {"db": "waits for room"}


def test_a_loss_keeps_no_copy_of_the_cluster():
    cluster = snapshot([node("n1"), node("n2"), node("n3")], vm("db", "n1"), vm("web", "n2"), nhc())
    found = outages(Question(worst=1), cluster)
    assert found.outages
    assert all("scheduler" not in vars(each.loss) for each in found.outages)


def test_the_lowest_priority_of_what_is_left():
    cluster = snapshot(
        [node("n1"), node("n2"), node("n3")],
        vm("db", "n1", priority=5),
        vm("web", "n2", priority=-7),
    )
    whole = candidates.scheduler(cluster).state
    left = whole.without_nodes({"n2"})
    assert (whole.lowest_priority(9), left.lowest_priority(9)) == (-7, 5)
    fork = whole.fork()
    (web,) = whole.pods["n2"]
    fork.unbind(web)
    assert (fork.lowest_priority(9), whole.lowest_priority(9)) == (5, -7)
    assert whole.without_nodes({"n1", "n2"}).lowest_priority(9) == 9
