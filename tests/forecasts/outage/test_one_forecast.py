"""``explain`` of a health check, ``node-without-health-check`` and ``outage`` say the same about a
node.
"""

from tests import blindness, random_vms
from tests.forecasts.outage import losses
from tests.forecasts.outage.losses import filler, nhc, node, snapshot, vm
from tests.forecasts.outage.test_health_actors import cluster_api, deleting, with_machines
from virt_admit.forecasts.outage import check_restarts, health_actors
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.outages import outage
from virt_admit.forecasts.remediation import coverage
from virt_admit.model.kubernetes import kinds

NODES = [node("n1"), node("n2"), node("n3")]


def excluding():
    nodes = [node("n1"), node("n2"), node("n3")]
    nodes[0]["metadata"]["labels"]["remediation.medik8s.io/exclude-from-remediation"] = "true"
    return nodes


def ranged():
    check = losses.machines("n1", "n2", "n3")
    check[-1]["spec"]["unhealthyRange"] = "[2-3]"
    return check


def clusters():
    yield snapshot(NODES, nhc())
    yield snapshot(NODES, nhc(minimum="100%"))
    yield snapshot(excluding(), nhc())
    yield snapshot(NODES, losses.machines("n1", "n2"))
    yield snapshot(NODES, losses.machines("n1", "n2", limit=0))
    yield snapshot(NODES, ranged())
    for machines in ((), ("n1",), ("n2", "n3")):
        yield snapshot(with_machines(*machines), deleting())
        yield snapshot(with_machines(*machines), deleting(then_self=True))
    yield snapshot(NODES, list(cluster_api(paused=False)))
    for seed in range(40):
        yield blindness.everything(random_vms.random_cluster(seed))


def test_a_check_acts_on_a_node_for_the_rule_if_it_does_after_a_loss():
    said = set()
    for cluster in clusters():
        down = any(
            each.condition("Ready")["status"].text != "True" for each in cluster.known(kinds.NODE)
        )
        for each in () if down else cluster.known(kinds.NODE):
            lost = health_actors.coverage(each.name, Loss((each.name,), cluster))
            covered = each.name in coverage.coverage(cluster).nodes
            assert covered is (lost.first is not None), (each.name, lost)
            said.add(covered)
    assert said == {True, False}


def test_vms_without_room_wait_for_explain_too():
    objects = [
        NODES,
        filler("n2", "40Gi"),
        filler("n3", "40Gi"),
        vm("db", "n1", "30Gi"),
        vm("web", "n1", "10Gi"),
    ]
    cluster = snapshot(objects, nhc())
    lost = {row.vmi.name: row for row in outage(("n1",), cluster).vms}
    found = {fate.vmi.name: fate for fate in check_restarts.fates(["n1"], cluster)}
    assert (lost["db"].outcome, found["db"].nowhere) == ("waits for room", lost["db"].reason)
    assert (lost["web"].outcome, found["web"].nowhere) == ("restarts", "")
    assert found["db"].comes
    assert found["web"].comes


def test_a_node_that_is_never_confirmed_down_keeps_its_vms():
    (found,) = check_restarts.fates(
        ["n1"], snapshot(NODES, vm("db", "n1"), nhc()), {"n1": "no Machine exists"}
    )
    assert (found.comes, found.why) == (False, "no Machine exists")
