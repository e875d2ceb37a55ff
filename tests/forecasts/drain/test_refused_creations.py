"""VMs whose disks are not created because the API server refuses them."""

from __future__ import annotations

from tests.builders import endpoint_slice, manifest, webhook_configuration
from virt_admit.forecasts.drain.starts import failed_creations
from virt_admit.model.kubernetes.cluster import Snapshot

SAID = (
    "Error encountered while creating DataVolumes: failed to create DataVolume: Internal error "
    'occurred: failed calling webhook "quota.example.com": failed to call webhook: Post '
    '"https://quota.policies.svc:443/check?timeout=10s": service "quota" not found'
)


def problem(*parts):
    failed = {"type": "Failure", "status": "True", "reason": "FailedCreate", "message": SAID}
    vm = manifest(
        "kubevirt.io/v1",
        "VirtualMachine",
        "db",
        "shop",
        spec={"runStrategy": "Always"},
        status={"conditions": [{**failed, "lastTransitionTime": "2026-11-01T10:00:00Z"}]},
    )
    rules = [
        {"apiGroups": ["cdi.kubevirt.io"], "resources": ["datavolumes"], "operations": ["CREATE"]}
    ]
    hook = {
        "name": "quota.example.com",
        "clientConfig": {"service": {"name": "quota", "namespace": "policies"}},
        "rules": rules,
    }
    stale = webhook_configuration("quota", hook)
    known = manifest("v1", "Service", "kubernetes", "default")
    cluster = Snapshot([vm, stale, known, *parts], ["*"], time="2026-11-01T12:00:00Z")
    return failed_creations.problem(next(iter(cluster)), cluster)


def test_the_configuration_and_its_missing_service():
    found = problem()

    assert found.reason == (
        "KubeVirt cannot create its DataVolumes for 2 h: ValidatingWebhookConfiguration quota "
        "(failurePolicy Fail) calls Service policies/quota, which does not exist, so every write "
        "of datavolumes.cdi.kubevirt.io is refused"
    )
    assert (
        "it: kubectl delete validatingwebhookconfiguration/quota; or make Service" in found.remedy
    )


def test_a_service_that_answers_again():
    endpoint = {"addresses": ["10.0.0.1"], "conditions": {"ready": True}}
    answers = endpoint_slice("quota", "policies", endpoint)
    found = problem(manifest("v1", "Service", "quota", "policies"), answers)

    assert "ValidatingWebhookConfiguration" not in found.reason
