"""``upgrade`` with an operator that does not go on: all forms of the report agree."""

from __future__ import annotations

import pytest

from tests.healthy.parts import ago
from tests.incidents_platform import operators
from tests.model.node_updates.test_paused_clusters import owner, pool
from virt_admit.cli.commands import upgrade
from virt_admit.forecasts.upgrade import stop_layers
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.upgrade import html, text
from virt_admit.reports.upgrade.follow import UpgradeFollower, UpgradeVerdict


def cluster(*more, complete=("*",)):
    return Snapshot(map(Object, [*operators.cluster(), *more]), complete, time=ago())


STUCK = Snapshot(map(Object, operators.stored_version().items), ["*"], time=ago())


@pytest.mark.parametrize(
    ("driver", "nodes", "says"),
    [
        (Driver.PLAIN, True, "The nodes do not hold it up"),
        (Driver.CLUSTER_API, None, "No: that holds it up. It cannot be determined whether the"),
    ],
)
def test_an_operator_that_is_held(driver, nodes, says):
    options = Options(driver)
    result = rehearse(STUCK, options)
    assert (result.nodes_complete, result.possible, result.ends) == (nodes, False, None)
    assert text.text(result).startswith("The update of operator ")
    assert says in text.text(result)
    assert html.page(result).verdict.word == "Stuck"
    row = upgrade.forecast(result, STUCK, None)
    assert (row.code, row.verdicts["possible"], row.verdicts["duration"]) == (1, "no", "-")

    look = UpgradeFollower(options).look(STUCK)
    said = [each.value for each in look.changes if isinstance(each.value, UpgradeVerdict)]
    assert (look.stuck, [each.possible for each in said]) == (True, [False])

    fixed = stop_layers.rehearse(STUCK, options, (), lambda _: None, every=True).if_fixed
    assert fixed is not None
    assert (fixed.possible, fixed.duration) == (False, None)


MACHINE = {
    "apiVersion": "cluster.x-k8s.io/v1beta2",
    "kind": "Machine",
    "metadata": {"name": "m", "namespace": "tenant"},
    "spec": {"clusterName": "team"},
    "status": {"nodeRef": {"name": "n1"}},
}
PAUSED = (owner(since=ago(hours=2)), pool())
READ = ("nodes", "pods", "virtualmachineinstances.kubevirt.io", "clusters.cluster.x-k8s.io")


@pytest.mark.parametrize(
    ("more", "complete", "possible"),
    [((), ("*",), True), ((MACHINE,), ("*",), False), ((), READ, None)],
    ids=["of VMs", "of the nodes", "not read"],
)
def test_a_paused_cluster_holds_only_the_upgrade_of_its_own_nodes(more, complete, possible):
    result = rehearse(cluster(*PAUSED, *more, complete=complete), Options(Driver.PLAIN))
    (found,) = result.operators
    assert found.holds is {True: False, False: True}.get(possible)
    assert result.possible is possible
    assert "Cluster tenant/team is paused" in text.text(result)
    assert ("machines.cluster.x-k8s.io" in result.unseen) is (possible is None)
    assert text.text(result).startswith("Yes") is (possible is True)
    if possible:
        assert text.verdict(result).startswith("Yes for this cluster, no for Cluster tenant/team: ")
        assert "not for Cluster tenant/team" in html.page(result).verdict.text
