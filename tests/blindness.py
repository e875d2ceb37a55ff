"""The ways in which a part of a cluster can be hidden."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.random_vms import NAMESPACES, Manifest
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object


@dataclass(frozen=True)
class Hidden:
    """A cluster of which something was not read."""

    what: str
    cluster: Snapshot


def everything(objects: Sequence[Manifest], time: str | None = None) -> Snapshot:
    """Return the whole cluster."""
    return Snapshot(map(Object, objects), ["*"], (), "v1.34.0", time)


def kinds_of(objects: Sequence[Manifest]) -> list[kinds.Kind]:
    """Return the kinds that are known of these objects, in one order."""
    return sorted(
        {kind for each in objects if (kind := kinds.of(Object(each))) is not None}, key=str
    )


def hidings(objects: Sequence[Manifest], chance: Random) -> Iterator[Hidden]:
    """Yield the cluster without each of its kinds, without one namespace of each,
    and without fields.
    """
    found = set(kinds_of(objects))
    more = (kinds.MACHINE_CONFIG_POOL, kinds.MACHINE_DEPLOYMENT, kinds.PDB, kinds.VMIM)
    for kind in sorted({*found, *more}, key=str):
        yield without_kind(objects, kind)
        if kind in found and kind.namespaced:
            yield _without_namespace(objects, kind, chance.choice(NAMESPACES))
        if kind in found:
            yield _without_some(objects, kind, chance)
    for what, strip in _FIELDS.items():
        yield without_field(objects, what, strip)


def _is_of(each: Manifest, kind: kinds.Kind) -> bool:
    return kinds.of(Object(each)) is kind


def without_kind(objects: Sequence[Manifest], kind: kinds.Kind, time: str | None = None) -> Hidden:
    """Return the cluster in which a kind may not be listed."""
    kept = [Object(each) for each in objects if not _is_of(each, kind)]
    return Hidden(f"{kind}", Snapshot(kept, ["*"], [kind.resource], "v1.34.0", time))


def _without_some(objects: Sequence[Manifest], kind: kinds.Kind, chance: Random) -> Hidden:
    """Return the cluster with some objects of a kind that is complete nowhere."""
    kept = [Object(each) for each in objects if not _is_of(each, kind) or chance.random() < 0.5]
    return Hidden(
        f"some {kind}",
        Snapshot(kept, [other.resource for other in kinds.ALL if other is not kind], (), "v1.34.0"),
    )


def _without_namespace(objects: Sequence[Manifest], kind: kinds.Kind, hidden: str) -> Hidden:
    kept = [
        Object(each)
        for each in objects
        if not _is_of(each, kind) or each["metadata"].get("namespace") != hidden
    ]
    namespaces = {each["metadata"].get("namespace") for each in objects} - {hidden, None}
    complete = [other.resource for other in kinds.ALL if other is not kind]
    complete += [f"{namespace}/{kind.resource}" for namespace in sorted(namespaces)]
    return Hidden(f"{kind} in {hidden}", Snapshot(kept, complete, (), "v1.34.0"))


def without_field(
    objects: Sequence[Manifest], what: str, strip: Callable[[Manifest], None]
) -> Hidden:
    """Return the cluster after ``strip`` of each object of a kind, the first word of ``what``."""
    copied = copy.deepcopy(list(objects))
    for each in copied:
        if each["kind"] == what.split(maxsplit=1)[0]:
            strip(each)
    return Hidden(what, everything(copied))


_FIELDS: Final[dict[str, Callable[[Manifest], None]]] = {
    "Node status.allocatable": lambda node: node["status"].pop("allocatable"),
    "VirtualMachineInstance status.conditions": lambda vmi: vmi["status"].pop("conditions"),
    "VirtualMachine spec": lambda vm: vm.pop("spec"),
    "ResourceQuota status.used": lambda quota: quota["status"].pop("used"),
}
"""Fields that every such object has in a real cluster,
so that an object without one was not read as a whole.
"""
