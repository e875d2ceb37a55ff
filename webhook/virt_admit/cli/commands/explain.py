"""``virt-admit explain``: what a health check would do,
and when the VMs of a lost node run again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import click

from virt_admit.cli import html_output
from virt_admit.cli.cluster_source import AnyCluster, load_cluster, namespaced_object, with_objects
from virt_admit.cli.commands import explain_objects
from virt_admit.cli.options import (
    ClusterOptions,
    Destination,
    OutputOptions,
    PolicyOptions,
    cluster_options,
    page_output_options,
    policy_options,
)
from virt_admit.documents import files, reader
from virt_admit.forecasts.outage.explanation import KINDS, LOOKS_UP, Explanation, explain
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Snapshot, Unseen
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import names
from virt_admit.model.sanitize import line
from virt_admit.reports.explain.check.report import report
from virt_admit.reports.explain.check.text import facts, stages, text
from virt_admit.reports.values import as_data, json_text


@click.command(
    "explain", short_help="Show one VM, one node or one health check: what would happen, and why."
)
@click.argument("target", metavar="FILE|KIND/NAME")
@click.argument("name", required=False, metavar="")
@click.option(
    "-n",
    "--namespace",
    default=None,
    metavar="NAME",
    help="Namespace of the VM or the health check, and of objects in FILE that do not name one.",
)
@cluster_options
@policy_options
@page_output_options
def command(
    target: str,
    name: str | None,
    namespace: str | None,
    source: ClusterOptions,
    policy: PolicyOptions,
    output: OutputOptions,
) -> int:
    """Show what would happen to one VM (vm/NAME) or to one node (node/NAME), and why.
    Changes nothing.

    A VM: what a drain, an update of KubeVirt, the loss of its node, a reboot and a migration would
    do, where it can go, its migrations, the rules about it and commands to type. A node: its drain
    and its loss. A health check (nhc/NAME, mhc/NAMESPACE/NAME, or in FILE; - is standard input):
    what it watches, when it acts or never does, and when VMs run again. Other objects in FILE are
    added to the cluster that --cluster or --live names. Exit 2: nothing to explain.
    """
    source.require_one()
    if name is not None:  # kubectl takes `vm NAME` too
        target = f"{target}/{name}"
    # <(kubectl get …) is a pipe
    in_file = target == "-" or (os.path.exists(target) and not os.path.isdir(target))
    named = None if in_file else explain_objects.parse(target)
    if named is not None:
        return explain_objects.run(named, namespace, source, output, policy)
    return _explain_checks(target, in_file, namespace, source, output)


def _explain_checks(
    target: str, in_file: bool, namespace: str | None, source: ClusterOptions, output: OutputOptions
) -> int:
    to = output.parse()
    cluster: AnyCluster = Snapshot()
    try:
        if not in_file:
            _parse(target)
        if not in_file or source.given:
            cluster = load_cluster(source, LOOKS_UP)
        objects = list(_objects(target, namespace or "default")) if in_file else []
        checks = (
            [obj for obj in objects if kinds.of(obj) in KINDS]
            if in_file
            else [find(target, cluster, namespace)]
        )
    except (LookupError, reader.DocumentError) as error:
        raise click.ClickException(line(str(error))) from None
    if objects:
        cluster = with_objects(cluster, objects)
    if not checks:
        raise click.ClickException(f"{target} contains no health check")
    explanations = [explain(check, cluster) for check in checks]
    if to.form == "html":
        evidence = (
            html_output.evidence(source, cluster)
            if source.given or not in_file
            else (("file", target),)
        )
        _publish(explanations, evidence, to)
    else:
        _print(explanations, to.form)
    return 0


def _publish(
    explanations: Sequence[Explanation], evidence: html_output.Evidence, to: Destination
) -> None:
    """Write the page, or a page for each owner of VMs."""
    from virt_admit.reports.explain.check import html  # noqa: PLC0415 - importing Jinja2 takes time

    checks = [
        html.Check(
            name=f"{one.check.obj.kind} {one.check.obj.full_name}",
            facts=facts(one),
            stages=stages(one),
            timeline=one.timeline,
            fates=one.fates,
            obstacles=one.obstacles,
            unseen=one.unseen,
        )
        for one in explanations
    ]
    pages = html_output.OwnerPages.of(
        html.page(checks, evidence),
        lambda by: html.split(checks, by),
        lambda part, owner: html.page(part, evidence, owner),
    )
    html_output.publish(pages, to.file, to.pages_by)


def _print(explanations: Sequence[Explanation], output: str) -> None:
    if output == "json":
        data = [as_data(report(explanation)) for explanation in explanations]
        click.echo(json_text(data[0] if len(data) == 1 else data))
    else:
        texts = (text(explanation).rstrip("\n") + "\n" for explanation in explanations)
        click.echo("\n".join(texts), nl=False)


def _objects(file: str, namespace: str) -> Iterator[Object]:
    """Yield the objects in a file.

    Raises:
        DocumentError: the file cannot be read.
    """
    for name, content, _ in files.find([file]):
        if isinstance(content, reader.DocumentError):
            raise content
        found, errors = reader.read(content, name)
        if errors:
            raise errors[0]
        yield from (namespaced_object(document, namespace) for document in found)


def find(target: str, cluster: Cluster, namespace: str | None = None) -> Object:
    """Return the health check ``KIND/NAME`` or ``KIND/NAMESPACE/NAME``, as kubectl would find it.

    The kind may be written in any case, in the plural, with its group after a dot, or as ``nhc`` or
    ``mhc``.

    Raises:
        LookupError: no or several health checks have this name, or some could not be listed.
    """
    target_kinds, target_namespace, name = _parse(target)
    found: list[Object] = []
    unseen = ""
    for kind in target_kinds:
        try:
            searched = (target_namespace or namespace) if kind.namespaced else None
            found.extend(obj for obj in cluster.list(kind, searched) if obj.name == name)
        except Unseen as missing:
            unseen = missing.what
    if len(found) == 1:
        return found[0]
    if found:
        candidates = names(f"{obj.api_version} {obj.full_name}" for obj in found)
        forms = "Write KIND.GROUP/NAMESPACE/NAME"
        raise LookupError(f"{target} is ambiguous: it may be {candidates}. {forms}")
    why = f"cannot be found: {unseen} are not available" if unseen else "does not exist"
    raise LookupError(f"{target} {why}")


def _parse(target: str) -> tuple[list[Kind], str, str]:
    """Return the kinds that the target may mean, its namespace (empty: none is named) and its name.

    Raises:
        LookupError: the target is not KIND/NAME or KIND/NAMESPACE/NAME.
    """
    word, _, rest = target.partition("/")
    namespace, _, name = rest.rpartition("/")
    target_kinds = [kind for kind in KINDS if word.lower() in _aliases(kind)]
    if not target_kinds or not name:
        raise LookupError(
            f"{target} is not a file and does not name an object: write nhc/NAME, "
            "mhc/NAMESPACE/NAME, vm/NAME or node/NAME"
        )
    return target_kinds, namespace, name


def _aliases(kind: Kind) -> tuple[str, ...]:
    """Return the names of a kind."""
    short = "nhc" if kind is kinds.NHC else "mhc"
    singular = kind.kind.lower()
    of_group = (f"{singular}.{kind.group}", f"{short}.{kind.group}")
    return (short, singular, kind.plural, kind.resource, *of_group)
