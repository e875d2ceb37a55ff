"""``virt-admit serve``: the webhook. Every flag can also be given as ``VIRT_ADMIT_<FLAG>``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from virt_admit.policy.files import load_policy
from virt_admit.rules import load_rules
from virt_admit.serving import logs
from virt_admit.serving.certificates import schedule_of
from virt_admit.settings import CERTS_SECRET, LOOPBACK_NAMES, SERVICE, Certs, SettingError, Settings, address
from virt_admit_certs import plan

IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
"""Set in every pod."""


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def flag(name: str, **options: Any) -> Decorator:
    """An option with its environment variable."""
    return click.option(name, envvar="VIRT_ADMIT_" + name.strip("-").upper().replace("-", "_"), **options)


def file_flag(name: str, **options: Any) -> Decorator:
    return flag(name, type=click.Path(path_type=Path), **options)


def certs_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that say where certificates are kept, and the schedule: the same for ``serve`` and ``certs``."""
    function = issue_flags(function)
    for option in (
        flag(
            "--certs-external-ca", is_flag=True, help="Patch an external issuer's CA into the webhook configurations."
        ),
        flag("--certs-external-secret", metavar="NAMESPACE/NAME", help="Somebody else issues into this Secret."),
        file_flag("--certs-external", metavar="DIR", help="Somebody else issues: tls.crt and tls.key in this folder."),
        flag(
            "--certs-secret", metavar="NAMESPACE/NAME", help="Keep CA and certificate in this Secret; default in a pod."
        ),
        file_flag("--certs", metavar="DIR", help="Keep CA and certificate in this folder."),
    ):
        function = option(function)
    return function


def issue_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that say what is issued, and when it is renewed."""
    for setting in reversed(plan.SETTINGS):
        function = flag(f"--certs-{setting}", metavar="VALUE", help=_SETTINGS[setting])(function)
    return flag(
        "--cert-name", multiple=True, metavar="NAME", help="Further DNS name or IP address in the certificate."
    )(function)


_SETTINGS: Final = {
    "serving-duration": "How long a certificate lives.  [default: 48h]",
    "serving-renew-before": "How long before its end it is replaced.  [default: 24h]",
    "signer-duration": "How long a signer (our CA) lives.  [default: 720h]",
    "signer-renew-before": "How long before its end it is replaced.  [default: 360h]",
    "propagation": "Shortest time from publishing a signer to its use.  [default: 60s]",
    "check-interval": "Time between two rounds of the rotation.  [default: 10s]",
    "key": "p256, p384, rsa2048 or rsa3072.  [default: p256]",
    "name-constraints": "on: signers are bound to the names of the certificate.  [default: off]",
    "profile": f"The four durations at once: {', '.join(plan.PROFILES)}.  [default: daily]",
}


@click.command("serve", short_help="Run the webhook.")
@flag("--bind", default="0.0.0.0:8443", show_default=True, metavar="HOST:PORT", help="HTTPS: POST /validate, /mutate.")
@flag(
    "--ops-bind", default="0.0.0.0:8080", show_default=True, metavar="HOST:PORT|off", help="HTTP: probes and metrics."
)
@certs_flags
@file_flag("--cluster", metavar="FILE_OR_DIR", help="Look-ups are answered from this snapshot, read again on change.")
@flag("--live", is_flag=True, help="Look-ups are answered from the current context; default in a pod.")
@flag("--kubeconfig", metavar="FILE", help="For --live and Secrets.")
@flag("--context", metavar="NAME", help="Context of the kubeconfig.")
@flag(
    "--policy", default="default", show_default=True, metavar="FILE|audit|default|strict", help="Read again on change."
)
@flag("--workers", default=1, show_default=True, type=click.IntRange(1, 64), help="Processes; each holds its look-ups.")
@file_flag("--client-ca", metavar="FILE", help="Demand a client certificate of this CA.")
@flag("--client-name", multiple=True, metavar="NAME", help="... with this name.")
@flag("--tls-min-version", default="1.2", show_default=True, type=click.Choice(["1.2", "1.3"]))
@flag("--stop-delay", default=5.0, show_default=True, help="Seconds between SIGTERM and the end of listening.")
@flag("--log-format", default="json", show_default=True, type=click.Choice(["json", "text"]))
@flag("--log-level", default="info", show_default=True, type=click.Choice(["debug", "info", "warning", "error"]))
def command(**options: Any) -> int:
    """Run the webhook until a signal ends it."""
    from virt_admit.serving.gunicorn_app import serve  # noqa: PLC0415 - `virt-admit serve --help` needs no server

    logs.configure(options.pop("log_format"), options.pop("log_level"))
    try:
        chosen = settings(options, os.environ)
        schedule_of(chosen)
        load_policy(chosen.policy, load_rules())
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from None
    return serve(chosen)


def settings(options: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """The settings that the flags mean.

    Raises:
        SettingError: they contradict each other, or one is missing.
    """
    in_cluster = IN_CLUSTER in environ
    certs = certs_settings(options, in_cluster)
    for bind in (options["bind"], options["ops_bind"]):
        if bind != "off":
            address(bind)
    if options["bind"] == "off":
        raise SettingError("--bind cannot be off")
    if options["cluster"] and options["live"]:
        raise SettingError("--cluster and --live exclude each other")
    if options["cluster"] and not options["cluster"].exists():
        raise SettingError(f"--cluster {options['cluster']}: no such file or folder")
    if options["client_name"] and not options["client_ca"]:
        raise SettingError("--client-name needs --client-ca, which vouches for the name")
    return Settings(
        bind=options["bind"],
        ops_bind=options["ops_bind"],
        certs=certs,
        cert_names=cert_names(certs, options["cert_name"]),
        cluster=options["cluster"],
        live=options["live"] or (in_cluster and not options["cluster"]),
        kubeconfig=options["kubeconfig"],
        context=options["context"],
        policy=options["policy"],
        workers=options["workers"],
        client_ca=options["client_ca"],
        client_names=options["client_name"],
        tls_min_version=options["tls_min_version"],
        stop_delay=options["stop_delay"],
    )


def certs_settings(options: Mapping[str, Any], in_cluster: bool) -> Certs:
    """Where the certificates are.

    Raises:
        SettingError: no place is named, or several.
    """
    places = {
        "--certs": options["certs"],
        "--certs-secret": options["certs_secret"],
        "--certs-external": options["certs_external"],
        "--certs-external-secret": options["certs_external_secret"],
    }
    given = [name for name, value in places.items() if value]
    if len(given) > 1:
        raise SettingError(f"{' and '.join(given)} exclude each other")
    if not given and not in_cluster:
        raise SettingError("say where the certificates are to be kept: --certs DIR")
    for name in ("--certs-secret", "--certs-external-secret"):
        if places[name] and not re.fullmatch("[^/]+/[^/]+", str(places[name])):
            raise SettingError(f"{name} {places[name]} is not NAMESPACE/NAME")
    if options["certs_external_ca"] and not (places["--certs-external"] or places["--certs-external-secret"]):
        raise SettingError(
            "--certs-external-ca needs --certs-external or --certs-external-secret, whose ca.crt it means"
        )
    schedule = {name: options[f"certs_{name.replace('-', '_')}"] for name in plan.SETTINGS}
    return Certs(
        directory=places["--certs"],
        secret=places["--certs-secret"] or ("" if given else CERTS_SECRET),
        external=places["--certs-external"],
        external_secret=places["--certs-external-secret"] or "",
        external_ca=options["certs_external_ca"],
        schedule={name: value for name, value in schedule.items() if value is not None},
    )


def cert_names(certs: Certs, further: Iterable[str]) -> tuple[str, ...]:
    """The names that the certificate is for: the Service is in the namespace of the certificates' Secret."""
    namespace = (certs.secret or certs.external_secret or CERTS_SECRET).partition("/")[0]
    service = f"{SERVICE}.{namespace}.svc"
    loopback = LOOPBACK_NAMES if certs.directory is not None else ()
    return (service, f"{service}.cluster.local", *loopback, *further)
