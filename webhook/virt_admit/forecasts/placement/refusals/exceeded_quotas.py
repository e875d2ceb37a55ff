"""What a ResourceQuota lacks for an object that the API server refuses, from the words of the
refusal or from its figures.

CDI fills a claim by way of a temporary one of the same size, ``prime-UID``, and unpacks some images
in a third one, so that a quota counts the disk two or three times meanwhile. That third one is a
file system, so that it is larger by its overhead, 6% unless it is set. Sources:
kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go#checkRequest;
kubevirt/containerized-data-importer:pkg/controller/populators/populator-base.go#createPVCPrime,
pkg/controller/import-controller.go#requiresScratchSpace,
pkg/controller/util.go#createScratchPersistentVolumeClaim,
pkg/controller/clone/planner.go#createDesiredClaim, doc/scratch-space.md, issue #3511.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import quotas
from virt_admit.model.commands import typed
from virt_admit.model.evidence.writes import quota_writers
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, RESOURCE_QUOTA
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut, names
from virt_admit.model.scheduler.resources import CPU, MEMORY, amount, show

_POPULATORS: Final = "cdi.kubevirt.io/storage.usePopulator"
READS: Final[Reads] = {
    DATA_VOLUME: (f"metadata.annotations.{_POPULATORS}", "spec.contentType", "spec.source"),
    RESOURCE_QUOTA: ("spec", "status", *quota_writers.READS[RESOURCE_QUOTA]),
}

_REFUSED: Final = re.compile(
    r"exceeded quota: (?P<quota>[\w.-]{1,253})(?:, requested: (?P<requested>\S{1,500}), used: "
    r"(?P<used>\S{1,500}), limited: (?P<limited>\S{1,500}))?"
)
_CLAIM: Final = re.compile(r'"(?P<claim>[\w.-]{1,253})" is forbidden: exceeded quota')
_LONGEST: Final = 200
SCRATCH: Final = "-scratch"
"""How the name of the claim ends in which CDI unpacks an image."""
_OVERHEAD: Final = Fraction(50, 47)
_GI: Final = 2**30
_MI: Final = 2**20


class ExceededQuota(NamedTuple):
    """A refusal by a quota: its words, and what ends it."""

    words: str
    """With the question whether it ends."""
    remedy: str
    claim: str = ""
    """The claim that is refused; empty: it is none, or not known."""
    refusal: str = ""
    """The words of the API server alone."""
    alone: str = ""
    """What to add to these where the object alone is larger than the quota."""
    fits: bool = False
    """Whether the quota is known to have room for it by now."""
    quota: Object | None = None
    """None: not known."""
    requested: Mapping[str, int] = MappingProxyType({})
    lacking: Mapping[str, int] = MappingProxyType({})
    """How much of each resource is missing for the object alone."""


class Filling(NamedTuple):
    """The claims that CDI has in the namespace of a disk besides its own while it fills it; None:
    perhaps.
    """

    temporary: bool | None = False
    unpacks: bool | None = False

    def still(self, refused: str) -> Filling:
        """Return those that come after the claim that was refused."""
        if not refused.startswith("prime-"):
            return self
        return Filling(unpacks=False if refused.endswith(SCRATCH) else self.unpacks)

    @property
    def sure(self) -> list[Fraction]:
        """The sizes of those that are known, in disks."""
        return list(self._sizes(True))

    @property
    def perhaps(self) -> list[Fraction]:
        return list(self._sizes(None))

    def _sizes(self, known: bool | None) -> Iterator[Fraction]:
        if self.temporary is known:
            yield Fraction(1)
        if self.unpacks is known:
            yield _OVERHEAD


_NOTHING: Final = Filling()
_UNPACKED: Final = ("glance", "registry", "upload")
_MAY_BE_UNPACKED: Final = ("gcs", "http", "imageio", "s3")
_COPIED: Final = ("pvc", "snapshot")


def filling(disk: Object) -> Filling:
    """Return which claims CDI has while it fills a data volume, besides its own.

    The temporary one of a copy is in the namespace of its source.
    """
    source, said = disk.at("spec", "source"), disk.annotations.get(_POPULATORS)
    temporary = {"true": True, "false": False}.get(said or "")
    for kind in _COPIED:
        if source[kind].present:
            here = source[kind]["namespace"].text in (None, "", disk.namespace)
            return Filling(temporary if here else False)
    if disk.at("spec", "sourceRef").present:
        return Filling(None if temporary is not False else False)
    by_node = source.at("registry", "pullMethod").text == "node"
    if disk.at("spec", "contentType").text == "archive":
        return Filling(temporary, True)
    if any(source[kind].present for kind in _UNPACKED) and not by_node:
        return Filling(temporary, True)
    return Filling(temporary, None if any(source[k].present for k in _MAY_BE_UNPACKED) else False)


def of(
    said: str, namespace: str, held: Filling = _NOTHING, cluster: Cluster | None = None
) -> ExceededQuota | None:
    """Return what a quota lacks for an object that it refuses.

    ``said``: what the API server answered; None: no quota. ``held``: what else of a disk it counts
    at the same time. ``cluster``: where its owner, and its other limits then, are looked up.
    """
    found = _REFUSED.search(said)
    if found is None:
        return None
    named = _CLAIM.search(said)
    refused = named["claim"] if named else ""
    temporary, held = refused.startswith("prime-"), held.still(refused)
    amounts = {part: _amounts(found[part] or "") for part in ("requested", "used", "limited")}
    quota = find(cluster, RESOURCE_QUOTA, namespace, found["quota"]) if cluster else None
    if held.sure or held.perhaps:
        _add_other_limits(amounts, quota)
    wanted, spare, alone = [], [], ""
    for name, asked in amounts["requested"].items():
        used, limit = amounts["used"].get(name), amounts["limited"].get(name)
        total = asked + _more(name, asked, held.sure)
        if used is None or limit is None or used + total <= limit:
            continue
        wanted.append(f"{name} {_words(name, used + total)}{_later(name, used, asked, held)}")
        if total > limit:  # whatever else uses it
            alone = ". That alone is more than the quota"
            if _POD.search(said) and _resource(name) in (CPU, MEMORY):
                alone += _OVERHEAD_OF_POD if _resource(name) == MEMORY else ""
                spare.append(_smaller(name, used, total, limit))
            continue
        spare.append(
            f"free {'at least ' if held.perhaps else ''}"
            f"{_words(name, used + total - limit)} of {name} there"
            f"{_at_most(name, limit - used, asked, held, temporary)}"
        )
    least = f" to at least {names(wanted, 200)}" if wanted else ""
    first, command = quota_writers.raising(found["quota"], namespace, quota, least)
    ways = ", or ".join((first, *spare))
    begin = f"{_TWICE} ({refused}), which is refused: " if temporary else ""
    refusal = f"{begin}{cut(found[0], _LONGEST)}"
    return ExceededQuota(
        f"{refusal}{alone}. {_ends(held)}",
        typed(ways, command),
        refused,
        refusal,
        alone,
        _fits(amounts["requested"], quota),
        quota,
        amounts["requested"],
        _lacking(**amounts),
    )


def _lacking(
    requested: Mapping[str, int], used: Mapping[str, int], limited: Mapping[str, int]
) -> dict[str, int]:
    known = (name for name in requested if name in used and name in limited)
    lacks = {name: used[name] + requested[name] - limited[name] for name in known}
    return {name: lack for name, lack in lacks.items() if lack > 0}


def _smaller(name: str, used: int, asked: int, limit: int) -> str:
    """Return how much smaller a VM is to be that alone is larger than a quota."""
    alone = _words(name, asked - limit)
    if not used:
        return f"make the VM smaller by at least {alone} of {name}"
    there = f"{alone} of {name} and free {_words(name, used)} there"
    if used >= limit:
        return f"make the VM smaller by at least {there}"
    least = _words(name, used + asked - limit)
    return f"make the VM smaller by at least {least} of {name} (or by {there})"


def has_room(quota: Object) -> bool:
    """Return whether a quota has something left of each of its limits, as far as known."""
    return _fits(dict.fromkeys(quotas.hard_limits(quota), 1), quota)


def _fits(requested: Mapping[str, int], quota: Object | None) -> bool:
    """Return whether a quota has room for what it once refused, as far as known."""
    if quota is None or not requested:
        return False
    limits, used = quotas.hard_limits(quota), quota.at("status", "used")
    return all(
        name not in limits
        or (used[name].text and amount(_resource(name), used[name].text) + asked <= limits[name])
        for name, asked in requested.items()
    )


_POD: Final = re.compile(r'\bpods? \\?"')
_OVERHEAD_OF_POD: Final = " (what virt-launcher needs comes on top of the VM)"
_TWICE: Final = "CDI needs its size twice while it fills it, the second time for a temporary claim"


def _ends(held: Filling) -> str:
    """Return whether that ends, with the claims that have to fit."""
    parts = (
        ("a temporary claim (prime-UID)", held.temporary),
        (f"one to unpack the image ({SCRATCH[1:]})", held.unpacks),
    )
    more = names((words for words, known in parts if known), 200)
    if not more:
        perhaps = "It does not go on before that fits" if held.perhaps else ""
        return perhaps or "It goes on by itself once that fits, and not before"
    return (
        f"While CDI fills it, it needs {more.replace(', ', ' and ')} of that size as well. It goes "
        "on by itself once all fit"
    )


def _more(name: str, asked: int, sizes: list[Fraction]) -> int:
    """Return what a quota counts under a name for further claims of one disk."""
    return -(-sum(sizes) * asked // 1) if _is_storage(name) else len(sizes)


def _later(name: str, used: int, asked: int, held: Filling) -> str:
    """Return in brackets what is enough once the disk is filled, and what may be needed before."""
    said = []
    if held.sure:
        said.append(f"{_words(name, used + asked)} once it is filled")
    if held.perhaps:
        more = _words(name, _more(name, asked, held.perhaps))
        said.append(f"up to {more} more while CDI fills it")
    return f" ({'; '.join(said)})" if said else ""


def _at_most(name: str, left: int, asked: int, held: Filling, temporary: bool) -> str:
    """Return the size of a disk that fits; empty: none does that may still hold the image."""
    if not _is_storage(name):
        return ""
    # the disk itself is part of what is used
    left, own = (left + asked, 2) if temporary else (left, 1)
    most = int(left / (own + sum(held.sure) + sum(held.perhaps)))
    unit = _GI if most >= _GI else _MI
    most = most // unit * unit
    return f", or ask for at most {_words(name, most)}" if most * 2 >= asked and most else ""


def _is_storage(name: str) -> bool:
    return name.endswith(_STORAGE)


def _add_other_limits(amounts: Mapping[str, dict[str, int]], quota: Object | None) -> None:
    """Add the limits of a quota that the first of several claims does not exceed."""
    if quota is None:
        return
    size = amounts["requested"].get(_STORAGE, 0)
    asked = {_STORAGE: size, _CLAIMS: 1, f"count/{_CLAIMS}": 1}
    limits, used = quotas.hard_limits(quota), quota.at("status", "used")
    for name, wanted in asked.items():
        if wanted and name in limits and used[name].text and name not in amounts["requested"]:
            amounts["requested"][name] = wanted
            amounts["used"][name] = amount(_resource(name), used[name].text)
            amounts["limited"][name] = limits[name]


def of_temporary(claim: Object, name: str, held: Filling, cluster: Cluster) -> ExceededQuota | None:
    """Return which quota refuses a temporary claim like this one, by what it has counted; None:
    none does, or not known.

    ``name``: that of the temporary claim.
    """
    size = claim.at("spec", "resources", "requests", "storage").text or "0"
    storage_class = claim.at("spec", "storageClassName").text or ""
    return of_claim(name, claim.namespace, storage_class, size, held, cluster)


def scratch_size(claim: Object) -> str:
    """Return the size of the claim in which CDI unpacks an image for another one."""
    size = claim.at("spec", "resources", "requests", "storage").text or "0"
    return str(int(-(-amount("storage", size) * _OVERHEAD // 1)))


def of_claim(
    name: str, namespace: str, storage_class: str, size: str, held: Filling, cluster: Cluster
) -> ExceededQuota | None:
    """Return which quota refuses a claim of this class and size, by what it has counted, with each
    of its limits that does; None: none does, or not known.
    """
    of_class = f"{storage_class}.storageclass.storage.k8s.io/"
    asked = {f"{prefix}{_STORAGE}": size for prefix in ("", of_class)}
    asked |= {f"{prefix}{_CLAIMS}": "1" for prefix in ("", of_class, "count/")}
    for quota in cluster.known(RESOURCE_QUOTA, namespace):
        if quota.at("spec", "scopes").present or quota.at("spec", "scopeSelector").present:
            continue  # those count pods
        limits, used = quotas.hard_limits(quota), quota.at("status", "used")
        lacking = {
            key: wanted
            for key, wanted in asked.items()
            if key in limits
            and used[key].text
            and amount(_resource(key), used[key].text) + amount(_resource(key), wanted)
            > limits[key]
        }
        if lacking:
            parts = (
                ",".join(f"{key}={value}" for key, value in lacking.items()),
                ",".join(f"{key}={used[key].text}" for key in lacking),
                ",".join(f"{key}={_words(key, limits[key])}" for key in lacking),
            )
            figures = f"requested: {parts[0]}, used: {parts[1]}, limited: {parts[2]}"
            said = f'"{name}" is forbidden: exceeded quota: {quota.name}, {figures}'
            return of(said, namespace, held, cluster)
    return None


def limits(refused: ExceededQuota) -> str:
    """Return the limits of a quota that refuse an object, with what is used of each."""
    quota = refused.quota
    if quota is None:
        return ""
    hard, used = quotas.hard_limits(quota), quota.at("status", "used")
    taken = {name: amount(_resource(name), used[name].text or "0") for name in refused.lacking}
    return names(
        (
            f"{name} {_words(name, hard[name])}"
            f"{f' ({_words(name, taken[name])} used)' if taken[name] else ''}"
            for name in refused.lacking
        ),
        300,
    )


_CLAIMS: Final = "persistentvolumeclaims"
_STORAGE: Final = "requests.storage"


def _amounts(text: str) -> dict[str, int]:
    pairs = (each.partition("=") for each in text.split(","))
    return {name: amount(_resource(name), value) for name, _, value in pairs if name and value}


def _words(name: str, found: int) -> str:
    return show(_resource(name), found)


def _resource(name: str) -> str:
    """Return ``storage`` for ``requests.storage`` and
    ``CLASS.storageclass.storage.k8s.io/requests.storage``.
    """
    return (
        name.rpartition("/")[2].rpartition(".")[2]
        if "storage" in name
        else name.partition(".")[2] or name
    )
