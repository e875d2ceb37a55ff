"""What a ResourceQuota lacks for an object that the API server refuses, from the words of the
refusal or from its figures.

CDI fills a claim by way of a temporary one of the same size, ``prime-UID``, so that a quota counts
the disk twice meanwhile. Sources:
kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go#checkRequest;
kubevirt/containerized-data-importer:pkg/controller/populators/populator-base.go#createPVCPrime,
issue #3511.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import quotas
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import RESOURCE_QUOTA
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import cut, names
from virt_admit.model.scheduler.resources import amount, show

_REFUSED: Final = re.compile(
    r"exceeded quota: (?P<quota>[\w.-]{1,253})(?:, requested: (?P<requested>\S{1,500}), used: "
    r"(?P<used>\S{1,500}), limited: (?P<limited>\S{1,500}))?"
)
_TEMPORARY: Final = re.compile(r'"(?P<claim>prime-[\w-]{1,250})" is forbidden: exceeded quota')
_LONGEST: Final = 200


class ExceededQuota(NamedTuple):
    """A refusal by a quota: its words, and what ends it."""

    words: str
    """With the question whether it ends."""
    remedy: str


def of(said: str, namespace: str) -> ExceededQuota | None:
    """Return what a quota lacks for an object that it refuses.

    ``said``: what the API server answered; None: no quota.
    """
    found = _REFUSED.search(said)
    if found is None:
        return None
    temporary = _TEMPORARY.search(said)
    wanted, spare = [], []
    amounts = {part: _amounts(found[part] or "") for part in ("requested", "used", "limited")}
    for name, asked in amounts["requested"].items():
        used, limit = amounts["used"].get(name), amounts["limited"].get(name)
        if used is None or limit is None or used + asked <= limit:
            continue
        wanted.append(f"{name} {_words(name, used + asked)}")
        # the disk itself is part of what is used
        most = (limit - used + asked) // 2 if temporary else limit - used
        free = (
            f", or ask for at most {_words(name, most)}"
            if most > 0 and (not temporary or asked > 1)
            else ""
        )
        spare.append(f"free {_words(name, used + asked - limit)} of {name} there{free}")
    least = f" to at least {names(wanted)}" if wanted else ""
    ways = ", or ".join((f"raise ResourceQuota {found['quota']}{least}", *spare))
    refused = f"{_TWICE} ({temporary['claim']}), which is refused: " if temporary else ""
    return ExceededQuota(
        f"{refused}{cut(found[0], _LONGEST)}. It goes on by itself once that fits, and not before",
        typed(ways, kubectl("edit", RESOURCE_QUOTA, found["quota"], namespace)),
    )


_TWICE: Final = "CDI needs its size twice while it fills it, the second time for a temporary claim"


def of_temporary(claim: Object, name: str, cluster: Cluster) -> ExceededQuota | None:
    """Return which quota refuses a temporary claim like this one, by what it has counted; None:
    none does, or not known.

    ``name``: that of the temporary claim.
    """
    size = claim.at("spec", "resources", "requests", "storage").text or "0"
    of_class = f"{claim.at('spec', 'storageClassName').text}.storageclass.storage.k8s.io/"
    asked = {f"{prefix}{_STORAGE}": size for prefix in ("", of_class)}
    asked |= {f"{prefix}{_CLAIMS}": "1" for prefix in ("", of_class, "count/")}
    for quota in cluster.known(RESOURCE_QUOTA, claim.namespace):
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
            return of(
                f'"{name}" is forbidden: exceeded quota: {quota.name}, {figures}', claim.namespace
            )
    return None


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
