"""``virt-admit manifests``: what the cluster needs, as YAML."""

from __future__ import annotations

from pathlib import Path

import click
import yaml
from cryptography import x509

from virt_admit.install.manifests import rbac, scan_rbac, webhooks
from virt_admit.rules import load_rules

ORDER = """\
# Install: the Deployment first, and only when it is ready the webhook configurations.
# Uninstall: the webhook configurations first, then the rest. They are never sent to webhooks themselves, so
#   kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration virt-admit
# always works: the emergency exit.
"""


@click.command("manifests", short_help="Print what the cluster needs, as YAML.")
@click.option("--part", type=click.Choice(["all", "webhooks", "rbac"]), default="all", show_default=True)
@click.option("--url", default="", metavar="https://HOST:PORT", help="Call this URL instead of the Service.")
@click.option(
    "--ca-file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="With --url: the CA to trust."
)
def command(part: str, url: str, ca_file: Path | None) -> int:
    """Print the webhook configurations and the RBAC that the rules need, as YAML for kubectl apply.

    Left out is what not every cluster can take or should grant; it is in manifests/components: to read in
    openshift-etcd (openshift) and medik8s-leases (medik8s), as no role can be made in a namespace that is missing,
    and to write reports and Events (scan-reports).
    """
    if bool(url) != bool(ca_file):
        raise click.UsageError("--url and --ca-file belong together")
    if url and not url.startswith("https://"):
        raise click.UsageError("--url must begin with https://")
    bundle = ca_file.read_bytes() if ca_file else b""
    try:
        if ca_file:
            x509.load_pem_x509_certificates(bundle)
    except ValueError:
        raise click.UsageError(f"{ca_file} holds no certificate in PEM") from None
    rules = load_rules().at_admission
    objects = [*rbac(rules), *scan_rbac(load_rules())] if part in ("all", "rbac") else []
    if part in ("all", "webhooks"):
        objects += webhooks(rules, url, bundle)
    click.echo(ORDER + yaml.safe_dump_all(objects, sort_keys=False, width=120), nl=False)
    return 0
