"""Why a pod that has a node does not start: the first part of the cluster that explains it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from virt_admit.forecasts.placement.components import (
    broken_pods,
    driver_daemons,
    missing_objects,
    network_plugins,
    node_drivers,
    unpullable_images,
)
from virt_admit.forecasts.placement.components.kubelets import private_mounts
from virt_admit.forecasts.placement.starts import (
    attached_networks,
    plugin_tokens,
    started_pods,
    used_up_subnets,
    volume_starts,
)
from virt_admit.forecasts.placement.starts.started_pods import (
    BRIEF,
    BY_KUBELET,
    FAILURES,
    LONGEST,
    VOLUME,
    PodStart,
    StartFault,
)
from virt_admit.model import address_pools
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.evidence import full_ranges, sandbox_errors
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NAD, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import cut_middle

READS: Final[Reads] = union(
    attached_networks.READS,
    plugin_tokens.READS,
    started_pods.READS,
    volume_starts.READS,
    missing_objects.READS,
    address_pools.READS,
    full_ranges.READS,
    used_up_subnets.READS,
    private_mounts.READS,
)


def fault(pod: Object, cluster: Cluster, since: datetime | None = None) -> StartFault | None:
    """Return why a pod does not start; None: nothing says so.

    ``since``: when the pods before it began to fail in the same way; None: there were none.
    """
    start = started_pods.of(pod, cluster, since)
    return next((found for read in _READERS if (found := read(start)) is not None), None)


def words(pod: Object, cluster: Cluster, *, brief: bool = False) -> str:
    """Return why a pod does not start; empty: nothing says so."""
    found = fault(pod, cluster)
    return "" if found is None else found.brief if brief else found.words


def _missing(start: PodStart) -> StartFault | None:
    found = missing_objects.of_pod(start.pod, start.said, start.cluster)
    return StartFault(found.reason, found.reason, found.remedy) if found is not None else None


def _private_mount(start: PodStart) -> StartFault | None:
    found = private_mounts.of_pod(start.pod, start.cluster)
    if found is None:
        return None
    return StartFault(found.reason, found.brief, found.remedy, of_node=True)


def _full_range(start: PodStart) -> StartFault | None:
    """Return which addresses are used up, so that the pod gets none: those of all nodes, or of its
    own."""
    of_all = address_pools.full_range(start.said, start.cluster)
    full = of_all or full_ranges.of(start.said, start.on, start.cluster)
    if full is None:
        return None
    told = network_plugins.with_agent(full.reason, start.said, start.pod, start.cluster)
    return StartFault(told, full.reason, full.remedy, of_node=of_all is None)


def _image(start: PodStart) -> StartFault | None:
    found = unpullable_images.of_start(start.pod, start.said, start.cluster)
    if found is None:
        return None
    return StartFault(found.reason, cut_middle(found.reason, BRIEF), found.remedy)


def _unregistered(start: PodStart) -> StartFault | None:
    """Return that the driver of a volume is not registered on the node."""
    named = node_drivers.named_by(start.said, start.on)
    if named is None:
        return _unattached(start)
    (node, driver), cluster = named, start.cluster
    own = start.attachment if start.attaches else None
    remedy = (own.remedy if own is not None else "") or node_drivers.remedy(driver, node, cluster)
    lasts = own is not None and own.lasts
    if not start.said.startswith(BY_KUBELET):
        return StartFault(start.words, start.brief, remedy, of_node=True, lasts=lasts)
    why = node_drivers.because(driver, node, cluster)
    told = f"driver {driver} is not registered on {node}{why}"
    cause = why.strip(" ()").removeprefix(driver_daemons.NO_POD)
    brief = f"{node} lacks driver {driver}: {cause}" if why else told
    return StartFault(told, brief, remedy, of_node=True, lasts=lasts)


def _unattached(start: PodStart) -> StartFault | None:
    """Return that no volume of a driver is attached to the node, where the pods of that driver are
    broken there; None: they are not, or an error says another cause."""
    own, cluster = start.attachment, start.cluster
    named = VOLUME.match(start.said) if start.said.startswith("AttachVolume.") else None
    volume = own.awaits if own is not None and start.attaches else named[1] if named else ""
    driver = start.driver(volume) if volume else ""
    if not driver or not node_drivers.is_broken(driver, start.on, cluster):
        return None
    broken = node_drivers.agent(driver, start.on, cluster)
    state = broken.words if broken is not None else ""
    lacks = node_drivers.reasons(cluster).get(start.on, {}).get(driver, "")
    told = f"{start.words}, and {lacks or f'on {start.on} {state}'}"
    brief = f"{driver} attaches no volume on {start.on}: {state}"
    return StartFault(told, brief, node_drivers.remedy(driver, start.on, cluster), of_node=True)


def _delegated(start: PodStart) -> StartFault | None:
    """Return that the plugin of a secondary network fails, which Multus calls and names."""
    found = attached_networks.delegated(start)
    if found is None:
        return None
    definition, error = found
    title = f"{NAD.kind} {definition.full_name}"
    shown = kubectl("get", NAD, definition.name, definition.namespace, "-o", "yaml")
    own = sandbox_errors.known(start.said, start.on)
    way = own or f"correct what {title} (spec.config) asks for, or what {start.on} lacks for it"
    words = f"network of {title} fails: {cut_middle(error, LONGEST)}"
    return StartFault(words, cut_middle(words, BRIEF), typed(way, shown), of_node=True)


def _plugin(start: PodStart) -> StartFault | None:
    """Return that a network plugin fails."""
    named = network_plugins.NAMED.search(start.said)
    if named is None:
        return None
    pod, said, cluster = start.pod, start.said, start.cluster
    return StartFault(
        network_plugins.with_agent(start.words, said, pod, cluster),
        network_plugins.with_agent(start.brief, said, pod, cluster, brief=True),
        network_plugins.remedy(named[1], pod, start.since, cluster, said),
        of_node=True,
    )


def _container(start: PodStart) -> StartFault | None:
    """Return why a container does not run: of one that ends, the kubelet only says for how long it
    waits."""
    reason = start.said.partition(":")[0]
    found = broken_pods.of_pod(start.pod, start.cluster) if reason in FAILURES else None
    if found is None or not found.why:
        return None
    ends = reason == "CrashLoopBackOff"
    words, brief = (found.why, found.why) if ends else (start.words, start.brief)
    return StartFault(words, brief, found.remedy)


def _other(start: PodStart) -> StartFault | None:
    if not start.said:
        return None
    pod = start.pod
    remedy = sandbox_errors.remedy(start.said, start.on) or typed(
        "see in the events of the pod what fails", kubectl("describe", POD, pod.name, pod.namespace)
    )
    return StartFault(start.words, start.brief, remedy)


_READERS: Final[tuple[Callable[[PodStart], StartFault | None], ...]] = (
    *(_missing, _private_mount, used_up_subnets.fault, _full_range, _image),
    *(volume_starts.awaited, _unregistered, *volume_starts.READERS),
    *(attached_networks.fault, _delegated, plugin_tokens.fault, _plugin, _container, _other),
)
"""The most telling first."""
