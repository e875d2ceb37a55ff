"""A health check that refuses is told with what makes it act, unless its VMs are."""

from types import SimpleNamespace

import pytest

from virt_admit.forecasts.outage.health_actors import Actor
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.outage.text import _actors

WAY = "use one kind of health check: kubectl get mhc all"


@pytest.mark.parametrize(
    ("vms", "shown"), [([""], True), ([f"{WAY}; or, by hand, fence a"], False), ([], False)]
)
def test_what_makes_a_check_act_is_told_once(vms, shown):
    check = Actor("a", "NodeHealthCheck all", "", refuses="it is disabled", remedy=WAY)
    rows = [SimpleNamespace(remedy=remedy) for remedy in vms]
    loss = Loss(("a",), Snapshot([], ["*"]))
    one = SimpleNamespace(actors=[check], because=(), vms=rows, stranded=(), loss=loss)
    lines = list(_actors(one))
    assert lines[0] == "  NodeHealthCheck all (a) refuses: it is disabled"
    assert lines[1:] == [f"    to do: {WAY}"] * shown
