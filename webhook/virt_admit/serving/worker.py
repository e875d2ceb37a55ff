"""One serving process: policy, look-ups, certificates and metrics."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import functools
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from virt_admit import __version__
from virt_admit.engine import review
from virt_admit.engine.admission_review import MAX_CAUSES, Reply
from virt_admit.engine.decoding import MAX_BODY
from virt_admit.engine.rule_run import Limits
from virt_admit.forecasts.outage.recent_starts import recent_starts
from virt_admit.kube import snapshots
from virt_admit.model.kubernetes.cluster import NOTHING, Cluster, Snapshot
from virt_admit.policy.policy import Policy
from virt_admit.rules import load_rules
from virt_admit.serving import logs
from virt_admit.serving.admitted_starts import AdmittedStarts
from virt_admit.serving.certificates import schedule_of, store_of
from virt_admit.serving.heap import freeze_heap
from virt_admit.serving.metrics import Metrics
from virt_admit.serving.ops_server import serve_ops
from virt_admit.serving.policy_source import policy_source
from virt_admit.serving.reload import Reloaded
from virt_admit.serving.settings import Settings
from virt_admit.serving.views import admission_app, ops_app
from virt_admit.serving.wsgi_bridge import bridge
from virt_admit_certs.rotate import Rotator
from virt_admit_certs.tls import HandshakeFailure, TlsContextProvider

log = logging.getLogger(__name__)

CERTIFICATE_PATIENCE: Final = 10.0
"""Seconds that the start waits for a certificate; gunicorn ends a worker that takes 30."""
SYNC_PATIENCE: Final = 30.0
"""Seconds after which a worker is ready without all look-ups; until then they raise ``Unseen``."""

REVIEW_SECONDS: Final = 1.0
"""Seconds that one review may take: half of the shortest time-out of the webhook entries.
All other requests wait.
"""

MAX_FIXES: Final = 100
"""Findings of one rule that one review fixes: a patch of megabytes has no reader."""


def review_limits() -> Limits:
    """Return the limits of a review that starts now."""
    end = time.monotonic() + REVIEW_SECONDS
    return Limits(lambda: time.monotonic() > end, MAX_CAUSES, MAX_FIXES)


class Worker:
    """The policy, the look-ups, the certificates and the metrics of one process.

    Built in the worker process, after the fork, because threads and locks do not survive a fork.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.started = time.monotonic()
        self.draining = False
        self.metrics = Metrics()
        self.rules = load_rules().at_admission
        self.policy = policy_source(settings, load_rules(), self.metrics)
        self._read = self._today = Policy()
        self.admitted = AdmittedStarts()
        self.cluster = self._cluster_source()
        self.tls = TlsContextProvider(
            tls_min_version=settings.tls_min_version,
            client_ca=settings.client_ca.read_bytes() if settings.client_ca else None,
            client_names=settings.client_names,
        )
        self.rotator = self._rotator()
        self.tls.before_connection = self._before_connection()
        self.tls.on_handshake_failure = self._handshake_failed
        self.metrics.follow_certificates(lambda: self.rotator.status)

    def app(self) -> Any:
        """Return the admission app as an ASGI app."""
        flask_app = admission_app(
            functools.partial(self._answer, decide=review.review),
            functools.partial(self._answer, decide=review.fix),
            self._observe,
            self.metrics.in_flight,
            lambda: self.draining,
        )
        return bridge(flask_app.wsgi_app, MAX_BODY, self.metrics.bodies_dropped.inc)

    def start(self) -> None:
        """Start the certificate loop and the ops listener, and wait for a certificate."""
        _disable_core_dumps()
        self.rotator.start(patience=CERTIFICATE_PATIENCE)
        if self.settings.ops_bind != "off":
            serve_ops(
                self.settings.ops_bind, ops_app(self.checks, self.metrics, {"version": __version__})
            )
        freeze_heap()
        log.info(
            "started",
            extra={"bind": self.settings.bind, "rules": len(self.rules), "version": __version__},
        )

    def checks(self) -> Mapping[str, str]:
        """Return the readiness checks; an empty value means the check passed."""
        waiting = time.monotonic() - self.started < SYNC_PATIENCE
        policy = "not loaded yet" if waiting and not self.policy.loaded_at else ""
        found = {"serving": "stopping" if self.draining else "", "policy": policy}
        found |= {item.name: "" if item.ready else item.text for item in self.rotator.readiness()}
        missing = getattr(self.cluster(), "missing", ()) if waiting else ()
        found["look-ups"] = f"not listed yet: {', '.join(missing)}" if missing else ""
        return found

    def _answer(self, body: bytes, decide: review.Decide) -> Reply:
        limits = review_limits()
        return review.answer(
            body, decide, self.rules, self.cluster(), self._policy_of_today(), limits
        )

    def _policy_of_today(self) -> Policy:
        """Return the policy as of today.

        The same value all day, because it caches its decisions.
        """
        policy, today = self.policy(), datetime.date.today()
        if policy is not self._read or today != self._today.today:
            self._read, self._today = policy, policy.at(today)
        return self._today

    def _observe(self, endpoint: str, answer: Reply, seconds: float) -> None:
        if endpoint == "validate":
            self.admitted.observe(answer, self.cluster())
        self.metrics.observe(endpoint, answer, seconds)
        logs.review(endpoint, answer, seconds)

    def _cluster_source(self) -> Callable[[], Cluster]:
        settings = self.settings
        if settings.cluster is not None:
            return Reloaded(_load_and_freeze, settings.cluster)
        if settings.live:
            # 0.3 s and 60 MB that a snapshot does not need
            from virt_admit.kube.informers import LiveCluster  # noqa: PLC0415

            live = LiveCluster.connect(self.rules, settings.kubeconfig, settings.context)
            self.metrics.follow_informers(live.informed)
            live.provide(recent_starts, self.admitted.current, ())
            live.start()
            return lambda: live
        return lambda: NOTHING

    def _rotator(self) -> Rotator:
        place, configurations = store_of(self.settings)
        return Rotator(
            place,
            schedule_of(self.settings),
            set_certificate=self.tls.set_certificate,
            get_settings=lambda: schedule_of(self.settings, self.cluster()),
            configurations=configurations,
            on_event=self.metrics.certificate_event,
        )

    def _handshake_failed(self, reason: HandshakeFailure) -> None:
        self.metrics.handshake_failures.labels(reason).inc()
        if reason in ("peer_distrusts", "peer_expired"):
            self.rotator.request_reconcile()  # another controller may have overwritten the caBundle

    def _before_connection(self) -> Callable[[], None]:
        """Return the function that reloads the certificate and the client CA before each
        handshake.
        """
        if self.settings.client_ca is None:
            return self.rotator.reload_if_changed
        client_ca = Reloaded(
            lambda file: self.tls.replace_client_ca(file.read_bytes()), self.settings.client_ca
        )

        def reload() -> None:
            client_ca()
            self.rotator.reload_if_changed()

        return reload


def _disable_core_dumps() -> None:
    """Disable core dumps and ptrace, because private keys are in memory (Linux only)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


_PR_SET_DUMPABLE: Final = 4  # linux/prctl.h


def _load_and_freeze(path: Path) -> Snapshot:
    snapshot = snapshots.load(path)
    freeze_heap()
    return snapshot
