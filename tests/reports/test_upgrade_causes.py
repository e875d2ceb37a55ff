"""How many causes stop an upgrade."""

import pytest

from virt_admit.forecasts.drain.control.held_operators import StuckOperator
from virt_admit.forecasts.upgrade.rehearsal import Stop
from virt_admit.reports.upgrade.text import _stops, stops


@pytest.mark.parametrize(
    ("holds", "said"), [((), "1 cause"), ((True,), "2 causes"), ((False, None), "1 cause")]
)
def test_an_operator_that_holds_it_up_is_a_cause_too(holds, said):
    held = [StuckOperator("KubeVirt", "kubevirt", "kv", "it", "do", each) for each in holds]
    assert stops([Stop("", "a pool is paused", "unpause it")], held) == f"stops ({said})"


@pytest.mark.parametrize(
    ("node", "reason", "said"),
    [
        ("b", "it is not Ready", "1 cause"),
        ("", "pool p waits: b, not Ready, uses up its maxUnavailable 1", "1 cause"),
        ("", "pool p waits: b-2, not Ready, uses up its maxUnavailable 1", "2 causes"),
        ("c", "it is not Ready", "2 causes"),
    ],
)
def test_an_operator_that_is_held_by_a_stopped_node_is_not_another_cause(node, reason, said):
    held = [StuckOperator("KubeVirt", "kubevirt", "kv", "it", "do", follows="b")]
    assert stops([Stop(node, reason, "do")], held) == f"stops ({said})"


def _of_claim(vm, remedy="cordon b: kubectl cordon b"):
    claim = f"{vm.partition('/')[2]}-root"
    reason = f"{vm}: its target pod on b has not started: claim {claim} cannot be attached"
    return Stop("a", reason, remedy)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([_of_claim("shop/db-2"), _of_claim("shop/queue")], "1 cause"),
        ([_of_claim("shop/db-2"), _of_claim("shop/queue", "cordon c")], "2 causes"),
        ([_of_claim("shop/db-2"), Stop("a", "shop/queue: it is paused", "do")], "2 causes"),
        ([Stop("a", f"shop/{vm}: it is paused", "") for vm in ("one", "two")], "2 causes"),
    ],
)
def test_one_cause_of_several_vms_counts_once(found, said):
    assert stops(found) == f"stops ({said})"


def test_a_remedy_that_is_not_repeated_is_named_by_the_vm_that_has_it():
    first, second = ("free memory " * 9, "move the disk " * 9)
    found = [
        Stop("a", f"shop/one: {'no node has room ' * 9}", first),
        Stop("b", f"shop/two: {'its disk stays ' * 9}", second),
        Stop("b", f"shop/three: {'no node has room ' * 9}", second),
    ]

    assert [each for each in _stops(found) if "the same as" in each] == [
        "stops at b: shop/three: the same as shop/one",
        "  to do: the same as for shop/two",
    ]
