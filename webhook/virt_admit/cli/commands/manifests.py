"""``virt-admit manifests``: the webhook configurations and RBAC as YAML."""

from __future__ import annotations

import re
from pathlib import Path

import click
import yaml
from cryptography import x509

from virt_admit.cli.output import failure
from virt_admit.install import policies
from virt_admit.install.guard import guard
from virt_admit.install.manifests import rbac, scan_rbac, webhooks
from virt_admit.model import sanitize
from virt_admit.model.kubevirt.settings.trusted_accounts import TRUSTED_NAMESPACES
from virt_admit.policy.files import load_policy
from virt_admit.policy.policy import PolicyError
from virt_admit.rules import Rules, load_rules
from virt_admit.settings import SettingError

ORDER = """\
# Install the Deployment first. Apply the webhook configurations when it is ready.
# Uninstall the webhook configurations first, then the rest. API servers never send them to
# webhooks, so this emergency exit always works:
#   kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration virt-admit
"""


def namespace_names(
    _context: click.Context, _param: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the names if each is a valid namespace name: they become part of a CEL expression."""
    for name in names:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
            raise click.BadParameter(f"{name!r} is not a namespace name")
    return names


@click.command("manifests", short_help="Print the webhook configurations and RBAC as YAML.")
@click.option(
    "--part",
    type=click.Choice(["all", "webhooks", "rbac", "policies"]),
    default="all",
    show_default=True,
    help="What to print; all does not include policies.",
)
@click.option(
    "--url",
    default="",
    metavar="https://HOST:PORT",
    help="Let API servers call this URL instead of the Service.",
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
@click.option(
    "--policy",
    metavar="FILE|audit|default|strict",
    default="default",
    show_default=True,
    help="With --part policies: the policy that they enforce.",
)
def command(
    part: str, url: str, ca_file: Path | None, trusted_namespace: tuple[str, ...], policy: str
) -> int:
    """Print the webhook configurations and the RBAC that the rules need, as YAML for kubectl apply.

    With --part policies it prints ValidatingAdmissionPolicies for the denials that need no look-up:
    API servers evaluate them, also while no replica of the webhook answers.

    The components in manifests/components add rights that not every cluster needs: read access to
    the namespace medik8s-leases (medik8s), and write access for reports and Events (scan-reports).
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
    if part == "policies":
        return _print_policies(rules, policy)
    objects = [*rbac(rules), *guard(), *scan_rbac(load_rules())] if part in ("all", "rbac") else []
    if part in ("all", "webhooks"):
        objects += webhooks(rules, url, bundle, trusted_namespace)
    click.echo(ORDER + yaml.safe_dump_all(objects, sort_keys=False, width=120), nl=False)
    return 0


def _print_policies(rules: Rules, name: str) -> int:
    try:
        policy = load_policy(name, rules)
    except (PolicyError, SettingError, OSError) as error:
        raise failure(error) from None
    unsaid = [f"not exported: {sanitize.cell(what)}" for what in policies.unsaid(rules, policy)]
    for line in unsaid:
        click.echo(line, err=True)
    objects = policies.policies(rules, policy)
    if not objects:
        raise click.ClickException(f"the policy {name} denies nothing that could be exported")
    comments = "".join(f"# {line}\n" for line in unsaid)
    click.echo(comments + yaml.safe_dump_all(objects, sort_keys=False, width=120), nl=False)
    return 0
