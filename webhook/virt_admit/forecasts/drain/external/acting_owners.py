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


def of_vm(
    vmi: Object, cluster: Cluster, *, within: timedelta = timedelta(hours=1)
) -> OwnerAct | None:
    """Return what the owner says of the move for which KubeVirt asks; None: it says nothing, or not
    for sure that its controller acts.

    ``within``: how old what it says may be. A move takes less in general, and may be stuck later.
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
    None: there is none.

    Both are of the same kind in the same namespace, with the same spec besides their names: what it
    does for one it does for the other.
    """
    owner = _owner(vmi, cluster)
    if owner is None or owner.deleted or _is_left_alone(owner):
        return None
    for act, other in (
        entry(cluster, _acting, (owner.api_version, owner.kind, owner.namespace)) or ()
    ):
        if other.name != owner.name and _spec(other) == _spec(owner):
            return act
    return None


def _acting(cluster: Cluster) -> Mapping[tuple[str, str, str], Sequence[tuple[OwnerAct, Object]]]:
    """Return the owners that move a VM now, by kind and namespace."""
    found: dict[tuple[str, str, str], list[tuple[OwnerAct, Object]]] = {}
    for vmi in sorted(cluster.known(VMI), key=lambda each: each.full_name):
        act = of_vm(vmi, cluster, within=_NOW)
        if act is not None and (owner := _owner(vmi, cluster)) is not None:
            place = owner.api_version, owner.kind, owner.namespace
            found.setdefault(place, []).append((act, owner))
    return found


def _is_left_alone(owner: Object) -> bool:
    paused = owner.at("spec", "paused").value or owner.at("spec", "suspend").value
    marks = (*owner.annotations, *owner.labels)
    return bool(paused) or any(re.search("paus|suspend|unmanaged|skip", each) for each in marks)


def _spec(owner: Object) -> str:
    """Return the spec of an owner without its own name."""
    return re.sub(rf"\b{re.escape(owner.name)}\b", "", repr(owner["spec"].value))


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
