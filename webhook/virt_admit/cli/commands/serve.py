"""``virt-admit serve``: run the webhook.

Every flag is also an environment variable ``VIRT_ADMIT_<FLAG>``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import click

from virt_admit.cli.certs_options import certs_flags, file_flag, flag, log_flags, policy_flags
from virt_admit.cli.output import failure
from virt_admit.policy.files import PolicyConfigMap, load_policy
from virt_admit.rules import load_rules
from virt_admit.serving import logs
from virt_admit.serving.certificates import schedule_of
from virt_admit.serving.settings import Certs, Settings, address
from virt_admit.settings import CERTS_SECRET, LOOPBACK_NAMES, SERVICE, SettingError
from virt_admit_certs.schedule import SETTINGS

IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
"""The kubelet sets this variable in every pod."""


@click.command("serve", short_help="Run the webhook.")
@flag(
    "--bind",
    default="0.0.0.0:8443",
    show_default=True,
    metavar="HOST:PORT",
    help="HTTPS listener: POST /validate, /mutate.",
)
@flag(
    "--ops-bind",
    default="0.0.0.0:8080",
    show_default=True,
    metavar="HOST:PORT|off",
    help="HTTP listener: probes and metrics.",
)
@certs_flags
@file_flag(
    "--cluster",
    metavar="FILE_OR_DIR",
    help="Answer look-ups from this snapshot. It is reloaded when it changes.",
)
@flag(
    "--live",
    is_flag=True,
    help="Answer look-ups from the cluster of the current context. Default in a pod.",
)
@flag("--kubeconfig", metavar="FILE", help="Kubeconfig for --live and Secrets.")
@flag("--context", metavar="NAME", help="Context of the kubeconfig.")
@policy_flags
@flag(
    "--workers",
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    help="Worker processes. Each has its own cache.",
)
@file_flag("--client-ca", metavar="FILE", help="Require a client certificate of this CA.")
@flag(
    "--client-name",
    multiple=True,
    metavar="NAME",
    help="Accept only client certificates with this name.",
)
@flag(
    "--tls-min-version",
    default="1.2",
    show_default=True,
    type=click.Choice(["1.2", "1.3"]),
    help="Lowest TLS version.",
)
@flag(
    "--stop-delay",
    default=5.0,
    show_default=True,
    help="Seconds between SIGTERM and closing the listener.",
)
@log_flags
def command(**options: Any) -> int:
    """Run the webhook until a signal stops it."""
    # `virt-admit serve --help` does not need it
    from virt_admit.serving.gunicorn_app import serve  # noqa: PLC0415

    logs.configure(options.pop("log_format"), options.pop("log_level"))
    try:
        serve_settings = settings(options, os.environ)
        schedule_of(serve_settings)
        load_policy(serve_settings.policy, load_rules())
    except (ValueError, OSError) as error:
        raise failure(error) from None
    return serve(serve_settings)


def settings(options: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Return the settings for these flags.

    Raises:
        SettingError: flags contradict each other, or a required one is missing.
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
    require_policy(options)
    if options["client_name"] and not options["client_ca"]:
        raise SettingError(
            "--client-name needs --client-ca, the CA that signs the client certificates"
        )
    return Settings(
        bind=options["bind"],
        ops_bind=options["ops_bind"],
        certs=certs,
        cert_names=cert_names(certs, options["cert_name"]),
        cluster=options["cluster"],
        live=options["live"] or (in_cluster and not options["cluster"]),
        kubeconfig=options["kubeconfig"],
        context=options["context"],
        policy=options["policy"] or "default",
        policy_configmap=options["policy_configmap"] or "",
        workers=options["workers"],
        client_ca=options["client_ca"],
        client_names=options["client_name"],
        tls_min_version=options["tls_min_version"],
        stop_delay=options["stop_delay"],
    )


def require_policy(options: Mapping[str, Any]) -> None:
    """Accept at most one policy.

    Raises:
        SettingError: two are named, or the name of a ConfigMap is not valid.
    """
    if options["policy"] and options["policy_configmap"]:
        raise SettingError("--policy and --policy-configmap exclude each other")
    if options["policy_configmap"]:
        PolicyConfigMap.parse(options["policy_configmap"])


def certs_settings(options: Mapping[str, Any], in_cluster: bool) -> Certs:
    """Return where certificates are stored and who issues them.

    Raises:
        SettingError: the flags name no store or several, or a value is not valid.
    """
    stores = {
        "--certs": options["certs"],
        "--certs-secret": options["certs_secret"],
        "--certs-external": options["certs_external"],
        "--certs-external-secret": options["certs_external_secret"],
    }
    given = [name for name, value in stores.items() if value]
    if len(given) > 1:
        raise SettingError(f"{' and '.join(given)} exclude each other")
    if not given and not in_cluster:
        raise SettingError("no certificate store is named: add --certs DIR")
    for name in ("--certs-secret", "--certs-external-secret"):
        if stores[name] and not re.fullmatch("[^/]+/[^/]+", str(stores[name])):
            raise SettingError(f"{name} {stores[name]} is not NAMESPACE/NAME")
    if options["certs_external_ca"] and not (
        stores["--certs-external"] or stores["--certs-external-secret"]
    ):
        raise SettingError(
            "--certs-external-ca needs --certs-external or --certs-external-secret: it uses the "
            "ca.crt there"
        )
    schedule = {name: options[f"certs_{name.replace('-', '_')}"] for name in SETTINGS}
    return Certs(
        directory=stores["--certs"],
        secret=stores["--certs-secret"] or ("" if given else CERTS_SECRET),
        external=stores["--certs-external"],
        external_secret=stores["--certs-external-secret"] or "",
        external_ca=options["certs_external_ca"],
        schedule={name: value for name, value in schedule.items() if value is not None},
    )


def cert_names(certs: Certs, further: Iterable[str]) -> tuple[str, ...]:
    """Return the names in the certificate.

    The Service is in the namespace of the certificates' Secret.
    """
    namespace = (certs.secret or certs.external_secret or CERTS_SECRET).partition("/")[0]
    service = f"{SERVICE}.{namespace}.svc"
    loopback = LOOPBACK_NAMES if certs.directory is not None else ()
    return (service, f"{service}.cluster.local", *loopback, *further)
