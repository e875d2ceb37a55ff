"""Taints of fencing that are left on a node which reports again,
and what keeps the remediator from removing them.

Self Node Remediation removes its taint when no pod of the node is being deleted and no
VolumeAttachment names the node; releases up to 0.11 wait for that without a limit. Fence Agents
Remediation removes its taints as soon as its object is deleted, and waits for nothing. The
remediators leave a taint or an object of their own meanwhile. Without these an administrator has
set the taint, and has to remove it (Kubernetes docs, "Non-graceful node shutdown"). Up to 2025 the
taint of a remediator ends pods (``medik8s.io/remediation``), later ones only keep new pods off.
A NodeHealthCheck with ``healthyDelay`` deletes the remediation of a healthy node so much later,
and with a negative one only when an administrator confirms that node.
Sources:
medik8s/node-healthcheck-operator:internal/controller/resources/manager.go#calcCrDeletionDelay,
#HandleHealthyNode;
medik8s/self-node-remediation:internal/controller/selfnoderemediation_controller.go#isResourceDeletionCompleted,
#NodeNoScheduleTaint;
medik8s/fence-agents-remediation:controllers/fenceagentsremediation_controller.go#handleFARDeletion;
kubernetes/kubernetes:pkg/controller/podgc/gc_controller.go#gcTerminating.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model import pod_owners
from virt_admit.model.commands import about, argument, kubectl, shell
from virt_admit.model.evidence import network_fences
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import (
    Cluster,
    Unseen,
    cached,
    entry,
    more_may_exist,
    unlisted,
)
from virt_admit.model.kubernetes.kinds import (
    FAR,
    METAL3_REMEDIATION,
    NHC,
    NODE,
    POD,
    PV,
    SNR,
    VOLUME_ATTACHMENT,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.units import (
    HEALTHY_DELAY,
    MICROSECOND,
    format_duration,
    parse_duration,
)
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import names
from virt_admit.model.scheduler import controller_taints
from virt_admit.model.scheduler.pods import claim_names

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_OLDER, _REMEDIATORS = controller_taints.MEDIK8S
"""How the taints of remediators begin. Node maintenance has a taint that begins as the older ones
do, without NoExecute.
"""
_FENCE_AGENTS: Final = "fence-agents-remediation"
"""The end of the taints of Fence Agents Remediation."""
_OBJECTS: Final = (SNR, FAR, METAL3_REMEDIATION)
"""The remediations whose operators set the taint out-of-service."""
NODE_NAME: Final = "remediation.medik8s.io/node-name"
"""The annotation of a remediation whose own name is not that of its node."""
_MACHINES: Final = ("machine.openshift.io/machine", "cluster.x-k8s.io/machine")
"""The annotations of a node with its Machine, whose name the remediation of a Machine has."""
_HEALTHY_SINCE: Final = "remediation.medik8s.io/healthy-delay"
"""The annotation of a remediation with the time since when its node is healthy."""
_CONFIRMED: Final = "remediation.medik8s.io/manually-confirmed-healthy"
"""The annotation of a node that ends the delay."""
_SETTLED: Final = datetime.timedelta(minutes=10)
"""A remediator removes its taint soon after the node is back."""

READS: Final[Reads] = union(
    clock.READS,
    pod_owners.READS,
    dict.fromkeys(
        _OBJECTS,
        (
            *(f"metadata.annotations.{key}" for key in (NODE_NAME, _HEALTHY_SINCE)),
            "metadata.ownerReferences",
        ),
    ),
    {FAR: ("spec.remediationStrategy",), NHC: ("spec.healthyDelay",)},
    network_fences.READS,
    {
        NODE: (
            *(f"metadata.annotations.{key}" for key in (*_MACHINES, _CONFIRMED)),
            "spec.taints",
            "status.conditions.type",
            "status.conditions.status",
            "status.conditions.lastTransitionTime",
        ),
        POD: (
            "spec.nodeName",
            "metadata.deletionTimestamp",
            "spec.volumes.persistentVolumeClaim.claimName",
            "status.phase",
        ),
        PV: ("spec.claimRef",),
        VOLUME_ATTACHMENT: ("spec.nodeName", "spec.source.persistentVolumeName"),
    },
)


def fence(node: str, unsure: str = "") -> str:
    """Return how an administrator tells Kubernetes that a node has no power,
    so that it ends its pods at once.

    ``unsure``: why the taint may have no effect, in brackets.
    """
    how = f" taint it out-of-service{unsure}" if unsure else ""
    return f"confirm that {node} is powered off, then{how}: {fence_command(node)}"


def fence_command(node: str) -> str:
    """Return the command that lets Kubernetes end the pods of a node and detach their volumes
    without its kubelet.
    """
    return shell(
        "kubectl", "taint", "nodes", argument(node), f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    )


def fenced_by(command: str) -> str:
    """Return the node that a command declares to be off; empty: it declares none."""
    found = _FENCES.search(command)
    return found[1] if found is not None else ""


_FENCES: Final = re.compile(
    rf"kubectl taint nodes (?:\./)?([\w.-]{{1,253}}) {re.escape(OUT_OF_SERVICE)}="
)


def is_fenced(node: Object) -> bool:
    """Return whether a node has this taint."""
    return any(taint["key"].text == OUT_OF_SERVICE for taint in node.at("spec", "taints").items())


def ends_pods(node: Object) -> bool:
    """Return whether a node has the taint of an administrator or of a remediator, which ends its
    pods or is going to.
    """
    return any(map(_fences, node.at("spec", "taints").items()))


class LeftTaint(NamedTuple):
    """A taint of fencing on a node that reports."""

    taint: Field
    key: str
    age: str
    """How long the node reports again."""
    every: tuple[Field, ...]
    """All such taints of the node: this is the first of them."""

    @property
    def reason(self) -> str:
        """What is wrong, as the end of a sentence about the node."""
        keys = list(dict.fromkeys(taint["key"].text or "" for taint in self.every))
        return (
            f"has reported for {self.age}, and still has taint{'s' * (len(self.every) > 1)} "
            f"{names(keys)} of its fencing"
        )

    @property
    def effect(self) -> str:
        """What the taint does to pods, as the end of a sentence."""
        return "ends every pod" if self.taint["effect"].text == _ENDS else "keeps new pods off"

    def is_all(self, refusal: str) -> bool:
        """Whether nothing but these taints refuses a pod."""
        taints = {f"taint {taint['key'].text}" for taint in self.every}
        return taints.issuperset(refusal.split("; "))


def left(node: Object, cluster: Cluster) -> LeftTaint | None:
    """Return the taint of fencing that ends the pods of a node although it reports; None:
    there is none, or a NodeHealthCheck is to keep it for now.
    """
    ready = node.condition("Ready")
    every = tuple(filter(_is_of_fencing, node.at("spec", "taints").items()))
    if ready["status"].text != "True" or not every:
        return None  # before a look at the clock: what reads it is judged again each minute
    back = clock.since(ready["lastTransitionTime"].text, cluster)
    if back is None or back < _SETTLED or kept(node, cluster):
        return None
    first = next((taint for taint in every if taint["effect"].text == _ENDS), every[0])
    return LeftTaint(first, first["key"].text or "", clock.duration(back), every)


_ENDS: Final = "NoExecute"


def kept(node: Object, cluster: Cluster) -> str:
    """Return that the remediation of a healthy node ends by itself, and when; empty: it does not,
    or should be over.
    """
    if not node.is_true("Ready") or not ends_pods(node):
        return ""
    for each, check, delay in _delays(node, cluster):
        begin = clock.instant(each.annotations.get(_HEALTHY_SINCE))
        over = clock.elapsed(begin, cluster)
        if begin is None or over is None or delay < 0:
            continue
        length = datetime.timedelta(microseconds=delay / MICROSECOND)
        past_calendar = begin.year + length.days // 365 + 1 > datetime.MAXYEAR
        if over < length + _SETTLED and not past_calendar:
            until = (begin + length).astimezone(datetime.UTC)
            return (
                f"{_keeps(check, each, delay)} until {until:%Y-%m-%d %H:%M} UTC, and its taints go "
                "by themselves then"
            )
    return ""


def unread(node: Object, cluster: Cluster) -> Iterator[Unseen]:
    """Yield what may keep a taint of fencing on a node for a while, and could not be read."""
    if left(node, cluster) is not None:
        lasts = not all(each.deleted for each in _remediations(node.name, cluster))
        for kind in (*_OBJECTS, NHC) if lasts else _OBJECTS:
            yield from more_may_exist(cluster, kind)


def doubt(node: Object, cluster: Cluster) -> str:
    """Return the same in words; empty: all was read, or the node has no such taint."""
    what = names(each.what for each in unread(node, cluster))
    known = f"whether a NodeHealthCheck keeps the remediation of {node.name}: {what} cannot be read"
    return known if what else ""


def unconfirmed(node: Object, cluster: Cluster) -> tuple[str, str] | None:
    """Return what keeps the remediation of a healthy node until an administrator confirms it,
    and the command for that; None: nothing does.
    """
    for each, check, delay in _delays(node, cluster):
        if delay < 0:
            confirm = shell("kubectl", "annotate", "node", argument(node.name), f"{_CONFIRMED}=yes")
            return f"{_keeps(check, each, delay)} until you confirm {node.name} as healthy", confirm
    return None


def _keeps(check: Object, remediation: Object, delay: int) -> str:
    of = f"{remediation.kind} {remediation.full_name}"
    return f"NodeHealthCheck {check.name} (healthyDelay {format_duration(delay)}) keeps {of}"


def _delays(node: Object, cluster: Cluster) -> Iterator[tuple[Object, Object, int]]:
    """Yield the remediations of a node which a NodeHealthCheck keeps for a while after it is
    healthy, with that check and the nanoseconds.
    """
    for each in _remediations(node.name, cluster):
        owners = each.metadata["ownerReferences"].items()
        checks = (owner["name"].text for owner in owners if owner["kind"].text == NHC.kind)
        check = next(filter(None, (find(cluster, NHC, "", name) for name in checks)), None)
        if each.deleted or check is None or _CONFIRMED in node.annotations:
            continue
        try:
            delay = parse_duration(check.at("spec", "healthyDelay").value, HEALTHY_DELAY)
        except ValueError:
            continue
        yield each, check, delay


def _fences(taint: Field) -> bool:
    ends = taint["key"].text == OUT_OF_SERVICE and taint["effect"].text == _ENDS
    return ends or _of_remediator(taint)


def _is_of_fencing(taint: Field) -> bool:
    """Return whether a taint of fencing keeps pods off, also one that ends none.

    Rook's guide of a lost node sets the taint out-of-service with both effects.
    """
    by_hand = taint["key"].text == OUT_OF_SERVICE and taint["effect"].text == "NoSchedule"
    return by_hand or _fences(taint)


def _of_remediator(taint: Field) -> bool:
    key, effect = taint["key"].text or "", taint["effect"].text
    if key.startswith(_REMEDIATORS):
        return effect in (_ENDS, "NoSchedule")
    return effect == _ENDS and key.startswith(_OLDER)


@cached
def known(cluster: Cluster) -> Mapping[str, LeftTaint]:
    """Return the known nodes with such a taint."""
    found = {node.name: left(node, cluster) for node in cluster.known(NODE)}
    return {name: each for name, each in found.items() if each is not None}


def _remediations(node: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the remediations of a node, or of its Machine."""
    found = find(cluster, NODE, "", node)
    marks = found.annotations if found is not None else {}
    machines = (marks.get(key, "").rpartition("/")[2] for key in _MACHINES)
    own = {node, *filter(None, machines)}
    for each in (each for kind in _OBJECTS for each in cluster.known(kind)):
        if own & {each.name, each.annotations.get(NODE_NAME)}:
            yield each


def _remover(node: str, cluster: Cluster) -> str:
    """Return what removes the taint of a node once nothing holds it: its remediation,
    which may be being deleted.
    """
    found = next(_remediations(node, cluster), None)
    if found is None:
        return f"the remediator of {node}"
    return f"{found.kind} {found.full_name}{', which is being deleted,' if found.deleted else ''}"


def is_by_hand(node: str, cluster: Cluster) -> bool | None:
    """Return whether no remediator removes the taint of a node.

    None: its remediations cannot be listed.
    """
    found = find(cluster, NODE, "", node)
    taints = found.at("spec", "taints").items() if found is not None else ()
    if any(map(_of_remediator, taints)) or any(_remediations(node, cluster)):
        return False
    return None if any(unlisted(cluster, kind) for kind in _OBJECTS) else True


def waits_for(node: str, cluster: Cluster) -> str:
    """Return what the remediator of a node waits for, in words; empty: nothing is known."""
    return names([holder.what for holder in _holders(node, cluster)], 160)


def stays(node: str, cluster: Cluster) -> bool:
    """Return whether the remediator of a node waits for a pod that runs there and does not end."""
    return any(holder.pod is not None for holder in _holders(node, cluster))


def way_out(node: str, found: LeftTaint, cluster: Cluster) -> tuple[str, str]:
    """Return what ends a taint of fencing on a node that reports, and the command about it."""
    fenced = find(cluster, NODE, "", node)
    if fenced is not None and (held := unconfirmed(fenced, cluster)) is not None:
        return f"see that {node} is healthy, and confirm it", held[1]
    if fenced is not None and (why := doubt(fenced, cluster)):
        return f"see {why}", ""
    holders = _holders(node, cluster)
    if holders and holders[0].pod is not None:
        way, _, command = pod_owners.taken_away(holders[0].pod, cluster).partition(": ")
        later = "narrow its tolerations later, as it comes back in spite of the taint"
        return f"{way}, after which {_remover(node, cluster)} removes the taint; {later}", command
    if holders:
        return (
            f"let {holders[0].what} end, after which {_remover(node, cluster)} removes the taint",
            holders[0].command,
        )
    if fenced is not None and (others := network_fences.before_taint(fenced, cluster)) is not None:
        return others
    # without an effect: what stays of the key in another one would refuse VMs as before
    keys = dict.fromkeys(f"{taint['key'].text}-" for taint in found.every)
    untaint = shell("kubectl", "taint", "nodes", argument(node), *keys)
    remove = f"remove its taint{'s' * (len(found.every) > 1)}"
    if (ended := _by_deletion(node, found, cluster)) is not None:
        return ended
    if is_by_hand(node, cluster) is False:
        over = all(each.deleted for each in _remediations(node, cluster))
        return f"see that the remediation of {node} has ended, then {remove}", untaint * over
    return f"check {node}, then {remove} by hand{_lifted(node, cluster)}", untaint


def _lifted(node: str, cluster: Cluster) -> str:
    found = find(cluster, NODE, "", node)
    return network_fences.after_taint(found, cluster) if found is not None else ""


def _by_deletion(node: str, found: LeftTaint, cluster: Cluster) -> tuple[str, str] | None:
    """Return how taints end that an operator removes once its object is deleted; None: none does.

    Self Node Remediation does so after what it waits for (#recoverNode).
    """
    fences = next((each for each in _remediations(node, cluster) if _has_set(each, found)), None)
    if fences is None:
        return None
    by, kind = f"{fences.kind} {fences.full_name}", FAR if fences.kind == FAR.kind else SNR
    if fences.deleted:
        way = f"let the operator of {by}, which is being deleted, run, which removes the taint"
        return way, about("describe", fences, kind)
    way = f"see that {node} is healthy, then delete {by}: its operator removes its taint"
    return way, about("delete", fences, kind)


def _by_fence_agents(node: str, cluster: Cluster) -> bool:
    """Return whether no other remediator than Fence Agents Remediation has set taints of a node."""
    found = find(cluster, NODE, "", node)
    taints = filter(_of_remediator, found.at("spec", "taints").items() if found is not None else ())
    kinds = {each.kind for each in _remediations(node, cluster)}
    return kinds <= {FAR.kind} and all(
        (each["key"].text or "").endswith(_FENCE_AGENTS) for each in taints
    )


def _has_set(remediation: Object, found: LeftTaint) -> bool:
    """Return whether an operator has set taints for this object, and removes them after it."""
    if remediation.kind != FAR.kind or not remediation.deleted:
        return remediation.kind in (FAR.kind, SNR.kind) and not remediation.deleted
    keys = {taint["key"].text or "" for taint in found.every}
    by_it = {key for key in keys if key.endswith(_FENCE_AGENTS)}
    strategy = remediation.at("spec", "remediationStrategy").text
    return keys <= (by_it | {OUT_OF_SERVICE} if strategy == "OutOfServiceTaint" else by_it)


class _Holder(NamedTuple):
    """What a remediator waits for."""

    what: str
    command: str
    pod: Object | None = None
    """The pod that keeps a volume attached, and does not end. None: nothing shows one."""


def _holders(node: str, cluster: Cluster) -> Sequence[_Holder]:
    """Return what a remediator waits for, each with a command about it.

    That is the pods of the node that are being deleted, else its VolumeAttachments.
    """
    if is_by_hand(node, cluster) is not False or _by_fence_agents(node, cluster):
        return ()
    pods = entry(cluster, _ending, node) or ()
    if pods:
        return [
            _Holder(f"pod {pod.full_name}", kubectl("describe", POD, pod.name, pod.namespace))
            for pod in pods
        ]
    attached = [
        each
        for each in cluster.known(VOLUME_ATTACHMENT)
        if each.at("spec", "nodeName").text == node
    ]
    return [
        _attachment(each, node, cluster) for each in sorted(attached, key=lambda each: each.name)
    ]


def _attachment(attachment: Object, node: str, cluster: Cluster) -> _Holder:
    """Return a VolumeAttachment with the pod that uses its volume on this node."""
    name, volume = attachment.name, attachment.at("spec", "source", "persistentVolumeName").text
    found = find(cluster, PV, "", volume)
    claim = found.at("spec", "claimRef") if found is not None else None
    described = kubectl("describe", VOLUME_ATTACHMENT, name)
    user = next(_users(claim, node, cluster), None) if claim is not None else None
    if claim is None or user is None:
        return _Holder(f"VolumeAttachment {name}", described)
    used = f"{claim['namespace'].text}/{claim['name'].text}"
    return _Holder(f"the volume of pod {user.full_name} (claim {used})", described, user)


def _users(claim: Field, node: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the pods on a node that use a claim and are not being deleted."""
    for pod in cluster.known(POD, claim["namespace"].text or "default"):
        here = pod.at("spec", "nodeName").text == node and not pod.ended
        if here and not pod.deleted and (claim["name"].text or "") in claim_names(pod):
            yield pod


def _ending(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    deleted = (pod for pod in cluster.known(POD) if pod.deleted)
    every = sorted(deleted, key=lambda each: each.full_name)
    return grouped(every, lambda pod: pod.at("spec", "nodeName").text or "")
