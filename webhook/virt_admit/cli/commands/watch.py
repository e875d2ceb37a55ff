"""``virt-admit watch``: the scan as a process that runs all the time.

Only --write-reports and --events write.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import click

from virt_admit import __version__
from virt_admit.cli.certs_options import flag, log_flags, policy_flags
from virt_admit.cli.commands.serve import IN_CLUSTER, require_policy
from virt_admit.cli.output import failure
from virt_admit.kube.stores import stores
from virt_admit.policy.files import load_policy
from virt_admit.reports.findings.formats.policy_reports import WRITTEN
from virt_admit.rules import load_rules
from virt_admit.serving import logs
from virt_admit.serving.settings import Settings, address

if TYPE_CHECKING:
    from virt_admit.kube.informers import LiveCluster

log = logging.getLogger(__name__)


@click.command(
    "watch", short_help="Run the scan all the time: metrics and a page that follow the cluster."
)
@flag(
    "--ops-bind",
    default="0.0.0.0:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="HTTP listener: the page, metrics and probes.",
)
@flag(
    "--kubeconfig",
    metavar="FILE",
    help="Kubeconfig of the cluster. In a pod, default: its cluster.",
)
@flag("--context", metavar="NAME", help="Context of the kubeconfig.")
@policy_flags
@click.option(
    "--write-reports",
    type=click.Choice([*WRITTEN]),
    is_flag=False,
    flag_value="openreports",
    metavar="[openreports|policyreport]",
    help="Keep a report for each object in the cluster.",
)
@click.option(
    "--events",
    is_flag=True,
    help="Keep an Event for each rule and object with a denial or a warning.",
)
@log_flags
def command(
    write_reports: str | None, events: bool, log_format: str, log_level: str, **options: Any
) -> int:
    """Judge the cluster whenever its objects change, until a signal stops it."""
    logs.configure(log_format, log_level)
    stopped = threading.Event()
    try:
        settings = _settings(options)
        load_policy(settings.policy, load_rules())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        start(settings, write_reports, events, stopped)
    except (ValueError, OSError) as error:
        raise failure(error) from None
    while not stopped.wait(1):
        pass  # a wait without a limit would not let Python run the signal handler on every system
    return 0


def _settings(options: dict[str, Any]) -> Settings:
    address(options["ops_bind"])
    require_policy(options)
    return Settings(
        ops_bind=options["ops_bind"],
        live=IN_CLUSTER in os.environ,
        kubeconfig=options["kubeconfig"],
        context=options["context"],
        policy=options["policy"] or "default",
        policy_configmap=options["policy_configmap"] or "",
    )


def start(
    settings: Settings, write_reports: str | None, events: bool, stopped: threading.Event
) -> LiveCluster:
    """Start the informers, the listener and the loop.

    Return the cluster, which the caller may stop.

    Raises:
        SettingError, OSError, ValueError: a setting is not valid.
    """
    # `virt-admit watch --help` does not need it
    from virt_admit.cli.commands.watch_loop import Watch  # noqa: PLC0415
    from virt_admit.install.manifests import FORECAST_READS  # noqa: PLC0415
    from virt_admit.kube import informers  # noqa: PLC0415
    from virt_admit.kube.client import ApiClient  # noqa: PLC0415 - importing kubernetes takes 0.3 s
    from virt_admit.reports.html.page import content_security_policy  # noqa: PLC0415
    from virt_admit.reports.live_writer import LiveWriter  # noqa: PLC0415
    from virt_admit.serving.metrics import ProcessMetrics  # noqa: PLC0415
    from virt_admit.serving.ops_server import serve_ops  # noqa: PLC0415
    from virt_admit.serving.policy_source import policy_source  # noqa: PLC0415
    from virt_admit.serving.views import watch_app  # noqa: PLC0415

    rules = load_rules().in_scan
    kept = stores(rules, FORECAST_READS)
    api = ApiClient.connect(settings.kubeconfig, settings.context, connections=len(kept) + 3)
    metrics = ProcessMetrics()
    policy = policy_source(settings, load_rules(), metrics)
    cluster = informers.LiveCluster(api, rules, stores=kept)
    watch = Watch(cluster, rules, policy, metrics)
    app = watch_app(
        watch.checks, metrics, {"version": __version__}, watch.page, content_security_policy()
    )
    serve_ops(settings.ops_bind, app)
    cluster.start()
    threading.Thread(target=watch.run, args=(stopped,), name="watch", daemon=True).start()
    if write_reports or events:
        writer = LiveWriter(api, WRITTEN[write_reports] if write_reports else None, events=events)
        threading.Thread(
            target=watch.keep_written, args=(writer, stopped), name="writer", daemon=True
        ).start()
    log.info(
        "started", extra={"bind": settings.ops_bind, "rules": len(rules), "version": __version__}
    )
    return cluster
