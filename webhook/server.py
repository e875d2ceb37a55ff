"""gunicorn, its TLS, and the background threads: everything that has a life of its own.

One process is one ``Worker``: policy, look-ups, certificates and metrics. It is built in the worker process, after
the fork, so that no thread and no lock is inherited.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import datetime
import functools
import gc
import logging
import os
import signal
import socket
import ssl
import sys
import threading
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from gunicorn.app.base import BaseApplication
from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.glogging import Logger
from gunicorn.workers import gasgi

from certs import plan, store
from certs.context import Front
from certs.rotate import Rotator
from webhook import __version__, engine, logs
from webhook.admission import MAX_BODY, Answer
from webhook.app import admission_app, ops_app
from webhook.bridge import bridge
from webhook.metrics import Metrics
from webhook.model.cluster import NOTHING, Cluster, Snapshot
from webhook.policy import Policy
from webhook.reload import Reloaded
from webhook.rules import load_rules
from webhook.settings import SettingError, Settings, address
from webhook.sources import load_policy, load_snapshot, policy_file

log = logging.getLogger(__name__)

KEEPALIVE: Final = 120
"""Seconds. Must exceed the 90 s after which the API server closes idle connections: it does not retry a POST whose
connection was closed under it (certificates.md section 8)."""
CONNECTIONS: Final = 2000
"""Open connections per worker, of 60 KiB each; further ones are closed. An API server keeps 25 idle ones."""
FINISH: Final = 5
"""Seconds that answers under way get after listening has ended."""
TLS_BUFFER: Final = 32 * 1024
"""Bytes that each TLS connection holds for reading; asyncio's default of 256 KiB is most of what a connection costs.
A TLS record has at most 16 KiB."""
GARBAGE: Final = 10
"""Seconds between two collections. A closed TLS connection is a reference cycle of few objects and much memory, so
counting objects, as Python does, finds it late. What is frozen is not looked at, so a collection takes a millisecond."""
SYNC_PATIENCE: Final = 30.0
"""Seconds after which a worker is ready although its look-ups are not filled: they answer ``Unseen``."""


class Worker:
    """One serving process: what it decides with, what it shows, what it counts."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.started = time.monotonic()
        self.draining = False
        self.metrics = Metrics()
        self.rules = load_rules().at_admission
        self.policy = self._policy_source()
        self._read = self._today = Policy()
        self.cluster = self._cluster_source()
        self.front = Front(
            tls_min_version=settings.tls_min_version,
            client_ca=settings.client_ca.read_bytes() if settings.client_ca else None,
            client_names=settings.client_names,
        )
        self.rotator = self._rotator()
        self.front.refresh = self._refresher()
        self.metrics.follow_certificates(lambda: self.rotator.facts)

    def app(self) -> Any:
        """The admission app as gunicorn's asgi worker calls it."""
        flask_app = admission_app(
            functools.partial(self._answer, decide=engine.review),
            functools.partial(self._answer, decide=engine.fix),
            self._observe,
            self.metrics.flying,
            lambda: self.draining,
        )
        return bridge(flask_app.wsgi_app, MAX_BODY)

    def start(self) -> None:
        """Begin to serve: a certificate, the background threads, the ops listener."""
        _keep_secrets()
        self.rotator.settle()
        self.rotator.start()
        if self.settings.ops_bind != "off":
            _serve_ops(self.settings.ops_bind, ops_app(self.checks, self.metrics, {"version": __version__}))
        _settle()
        log.info("started", extra={"bind": self.settings.bind, "rules": len(self.rules), "version": __version__})

    def checks(self) -> Mapping[str, str]:
        """What readiness asks, and what is missing."""
        found = {"serving": "stopping" if self.draining else "", "policy": ""}
        found |= {item.name: "" if item.ready else item.text for item in self.rotator.readiness()}
        waiting = time.monotonic() - self.started < SYNC_PATIENCE
        missing = getattr(self.cluster(), "missing", ()) if waiting else ()
        found["look-ups"] = f"not listed yet: {', '.join(missing)}" if missing else ""
        return found

    def _answer(self, body: bytes, decide: engine.Decide) -> Answer:
        return engine.answer(body, decide, self.rules, self.cluster(), self._policy_of_today())

    def _policy_of_today(self) -> Policy:
        """The policy in force. The same value all day long: it remembers what it has decided."""
        policy, today = self.policy(), datetime.date.today()
        if policy is not self._read or today != self._today.today:
            self._read, self._today = policy, policy.at(today)
        return self._today

    def _observe(self, endpoint: str, answer: Answer, seconds: float) -> None:
        self.metrics.observe(endpoint, answer, seconds)
        logs.review(endpoint, answer, seconds)

    def _policy_source(self) -> Callable[[], Policy]:
        rules = load_rules()
        file = policy_file(self.settings.policy)
        if file is None:
            policy = load_policy(self.settings.policy, rules)
            self.metrics.policy_loaded.set_to_current_time()
            return lambda: policy
        source = Reloaded(
            lambda path: load_policy(str(path), rules), file, lambda _error: self.metrics.policy_errors.inc()
        )
        self.metrics.policy_loaded.set_function(lambda: source.loaded_at)
        return source

    def _cluster_source(self) -> Callable[[], Cluster]:
        settings = self.settings
        if settings.cluster is not None:
            return Reloaded(_load_settled, settings.cluster)
        if settings.live:
            from webhook.live import Live  # noqa: PLC0415 - 0.3 s and 60 MB that a snapshot does not need

            live = Live.connect(self.rules, settings.kubeconfig, settings.context, self.metrics)
            live.start()
            return lambda: live
        return lambda: NOTHING

    def _rotator(self) -> Rotator:
        place, configurations = store_of(self.settings)
        return Rotator(
            place,
            schedule_of(self.settings),
            show=self.front.show,
            configurations=configurations,
            count=self.metrics.certificate_event,
        )

    def _refresher(self) -> Callable[[], None]:
        """What is looked at before each handshake: whether certificates or the clients' CA have changed."""
        if self.settings.client_ca is None:
            return self.rotator.refresh
        believe = Reloaded(lambda file: self.front.replace_client_ca(file.read_bytes()), self.settings.client_ca)

        def refresh() -> None:
            believe()
            self.rotator.refresh()

        return refresh


def _keep_secrets() -> None:
    """Private keys are in memory: no core dump, and no other process of this user looks. Linux has this alone."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


_PR_SET_DUMPABLE: Final = 4  # linux/prctl.h


def _settle() -> None:
    """What is alive now stays: collections need not look at it again."""
    gc.collect()
    gc.freeze()


def _load_settled(path: Path) -> Snapshot:
    snapshot = load_snapshot(path)
    _settle()
    return snapshot


def schedule_of(settings: Settings) -> plan.Settings:
    """When certificates are renewed, and for which names.

    Raises:
        plan.SettingsError: values that do not go together.
    """
    unsafe = os.environ.get("VIRT_ADMIT_CERTS_UNSAFE_INTERVALS") == "1"
    return plan.parse_settings(settings.certs.schedule, names=settings.cert_names, unsafe=unsafe)


def store_of(settings: Settings) -> tuple[store.Store, store.Configurations | None]:
    """Where certificates are kept, and the webhook configurations if we publish the CA there.

    Raises:
        ApiError: a cluster is needed and none is configured.
    """
    certs = settings.certs
    if certs.directory is not None:
        return store.Directory(certs.directory), None
    if certs.external is not None and not certs.external_ca:
        return store.ExternalDirectory(certs.external), None
    api = store.KubernetesApi.connect(settings.kubeconfig, settings.context)
    configurations = store.Configurations(api) if certs.secret or certs.external_ca else None
    if certs.external is not None:
        return store.ExternalDirectory(certs.external), configurations
    kind = store.SecretStore if certs.secret else store.ExternalSecret
    namespace, _, name = (certs.secret or certs.external_secret).partition("/")
    return kind(api, namespace, name), configurations


class _Application(BaseApplication):  # type: ignore[misc]
    """gunicorn with everything set from our settings, nothing from files or the command line."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.worker: Worker | None = None
        super().__init__()

    def load_config(self) -> None:
        settings = self.settings
        host, port = address(settings.bind)
        config = {
            "bind": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            "proc_name": "virt-admit",
            "worker_class": "asgi",
            "workers": settings.workers,
            "asgi_loop": "asyncio",
            "asgi_lifespan": "off",
            "http_protocols": "h1",
            "keepalive": KEEPALIVE,
            "graceful_timeout": int(settings.stop_delay) + FINISH + 5,
            "max_requests": 0,
            "preload_app": False,
            "control_socket_disable": True,
            "worker_tmp_dir": "/dev/shm" if Path("/dev/shm").is_dir() else None,  # noqa: S108 - a heartbeat file
            "certfile": os.devnull,  # only switches TLS on; the hook below gives the context
            "ssl_context": self._tls,
            "post_worker_init": self._started,
            "worker_exit": self._exited,
            "logger_class": _Log,
        }
        for name, value in config.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        with _or_stop():
            self.worker = Worker(self.settings)
        return self.worker.app()

    def _tls(self, _config: Any, _default: Any) -> ssl.SSLContext:
        assert self.worker is not None  # noqa: S101 - gunicorn loads the app first
        return self.worker.front.context

    def _started(self, process: Any) -> None:
        worker = self.worker
        assert worker is not None  # noqa: S101 - gunicorn loads the app first
        process.cfg.set("graceful_timeout", FINISH)

        def stop() -> None:
            """Not ready at once; listen on until the endpoint is gone; then finish what is running."""
            worker.draining = True
            process.loop.call_later(self.settings.stop_delay, process.handle_exit_signal)

        def collect() -> None:
            gc.collect()
            process.loop.call_later(GARBAGE, collect)

        process.loop.add_signal_handler(signal.SIGTERM, stop)
        process.loop.call_later(GARBAGE, collect)
        SSLProtocol.max_size = TLS_BUFFER
        gasgi.ASGIProtocol = _Connection  # the worker has no setting for it
        with _or_stop():
            worker.start()

    def _exited(self, _arbiter: Any, _process: Any) -> None:
        if self.worker is not None:
            self.worker.rotator.stop()


_LOAD_ERROR: Final = 4
"""gunicorn stops instead of trying again for ever (gunicorn.arbiter.Arbiter.APP_LOAD_ERROR)."""


@contextlib.contextmanager
def _or_stop() -> Iterator[None]:
    """What keeps a worker from serving is said in one line, and ends the others too."""
    try:
        yield
    except (ValueError, OSError, store.ApiError) as error:
        print(f"virt-admit: {error}", file=sys.stderr)
        raise SystemExit(_LOAD_ERROR) from None


class _Connection(ASGIProtocol):  # type: ignore[misc]
    """gunicorn's connection, with two limits that its asgi worker lacks: how many there are, and how long a peer may
    take for its first request (as long as for each further one)."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._arm_keepalive_timer()
        if self.worker.nr_conns > CONNECTIONS:
            transport.abort()


class _Log(Logger):  # type: ignore[misc]
    """gunicorn's messages go where ours go."""

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg
        self.error_log.propagate = True


class _OpsServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_address = True
    allow_reuse_port = True  # several workers share the port; a scrape sees one of them

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Without asking for our own full name, which takes seconds where there is no DNS."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _Quiet(WSGIRequestHandler):
    timeout = 10  # seconds; a silent scraper must not hold a thread

    def log_message(self, format: str, *args: Any) -> None:
        """Probes are not news."""


def _serve_ops(bind: str, app: Any) -> None:
    host, port = address(bind)
    try:
        server = make_server(host, port, app, _OpsServer, _Quiet)
    except OSError as error:
        raise SettingError(f"--ops-bind {bind}: {error.strerror}") from None
    threading.Thread(target=server.serve_forever, name="ops", daemon=True).start()


def serve(settings: Settings) -> int:
    """Serve until a signal; the exit code: 0 after a signal, 2 if serving could not begin."""
    parent = os.getpid()
    try:
        _Application(settings).run()
    except SystemExit as stopped:
        if os.getpid() != parent:
            raise  # a worker leaves by the code that tells gunicorn why
        return 2 if stopped.code else 0
    return 0
