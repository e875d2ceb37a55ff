"""Pods of a budget that wait for a node: for the one that is drained, or for one that comes back.

A replica that fits only the node that is drained never starts: it waits for the uncordon, the drain
for the replica. KubeVirt 1.3 demands control-plane nodes for virt-api and virt-controller where
nothing places them. Sources: issues harvester/harvester#7647;
kubevirt/kubevirt:pkg/virt-operator/resource/generate/components/deployments.go,
:pkg/virt-operator/resource/placement (InjectPlacementMetadata).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, Generic, NamedTuple, TypeVar

from virt_admit.forecasts.drain.budgets import pod_budgets
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import DAEMON_SET, HCO, KUBEVIRT, NODE, PDB, POD
from virt_admit.model.kubernetes.nodes import CONTROL_PLANE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.settings import written_settings
from virt_admit.model.kubevirt.settings.written_settings import WrittenSetting
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.node_updates import cordoners, node_phases, updaters
from virt_admit.model.node_updates.node_phases import EMPTIED, IN_FLIGHT, Phase
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler import pods as scheduled_pods
from virt_admit.model.scheduler.controller_taints import MEDIK8S
from virt_admit.model.scheduler.pod_terms import REQUIRED
from virt_admit.model.scheduler.pods import Pod

T = TypeVar("T")
READS: Final[Reads] = union(
    clock.READS,
    cordoners.READS,
    awaited_return.READS,
    {
        KUBEVIRT: ("metadata.labels", "metadata.ownerReferences", "spec.infra.nodePlacement"),
        HCO: (),
    },
)

_UNCORDONED: Final = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
"""A pod with this toleration is placed as if no node were cordoned."""
_BACK: Final = tuple(
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists"}
    for what in ("not-ready", "unreachable")
)
"""With these, too, it is placed as if each node were Ready."""
_OF_DRAIN: Final = ("cordoned", "taint kubevirt.io/drain", "taint medik8s.io/drain")
"""How a refusal begins that lasts as long as the drain."""
_PASSING: Final = (
    *_OF_DRAIN,
    "not Ready",
    "taint node.kubernetes.io/",
    *(f"taint {key}" for key in MEDIK8S),
)
_PLACED_BY_KUBEVIRT: Final = frozenset(
    ("virt-api", "virt-controller", "virt-exportproxy", "virt-synchronization-controller")
)


@dataclass(frozen=True, slots=True)
class Waiting(Generic[T]):
    """A value of each pod of a budget that waits for a node.

    Each pod that is evicted asks for all of them: they are computed once per budget.
    """

    namespace: str
    name: str
    function: Callable[[Object, Cluster], T]
    budget: Object = field(compare=False)

    def __call__(self, cluster: Cluster) -> Mapping[str, T]:
        """Return the values by the names of the pods."""
        budget = find(cluster, PDB, self.namespace, self.name) or self.budget
        pods = pod_budgets.selected(budget, cluster.known(POD, self.namespace))
        return {pod.name: self.function(pod, cluster) for pod in pods if _waits(pod)}

    def of(self, pod: Object, cluster: Cluster) -> T:
        """Return the value of a pod of the budget that waits for a node."""
        known = cluster.cached(self)
        return known[pod.name] if pod.name in known else self.function(pod, cluster)


def _waits(pod: Object) -> bool:
    return not (pod.ended or pod.at("spec", "nodeName").text)


# --- the node that is drained ---------------------------------------------------------------------


class OnlyNode(NamedTuple):
    """The only node that would take a pod without a node, were it not drained."""

    name: str
    placed: str
    """What the pod demands of nodes, in words; empty: not that alone keeps it off the others."""
    why: str
    """What keeps it off the others."""


def only_node(pod: Object, cluster: Cluster) -> OnlyNode | None:
    """Return the only node that would take a pod without a node if its drain ended; None: another
    may, or none would.
    """
    placement = candidates.scheduler(cluster).place(scheduled_pods.read(pod))
    if unlisted(cluster, NODE) or placement.has_candidate or not placement.is_certain:
        return None
    causes = {name: why.split("; ") for name, why in placement.refusals.items()}
    lasting = {
        name: [each for each in some if not each.startswith(_PASSING)]
        for name, some in causes.items()
    }
    takes = [name for name, some in lasting.items() if not some]
    if len(takes) != 1 or not all(each.startswith(_OF_DRAIN) for each in causes[takes[0]]):
        return None
    others = [some for some in lasting.values() if some]
    placed = _demands(pod) if all(_AFFINITY in each for each in others) else ""
    why = placed or names(dict.fromkeys(each for some in others for each in some), 120)
    return OnlyNode(takes[0], placed, why)


def only_here(pod: Object, only: OnlyNode, cluster: Cluster) -> Problem:
    """Return that a pod without a node waits for the only node that would take it, which is
    drained.
    """
    since = clock.lasts(clock.age(pod, cluster))
    stays = "has been Pending" if since else "is Pending"
    words = (
        f"{only.placed}, and the only one is {only.name}"
        if only.placed == _ON_CONTROL_PLANE
        else f"no other node than {only.name} would take it{f' ({only.why})' if only.why else ''}"
    )
    reason = (
        f"pod {pod.name} {stays}{since}: {words}, which is drained. The drain waits for this pod "
        "and the pod for that node, so neither ends by itself"
    )
    return Problem(reason, _way_out(pod, only.placed, only.name, cluster))


_AFFINITY: Final = "node affinity"
_ON_CONTROL_PLANE: Final = "it demands a control-plane node"


def _demands(pod: Object) -> str:
    """Return what the required node affinity of a pod demands, by the keys of its terms; empty:
    it has none.
    """
    terms = pod.at("spec", "affinity", "nodeAffinity", REQUIRED)
    demands = [
        each
        for term in terms["nodeSelectorTerms"].items()
        for each in term["matchExpressions"].items()
    ]
    keys = [each["key"].text for each in demands if each["operator"].text in ("Exists", "In")]
    if keys and len(keys) == len(demands) and set(keys) <= {*CONTROL_PLANE}:
        return _ON_CONTROL_PLANE
    return (
        f"its node affinity demands {names(dict.fromkeys(filter(None, keys)), 100)}"
        if any(keys)
        else ""
    )


def _way_out(pod: Object, placed: str, here: str, cluster: Cluster) -> str:
    """Return what ends the drain, and what gives it up where nothing but an administrator drains
    the node.
    """
    first, node = _elsewhere(pod, placed, cluster), find(cluster, NODE, "", here)
    cordon = cordoners.of_node(node, cluster) if node is not None else None
    if cordon is not None and not cordon.uncordon:
        return first
    give_up = typed(
        f"or, as a decision, give the drain of {here} up",
        shell("kubectl", "uncordon", argument(here)),
    )
    return f"{first}; {give_up}"


def _elsewhere(pod: Object, placed: str, cluster: Cluster) -> str:
    """Return what lets a pod run on another node, too."""
    component, kubevirts = pod.labels.get("kubevirt.io", ""), list(cluster.known(KUBEVIRT))
    if placed != _ON_CONTROL_PLANE or component not in _PLACED_BY_KUBEVIRT or len(kubevirts) != 1:
        return "Let it run on another node, or add a node that it accepts"
    kubevirt = kubevirts[0]
    place = written_settings.holder(WrittenSetting.INFRA, kubevirt, cluster)
    if (
        place is None
        or place.field.present
        or kubevirt.at("spec", "infra", "nodePlacement").present
    ):
        own = place.words if place is not None else "the nodePlacement of its infra"
        words = (
            f"Let KubeVirt's components run on other nodes by {own}; or add a control-plane node"
        )
        return typed(words, place.edit if place is not None else "")
    words = (
        f"Let KubeVirt's components run on workers, too: without {place.words} they demand "
        "control-plane nodes"
    )
    return typed(words, place.patch({}), "or add a control-plane node")


# --- nodes that come back -------------------------------------------------------------------------


class Returning(NamedTuple):
    """Nodes whose return makes a budget allow an eviction again."""

    nodes: tuple[str, ...]
    pods: tuple[str, ...]
    by: str
    """What updates them: ``DaemonSet kured``."""
    soon: str
    """The same with the time since when it reboots them; empty: that may take long,
    as while they are drained.
    """


def returning(
    budget: Object, unready: Iterable[Object], here: str, cluster: Cluster
) -> Returning | None:
    """Return which nodes only have to come back from an update that is under way; None:
    that may not be enough.

    Args:
        budget: a budget that allows no eviction now.
        unready: the pods of it that are not ready.
        here: the node that is drained.
        cluster: the cluster.
    """
    of_waiting = Waiting(budget.namespace, budget.name, _home_of_waiting, budget)
    homes = ((_home(pod, of_waiting, cluster), pod.name) for pod in unready if not pod.deleted)
    waiting = [(node, name) for node, name in homes if node not in ("", here)]
    if not waiting or not pod_budgets.suffices(budget, len(waiting)):
        return None
    nodes = tuple(sorted({node for node, _ in waiting}))
    by = dict.fromkeys(updater(node, cluster) for node in nodes)
    return Returning(
        nodes, tuple(name for _, name in waiting), names(by), rebooters(nodes, cluster)
    )


def unread_returns(budget: Object, unready: Iterable[Object], here: str, cluster: Cluster) -> str:
    """Return what could not be read, so that the return of nodes may be enough although
    ``returning`` does not know it; empty: all was read, or it is not.
    """
    known = Waiting(budget.namespace, budget.name, _home_of_waiting, budget)
    of_waiting = Waiting(budget.namespace, budget.name, _unread_homes, budget)
    found, back = [], 0
    for pod in (each for each in unready if not each.deleted):
        on = pod.at("spec", "nodeName").text or ""
        if on == here or _home(pod, known, cluster) not in ("", here):
            back += on != here
        elif on and not _is_ready(on, cluster):
            found.append(awaited_return.unread(on, cluster))
        elif not on:
            homes = of_waiting.of(pod, cluster)
            found.append(next((what for name, what in homes.items() if name != here), ""))
    unread = [what for what in found if what]
    return unread[0] if unread and pod_budgets.suffices(budget, back + len(unread)) else ""


def _unread_homes(pod: Object, cluster: Cluster) -> Mapping[str, str]:
    """Return the nodes that may come back and take a pod then, each with what could not be read of
    that.
    """
    if what := unlisted(cluster, NODE):
        return {"": what}
    own, filters = scheduled_pods.read(pod), candidates.scheduler(cluster)
    if filters.place(own).has_candidate:
        return {}
    placed, found = filters.place(tolerating(own, _UNCORDONED, *_BACK)), {}
    taking = placed.candidates
    for node in filter(node_phases.is_away, cluster.known(NODE)):
        if placed.refusal(node.name):
            continue
        comes = bool(updater(node.name, cluster))
        unread = "" if comes else _unread_update(node, cluster)
        if comes and node.name not in taking:
            unread = next(iter(placed.unseen), f"whether {node.name} takes pod {pod.name}")
        if unread:
            found[node.name] = unread
    return found


def _unread_update(node: Object, cluster: Cluster) -> str:
    if node.is_true("Ready"):
        return updaters.unread(node, cluster)
    return awaited_return.unread(node.name, cluster)


def rebooters(nodes: Iterable[str], cluster: Cluster) -> str:
    """Return what reboots all of these nodes, and since when; empty: not all come back soon."""
    found = dict.fromkeys(_rebooter(node, cluster) for node in nodes)
    return names(found) if all(found) else ""


def _home(pod: Object, of_waiting: Waiting[str], cluster: Cluster) -> str:
    """Return the node under update with which a pod comes back; empty: none,
    or it is not ready for another reason.
    """
    on = pod.at("spec", "nodeName").text
    if on:
        return on if updater(on, cluster) and not _is_ready(on, cluster) else ""
    return of_waiting.of(pod, cluster)


def _home_of_waiting(pod: Object, cluster: Cluster) -> str:
    own = scheduled_pods.read(pod)
    filters = candidates.scheduler(cluster)
    if any(filters.accepts(own, name) for name in filters.state.nodes):
        return ""
    free = tolerating(own, _UNCORDONED, *_BACK)
    return next((name for name in _updated(cluster) if filters.accepts(free, name)), "")


@cached
def _updated(cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes that something updates and brings back."""
    nodes = sorted(candidates.scheduler(cluster).state.nodes)
    return tuple(name for name in nodes if updater(name, cluster))


def _is_ready(name: str, cluster: Cluster) -> bool:
    node = find(cluster, NODE, "", name)
    return node is not None and node.is_true("Ready")


def updater(name: str, cluster: Cluster) -> str:
    """Return what updates a node and brings it back, if that takes no longer than usual; empty:
    nothing certainly does.
    """
    update = updaters.of_nodes(cluster).get(name)
    if update is None:
        return _rebooter(name, cluster)
    under_way = update.phase in IN_FLIGHT and update.phase is not Phase.FAILING
    if under_way and (_is_ready(name, cluster) or _rebooter(name, cluster)):
        return f"{update.kind} {update.name}"
    return ""


def _rebooter(name: str, cluster: Cluster) -> str:
    """Return what reboots a node that is not Ready, or ends its update, and since when; empty:
    nothing does, or for longer than a reboot takes.
    """
    node = find(cluster, NODE, "", name)
    if node is not None and (update := _ending_update(node, cluster)):
        return update
    cordon = (
        cordoners.of_node(node, cluster)
        if node is not None and not _is_ready(name, cluster)
        else None
    )
    ends = (
        cordon is not None
        and cordon.ends is not False
        and not cordon.failed
        and cordon.by.startswith(_REBOOTING)
    )
    if node is None or cordon is None or not ends:
        return awaited_return.awaited(name, cluster)
    lasts = clock.since(node.condition("Ready")["lastTransitionTime"].text, cluster)
    return (
        f"{cordon.by}, since {clock.duration(lasts)}"
        if lasts is not None and lasts <= _REBOOT
        else ""
    )


def _ending_update(node: Object, cluster: Cluster) -> str:
    """Return what updates a node that is drained and Ready, before its reboot or after it, and
    since when; empty: nothing does, or for longer than usual. It uncordons the node itself.
    """
    update = updaters.of_nodes(cluster).get(node.name)
    if update is None or update.phase not in EMPTIED or not node.is_true("Ready"):
        return ""
    if node.name in updaters.maintenances(cluster) and update.kind != DAEMON_SET.kind:
        return ""  # its administrator ends it
    by = f"{update.kind} {update.name}"
    again = clock.since(node.condition("Ready")["lastTransitionTime"].text, cluster)
    if again is not None and again <= _REBOOT:
        return f"{by}, which ends its update (Ready again for {clock.duration(again)})"
    lasts = clock.elapsed(update.since, cluster)
    if lasts is not None and lasts <= _REBOOT:
        return f"{by}, which has been updating it for {clock.duration(lasts)}"
    return ""


_REBOOTING: Final = ("Plan ", "Talos")
"""What cordons nodes to reboot them, without an object that has the phases of an update."""
_REBOOT: Final = timedelta(minutes=20)
"""Twice the time that is assumed for the update and reboot of a node."""


def tolerating(pod: Pod, *more: object) -> Pod:
    """Return a pod with further tolerations."""
    own = pod.tolerations if isinstance(pod.tolerations, list) else []
    return replace(pod, tolerations=[*own, *more])


def uncordoned(pod: Pod) -> Pod:
    """Return a pod that is placed as if no node were cordoned."""
    return tolerating(pod, _UNCORDONED)
