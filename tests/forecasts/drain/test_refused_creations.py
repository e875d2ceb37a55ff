"""VMs whose disks are not created because the API server refuses them."""

from __future__ import annotations

import pytest

from tests.builders import endpoint_slice, manifest, webhook_configuration
from virt_admit.forecasts.drain.starts import failed_creations
from virt_admit.model.kubernetes.cluster import Snapshot

SAID = (
    "Error encountered while creating DataVolumes: failed to create DataVolume: Internal error "
    'occurred: failed calling webhook "quota.example.com": failed to call webhook: Post '
    '"https://quota.policies.svc:443/check?timeout=10s": service "quota" not found'
)


def problem(*parts, said=SAID, run="Always", shown="Stopped", template=None, reason="FailedCreate"):
    failed = {"type": "Failure", "status": "True", "reason": reason, "message": said}
    vm = manifest(
        "kubevirt.io/v1",
        "VirtualMachine",
        "db",
        "shop",
        spec={"runStrategy": run, "template": {"spec": template or {}}},
        status={
            "printableStatus": shown,
            "conditions": [{**failed, "lastTransitionTime": "2026-11-01T10:00:00Z"}],
        },
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


DENIED = (
    "Failure while starting VMI: admission webhook "
    '"virtualmachineinstances-create-validator.kubevirt.io" denied the request: '
)
MACHINE = "spec.domain.machine.type is not supported: pc (allowed values: [q35* pc-q35*])"


def refused(said, template, **given):
    return problem(said=f"{DENIED}{said}", template=template, **given)


def test_a_machine_type_that_kubevirt_no_longer_accepts():
    """KubeVirt calls a VM Stopped whose VMI is refused."""
    found = refused(MACHINE, {"domain": {"machine": {"type": "pc"}}}, run="RerunOnFailure")

    assert found.reason == f"KubeVirt cannot create its VMI for 2 h: {MACHINE}"
    assert found.remedy.startswith(
        "set spec.template.spec.domain.machine.type of the VM (now 'pc') to q35, after which"
    )
    assert """-p '{"spec":{"template":{"spec":{"domain":{"machine":{"type":"q35"}}}}}}'""" in (
        found.remedy
    )
    assert "add it to the emulatedMachines of KubeVirt, beside q35*, pc-q35*" in found.remedy


def test_a_machine_type_that_may_not_exist_is_not_written():
    said = MACHINE.replace("q35* pc-q35*", "pc-q35*")
    found = refused(said, {"domain": {"machine": {"type": "pc"}}})

    assert "to a value that KubeVirt accepts (allowed: pc-q35*): kubectl edit vm" in found.remedy


@pytest.mark.parametrize(
    ("said", "template", "remedy"),
    [
        (
            "spec.domain.devices.disks[1].disk.bus is set with an unrecognized bus ide, must be",
            {"domain": {"devices": {"disks": [{}, {"disk": {"bus": "ide"}}]}}},
            "correct spec.template.spec.domain.devices.disks[1].disk.bus of the VM (now 'ide') as "
            "KubeVirt says: kubectl edit vm db -n shop",
        ),
        (
            MACHINE,
            {},
            "set spec.template.spec.domain.machine.type of the VM to a value that KubeVirt accepts "
            "(allowed: q35*, pc-q35*), or correct it where the VM gets it: in its instance type, "
            "its preference or the configuration of KubeVirt: kubectl edit vm db -n shop",
        ),
        (
            "spec.running and spec.runStrategy are mutually exclusive",
            {},
            "correct in the VM what KubeVirt rejects: kubectl edit vm db -n shop",
        ),
        (
            "spec.running is set, and spec.template.spec.domain.cpu.model is not",
            {"domain": {"cpu": {"model": "x"}}},
            "correct spec.template.spec.domain.cpu.model of the VM (now 'x') as KubeVirt says: "
            "kubectl edit vm db -n shop",
        ),
        (
            "no field is named",
            {},
            "correct in the VM what KubeVirt rejects: kubectl edit vm db -n shop",
        ),
    ],
)
def test_the_field_that_virt_api_names(said, template, remedy):
    assert refused(said, template).remedy == remedy


def test_a_vm_whose_guest_was_shut_down():
    assert refused(MACHINE, {}, run="RerunOnFailure", reason="FailedDelete") is None
