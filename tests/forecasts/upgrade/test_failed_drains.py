"""A pool that is degraded for a drain, and the budget that holds the drain."""

import pytest

from tests.cli.test_upgrade import kubevirt
from tests.cli.test_upgrade_progress import AN_HOUR_AGO, NEW, OLD, cluster, config_node, workers
from tests.forecasts.drain.test_pod_evictions import budget, pod
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.reports.upgrade import text


def result(where):
    failing = config_node("a", OLD, NEW, "Degraded", since=AN_HOUR_AGO)
    failing.data["spec"]["unschedulable"] = True
    said = "Node a is reporting: failed to drain node: a after 1 hour"
    failing.data["metadata"]["annotations"]["machineconfiguration.openshift.io/reason"] = said
    pool = workers()
    pool.data["status"] = pool.data.get("status", {}) | {
        "conditions": [{"type": "Degraded", "status": "True", "message": said}]
    }
    pods = [pod("web-1"), pod("web-2", ready="False")]
    pods[1].data["spec"]["nodeName"] = where
    held = budget(maxUnavailable=1, expected=2, desired=2, healthy=1, allowed=0)
    return rehearse(cluster(failing, config_node("b"), pool, kubevirt(), *pods, held), Options())


@pytest.mark.parametrize("where", ["b", "a"], ids=["a later node has a pod", "none has"])
def test_the_later_node_is_named_and_the_effect_is_no_further_cause(where):
    found = result(where)
    stop = next(each for each in found.stops if each.node == "a" and "shop/web" in each.reason)
    assert stop.reason.endswith("; it stops b next") == (where == "b")
    assert text.verdict(found) == "No: the upgrade stops (1 cause)."
