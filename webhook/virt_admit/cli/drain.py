"""``virt-admit drain``: what draining a node would do to its VMs, and whether the cluster can be upgraded today."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from virt_admit.cli.lookups import load_cluster
from virt_admit.cli.options import ClusterOptions, cluster_options, output_option
from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kinds import NODE, PDB, VMI, Kind
from virt_admit.model.kubevirt import configuration
from virt_admit.model.kubevirt.drain import READS, Forecast, VmOutcome, forecast
from virt_admit.model.kubevirt.vmis import occupied, on_node
from virt_admit.model.kubevirt.workload_updates import Reach, Update, running, update
from virt_admit.model.kubevirt.workload_updates import methods as update_methods
from virt_admit.model.messages import count, names
from virt_admit.model.objects import Object

LOOKS_UP: Final[tuple[Kind, ...]] = (*READS, NODE)
"""The kinds that a plan needs from a live cluster."""

WORST_FIRST: Final = {outcome: rank for rank, outcome in enumerate(VmOutcome)}


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The effects of a drain of one node."""

    name: str
    state: tuple[str, ...]
    """The state of the node now, if it is not normal: ``cordoned``, ``not Ready``, ``not seen``."""
    forecasts: tuple[Forecast, ...]
    """One forecast for each VMI on the node, the worst first."""

    def having(self, outcome: VmOutcome) -> tuple[Forecast, ...]:
        """Return the forecasts with this outcome."""
        return tuple(forecast for forecast in self.forecasts if forecast.outcome is outcome)


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects of drains, node by node."""

    nodes: tuple[NodePlan, ...]
    """The worst node first."""
    whole: bool
    """Whether the plan is for all nodes of the cluster."""
    methods: tuple[str, ...] | None
    """The workload update methods in force. None: not needed, or they cannot be determined."""
    updates: tuple[Update, ...]
    """How an update of KubeVirt would reach the running VMs. Empty for a single node."""
    unseen: tuple[str, ...]
    """The data that could not be read. There may be more VMs than are listed."""

    def having(self, outcome: VmOutcome) -> tuple[Forecast, ...]:
        """Return the forecasts with this outcome on all nodes."""
        return tuple(forecast for node in self.nodes for forecast in node.having(outcome))

    @property
    def drainable(self) -> bool | None:
        """Whether every node of the plan can be drained now. None: it cannot be determined."""
        return self.can_drain(*self.nodes)

    def can_drain(self, *nodes: NodePlan) -> bool | None:
        """Return whether these nodes can be drained now. None: it cannot be determined."""
        if any(node.having(VmOutcome.BLOCKS) for node in nodes):
            return False
        return None if self.unseen or any(node.having(VmOutcome.UNKNOWN) for node in nodes) else True


def plan(cluster: Cluster, node: str | None = None) -> Plan:
    """Return what a drain of a node would do now; without a node, of each node of the cluster.

    Raises:
        LookupError: the node does not exist.
    """
    known = {found.name: found for found in cluster.known(NODE)}
    if node is not None and _is_missing(cluster, node):
        raise LookupError(f"node {node} does not exist. The nodes are: {names(sorted(known)) or 'none'}")
    node_names = {*known, *occupied(cluster)} if node is None else {node}
    plans = sorted((_node_plan(name, known.get(name), cluster) for name in node_names), key=_badness)
    methods = _methods(cluster) if node is None else None
    return Plan(
        nodes=tuple(plans),
        whole=node is None,
        methods=methods,
        updates=() if methods is None else tuple(update(vmi, methods, cluster) for vmi in running(cluster)),
        unseen=tuple(_unseen_kinds(plans, node is None, cluster)),
    )


def drain(cluster: Cluster, node: str | None, output: str) -> tuple[str, int]:
    """Return the plan as ``text`` or ``json``, and the exit code: 1 if a VM blocks, 2 if that is unknown, else 0.

    Raises:
        LookupError: the node does not exist.
    """
    result = plan(cluster, node)
    rendered = json.dumps(as_data(result), indent=2) if output == "json" else text(result)
    return rendered, {True: 0, False: 1, None: 2}[result.drainable]


@click.command("drain", short_help="Show what draining a node would do to its virtual machines.")
@click.argument("node", required=False, metavar="[NODE]")
@click.option(
    "--all", "every", is_flag=True, help="Show every node, the worst first, and whether the cluster can be upgraded."
)
@cluster_options
@output_option
def command(node: str | None, every: bool, source: ClusterOptions, output: str) -> int:
    """Show what draining NODE would do to each of its virtual machines, why, and what to do about it. Changes nothing.

    Exit 0 every named node can be drained, 1 something blocks, 2 the answer cannot be determined.
    """
    if (node is None) is not every:
        raise click.UsageError("give a NODE or --all")
    try:
        rendered, code = drain(load_cluster(source, LOOKS_UP), node, output)
    except LookupError as error:
        raise click.ClickException(str(error)) from None
    click.echo(rendered.rstrip("\n"))
    return code


def _unseen_kinds(plans: Iterable[NodePlan], whole: bool, cluster: Cluster) -> Iterator[str]:
    """Yield the kinds that are not completely known and can change the plan."""
    found = {forecast.outcome for node in plans for forecast in node.forecasts}
    moves, shut_down = VmOutcome.MIGRATES in found, not found.isdisjoint((VmOutcome.RESTARTS, VmOutcome.STOPS))
    for kind, matters in ((NODE, whole or moves), (VMI, True), (PDB, shut_down)):
        try:
            for _ in cluster.list(kind) if matters else ():
                pass
        except Unseen as unseen:
            yield unseen.what


def _is_missing(cluster: Cluster, node: str) -> bool:
    try:
        return cluster.get(NODE, "", node) is None
    except Unseen:
        return False


def _node_plan(name: str, node: Object | None, cluster: Cluster) -> NodePlan:
    forecasts: list[Forecast] = []
    with contextlib.suppress(Unseen):  # known VMIs come first; ``Plan.unseen`` has the kind
        forecasts.extend(forecast(vmi, cluster) for vmi in on_node(cluster, name))
    return NodePlan(name, tuple(_state(node)), tuple(sorted(forecasts, key=_rank)))


def _state(node: Object | None) -> Iterator[str]:
    if node is None:
        yield "not seen"
        return
    if node.at("spec", "unschedulable").boolean:
        yield "cordoned"
    if node.condition("Ready")["status"].value != "True":
        yield "not Ready"


def _rank(forecast: Forecast) -> tuple[int, str]:
    return WORST_FIRST[forecast.outcome], forecast.vmi.full_name


def _badness(node: NodePlan) -> tuple[tuple[int, ...], str]:
    """Return a sort key: first the nodes with most blocking VMs, then with most of the next worst outcome, and so on."""
    counts = Counter(forecast.outcome for forecast in node.forecasts)
    return tuple(-counts[outcome] for outcome in VmOutcome), node.name


def _methods(cluster: Cluster) -> tuple[str, ...] | None:
    """Return the update methods in force. HyperConverged, if it exists, writes those of KubeVirt."""
    for read in (configuration.hyperconverged, configuration.kubevirt):
        try:
            found = read(cluster)
        except Unseen:
            continue
        if found is not None:
            return tuple(sorted(update_methods(found)))
    return None


# --- as text -----------------------------------------------------------------------------------------------------


def text(result: Plan) -> str:
    """Return a plan as text: a table for each node with VMs, and conclusions for a whole cluster."""
    lines: list[str] = []
    for node in result.nodes:
        if node.forecasts or not result.whole:
            lines += [_headline(node), *_table(node.forecasts), ""]
    if result.whole:
        lines += [*_whole(result), ""]
    if result.unseen:
        lines += [f"Not available: {names(result.unseen)}. There may be more VMs.", ""]
    return "\n".join(lines)


def _headline(node: NodePlan) -> str:
    state = f" ({', '.join(node.state)})" if node.state else ""
    counts = Counter(forecast.outcome for forecast in node.forecasts)
    outcomes = ", ".join(_counted(counts[outcome], outcome) for outcome in VmOutcome if counts[outcome])
    return f"node {node.name}{state}: {count(len(node.forecasts), 'VM')}{': ' if outcomes else ''}{outcomes}"


def _counted(number: int, outcome: VmOutcome) -> str:
    """Return ``1 blocks the drain`` or ``2 block the drain``."""
    verb, *rest = outcome.split()
    return " ".join((str(number), verb if number == 1 else verb.removesuffix("s"), *rest))


def _table(forecasts: Sequence[Forecast]) -> Iterator[str]:
    width = max((len(row.outcome) for row in forecasts), default=0)
    name_width = max((len(row.vmi.full_name) for row in forecasts), default=0)
    for row in forecasts:
        yield f"  {row.outcome:{width}}  {row.vmi.full_name:{name_width}}  {row.reason}"
        if row.remedy:
            yield f"  {'':{width}}  {'':{name_width}}  to do: {row.remedy}"


def _whole(result: Plan) -> Iterator[str]:
    empty = [node.name for node in result.nodes if not node.forecasts]
    if empty:
        yield f"{count(len(empty), 'node')} without VMs: {names(sorted(empty))}"
    if result.methods is not None:
        by_reach = Counter(update.reach for update in result.updates)
        reaches = ", ".join(f"{by_reach[reach]} {reach}" for reach in Reach if by_reach[reach])
        methods = ", ".join(result.methods) or "no method"
        yield f"Updates of running VMs ({methods}): {reaches or 'no VM is running'}"
        missed = [
            f"{update.vmi.full_name} ({update.reason})" for update in result.updates if update.reach in _OUT_OF_REACH
        ]
        if missed:
            yield f"  never updated: {names(missed)}"
    yield f"Can the cluster be upgraded today? {_verdict(result)}"


_OUT_OF_REACH: Final = (Reach.NEVER, Reach.RETRIED)


def _verdict(result: Plan) -> str:
    blocking, stopping = result.having(VmOutcome.BLOCKS), result.having(VmOutcome.STOPS)
    cost = f"{count(len(stopping), 'VM')} would stop for good" if stopping else ""
    if blocking:
        blocked = [node.name for node in result.nodes if node.having(VmOutcome.BLOCKS)]
        also = f"; {cost}" if cost else ""
        return f"No: {count(len(blocking), 'VM')} on {count(len(blocked), 'node')} would block it{also}."
    if result.drainable is None:
        unknown = count(len(result.having(VmOutcome.UNKNOWN)), "VM")
        return (
            f"Unknown: the outcome for {unknown} cannot be determined." if not result.unseen else "Unknown: see below."
        )
    return f"Yes, but {cost}." if cost else "Yes: every node can be drained."


# --- as data -----------------------------------------------------------------------------------------------------


def as_data(result: Plan) -> dict[str, Any]:
    """Return a plan as JSON data. Additive changes only:

    ``drainable``: true, false, or null (unknown), for all ``nodes`` of the plan. ``nodes``: worst first, each with
    ``name``, ``state`` (of ``cordoned``, ``not Ready``, ``not seen``), ``drainable``, ``counts`` by outcome, and
    ``vms``, worst first: ``namespace``, ``name``, ``outcome``, ``reason``, ``remedy`` (empty: none). ``updates`` (null
    for a single node, or if the methods are unknown): ``methods``, ``counts`` by reach, and ``vms``: ``namespace``,
    ``name``, ``reach``, ``reason``. ``unseen``: the data that could not be read.
    """
    return {
        "version": 1,
        "drainable": result.drainable,
        "nodes": [_node_data(node, result) for node in result.nodes],
        "updates": None
        if result.methods is None
        else {
            "methods": list(result.methods),
            "counts": _counts(Reach, (update.reach for update in result.updates)),
            "vms": [
                {**_name(update.vmi), "reach": str(update.reach), "reason": update.reason} for update in result.updates
            ],
        },
        "unseen": list(result.unseen),
    }


def _node_data(node: NodePlan, result: Plan) -> dict[str, Any]:
    return {
        "name": node.name,
        "state": list(node.state),
        "drainable": result.can_drain(node),
        "counts": _counts(VmOutcome, (row.outcome for row in node.forecasts)),
        "vms": [
            {**_name(row.vmi), "outcome": str(row.outcome), "reason": row.reason, "remedy": row.remedy}
            for row in node.forecasts
        ],
    }


def _name(vmi: Object) -> dict[str, str]:
    return {"namespace": vmi.namespace, "name": vmi.name}


def _counts(words: Iterable[str], found: Iterable[str]) -> dict[str, int]:
    """Return how often each word of an enumeration was found, including zeros."""
    counts = Counter(found)
    return {str(word): counts[word] for word in words}
