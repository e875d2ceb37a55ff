"""How many causes stop an upgrade."""

import pytest

from virt_admit.forecasts.drain.control.held_operators import StuckOperator
from virt_admit.forecasts.upgrade.rehearsal import Stop
from virt_admit.reports.upgrade.text import stops


@pytest.mark.parametrize(
    ("holds", "said"), [((), "1 cause"), ((True,), "2 causes"), ((False, None), "1 cause")]
)
def test_an_operator_that_holds_it_up_is_a_cause_too(holds, said):
    held = [StuckOperator("KubeVirt", "kubevirt", "kv", "it", "do", each) for each in holds]
    assert stops([Stop("", "a pool is paused", "unpause it")], held) == f"stops ({said})"
