"""Who finds a place after the loss of nodes, against kube-scheduler's real filters.

A few dozen clusters; ``make verify-outage COUNT=200`` tries more.
"""

from pathlib import Path

from tests.scheduler.losses import compare
from virt_admit.forecasts.outage.restarts.fates import LossOutcome


def test_room_after_a_loss_agrees_with_kube_scheduler(oracle: Path) -> None:
    result = compare(oracle, range(60))

    assert not result.invalid
    assert not result.failures
    assert result.said["survives/fits"] > 50
    assert result.said["no room/does not fit"] > 5
    assert result.words.keys() >= {
        LossOutcome.RESTARTS,
        LossOutcome.ROOM,
        LossOutcome.NODE,
        LossOutcome.UNKNOWN,
    }
