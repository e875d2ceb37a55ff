"""Charts that Fleet cannot apply, as another field manager owns a field of one of their objects.

Fleet applies charts with Helm 4 since 0.15, which asks for server-side apply. Its agent takes a
conflict for one that a retry solves, and reports none: the Bundle stays WaitApplied, and the
BundleDeployment ``Deployed``. Sources: rancher/fleet:internal/cmd/agent/controller/
bundledeployment_controller.go #ignoreConflict, :internal/helmdeployer/install.go
#configureUpgradeAction; harvester/harvester#10677, pull requests 10386 (an upgrade to 1.8.0 itself
patches KubeVirt) and 10675 (the values of the chart instead), harvester/docs pull request 1058.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from virt_admit.model.commands import about, merge_patch, nested, typed
from virt_admit.model.evidence.writes import field_owners, fleet_objects
from virt_admit.model.evidence.writes.field_owners import OwnedField
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CDI, DEPLOYMENT, KUBEVIRT, MANAGED_CHART, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut, names

READS: Final[Reads] = {
    MANAGED_CHART: ("spec.diff",),
    KUBEVIRT: (),
    CDI: (),
    DEPLOYMENT: ("spec.template.spec.containers.image",),
}
WAITS: Final = "WaitApplied"
_JUDGED: Final = (KUBEVIRT, CDI)
"""The kinds of which who owns their fields is kept (``kube/field_filter.py``)."""
_HAND: Final = "kubectl"
_AGENT: Final = ("cattle-fleet-local-system", "fleet-agent")
_VERSION: Final = re.compile(r":v?(\d{1,4})\.(\d{1,4})\.")
_HELM_4: Final = (0, 15)
_SHORT: Final = 200


class ApplyConflict(NamedTuple):
    """Why Fleet cannot apply a chart, as a clause, and the remedy."""

    reason: str
    remedy: str


class _Held(NamedTuple):
    kind: Kind
    obj: Object
    field: OwnedField
    masked: bool
    """Whether the chart tells Fleet to ignore that the field differs: so it writes the field."""


def of_chart(chart: Object, then: str, cluster: Cluster) -> ApplyConflict | None:
    """Return which field of another manager keeps Fleet from applying a chart; None: none is known
    to, or its agent does not apply as a server.

    ``then``: what follows from the remedy, as a clause.
    """
    found = sorted(_held(chart, cluster), key=lambda each: not each.masked)
    if not found or _applies_otherwise(cluster):
        return None
    first = found[0]
    same = [each for each in found if each.obj is first.obj and each.masked == first.masked]
    managers = names(dict.fromkeys(each.field.manager for each in same))
    since = f" since {first.field.since}" if first.field.since else ""
    fields = names(_shown(each) for each in islice(same, _FEW))
    more = " and others" if len(same) > _FEW else ""
    known = ", which the chart writes too (spec.diff.comparePatches)" if first.masked else ""
    reason = (
        f"Fleet's agent retries and reports no cause, probably as {managers} owns {fields}{more} "
        f"of {first.obj.kind} {first.obj.full_name}{since} (managedFields){known}: server-side "
        "apply of another value is a conflict"
    )
    return ApplyConflict(reason, _remedy(chart, first, then))


_FEW: Final = 2


def _shown(held: _Held) -> str:
    value = held.obj.at(*held.field.path)
    text = json.dumps(value.value) if value.present else "none"
    return f"{held.field.name} ({text})" if len(text) <= _VALUE else held.field.name


_VALUE: Final = 60


def _held(chart: Object, cluster: Cluster) -> Iterator[_Held]:
    """Yield the fields that others own of the objects of a chart: those that it certainly writes,
    and those that kubectl changed by hand."""
    for kind in _JUDGED:
        for obj in cluster.known(kind):
            if fleet_objects.chart_of(obj) == chart.name:
                masks = _masks(chart, kind, obj)
                for field in field_owners.foreign(obj):
                    masked = any(field.path[: len(each)] == each for each in masks)
                    if masked or field.manager.startswith(_HAND):
                        yield _Held(kind, obj, field, masked)


def _masks(chart: Object, kind: Kind, obj: Object) -> Sequence[tuple[str, ...]]:
    """Return the paths of an object whose differences a chart tells Fleet to ignore."""
    patches = (
        each
        for each in chart.at("spec", "diff", "comparePatches").items()
        if each["kind"].text == kind.kind
        and each["name"].text == obj.name
        and (each["namespace"].text or "") == obj.namespace
    )
    pointers = (item.text or "" for each in patches for item in each["jsonPointers"].items())
    return [tuple(each.split("/")[1:]) for each in pointers if each.startswith("/spec/")]


def _applies_otherwise(cluster: Cluster) -> bool:
    """Return whether the agent of Fleet is known to be older than its Helm 4."""
    agent = find(cluster, DEPLOYMENT, *_AGENT)
    if agent is None:
        return False
    boxes = agent.at("spec", "template", "spec", "containers").items()
    found = (_VERSION.search(each["image"].text or "") for each in boxes)
    return any((int(each[1]), int(each[2])) < _HELM_4 for each in found if each is not None)


def _remedy(chart: Object, held: _Held, then: str) -> str:
    """Return how the conflict ends: with the same value in the chart, which changes nothing in the
    cluster."""
    drop = (
        f"when that value is to go again, first take the entry of {cut(held.field.manager, 40)} "
        f"out of metadata.managedFields of {held.obj.kind} {held.obj.name}, and leave that object "
        "to the chart"
    )
    value = held.obj.at(*held.field.path)
    words = f"Give the chart the same value, which ends the conflict, {then}"
    is_known = chart.name == fleet_objects.HARVESTER and held.kind is KUBEVIRT
    if is_known and value.present and len(json.dumps(value.value)) <= _SHORT:
        data = nested(("spec", "values", "kubevirt", *held.field.path), value.value)
        command = merge_patch(MANAGED_CHART, chart.name, chart.namespace, data)
        return typed(words, command, drop)
    see = about("get", held.obj, held.kind, "-o", "yaml", "--show-managed-fields")
    words = f"Set the same value in spec.values of {chart.kind} {chart.name}, {then}"
    return typed(f"{words}; to see who owns what", see, drop)


def owner_of(obj: Object, path: Sequence[str]) -> str:
    """Return the manager besides its chart that owns a field of an object which Fleet applies;
    empty: none is known to."""
    if kinds.of(obj) not in _JUDGED or not fleet_objects.chart_of(obj):
        return ""
    owners = (each.manager for each in field_owners.foreign(obj) if each.path == tuple(path))
    return next(owners, "")
