"""``virt-admit explain vm/NAME`` and ``node/NAME``: one VM or one node on one screen."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

import click

from virt_admit.cli import snapshot_age
from virt_admit.cli.cluster_source import AnyCluster, load_cluster, load_policy, warn_unreadable
from virt_admit.cli.commands import live_events
from virt_admit.cli.forecast_flow import ClusterForecast
from virt_admit.cli.html_output import Evidence, OwnerPages
from virt_admit.cli.options import ClusterOptions, OutputOptions, PolicyOptions
from virt_admit.cli.output import failure, tell
from virt_admit.forecasts.drain.control import failed_plans, held_copies, stuck_deletions
from virt_admit.forecasts.drain.starts import start_obstacles
from virt_admit.forecasts.outage import explanation, outages
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.model.evidence.reported import Read, no_events
from virt_admit.model.kubernetes.kinds import NODE, VM, VMI, Kind
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import migration_history, vm_lookup
from virt_admit.model.sanitize import line
from virt_admit.policy.policy import PolicyError
from virt_admit.reports.explain import judged_rules
from virt_admit.reports.explain.judged_rules import Opinion
from virt_admit.reports.explain.node import collect as explain_node
from virt_admit.reports.explain.node import text as node_text
from virt_admit.reports.explain.vm import collect as explain_vm
from virt_admit.reports.explain.vm import surroundings
from virt_admit.reports.explain.vm import text as vm_text
from virt_admit.rules import load_rules
from virt_admit.settings import SettingError

_FORMS: Final = (VM, VMI, NODE)
_SHORT: Final = {VM: ("vm", "vms"), VMI: ("vmi", "vmis"), NODE: ("no", "node", "nodes")}

READS: Final = union(
    rehearsal.READS,
    outages.READS,
    migration_history.READS,
    start_obstacles.READS,
    held_copies.READS,
    failed_plans.READS,
    stuck_deletions.READS,
    dict.fromkeys(explanation.LOOKS_UP, ()),
)


class NamedObject(NamedTuple):
    """A VM or a node that a user names."""

    kind: Kind
    namespace: str
    """Empty: none is named."""
    name: str


def parse(target: str) -> NamedObject | None:
    """Return the VM or the node that ``KIND/NAME`` or ``KIND/NAMESPACE/NAME`` names; None:
    it names neither.
    """
    word, _, rest = target.partition("/")
    namespace, _, name = rest.rpartition("/")
    kind = next((each for each in _FORMS if word.lower() in _aliases(each)), None)
    return NamedObject(kind, namespace, name) if kind is not None and name else None


def _aliases(kind: Kind) -> tuple[str, ...]:
    singular = kind.kind.lower()
    return (*_SHORT[kind], singular, kind.plural, kind.resource, f"{singular}.{kind.group}")


def looks_up(judged: Iterable[Kind]) -> tuple[Kind, ...]:
    """Return the kinds to list in a live cluster:
    those of the forecasts and those of the rules about some kinds.
    """
    return tuple(sorted({*READS, *judged_rules.reads(load_rules().in_scan, judged)}))


def run(
    named: NamedObject,
    namespace: str | None,
    source: ClusterOptions,
    output: OutputOptions,
    policy: PolicyOptions,
) -> int:
    """Print the report about a VM or a node. Return the exit code.

    Raises:
        ClickException: the cluster or the policy cannot be read, or the object does not exist.
    """
    to = output.parse()
    if output.pages_by is not None:
        raise click.UsageError("--pages-by is for reports about several VMs")
    is_node = named.kind is NODE
    kinds = looks_up(explain_node.JUDGED if is_node else explain_vm.JUDGED)
    cluster = load_cluster(source, kinds, named.namespace or namespace or "")
    events = live_events.of(cluster, source)
    read = events.read_about if events is not None else no_events
    opinion = _opinion(source, policy)
    if to.form != "text":  # which names it
        warn_unreadable(cluster, kinds)
    try:
        if is_node:
            found = _node(named.name, cluster, opinion, read)
        else:
            found = _vm(named.name, named.namespace or namespace, cluster, opinion, read)
    except LookupError as error:
        raise click.ClickException(line(str(error))) from None
    found.publish(to, source, cluster)
    return snapshot_age.judged(found.code, cluster, source, None)


def _vm(
    name: str, namespace: str | None, cluster: AnyCluster, opinion: Opinion, read: Read
) -> ClusterForecast:
    """Return the report about a VM.

    Raises:
        LookupError: it does not exist, or in several namespaces.
    """
    try:
        vm = vm_lookup.find(name, namespace, cluster)
    except LookupError as error:
        copies = held_copies.awaited(name, namespace, cluster) if namespace else ()
        raise LookupError(". ".join((str(error), *copies))) from None
    report = explain_vm.report(vm, cluster, opinion, cluster.unreadable)
    report = surroundings.with_reported(report, vm, cluster, read)

    def pages(evidence: Evidence) -> OwnerPages:
        # importing Jinja2 takes time
        from virt_admit.reports.explain.vm import html  # noqa: PLC0415

        return OwnerPages(html.page(report, cluster.unreadable, evidence))

    text = partial(vm_text.text, report, cluster.unreadable)
    return ClusterForecast(0, lambda: report, text, pages)


def _node(name: str, cluster: AnyCluster, opinion: Opinion, read: Read) -> ClusterForecast:
    """Return the report about a node.

    Raises:
        LookupError: it does not exist.
    """
    found = explain_node.report(name, cluster, opinion, cluster.unreadable, read)

    def pages(evidence: Evidence) -> OwnerPages:
        # importing Jinja2 takes time
        from virt_admit.reports.explain.node import html  # noqa: PLC0415

        return OwnerPages(html.page(found, cluster, cluster.unreadable, evidence))

    text = partial(node_text.text, found, cluster.unreadable)
    return ClusterForecast(0, lambda: found.report, text, pages)


def _opinion(source: ClusterOptions, options: PolicyOptions) -> Opinion:
    """Return the rules and the policy.

    A policy of the cluster that may not be read leaves the rules out.
    """
    rules, choice = load_rules().in_scan, options.policy_choice()
    try:
        live = None if source.cluster else source
        return Opinion(rules, load_policy(choice, options.policy_configmap, live))
    except (SettingError, PolicyError, OSError) as error:
        if choice:
            raise failure(error) from None
        tell(f"the policy cannot be read, so no rule is judged: {error}")
        return Opinion(rules, None)
