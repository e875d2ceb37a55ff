"""Ports that Kube-OVN does not prepare for the target pod of a migration.

It does so in the phase Scheduling. KubeVirt enters that phase only when the target pod and the pod
that attaches hotplugged volumes are ready, so these wait for each other. Without such volumes some
releases look once at the start of that phase, and leave the port with the source for good if the
target pod has no node by then. Sources: kubeovn/kube-ovn issues #7416 and #6823 (fixed in 1.15.14
and 1.16.3), pkg/controller/kubevirt.go#handleAddOrUpdateVMIMigration;
kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#processMigrationPhase.
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.forecasts.placement.components import network_plugins
from virt_admit.forecasts.placement.starts import started_pods
from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.kubevirt.settings.versions import Version, parse_version
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem

READS: Final[Reads] = union(
    network_plugins.READS, {POD: ("metadata.creationTimestamp", "spec.containers.image")}
)
_CONTROLLER: Final = "kube-ovn-controller"
_TAG: Final = re.compile(r":(v?\d+\.\d+\.\d+[^/@:]{0,100})(?:@|$)")
_SKIPS: Final = (
    (Version(1, 14, 21), Version(1, 15), Version(1, 15, 14)),
    (Version(1, 15), Version(1, 15, 14), Version(1, 15, 14)),
    (Version(1, 16), Version(1, 16, 3), Version(1, 16, 3)),
)
"""The releases that look once: from, below, and the first one without that fault."""
OFF: Final = f"--{network_plugins.OFF}"


def problem(vmi: Object, migration: Object | None, pod: Object, cluster: Cluster) -> Problem | None:
    """Return why Kube-OVN gives the target pod of a migration no port; None: another cause,
    as far as known.
    """
    phase = migration.at("status", "phase").text if migration is not None else None
    if phase not in ("Pending", "Scheduling") or not network_plugins.is_target(pod):
        return None
    port = network_plugins.waits_for_migration(started_pods.of(pod, cluster).said, cluster)
    if not port:
        return None
    return _awaited(vmi, port) if phase == "Pending" else _skipped(port, pod, cluster)


def _awaited(vmi: Object, port: str) -> Problem | None:
    """Return that a target pod and its migration wait for each other; None: no volume is plugged
    in.
    """
    volumes = [
        each["name"].text or "?"
        for each in vmi.at("spec", "volumes").items()
        if launcher_pod.is_hotplugged(each)
    ]
    if not volumes:
        return None
    reason = (
        f"{port}. Kube-OVN prepares it only after the phase Pending of the migration, and KubeVirt "
        "ends that phase only when this pod is ready, because of hotplugged volume "
        f"{names(volumes)}: on every node they wait for each other"
    )
    volume = f"--volume-name={volumes[0]}"
    unplug = shell(
        "virtctl", "removevolume", argument(vmi.name), volume, "-n", vms.namespace_of(vmi)
    )
    ways = (
        "run a release of Kube-OVN that has this fixed, or its controller with "
        f"{network_plugins.OFF}; or stop the VM for the drain"
    )
    away = typed(f"unplug volume {names(volumes)} until it has moved", unplug)
    return Problem(reason, f"{ways}; or {away}")


def _skipped(port: str, pod: Object, cluster: Cluster) -> Problem | None:
    """Return that Kube-OVN has passed over the port of a migration and does not look again."""
    age = clock.since(pod.created, cluster)
    if age is None or age < network_plugins.PATIENCE:
        return None
    broken = network_plugins.broken_agent(network_plugins.KUBE_OVN, pod, None, cluster)
    controllers = network_plugins.ovn_controllers(cluster)
    node = pod.at("spec", "nodeName").text or ""
    if broken is not None or not controllers or network_plugins.lacks_ports(node, cluster):
        return None
    fixed = {_fixed(each) for each in controllers}
    if None in fixed:
        return None
    release, since = _release(controllers[0]), max(filter(None, fixed))
    reason = (
        f"{port}. {_CONTROLLER} {release} prepares it only if the target pod has a node as the "
        "migration enters the phase Scheduling, and does not look again, so the port stays with "
        "the source node"
    )
    edit = kubectl("edit", DEPLOYMENT, _CONTROLLER, controllers[0].namespace)
    off = typed(f"or, until then, start {_CONTROLLER} with {OFF}", edit, "then migrate again")
    return Problem(reason, f"update Kube-OVN to {since} or later; {off}")


def _release(controller: Object) -> Version | None:
    for box in controller.at("spec", "containers").items():
        if (tag := _TAG.search(box["image"].text or "")) is not None:
            return parse_version(tag[1])
    return None


def _fixed(controller: Object) -> Version | None:
    """Return the first release without the fault that a controller has; None: it has none,
    or its release is not known.
    """
    release = _release(controller)
    if release is None:
        return None
    return next((fixed for first, end, fixed in _SKIPS if first <= release < end), None)
