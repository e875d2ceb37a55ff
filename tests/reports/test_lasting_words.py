"""What lasts is said with its duration; what a health check postpones is not refused."""

import pytest

from virt_admit.forecasts.outage.health_actors import Actor
from virt_admit.forecasts.upgrade.upgrade_progress import NodeInFlight
from virt_admit.model.node_updates.node_phases import Phase
from virt_admit.reports.upgrade import text


@pytest.mark.parametrize(
    ("phase", "age", "said"),
    [
        (Phase.UPDATING, "9 min", "w2 has been updating for 9 min."),
        (Phase.UPDATING, "", "w2 is being updated."),
        (Phase.FAILING, "3 h 12", "The update of w2 has been failing for 3 h 12."),
    ],
)
def test_a_node_under_way(phase, age, said):
    assert text.in_flight(NodeInFlight("w2", phase, None, age, "")) == said


def test_a_health_check_postpones_during_an_update_and_refuses_otherwise():
    waits = Actor(
        "w2", "NodeHealthCheck n", "", refuses="it waits for the end of the cluster upgrade"
    )
    assert waits.says.startswith("NodeHealthCheck n postpones it: it waits for")
    assert (
        Actor("w2", "NodeHealthCheck n", "", refuses="minHealthy is 3").says
        == "NodeHealthCheck n refuses: minHealthy is 3"
    )
