"""Nodes that the cluster-autoscaler does not add for a pod, in its own words.

It says so of each pod every few minutes, by an event of type Normal. Of a node group without
nodes it knows CPU, memory and the usual GPUs of the machine; virt-handler adds its devices and
labels later, so the pod of a VM never fits there. AWS and Azure have tags for them. The annotations
of Cluster API name one device at most (gpu-type), fewer than a VM asks for. A node of the group
tells all of it. Groups that are at their maximum are not examined. Its status ConfigMap, a text
before 1.30 and YAML since, names the groups in the same words. Sources:
kubernetes/autoscaler:cluster-autoscaler/processors/status/eventing_scale_up_processor.go,
:clusterstate/api/types.go, :cloudprovider/clusterapi/clusterapi_unstructured.go#InstanceCapacity,
:cloudprovider/aws/README.md, :cloudprovider/azure/README.md; issue kubevirt/kubevirt#12210.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, shell
from virt_admit.model.kubernetes import clock, events, kinds
from virt_admit.model.kubernetes.cluster import Cluster, cached, entry, unlisted
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    MACHINE,
    MACHINE_AUTOSCALER,
    MACHINE_SET,
    NODE,
    POD,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import fields, find_named, grouped
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.remediation import bare_metal, machine_starts

READS: Final[Reads] = union(
    bare_metal.HOST_READS,
    machine_starts.READS,
    {
        NODE: ("metadata.creationTimestamp",),
        POD: ("metadata.creationTimestamp",),
        MACHINE_AUTOSCALER: ("spec.maxReplicas", "spec.scaleTargetRef.name"),
        MACHINE_SET: ("spec.replicas",),
    },
)
_NOT: Final = "NotTriggerScaleUp"
_PATIENCE: Final = timedelta(minutes=5)
"""The age of a pod before which the autoscaler may still find a node group, or count nodes."""
_RECENT: Final = timedelta(minutes=20)
"""It repeats the event all the time, but some are dropped."""
_LONGEST: Final = 160
_TAG: Final = "k8s.io/cluster-autoscaler/node-template/"
_STATUS: Final = "cluster-autoscaler-status"
_CONFIG_MAP: Final = kinds.guess("v1", "ConfigMap")
"""A snapshot may hold it. It is not read from a live cluster,
where it would need a right to read ConfigMaps.
"""


@dataclass(frozen=True, slots=True)
class _NodeGroup:
    """A node group with its size, and why its last scale-up failed."""

    name: str
    size: int
    most: int
    failure: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.size} of {self.most}"


def _of_a_node(groups: Sequence[_NodeGroup]) -> str:
    empty = names(each.name for each in groups if each.size == 0 < each.most)
    keep = "if a node group for VMs has no node, keep one in it by a minimum size of 1"
    if empty:
        keep = f"set the minimum size of {empty} to 1, if for VMs"
    return (
        f"{keep}, because the cluster-autoscaler does not know the devices and labels that "
        "KubeVirt adds to a node before there is one (on AWS, tags of the group tell it: "
        f"{_TAG}resources/ and {_TAG}label/ with their names)"
    )


def _raise(groups: Sequence[_NodeGroup]) -> str:
    full = names(each.name for each in groups if each.size >= each.most)
    return f"raise the maximum of {full or _SOME_GROUP}{', if for VMs' if full else ''}"


_SOME_GROUP: Final = "a node group for VMs that is reached"


def _full_sets(cluster: Cluster) -> str:
    """Return the MachineAutoscalers of OpenShift whose MachineSet has the most Machines that it may
    have, as ``maxReplicas 4 of MachineAutoscaler w``; empty: none is known."""
    found = []
    for each in sorted(cluster.known(MACHINE_AUTOSCALER), key=lambda one: one.full_name):
        most, target = each.at("spec", "maxReplicas").integer, each.at("spec", "scaleTargetRef")
        owner = fields(cluster, MACHINE_SET, each.namespace, target["name"].text)
        size = owner.at("spec", "replicas").integer
        if most is not None and size is not None and size >= most:
            found.append(f"maxReplicas {most} of MachineAutoscaler {each.name}")
    return names(found)


def _of_cluster(_groups: Sequence[_NodeGroup]) -> str:
    return "raise the maximum of the cluster that is reached"


def _see(groups: Sequence[_NodeGroup]) -> str:
    failed = names((f"{each.name}: {each.failure}" for each in groups if each.failure), _LONGEST)
    if failed:
        return f"repair what failed the last scale-up ({failed})"
    return "see in the log of the cluster-autoscaler why its last scale-up failed"


_WAYS: Final = (
    (re.compile(r"\bInsufficient [\w.-]{1,253}/"), _of_a_node),
    (re.compile(r"\bmax node group size\b"), _raise),
    (re.compile(r"\bmax (?:total nodes|cluster \w{1,40})\b"), _of_cluster),
    (re.compile(r"\bin backoff after failed scale-up"), _see),
    (re.compile(r"\bdidn't match Pod's node affinity"), _of_a_node),
)
"""What lets the autoscaler add a node, by its words. The labels come last: groups that are not for
VMs lack them, too.
"""


def refused(pod: Object | None, cluster: Cluster) -> Problem | None:
    """Return that the cluster-autoscaler adds no node for a pod, and what lets it, with a command
    that shows its node groups; None: it does, or nothing says so.
    """
    age = clock.age(pod, cluster) if pod is not None else None
    if pod is None or age is None or age < _PATIENCE:
        return None
    newest = entry(cluster, _newest, (pod.namespace, pod.name))
    since = clock.elapsed(events.time_of(newest), cluster) if newest is not None else None
    if newest is None or newest["reason"].text != _NOT or since is None or since > _RECENT:
        return None
    words = cut_middle(events.message(newest).partition(": ")[2], _LONGEST)
    times = f"{_NOT}, {newest['count'].integer or 1}x"
    reason = f"the cluster-autoscaler adds no node for it ({times})"
    groups = cluster.cached(_groups)
    said_of = f" (node groups: {names(map(str, groups), _LONGEST)})" if groups else ""
    remedy = ", or ".join(dict.fromkeys(way(groups) for has, way in _WAYS if has.search(words)))
    if _SOME_GROUP in remedy and (full := _full_sets(cluster)):
        remedy = remedy.replace(f"the maximum of {_SOME_GROUP}", f"{full}, if for VMs")
    reason = f"{reason}: {words}" if words else reason
    return Problem(f"{reason}{said_of}", remedy, command="" if groups else SHOWN)


class ScaleUps(NamedTuple):
    """What the cluster-autoscaler has done for a pod that still waits."""

    words: str
    """``the cluster-autoscaler has scaled up 7 times in 55 min for it (MachineSet … 3->4 (max: 8)),
    and no node has come``."""
    remedy: str
    """Empty: what keeps the nodes from coming is not known."""


def tried(pod: Object | None, cluster: Cluster) -> ScaleUps | None:
    """Return that the cluster-autoscaler has added nodes for a pod again and again, and none came;
    None: it has not, or may be about to succeed.

    A scale-up that succeeds is one: the autoscaler counts the node that comes for the pod. A node
    that came may have been taken by other pods.
    """
    found = entry(cluster, _triggers, (pod.namespace, pod.name)) if pod is not None else None
    times = sum(map(events.times_of, found or ()))
    begin = min(filter(None, map(events.begin_of, found or ())), default=None)
    lasts = clock.elapsed(begin, cluster)
    if not found or times < _OFTEN or lasts is None or lasts < _RECENT:
        return None
    last = clock.elapsed(events.time_of(found[-1]), cluster)
    if last is None or last > _RECENT or _may_have_come(lasts, cluster):
        return None
    groups = _SCALED.search(events.message(found[-1]))
    which = f" ({cut_middle(groups[1], _LONGEST)})" if groups else ""
    words = (
        f"the cluster-autoscaler has scaled up {times} times in {clock.duration(lasts)} for it"
        f"{which}, and no node has come"
    )
    of = _MACHINE_SET.match(groups[1]) if groups else None
    taken = bare_metal.all_taken(of[1], cluster) if of else ""
    if not taken:
        return ScaleUps(words, "")
    remedy = "register another BareMetalHost, and let it become available before the next scale-up"
    return ScaleUps(f"{words}: {taken}", remedy)


def _may_have_come(lasts: timedelta, cluster: Cluster) -> bool:
    """Return whether a node joined in this time, or may have."""
    ages = (clock.age(node, cluster) for node in cluster.known(NODE))
    return bool(unlisted(cluster, NODE)) or any(age is not None and age <= lasts for age in ages)


_OFTEN: Final = 3
_MACHINE_SET: Final = re.compile(r"MachineSet/([a-z0-9-]{1,63})/")
_SCALED: Final = re.compile(r"\[\{(.{1,400}?)\}\]")


def coming(pod: Object | None, cluster: Cluster) -> Problem | None:
    """Return that the cluster-autoscaler adds a node for a pod, which is on its way; None: it does
    not, has tried it often, or the node should have come.

    It waits for a node itself, by default 15 minutes. A Machine that does not say that it failed,
    and lacks no host, is given more, as bare metal needs it.
    """
    place = (pod.namespace, pod.name) if pod is not None else None
    found = entry(cluster, _triggers, place) if place else None
    newest = entry(cluster, _newest, place) if place else None
    if not found or newest is None or newest["reason"].text == _NOT:
        return None
    groups = _SCALED.search(events.message(found[-1]))
    since = clock.elapsed(events.time_of(found[-1]), cluster)
    if groups is None or since is None or sum(map(events.times_of, found)) >= _OFTEN:
        return None
    machine = _machine_of(groups[1], since, cluster)
    late = machine_starts.described(machine, cluster) if machine is not None else None
    if since > (_PROVISIONED if late is None else _OF_MACHINE):
        return None
    if late is None and _may_have_come(since, cluster):
        return None
    if late is not None and (machine_starts.failure(late.machine) or late.shortage is not None):
        return None
    why = f": {late.why}" if late is not None else ""
    words = (
        f"it waits for the node that the cluster-autoscaler has been adding for "
        f"{clock.duration(since)} ({cut_middle(groups[1], _LONGEST)}{why})"
    )
    wait = f"wait for that node. If it does not come within {clock.duration(_OF_MACHINE)}, "
    if late is None:
        remedy = f"{wait}see the log of the cluster-autoscaler"
        return Problem(words, remedy, ProblemCause.NODE_COMING, command=SHOWN)
    kind = kinds.of(late.machine) or CAPI_MACHINE
    command = about("describe", late.machine, kind)
    remedy = f"{wait}see what its Machine waits for"
    return Problem(words, remedy, ProblemCause.NODE_COMING, command=command)


def _machine_of(scaled: str, since: timedelta, cluster: Cluster) -> Object | None:
    """Return the Machine without a node that a scale-up has made; None: none is known."""
    group = _MACHINES.match(scaled)
    if group is None:
        return None
    machines = (
        each
        for kind in (CAPI_MACHINE, MACHINE)
        for each in cluster.known(kind, group[1])
        if each.name.startswith(f"{group[2]}-") and not each.deleted
        if not machine_nodes.node_name(each, cluster)
    )
    made = (each for each in machines if clock.has_lasted(each.created, timedelta(), cluster))
    return max(
        (each for each in made if (clock.age(each, cluster) or timedelta()) <= since + _SOON),
        key=lambda each: each.created,
        default=None,
    )


_MACHINES: Final = re.compile(r"Machine(?:Deployment|Set)/([a-z0-9-]{1,63})/([a-z0-9.-]{1,253})")
"""How Cluster API names a node group
(kubernetes/autoscaler:cluster-autoscaler/cloudprovider/clusterapi/
clusterapi_unstructured.go#ID).
"""
_PROVISIONED: Final = timedelta(minutes=15)
"""Its --max-node-provision-time (kubernetes/autoscaler:cluster-autoscaler/FAQ.md)."""
_OF_MACHINE: Final = timedelta(minutes=30)
_SOON: Final = timedelta(minutes=2)
"""The event is written about when the Machine is made."""


def _triggers(cluster: Cluster) -> Mapping[tuple[str, str], list[Object]]:
    """Return the events of scale-ups for each pod, the oldest first."""
    said = sorted(events.known(POD.kind, "TriggeredScaleUp", cluster), key=_time)

    def place(event: Object) -> tuple[str, str]:
        of = event["involvedObject"]
        return of["namespace"].text or "", of["name"].text or ""

    return grouped(said, place)


SEE_WHY: Final = "see in the log of the cluster-autoscaler why no node came of its scale-ups"
SHOWN: Final = shell(
    *("kubectl", "get", "configmap", "-A", "--field-selector"),
    *(f"metadata.name={_STATUS}", "-o", "yaml"),
)
"""The node groups with their sizes and limits."""


def _newest(cluster: Cluster) -> Mapping[tuple[str, str], Object]:
    """Return the last event of the autoscaler about each pod, by namespace and name."""
    said = [
        *events.known(POD.kind, "NotTriggerScaleUp", cluster),
        *events.known(POD.kind, "TriggeredScaleUp", cluster),
    ]
    of = ((each["involvedObject"], each) for each in sorted(said, key=_time))
    return {(pod["namespace"].text or "", pod["name"].text or ""): each for pod, each in of}


@cached
def _groups(cluster: Cluster) -> tuple[_NodeGroup, ...]:
    """Return the node groups of which the autoscaler tells sizes and limits, those that may be the
    cause first.
    """
    found = find_named(cluster, _CONFIG_MAP, _STATUS)
    text = found.at("data", "status").text or "" if found is not None else ""
    parts = _ITEM.split(_SECTION.split(text, maxsplit=1)[-1]) if _SECTION.search(text) else ()
    found_groups = (group for part in parts if (group := _group(part)) is not None)
    return tuple(sorted(found_groups, key=lambda each: 0 < each.size < each.most))


def _group(part: str) -> _NodeGroup | None:
    name = _NAME.search(part)
    size, most = (re.search(rf"\b{key}[=:] *(\d{{1,9}})", part) for key in _SIZES)
    if name is None or size is None or most is None:
        return None
    said = (re.search(rf"\b{key}: *(.+?)(?=\n *\w+:\s|\Z)", part, re.DOTALL) for key in _ERRORS)
    failure = ": ".join(" ".join(each[1].split()).strip("\"'") for each in said if each).replace(
        "''", "'"
    )
    url = name[1].startswith("http")  # of Google
    own = name[1].rpartition("/")[2] if url else name[1]
    return _NodeGroup(own, int(size[1]), int(most[1]), cut_middle(failure, _LONGEST))


_SECTION: Final = re.compile(r"^nodeGroups: *$", re.MULTILINE | re.IGNORECASE)
_ITEM: Final = re.compile(r"^ *(?:-\s|(?=Name:))", re.MULTILINE)
_NAME: Final = re.compile(r"^ *name: *[\"']?([^\s\"']{1,253})", re.MULTILINE | re.IGNORECASE)
_SIZES: Final = ("cloudProviderTarget", "maxSize")
_ERRORS: Final = ("errorCode", "errorMessage")


def _time(event: Object) -> datetime:
    return events.time_of(event) or datetime.min.replace(tzinfo=UTC)
