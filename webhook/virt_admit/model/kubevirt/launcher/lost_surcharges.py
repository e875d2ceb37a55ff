"""Quotas that Harvester has raised for a migration, and whose limits Rancher has written back since
(harvester/harvester#7178; ``quota_writers`` has the mechanism).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from virt_admit.model.evidence.writes import quota_writers
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NAMESPACE, RESOURCE_QUOTA
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.scheduler.resources import amount, are_quantities, show

_SURCHARGE: Final = "harvesterhci.io/migrating-"
_UNSCALED: Final = "harvesterhci.io/skipResourceQuotaAutoScaling"
READS: Final[Reads] = union(
    quota_writers.READS,
    {RESOURCE_QUOTA: ("spec.hard",), NAMESPACE: (f"metadata.annotations.{quota_writers.BASE}",)},
)
_BASES: Final = {"limits.cpu": "limitsCpu", "limits.memory": "limitsMemory"}
AFTER: Final = (
    ", and lower them again after the migrations; update Harvester to 1.4.2 or later, which raises "
    "it again by itself"
)


def of(vmi: Object, quota: Object | None, cluster: Cluster) -> str:
    """Return that a quota has lost what Harvester added for the migration of a VMI, with who wrote
    it; empty: it has not, or not known.
    """
    if quota is None or not quota_writers.is_of_rancher(quota) or is_unscaled(quota):
        return ""
    key = surcharge_key(vmi)
    added = _parsed(quota.annotations.get(key))
    namespace = find(cluster, NAMESPACE, "", quota.namespace)
    said = namespace.annotations.get(quota_writers.BASE) if namespace is not None else None
    limit = _parsed(said).get("limit")
    base = limit if isinstance(limit, dict) else {}
    hard = quota.at("spec", "hard").map
    lost = []
    for name, field in _BASES.items():
        found = {"added": added.get(name), "base": base.get(field), "hard": hard.get(name)}
        if not all(isinstance(value, str) and value for value in found.values()):
            continue
        if not all(are_quantities({name: value}) for value in found.values()):
            continue
        resource = name.removeprefix("limits.")
        more, least, most = (amount(resource, value) for value in found.values())
        if more > 0 and most <= least:
            lost.append(f"{name} {show(resource, most)}")
    if not lost:
        return ""
    raised = sorted(key for key in quota.annotations if key.startswith(_SURCHARGE))
    keys = f"annotation{'s' if len(raised) > 1 else ''} {names(raised, 200)}"
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


def is_unscaled(quota: Object) -> bool:
    """Return whether Harvester is told not to raise a quota for migrations."""
    return quota.annotations.get(_UNSCALED) == "true"


def surcharge_key(vmi: Object) -> str:
    """Return the annotation of a quota with what Harvester before 1.5 added for a migration."""
    return f"{_SURCHARGE}{vmi.name}"


def _parsed(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
