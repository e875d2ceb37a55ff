"""What a ResourceQuota lacks for an object that the API server refuses, from the words of the refusal.

Source: kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go#checkRequest.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes.kinds import RESOURCE_QUOTA
from virt_admit.model.messages import cut, names
from virt_admit.model.scheduler.resources import amount, show

_REFUSED: Final = re.compile(
    r"exceeded quota: (?P<quota>[\w.-]{1,253})(?:, requested: (?P<requested>\S{1,500}), used: (?P<used>\S{1,500}), "
    r"limited: (?P<limited>\S{1,500}))?"
)
_LONGEST: Final = 200


class ExceededQuota(NamedTuple):
    """A refusal by a quota: its words, and what ends it."""

    words: str
    """With the question whether it ends."""
    remedy: str


def of(said: str, namespace: str) -> ExceededQuota | None:
    """Return what a quota lacks for an object that it refuses. ``said``: what the API server answered; None: no quota."""
    found = _REFUSED.search(said)
    if found is None:
        return None
    wanted, spare = [], []
    amounts = {part: _amounts(found[part] or "") for part in ("requested", "used", "limited")}
    for name, asked in amounts["requested"].items():
        used, limit = amounts["used"].get(name), amounts["limited"].get(name)
        if used is None or limit is None or used + asked <= limit:
            continue
        wanted.append(f"{name} {_words(name, used + asked)}")
        free = f", or ask for at most {_words(name, limit - used)}" if limit > used else ""
        spare.append(f"free {_words(name, used + asked - limit)} of {name} there{free}")
    least = f" to at least {names(wanted)}" if wanted else ""
    ways = ", or ".join((f"raise ResourceQuota {found['quota']}{least}", *spare))
    return ExceededQuota(
        f"{cut(found[0], _LONGEST)}. It goes on by itself once that fits, and not before",
        typed(ways, kubectl("edit", RESOURCE_QUOTA, found["quota"], namespace)),
    )


def _amounts(text: str) -> dict[str, int]:
    pairs = (each.partition("=") for each in text.split(","))
    return {name: amount(_resource(name), value) for name, _, value in pairs if name and value}


def _words(name: str, found: int) -> str:
    return show(_resource(name), found)


def _resource(name: str) -> str:
    """Return ``storage`` for ``requests.storage`` and ``CLASS.storageclass.storage.k8s.io/requests.storage``."""
    return name.rpartition("/")[2].rpartition(".")[2] if "storage" in name else name.partition(".")[2] or name
