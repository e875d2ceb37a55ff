"""Upgrades of Harvester that wait for a chart which Fleet does not get ready,
or that cannot be started for it.

The job of the upgrade waits for each ManagedChart without a limit. Fleet compares the objects of a
chart with those in the cluster: a field that the schema of their CustomResourceDefinition does not
have is dropped by the API server, so the object stays Modified. Helm never updates the definitions
in the folder ``crds`` of a chart that is installed. Sources:
harvester/harvester:package/upgrade/upgrade_manifests.sh#wait_managed_chart;
rancher/fleet:pkg/apis/fleet.cattle.io/v1alpha1/ bundle_types.go#NonReadyResource,
:internal/cmd/agent/deployer/monitor/updatestatus.go#modified; harvester/docs#780; before an upgrade
harvester/harvester:pkg/webhook/resources/upgrade/validator.go#checkManagedCharts, also charts that
are paused. Helm compares two charts, and the live object only of kinds that it knows
(helm/helm:pkg/kube/client.go#createPatch).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any, Final

from virt_admit.model.commands import about, argument, merge_patch, shell, typed
from virt_admit.model.evidence import unready_pods
from virt_admit.model.evidence.writes.fleet_objects import HARVESTER, LOCAL
from virt_admit.model.kubernetes import clock, json_codec, kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    CDI,
    DEPLOYMENT,
    FLEET_BUNDLE,
    JOB,
    KUBEVIRT,
    MANAGED_CHART,
    STORAGE_CLASS,
    Kind,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.units import show
from virt_admit.model.kubevirt.instances import storage
from virt_admit.model.kubevirt.instances.storage import DEFAULT_FOR_ALL
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, cut_middle, names
from virt_admit.model.node_updates import harvester_upgrades, update_orders
from virt_admit.model.node_updates.rancher import (
    apply_conflicts,
    helm_releases,
    left_charts,
    rendered_certificates,
)
from virt_admit.model.node_updates.update_orders import StandingOrder

_STAGE: Final = "SystemServicesUpgraded"
_CHARTS: Final = ("harvester-crd", "harvester", "rancher-monitoring-crd", "rancher-logging-crd")
"""Those for which the job waits, in this order."""
READS: Final[Reads] = union(
    clock.READS,
    harvester_upgrades.READS,
    apply_conflicts.READS,
    helm_releases.READS,
    left_charts.READS,
    rendered_certificates.READS,
    unready_pods.READS,
    {
        MANAGED_CHART: ("spec.paused", "status"),
        FLEET_BUNDLE: ("spec.correctDrift.enabled", "spec.forceSyncGeneration"),
        JOB: ("status.active",),
        KUBEVIRT: (),
        CDI: (),
        STORAGE_CLASS: (f"metadata.annotations.{DEFAULT_FOR_ALL}",),
    },
)
_COMPARED: Final = (KUBEVIRT, CDI)
"""The kinds of which a live cluster tells whether the object has a field."""
_DEFINITION: Final = kinds.guess("apiextensions.k8s.io/v1", "CustomResourceDefinition")._replace(
    namespaced=False
)
"""Only snapshots hold it."""
_USUAL: Final = timedelta(minutes=30)
"""A chart with all its images is installed by then."""
_WORDS: Final = 200


def standing(cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield the upgrade of Harvester that waits for a chart."""
    for upgrade in harvester_upgrades.starting(cluster):
        stage, since = harvester_upgrades.stage(upgrade)
        lasts = clock.elapsed(since, cluster) if stage == _STAGE else None
        if lasts is not None and lasts >= _USUAL:
            late = _waiting(cluster)[:1]
            waits = [_described(chart, _GOES_ON, cluster) for chart in late]
            if not late:
                held = helm_releases.held(_RELEASES, _GOES_ON, cluster)
                waits = [(each.reason, "", each.remedy) for each in islice(held, 1)]
            yield from (_order(upgrade, lasts, each, cluster) for each in waits)


_GOES_ON: Final = "after which the upgrade goes on by itself"
_FLEET: Final = "cattle-fleet-system"
_RELEASES: Final = ((_FLEET, "fleet-crd"), (_FLEET, "fleet"), ("cattle-system", "rancher-webhook"))
"""The job awaits new versions of them (harvester:package/upgrade/lib.sh, rancherDependencies)."""


def _waiting(cluster: Cluster) -> Sequence[Object]:
    """Return the charts that are not ready for long.

    The upgrade pauses those whose turn has not come.
    """
    known = {each.name: each for each in cluster.known(MANAGED_CHART, LOCAL)}
    own = (known[name] for name in _CHARTS if name in known)
    return [
        each for each in own if not each.at("spec", "paused").boolean and _is_late(each, cluster)
    ]


def refusals(cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield the charts for which Harvester refuses to start an upgrade, while none is under way."""
    charts = list(cluster.known(MANAGED_CHART, LOCAL))
    is_harvester = any(each.name == HARVESTER for each in charts)
    if is_harvester and next(harvester_upgrades.upgrades(cluster), None) is None:
        for chart in sorted(charts, key=lambda each: each.name):
            if chart.condition("Ready")["status"].text in ("False", "Unknown"):
                yield _refusal(chart, cluster)


_OWN_CLASS: Final = "harvester-longhorn"


def _refusal(chart: Object, cluster: Cluster) -> StandingOrder:
    late = clock.has_lasted(update_orders.since(chart.condition("Ready")), _USUAL, cluster)
    if gone := left_charts.upgrade_of(chart, cluster):
        return left_charts.refusal(chart, gone, certain=late)
    which, why, remedy = _described(chart, "after which an upgrade can be started", cluster)
    reason = f"Harvester refuses to start an upgrade while a chart is not ready: {which}{why}"
    brief = f"while it is not ready, Harvester refuses to start an upgrade{why}"
    return StandingOrder(chart, reason, remedy, late, brief)


def _is_late(chart: Object, cluster: Cluster) -> bool:
    ready = chart.condition("Ready")
    if ready["status"].text != "False" or chart.at("status", "summary", "ready").integer:
        return False
    return clock.has_lasted(update_orders.since(ready), _USUAL, cluster)


def _order(upgrade: Object, stays: timedelta, waits: _Waits, cluster: Cluster) -> StandingOrder:
    """Return that an upgrade waits."""
    job = find(cluster, JOB, upgrade.namespace, f"{upgrade.name}-apply-manifests")
    by = f"Job {job.name}" if job is not None and job.at("status", "active").integer else "it"
    which, why, remedy = waits
    stage = f"has been upgrading system services for {clock.duration(stays)}"
    reason = f"{update_orders.title(upgrade)} {stage}, and {by} waits without a limit: {which}{why}"
    return StandingOrder(upgrade, reason, remedy, True, f"it {stage}: {which}{why}")


_Waits = tuple[str, str, str]
"""For what, why, as a clause, and the remedy."""


def _described(chart: Object, then: str, cluster: Cluster) -> _Waits:
    """Return which chart is in which state, why, as a clause, and the remedy."""
    bundle = find(cluster, FLEET_BUNDLE, LOCAL, f"mcc-{chart.name}")
    entry = next(chart.at("status", "summary", "nonReadyResources").items(), Field(None))
    state = entry["bundleState"].text or chart.at("status", "display", "state").text or "not ready"
    lasts = clock.lasting(update_orders.since(chart.condition("Ready")), cluster)
    of = f" (Bundle {bundle.name})" if bundle is not None else ""
    which = f"ManagedChart {chart.full_name}{of} is {state}{lasts}"
    return which, *_fault(chart, entry, bundle, then, cluster)


def _fault(
    chart: Object, entry: Field, bundle: Object | None, then: str, cluster: Cluster
) -> tuple[str, str]:
    """Return why a chart is not ready, as a clause, and the remedy."""
    see = about("describe", chart, MANAGED_CHART)
    if (renewed := rendered_certificates.of(chart, entry, then)) is not None:
        return renewed
    for each in entry["modifiedStatus"].items():
        if (patch := _patch(each)) is not None:
            return _modified(each, entry, patch, chart, bundle, cluster)
        if each["missing"].boolean:
            return _missing(each, entry, chart, bundle, then, cluster)
    for each in entry["nonReadyStatus"].items():
        said = ", ".join(
            text for item in each.at("summary", "message").items() if (text := item.text)
        )
        state = each.at("summary", "state").text or "not ready"
        words = f": {_title(each)} is {state}{f' ({cut_middle(said, _WORDS)})' if said else ''}"
        name, space = each["name"].text, each["namespace"].text or ""
        is_deployment = each["kind"].text == DEPLOYMENT.kind
        made = find(cluster, DEPLOYMENT, space, name) if is_deployment else None
        if made is not None and (pods := unready_pods.words(made, cluster)):
            command = about("describe", made, DEPLOYMENT)
            return f"{words}: {pods}", typed(f"Repair its pods, {then}", command)
        return words, typed(f"Repair that object, {then}", see)
    said = entry["message"].words or chart.condition("Ready")["message"].words
    if bundle is not None and (left := helm_releases.of_bundle(bundle, said, then, cluster)):
        return f": {helm_releases.BUSY}. {capital(left.reason)}", left.remedy
    if (refused := _REFUSED.search(said)) and (defaults := _others(refused[1], cluster)):
        return _second_default(said, refused[1], defaults, chart, then)
    waits = entry["bundleState"].text == apply_conflicts.WAITS and not entry["message"].words
    conflict = apply_conflicts.of_chart(chart, then, cluster) if waits else None
    if conflict is not None:
        return f": {conflict.reason}", conflict.remedy
    words = f": {cut_middle(said, _WORDS)}" if said else ""
    return words, typed(f"Remove the cause that Fleet reports, {then}", see)


def _missing(
    status: Field, entry: Field, chart: Object, bundle: Object | None, then: str, cluster: Cluster
) -> tuple[str, str]:
    """Return which object of a chart is missing, and what makes it.

    A bundle is Modified only if its release was applied (rancher/fleet:internal/cmd/controller/
    summary/summary.go#GetDeploymentState), and none is applied a second time (:internal/cmd/agent/
    deployer/deployer.go#helmdeploy) but for corrected drift and forceSyncGeneration.
    """
    title, see = _title(status), about("describe", chart, MANAGED_CHART)
    if status["exist"].boolean:
        return f": {title} exists without the marks of Fleet", typed("Let Fleet own it", see)
    if bundle is None or entry["bundleState"].text != _MODIFIED:
        return f": {title} is missing", typed(f"Have Fleet make it, {then}", see)
    if bundle.at("spec", "correctDrift", "enabled").boolean:
        corrects = f": {title} is missing, although Fleet corrects drift"
        return corrects, typed(f"Remove what deletes it or refuses it, {then}", see)
    made = _made_late(status, chart, cluster)
    why = (
        f": {title} is missing{made}, and Fleet does not apply a release again that it has applied "
        "(correctDrift is off)"
    )
    again = f"{_also(status, entry)}if it is deleted again, remove what deletes it"
    return why, typed(f"Have Fleet apply the Bundle again, {then}", _sync(chart, bundle), again)


_MODIFIED: Final = "Modified"


def _also(status: Field, entry: Field) -> str:
    """Return which other objects the chart may change when Fleet applies it again, with a
    semicolon; empty: none of those that Fleet names.
    """
    others = [each for each in entry["modifiedStatus"].items() if each.path != status.path]
    changed = names((_title(each) for each in others if _patch(each) is not None), _WORDS)
    return f"this may also set back what differs in {changed}; " if changed else ""


def _made_late(status: Field, chart: Object, cluster: Cluster) -> str:
    """Return that the definition of an object was made when its chart was applied, so that the
    object may have been refused; empty: not known to be so.
    """
    judged = clock.instant(update_orders.since(chart.condition("Ready")))
    kind = _kind(status)
    for each in cluster.known(_DEFINITION):
        spec, made = each["spec"], clock.instant(each.created)
        named = (spec["group"].text, spec.at("names", "kind").text) == (kind.group, kind.kind)
        if named and made and judged and timedelta() <= judged - made <= _USUAL:
            before = clock.duration(judged - made)
            return f" (its CustomResourceDefinition {each.name} was made only {before} before that)"
    return ""


_REFUSED: Final = re.compile(
    r'"([a-z0-9.-]{1,253})" with kind StorageClass: .{0,200}?default storage class (\S{1,253}) '
    "already exists"
)
"""How Harvester refuses a second default; releases before 1.5 do not name the first one
(harvester/harvester:pkg/webhook/resources/storageclass/validator.go#validateSetUniqueDefault)."""


def _others(chosen: str, cluster: Cluster) -> Sequence[str]:
    """Return the known StorageClasses that are the default instead of this one."""
    marked = storage.all_marked(DEFAULT_FOR_ALL, cluster)
    return [each.name for each in marked if each.name != chosen]


def _second_default(
    said: str, chosen: str, defaults: Sequence[str], chart: Object, then: str
) -> tuple[str, str]:
    """Return that another StorageClass is the default, and the remedy.

    An upgrade of Harvester sets the same value (upgrade_manifests.sh
    #upgrade_managedchart_harvester), with which the chart marks its own class ``false``
    (deploy/charts/harvester/templates/_helpers.tpl).
    """
    which = names(defaults, 120)
    words = cut_middle(_REFUSED.sub(lambda found: found[0].replace(found[2], which), said), _WORDS)
    if chart.name == HARVESTER and chosen == _OWN_CLASS:
        data = {"spec": {"values": {"storageClass": {"defaultStorageClass": False}}}}
        command = merge_patch(MANAGED_CHART, chart.name, chart.namespace, data)
        return f": {words}", typed(f"Let the chart leave the default to {which}, {then}", command)
    command = shell(
        *("kubectl", "annotate", "storageclass", *map(argument, defaults)),
        *(f"{DEFAULT_FOR_ALL}=false", "--overwrite"),
    )
    what = f"Unmark StorageClass {which} as default, {then}"
    back = f"to mark it again, first unmark {chosen}"
    return f": {words}", typed(what, command, back)


def _title(status: Field) -> str:
    return (
        f"{status['kind'].text} "
        f"{'/'.join(filter(None, (status['namespace'].text, status['name'].text)))}"
    )


def _patch(status: Field) -> dict[str, Any] | None:
    """Return what Fleet would change in an object to get that of the chart; None:
    it would not change one.
    """
    found = json_codec.embedded(status["patch"].text)
    return found if isinstance(found, dict) and found else None


def _modified(
    status: Field,
    entry: Field,
    patch: dict[str, Any],
    chart: Object,
    bundle: Object | None,
    cluster: Cluster,
) -> tuple[str, str]:
    """Return which fields of an object differ from the chart, and how they become equal."""
    paths = list(_paths(patch))
    kind, name = _kind(status), status["name"].text
    is_read = kind in _COMPARED or (kind not in kinds.ALL and kind.kind not in _WITHOUT_DATA)
    live = find(cluster, kind, status["namespace"].text or "", name) if is_read else None
    absent = live is not None and not any(live.at(*path).present for path in paths)
    custom = kind.group not in _BUILT_IN
    known = live if custom and not absent else None
    fields = names(_compared(path, patch, known) for path in paths)
    words = f": {_title(status)} {'lacks' if absent else 'differs in'} {fields}"
    definition, unknown = _unknown(kind, status["apiVersion"].text or "", paths, cluster)
    if unknown:
        drops = f"which the schema of {definition} does not have, so that the API server drops it"
        of_harvester = kind is KUBEVIRT and chart.name == HARVESTER
        old = _HARVESTER_FILES if of_harvester else _APPLY
        return f"{words}, {drops}", typed(
            f"{old}; then raise forceSyncGeneration of the Bundle",
            _sync(chart, bundle),
            _also(status, entry).rstrip("; "),
        )
    if absent and custom and not definition:
        field = shell(
            "kubectl",
            "explain",
            f"{kind.plural}.{'.'.join(paths[0])}",
            f"--api-version={kind.api_version}",
        )
        see = (
            "If the schema of its CustomResourceDefinition lacks that field, apply those of the "
            "new release"
        )
        return words, typed(
            f"{see}, then have Fleet apply it again (forceSyncGeneration). To see it", field
        )
    other = (
        "if a controller writes these fields, list them in spec.diff.comparePatches of the "
        "ManagedChart"
    )
    if custom and len(status["patch"].text or "") <= _SHORT:
        back = merge_patch(kind, status["name"].text or "", status["namespace"].text or "", patch)
        return words, typed("If it was edited by hand, set what the chart has", back, other)
    again = "If it was edited by hand, have Fleet write it again (forceSyncGeneration)"
    return words, typed(again, _sync(chart, bundle), f"{_also(status, entry)}{other}")


def _compared(path: Sequence[str], patch: dict[str, Any], live: Object | None) -> str:
    """Return a field, with its value and that of the chart if the object is known and they are
    short.
    """
    wanted: Any = patch
    for step in path:
        wanted = wanted[step]
    field = ".".join(path)
    if live is None or isinstance(wanted, (dict, list)):
        return field
    has = live.at(*path)
    value = show(has.value) if has.present else "none"
    new = "none" if wanted is None else show(wanted)
    is_short = max(len(value), len(new)) <= _VALUE
    return f"{field} ({value}, in the chart {new})" if is_short else field


_WITHOUT_DATA: Final = (rendered_certificates.HOLDER, "ConfigMap")
"""Kinds whose data no snapshot holds: what they lack is not known."""
_BUILT_IN: Final = kinds.BUILT_IN_GROUPS | {
    f"{group}.k8s.io"
    for group in ("apiextensions", "networking", "node", "rbac.authorization", "resource")
}
"""The groups of kinds that no CustomResourceDefinition defines."""
_SHORT: Final = 300
"""Characters of a patch that a command can hold."""
_VALUE: Final = 60


def _paths(patch: dict[str, Any], begin: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the values of a merge patch."""
    for key, value in patch.items():
        path = (*begin, key)
        if isinstance(value, dict) and value and len(path) < _DEEPEST:
            yield from _paths(value, path)
        else:
            yield path


_DEEPEST: Final = 16


def _kind(status: Field) -> Kind:
    version, name = status["apiVersion"].text or "", status["kind"].text or ""
    group = version.rpartition("/")[0]
    return kinds.find(group, name) or kinds.guess(version, name)


_APPLY: Final = "Apply the CustomResourceDefinitions of the new release and its dependency charts"
_HARVESTER_FILES: Final = (
    "Apply dependency_charts/kubevirt-operator/crds and other CRDs of the new release"
)
"""Below deploy/charts/harvester. Sources: harvester/docs, known issues of the upgrade from 1.4.2
to 1.5.0; harvester/harvester#8163.

It fits into a warning of ``scan``, too."""


def _unknown(
    kind: Kind, version: str, paths: Sequence[tuple[str, ...]], cluster: Cluster
) -> tuple[str, bool]:
    """Return the definition of a kind if it is known,
    and whether its schema lacks one of these fields.
    """
    for each in cluster.known(_DEFINITION):
        spec = each["spec"]
        if (spec["group"].text, spec.at("names", "kind").text) == (kind.group, kind.kind):
            served = (
                item
                for item in spec["versions"].items()
                if item["name"].text == version.rpartition("/")[2]
            )
            schemas = [item.at("schema", "openAPIV3Schema") for item in served]
            lacks = any(
                schema.is_map and _lacks(schema, path) for schema in schemas for path in paths
            )
            return f"CustomResourceDefinition {each.name}", lacks
    return "", False


def _lacks(schema: Field, path: Sequence[str]) -> bool:
    """Return whether a schema certainly has no field at a path,
    so that the API server drops its value.
    """
    for step in path:
        if (
            schema["x-kubernetes-preserve-unknown-fields"].boolean
            or schema["additionalProperties"].present
        ):
            return False
        properties = schema["properties"]
        if not properties.is_map:
            return False
        if not properties[step].present:
            return True
        schema = properties[step]
    return False


def _sync(chart: Object, bundle: Object | None) -> str:
    """Return the command with which Fleet applies a bundle again
    (bundledeployment_types.go#ForceSyncGeneration).
    """
    if bundle is None:
        return about("describe", chart, MANAGED_CHART)
    last = bundle.at("spec", "forceSyncGeneration").integer or 0
    return merge_patch(
        FLEET_BUNDLE, bundle.name, bundle.namespace, {"spec": {"forceSyncGeneration": last + 1}}
    )
