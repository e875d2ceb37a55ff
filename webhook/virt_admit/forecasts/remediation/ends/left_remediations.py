"""Remediations that are left of a node that does not exist any more, which a NodeHealthCheck counts
without an end.

Its operator releases before 0.9 delete the object of a remediator alone that expects to delete the
node, and no object of a remediator whose time ran out before. Self Node Remediation before 0.11
keeps its finalizer then. Until the status lists no remediation, the check can neither be deleted
nor get another selector or remediator. The operator drops a node from the status only while it
deletes an object, so an object that something else has deleted is counted too.
Sources: medik8s/node-healthcheck-operator:internal/controller/nodehealthcheck_controller.go
#deleteOrphanedRemediationCRs, :internal/webhook/v1alpha1/nodehealthcheck_webhook.go, issues
medik8s/node-healthcheck-operator#356, #266; medik8s/self-node-remediation:internal/controller/
selfnoderemediation_controller.go#ReconcileManager (timed out and deleted).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kubernetes.kinds import FAR, MDR, NHC, NODE, SNR, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import is_absent
from virt_admit.model.messages import capital, names
from virt_admit.model.remediation.fence_taints import NODE_NAME

_TIMED_OUT: Final = "remediation.medik8s.io/nhc-timed-out"
_KINDS: Final[dict[str, Kind]] = {kind.kind: kind for kind in (SNR, FAR, MDR)}
"""A Metal3Remediation is not among them: it deletes the node, and makes it again."""
_SETTLED: Final = timedelta(minutes=30)
"""For a node that a remediator deletes and makes again, and for the operators."""

READS: Final[Reads] = union(
    clock.READS,
    {NODE: ("metadata.name",), NHC: ("spec.pauseRequests", "status.unhealthyNodes")},
    dict.fromkeys(
        _KINDS.values(),
        (
            *(f"metadata.annotations.{key}" for key in (NODE_NAME, _TIMED_OUT)),
            *("metadata.creationTimestamp", "metadata.deletionTimestamp"),
            *("metadata.finalizers", "metadata.ownerReferences"),
            *CONDITIONS,
        ),
    ),
)


class LeftRemediation(NamedTuple):
    """What a NodeHealthCheck counts of a node that does not exist."""

    check: Object
    node: str
    path: Field
    """The node in the status of the check."""
    objects: Sequence[Object]
    """Those that are left; empty: the status alone names them."""
    after: str
    """The last remediator, which deletes Machines, where it is not left itself."""
    lasts: str

    @property
    def reason(self) -> str:
        """What is wrong, as a sentence without its end."""
        counted = f"so that the check has stayed in Remediating{self.lasts}, and {_REFUSED}"
        gone = f"node {self.node} does not exist any more"
        if not self.objects:
            return f"{gone}, nor its remediation, but status.unhealthyNodes lists it, {counted}"
        after = f" ({self.after} was its next step)" if self.after else ""
        return f"{gone}{after}, but {names(map(_words, self.objects), 240)} is left, {counted}"

    @property
    def remedy(self) -> str:
        """What ends it, with the first command."""
        if not self.objects:
            return typed(f"{self._entry}, as its operator does not", self._status)
        also = f"if status.unhealthyNodes lists it still, {self._entry} ({self._status})"
        return typed(self._way, self._command, "; ".join(filter(None, (self._stays, also, _NEWER))))

    @property
    def brief(self) -> str:
        """The same without what comes later, and without the command."""
        if not self.objects:
            return capital(f"{self._entry}.")
        return capital(f"{'; '.join(filter(None, (self._way, self._stays)))}.")

    @property
    def _entry(self) -> str:
        return f"take {self.node} out of status.unhealthyNodes"

    @property
    def _status(self) -> str:
        return kubectl("edit", NHC, self.check.name, "", "--subresource=status")

    @property
    def _way(self) -> str:
        first = self.objects[0]
        return self._lets_go if first.deleted else f"delete {first.kind} {first.name}"

    @property
    def _stays(self) -> str:
        first = self.objects[0]
        held = not first.deleted and any(True for _ in first.metadata["finalizers"].items())
        return f"if it stays, {self._lets_go}" if held else ""

    @property
    def _lets_go(self) -> str:
        finalizers = (each.text or "" for each in self.objects[0].metadata["finalizers"].items())
        held = names(filter(None, finalizers))
        return f"as a decision, take finalizer {held} off, as no node is left to clean up"

    @property
    def _command(self) -> str:
        first = self.objects[0]
        verb, *options = ("edit",) if first.deleted else ("delete", "--wait=false")
        return about(verb, first, _KINDS[first.kind], *options)


_REFUSED: Final = "its webhook refuses to delete it or change what it selects"
_NEWER: Final = (
    "Node Health Check Operator 0.9 and Self Node Remediation 0.11, or later, do so themselves"
)


def _words(obj: Object) -> str:
    """Return an object with what its remediation has come to."""
    ended = " (timed out)" if _TIMED_OUT in obj.annotations else ""
    ends = " (being deleted)" if obj.deleted else ended
    return f"{obj.kind} {obj.full_name}{ends}"


def left(check: Object, cluster: Cluster) -> Iterator[LeftRemediation]:
    """Yield what is left of each node that does not exist, and has not for a while."""
    if any(True for _ in check.at("spec", "pauseRequests").items()):
        return  # its operator does nothing meanwhile
    for unhealthy in check.at("status", "unhealthyNodes").items():
        node, begun = unhealthy["name"].text or "", list(unhealthy["remediations"].items())
        if not node or not begun or not is_absent(cluster, NODE, "", node):
            continue
        objects = [each for each in _owned(check, cluster) if _node_of(each) == node]
        listed = [each["resource"] for each in begun]
        since = _last(begun, objects)
        settled = clock.elapsed(since, cluster)
        known = all(_is_known(each, cluster) for each in listed)
        if settled is None or settled < _SETTLED or any(map(_works, objects)) or not known:
            continue
        yield LeftRemediation(
            check,
            node,
            unhealthy["name"],
            sorted(objects, key=lambda each: (each.deleted, each.full_name)),
            _deleter(listed[-1], objects),
            clock.lasts(settled),
        )


def unread(check: Object, cluster: Cluster) -> Iterator[Unseen]:
    """Yield what may be left and could not be read, if a check counts remediations."""
    unhealthy = check.at("status", "unhealthyNodes").items()
    begun = [each["resource"] for node in unhealthy for each in node["remediations"].items()]
    kinds = {kind for each in begun if (kind := _KINDS.get(each["kind"].text or ""))}
    for kind in (*(kind for kind in _KINDS.values() if kind in kinds), *((NODE,) if kinds else ())):
        yield from more_may_exist(cluster, kind)


def _owned(check: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the known remediations of a check."""
    for each in (each for kind in _KINDS.values() for each in cluster.known(kind)):
        owners = each.metadata["ownerReferences"].items()
        if any((one["kind"].text, one["name"].text) == (NHC.kind, check.name) for one in owners):
            yield each


def _node_of(obj: Object) -> str:
    return obj.annotations.get(NODE_NAME) or obj.name


def _works(obj: Object) -> bool:
    """Return whether a remediator expects to delete the node, and has not ended yet."""
    return obj.is_true("PermanentNodeDeletionExpected") and not obj.is_true("Succeeded")


def _is_known(listed: Field, cluster: Cluster) -> bool:
    """Return whether it is known that an object exists or not: those of other remediators may."""
    kind = _KINDS.get(listed["kind"].text or "")
    return kind is not None and not any(more_may_exist(cluster, kind))


def _deleter(listed: Field, objects: Sequence[Object]) -> str:
    """Return the last remediator if it deletes Machines, and is gone; empty: it is another one."""
    gone = all(each.kind != MDR.kind for each in objects)
    return MDR.kind if listed["kind"].text == MDR.kind and gone and objects else ""


def _last(begun: Sequence[Field], objects: Sequence[Object]) -> datetime | None:
    """Return when a remediation of a node last began, timed out or was deleted."""
    texts = [
        *(each[key].text for each in begun for key in ("started", "timedOut")),
        *(each.created for each in objects),
        *(each.metadata["deletionTimestamp"].text for each in objects),
    ]
    return max(filter(None, map(clock.instant, texts)), default=None)
