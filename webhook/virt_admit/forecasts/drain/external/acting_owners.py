"""Whether the owner of a VM with the eviction strategy ``External`` says that its controller moves
the VM now.

KubeVirt asks such a controller by ``status.evacuationNodeName`` alone
(kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go).
Its own object, of a kind that is read from the cluster and has no record here, answers in a
condition: of the conditions of any kind only reason, message and time are of a known form
(kubernetes/community:contributors/devel/sig-architecture/api-conventions.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle

READS: Final[Reads] = union(
    vmis.OWNER_READS, {VM: ("metadata.ownerReferences",), VMI: ("status.evacuationNodeName",)}
)

_NOW: Final = timedelta(minutes=15)
"""A controller that says something so recently is alive."""
_LONG: Final = timedelta(hours=1)
"""A move takes less in general, and may be stuck later."""
_LONGEST: Final = 160
_FAILS: Final = re.compile(
    r"(?i)fail|error|cannot|can't|could not|unable|refus|denied|forbidden|not allowed|block|stuck|"
    r"time[ds]? ?out|invalid|reject|\bnot\b|n't|ignor|disabled|paused|wait|pending|approv|manual|"
    r"queue|postpone|schedule|skip"
)
"""Words of a condition that may say the opposite, or that the move has not begun: then nothing is
known.
"""


class OwnerAct(NamedTuple):
    """What the owner of a VM says of its move."""

    owner: str
    """``VirtualNetworkFunction vnf/upf-1``."""
    words: str
    """``EvacuationRequested: VMI vnf/upf-1 is asked to leave a (for 2 min)``."""


def of_vm(vmi: Object, cluster: Cluster, *, within: timedelta = _LONG) -> OwnerAct | None:
    """Return what the owner says of the move for which KubeVirt asks; None: it says nothing, or not
    for sure that its controller acts.

    ``within``: how old what it says may be.
    """
    node = vmi.at("status", "evacuationNodeName").text
    owner = _owner(vmi, cluster) if node else None
    if owner is None or not node:
        return None
    for said in owner.at("status", "conditions").items():
        words = said["message"].words
        age = clock.since(said["lastTransitionTime"].text, cluster)
        if age is None or age > within or not _names(words, node) or not _names(words, vmi.name):
            continue
        if not _FAILS.search(f"{said['reason'].text or ''} {words}"):
            about = ": ".join(filter(None, (said["reason"].text, cut_middle(words, _LONGEST))))
            name = f"{owner.kind} {owner.full_name}"
            return OwnerAct(name, f"{about} (for {clock.duration(age)})")
    return None


def of_sibling(vmi: Object, cluster: Cluster) -> OwnerAct | None:
    """Return what the owner of another VM says of its move, which the controller of both makes now;
    None: there is none, or the VM's own owner says or shows that its move does not go on.

    Both are of the same kind in the same namespace, with the same spec besides their names: what it
    does for one it does for the other.
    """
    owner = _owner(vmi, cluster)
    if owner is None or owner.deleted or _is_left_alone(owner) or _lags(owner, vmi, cluster):
        return None
    acting = entry(cluster, _acting, _group(owner)) or ()
    return next((act for act, name in acting if name != owner.name), None)


_Group = tuple[str, str, str, str]
"""API version, kind and namespace of an owner, and its spec without its own name."""


def _group(owner: Object) -> _Group:
    spec = re.sub(rf"\b{re.escape(owner.name)}\b", "", repr(owner["spec"].value))
    return owner.api_version, owner.kind, owner.namespace, spec


def _acting(cluster: Cluster) -> Mapping[_Group, Sequence[tuple[OwnerAct, str]]]:
    """Return the owners that move a VM now, with their names."""
    found: dict[_Group, list[tuple[OwnerAct, str]]] = {}
    for vmi in sorted(cluster.known(VMI), key=lambda each: each.full_name):
        act = of_vm(vmi, cluster, within=_NOW)
        if act is not None and (owner := _owner(vmi, cluster)) is not None:
            found.setdefault(_group(owner), []).append((act, owner.name))
    return found


def _lags(owner: Object, vmi: Object, cluster: Cluster) -> bool:
    """Return whether an owner reports a failure or a move of long ago, or has said nothing recently
    although its VM is asked to leave: then its VM may stay, whatever becomes of others.
    """
    node, answered = vmi.at("status", "nodeName").text or "", False
    for said in owner.at("status", "conditions").items():
        words = said["message"].words
        holds = said["type"].text if said["status"].text == "True" else ""
        if _FAILS.search(f"{holds or ''} {said['reason'].text or ''} {words}"):
            return True
        age = clock.since(said["lastTransitionTime"].text, cluster)
        about = _names(words, vmi.name) or (node and _names(words, node))
        if about and (age is None or age > _LONG):
            return True
        answered |= age is not None and age <= _NOW
    return bool(vmi.at("status", "evacuationNodeName").text) and not answered


def _is_left_alone(owner: Object) -> bool:
    paused = owner.at("spec", "paused").value or owner.at("spec", "suspend").value
    marks = (*owner.annotations, *owner.labels)
    return bool(paused) or any(re.search("paus|suspend|unmanaged|skip", each) for each in marks)


def _names(words: str, name: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", words) is not None


def _reference(vmi: Object, cluster: Cluster) -> Field | None:
    """Return the reference to the controller of the VM of a VMI, if its kind has no record; None:
    there is none.
    """
    vm = vmis.known_vm(vmi, cluster)
    found = vm.controller if vm is not None else None
    group = (found["apiVersion"].text or "").rpartition("/")[0] if found is not None else ""
    if found is None or not group or kinds.find(group, found["kind"].text or "") is not None:
        return None
    return found


def named(vmi: Object, cluster: Cluster) -> str:
    """Return that owner as kind and name; empty: there is none."""
    found = _reference(vmi, cluster)
    return f"{found['kind'].text} {found['name'].text}" if found is not None else ""


def _owner(vmi: Object, cluster: Cluster) -> Object | None:
    found = _reference(vmi, cluster)
    if found is None:
        return None
    kind = kinds.guess(found["apiVersion"].text or "", found["kind"].text or "")
    return find(cluster, kind, vmi.namespace, found["name"].text)
