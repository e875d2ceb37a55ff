"""Updates that wait because the API server refuses a write."""

from __future__ import annotations

from tests.builders import manifest, webhook_configuration
from tests.forecasts.upgrade.test_harvester_waits import EARLY, rancher, services_upgraded, upgraded


def test_a_webhook_without_a_service_refuses_the_update_of_its_cluster():
    waiting = rancher(EARLY)
    waiting.data["status"]["conditions"][0]["message"] = (
        'failed calling webhook "default.cluster.cluster.x-k8s.io": failed to call webhook: Post '
        '"https://capi.old.svc:443/mutate?timeout=10s": service "capi" not found'
    )
    rules = [{"apiGroups": ["cluster.x-k8s.io"], "resources": ["clusters"], "operations": ["*"]}]
    hook = {
        "name": "default.cluster.cluster.x-k8s.io",
        "clientConfig": {"service": {"name": "capi", "namespace": "old"}},
        "rules": rules,
    }
    stale = webhook_configuration("stale", hook, kind="Mutating")
    known = manifest("v1", "Service", "kubernetes", "default")
    (stop,) = upgraded(services_upgraded(EARLY), waiting, stale, known).stops

    assert "MutatingWebhookConfiguration stale (failurePolicy Fail) calls Service old/capi" in (
        stop.reason
    )
    assert "it: kubectl delete mutatingwebhookconfiguration/stale; or make" in stop.remedy
    assert upgraded(services_upgraded(EARLY), waiting, known).stops == ()
