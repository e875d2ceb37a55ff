"""Metrics of a scan, in a file for the node exporter or pushed to a Pushgateway
(docs/metrics.md).
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.error import HTTPError

from prometheus_client import CollectorRegistry, Counter, Gauge, push_to_gateway, write_to_textfile

from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.reports.findings.report import Report
from virt_admit.rule import Action

JOB: Final = "virt-admit-scan"
LAST_SUCCESS: Final = "virt_admit_scan_last_success_timestamp_seconds"
DIFFERENCES: Final = "virt_admit_incremental_differences_total"
PATIENCE: Final = 10
"""Timeout of a Pushgateway in seconds."""


def gauges(
    report: Report,
    blockers: Mapping[str, int],
    seconds: float,
    upgrade: Range | None = None,
    bundles: Mapping[tuple[str, str], float] = MappingProxyType({}),
    drainable: Mapping[str, bool | None] = MappingProxyType({}),
) -> CollectorRegistry:
    """Return the gauges of a finished scan of a whole cluster, with the time of its end.

    The arguments are those of ``state_gauges``.
    """
    registry = state_gauges(report, blockers, seconds, upgrade, bundles, drainable)
    Gauge(LAST_SUCCESS, "When the last scan ended.", registry=registry).set_to_current_time()
    return registry


def state_gauges(
    report: Report,
    blockers: Mapping[str, int],
    seconds: float,
    upgrade: Range | None,
    bundles: Mapping[tuple[str, str], float],
    drainable: Mapping[str, bool | None],
) -> CollectorRegistry:
    """Return the gauges of a scan of a whole cluster.

    Args:
        report: the results.
        blockers: the number of virtual machines and other pods that block a drain now, by node.
        seconds: the duration of the scan.
        upgrade: the estimated duration of an upgrade of all nodes; None: not possible, or unknown.
        bundles: when the CA bundles of other products end, in seconds since 1970, by kind and name
            of the object.
        drainable: by node, whether it can be drained now; None: it cannot be determined.
    """
    registry = CollectorRegistry()
    findings = Gauge(
        "virt_admit_scan_findings",
        "Findings of the last scan.",
        ("rule", "action", "namespace"),
        registry=registry,
    )
    found = collections.Counter(
        (verdict.rule.id, str(verdict.action), result.obj.namespace)
        for result in report.results
        for verdict in result.response.verdicts
        if verdict.action > Action.OFF
    )
    for labels, number in found.items():
        findings.labels(*labels).set(number)
    _add_nodes(registry, blockers, drainable)
    _add_upgrade(registry, upgrade)
    _add_bundles(registry, bundles)
    Gauge(
        "virt_admit_scan_duration_seconds", "How long the last scan took.", registry=registry
    ).set(seconds)
    return registry


def _add_nodes(
    registry: CollectorRegistry, blockers: Mapping[str, int], drainable: Mapping[str, bool | None]
) -> None:
    drains = Gauge(
        "virt_admit_drain_blockers",
        "Virtual machines, budgets and pods on a node that would stop a drain now.",
        ("node",),
        registry=registry,
    )
    for node, number in blockers.items():
        drains.labels(node).set(number)
    verdicts = Gauge(
        "virt_admit_node_drainable",
        "Whether a node can be drained now: 1 yes, 0 no, -1 it cannot be determined.",
        ("node",),
        registry=registry,
    )
    for node, verdict in drainable.items():
        verdicts.labels(node).set(-1 if verdict is None else int(verdict))


def _add_upgrade(registry: CollectorRegistry, upgrade: Range | None) -> None:
    if upgrade is not None:
        estimate = Gauge(
            "virt_admit_upgrade_seconds",
            "Estimated duration of an upgrade of all nodes.",
            ("bound",),
            registry=registry,
        )
        estimate.labels("low").set(upgrade.low)
        estimate.labels("high").set(upgrade.high)


def _add_bundles(registry: CollectorRegistry, bundles: Mapping[tuple[str, str], float]) -> None:
    ends = Gauge(
        "virt_admit_webhook_bundle_expiry_timestamp_seconds",
        "When the CA bundle of a webhook or API service of KubeVirt, CDI, HyperConverged or "
        "medik8s ends.",
        ("kind", "name"),
        registry=registry,
    )
    for labels, end in bundles.items():
        ends.labels(*labels).set(end)


def differences(registry: CollectorRegistry) -> Counter:
    """Register the counter of differences between kept and full judgements."""
    text = "Judgements that were not equal to those of the hourly full judgement."
    return Counter(DIFFERENCES, text, registry=registry)


def publish(registry: CollectorRegistry, target: str) -> None:
    """Write the gauges to a file, atomically. Push them to a Pushgateway if ``target`` is a URL.

    Raises:
        OSError: the file cannot be written, or the Pushgateway rejects the push.
    """
    if target.startswith(("http://", "https://")):
        try:
            push_to_gateway(target, job=JOB, registry=registry, timeout=PATIENCE)
        except HTTPError as refused:
            with refused:
                raise OSError(f"HTTP status {refused.code}") from None
    else:
        write_to_textfile(str(Path(target)), registry)
