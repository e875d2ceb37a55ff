"""What KubeVirt, CDI or HyperConverged wait for while they say for long that they are not
available, or degraded.

virt-operator writes ``Deploying version …`` also where nothing is deployed: as long as a component
is not ready. Up to 1.0 it wants exactly ``desiredNumberScheduled`` pods of virt-handler, so that
one that still runs on a tainted node is one too many. Sources:
kubevirt/kubevirt:pkg/virt-operator/util/readycheck.go#DaemonsetIsReady (v1.0.1 and v1.1.0; pull
request 10254), :pkg/virt-operator/util/client.go#UpdateConditionsDeploying #SetConditionTimestamps
(a new condition has no transition time).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.drain.control import (
    idle_controllers,
    kubevirt_updates,
    outdated_components,
)
from virt_admit.forecasts.placement import virt_handlers
from virt_admit.forecasts.placement.absent import unready_nodes
from virt_admit.forecasts.placement.absent.unready_nodes import UnreadyNode
from virt_admit.forecasts.placement.components import broken_pods, node_pods
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.forecasts.placement.components.drivers import shared_taints
from virt_admit.forecasts.placement.components.operands import killed_components
from virt_admit.forecasts.placement.refusals import unreached_nodes
from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.evidence import container_states, forbidden_pods, lost_pins
from virt_admit.model.kubernetes import clock, node_health, nodes
from virt_admit.model.kubernetes.cluster import Cluster, cached, entry, unlisted
from virt_admit.model.kubernetes.kinds import CDI, DAEMON_SET, HCO, KUBEVIRT, NODE, POD, Kind
from virt_admit.model.kubernetes.objects import Field, Object, Path
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.settings import configuration, migration_limits, written_settings
from virt_admit.model.kubevirt.settings.versions import Version, parse_version
from virt_admit.model.lookups import find
from virt_admit.model.messages import (
    advice_of,
    capital,
    cut,
    cut_middle,
    ended,
    first_within,
    sentence,
    shorten,
)
from virt_admit.model.node_updates.operators import node_removals, orphaned_nodes
from virt_admit.model.problems import ProblemCause, ProblemId, problem_of
from virt_admit.model.scheduler import controller_taints, node_selectors

_LABEL: Final = "kubevirt.io"
_HANDLER: Final = "virt-handler"
_EXACT_BEFORE: Final = Version(1, 1)
_USUAL: Final = timedelta(minutes=20)
"""A node that is rebooted, or a new one, has its virt-handler by then."""
_USUAL_PROGRESS: Final = timedelta(hours=1)
"""HyperConverged and CDI are progressing for that long while they are updated."""
TIMED: Final = (*CONDITIONS, "status.conditions.lastTransitionTime")
READS: Final[Reads] = union(
    kubevirt_updates.READS,
    forbidden_pods.READS,
    lost_pins.SUBSCRIBED_READS,
    outdated_components.READS,
    unreached_nodes.READS,
    shared_taints.READS,
    idle_controllers.READS,
    killed_components.READS,
    unready_nodes.READS,
    {
        HCO: (),
        CDI: (),
        DAEMON_SET: ("status.numberMisscheduled",),
        POD: ("spec.tolerations", *TIMED),
    },
)


class HeldComponent(NamedTuple):
    """KubeVirt, CDI or HyperConverged that is not ready for long."""

    obj: Object
    kind: Kind
    path: Path
    """The condition that says it."""
    reason: str
    remedy: str
    nodes: tuple[str, ...]
    """The nodes whose pod it waits for."""
    brief: str
    """The reason and the remedy in as few words as a finding has."""
    problem: ProblemId
    silent: bool = False
    """Whether it waits for a node that does not report, which is the cause of more."""
    refused: str = ""
    """That migrations are refused because of it; empty: it concerns none."""
    follows: str = ""
    """The node that is not Ready, of which it is a consequence; empty: it is none."""

    @property
    def note(self) -> str:
        """What is said of it beside a drain of nodes."""
        return sentence(f"{self.reason}. {capital(self.remedy)}")


PARTS: Final = (KUBEVIRT, CDI)
"""The kinds whose conditions HyperConverged repeats."""


@cached
def held(cluster: Cluster) -> Sequence[HeldComponent]:
    """Return the objects that are not ready for long.

    HyperConverged repeats what the others say, so they come alone.
    """
    updated = any(map(kubevirt_updates.is_under_way, cluster.known(KUBEVIRT)))
    parts = [
        found
        for kind in PARTS
        for each in cluster.known(kind)
        for found in map(_with_refusal, _of(each, kind, cluster))
    ]
    if parts or updated or any(unlisted(cluster, kind) for kind in PARTS):
        return tuple(parts)
    return tuple(found for each in cluster.known(HCO) for found in _of(each, HCO, cluster))


def _of(obj: Object, kind: Kind, cluster: Cluster) -> Iterator[HeldComponent]:
    updated = kubevirt_updates.is_under_way(obj) or kubevirt_updates.has_failed(obj)
    state = None if obj.deleted or updated else _state(obj, cluster)
    if state is None:
        return
    condition, words, age = state
    told = f"{kind.kind} {obj.full_name} {words} for {clock.duration(age)}{_code(condition)}"
    unready = [
        each
        for pod in _pods(obj, kind, cluster)
        if (each := broken_pods.of_pod(pod, cluster)) is not None
    ]
    lasting = [each.pod for each in unready if not _comes_back(each, cluster)]
    cause = next(_causes(obj, kind, lasting, cluster), None)
    if cause is None and (unready or unlisted(cluster, POD)):
        return  # while nodes are rebooted in turn, another pod is not ready each time
    if cause is None:
        said = cut_middle(condition["message"].words, 200)
        see = typed("see its conditions and its operator", about("describe", obj, kind))
        reason = f"{told}{f': {said}' if said else ''}"
        brief, path = ended(shorten(reason, 170)), condition["status"].path
        own = problem_of(ProblemCause.COMPONENT, obj)
        yield HeldComponent(obj, kind, path, reason, see, (), brief, own)
        return
    brief = f"{kind.kind} {words} for {clock.duration(age)}: {cause.brief}"
    lost = cause.silent
    problem = (
        problem_of(ProblemCause.COMPONENT, obj)
        if lost is None
        else problem_of(ProblemCause.NODE_SILENT, lost)
    )
    reason, path = f"{told}: {cause.why}", condition["status"].path
    found = HeldComponent(
        obj, kind, path, reason, cause.remedy, cause.nodes, brief, problem, lost is not None
    )
    yield found._replace(follows=cause.follows)


def _with_refusal(found: HeldComponent) -> HeldComponent:
    """Return a component with what Harvester refuses because of it."""
    is_kubevirt = found.kind is KUBEVIRT
    refused = outdated_components.harvester_refusal(found.obj) if is_kubevirt else ""
    if not refused:
        return found
    reason, brief = f"{found.reason}. {refused}", f"{found.brief} {refused}."
    return found._replace(reason=reason, brief=brief, refused=refused)


def _code(condition: Field) -> str:
    code = condition["reason"].text
    return f" ({cut(code, 60)})" if code else ""


def _state(obj: Object, cluster: Cluster) -> tuple[Field, str, timedelta] | None:
    """Return the condition that lasts for longer than usual, what it means, and its age; None:
    none does.
    """
    for name, status, words, usual in _STATES:
        found = obj.condition(name)
        age = clock.since(found["lastTransitionTime"].text or found["lastProbeTime"].text, cluster)
        if found["status"].text == status and age is not None and age >= usual:
            return found, words, age
    return None


_STATES: Final = (
    ("Available", "False", "is not available", _USUAL),
    ("Degraded", "True", "is degraded", _USUAL),
    ("Progressing", "True", "is progressing", _USUAL_PROGRESS),
)


# --- what it waits for ----------------------------------------------------------------------------


class _Cause(NamedTuple):
    why: str
    remedy: str
    nodes: tuple[str, ...]
    brief: str
    silent: Object | None = None
    """The node that does not report."""
    follows: str = ""
    """The node that is not Ready, of which the state of the pod is a consequence."""


def _comes_back(broken: BrokenPod, cluster: Cluster) -> bool:
    """Return whether a pod has not been unready for longer than usual: it may start,
    or its node is rebooted.

    What updates a node cordons it first, and uncordons it when it is back.
    """
    node = find(cluster, NODE, "", broken.pod.at("spec", "nodeName").text)
    if node is not None and orphaned_nodes.of_node(node.name, cluster) is not None:
        return False
    cordoned = node is not None and node.at("spec", "unschedulable").boolean is True
    if _BACK_OFF in broken.why and not cordoned:  # it may be ready for a moment between two crashes
        return False
    placed = clock.since(broken.pod.condition("PodScheduled")["lastTransitionTime"].text, cluster)
    unready = node_health.pod_unready_for(broken.pod, node, cluster)
    age = placed if unready is None else unready
    return age is not None and age < (_USUAL_PROGRESS if cordoned else _USUAL)


_BACK_OFF: Final = "BackOff"


def _causes(
    obj: Object, kind: Kind, unready: Iterable[Object], cluster: Cluster
) -> Iterator[_Cause]:
    pods = sorted(unready, key=lambda each: (each.labels.get(_LABEL) == _HANDLER, each.full_name))
    broken, room = broken_pods.first(pods, cluster), _BRIEF
    if broken is not None and (on := _unready_node(broken, cluster)) is not None:
        own = f"pod {broken.pod.name} does not start on {on.name}, which"
        why = f"{own} {on.is_not_ready}"
        brief = ended(shorten(why, _ROOMY))
        yield _Cause(why, on.remedy, (on.name,), brief, follows=on.name)
    elif broken is not None:
        if (pin := lost_pins.of_pod(broken.pod, cluster)) is not None:
            by = lost_pins.subscribed(broken.pod, pin, cluster)
            repair = by.remedy if by is not None else lost_pins.remedy(broken.pod, pin, cluster)
            set_by, room = (f": {by.words}", _ROOMY) if by is not None else ("", room)
            broken = broken._replace(why=f"it {pin.words}{set_by}", remedy=repair)
        node = broken.pod.at("spec", "nodeName").text or ""
        silent = node_health.silent_for(node, cluster) if node else ""
        gone = node_removals.in_deletion(node, cluster) if silent else None
        state = f"is {gone.state} and {silent}" if gone is not None else silent
        where = f" on {node}{f', which {state},' if state else ''}" if node else ""
        back = typed(f"bring {node} back", kubectl("describe", NODE, node))
        remedy = node_removals.instead_of_return(node, cluster) or back if silent else broken.remedy
        since = "" if silent else broken.since
        left = orphaned_nodes.of_node(node, cluster) if silent else None
        held = f"{gone.mark} keeps it. {gone.waits.rstrip('.')}" if gone is not None else ""
        held = left.why if left is not None else held
        told = held if silent else broken.why
        why = f"pod {broken.pod.name}{where} is not ready{since}{f': {told}' if told else ''}"
        lost = find(cluster, NODE, "", node) if silent else None
        idle = idle_controllers.effect(pods, cluster) if kind is KUBEVIRT else ""
        see = f"{idle} See virt-admit upgrade.".lstrip()
        brief = f"{ended(shorten(why, _ROOMY if idle else room))} {see}"
        if gone is not None:
            brief = f"its pod on {node} is not ready, and that Node is {gone.state} ({gone.mark})."
        elif left is not None:
            brief = f"its pod on {node} is not ready, and that Node is left over. {left.brief}"
        why = f"{ended(why)} {idle}" if idle else why
        yield _Cause(why, remedy, (node,) if node else (), brief, lost)
    elif kind is KUBEVIRT:
        yield from _forbidden(obj, cluster)
        yield from _outdated(obj, cluster)
        yield from _misscheduled(obj, cluster)


def _unready_node(broken: BrokenPod, cluster: Cluster) -> UnreadyNode | None:
    """Return the node on which a pod has no container because that node is not Ready; None: it is,
    or the pod itself says why it is not.
    """
    waits = container_states.is_uncreated(broken.pod) and (not broken.why or broken.uncreated)
    node = broken.pod.at("spec", "nodeName").text
    return unready_nodes.named(node, cluster) if node and waits else None


_BRIEF: Final = 240
_ROOMY: Final = 420
"""Characters of a cause that names a second object."""


def _forbidden(kubevirt: Object, cluster: Cluster) -> Iterator[_Cause]:
    """Yield that Pod Security forbids the pods of virt-handler."""
    own = find(cluster, DAEMON_SET, kubevirt.namespace, _HANDLER)
    pod = forbidden_pods.of_maker(own, cluster) if own is not None else None
    if pod is not None:
        begin = f"DaemonSet {_HANDLER} cannot create its pods, which violate PodSecurity"
        why = f'{begin} "{pod.level}": {cut(pod.why, 120)}'
        remedy = forbidden_pods.remedy(kubevirt.namespace)
        yield _Cause(why, remedy, (), f"{begin}. {advice_of(remedy)}")


_ROOM: Final = 310
"""Characters of a cause beside what Harvester refuses meanwhile."""


def _outdated(kubevirt: Object, cluster: Cluster) -> Iterator[_Cause]:
    """Yield that virt-operator counts a pod as out of date."""
    pods = _pods(kubevirt, KUBEVIRT, cluster)
    found = outdated_components.first(kubevirt, pods, cluster)
    if found is not None:
        node = found.pod.at("spec", "nodeName").text
        remedy = advice_of(found.remedy)
        brief = first_within(
            _ROOM, f"{found.why}. {remedy}", f"{found.why}. {remedy.split(';')[0]}."
        )
        yield _Cause(found.why, found.remedy, (node,) if node else (), brief)


def _pods(obj: Object, kind: Kind, cluster: Cluster) -> Iterator[Object]:
    """Yield the pods of the components of an object,
    without those that work for single VMs and volumes.
    """
    if kind is CDI:
        yield from (pod for pod in cluster.known(POD) if pod.name.startswith(_OF_CDI))
        return
    for pod in cluster.known(POD, obj.namespace):
        component = pod.labels.get(_LABEL) or ""
        if (
            component.startswith("virt-") and component not in _OF_VMS
            if kind is KUBEVIRT
            else pod.controller is not None and pod.controller["kind"].text != "Job"
        ):
            yield pod


_OF_CDI: Final = ("cdi-operator-", "cdi-apiserver-", "cdi-deployment-", "cdi-uploadproxy-")
_OF_VMS: Final = ("virt-launcher", "virt-exportserver")


def _misscheduled(kubevirt: Object, cluster: Cluster) -> Iterator[_Cause]:
    """Yield that a virt-handler too many runs, where the release counts them."""
    release = parse_version(kubevirt.at("status", "operatorVersion").text or _observed(kubevirt))
    own = find(cluster, DAEMON_SET, kubevirt.namespace, _HANDLER)
    extra = own.at("status", "numberMisscheduled").integer if own is not None else None
    if own is None or not extra or release is None or release >= _EXACT_BEFORE:
        return
    wanted = own.at("status", "desiredNumberScheduled").integer or 0
    refused = {
        node.name: taint
        for node in cluster.known(NODE)
        if (taint := _unwanted(node, cluster)) is not None
    }
    node, taint = min(refused.items(), default=("", None))
    other = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    text = nodes.written(taint) if taint is not None else ""
    where = f" on {node}, whose taint {text} it does not tolerate{other}" if node else ""
    running = _observed(kubevirt) or str(release)
    counted = f"of DaemonSet {_HANDLER} {wanted + extra} pods run and {wanted} are to run"
    why = (
        f"nothing is rolled out, all of {running} is in place. The {_HANDLER} pod is misscheduled, "
        f"as it still runs{where}: {counted}, and virt-operator before "
        f"{_EXACT_BEFORE.major}.{_EXACT_BEFORE.minor} wants exactly that number"
    )
    own_field = written_settings.placement(kubevirt, cluster)
    brief = f"{_HANDLER} is misscheduled{where}. Let {own_field} tolerate it."
    yield _Cause(why, _tolerate(kubevirt, node, taint, cluster), tuple(sorted(refused)), brief)


def _observed(kubevirt: Object) -> str:
    return kubevirt.at("status", "observedKubeVirtVersion").text or ""


def unwanted(node: Object, cluster: Cluster) -> str:
    """Return the taint of a node because of which its virt-handler does not come back once its pod
    has ended; empty: none.

    A taint that a drain or a controller sets is gone again before that.
    """
    taint = _unwanted(node, cluster)
    return nodes.written(taint) if taint is not None else ""


def _unwanted(node: Object, cluster: Cluster) -> Field | None:
    handler = virt_handlers.pod(cluster, node.name)
    if handler is None or handler.deleted or node_pods.daemon(handler) != _HANDLER:
        return None
    tolerations = [each.value for each in handler.at("spec", "tolerations").items()]
    refusing = [
        each for each in node.at("spec", "taints").items() if _refuses(each.value, tolerations)
    ]
    drained = migration_limits.drain_taint(cluster) if refusing else ""
    shared = shared_taints.known(cluster) if refusing else {}
    keys = {each["key"].text or "": each for each in refusing}
    return next(
        (
            taint
            for key, taint in keys.items()
            if key != drained and not controller_taints.owner(key) and key not in shared
        ),
        None,
    )


def leaving(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that virt-handler cannot come to a node: for a VM that waits, or once its pod has
    ended; or that its pod ends again and again."""
    yield from entry(cluster, killed_components.notes, node.name) or ()
    yield from unreached_nodes.notes(node, cluster)
    if taint := unwanted(node, cluster):
        kubevirt = configuration.known_or_none(configuration.kubevirt, cluster)
        own = (
            written_settings.placement(kubevirt, cluster)
            if kubevirt is not None
            else "KubeVirt's nodePlacement"
        )
        yield (
            f"virt-handler of this node does not tolerate its taint {taint}: it does not come back "
            f"once its pod has ended, and no VM can run here from then on. Let {own} tolerate it."
        )


def _refuses(taint: Any, tolerations: Sequence[Any]) -> bool:
    """Return whether a taint keeps new pods with these tolerations away."""
    key = taint.get("key") if isinstance(taint, dict) else None
    if not isinstance(key, str) or taint.get("effect") != "NoSchedule":
        return False
    return not node_selectors.tolerates(tolerations, taint)


def _tolerate(kubevirt: Object, node: str, taint: Field | None, cluster: Cluster) -> str:
    added = [nodes.toleration(taint)] if taint is not None else ()
    command = written_settings.tolerating(kubevirt, added, cluster)
    which = f" for {nodes.written(taint)}" if taint is not None else ""
    otherwise = f", or remove the taint from {node}" if node else ""
    words = f"add a toleration{which} to {written_settings.placement(kubevirt, cluster)}{otherwise}"
    return typed(f"{words}; KubeVirt 1.1 no longer counts such pods", command)
