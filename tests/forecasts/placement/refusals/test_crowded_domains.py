"""Topology spread that refuses nodes as a cordoned, empty one counts."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain.vm_motion import cluster, launcher, node, vmi
from virt_admit.forecasts.placement import no_target

HOST = "kubernetes.io/hostname"
SET = {"app": "db"}
SAID = (
    "b is refused by topology spread over kubernetes.io/hostname (maxSkew 1): 2 matching pods "
    "there, 0 on cordoned c, which counts"
)


def place(name, **spec):
    return node(name, labels={HOST: name}, **spec)


def pod(of, on):
    metadata = {"labels": SET}
    return manifest("v1", "Pod", of, "shop", metadata=metadata, spec={"nodeName": on})


def found(*pods, cordoned=True, others=True, source=True, **spread):
    constraint = {
        "maxSkew": 1,
        "topologyKey": HOST,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": SET},
    }
    subject = vmi(spec={"topologySpreadConstraints": [constraint | spread]})
    subject.data["metadata"]["labels"] = dict(SET)
    own = launcher()
    own.data["metadata"]["labels"] |= SET
    hosts = [place("a", unschedulable=source), place("b")]
    hosts += [place("c", unschedulable=cordoned)] if others else []
    return no_target.nowhere_to_go(subject, cluster(*hosts, own, *pods, subject))


TWO = [pod("one", "b"), pod("two", "b")]


def test_a_cordoned_empty_node_counts():
    problem = found(*TWO)

    assert problem.reason.endswith(f"; {SAID}")
    assert problem.remedy.endswith(
        "kubectl uncordon c; or set nodeTaintsPolicy: Honor in that constraint of the VM and "
        "restart it"
    )


def test_where_the_skew_allows_it_the_vm_goes_there():
    assert found() is None


def test_an_open_node_takes_it():
    assert found(*TWO, cordoned=False) is None


def test_a_constraint_that_honors_taints_counts_no_cordoned_node():
    assert found(*TWO, nodeTaintsPolicy="Honor") is None


def test_a_node_without_the_label_is_not_compared():
    problem = found(*TWO, topologyKey="topology.kubernetes.io/zone")
    assert "matching" not in problem.reason


@pytest.mark.parametrize(
    ("cordoned", "which"),
    [(True, "cordoned a, which counts"), (False, "a, which counts when cordoned too")],
)
def test_the_node_of_the_vm_counts_although_it_is_drained(cordoned, which):
    problem = found(*TWO, others=False, source=cordoned)

    assert problem.reason.endswith(f"{HOST}: 2 matching pods on b, 1 on {which}")
    assert problem.remedy.startswith(
        f"set nodeTaintsPolicy: Honor in its topology spread over {HOST} and restart the VM"
    )


def test_the_constraint_is_given_up_only_if_honoring_taints_opens_no_node():
    problem = found(*TWO, others=False, minDomains=2)

    assert "matching" not in problem.reason
    assert "ScheduleAnyway" in problem.remedy
