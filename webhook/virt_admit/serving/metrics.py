"""Counters and gauges in Prometheus' text format (docs/metrics.md lists them)."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from virt_admit import __version__
from virt_admit.engine.admission_review import Reply
from virt_admit.kube.informers import Informed
from virt_admit.rule import Action
from virt_admit_certs.rotation_status import RotatorStatus

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
"""Seconds; up to the time-out of a validating call."""


# an additional series for each counter, without a use
disable_created_metrics()  # type: ignore[no-untyped-call]


class ProcessMetrics:
    """The series of every serving process: memory and CPU, the policy, the informers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        counter = functools.partial(Counter, registry=self.registry)
        gauge = functools.partial(Gauge, registry=self.registry)
        self.policy_loaded = gauge(
            "virt_admit_policy_loaded_timestamp_seconds", "When the policy in force was read."
        )
        self.policy_errors = counter(
            "virt_admit_policy_reload_errors",
            "Policy reloads that failed; the previous policy stays in force.",
        )
        self.policy_current = gauge(
            "virt_admit_policy_current",
            "Whether the policy in force is the newest one; 0 if that is not valid or cannot be "
            "read.",
        )

    def follow_informers(self, informed: Callable[[], Iterable[Informed]]) -> None:
        """Add the status of the informers to each scrape."""
        self.registry.register(_Informers(informed))

    def text(self) -> bytes:
        """Return all series in the exposition format."""
        return generate_latest(self.registry)


class Metrics(ProcessMetrics):
    """All series of the webhook. Never a label with a user's or an object's name."""

    def __init__(self) -> None:
        super().__init__()
        counter = functools.partial(Counter, registry=self.registry)
        gauge = functools.partial(Gauge, registry=self.registry)
        self.requests = counter(
            "virt_admit_requests",
            "Admission reviews answered.",
            ("endpoint", "kind", "operation", "outcome", "dry_run"),
        )
        self.duration = Histogram(
            "virt_admit_request_duration_seconds",
            "Time to decide on a review.",
            ("endpoint",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.reviews = gauge(
            "virt_admit_requests_in_flight", "Reviews being decided.", ("endpoint",)
        )
        self.findings = counter("virt_admit_findings", "Findings at admission.", ("rule", "action"))
        self.rule_errors = counter("virt_admit_rule_errors", "Rules that crashed.", ("rule",))
        self.rule_unseen = counter(
            "virt_admit_rule_unseen",
            "Reviews in which a rule could not see what it needs.",
            ("rule",),
        )
        self.not_judged = counter(
            "virt_admit_rule_not_judged",
            "Reviews of very large objects that a rule did not judge.",
            ("rule",),
        )
        self.bodies_dropped = counter(
            "virt_admit_request_bodies_dropped",
            "Requests answered with 503, because the unfinished bodies of all requests were too "
            "large together.",
        )
        self.connections_dropped = counter(
            "virt_admit_connections_dropped",
            "Connections without a request that were closed, because there were too many.",
        )
        self._add_certificates()
        _add_build_info(self.registry)
        # a label look-up costs more than an increment
        self._request = functools.cache(self.requests.labels)
        self._duration = functools.cache(self.duration.labels)
        self._in_flight = functools.cache(self.reviews.labels)

    def _add_certificates(self) -> None:
        counter = functools.partial(Counter, registry=self.registry)
        self.certificate_rotations = counter(
            "virt_admit_certificate_rotations",
            "Steps of the rotation plan that were done.",
            ("step",),
        )
        self.certificate_errors = counter(
            "virt_admit_certificate_errors", "Rounds of the rotation loop that failed.", ("reason",)
        )
        self.certificate_conflicts = counter(
            "virt_admit_certificate_conflicts", "Saves that another replica was faster with."
        )
        self.handshake_failures = counter(
            "virt_admit_tls_handshake_failures", "TLS handshakes that failed.", ("reason",)
        )

    def in_flight(self, endpoint: str) -> AbstractContextManager[None]:
        """Count a review as in flight while the context is open."""
        held: AbstractContextManager[None] = self._in_flight(endpoint).track_inprogress()
        return held

    @functools.cached_property
    def _finding(self) -> Callable[[str, str], Counter]:
        return functools.cache(self.findings.labels)

    @functools.cached_property
    def _unseen(self) -> Callable[[str], Counter]:
        return functools.cache(self.rule_unseen.labels)

    def observe(self, endpoint: str, answer: Reply, seconds: float) -> None:
        """Count one answered review."""
        request, response = answer.request, answer.response
        kind = request.kind.kind if request.kind else "other"
        operation = request.operation if request.operation in _OPERATIONS else "other"
        self._request(
            endpoint, kind, operation, response.outcome, str(request.dry_run).lower()
        ).inc()
        self._duration(endpoint).observe(seconds)
        for verdict in response.verdicts:
            if verdict.action > Action.OFF:
                self._finding(verdict.rule.id, str(verdict.action)).inc()
        for rule, _ in response.errors:
            self.rule_errors.labels(rule.id).inc()
        for rule in response.not_judged:
            self.not_judged.labels(rule.id).inc()
        for rule in {rule for rule, _ in response.unseen}:
            self._unseen(rule.id).inc()

    def certificate_event(self, what: str, label: str) -> None:
        """Count an event of the rotation loop (virt_admit_certs.rotation_events.OnEvent)."""
        if what == "step":
            self.certificate_rotations.labels(label).inc()
        elif what == "conflict":
            self.certificate_conflicts.inc()
        elif what == "error":
            self.certificate_errors.labels(label).inc()

    def follow_certificates(self, status: Callable[[], RotatorStatus]) -> None:
        """Add the status of the reconcile loop to each scrape."""
        self.registry.register(_Certificates(status))


def _add_build_info(registry: CollectorRegistry) -> None:
    build = Gauge(
        "virt_admit_build_info",
        "Always 1; the labels say what runs.",
        ("version", "revision", "python_version"),
        registry=registry,
    )
    build.labels(
        __version__, os.environ.get("VIRT_ADMIT_REVISION", ""), platform.python_version()
    ).set(1)


class _Informers(Collector):
    def __init__(self, informed: Callable[[], Iterable[Informed]]) -> None:
        self.informed = informed

    def collect(self) -> Iterator[GaugeMetricFamily]:
        synced = _family(
            "virt_admit_informer_synced", "Whether the look-ups of a kind are current.", "kind"
        )
        objects = _family(
            "virt_admit_informer_objects", "Objects of a kind that are held for look-ups.", "kind"
        )
        for informer in self.informed():
            synced.add_metric((informer.kind,), informer.current)
            objects.add_metric((informer.kind,), informer.objects)
        yield from (synced, objects)


class _Certificates(Collector):
    def __init__(self, status: Callable[[], RotatorStatus]) -> None:
        self.status = status

    def collect(self) -> Iterator[GaugeMetricFamily]:
        status = self.status()
        expiry = _family(
            "virt_admit_certificate_expiry_timestamp_seconds",
            "When the certificate ends.",
            "certificate",
        )
        begin = _family(
            "virt_admit_certificate_not_before_timestamp_seconds", "When it begins.", "certificate"
        )
        for name, certificate in status.certificates.items():
            expiry.add_metric((name,), certificate.not_valid_after_utc.timestamp())
            begin.add_metric((name,), certificate.not_valid_before_utc.timestamp())
        injected = _family(
            "virt_admit_certificate_bundle_injected",
            "Whether every entry of the webhook configuration carries our bundle.",
            "configuration",
        )
        for kind, carried in status.injected.items():
            injected.add_metric((kind,), carried)
        yield from (expiry, begin, injected)
        yield GaugeMetricFamily(
            "virt_admit_certificate_last_check_timestamp_seconds",
            "The last round of the rotation loop that could read its store.",
            status.checked.timestamp() if status.checked else 0,
        )
        yield GaugeMetricFamily(
            "virt_admit_certificate_clock_offset_seconds",
            "How far the API server's clock is ahead.",
            status.offset,
        )


_OPERATIONS: Final = frozenset(("CREATE", "UPDATE", "DELETE", "CONNECT"))


def _family(name: str, text: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=(label,))
