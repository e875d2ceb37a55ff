"""Which objects name each other, whatever their kinds are.

A VM that does not start is often held by an object of another operator, several references away:
VM, claim, volume, the volume of a storage operator, its replica. No table of kinds is complete, but
nearly every reference in Kubernetes is the name of an object in a field: ``ownerReferences``,
``claimRef``, ``spec.volumeName``, ``status.currentImage``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.events import EVENT
from virt_admit.model.kubernetes.kinds import NAMESPACE, NODE, POD, PVC, STORAGE_CLASS, VM, VMI
from virt_admit.model.kubernetes.objects import Object

_FARTHEST: Final = 4
"""VM, claim, volume, volume of the storage operator, its replica:
farther objects concern others as well.
"""
_MOST: Final = 200
_SHARED: Final = 20
"""An object that more others name is shared by all:
it leads to volumes that have nothing to do with each other.
"""
_HUBS: Final = frozenset((NODE.kind, STORAGE_CLASS.kind))
"""Kinds of shared objects, in small clusters too.
Storage operators call their own nodes so as well.
"""
_UNIQUE: Final = 20
"""The length from which a name is taken to be that of one object, in whatever namespace:
``pvc-`` and a UUID.
"""
_DEEPEST: Final = 32
_IN_WORDS: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{4,}[a-z0-9])")
"""A name in a message. Shorter ones are words."""

_WITH_PLACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9./_-]*")
_UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A UID: controllers make names and labels of it, as in ``prime-<UID of the claim>``."""

_UNNAMED: Final = frozenset(
    ("type", "reason", "status", "op", "operator", "effect", "key", "mode", "protocol")
)
"""Fields whose texts are words of an API and not names."""
_LEAVES: Final = frozenset(
    (
        *("ConfigMap", "Secret", "ServiceAccount", "Lease", "ControllerRevision", "PriorityClass"),
        *("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "CustomResourceDefinition"),
        *("EndpointSlice", "Endpoints", "CSIDriver", "CSINode", NAMESPACE.kind, EVENT.kind),
    )
)
"""Kinds that many objects name and that report nothing about themselves."""

_NUMEROUS: Final = frozenset((VM.kind, VMI.kind, POD.kind, PVC.kind))


Address = tuple[str, str, str, str]
"""Group, kind, namespace and name: a live cluster makes a new view of an object at each look-up."""


class Mention(NamedTuple):
    """A text in an object that may be the name of another one."""

    name: str
    namespace: str
    """The namespace that stands beside it; empty: none does."""
    kind: str
    """The kind that stands beside it; empty: none does."""


class Near(NamedTuple):
    """An object, and over how many others it is reached."""

    distance: int
    obj: Object


class Mentions:
    """The objects of a cluster and who names whom. Reads each object once.

    Args:
        objects: the objects of the cluster.
        namespaces: the namespaces that matter. Guests, pods and claims of others are left out.
        start: nodes among these count; others are left out, because all pods of a node name it.
    """

    def __init__(
        self, objects: Iterable[Object], namespaces: Collection[str], start: Iterable[Object] = ()
    ) -> None:
        self._by_name: dict[str, dict[str, list[Object]]] = {}
        """By name or UID, then by namespace."""
        kept = [obj for obj in objects if _counts(obj, namespaces)]
        kept += [obj for obj in start if kinds.of(obj) is NODE]
        for obj in kept:
            for key in filter(None, (obj.name, obj.metadata["uid"].text)):
                self._by_name.setdefault(key, {}).setdefault(obj.namespace, []).append(obj)
        self._kept = kept

    @cached_property
    def _by(self) -> Mapping[Address, Mapping[Address, Object]]:
        """By the address of an object those that name it, by their own."""
        found: dict[Address, dict[Address, Object]] = {}
        for obj in self._kept:
            for named in self._named_by(obj):
                found.setdefault(_address(named), {})[_address(obj)] = obj
        return found

    def named_in(self, texts: Iterable[str]) -> list[Object]:
        """Return the objects that texts name together with their kinds, such as
        ``Plan system-upgrade/agent``.
        """
        found: dict[Address, Object] = {}
        for text in texts:
            words = _WITH_PLACE.findall(text)
            kinds_named = set(words)
            for word in words:
                before, _, name = word.rpartition("/")
                places = self._by_name.get(name.rstrip(".:,"), {})
                for obj in chain.from_iterable(islice(places.values(), _SHARED)):
                    if obj.kind in kinds_named and before in ("", obj.namespace):
                        found[_address(obj)] = obj
        return list(found.values())

    def around(self, start: Iterable[Object], *, forward: bool = False) -> list[Near]:
        """Return the objects that are reached from some, these first, then the nearest.

        Other guests are left out. ``forward``: only objects that those before them name, for which
        most objects need not be read.
        """
        found = {_address(obj): Near(0, obj) for obj in start}
        own = {(near.obj.namespace, near.obj.name) for near in found.values()}
        queue = deque(found.values())
        most = len(found) + _MOST
        while queue and len(found) < most:
            near = queue.popleft()
            reached = self._named_by(near.obj) if forward else self._neighbours(near)
            for obj in reached if near.distance < _FARTHEST else ():
                address = _address(obj)
                if address not in found and _guest(obj) in (None, *own):
                    found[address] = Near(near.distance + 1, obj)
                    queue.append(found[address])
        in_order = sorted(found.items(), key=lambda item: (item[1].distance, item[0]))
        return [near for _, near in in_order]

    def _neighbours(self, near: Near) -> Iterator[Object]:
        yield from self._named_by(near.obj)
        by = self._by.get(_address(near.obj), {})
        if not near.distance or (len(by) <= _SHARED and near.obj.kind not in _HUBS):
            yield from by.values()

    def _named_by(self, obj: Object) -> Iterator[Object]:
        """Yield the objects that an object names, and those with its own name in its namespace."""
        uids = (
            Mention(uid, "", "")
            for each in (obj.name, *obj.labels.values())
            for uid in _UID.findall(each)
        )
        for mention in (Mention(obj.name, obj.namespace, ""), *uids, *_mentions(obj)):
            places = self._by_name.get(mention.name)
            for other in chain.from_iterable(_meant(mention, obj, places)) if places else ():
                if mention.kind in ("", other.kind):
                    yield other


def _address(obj: Object) -> Address:
    return obj.group, obj.kind, obj.namespace, obj.name


def _guest(obj: Object) -> tuple[str, str] | None:
    """Return namespace and name of the guest that an object is or that its pod runs; None:
    it is none of a guest.
    """
    if obj.kind in (VM.kind, VMI.kind):
        return obj.namespace, obj.name
    owner = obj.controller if obj.kind == POD.kind else None
    if owner is None or owner["kind"].text != VMI.kind:
        return None
    return obj.namespace, owner["name"].text or ""


def _counts(obj: Object, namespaces: Collection[str]) -> bool:
    elsewhere = obj.kind in _NUMEROUS and obj.namespace not in namespaces
    return obj.kind not in _LEAVES and kinds.of(obj) is not NODE and not elsewhere


def _meant(
    mention: Mention, obj: Object, places: Mapping[str, list[Object]]
) -> Iterator[Iterable[Object]]:
    """Yield the objects that a text in an object may mean, of all with that name by namespace."""
    unique = len(mention.name) >= _UNIQUE and not mention.namespace
    near = dict.fromkeys(("", mention.namespace or obj.namespace))
    for namespace in islice(places, _SHARED) if unique else near:
        yield islice(places.get(namespace, ()), _SHARED)


def _mentions(obj: Object) -> Iterator[Mention]:
    """Yield the texts of an object that may be names. Labels are left out: they group objects."""
    for key, value in obj.data.items():
        if key == "metadata":
            metadata: Mapping[str, Any] = value if isinstance(value, dict) else {}
            parts = {each: metadata.get(each) for each in ("annotations", "ownerReferences")}
            yield from _texts(parts, 0)
        elif key not in ("apiVersion", "kind"):
            yield from _texts({key: value}, 0)


def _texts(value: Any, depth: int) -> Iterator[Mention]:
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for item in value:
            yield from (
                (Mention(item, "", ""),) if isinstance(item, str) else _texts(item, depth + 1)
            )
    elif isinstance(value, dict):
        namespace, kind = (
            each if isinstance(each := value.get(key), str) else "" for key in ("namespace", "kind")
        )
        for key, item in value.items():
            if not isinstance(item, str):
                yield from _texts(item, depth + 1)
            elif key == "message":
                yield from (
                    Mention(word, "", "")
                    for word in _IN_WORDS.findall(item)
                    if "-" in word or "." in word
                )
            elif key not in _UNNAMED:
                before, _, name = item.rpartition("/")
                yield Mention(name, before or namespace, kind if key == "name" else "")
