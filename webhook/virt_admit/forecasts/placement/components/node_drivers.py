"""CSI drivers that a node lacks although others have them: kube-scheduler may choose such a node,
and no volume gets there.

A driver is registered by its pod on the node, through the kubelet, in the CSINode of that node.
Sources: kubernetes/kubernetes:pkg/volume/csi/csi_attacher.go#waitForVolumeAttachment,
:pkg/volume/csi/nodeinfomanager, :pkg/scheduler/framework/plugins/nodevolumelimits/csi.go#Filter (a
driver without an entry has no limit); issues longhorn/longhorn#6435.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods, driver_daemons, node_pods
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.forecasts.placement.components.drivers import driver_faults, node_agents
from virt_admit.forecasts.placement.components.kubelets import (
    lost_registrations,
    root_directories,
    young_pods,
)
from virt_admit.forecasts.placement.components.kubelets.lost_registrations import LostRegistration
from virt_admit.forecasts.placement.components.kubelets.root_directories import UnlikeRoot
from virt_admit.model import address_pools
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.evidence import kernel_modules
from virt_admit.model.kubernetes import clock, events, node_health
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import CSI_NODE, NODE, POD, PV, PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import csi_of, find
from virt_admit.model.messages import without_command
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.volumes import Claim

READS: Final[Reads] = union(
    address_pools.READS,
    clock.READS,
    driver_daemons.READS,
    driver_faults.READS,
    kernel_modules.READS,
    node_health.READS,
    node_agents.READS,
    root_directories.READS,
    lost_registrations.READS,
    young_pods.READS,
    {
        POD: ("status.conditions", "status.containerStatuses", "status.phase"),
        PVC: ("spec.volumeName",),
        PV: ("spec.csi.driver",),
    },
)
LACKS: Final = "CSI driver "
"""How each reason begins that a node lacks a driver, or that this attaches no volume."""
_NOT_REGISTERED: Final = re.compile(
    r"CSINode ([\w.-]{1,253}) does not contain driver ([\w.-]{1,253})"
)
"""What the attach controller and external-attacher say
(kubernetes-csi/external-attacher:pkg/controller/util.go).
"""
_NO_CLIENT: Final = re.compile(
    r"driver name ([\w.-]{1,253}) not found in the list of registered CSI drivers"
)
"""What the kubelet says (kubernetes/kubernetes:pkg/volume/csi/csi_client.go#newCsiDriverClient)."""


@cached
def lacking(cluster: Cluster) -> Mapping[str, frozenset[str]]:
    """Return the drivers that a node lacks although another node has them, by node.

    Nodes without a CSINode are left out, and drivers whose pod there starts or is replaced. A
    driver that its CSINode lists is lacking, too, if the pod that registers it is gone and cannot
    come back, if that pod has not started its containers for some time, as after a reboot, if the
    driver itself crashes, or if the kubelet says so.
    """
    found, gone = cluster.cached(_registered), driver_daemons.without_pod(cluster)
    known = cluster.cached(_drivers)
    lost = {
        node: {name for name, absent in each.items() if absent.lasts} for node, each in gone.items()
    }
    down = (*unstarted(cluster).items(), *crashing(cluster).items())
    waiting = ((node, each) for node, drivers in down for each in drivers)
    for node, driver in (*_reported(cluster), *waiting):
        if driver not in gone.get(node, {}):  # else it lasts, or its pod may come at any moment
            lost.setdefault(node, set()).add(driver)
    absent = {
        node: {each for each in known - own if not registers_soon(each, node, cluster)}
        | lost.get(node, set())
        for node, own in found.items()
    }
    return {node: frozenset(drivers) for node, drivers in absent.items() if drivers}


def registers_soon(driver: str, node: str, cluster: Cluster) -> bool:
    """Return whether the pod that registers a driver on a node has just been made, or ends."""
    pod = _pod(driver, node, cluster)
    return pod is not None and young_pods.starts(pod, cluster)


@cached
def unserving(cluster: Cluster) -> Mapping[str, frozenset[str]]:
    """Return the drivers with which a node gets no further volume, by node: it lacks them, or what
    they ask there does not run."""
    found = dict(lacking(cluster))
    for node, agents in node_agents.by_node(cluster).items():
        found[node] = found.get(node, frozenset()) | agents.keys()
    return found


def missing(node: str, namespace: str, claims: Iterable[str], cluster: Cluster) -> str:
    """Return the driver of a claim that does not serve a node; empty: all do, or that is not
    known."""
    absent = unserving(cluster).get(node, frozenset())
    needed = needed_by(namespace, claims, cluster) if absent else ()
    return next((driver for driver in needed if driver in absent), "")


def needed_by(namespace: str, claims: Iterable[str], cluster: Cluster) -> tuple[str, ...]:
    """Return the drivers of claims, as far as their volumes are known."""
    return tuple(
        dict.fromkeys(filter(None, (of_claim(namespace, claim, cluster) for claim in claims)))
    )


@cached
def reasons(cluster: Cluster) -> Mapping[str, Mapping[str, str]]:
    """Return for each node that a driver is not registered there, by driver,
    and which pod should do that.
    """
    return {
        node: {
            each: (
                f"{LACKS}{each} {state(each, node, cluster)} on {node}"
                f"{because(each, node, cluster)}"
            ).replace("; ", ", ")
            for each in sorted(absent)  # each is one cause
        }
        for node, absent in unserving(cluster).items()
    }


def served(filters: FilterPipeline, cluster: Cluster, back: Collection[str] = ()) -> FilterPipeline:
    """Return the filters over the nodes that have the drivers of a pod's volumes.

    kube-scheduler does not look at that.

    ``back``: nodes whose drivers register again in a moment.
    """
    lacks: dict[str, dict[str, str]] = {}
    for node, absent in reasons(cluster).items():
        for driver, why in absent.items() if node not in back else ():
            lacks.setdefault(driver, {})[node] = why
    if not lacks and not driver_faults.by_scope(cluster):
        return filters
    nodes = filters.state.nodes

    def claim(namespace: str, name: str) -> Claim:
        found = filters.volumes.claim(namespace, name)
        unserved = driver_faults.refusals(namespace, (name,), nodes, cluster)
        unserved |= lacks.get(found.driver, {})
        return replace(found, unserved=unserved) if unserved else found

    return FilterPipeline(
        filters.state,
        replace(filters.volumes, claim=functools.cache(claim)),
        filters.unseen,
        filters.complete,
        filters.most_terms,
        filters.unread_namespaces,
    )


def words(driver: str, node: str, cluster: Cluster) -> str:
    """Return what brings a driver back to a node, without a command."""
    broken = agent(driver, node, cluster)
    pod = broken.pod if broken is not None else _pod(driver, node, cluster)
    if broken is None and (other := _other_root(driver, pod, cluster)) is not None:
        return other.advice
    if broken is None and (lost := forgotten(driver, node, cluster)) is not None:
        return lost.advice
    if pod is not None and (full := address_pools.of_pod(pod, cluster)) is not None:
        return without_command(full.remedy).partition("; ")[0]
    return (
        f"repair {f'pod {pod.name}' if pod is not None else f'the pod of driver {driver}'} on "
        f"{node}"
    )


def remedy(driver: str, node: str, cluster: Cluster) -> str:
    """Return what brings a driver back to a node, or lets it attach volumes again."""
    fault = driver_faults.of_driver(driver, cluster)
    if fault is not None and driver not in unserving(cluster).get(node, ()):
        return fault.remedy
    pod = _pod(driver, node, cluster)
    if (broken := agent(driver, node, cluster)) is not None:
        return broken.remedy
    if (absent := driver_daemons.absent(driver, node, cluster)) is not None:
        return absent.remedy
    if (other := _other_root(driver, pod, cluster)) is not None:
        return other.remedy
    if (lost := forgotten(driver, node, cluster)) is not None:
        return lost.remedy
    described = kubectl("describe", POD, pod.name, pod.namespace) if pod is not None else ""
    return typed(words(driver, node, cluster), described or kubectl("describe", CSI_NODE, node))


def named_by(error: str, on: str = "") -> tuple[str, str] | None:
    """Return node and driver of an error that says that the one lacks the other.

    ``on``: the node of the pod.
    """
    if found := _NOT_REGISTERED.search(error):
        return found[1], found[2]
    found = _NO_CLIENT.search(error)
    return (on, found[1]) if found is not None and on else None


def because(driver: str, node: str, cluster: Cluster) -> str:
    """Return the pod that does not register a driver, in brackets; empty: nothing is wrong with it,
    or it is not known.
    """
    pod = _pod(driver, node, cluster)
    broken = broken_pods.of_pod(pod, cluster) if pod is not None else None
    if broken is not None:
        cause = agent(driver, node, cluster) or broken
        first = f"{broken.words}, and " if cause.pod.name != broken.pod.name else ""
        return f" ({first}{cause.words})"
    if (store := node_agents.of_driver(driver, node, cluster)) is not None:
        return f" ({store.words})"
    if pod is not None:
        found = _other_root(driver, pod, cluster) or forgotten(driver, node, cluster)
        return f" ({found.words})" if found is not None else ""
    if unlisted(cluster, POD):
        return ""
    if (absent := driver_daemons.absent(driver, node, cluster)) is not None:
        return f" ({absent.words})"
    daemon = cluster.cached(_daemons).get(driver)
    return f" (DaemonSet {daemon} has no pod there)" if daemon else ""


def forgotten(driver: str, node: str, cluster: Cluster) -> LostRegistration | None:
    """Return that the pod of a driver which a node lacks runs since before that became Ready again;
    None: it does not, or the pods that it needs are broken."""
    pod = _pod(driver, node, cluster)
    if pod is None or driver not in lacking(cluster).get(node, ()):
        return None
    if agent(driver, node, cluster) is not None:
        return None
    return lost_registrations.of_pod(pod, cluster)


def _other_root(driver: str, pod: Object | None, cluster: Cluster) -> UnlikeRoot | None:
    """Return that the kubelet does not look where a driver's pod registers it; None: it does, the
    pod may not have registered it yet, or that is not known."""
    ready = pod.condition("Ready") if pod is not None else None
    if pod is None or ready is None or ready["status"].text != "True":
        return None
    age = clock.since(ready["lastTransitionTime"].text, cluster)
    if age is None or age < _LASTING:
        return None
    known = cluster.cached(_registered)
    served = (node for node, drivers in known.items() if driver in drivers)
    return root_directories.of_pod(pod, served, cluster)


def agent(driver: str, node: str, cluster: Cluster) -> BrokenPod | None:
    """Return the pod on a node that keeps a driver from serving it: the one that registers it, or
    another one of the same software, if that alone tells why that one is not ready, or the one that
    it asks; None: all are.
    """
    here, own = node_pods.of_node(node, cluster), _pod(driver, node, cluster)
    broken = broken_pods.of_pod(own, cluster) if own is not None else None
    if own is None or broken is None or broken.why:
        return broken or node_agents.of_driver(driver, node, cluster)
    others = (pod for pod in here if pod.namespace == own.namespace and pod.name != own.name)
    found = broken_pods.first(node_pods.of_software(driver, others), cluster)
    return found if found is not None and found.why else broken


def is_broken(driver: str, node: str, cluster: Cluster) -> bool:
    """Return whether the pod of ``agent`` is broken for longer than a start takes."""
    found, own = agent(driver, node, cluster), find(cluster, NODE, "", node)
    age = node_health.pod_unready_for(found.pod, own, cluster) if found is not None else None
    return age is not None and age >= _LASTING


@cached
def unstarted(cluster: Cluster) -> Mapping[str, tuple[str, ...]]:
    """Return by node the drivers whose pod there runs none of its containers for some time: it
    waits for its init containers. The kubelet forgets a driver with a reboot, its CSINode does not.
    """
    found = {
        node: tuple(each for each in sorted(drivers) if _waits(each, node, cluster))
        for node, drivers in cluster.cached(_suspects).items()
    }
    return {node: drivers for node, drivers in found.items() if drivers}


@cached
def crashing(cluster: Cluster) -> Mapping[str, tuple[str, ...]]:
    """Return by node the drivers that crash there again and again: they stay registered, and mount
    and unmount nothing.
    """
    found = {
        node: tuple(each for each in sorted(drivers) if _crashes(each, node, cluster))
        for node, drivers in cluster.cached(_suspects).items()
    }
    return {node: drivers for node, drivers in found.items() if drivers}


def _crashes(driver: str, node: str, cluster: Cluster) -> bool:
    """Return whether the driver in its pod, not a helper beside it, waits for its next start.

    During an update another pod may serve the driver.
    """
    here = tuple(_own(driver, node, cluster))
    return bool(here) and all(
        _is_down(pod) and not pod.deleted and broken_pods.lasts(pod, cluster) for pod in here
    )


def _is_down(pod: Object) -> bool:
    states = pod.at("status", "containerStatuses").items()
    return any(
        each.at("state", "waiting", "reason").text == _CRASHED
        and not node_pods.is_helper(each["name"].text or "")
        for each in states
    )


_CRASHED: Final = "CrashLoopBackOff"


def state(driver: str, node: str, cluster: Cluster) -> str:
    """Return what is said of a driver that a node lacks: ``is not registered``."""
    crashes = driver in crashing(cluster).get(node, ())
    down = crashes or driver not in lacking(cluster).get(node, ())
    return "does not work" if down else "is not registered"


def _waits(driver: str, node: str, cluster: Cluster) -> bool:
    own, pod = find(cluster, NODE, "", node), _pod(driver, node, cluster)
    if own is None or not own.is_true("Ready") or pod is None or pod.deleted:
        return False
    if any(map(_runs, _own(driver, node, cluster))):
        return False
    known = any(True for _ in pod.at("status", "containerStatuses").items())
    if not known or pod.at("status", "phase").text != "Pending":
        return False
    age = node_health.pod_unready_for(pod, own, cluster)
    return pod.condition("Ready")["status"].text == "False" and age is not None and age >= _LASTING


def _pod(driver: str, node: str, cluster: Cluster) -> Object | None:
    """Return the pod that registers a driver on a node, one that runs before others; None: none is
    known."""
    own = tuple(_own(driver, node, cluster))
    known = node_pods.of_driver(driver, filter(_runs, own)) or node_pods.of_driver(driver, own)
    if known is not None or driver_daemons.absent(driver, node, cluster) is not None:
        return known
    return node_pods.of_driver(driver, node_pods.of_node(node, cluster))  # it serves several


def _own(driver: str, node: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the pods on a node that may register a driver, none that is rather of another one."""
    here, drivers = node_pods.of_node(node, cluster), cluster.cached(_drivers)
    return node_pods.may_register(driver, here, drivers)


def _suspects(cluster: Cluster) -> Mapping[str, frozenset[str]]:
    """Return the drivers of the nodes on which a pod of any DaemonSet is not ready."""
    registered = cluster.cached(_registered)
    return {
        node: drivers
        for node, drivers in registered.items()
        if any(
            pod.condition("Ready")["status"].text == "False"
            for pod in node_pods.of_node(node, cluster)
        )
    }


def _drivers(cluster: Cluster) -> frozenset[str]:
    """Return the drivers that any node has."""
    return frozenset[str]().union(*cluster.cached(_registered).values())


def _runs(pod: Object) -> bool:
    """Return whether a container of a pod runs, beside those that only prepare it."""
    boxes = pod.at("status", "containerStatuses").items()
    return any(each.at("state", "running").present for each in boxes)


def _daemons(cluster: Cluster) -> dict[str, str]:
    """Return the DaemonSet that registers each driver which a node lacks, by a pod of it on a node
    that has the driver.
    """
    registered, found = cluster.cached(_registered), {}
    for driver in frozenset[str]().union(*lacking(cluster).values()):
        others = (name for name, drivers in registered.items() if driver in drivers)
        pods = (node_pods.of_driver(driver, node_pods.of_node(each, cluster)) for each in others)
        twin = next(filter(None, pods), None)
        found[driver] = node_pods.daemon(twin) if twin is not None else ""
    return found


def _registered(cluster: Cluster) -> dict[str, frozenset[str]]:
    return {
        node.name: frozenset(
            name for each in node.at("spec", "drivers").items() if (name := each["name"].text)
        )
        for node in cluster.known(CSI_NODE)
    }


def _reported(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield node and driver for which a kubelet says for some time that it has no such driver.

    The pod that registers the driver may be there all the same, with a container that does not run.
    """
    now = clock.now(cluster)
    for event in cluster.known(events.EVENT) if now is not None else ():
        named = _NO_CLIENT.search(event["message"].text or "")
        first, last = clock.instant(event["firstTimestamp"].text), events.time_of(event)
        if named is None or now is None or first is None or last is None:
            continue
        about = event["involvedObject"]
        pod = find(cluster, POD, about["namespace"].text or "", about["name"].text)
        lasts = now - first >= _LASTING and now - last <= _LASTING
        if lasts and about["kind"].text == POD.kind and pod is not None and not pod.deleted:
            on = pod.at("spec", "nodeName").text or ""
            waits = pod.at("status", "phase").text == "Pending"
            if waits and not _is_back(named[1], on, last, cluster):
                yield on, named[1]


def _is_back(driver: str, node: str, last: datetime, cluster: Cluster) -> bool:
    """Return whether the pod of a driver is ready since its absence was reported last, as after an
    update of the driver."""
    pod = _pod(driver, node, cluster)
    ready = pod.condition("Ready") if pod is not None else None
    since = clock.instant(ready["lastTransitionTime"].text) if ready is not None else None
    return ready is not None and ready["status"].text == "True" and bool(since and since > last)


_LASTING: Final = timedelta(minutes=5)
"""Drivers are registered within minutes of a boot; a kubelet repeats the event within two."""


def of_claim(namespace: str, claim: str, cluster: Cluster) -> str:
    """Return the driver of a claim's volume; empty: it has none, or that could not be read."""
    return csi_of(find(cluster, PVC, namespace, claim), cluster)["driver"].text or ""
