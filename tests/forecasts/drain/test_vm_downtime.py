"""How long a guest is down."""

import pytest

from tests.builders import vmi
from virt_admit.forecasts.drain import vm_downtime
from virt_admit.model.kubernetes import clock


@pytest.mark.parametrize(
    ("seconds", "grace"),
    [(0, 0), (60, 60), (-1, 0), (2**63 - 1, clock.LONGEST), ("60", vm_downtime.GRACE)],
)
def test_the_grace_period_is_a_time_that_may_pass(seconds, grace):
    assert vm_downtime.grace(vmi(terminationGracePeriodSeconds=seconds)) == grace
