"""Remediations that a health check has begun and that have failed for good: it makes another one
only after a change.

With ``remediationTemplate`` a NodeHealthCheck waits for its object without a limit; with
``escalatingRemediations`` it goes on to the next template, up to the last one. The operator of
fence agents runs none if it cannot use the parameters or read a Secret. Only its log says so: the
object stays at work without an end. Sources: medik8s/node-healthcheck-operator:internal/controller/
nodehealthcheck_controller.go#remediate (no time-out: nothing to do any more), #remediationFailed;
medik8s/fence-agents-remediation:pkg/utils/conditions.go#UpdateConditions (the agent runs only while
Processing is True), controllers/fenceagentsremediation_controller.go#Reconcile; metal3-io/
cluster-api-provider-metal3:controllers/metal3remediation_controller.go#reconcileNormal (Failed:
switched off on purpose); medik8s/self-node-remediation:internal/controller/
selfnoderemediation_controller.go#prepareReboot (no agent: not begun, without a condition).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.components import remediation_agents
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import FAR, MDR, METAL3_REMEDIATION, NHC, SNR, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut
from virt_admit.model.remediation import fence_agents, fence_taints, remediators

_KINDS: Final[dict[str, Kind]] = {kind.kind: kind for kind in (FAR, SNR, MDR)}
_SAID: Final = (
    *CONDITIONS,
    "status.conditions.reason",
    "status.conditions.message",
    "status.conditions.lastTransitionTime",
)
READS: Final[Reads] = union(
    clock.READS,
    remediation_agents.READS,
    {
        NHC: ("spec.escalatingRemediations", "status.unhealthyNodes"),
        FAR: ("spec", "metadata.creationTimestamp", *_SAID),
        METAL3_REMEDIATION: ("status.phase",),
        SNR: ("status.lastError", "metadata.creationTimestamp", *_SAID),
        MDR: _SAID,
    },
)
_ADDRESS: Final = "--ip"
"""The parameter of fence agents that names the management controller of a node."""


@dataclass(frozen=True, slots=True)
class FailedRemediation:
    """The last remediation of a node, which has failed."""

    reason: str
    remedy: str


def of_node(
    check: Object, node: str, cluster: Cluster, own: Object | None = None
) -> FailedRemediation | None:
    """Return how the remediation of a node by a health check has failed for good; None:
    nothing says that it has.

    ``own``: the Machine, if the check watches Machines. Its Metal3Remediation has the same name.
    """
    metal = (
        find(cluster, METAL3_REMEDIATION, own.namespace, own.name)
        if own is not None and own.namespace
        else None
    )
    if metal is not None and metal.at("status", "phase").text == "Failed" and not metal.deleted:
        return _switched_off(check, metal)
    found = [(each, _object(each, cluster)) for each in _begun(check, node)]
    ended = [
        obj
        for each, obj in found
        if each["timedOut"].present or _has_failed(obj) or _overdue(obj, cluster)
    ]
    steps = sum(1 for _ in check.at("spec", "escalatingRemediations").items())
    if not ended or len(ended) < max(1, steps):
        return None
    last = ended[-1]
    if not isinstance(last, Object) or not (_has_failed(last) or _overdue(last, cluster)):
        return None
    if last.kind == SNR.kind and not _has_failed(last):
        return _unarmed(node, last, cluster)
    return (
        _failed(check, node, last, cluster)
        if _has_failed(last)
        else _stuck(check, node, last, cluster)
    )


def unread(check: Object, node: str, cluster: Cluster) -> Iterator[str]:
    """Yield the remediations of a node that cannot be read, so that they may have failed."""
    for begun in _begun(check, node):
        if isinstance(found := _object(begun, cluster), Unseen):
            yield found.what


def of_any(node: str, cluster: Cluster) -> FailedRemediation | None:
    """Return how the remediation of a node by any NodeHealthCheck has failed for good; None:
    nothing says so.
    """
    found = (of_node(check, node, cluster) for check in cluster.known(NHC))
    return next(filter(None, found), None)


def _begun(check: Object, node: str) -> Iterator[Field]:
    for unhealthy in check.at("status", "unhealthyNodes").items():
        if unhealthy["name"].text == node:
            yield from unhealthy["remediations"].items()


def _object(begun: Field, cluster: Cluster) -> Object | Unseen | None:
    named = begun["resource"]
    kind = _KINDS.get(named["kind"].text or "")
    if kind is None:
        return None
    try:
        return cluster.get(kind, named["namespace"].text or "", named["name"].text or "")
    except Unseen as unseen:
        return unseen


def _has_failed(obj: Object | Unseen | None) -> bool:
    return (
        isinstance(obj, Object)
        and not obj.deleted
        and obj.condition("Succeeded")["status"].text == "False"
    )


_SETTLED: Final = timedelta(minutes=10)
"""For an operator that was on the node itself and starts elsewhere,
where it begins with its tries again.
"""


def _overdue(obj: Object | Unseen | None, cluster: Cluster) -> timedelta | None:
    """Return for how long a remediator is at work that has had the time for all its tries; None:
    it may end.
    """
    if isinstance(obj, Object) and obj.kind == SNR.kind:
        return _unable(obj, cluster)
    if not isinstance(obj, Object) or obj.kind != FAR.kind or obj.deleted or _has_succeeded(obj):
        return None
    processing = obj.condition("Processing")
    began = processing["lastTransitionTime"].text or obj.at("metadata", "creationTimestamp").text
    lasts = clock.since(began, cluster)
    try:
        most = timedelta(seconds=remediators.far_duration(obj) // SECOND)
    except ValueError:
        return lasts  # the operator cannot read it
    return lasts if lasts is not None and lasts > most + _SETTLED else None


_UNABLE: Final = "Node is not capable to reboot itself"


def _unable(obj: Object, cluster: Cluster) -> timedelta | None:
    """Return for how long Self Node Remediation has not begun, as the node has no agent for it;
    None: it has.

    It tries again without an end, and its other errors may pass (#prepareReboot).
    """
    if obj.deleted or _has_succeeded(obj) or obj.at("status", "lastError").text != _UNABLE:
        return None
    return clock.since(obj.at("metadata", "creationTimestamp").text, cluster)


def _unarmed(node: str, obj: Object, cluster: Cluster) -> FailedRemediation:
    """Return what a lost node needs whose agent of Self Node Remediation never ran: people,
    and now.
    """
    lasts, gone = _overdue(obj, cluster), remediation_agents.missing(node, cluster)
    why = gone.why if gone is not None else "it finds no agent there that can"
    reason = (
        f"{obj.kind} {obj.full_name} has not begun for {duration(lasts or timedelta())} "
        f"({_UNABLE}): {why}"
    )
    then = "As a decision, once it is confirmed to be off, taint it out-of-service"
    way = f"power {node} off by hand, as {why}. {then}"
    return FailedRemediation(reason, typed(way, fence_taints.fence_command(node)))


def _has_succeeded(obj: Object) -> bool:
    return obj.condition("Succeeded")["status"].text == "True"


def _stuck(check: Object, node: str, obj: Object, cluster: Cluster) -> FailedRemediation:
    title, lasts = f"{obj.kind} {obj.full_name}", _overdue(obj, cluster)
    try:
        because = fence_agents.refusal(obj, node)
    except Unseen:
        because = ""
    why = because.removeprefix(title) or " only the log of its operator says why"
    reason = f"{title} has not ended its fence agent for {duration(lasts or timedelta())}, and{why}"
    own = f"correct the template of {title} (it{because.removeprefix(title)})"
    first = own if because else f"see the log of the operator of {title}, which runs no agent"
    way = f"{first}, then delete that {obj.kind}, which {check.kind} {check.name} makes again"
    return FailedRemediation(reason, typed(way, about("delete", obj, FAR)))


def _failed(check: Object, node: str, obj: Object, cluster: Cluster) -> FailedRemediation:
    said, title = obj.condition("Succeeded"), f"{obj.kind} {obj.full_name}"
    age = clock.since(said["lastTransitionTime"].text, cluster)
    ago = f" {duration(age)} ago" if age is not None else ""
    words = ": ".join(
        cut(part, 120) for part in (said["reason"].text, said["message"].text) if part
    )
    reason = f"{title} has failed{ago}{f' ({words})' if words else ''}, and it is not tried again"
    first = _fence_device(obj, node) or f"once {node} can be remediated"
    way = f"{first}, delete its failed {obj.kind}, which {check.kind} {check.name} makes again"
    return FailedRemediation(reason, typed(way, about("delete", obj, _KINDS[obj.kind])))


def _switched_off(check: Object, obj: Object) -> FailedRemediation:
    reason = (
        f"{obj.kind} {obj.full_name} has failed, as spec.online of its BareMetalHost is false, and "
        "it is not tried again"
    )
    way = f"set spec.online of that BareMetalHost to true, then delete its failed {obj.kind}"
    return FailedRemediation(
        reason,
        typed(
            f"{way}, which {check.kind} {check.name} makes again",
            about("delete", obj, METAL3_REMEDIATION),
        ),
    )


def _fence_device(obj: Object, node: str) -> str:
    agent, address = (
        obj.at("spec", "agent").text,
        obj.at("spec", "nodeparameters", _ADDRESS, node).text,
    )
    if not agent:
        return ""
    return f"restore its power; or, once {agent} reaches it{f' at {address}' if address else ''}"
