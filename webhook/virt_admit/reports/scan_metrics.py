"""What a scan tells Prometheus: into a file that somebody scrapes, or to a Pushgateway (docs/metrics.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.error import HTTPError

from prometheus_client import CollectorRegistry, Gauge, push_to_gateway, write_to_textfile

from virt_admit.reports.report import Report
from virt_admit.rule import Action

JOB: Final = "virt-admit-scan"
PATIENCE: Final = 10
"""Seconds for a Pushgateway to answer."""


def gauges(result: Report, blockers: Mapping[str, int], seconds: float) -> CollectorRegistry:
    """The gauges of a scan of a whole cluster that has just ended and took so many seconds.

    ``blockers``: by node, how many virtual machines would stop its drain now.
    """
    registry = CollectorRegistry()
    findings = Gauge(
        "virt_admit_scan_findings",
        "Findings of the last scan.",
        ("rule", "action", "namespace"),
        registry=registry,
    )
    found = Counter(
        (verdict.rule.id, str(verdict.action), judged.obj.namespace)
        for judged in result.judged
        for verdict in judged.response.verdicts
        if verdict.action > Action.OFF
    )
    for labels, number in found.items():
        findings.labels(*labels).set(number)
    drains = Gauge(
        "virt_admit_drain_blockers",
        "Virtual machines on a node that would stop a drain now.",
        ("node",),
        registry=registry,
    )
    for node, number in blockers.items():
        drains.labels(node).set(number)
    Gauge("virt_admit_scan_duration_seconds", "How long the last scan took.", registry=registry).set(seconds)
    Gauge(
        "virt_admit_scan_last_success_timestamp_seconds", "When the last scan ended.", registry=registry
    ).set_to_current_time()
    return registry


def publish(registry: CollectorRegistry, where: str) -> None:
    """Write the gauges to a file, whole or not at all; or put them, where ``where`` is a URL, in place of the last ones.

    Raises:
        OSError: it cannot be written, or the Pushgateway does not take it.
    """
    if where.startswith(("http://", "https://")):
        try:
            push_to_gateway(where, job=JOB, registry=registry, timeout=PATIENCE)
        except HTTPError as refused:
            with refused:
                raise OSError(f"HTTP status {refused.code}") from None
    else:
        write_to_textfile(str(Path(where)), registry)
