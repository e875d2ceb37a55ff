"""Webhooks that fail closed and get the evictions of ordinary pods."""

import pytest

from tests.builders import manifest, owned_by
from tests.forecasts.drain.test_control_path import NODES, drained
from tests.forecasts.drain.test_failing_webhooks import SERVICES, webhook
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.model.kubernetes.cluster import Snapshot

PLAIN = manifest(
    "v1",
    "Pod",
    "web",
    "shop",
    metadata={"labels": {"app": "web"}, "ownerReferences": owned_by("ReplicaSet", "web")},
    spec={"nodeName": "a"},
    status={"phase": "Running"},
)


@pytest.mark.parametrize(
    ("hook", "drainable"),
    [
        (webhook("pods/eviction"), False),
        (webhook("pods"), True),
        (webhook("pods/binding"), True),
        (webhook("pods", "DELETE"), False),
        (webhook("pods/status", "UPDATE"), False),
        (webhook("pods", "DELETE", objectSelector={"matchLabels": {"app": "db"}}), True),
        (webhook("pods", "DELETE", objectSelector={"matchLabels": {"app": "web"}}), False),
        (webhook("pods/eviction", failurePolicy="Ignore"), True),
        (
            webhook(
                "pods/eviction",
                matchConditions=[{"expression": "request.name.startsWith('virt-launcher')"}],
            ),
            True,
        ),
        (
            webhook(
                "pods/eviction", matchConditions=[{"expression": "object.spec.x.all(y, y > 1)"}]
            ),
            None,
        ),
        (webhook("pods/eviction", namespaceSelector={"matchLabels": {"team": "a"}}), None),
    ],
)
def test_a_webhook_without_a_service_keeps_ordinary_pods(hook, drainable):
    found = drained(PLAIN, *SERVICES, hook)

    assert found.drainable is drainable
    assert [
        ("evictions fail" in blocker.reason or "evicted pods do not end" in blocker.reason)
        for blocker in found.pods.blockers
    ] == [True] * (drainable is False)
    assert drained(*SERVICES, hook).drainable is True  # without any pod


def test_ordinary_pods_and_webhook_configurations_that_cannot_be_read():
    kind = "validatingwebhookconfigurations.admissionregistration.k8s.io"
    assert plan(Snapshot([*NODES, PLAIN], ["*"], [kind]), "a").nodes[0].drainable is None
    assert plan(Snapshot([*NODES], ["*"], [kind]), "a").nodes[0].drainable is True
