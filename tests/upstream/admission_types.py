"""Random instance types and preferences, and the ways in which a VM names them."""

from __future__ import annotations

from typing import Any, Final

from tests.upstream.launcher_cases import NAMESPACE, Chance

OPT_IN: Final = "kubevirt.io/allow-pod-bridge-network-live-migration"
_TYPES: Final = "instancetype.kubevirt.io/v1beta1"
_REVISION_OF: Final = "instancetype.kubevirt.io/object-name"


def inherited(chance: Chance, word: str) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Return the objects, the matcher and the status of an instance type or a preference:
    by name or by revision.
    """
    short = word.capitalize()
    spec = _instancetype(chance) if word == "instancetype" else _preference(chance)
    cluster = chance.happens(0.7)
    kind = f"Virtual{'MachineCluster' if cluster else 'Machine'}{short}"
    found = {
        "apiVersion": _TYPES,
        "kind": kind,
        "metadata": {"name": "given"} | ({} if cluster else {"namespace": NAMESPACE}),
        "spec": spec,
    }
    matcher = {"name": "given"} | (
        {}
        if cluster and chance.happens(0.6)
        else {"kind": chance.one(kind, kind.lower(), f"{kind}s", f"{kind.lower()}s")}
    )
    objects, status = [found], {}
    way = chance.one(
        "name", "name", "name", "revision", "status", "status without label", "status of another"
    )
    if way != "name":
        other = _instancetype(chance) if word == "instancetype" else _preference(chance)
        labels = {"status without label": {}, "status of another": {_REVISION_OF: "other"}}.get(
            way, {_REVISION_OF: "given"}
        )
        name = f"revision-{word}"
        objects.append(
            {
                "apiVersion": "apps/v1",
                "kind": "ControllerRevision",
                "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
                "data": found | {"spec": other},
                "revision": 1,
            }
        )
        if way == "revision":
            matcher["revisionName"] = name
        else:
            status = {f"{word}Ref": {"name": "given", "controllerRevisionRef": {"name": name}}}
    return objects, matcher, status


def _instancetype(chance: Chance) -> dict[str, Any]:
    cpu: dict[str, Any] = {"guest": 1} | chance.some(
        0.15, model="Haswell", dedicatedCPUPlacement=chance.happens()
    )
    return {"cpu": cpu, "memory": {"guest": "1Gi"}} | chance.some(
        0.08,
        gpus=[{"name": "gpu", "deviceName": "example.com/vgpu"}],
        hostDevices=[{"name": "device", "deviceName": "example.com/pci"}],
        launchSecurity=chance.one({"sev": {}}, {}),
        nodeSelector={"c": "d"},
        annotations={OPT_IN: "true"},
    )


def _preference(chance: Chance) -> dict[str, Any]:
    features = {"preferredHyperv": {"reenlightenment": switch(chance), "vpindex": {}}}
    devices = chance.some(
        0.3,
        preferredInterfaceMasquerade={},
        preferredAutoattachPodInterface=chance.happens(),
        preferredInterfaceModel="virtio",
        preferredTPM=chance.one({}, {"persistent": True}),
    )
    return chance.some(
        0.25,
        features=features,
        cpu={
            "preferredCPUFeatures": [
                {"name": "invtsc", "policy": chance.one("require", "optional")}
            ]
        },
        preferredArchitecture=chance.one("arm64", "amd64", "s390x"),
        annotations=chance.some(0.5, **{OPT_IN: ""}),
        machine={"preferredMachineType": "pc-q35-rhel9.2"},
    ) | {"devices": devices}


def switch(chance: Chance) -> dict[str, Any]:
    """Return a feature of Hyper-V."""
    return chance.one({}, {"enabled": True}, {"enabled": False})
