"""VMs, VMIs and nodes of the drain, lifecycle and update tests."""

from tests import builders
from tests.builders import NAMESPACE, manifest, node, owned_by


def vm(run_strategy, name="db", **metadata):
    return builders.vm(name=name, metadata=metadata, runStrategy=run_strategy)


def vmi(
    strategy=None,
    migratable=None,
    *,
    owner="VirtualMachine",
    on="a",
    phase="Running",
    labels=None,
    **spec,
):
    conditions = [
        {
            "type": "LiveMigratable",
            "status": str(migratable),
            "reason": "HostDeviceNotLiveMigratable",
        }
    ]
    return builders.vmi(
        metadata={"ownerReferences": owned_by(owner) if owner else [], "labels": labels or {}},
        status={
            "phase": phase,
            "nodeName": on,
            "conditions": conditions if migratable is not None else [],
        },
        evictionStrategy=strategy,
        **spec,
    )


ROOM = {"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "100Gi"} | {
    f"devices.kubevirt.io/{device}": "1k" for device in ("kvm", "tun", "vhost-net")
}
HERE, THERE = node("a", allocatable=ROOM), node("b", allocatable=ROOM)


def budget(selector, allowed=None, owner=None, **spec):
    return manifest(
        "policy/v1",
        "PodDisruptionBudget",
        "own",
        NAMESPACE,
        metadata={"ownerReferences": [{"kind": owner, "name": "db"}] if owner else []},
        spec={"selector": selector} | spec,
        status={"disruptionsAllowed": allowed},
    )


LAUNCHERS = {"matchLabels": {"kubevirt.io": "virt-launcher"}}
