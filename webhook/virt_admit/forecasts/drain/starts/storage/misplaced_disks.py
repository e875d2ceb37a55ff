"""A disk in a place that its VM may not use, because the pod of the VM did not choose it.

The nodes there have room, but not the labels that the VM demands, or a taint that it does not
tolerate. Where the place was chosen without the VM (``chosen_places``), the next disk is placed in
the same way, so that a restore alone does not help.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.starts.storage import chosen_places
from virt_admit.forecasts.drain.starts.storage.chosen_places import PlaceChoice
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, PVC, VM
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.selectors import IN
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(chosen_places.READS, {DATA_VOLUME: ("metadata.ownerReferences",)})
_VOLUME: Final = "volume of claim "
_SELECTOR: Final = "node selector "
_AFFINITY: Final = "node affinity"
_DEMANDS: Final = (_SELECTOR, _AFFINITY)
"""How refusals begin that last until the VM or the node is changed. A taint may pass."""
_RESERVED: Final = ("kubernetes.io", "k8s.io", "kubevirt.io")
"""Domains of labels that say what a node is: nothing lets a VM in but another node."""


class MisplacedDisk(NamedTuple):
    """The disk of a VM, and the nodes that matter."""

    claim: str
    there: Mapping[str, str]
    """Why each node refuses the VM that reaches the disk."""
    elsewhere: Collection[str]
    """The nodes that take the VM, but do not reach the disk."""


def problem(
    claim: str, refusals: Mapping[str, str], target: SchedulingTarget, said: str, cluster: Cluster
) -> Problem | None:
    """Return who chose the place of a disk, and how its VM chooses it; None: it may have done so,
    or the nodes there refuse it for another cause.

    ``said``: where the disk is, in words.
    """
    there = {
        name: why
        for name, why in sorted(refusals.items())
        if not any(each.startswith(_VOLUME) for each in why.split("; "))
    }
    lasts = (any(each.startswith(_DEMANDS) for each in why.split("; ")) for why in there.values())
    elsewhere = sorted(name for name, why in refusals.items() if _by_volume_alone(why))
    choice = chosen_places.of_claim(target.pod.namespace, claim, cluster)
    if not there or not all(lasts) or not choice.why:
        return None
    disk = MisplacedDisk(claim, there, elsewhere)
    why = names(f"{name}: {cause}" for name, cause in there.items())
    reason = (
        f"{said}, where no node can run it ({why}): {choice.why}. It does not start before one can"
    )
    brief = f"{said}, where no node can run it: {choice.brief}"
    remedy = _remedy(disk, choice, target, cluster)
    return Problem(reason, remedy, ProblemCause.NO_TARGET, brief=brief)


def _by_volume_alone(why: str) -> bool:
    return all(each.startswith(_VOLUME) for each in why.split("; "))


def _remedy(
    disk: MisplacedDisk, choice: PlaceChoice, target: SchedulingTarget, cluster: Cluster
) -> str:
    """Return how the disk is made where the VM may run, or how the VM may run where the disk is."""
    namespace = target.pod.namespace
    filled = find(cluster, DATA_VOLUME, namespace, disk.claim)
    vm = filled.owned_by(VM.kind) if filled is not None else ""
    place = " in the dataVolumeTemplates of the VM" if vm else ""
    where = f": its pod may then go to {names(disk.elsewhere)}" if disk.elsewhere else ""
    words = (
        f"{choice.first}{place} and make disk {disk.claim} again for the VM, under another "
        f"name{where}"
    )
    data = "import, upload or restore its data before you delete the old one"
    kind = DATA_VOLUME if filled is not None else PVC
    shown = kubectl("get", kind, disk.claim, namespace, "-o", "yaml")
    change = kubectl("edit", VM, vm, namespace) if vm else shown
    free = names(chosen_places.unbound(namespace, disk.claim, cluster))
    other = f"or use StorageClass {free}, whose volumes every node reaches" if free else ""
    further = (data, other, *_admission(disk, target, cluster))
    return typed(words, choice.command or change, "; ".join(filter(None, further)))


def _admission(disk: MisplacedDisk, target: SchedulingTarget, cluster: Cluster) -> Iterator[str]:
    """Yield how the one node with the disk gets the labels with which the VM may run there, if they
    are all that it lacks.

    Controllers write those with a domain: ``network.harvesterhci.io/vlan10`` is on the nodes with
    that network, and in the affinity of VMs that use it (harvester/harvester:
    pkg/webhook/resources/virtualmachine/mutator.go#getNodeSelectorRequirementFromNetwork).
    """
    if len(disk.there) != 1:
        return
    [(name, why)] = disk.there.items()
    found = list(_lacking(name, why, target, cluster))
    labels = [each for each in found if each is not None]
    if not labels or len(labels) < len(found):
        return
    if written := [each for each in labels if "/" in each.partition("=")[0]]:
        yield f"or see why {name} has no label {names(written)}, which a controller may write"
        return
    command = shell("kubectl", "label", "node", *map(argument, (name, *labels)))
    yield f"or, if such VMs may run on {name}, label it so ({command})"


def _lacking(
    name: str, why: str, target: SchedulingTarget, cluster: Cluster
) -> Iterator[str | None]:
    """Yield the labels that a node lacks; None: it lacks something else, or has another value."""
    affinity, node = target.pod.node_affinity, candidates.scheduler(cluster).state.nodes.get(name)
    given = node.labels if node is not None else {}
    for cause in why.split("; "):
        if cause.startswith(_SELECTOR):
            yield _label(cause.removeprefix(_SELECTOR), given)
        elif cause == _AFFINITY and affinity is not None and len(affinity.terms) == 1:
            [term] = affinity.terms
            for each in sorted(term.labels):
                one = each.operator == IN and len(each.values) == 1
                if not each.matches(given):
                    yield _label(str(each), given) if one else None
            if term.fields:
                yield None
        else:
            yield None


def _label(demand: str, given: Mapping[str, object]) -> str | None:
    """Return a label, ``key=value``, that the node may get; None: not this one, or the node has
    another value.
    """
    key = demand.partition("=")[0]
    domain = key.rpartition("/")[0]
    reserved = any(domain == each or domain.endswith(f".{each}") for each in _RESERVED)
    return None if reserved or key in given else demand
