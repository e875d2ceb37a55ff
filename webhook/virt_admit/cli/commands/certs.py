"""``virt-admit certs``: the webhook's certificates, as they are stored, served and trusted.

Prints no private key.
"""

from __future__ import annotations

import json
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from virt_admit.cli.certs_options import certs_flags, flag, issue_flags
from virt_admit.cli.cluster_source import load_cluster
from virt_admit.cli.commands.serve import cert_names, certs_settings
from virt_admit.cli.options import ClusterOptions, Decorator
from virt_admit.model.kubernetes.cluster import NOTHING, Cluster
from virt_admit.model.kubernetes.kinds import HCO
from virt_admit.serving.certificates import follows_cluster, schedule_of, store_of
from virt_admit.serving.settings import Certs, Settings
from virt_admit_certs import commands, verify
from virt_admit_certs.certificates import Certificate
from virt_admit_certs.commands import StoreError
from virt_admit_certs.errors import error_text
from virt_admit_certs.kube_api import ApiError, KubeApi
from virt_admit_certs.names import names_of
from virt_admit_certs.schedule import SETTINGS, RotationSettings
from virt_admit_certs.server_clock import ServerClock
from virt_admit_certs.state import parse
from virt_admit_certs.status import CertStatus, described, status
from virt_admit_certs.stores.directory import Directory
from virt_admit_certs.stores.protocol import Loaded, Store
from virt_admit_certs.webhook_configurations import WebhookConfigurations

PATIENCE: Final = timedelta(minutes=5)
"""How long ``--wait`` waits for a replica, in addition to the propagation of a new signer."""


class _Verbs(click.Group):
    """Prints an error of a store in one line, with exit code 2."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except BrokenPipeError:
            raise
        except (StoreError, ApiError, ValueError, OSError) as error:
            raise click.ClickException(str(error)) from None


@click.group("certs", cls=_Verbs, short_help="Show or rotate the webhook's certificates.")
def command() -> None:
    """Show or rotate the webhook's certificates.

    The flags of `serve` name the store; the default is the Secret of the shipped manifests.
    Exit 0: fine, 1: something needs attention, 2: the command failed.
    """


def cluster_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select the cluster."""
    function = flag("--context", metavar="NAME", help="Context of the kubeconfig.")(function)
    return flag(
        "--kubeconfig",
        metavar="FILE",
        help="For Secrets and webhook configurations; in a pod its own.",
    )(function)


def output_flag() -> Decorator:
    return click.option(
        "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
    )


@dataclass(frozen=True)
class OpenStore:
    """A certificate store that was read, with its rotation settings."""

    store: Store
    configurations: WebhookConfigurations | None
    settings: RotationSettings
    clock: ServerClock
    loaded: Loaded


def open_store(options: dict[str, Any]) -> OpenStore:
    """Open the store that the options name.

    The expected names are those of the stored certificate and of ``--cert-name``: only ``serve``
    knows all of them.

    Raises:
        SettingError, RotationSettingsError: the options contradict each other.
        StoreError: no cluster is configured.
        OSError, ApiError: the store cannot be read.
    """
    certs = certs_settings(options, in_cluster=True)
    chosen = Settings(certs=certs, kubeconfig=options["kubeconfig"], context=options["context"])
    try:
        store, configurations = store_of(chosen)
    except ApiError as error:
        raise StoreError(f"{error}; name certificates in a folder by --certs DIR") from None
    loaded = store.load()
    serving = parse(loaded.data).serving
    names = names_of(serving.cert) if serving else cert_names(certs, ())
    clock = ServerClock()
    clock.observe_date(loaded.date)
    settings = schedule_of(
        Settings(certs=certs, cert_names=(*names, *options["cert_name"])), _cluster(certs, options)
    )
    return OpenStore(store, configurations, settings, clock, loaded)


def _cluster(certs: Certs, options: dict[str, Any]) -> Cluster:
    """Return the cluster that the schedule depends on."""
    if not follows_cluster(certs):
        return NOTHING
    source = ClusterOptions(live=True, kubeconfig=options["kubeconfig"], context=options["context"])
    return load_cluster(source, [HCO], quiet=True, further=False)


@command.command("status", short_help="Show what is stored, and the next step.")
@certs_flags
@cluster_flags
@output_flag()
def show_status(output: str, **options: Any) -> int:
    """Show signer, serving certificate, the next step and when,
    and whether each webhook carries the bundle.
    """
    opened = open_store(options)
    unread = ""
    try:
        configurations = opened.configurations.read() if opened.configurations else ()
    except ApiError as error:
        configurations, unread = (), str(error)
    found = status(
        parse(opened.loaded.data, opened.loaded.notes),
        opened.clock.now(),
        opened.settings,
        configurations=configurations,
        external=opened.store.external,
        clock_offset=opened.clock.offset,
    )
    click.echo(_json(found.as_json()) if output == "json" else found.as_text().rstrip())
    if unread:
        raise click.ClickException(unread)
    return int(bool(found.faults))


@command.command("rotate", short_help="Request a new certificate or a new signer.")
@certs_flags
@cluster_flags
@click.option("--serving", is_flag=True, help="A new serving certificate; the default.")
@click.option("--signer", is_flag=True, help="A new signer, published before it is used.")
@click.option("--revoke", is_flag=True, help="The signer's key leaked: replace it at once.")
@click.option("--wait", is_flag=True, help="Wait until the rotation is done.")
@click.option("--yes", is_flag=True, help="Revoke without asking.")
@output_flag()
def rotate(
    serving: bool, signer: bool, revoke: bool, wait: bool, yes: bool, output: str, **options: Any
) -> int:
    """Rotate without a failed call, except with --revoke.

    In a Secret, the request is stored and any replica performs it. In a folder, this command
    performs it, except the first use of a new signer: after the propagation time, --wait, `serve`
    or the next `certs issue` does that.
    """
    given = [
        name
        for name, on in (("--serving", serving), ("--signer", signer), ("--revoke", revoke))
        if on
    ]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other")
    opened = open_store(options)
    if opened.store.external:
        raise StoreError("an external issuer owns these certificates: rotate them there")
    if revoke:
        if not yes and not _confirmed(
            "Calls may fail until every API server has the new bundle. Continue?"
        ):
            raise StoreError("nothing was changed")
        request, done = "revoke", _revoke(opened)
    else:
        request, done = _request(opened, "signer" if signer else "serving")
    finished = done()
    if wait and not finished:
        finished = _wait(done, opened.settings.propagation + PATIENCE)
    if output == "json":
        click.echo(_json({"version": 1, "request": request, "done": finished}))
    else:
        click.echo(f"{request} {'is done' if finished else _pending(opened)}")
    if wait and not finished:
        raise click.ClickException(
            "the rotation is not done: check that a webhook serves from this store (certs status)"
        )
    return 0


def _confirmed(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError(
            "standard input gives no answer, so nothing was changed. Add --yes"
        ) from None


def _pending(opened: OpenStore) -> str:
    if isinstance(opened.store, Directory):
        return "is announced; serve or certs issue uses it after the propagation time"
    return "is requested; a replica of the webhook performs it"


def _request(opened: OpenStore, what: Any) -> tuple[str, Callable[[], bool]]:
    request = commands.request_rotation(opened.store, what)

    def done() -> bool:
        if isinstance(opened.store, Directory):
            commands.advance(opened.store, opened.settings, opened.clock.now)
        return commands.rotation_done(opened.store, request)

    return request, done


def _revoke(opened: OpenStore) -> Callable[[], bool]:
    commands.revoke(opened.store, opened.settings, opened.clock.now)

    def done() -> bool:
        trusted = commands.bundle(opened.store)  # a replica may have rotated since
        configurations = opened.configurations.read() if opened.configurations else ()
        return all(found.carries(trusted) for found in configurations)

    return done


def _wait(done: Callable[[], bool], patience: timedelta) -> bool:
    deadline = time.monotonic() + patience.total_seconds()
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.25)
    return True


@command.command("issue", short_help="Issue into a folder, once, without serving.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@issue_flags
@output_flag()
def issue(directory: Path, cert_name: Sequence[str], output: str, **schedule: str | None) -> int:
    """Issue a CA and a certificate into DIR, or renew what is due there,
    as `serve --certs DIR` would.
    """
    values = {
        name: value for name in SETTINGS if (value := schedule[f"certs_{name.replace('-', '_')}"])
    }
    certs = Certs(directory=directory, schedule=values)
    settings = schedule_of(Settings(certs=certs, cert_names=cert_names(certs, cert_name)))
    store, clock = Directory(directory), ServerClock()
    done = [step.name for step in commands.advance(store, settings, clock.now)]
    found = status(parse(store.load().data), clock.now(), settings)
    if output == "json":
        click.echo(_json({**found.as_json(), "steps": done}))
    else:
        click.echo(f"done       {', '.join(done) or 'nothing was due'}\n{found.as_text().rstrip()}")
    return int(bool(found.faults))


@command.command("bundle", short_help="Print the certificates to trust.")
@certs_flags
@cluster_flags
def show_bundle(**options: Any) -> int:
    """Print the CA certificates to trust, as PEM."""
    click.echo(commands.bundle(open_store(options).store), nl=False)
    return 0


@dataclass(frozen=True, slots=True)
class Caller:
    """An API server that calls the webhook: the bundle it trusts, and the name it verifies."""

    name: str
    server_name: str
    bundle: bytes
    entries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a call; ``reason`` and ``remedy`` are empty if it succeeds."""

    caller: str
    server_name: str
    entries: tuple[str, ...]
    succeeds: bool
    reason: str
    remedy: str


@command.command("verify", short_help="Call the webhook as an API server would.")
@click.argument("url", metavar="URL")
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Trust these CA certificates instead of the caBundle of the live webhook configurations.",
)
@click.option(
    "--server-name",
    metavar="NAME",
    help="Verify this name instead of the one that API servers verify.",
)
@cluster_flags
@output_flag()
def show_trials(
    url: str,
    ca_file: Path | None,
    server_name: str | None,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> int:
    """Connect to URL, show its certificates,
    and show for each webhook configuration whether its calls succeed.

    The verified name is that of the Service or of the URL in the configuration, so URL may be a
    forwarded port.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise click.UsageError("URL must begin with https:// and name a host")
    host, port = parts.hostname, parts.port or 443
    if ca_file:
        callers = [Caller(str(ca_file), server_name or host, ca_file.read_bytes())]
    else:
        callers = list(
            _callers(WebhookConfigurations(KubeApi.connect(kubeconfig, context)), server_name)
        )
    if not callers:
        raise StoreError("no webhook configuration virt-admit exists: add --ca-file")
    try:
        try:
            chain = verify.chain(host, port)
        except ssl.SSLError:
            chain = ()  # the calls below report the reason
        path = parts.path.rstrip("/") or "/validate"
        trials = [_try(caller, host, port, path) for caller in callers]
    except OSError as error:
        hint = "; from outside the cluster: kubectl port-forward" if host.endswith(".svc") else ""
        raise click.ClickException(f"{host}:{port}: {error_text(error)}{hint}") from None
    if output == "json":
        shown, verdicts = [asdict(described(cert)) for cert in chain], list(map(asdict, trials))
        click.echo(_json({"version": 1, "url": url, "chain": shown, "verdicts": verdicts}))
    else:
        lines = (line for trial in trials for line in _lines(trial))
        click.echo("\n".join([*_chain_lines(chain), *lines]))
    return int(not all(trial.succeeds for trial in trials))


def _callers(configurations: WebhookConfigurations, server_name: str | None) -> Iterator[Caller]:
    """Yield a caller for each configuration, name and bundle:
    entries that share all three make the same calls.
    """
    for configuration in configurations.read():
        alike: dict[tuple[str, bytes], list[str]] = {}
        for entry in configuration.entries:
            alike.setdefault((server_name or entry.server_name, entry.bundle), []).append(
                entry.name
            )
        for (name, bundle), entries in alike.items():
            yield Caller(configuration.kind, name, bundle, tuple(entries))


def _try(caller: Caller, host: str, port: int, path: str) -> Trial:
    failure = verify.call(host, port, caller.server_name or host, caller.bundle, path)
    reason, remedy = (failure.reason, failure.remedy) if failure else ("", "")
    if failure and not caller.bundle:
        reason = f"{reason}; the caBundle is empty"
    return Trial(
        caller.name, caller.server_name or host, caller.entries, failure is None, reason, remedy
    )


def _chain_lines(chain: Sequence[Certificate]) -> Iterator[str]:
    for number, cert in enumerate(map(described, chain)):
        yield from _cert_lines("then" if number else "shown", cert)
    if not chain:
        yield "shown      no certificate"


def _cert_lines(label: str, cert: CertStatus) -> Iterator[str]:
    yield f"{label:<10} {cert.subject}, {cert.not_before} to {cert.not_after}"
    yield f"{'':<10} signed by {cert.issuer}"
    yield f"{'':<10} sha256 {cert.sha256}"
    if cert.names:
        yield f"{'':<10} names {', '.join(cert.names)}"


def _lines(trial: Trial) -> Iterator[str]:
    entries = f" ({', '.join(trial.entries)})" if trial.entries else ""
    yield (
        f"{'succeeds' if trial.succeeds else 'fails':<10} {trial.caller} as "
        f"{trial.server_name}{entries}"
    )
    if not trial.succeeds:
        yield f"{'':<10} {trial.reason}"
        yield f"{'':<10} {trial.remedy}"


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2)
