"""``virt-admit manifests``: the webhook configurations and RBAC as YAML."""

from __future__ import annotations

import re
from pathlib import Path

import click
import yaml
from cryptography import x509

from virt_admit.install.guard import guard
from virt_admit.install.manifests import rbac, scan_rbac, webhooks
from virt_admit.model.kubevirt.settings.trusted_accounts import TRUSTED_NAMESPACES
from virt_admit.rules import load_rules

ORDER = """\
# Install the Deployment first. Apply the webhook configurations when it is ready.
# Uninstall the webhook configurations first, then the rest. API servers never send them to webhooks, so this
# emergency exit always works:
#   kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration virt-admit
"""


def namespace_names(_context: click.Context, _param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names if each is a valid namespace name: they become part of a CEL expression."""
    for name in names:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
            raise click.BadParameter(f"{name!r} is not a namespace name")
    return names


@click.command("manifests", short_help="Print the webhook configurations and RBAC as YAML.")
@click.option(
    "--part", type=click.Choice(["all", "webhooks", "rbac"]), default="all", show_default=True, help="What to print."
)
@click.option(
    "--url", default="", metavar="https://HOST:PORT", help="Let API servers call this URL instead of the Service."
)
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="CA that API servers trust, required with --url.",
)
@click.option(
    "--trusted-namespace",
    multiple=True,
    default=TRUSTED_NAMESPACES,
    show_default=True,
    callback=namespace_names,
    metavar="NAMESPACE",
    help="Do not send requests of KubeVirt's service accounts in this namespace; repeatable.",
)
def command(part: str, url: str, ca_file: Path | None, trusted_namespace: tuple[str, ...]) -> int:
    """Print the webhook configurations and the RBAC that the rules need, as YAML for kubectl apply.

    The components in manifests/components add rights that not every cluster needs: read access to the namespace
    medik8s-leases (medik8s), and write access for reports and Events (scan-reports).
    """
    if bool(url) != bool(ca_file):
        raise click.UsageError("--url and --ca-file require each other")
    if url and not url.startswith("https://"):
        raise click.UsageError("--url must begin with https://")
    bundle = ca_file.read_bytes() if ca_file else b""
    try:
        if ca_file:
            x509.load_pem_x509_certificates(bundle)
    except ValueError:
        raise click.UsageError(f"{ca_file} contains no PEM certificate") from None
    rules = load_rules().at_admission
    objects = [*rbac(rules), *guard(), *scan_rbac(load_rules())] if part in ("all", "rbac") else []
    if part in ("all", "webhooks"):
        objects += webhooks(rules, url, bundle, trusted_namespace)
    click.echo(ORDER + yaml.safe_dump_all(objects, sort_keys=False, width=120), nl=False)
    return 0
