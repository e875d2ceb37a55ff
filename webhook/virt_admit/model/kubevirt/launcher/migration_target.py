"""What the node of a running VMI demands of the node to which it migrates.

Source: kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#createTargetPod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import cpu_models, vmis
from virt_admit.model.kubevirt.instances.cpu_models import TARGET
from virt_admit.model.kubevirt.launcher import machine_types
from virt_admit.model.kubevirt.launcher.launcher_pod import CPU_FEATURE, CPU_VENDOR
from virt_admit.model.kubevirt.settings.versions import Version, has_release

REQUIRED_FEATURE: Final = "host-model-required-features.node.kubevirt.io/"
_SAME_VENDOR_SINCE: Final = Version(1, 8)


def labels(
    source: Mapping[str, object],
    selected: Mapping[str, str],
    fresh: Mapping[str, str],
    cluster: Cluster,
    *,
    host_model: bool,
) -> Iterator[tuple[str, str, str]]:
    """Yield the labels that a target must have because of the node that the VMI runs on: key,
    value, words.

    ``source``: the labels of that node. ``selected``: the node selector of the source pod. Where it
    already names CPU features or a model for migration, the VMI has migrated before, and these
    labels bind again, not the node's. ``fresh``: the node selector of a fresh pod; a vendor that it
    names is the target's vendor.
    """
    if host_model:
        kept = {
            key: value for key, value in selected.items() if CPU_FEATURE in key or TARGET in key
        }
        for key, value in (kept or _of_host_model(source)).items():
            yield key, value, _words(key)
    if has_release(cluster, _SAME_VENDOR_SINCE) and not any(
        key.startswith(CPU_VENDOR) for key in fresh
    ):
        vendor = next((key for key in sorted(source) if key.startswith(CPU_VENDOR)), "")
        if vendor:
            yield vendor, "true", f"processor vendor {vendor.removeprefix(CPU_VENDOR)}"


def unlabelled(
    vmi: Object, demanded: Iterable[str], every: Mapping[str, Mapping[str, str]]
) -> tuple[str, ...]:
    """Return the demanded labels of machine types and CPU features that no node has, not even the
    one on which the VMI runs with them: that none offers them is not known then.

    ``every``: the labels of the nodes. A launcher of an older release may have what virt-handler,
    which asks the launcher of its own release, no longer finds
    (kubevirt/kubevirt:cmd/virt-handler/virt-handler.go, init container ``virt-launcher``).
    """
    here = every.get(vmi.at("status", "nodeName").text or "", {})
    if vmis.OUTDATED in vmi.labels:
        return ()
    own = {each["name"].text for each in vmi.at("spec", "domain", "cpu", "features").items()}
    families = [family for family in (machine_types.LABEL, CPU_FEATURE) if _has_any(family, here)]
    return tuple(
        key
        for key in demanded
        for family in families
        if key.startswith(family)
        and (family == machine_types.LABEL or key.removeprefix(family) in own)
        and not any(key in labels for labels in every.values())
    )


def _has_any(family: str, labels: Iterable[str]) -> bool:
    return any(label.startswith(family) for label in labels)


def _of_host_model(source: Mapping[str, object]) -> dict[str, str]:
    """Return what the host model of a node demands of another;
    nothing where the node does not say its model.

    KubeVirt before 0.49.1, and 0.50 to 0.53, asks for a node of the same host model. Its
    virt-handler does not label from which models a node takes migrations
    (migration.go#prepareNodeSelectorForHostCpuModel; node_labeller.go#prepareLabels).
    """
    models = {key: value for key, value in source.items() if key.startswith(cpu_models.HOST)}
    if not models:
        return {}
    demanded = {
        CPU_FEATURE + key.removeprefix(REQUIRED_FEATURE): str(value)
        for key, value in source.items()
        if key.startswith(REQUIRED_FEATURE)
    }
    model, value = next(iter(sorted(models.items())))
    old = _has_any(cpu_models.OFFERED, source) and not _has_any(TARGET, source)
    family = cpu_models.HOST if old else TARGET
    return {**demanded, family + model.removeprefix(cpu_models.HOST): str(value)}


def _words(label: str) -> str:
    for family in (TARGET, cpu_models.HOST):
        if label.startswith(family):
            return f"host model {label.removeprefix(family)}"
    return f"CPU feature {label.removeprefix(CPU_FEATURE)}"
