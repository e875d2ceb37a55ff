"""The Python API: judge objects and clusters, and forecast drains, upgrades and outages,
without a command line.

Values in, frozen values out. No function prints, writes or changes anything; only ``live`` asks an
API server. The fields of a report are the keys of ``virt-admit VERB -o json``, and ``as_data``
returns that JSON. What is listed in ``__all__`` keeps its name and meaning; reports may get further
fields, and functions further keyword arguments.

Errors: ``ValueError`` for input that is not valid, ``LookupError`` for a node that does not exist,
``OSError`` for a file that cannot be read, ``ApiError`` for an API server that does not answer.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from virt_admit.engine import review
from virt_admit.engine.admission_review import Request
from virt_admit.forecasts.drain import drain_plan, selection
from virt_admit.forecasts.drain.selection import NodeQuery
from virt_admit.forecasts.outage import explanation
from virt_admit.forecasts.outage.loss import ZONE
from virt_admit.forecasts.outage.outages import Question, outages
from virt_admit.forecasts.upgrade import estimate_basis, rehearsal
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.kube import snapshots
from virt_admit.kube.cache import ClusterCache
from virt_admit.kube.stores import stores
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.policy.files import load_policy
from virt_admit.policy.policy import Policy, PolicyError
from virt_admit.reports.drain import report as drain_report
from virt_admit.reports.drain.report import DrainReport
from virt_admit.reports.findings.findings_report import (
    FindingsReport,
    FoundProblem,
    JudgedObject,
    ObjectName,
    PatchOperation,
    Totals,
    findings_report,
)
from virt_admit.reports.findings.judging import judge
from virt_admit.reports.findings.report import ObjectResult, Report, without_object
from virt_admit.reports.outage import report as outage_report
from virt_admit.reports.outage.report import OutageReport
from virt_admit.reports.upgrade import report as upgrade_report
from virt_admit.reports.upgrade.report import UpgradeReport
from virt_admit.reports.values import as_data
from virt_admit.rule import Operation
from virt_admit.rules import load_rules
from virt_admit.settings import SettingError
from virt_admit_certs.kube_api import ApiError

__all__ = [
    "ApiError",
    "ClusterState",
    "DrainReport",
    "FindingsReport",
    "FoundProblem",
    "JudgedObject",
    "Manifest",
    "ObjectName",
    "OutageReport",
    "PatchOperation",
    "PolicyError",
    "SettingError",
    "Totals",
    "UpgradeReport",
    "as_data",
    "check",
    "cluster",
    "drain",
    "live",
    "outage",
    "read",
    "scan",
    "upgrade",
]

Manifest = Mapping[str, Any]
"""An object of Kubernetes, as ``json.load`` or ``yaml.safe_load`` returns it."""

ClusterState = Snapshot | ClusterCache
"""The objects of a cluster at one time: the result of ``cluster``, ``read`` or ``live``."""

NOTHING_KNOWN = Snapshot()
"""A cluster of which nothing is known."""


# --- clusters -------------------------------------------------------------------------------------


def cluster(
    objects: Iterable[Manifest],
    *,
    complete: Iterable[str] = ("*",),
    unreadable: Iterable[str] = (),
    server_version: str | None = None,
    time: str | None = None,
) -> ClusterState:
    """Return a cluster with these objects.

    Args:
        objects: the objects, as the API server returns them.
        complete: the kinds (``plural.group``) of which all objects are given; ``*`` is every kind.
        unreadable: the kinds that could not be read. Nothing is concluded from their absence.
        server_version: such as ``v1.36.3``.
        time: when the objects were listed (RFC 3339); without it nothing that takes time can be
            judged.
    """
    return Snapshot(
        (Object(dict(each)) for each in objects), complete, unreadable, server_version, time
    )


def read(path: str | os.PathLike[str]) -> ClusterState:
    """Return the cluster in a snapshot, which ``virt-admit scan --save`` writes,
    or in a folder of them.

    Raises:
        SettingError: a file is not a valid snapshot.
        OSError: a file cannot be read.
    """
    return snapshots.load(Path(path))


def live(*, kubeconfig: str | None = None, context: str | None = None) -> ClusterState:
    """Return the objects of a live cluster, listed once.

    A kind that may not be listed is unreadable.

    Raises:
        SettingError: no cluster is configured.
        ApiError: the API server does not answer.
    """
    # importing kubernetes takes 0.3 s
    from virt_admit.kube import informers, named_objects  # noqa: PLC0415
    from virt_admit.kube.client import ApiClient  # noqa: PLC0415

    forecasts = union(rehearsal.READS, dict.fromkeys(explanation.LOOKS_UP, ()))
    needed = stores(load_rules().in_scan, forecasts, whole=True)
    server = ApiClient.connect(kubeconfig, context)
    cluster = informers.snapshot(server, needed)
    named_objects.read(server, cluster)
    return cluster


# --- verbs ----------------------------------------------------------------------------------------


def check(
    objects: Iterable[Manifest],
    *,
    against: ClusterState = NOTHING_KNOWN,
    old: Iterable[Manifest] = (),
    policy: str = "default",
    namespace: str = "default",
) -> FindingsReport:
    """Judge objects as the webhook would judge their creation,
    or their update if ``old`` contains them.

    The objects also see each other.

    Args:
        objects: the objects.
        against: the cluster that they are meant for.
        old: the current objects.
        policy: ``audit``, ``default``, ``strict``, or the path of a policy file.
        namespace: the namespace of objects that name none.

    Raises:
        SettingError, PolicyError: the policy does not exist or is not valid.
    """
    rules, in_force = load_rules(), _policy(policy)
    given = [_namespaced(each, namespace) for each in objects]
    current = {_identity(each): each for each in (_namespaced(one, namespace) for one in old)}
    whole = Snapshot(
        (*against, *given),
        against.complete,
        against.unreadable,
        against.server_version,
        against.time,
    )
    results: list[ObjectResult] = []
    for obj in given:
        kind, before = kinds.of(obj), current.get(_identity(obj))
        if kind is None or kind not in rules.by_kind:
            continue
        operation = Operation.UPDATE if before else Operation.CREATE
        request = Request(operation, kind, obj, before, name=obj.name, namespace=obj.namespace)
        results.append(
            ObjectResult(without_object(request), review.judge(request, rules, whole, in_force))
        )
    return findings_report(
        Report(tuple(results), len(given) - len(results), policy=in_force.name, of_cluster=False)
    )


def scan(of: ClusterState, *, policy: str = "default", namespace: str = "") -> FindingsReport:
    """Judge all objects of a cluster, each as if it were created now.

    Args:
        of: the cluster.
        policy: ``audit``, ``default``, ``strict``, or the path of a policy file.
        namespace: judge only objects of this namespace.

    Raises:
        SettingError, PolicyError: the policy does not exist or is not valid.
    """
    rules, in_force = load_rules().in_scan, _policy(policy)
    judged = [kind for kind in rules.kinds if kind.namespaced or not namespace]
    report = judge(of, judged, rules, in_force, lambda obj: namespace in ("", obj.namespace))
    others = (
        sum(kinds.of(obj) not in rules.by_kind for obj in of) if isinstance(of, Snapshot) else 0
    )
    return findings_report(report._replace(policy=in_force.name, other_kinds=others))


def drain(of: ClusterState, *nodes: str, selector: str = "", pool: str = "") -> DrainReport:
    """Return what ``kubectl drain`` would do, node by node;
    without a choice of nodes to every node.

    Args:
        of: the cluster.
        nodes: names of nodes.
        selector: nodes with these labels, as in kubectl.
        pool: nodes of this MachineConfigPool or MachineDeployment.

    Raises:
        LookupError: a node or the pool does not exist, or no node matches.
        ValueError: the selector is not valid.
    """
    query = NodeQuery(nodes, selector, pool)
    if not any(query):
        return drain_report.report(drain_plan.plan(of))
    selected = selection.select(query, of)
    return drain_report.report(drain_plan.plan(of, *selected.names, unseen=selected.unseen))


def upgrade(
    of: ClusterState,
    *,
    by: Literal["machineconfig", "cluster-api", "plain"] | None = None,
    max_unavailable: str | None = None,
    node_minutes: int | None = None,
    from_start: bool = False,
) -> UpgradeReport:
    """Rehearse the update of all nodes: order, waves, duration, moves of VMs, and what stops it.

    Args:
        of: the cluster.
        by: who updates the nodes; None: MachineConfigPools, else MachineDeployments, else one node
            after the other.
        max_unavailable: a number or a percentage of nodes of each pool at the same time.
        node_minutes: minutes for the update and the reboot of one node; None: as the last
            replacements of Cluster API took, else 10.
        from_start: whether to ignore what is under way.

    Raises:
        ValueError: ``by`` or ``max_unavailable`` is not valid.
    """
    driver = Driver(by) if by else None
    minutes = estimate_basis.node_minutes(driver, of) if node_minutes is None else node_minutes
    options = rehearsal.Options(driver, max_unavailable, minutes, from_start)
    return upgrade_report.report(rehearsal.rehearse(of, options))


def outage(
    of: ClusterState,
    *nodes: str,
    zone: str | None = None,
    worst: int | None = None,
    zone_key: str = ZONE,
) -> OutageReport:
    """Return what becomes of each VM if nodes are lost at the same moment and do not return.

    Args:
        of: the cluster.
        nodes: the nodes that are lost.
        zone: all nodes of this zone are lost.
        worst: the loss of every so many nodes is tried.
        zone_key: the label with the zone.

    Raises:
        ValueError: not exactly one of ``nodes``, ``zone`` and ``worst`` is given.
        LookupError: a node or the zone does not exist.
    """
    if sum((bool(nodes), zone is not None, worst is not None)) != 1:
        raise ValueError("give nodes, a zone, or worst")
    return outage_report.report(outages(Question(nodes, zone, worst, zone_key), of))


# --- details --------------------------------------------------------------------------------------


def _policy(name: str) -> Policy:
    return load_policy(name, load_rules()).at(datetime.date.today())


def _namespaced(manifest: Manifest, namespace: str) -> Object:
    obj = Object(dict(manifest))
    kind = kinds.of(obj)
    return (
        Object(obj.data, obj.namespace or namespace)
        if kind is not None and kind.namespaced
        else obj
    )


def _identity(obj: Object) -> tuple[str, str, str, str]:
    return obj.group, obj.kind, obj.namespace, obj.name
