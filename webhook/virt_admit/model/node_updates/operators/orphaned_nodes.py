"""Nodes that are left over: they do not report, and the Machine that they name does not exist.

A Machine goes after its Node. Cluster API gives the Node up where its deletion fails once
``nodeDeletionTimeout`` is over, which counts from the deletion of the Machine, so that a drain
uses it up. The Node counts on: its DaemonSet pods are never ready. A Node whose Machine alone was
removed, as to keep the host, may run: not its silence, but what else is seen tells them apart.
Sources:
kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller.go#reconcileDelete, issue
kubernetes-sigs/cluster-api#14024;
metal3-io/cluster-api-provider-metal3:baremetal/metal3machine_manager.go (the provider id).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model import certificate_requests, machine_nodes
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock, events, node_health
from virt_admit.model.kubernetes.cluster import Cluster, cached, gather, unlisted
from virt_admit.model.kubernetes.kinds import (
    BARE_METAL_HOST,
    CAPI_CLUSTER,
    CAPI_MACHINE,
    CAPI_MACHINE_SET,
    MACHINE,
    NODE,
    Kind,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.lookups import find, is_absent
from virt_admit.model.messages import count, cut_middle

_DEPLOYMENT: Final = "cluster.x-k8s.io/deployment-name"
_SET: Final = "cluster.x-k8s.io/owner-name"
_CLUSTER: Final = "cluster.x-k8s.io/cluster-name"
_DELETION: Final = ("spec", "template", "spec", "deletion", "nodeDeletionTimeoutSeconds")
_OLDER: Final = ("spec", "template", "spec", "nodeDeletionTimeout")
_HEARTBEAT: Final = "kubevirt.io/heartbeat"
READS: Final[Reads] = union(
    machine_nodes.READS,
    node_health.READS,
    certificate_requests.READS,
    vmis.READS,
    {
        NODE: (
            f"metadata.annotations.{_HEARTBEAT}",
            "spec.providerID",
            "status.conditions.lastTransitionTime",
            *(f"metadata.annotations.{key}" for key in (_SET, _CLUSTER)),
        ),
        CAPI_CLUSTER: ("spec.paused",),
        CAPI_MACHINE_SET: (
            f"metadata.labels.{_DEPLOYMENT}",
            *(
                "spec.clusterName",
                "spec.replicas",
                "status.replicas",
                ".".join(_DELETION),
                ".".join(_OLDER),
            ),
        ),
        BARE_METAL_HOST: ("spec.consumerRef", "status.poweredOn", "status.provisioning.state"),
    },
)
_SETTLED: Final = timedelta(minutes=10)
"""The Machine and its Node go within seconds of each other."""
_PROVIDERS: Final = ("metal3://", "baremetalhost:///")
"""How the provider id of a node on bare metal begins, before namespace and name of its host."""
_INSTALLED: Final = ("provisioning", "provisioned")
"""States of a host that gets, or has, the system of the Machine that uses it."""
_FAILED: Final = "FailedDeleteNode"


class OrphanedNode(NamedTuple):
    """A Node that is left over."""

    name: str
    machine: str
    """The Machine that is gone, as ``namespace/name``."""
    proof: str
    """What else shows it, as clauses; empty: nothing does."""
    is_off: bool
    """Whether its host has no power, or was installed for another Machine."""
    failed: str
    """Why the deletion of the Node failed, by an event; empty: not known."""
    limit: str
    """The time-out to change, and where, as a step of the remedy; empty: not known."""

    @property
    def why(self) -> str:
        """That it is left over, as a clause."""
        shown = f" ({self.proof})" if self.proof else ""
        return f"its Machine {self.machine} does not exist any more{shown}: the Node is left over"

    @property
    def brief(self) -> str:
        """What ends it, as a sentence without the command."""
        return f"{self.advice[0].upper()}{self.advice[1:]}."

    @property
    def advice(self) -> str:
        """What ends it, in words."""
        host = self.machine.rpartition("/")[2]
        off = "" if self.is_off else f"make sure that the host of {host} is off, then "
        return f"{off}delete the Node"

    @property
    def remedy(self) -> str:
        """What ends it, with the command, and what keeps it from coming again."""
        off = " and its host does not run it any more" if self.is_off else ""
        words = f"{self.advice}, as its Machine is gone{off}"
        return typed(words, kubectl("delete", NODE, self.name), self.limit)


def of_node(name: str, cluster: Cluster) -> OrphanedNode | None:
    """Return that a Node is left over; None: it reports, its Machine exists, may do so in a cluster
    of its own, or is not known.
    """
    return _every(cluster).get(name)


@cached
def _every(cluster: Cluster) -> Mapping[str, OrphanedNode]:
    found = (_of(node, cluster) for node in cluster.known(NODE) if not node.deleted)
    return {each.name: each for each in found if each is not None}


def _of(node: Object, cluster: Cluster) -> OrphanedNode | None:
    kind, space, name = _machine(node) if _is_marked(node) else _unmarked(node, cluster)
    if not name or not node_health.silence_now(node.name, cluster):
        return None
    lasts = clock.since(node.condition("Ready")["lastTransitionTime"].text, cluster)
    if lasts is None or lasts < _SETTLED or unlisted(cluster, kind):
        return None
    if not is_absent(cluster, kind, space, name) or _is_named(node, kind, cluster):
        return None
    given = node.annotations.get(_SET) or ("" if _is_marked(node) else name[:-_SUFFIX])
    made = find(cluster, CAPI_MACHINE_SET, space, given)
    own = node.annotations.get(_CLUSTER, "")
    if not _is_marked(node) and made is not None:
        own = made.at("spec", "clusterName").text or ""
    above = find(cluster, CAPI_CLUSTER, space, own) if kind is CAPI_MACHINE else None
    unread = kind is CAPI_MACHINE and above is None and unlisted(cluster, CAPI_CLUSTER)
    if unread or (above is not None and above.at("spec", "paused").boolean):
        return None  # its Machines are perhaps moved to another cluster
    if (kind, space, own) not in cluster.cached(_present):
        return None
    said, is_off = _host(node, name, cluster)
    if not is_off and _may_run(node, cluster):
        return None
    proof = "; ".join(filter(None, (_replicas(made), said)))
    failed = _failure(space, name, cluster)
    return OrphanedNode(node.name, f"{space}/{name}", proof, is_off, failed, _limit(made))


def _may_run(node: Object, cluster: Cluster) -> bool:
    """Return whether a node may run although it does not report: a drain did not empty it, its
    kubelet asks for a certificate, or its virt-handler reported after its kubelet.
    """
    found, unseen = gather(vmis.on_node(cluster, node.name))
    if found or unseen or certificate_requests.of_node(node.name, cluster) is not None:
        return True
    beat = clock.instant(node.annotations.get(_HEARTBEAT))
    lost = clock.instant(node.condition("Ready")["lastTransitionTime"].text)
    return beat is not None and lost is not None and beat > lost


def _machine(node: Object) -> tuple[Kind, str, str]:
    """Return the kind, namespace and name of the Machine that a Node names; empty: none."""
    if name := node.annotations.get(machine_nodes.CAPI_OWNER):
        return CAPI_MACHINE, node.annotations.get(machine_nodes.CAPI_SPACE, ""), name
    space, _, name = node.annotations.get(machine_nodes.OWNER, "").partition("/")
    return MACHINE, space, name


def _is_marked(node: Object) -> bool:
    return machine_nodes.CAPI_OWNER in node.annotations or machine_nodes.OWNER in node.annotations


def _unmarked(node: Object, cluster: Cluster) -> tuple[Kind, str, str]:
    """Return the same of a Node that joined when its Machine was deleted already, so that Cluster
    API never marked it; empty: that is not so.

    It has the name that a MachineSet gives a Machine, and the other nodes of that set have the
    names of theirs (:core/reconcilers/machineset/machineset_controller.go#computeDesiredMachine).
    """
    made = cluster.cached(_naming_sets).get(node.name[:-_SUFFIX])
    if made is None or _ENDING.fullmatch(node.name[-_SUFFIX:]) is None:
        return CAPI_MACHINE, "", ""
    return CAPI_MACHINE, made.namespace, node.name


def _naming_sets(cluster: Cluster) -> Mapping[str, Object]:
    """Return the MachineSets whose nodes have the names of their Machines, by name."""
    same = {
        (each.namespace, each.name[:-_SUFFIX])
        for kind, each, name in cluster.cached(_placed)
        if kind is CAPI_MACHINE and name == each.name
    }
    every = cluster.known(CAPI_MACHINE_SET)
    return {each.name: each for each in every if (each.namespace, each.name) in same}


_SUFFIX: Final = 6
"""Characters that a MachineSet adds to its name, with the hyphen."""
_ENDING: Final = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}")
"""What it adds has no vowels, other than the end of ``worker-spare``
(kubernetes/apimachinery:pkg/util/rand/rand.go#String)."""


def _is_named(node: Object, kind: Kind, cluster: Cluster) -> bool:
    """Return whether another Machine has a Node, by its name or by the id of its provider."""
    own = node.at("spec", "providerID").text
    taken = cluster.cached(_taken)
    return (kind, node.name) in taken or (bool(own) and (kind, own) in taken)


def _taken(cluster: Cluster) -> frozenset[tuple[Kind, str | None]]:
    """Return the names of Nodes and the ids of providers that Machines have."""
    return frozenset(
        (kind, each.at(*where).text)
        for kind in (CAPI_MACHINE, MACHINE)
        for each in cluster.known(kind)
        for where in (("status", "nodeRef", "name"), ("spec", "providerID"))
    )


def _present(cluster: Cluster) -> frozenset[tuple[Kind, str, str]]:
    """Return the namespaces and Clusters whose Machines have Nodes in this cluster: in a cluster
    without its own Machines those of its Nodes are elsewhere. Empty: in any Cluster.
    """
    return frozenset(
        (kind, each.namespace, owner)
        for kind, each, name in cluster.cached(_placed)
        if find(cluster, NODE, "", name) is not None
        for owner in ("", each.at("spec", "clusterName").text or "")
    )


def _placed(cluster: Cluster) -> Sequence[tuple[Kind, Object, str]]:
    """Return the known Machines with the names of their Nodes."""
    return [
        (kind, each, machine_nodes.node_name(each, cluster))
        for kind in (CAPI_MACHINE, MACHINE)
        for each in cluster.known(kind)
    ]


def _replicas(made: Object | None) -> str:
    """Return how many Machines the set of a Node has, as ``MachineSet s has 1 of 1 Machines``."""
    wanted = made.at("spec", "replicas").integer if made is not None else None
    has = made.at("status", "replicas").integer if made is not None else None
    complete = made is not None and wanted is not None and has is not None and has >= wanted
    if not complete or made is None:
        return ""
    if not wanted:
        return f"MachineSet {made.name} wants none"
    return f"MachineSet {made.name} has {has} of {count(wanted, 'Machine')}"


def _host(node: Object, machine: str, cluster: Cluster) -> tuple[str, bool]:
    """Return what the host of a node on bare metal shows, and whether the node surely does not run
    there any more.
    """
    where = node.at("spec", "providerID").text or ""
    prefix = next((each for each in _PROVIDERS if where.startswith(each)), None)
    if prefix is None or where.count("/") < 3:
        return "", False
    space, name, *rest = where.removeprefix(prefix).split("/")
    host = find(cluster, BARE_METAL_HOST, space, name)
    if host is None:
        return "", False
    title, user = f"BareMetalHost {host.name}", host.at("spec", "consumerRef", "name").text
    state = host.at("status", "provisioning", "state").text or "?"
    if user is not None:
        is_other = state in _INSTALLED and user not in (machine, *rest)
        return f"{title} is {state} for {user}", is_other
    is_off = host.at("status", "poweredOn").boolean is False
    return f"{title} is {state}{' and off' if is_off else ''}", is_off


def _failure(space: str, name: str, cluster: Cluster) -> str:
    """Return why the deletion of the Node of a Machine failed, by the last event about it."""
    said = (
        events.message(each)
        for each in events.known(CAPI_MACHINE.kind, _FAILED, cluster)
        if each.at("involvedObject", "name").text == name and each.namespace == space
    )
    return cut_middle(_FRAMES.sub("", next(said, "")), 80)


_FRAMES: Final = re.compile(r"^error deleting Machine's Node: (?:failed deleting Node \S+: )?")


def _limit(made: Object | None) -> str:
    """Return how Cluster API is kept from giving up the next time, by the template of a Machine."""
    seconds = made.at(*_DELETION).value if made is not None else None
    older = made.at(*_OLDER).text if made is not None else None
    if made is None or not (seconds or older) or (older or "").startswith("0"):
        return ""
    field, value, none = (_DELETION[-1], seconds, "0") if seconds else (_OLDER[-1], older, '"0s"')
    deployment = made.labels.get(_DEPLOYMENT)
    where = f"MachineDeployment {deployment}" if deployment else f"MachineSet {made.name}"
    return (
        f"so that Cluster API does not give Nodes up, set {field} {none} in {where} (it is {value})"
    )
