"""``virt-admit drain``: what draining a node would do to its VMs, and whether the cluster can be upgraded today."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from virt_admit.cli import common
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
"""What a plan looks at: a live cluster need list nothing else."""

WORST_FIRST: Final = {outcome: rank for rank, outcome in enumerate(VmOutcome)}


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What a drain of one node would do."""

    name: str
    state: tuple[str, ...]
    """What is special about the node just now: ``cordoned``, ``not Ready``, ``not seen``."""
    forecasts: tuple[Forecast, ...]
    """One for each VMI on the node, the worst first."""

    def having(self, outcome: VmOutcome) -> tuple[Forecast, ...]:
        """The VMs to which this would happen."""
        return tuple(each for each in self.forecasts if each.outcome is outcome)


@dataclass(frozen=True, slots=True)
class Plan:
    """What drains would do, node by node."""

    nodes: tuple[NodePlan, ...]
    """The worst first."""
    whole: bool
    """Whether these are all nodes of the cluster."""
    methods: tuple[str, ...] | None
    """The workload update methods in force; None: not asked, or nothing tells."""
    updates: tuple[Update, ...]
    """How an update of KubeVirt would reach the running VMs; only of a whole cluster."""
    unseen: tuple[str, ...]
    """What could not be seen, so that there may be more VMs than are listed."""

    def having(self, outcome: VmOutcome) -> tuple[Forecast, ...]:
        """The VMs of all nodes to which this would happen."""
        return tuple(each for node in self.nodes for each in node.having(outcome))

    @property
    def drainable(self) -> bool | None:
        """Whether every node here can be drained just now; None: it cannot be told."""
        return self.can_drain(*self.nodes)

    def can_drain(self, *nodes: NodePlan) -> bool | None:
        """Whether these nodes can be drained just now; None: it cannot be told."""
        if any(node.having(VmOutcome.BLOCKS) for node in nodes):
            return False
        return None if self.unseen or any(node.having(VmOutcome.UNKNOWN) for node in nodes) else True


def plan(cluster: Cluster, node: str | None = None) -> Plan:
    """What a drain of a node would do now; without a node, of each node of the cluster.

    Raises:
        LookupError: there is no such node.
    """
    known = {each.name: each for each in cluster.known(NODE)}
    if node is not None and _is_missing(cluster, node):
        raise LookupError(f"there is no node {node}; the nodes are: {names(sorted(known)) or 'none'}")
    chosen = {*known, *occupied(cluster)} if node is None else {node}
    plans = sorted((_node_plan(name, known.get(name), cluster) for name in chosen), key=_badness)
    methods = _methods(cluster) if node is None else None
    return Plan(
        nodes=tuple(plans),
        whole=node is None,
        methods=methods,
        updates=() if methods is None else tuple(update(vmi, methods, cluster) for vmi in running(cluster)),
        unseen=tuple(_blind_spots(plans, node is None, cluster)),
    )


def drain(cluster: Cluster, node: str | None, output: str) -> tuple[str, int]:
    """The plan as ``text`` or ``json``, and the exit code: 1 if a VM blocks, else 2 if something cannot be told, else 0.

    Raises:
        LookupError: there is no such node.
    """
    made = plan(cluster, node)
    rendered = json.dumps(as_data(made), indent=2) if output == "json" else text(made)
    return rendered, {True: 0, False: 1, None: 2}[made.drainable]


@click.command("drain", short_help="Say what draining a node would do to its virtual machines.")
@click.argument("node", required=False, metavar="[NODE]")
@click.option(
    "--all", "every", is_flag=True, help="Every node, the worst first, and whether the cluster can be upgraded."
)
@common.cluster_options
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    node: str | None,
    every: bool,
    cluster: Path | None,
    live: bool,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> int:
    """Say what draining NODE would do to each of its virtual machines, why, and what to do about it. Only reads.

    Exit 0 every node here can be drained, 1 something blocks, 2 it cannot be told.
    """
    if (node is None) is not every:
        raise click.UsageError("name a NODE, or say --all")
    try:
        rendered, code = drain(common.cluster_of(cluster, live, kubeconfig, context, LOOKS_UP), node, output)
    except LookupError as error:
        raise click.ClickException(str(error)) from None
    click.echo(rendered.rstrip("\n"))
    return code


def _blind_spots(plans: Iterable[NodePlan], whole: bool, cluster: Cluster) -> Iterator[str]:
    """The kinds of which there may be more objects than are known, where it matters."""
    found = {forecast.outcome for each in plans for forecast in each.forecasts}
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
    with contextlib.suppress(Unseen):  # after those that are known; ``Plan.unseen`` says it
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
    """Sorts the worst node first: the one with most blocking VMs, then with most of the next worst, and so on."""
    counts = Counter(each.outcome for each in node.forecasts)
    return tuple(-counts[outcome] for outcome in VmOutcome), node.name


def _methods(cluster: Cluster) -> tuple[str, ...] | None:
    """The update methods in force. HyperConverged, where there is one, writes those of KubeVirt."""
    for read in (configuration.hyperconverged, configuration.kubevirt):
        try:
            found = read(cluster)
        except Unseen:
            continue
        if found is not None:
            return tuple(sorted(update_methods(found)))
    return None


# --- as text -----------------------------------------------------------------------------------------------------


def text(made: Plan) -> str:
    """A plan for people: a table for each node with VMs, and for a whole cluster what follows from them."""
    lines: list[str] = []
    for node in made.nodes:
        if node.forecasts or not made.whole:
            lines += [_headline(node), *_table(node.forecasts), ""]
    if made.whole:
        lines += [*_whole(made), ""]
    if made.unseen:
        lines += [f"Could not be seen: {names(made.unseen)}; there may be more.", ""]
    return "\n".join(lines)


def _headline(node: NodePlan) -> str:
    state = f" ({', '.join(node.state)})" if node.state else ""
    counts = Counter(each.outcome for each in node.forecasts)
    said = ", ".join(_so_many(counts[outcome], outcome) for outcome in VmOutcome if counts[outcome])
    return f"node {node.name}{state}: {count(len(node.forecasts), 'VM')}{': ' if said else ''}{said}"


def _so_many(number: int, outcome: VmOutcome) -> str:
    """``1 blocks the drain``, ``2 block the drain``."""
    verb, *rest = outcome.split()
    return " ".join((str(number), verb if number == 1 else verb.removesuffix("s"), *rest))


def _table(forecasts: Sequence[Forecast]) -> Iterator[str]:
    width = max((len(each.outcome) for each in forecasts), default=0)
    name_width = max((len(each.vmi.full_name) for each in forecasts), default=0)
    for each in forecasts:
        yield f"  {each.outcome:{width}}  {each.vmi.full_name:{name_width}}  {each.reason}"
        if each.remedy:
            yield f"  {'':{width}}  {'':{name_width}}  to do: {each.remedy}"


def _whole(made: Plan) -> Iterator[str]:
    empty = [node.name for node in made.nodes if not node.forecasts]
    if empty:
        yield f"{count(len(empty), 'node')} without VMs: {names(sorted(empty))}"
    if made.methods is not None:
        by_reach = Counter(update.reach for update in made.updates)
        said = ", ".join(f"{by_reach[reach]} {reach}" for reach in Reach if by_reach[reach])
        methods = ", ".join(made.methods) or "no method"
        yield f"Updates of running VMs ({methods}): {said or 'no VM runs'}"
        lost = [f"{each.vmi.full_name} ({each.reason})" for each in made.updates if each.reach in _OUT_OF_REACH]
        if lost:
            yield f"  never updated: {names(lost)}"
    yield f"Can the cluster be upgraded today? {_answer(made)}"


_OUT_OF_REACH: Final = (Reach.NEVER, Reach.RETRIED)


def _answer(made: Plan) -> str:
    blocking, stopping = made.having(VmOutcome.BLOCKS), made.having(VmOutcome.STOPS)
    price = f"{count(len(stopping), 'VM')} would stop for good" if stopping else ""
    if blocking:
        blocked = [node.name for node in made.nodes if node.having(VmOutcome.BLOCKS)]
        also = f"; {price}" if price else ""
        return f"No: {count(len(blocking), 'VM')} on {count(len(blocked), 'node')} would block it{also}."
    if made.drainable is None:
        unknown = count(len(made.having(VmOutcome.UNKNOWN)), "VM")
        return f"Cannot tell: the fate of {unknown} is unknown." if not made.unseen else "Cannot tell: see below."
    return f"Yes, but {price}." if price else "Yes: every node can be drained."


# --- as data -----------------------------------------------------------------------------------------------------


def as_data(made: Plan) -> dict[str, Any]:
    """A plan as JSON data. Additive changes only:

    ``drainable``: true, false, or null where it cannot be told; of all ``nodes`` here. ``nodes``: worst first, each
    with ``name``, ``state`` (of ``cordoned``, ``not Ready``, ``not seen``), ``drainable``, ``counts`` by outcome, and
    ``vms``, worst first: ``namespace``, ``name``, ``outcome``, ``reason``, ``remedy`` (empty: nothing to do).
    ``updates`` (null for a single node, or where nothing tells the methods): ``methods``, ``counts`` by reach, and
    ``vms``: ``namespace``, ``name``, ``reach``, ``reason``. ``unseen``: what could not be seen.
    """
    return {
        "version": 1,
        "drainable": made.drainable,
        "nodes": [_node_data(node, made) for node in made.nodes],
        "updates": None
        if made.methods is None
        else {
            "methods": list(made.methods),
            "counts": _counts(Reach, (each.reach for each in made.updates)),
            "vms": [{**_name(each.vmi), "reach": str(each.reach), "reason": each.reason} for each in made.updates],
        },
        "unseen": list(made.unseen),
    }


def _node_data(node: NodePlan, made: Plan) -> dict[str, Any]:
    return {
        "name": node.name,
        "state": list(node.state),
        "drainable": made.can_drain(node),
        "counts": _counts(VmOutcome, (each.outcome for each in node.forecasts)),
        "vms": [
            {**_name(each.vmi), "outcome": str(each.outcome), "reason": each.reason, "remedy": each.remedy}
            for each in node.forecasts
        ],
    }


def _name(vmi: Object) -> dict[str, str]:
    return {"namespace": vmi.namespace, "name": vmi.name}


def _counts(words: Iterable[str], found: Iterable[str]) -> dict[str, int]:
    """How often each word of an enumeration was found, also if never."""
    counts = Counter(found)
    return {str(word): counts[word] for word in words}
