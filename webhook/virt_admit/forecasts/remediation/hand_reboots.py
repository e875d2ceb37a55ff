"""Nodes that an administrator reboots by hand: cordoned and without VMs before they fell silent,
for no longer than a reboot; and nodes that talosctl drains for their upgrade.

Nothing else marks such a reboot; a health check that is paused meanwhile, and a kubelet older than
those of the other nodes, tell more about it. ``talosctl upgrade`` cordons and drains its node and
takes the cordon back after the reboot; no object tells of that but the releases of the nodes.
Sources: medik8s/node-healthcheck-operator:docs/configuration.md (pauseRequests);
openshift/openshift-docs#86799;
https://kubernetes.io/docs/tasks/administer-cluster/kubeadm/kubeadm-upgrade;
siderolabs/talos:internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_sequencer.go#Upgrade.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.remediation import failed_remediations
from virt_admit.model.kubernetes import clock, node_health, nodes
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import NHC, NODE, VMI
from virt_admit.model.kubernetes.nodes import CONTROL_PLANE, TALOS, is_control_plane
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.messages import names
from virt_admit.model.node_updates import node_phases
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase
from virt_admit.model.remediation import bare_metal, fence_taints

READS: Final[Reads] = union(
    bare_metal.POWER_READS,
    failed_remediations.READS,
    node_health.READS,
    vmis.READS,
    {
        NHC: ("spec.pauseRequests",),
        NODE: (
            "metadata.labels",
            "spec.taints",
            "spec.unschedulable",
            "status.nodeInfo.kubeletVersion",
            "status.nodeInfo.osImage",
        ),
    },
)

LONGEST: Final = timedelta(minutes=20)
"""Twice the time that is assumed for the update and reboot of a node:
after it the node counts as lost.
"""


class HandReboot(NamedTuple):
    """The reboot of a node by hand."""

    node: str
    since: datetime
    """When the node fell silent."""
    hints: tuple[str, ...]
    """What else tells of it: who pauses a health check, older and newer kubelets."""
    updated: tuple[str, ...]
    """The nodes that are done: they have the newest kubelet of this node's role, or a newer one."""

    def words(self, cluster: Cluster) -> str:
        """Return that it reboots, and since when."""
        more = f"; {', '.join(self.hints)}" if self.hints else ""
        now = clock.now(cluster)
        lasts = f", silent for {clock.duration(now - self.since)}" if now is not None else ""
        return f"its reboot (it was cordoned and without VMs before{lasts}{more})"

    @property
    def advice(self) -> str:
        """What to do if it lasts."""
        return f"see its console if it is not back by {self.since + LONGEST:%H:%M} UTC"


def of_node(name: str, cluster: Cluster) -> HandReboot | None:
    """Return the reboot by hand of a node that does not report; None: there is none,
    or that is not known.
    """
    return cluster.cached(_all).get(name)


def unread(node: Object, cluster: Cluster) -> str:
    """Return what could not be read, so that a node may be rebooted by hand; empty: it is not,
    or all was read.
    """
    since, now = node_phases.unready_since(node), clock.now(cluster)
    late = since is not None and now is not None and now - since > LONGEST
    if late or not node.at("spec", "unschedulable").boolean:
        return ""
    return unlisted(cluster, NODE) or unlisted(cluster, VMI)


def phases(cluster: Cluster) -> dict[str, NodeUpdate]:
    """Return how far the nodes are that are updated by hand: those that reboot, and those with the
    newest kubelet already.
    """
    found = dict.fromkeys(_done(cluster), NodeUpdate("", "", Phase.DONE))
    return (
        _of_talos(cluster)
        | found
        | {
            name: NodeUpdate(NODE.kind, name, Phase.REBOOTING, each.since, exact=True)
            for name, each in cluster.cached(_all).items()
        }
    )


def counted(cluster: Cluster) -> Iterator[str]:
    """Yield which nodes count as updated, and why."""
    if done := _done(cluster):
        verb = "counts" if len(done) == 1 else "count"
        yield f"{names(done, 80)} {verb} as updated, with kubelet {_kubelets(done, cluster)}"
    talos = _of_talos(cluster)
    if done := sorted(name for name, each in talos.items() if each.phase is Phase.DONE):
        verb = "counts" if len(done) == 1 else "count"
        yield f"{names(done, 80)} {verb} as updated, with Talos v{max(_releases(cluster).values())}"


def _done(cluster: Cluster) -> list[str]:
    every = cluster.cached(_all)
    updated = {name for each in every.values() for name in each.updated}
    return sorted((updated | _newest_servers(cluster)) - set(every))


def _newest_servers(cluster: Cluster) -> set[str]:
    """Return the servers with the newest kubelet, while other servers have an older one.

    All get one release, one after the other: they differ while an upgrade is under way.
    """
    servers = {node.name for node in cluster.known(NODE) if nodes.is_server(node)}
    found = {name: version for name, version in _versions(cluster).items() if name in servers}
    newest = max(_versions(cluster).values(), default=None)
    if newest is None or found.keys() != servers or unlisted(cluster, NODE):
        return set()
    done = {name for name, version in found.items() if version == newest}
    return done if done != servers else set()


def newer(to_do: Collection[str], cluster: Cluster) -> Iterator[str]:
    """Yield that nodes which are to be updated have a newer kubelet than others:
    they may be done already.
    """
    known = {name: version for name, version in _versions(cluster).items() if name in to_do}
    found = known.values()
    if not found or min(found) == max(found):
        return
    older = sorted(name for name, version in known.items() if version == min(found))
    others = sorted(name for name, version in known.items() if version == max(found))
    yield (
        f"{names(others, 80)} {'are' if len(others) > 1 else 'is'} updated too, although "
        f"{names(older, 80)} {'have' if len(older) > 1 else 'has'} an older kubelet "
        f"(v{min(found)}, not v{max(found)})"
    )


def _all(cluster: Cluster) -> dict[str, HandReboot]:
    found = (
        _reboot(node, cluster)
        for node in cluster.known(NODE)
        if node.at("spec", "unschedulable").boolean
    )
    return {each.node: each for each in found if each is not None}


def _reboot(node: Object, cluster: Cluster) -> HandReboot | None:
    since, now = node_phases.unready_since(node), clock.now(cluster)
    if (
        since is None
        or now is None
        or now - since > LONGEST
        or not node_health.silence_now(node.name, cluster)
    ):
        return None
    cordoned = node_phases.cordoned_since(node)
    if cordoned is not None and cordoned > since:
        return None  # it is cordoned because it was lost
    fenced = (
        fence_taints.ends_pods(node) or failed_remediations.of_any(node.name, cluster) is not None
    )
    if fenced or unlisted(cluster, VMI) or node.name in vmis.occupied(cluster):
        return None
    updated = _updated(node, cluster)
    return HandReboot(node.name, since, tuple(_hints(node, updated, cluster)), updated)


def _updated(node: Object, cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes that have the newest kubelet of the node's role, or a newer one.

    A release in between is updated too. No kubelet may be newer than the API server, so control
    planes are done before a worker is: https://kubernetes.io/releases/version-skew-policy.
    """
    known = _versions(cluster)
    master = is_control_plane(node)
    role = {each.name for each in cluster.known(NODE) if is_control_plane(each) is master}
    peers = [version for name, version in known.items() if name in role]
    own = known.get(node.name)
    if own is None or own != min(peers) or own == max(peers):
        return ()
    return tuple(sorted(name for name, version in known.items() if version >= max(peers)))


def _hints(node: Object, updated: tuple[str, ...], cluster: Cluster) -> Iterator[str]:
    if updated:
        own = node.at("status", "nodeInfo", "kubeletVersion").text
        newer = _kubelets(updated, cluster)
        yield f"its kubelet had {own}, that of {names(updated, 60)} has {newer}"
    if (host := bare_metal.serviced(node.name, cluster)) is not None:
        yield f"BareMetalHost {host.name} is in {bare_metal.SERVICED}"
    for check in cluster.known(NHC):
        if reasons := [item.text or "?" for item in check.at("spec", "pauseRequests").items()]:
            yield f"NodeHealthCheck {check.name} is paused for {names(reasons, 60)}"


# --- talosctl upgrade -----------------------------------------------------------------------------


def _of_talos(cluster: Cluster) -> dict[str, NodeUpdate]:
    """Return how far the upgrade of Talos is, one node after the other: a node with an older
    release than others that was cordoned a short time ago has its turn.
    """
    found = _releases(cluster)
    if len(set(found.values())) < 2 or unlisted(cluster, NODE):
        return {}
    now = clock.now(cluster)  # what reads the time is judged again all the time
    if now is None:
        return {}
    newest = max(found.values())
    turn = {
        node.name: NodeUpdate(NODE.kind, node.name, Phase.DRAINING, since)
        for node in cluster.known(NODE)
        if found.get(node.name, newest) < newest and node.is_true("Ready")
        if (since := node_phases.cordoned_since(node)) is not None and now - since < _TURN
        if all(taint["key"].text in _OWN for taint in node.at("spec", "taints").items())
    }
    done = [name for name, release in found.items() if release == newest]
    reboots = any(found.get(name, newest) < newest for name in cluster.cached(_all))
    return dict.fromkeys(done, NodeUpdate("", "", Phase.DONE)) | turn if turn or reboots else {}


_OWN: Final = ("node.kubernetes.io/unschedulable", *CONTROL_PLANE)
"""What drains nodes for another reason leaves a taint of its own, too."""
_TURN: Final = timedelta(hours=1)
"""A node that is cordoned for longer may be so for another reason."""
_TALOS: Final = re.compile(rf"{re.escape(TALOS)}(v[^)]+)\)")


def _releases(cluster: Cluster) -> dict[str, Version]:
    """Return the release of Talos of each node that runs it."""
    systems = {
        node.name: _TALOS.fullmatch(node.at("status", "nodeInfo", "osImage").text or "")
        for node in cluster.known(NODE)
    }
    found = {name: versions.parse_version(each[1]) for name, each in systems.items() if each}
    return {name: release for name, release in found.items() if release is not None}


# --- kubelets -------------------------------------------------------------------------------------


def _versions(cluster: Cluster) -> dict[str, Version]:
    found = {
        node.name: versions.parse_version(node.at("status", "nodeInfo", "kubeletVersion").text)
        for node in cluster.known(NODE)
    }
    return {name: version for name, version in found.items() if version is not None}


def _kubelets(which: Collection[str], cluster: Cluster) -> str:
    found = {version for name, version in _versions(cluster).items() if name in which}
    return f"v{min(found)}{' or newer' if len(found) > 1 else ''}"
