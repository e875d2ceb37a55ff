"""Metrics of a scan, in a file for the node exporter or pushed to a Pushgateway
(docs/metrics.md).
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
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
    found = collections.Counter(
        (verdict.rule.id, str(verdict.action), result.obj.namespace)
        for result in report.results
        for verdict in result.response.verdicts
        if verdict.action > Action.OFF
    )
    text = "Findings of the last scan."
    add_gauge(registry, "scan_findings", text, ("rule", "action", "namespace"), found)
    text = "Virtual machines, budgets and pods on a node that would stop a drain now."
    add_gauge(registry, "drain_blockers", text, ("node",), blockers)
    text = "Whether a node can be drained now: 1 yes, 0 no, -1 it cannot be determined."
    add_gauge(registry, "node_drainable", text, ("node",), as_numbers(drainable))
    if upgrade is not None:
        text = "Estimated duration of an upgrade of all nodes."
        bounds = {"low": upgrade.low, "high": upgrade.high}
        add_gauge(registry, "upgrade_seconds", text, ("bound",), bounds)
    text = (
        "When the CA bundle of a webhook or API service of KubeVirt, CDI, HyperConverged or "
        "medik8s ends."
    )
    name = "webhook_bundle_expiry_timestamp_seconds"
    add_gauge(registry, name, text, ("kind", "name"), bundles)
    add_gauge(registry, "scan_duration_seconds", "How long the last scan took.", (), {(): seconds})
    return registry


def add_gauge(
    registry: CollectorRegistry,
    name: str,
    text: str,
    labels: Sequence[str],
    values: Mapping[Any, float],
) -> None:
    """Add the gauge ``virt_admit_<name>`` with a sample for each value, by its label or labels."""
    gauge = Gauge(f"virt_admit_{name}", text, labels, registry=registry)
    for key, value in values.items():
        sample = key if isinstance(key, tuple) else (key,)
        (gauge.labels(*sample) if sample else gauge).set(value)


def as_numbers(verdicts: Mapping[str, bool | None]) -> dict[str, int]:
    """Return verdicts as a gauge has them: 1 yes, 0 no, -1 it cannot be determined."""
    return {name: -1 if yes is None else int(yes) for name, yes in verdicts.items()}


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
