"""Remediations that are left of a node that does not exist any more, which a NodeHealthCheck counts
without an end.

Its operator releases before 0.9 delete the object of a remediator alone that expects to delete the
node, and no object of a remediator whose time ran out before. Self Node Remediation before 0.11
keeps its finalizer then. Until the status lists no remediation, the check can neither be deleted
nor get another selector or remediator. The operator drops a node from the status only while it
deletes an object, so an object that something else has deleted is counted too. Releases from 0.9 on
delete the objects that are left, unless the check is disabled. On bare metal Machine Deletion
Remediation keeps the name of the node, which comes back.
Sources: medik8s/node-healthcheck-operator:internal/controller/nodehealthcheck_controller.go
#deleteOrphanedRemediationCRs, :internal/webhook/v1alpha1/nodehealthcheck_webhook.go, issues
medik8s/node-healthcheck-operator#356, #266; medik8s/self-node-remediation:internal/controller/
selfnoderemediation_controller.go#ReconcileManager (timed out and deleted);
medik8s/machine-deletion-remediation:internal/controller/machinedeletionremediation_controller.go
#setPermanentNodeDeletionExpectedCondition.
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

TIMED_OUT: Final = "remediation.medik8s.io/nhc-timed-out"
_KINDS: Final[dict[str, Kind]] = {kind.kind: kind for kind in (SNR, FAR, MDR)}
"""A Metal3Remediation is not among them: it deletes the node, and makes it again."""
_SETTLED: Final = timedelta(minutes=30)
"""For a node that a remediator deletes and makes again, and for the operators."""

READS: Final[Reads] = union(
    clock.READS,
    {
        NODE: ("metadata.name",),
        NHC: ("spec.pauseRequests", "status.phase", "status.unhealthyNodes"),
    },
    dict.fromkeys(
        _KINDS.values(),
        (
            *(f"metadata.annotations.{key}" for key in (NODE_NAME, TIMED_OUT)),
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
        stays = f"so that the check has stayed in Remediating{self.lasts}, and {_REFUSED}"
        counted = _REFUSED_TOO if self._is_disabled else stays
        gone = f"node {self.node} does not exist any more"
        if not self.objects:
            return f"{gone}, nor its remediation, but status.unhealthyNodes lists it, {counted}"
        after = f" ({self.after} was its next step)" if self.after else ""
        are = "is" if len(self.objects) == 1 else "are"
        return f"{gone}{after}, but {names(map(_words, self.objects), 240)} {are} left, {counted}"

    @property
    def remedy(self) -> str:
        """What ends it, with the first command."""
        if not self.objects:
            return typed(f"{self._entry}, as its operator does not", self._status)
        then = f"then {self._entry}, as releases before 0.9 do not ({self._status})"
        further = "; ".join(filter(None, (self._stays, then)))
        return f"{self._update}{typed(self._way, self._command, further)}"

    @property
    def brief(self) -> str:
        """The same without what comes later, and without the command."""
        if not self.objects:
            return capital(f"{self._entry}.")
        return capital(f"{'; '.join(filter(None, (f'{self._update}{self._way}', self._stays)))}.")

    @property
    def _is_disabled(self) -> bool:
        """Whether its operator leaves a check alone, in each release."""
        return self.check.at("status", "phase").text == "Disabled"

    @property
    def _update(self) -> str:
        """An update ends it, unless the object is in deletion already."""
        if self._is_disabled or self.objects[0].deleted:
            return ""
        also = " and Self Node Remediation to 0.11" if self._is_held else ""
        return f"update Node Health Check Operator to 0.9{also} or later, which ends it; or "

    @property
    def _entry(self) -> str:
        return f"take {self.node} out of status.unhealthyNodes"

    @property
    def _status(self) -> str:
        return kubectl("edit", NHC, self.check.name, "", "--subresource=status")

    @property
    def _way(self) -> str:
        first = self.objects[0]
        others = " and the others that are left" if len(self.objects) > 1 else ""
        return self._lets_go if first.deleted else f"delete {first.kind} {first.name}{others}"

    @property
    def _stays(self) -> str:
        return f"if it stays, {self._lets_go}" if self._is_held else ""

    @property
    def _is_held(self) -> bool:
        first = self.objects[0]
        return not first.deleted and any(True for _ in first.metadata["finalizers"].items())

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
_REFUSED_TOO: Final = "so that the webhook of the check refuses its deletion and another selector"


def _words(obj: Object) -> str:
    """Return an object with what its remediation has come to."""
    ended = " (timed out)" if TIMED_OUT in obj.annotations else ""
    ends = " (being deleted)" if obj.deleted else ended
    return f"{obj.kind} {obj.full_name}{ends}"


def left(check: Object, cluster: Cluster) -> Iterator[LeftRemediation]:
    """Yield what is left of each node that does not exist, and has not for a while."""
    if any(True for _ in check.at("spec", "pauseRequests").items()):
        return  # its operator does nothing meanwhile
    for each in _absent(check, cluster):
        listed = [one["resource"] for one in each.begun]
        known = all(_is_known(one, cluster) for one in listed)
        if each.may_go_on or not known:
            continue
        yield LeftRemediation(
            check,
            each.node,
            each.path,
            sorted(each.objects, key=lambda obj: (obj.deleted, obj.full_name)),
            _deleter(listed[-1], each.objects),
            clock.lasts(each.settled or _SETTLED),
        )


def may_go_on(check: Object, cluster: Cluster) -> set[str]:
    """Return the nodes that do not exist and whose remediation may still go on."""
    return {each.node for each in _absent(check, cluster) if each.may_go_on}


class _AbsentNode(NamedTuple):
    """A node that does not exist, with what a check counts of it."""

    node: str
    path: Field
    begun: Sequence[Field]
    objects: Sequence[Object]
    settled: timedelta | None
    """Since when nothing has begun or ended. None: not known."""

    @property
    def may_go_on(self) -> bool:
        is_new = self.settled is None or self.settled < _SETTLED
        return is_new or any(map(_goes_on, self.objects))


def _absent(check: Object, cluster: Cluster) -> Iterator[_AbsentNode]:
    for unhealthy in check.at("status", "unhealthyNodes").items():
        node, begun = unhealthy["name"].text or "", list(unhealthy["remediations"].items())
        if node and begun and is_absent(cluster, NODE, "", node):
            objects = [each for each in _owned(check, cluster) if _node_of(each) == node]
            settled = clock.elapsed(_last(begun, objects), cluster)
            yield _AbsentNode(node, unhealthy["name"], begun, objects, settled)


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


def _goes_on(obj: Object) -> bool:
    """Return whether a remediator that deletes Machines has not ended yet, or keeps the name of the
    node.
    """
    keeps_name = obj.condition(_PERMANENT)["status"].text == "False" and obj.kind == MDR.kind
    return keeps_name or (obj.is_true(_PERMANENT) and not obj.is_true("Succeeded"))


_PERMANENT: Final = "PermanentNodeDeletionExpected"


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
