"""Quotas that Harvester has raised for a migration, and whose limits Rancher has written back since
(harvester/harvester#7178; ``quota_writers`` has the mechanism).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from virt_admit.model.commands import merge_patch, typed
from virt_admit.model.evidence.writes import quota_writers
from virt_admit.model.kubernetes import clock, json_codec
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NAMESPACE, RESOURCE_QUOTA
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.scheduler.resources import CPU, amount, are_quantities, show

_SURCHARGE: Final = "harvesterhci.io/migrating-"
_UNSCALED: Final = "harvesterhci.io/skipResourceQuotaAutoScaling"
READS: Final[Reads] = union(
    quota_writers.READS,
    {RESOURCE_QUOTA: ("spec.hard",), NAMESPACE: (f"metadata.annotations.{quota_writers.BASE}",)},
)
_BASES: Final = {"limits.cpu": "limitsCpu", "limits.memory": "limitsMemory"}
_AFTER: Final = (
    "Harvester takes off what it added as each of them ends, and 1.4.2 or later writes it again by "
    "itself"
)


class LostSurcharge(NamedTuple):
    """What a quota has lost of what Harvester added for migrations."""

    reason: str
    """With who wrote it back, to be put behind what the quota lacks."""
    words: str
    """What gives it back. Harvester's webhook refuses other limits of the namespace meanwhile
    (pkg/webhook/resources/namespace/validator.go#Update)."""
    command: str

    @property
    def remedy(self) -> str:
        """The words with their command."""
        return typed(self.words, self.command, _AFTER)


def of(vmi: Object, quota: Object | None, cluster: Cluster) -> LostSurcharge | None:
    """Return what a quota has lost that Harvester added for the migration of a VMI; None: nothing,
    or not known.
    """
    if quota is None or not quota_writers.is_of_rancher(quota) or is_unscaled(quota):
        return None
    added = _parsed(quota.annotations.get(surcharge_key(vmi)))
    namespace = find(cluster, NAMESPACE, "", quota.namespace)
    said = namespace.annotations.get(quota_writers.BASE) if namespace is not None else None
    limit = _parsed(said).get("limit")
    base = limit if isinstance(limit, dict) else {}
    hard = quota.at("spec", "hard").map
    raised = sorted(key for key in quota.annotations if key.startswith(_SURCHARGE))
    lost: list[str] = []
    whole: dict[str, int] = {}
    for name, field in _BASES.items():
        values = added.get(name), base.get(field), hard.get(name)
        if not all(isinstance(each, str) and are_quantities({name: each}) for each in values):
            continue
        resource = name.removeprefix("limits.")
        more, least, most = (amount(resource, each) for each in values)
        if more > 0 and most <= least:
            lost.append(f"{name} {show(resource, most)}")
            every = (_parsed(quota.annotations[key]).get(name) for key in raised)
            whole[resource] = least + sum(amount(resource, each) for each in every)
    if not lost:
        return None
    keys = f"annotation{'s' if len(raised) > 1 else ''} {names(raised, 200)}"
    return LostSurcharge(_reason(quota, lost, keys), *_step(quota, whole))


def _reason(quota: Object, lost: Sequence[str], keys: str) -> str:
    manager, time = quota_writers.last_writer(quota)
    who = {"agent": "Rancher's agent", "rancher": "Rancher"}.get(manager, f"manager {manager}")
    wrote = f"{who} wrote spec.hard back" if manager else "spec.hard was written back"
    then = clock.instant(time)
    at = f" at {then:%Y-%m-%d %H:%M} UTC" if then is not None else ""
    return (
        f". {wrote} to the limits of Namespace {quota.namespace} ({', '.join(lost)}){at}, after "
        f"Harvester had raised it for migrations ({keys}), and Harvester before 1.4.2 does not "
        "raise it again"
    )


def _step(quota: Object, whole: Mapping[str, int]) -> tuple[str, str]:
    """Return the step that gives a quota its limits and all surcharges, and its command."""
    told = ", ".join(f"limits.{each} {show(each, value)}" for each, value in whole.items())
    words = (
        f"set spec.hard of ResourceQuota {quota.name} to the limits of its namespace and these "
        f"annotations together ({told}), as Harvester refuses other limits of the namespace until "
        "those migrations have ended"
    )
    exact = {
        f"limits.{each}": show(each, value) if each == CPU else str(value)
        for each, value in whole.items()
    }
    hard = {"spec": {"hard": exact}}
    return words, merge_patch(RESOURCE_QUOTA, quota.name, quota.namespace, hard)


def is_unscaled(quota: Object) -> bool:
    """Return whether Harvester is told not to raise a quota for migrations."""
    return quota.annotations.get(_UNSCALED) == "true"


def surcharge_key(vmi: Object) -> str:
    """Return the annotation of a quota with what Harvester before 1.5 added for a migration."""
    return f"{_SURCHARGE}{vmi.name}"


def _parsed(text: str | None) -> Mapping[str, Any]:
    found = json_codec.embedded(text)
    return found if isinstance(found, dict) else {}
