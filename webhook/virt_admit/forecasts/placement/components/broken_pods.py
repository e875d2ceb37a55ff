"""What is wrong with a pod that others rely on, in words, and what repairs it.

It declares no fields: the webhook, which keeps few fields of pods, says less.

Sources: kubernetes/kubernetes:pkg/kubelet/kuberuntime/kuberuntime_manager.go (CrashLoopBackOff),
:pkg/kubelet/kubelet_pods.go#convertToAPIContainerStatuses, :pkg/kubelet/prober/prober.go#probe (the
event Unhealthy).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import node_pods, unpullable_images
from virt_admit.forecasts.placement.components.kubelets import private_mounts
from virt_admit.forecasts.placement.components.operands import (
    component_patches,
    cordoned_homes,
    unwritten_configs,
)
from virt_admit.model import address_pools
from virt_admit.model.commands import about, kubectl, logs_of, typed
from virt_admit.model.evidence import (
    busy_programs,
    container_states,
    kernel_modules,
    lost_pins,
    pod_mutations,
    status_errors,
)
from virt_admit.model.kubernetes import clock, events, node_health, workloads
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE, POD, SERVICE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.workloads import container_statuses
from virt_admit.model.kubevirt.settings import migration_network, stored_shapes
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle, scheduler_words
from virt_admit.model.node_updates.operators import node_removals
from virt_admit.model.scheduler.node_selectors import tolerates

CHANGED_READS: Final = pod_mutations.READS
_CRASHES: Final = "CrashLoop"
_KILLED: Final = "OOMKilled"
_LONGEST: Final = 100
_LASTING: Final = timedelta(minutes=5)
"""A pod that is replaced, as in an update, is ready again within minutes."""


class BrokenPod(NamedTuple):
    """A pod that is not ready: why, since when, and what repairs it."""

    pod: Object
    why: str
    """``CrashLoopBackOff, container manager OOMKilled at its limit of 300Mi``; empty:
    nothing says so.
    """
    since: str
    """`` for 312 min``; empty: not known."""
    remedy: str
    on_lost_node: bool = False
    """Whether its node does not report: nothing on that node can repair it."""
    ends: str = ""
    """What replaces it without an administrator, and when; empty: nothing is known to."""
    uncreated: bool = False
    """Whether an event says why it has no containers yet, of which ``pod_starts`` tells more."""
    is_pinned: bool = False
    """Whether it demands what no node has."""

    @property
    def words(self) -> str:
        """Return it with its fault, as ``pod NAME is not ready for 5 min: CrashLoopBackOff``."""
        return f"pod {self.pod.name} is {self._state}"

    @property
    def full_words(self) -> str:
        """Return it with its owner, as ``pod NAMESPACE/NAME (DaemonSet NAME) is not ready``."""
        owner = self.pod.controller
        whose = f" ({owner['kind'].text} {owner['name'].text})" if owner is not None else ""
        return f"pod {self.pod.full_name}{whose} is {self._state}"

    @property
    def _state(self) -> str:
        return f"not ready{self.since}{f': {self.why}' if self.why else ''}"


def lasts(pod: Object, cluster: Cluster) -> bool:
    """Return whether a pod says that it is not ready, for longer than a replacement takes."""
    age = _unready_for(pod, cluster)
    return age is not None and age >= _LASTING


def starts(pod: Object, cluster: Cluster) -> bool:
    """Return whether a pod says that it is not ready, and may be so in a moment."""
    age = _unready_for(pod, cluster)
    return age is not None and age < _LASTING and not pod.deleted


def _unready_for(pod: Object, cluster: Cluster) -> timedelta | None:
    """Return for how long a pod has said that it is not ready; None: it does not say so."""
    node = find(cluster, NODE, "", pod.at("spec", "nodeName").text)
    return node_health.pod_unready_for(pod, node, cluster) if _is_unready(pod) else None


def _is_unready(pod: Object) -> bool:
    """Return whether a pod says that it is not ready. Before it has a node, nothing writes its
    condition Ready."""
    ready = pod.condition("Ready")["status"].text
    return ready == "False" or (ready is None and cordoned_homes.is_unplaced(pod))


def all_down(pods: Sequence[Object], cluster: Cluster) -> BrokenPod | None:
    """Return one of these pods where each of them has not been ready for minutes, one whose cause
    is known before others; None: there are none, or one may be ready.
    """
    down = pods and all(lasts(pod, cluster) for pod in pods)
    return first(pods, cluster) if down else None


def none_works(pods: Sequence[Object], cluster: Cluster) -> BrokenPod | None:
    """Return the same, where a pod whose helpers alone are not ready works all the same."""
    broken = all_down(pods, cluster)
    works = any(node_pods.may_work(pod) and not _on_lost_node(pod, cluster) for pod in pods)
    return None if works else broken


def _on_lost_node(pod: Object, cluster: Cluster) -> bool:
    """Return whether the node of a pod does not report: its containers were ready before that."""
    return bool(node_health.silent_for(pod.at("spec", "nodeName").text or "", cluster))


def first(pods: Iterable[Object], cluster: Cluster) -> BrokenPod | None:
    """Return the first of these pods that is not ready, one whose cause is known before others;
    None: all are.
    """
    return telling([each for pod in pods if (each := of_pod(pod, cluster)) is not None])


def telling(found: Sequence[BrokenPod]) -> BrokenPod | None:
    """Return the first of these whose cause is known, else the first; None: there is none."""
    return next((each for each in found if each.why), found[0] if found else None)


def of_pod(pod: Object, cluster: Cluster) -> BrokenPod | None:
    """Return what is wrong with a pod; None: it is ready, has ended, or does not say whether it
    is."""
    if pod.is_true("Ready") or pod.ended:
        return None
    if not any(True for _ in pod.at("status", "conditions").items()):
        return None
    node = find(cluster, NODE, "", pod.at("spec", "nodeName").text)
    age = node_health.pod_unready_for(pod, node, cluster)
    since = clock.lasts(age)
    if node is not None and (silent := node_health.silent_for(node.name, cluster)):
        ends, remedy = _replacement(pod, node, cluster), _remedy_of_lost(pod, node, cluster)
        return BrokenPod(
            pod, f"its node {node.name} {silent}", since, remedy, on_lost_node=True, ends=ends
        )
    lost = migration_network.fault(pod, cluster) or address_pools.of_pod(pod, cluster)
    lost = lost or private_mounts.of_pod(pod, cluster)
    if lost is not None:
        return BrokenPod(pod, lost.reason, since, lost.remedy)
    if (image := unpullable_images.of_pod(pod, cluster)) is not None:
        return BrokenPod(pod, image.reason.replace(";", ","), since, image.remedy)
    if (homeless := _without_node(pod, since, cluster)) is not None:
        return homeless
    why, container = _fault(pod)
    remedy = _remedy(pod, why, container, cluster)
    if not why:
        why, uncreated = _told(pod, cluster)
        return BrokenPod(pod, why, since, remedy, uncreated=uncreated)
    if why.startswith(_CRASHES) and age is not None:
        reason, comma, end = why.partition(",")
        why = f"{reason}{container_states.row(pod, container, age, cluster)}{comma}{end}"
    changed = _changed(pod, cluster) if why.startswith(_CRASHES) else ""
    kernels = kernel_modules.of_end(pod, container, _last_message(pod, container), cluster)
    if kernels is not None:
        return BrokenPod(pod, f"{why}{changed}, and {kernels.reason}", since, kernels.remedy)
    if (shape := stored_shapes.of_pod(pod, cluster)) is not None:
        return BrokenPod(pod, f"{why}{changed}: {shape.words}", since, shape.remedy)
    limit = limit_of(pod, container) if _KILLED in why else ""
    if (patch := component_patches.of_limit(pod, container, limit, cluster)) is not None:
        return BrokenPod(pod, f"{why}{changed}, {patch.words}", since, patch.remedy)
    if needed := unwritten_configs.needed_by(pod, why, cluster):
        why, remedy = _unwritten(f"{why}, {needed}", remedy, cluster)
    return BrokenPod(pod, f"{why}{changed}", since, remedy)


def _without_node(pod: Object, since: str, cluster: Cluster) -> BrokenPod | None:
    if (home := cordoned_homes.of_pod(pod, cluster)) is not None:
        return BrokenPod(pod, f"it has no node: {home.words}", since, home.remedy)
    pin = lost_pins.of_pod(pod, cluster) if cordoned_homes.is_unplaced(pod) else None
    if pin is None:
        return None
    way = lost_pins.way(pod, pin, cluster)
    return BrokenPod(pod, f"it has no node: it {pin.words}", since, way, is_pinned=True)


def _unwritten(why: str, remedy: str, cluster: Cluster) -> tuple[str, str]:
    """Return why a pod lacks what another component writes, and what repairs that one, if it is
    not ready."""
    writer = first(unwritten_configs.writers(cluster), cluster)
    if writer is None:
        return why, remedy
    told = f" ({writer.why})" if writer.why else ""
    why = f"{why}: pod {writer.pod.full_name}, which writes it, is not ready{writer.since}{told}"
    return why, f"{writer.remedy}; that pod then writes the status"


def changed(broken: BrokenPod, cluster: Cluster) -> BrokenPod:
    """Return the same with the policy that changed this pod alone of its siblings, if one did."""
    own = bool(broken.why) and not broken.on_lost_node
    policy = pod_mutations.alone(broken.pod, cluster) if own else ""
    if not policy:
        return broken
    pod = broken.pod
    why = f"{broken.why}, and {policy} changed this pod when it was created, but no ready sibling"
    remedy = (
        f"{broken.remedy}; if that comes from the change, exclude "
        f"namespace {pod.namespace} from {policy}, then let its owner replace pod {pod.name}"
    )
    return broken._replace(why=why, remedy=remedy)


def why(pod: Object, cluster: Cluster) -> str:
    """Return why a pod is not ready; empty: it is, or nothing says so."""
    broken = of_pod(pod, cluster)
    return broken.why if broken is not None else ""


# --- a pod of a node that does not report ---------------------------------------------------------


def _replacement(pod: Object, node: Object, cluster: Cluster) -> str:
    """Return when a pod is evicted from its silent node and replaced; empty: it is not, it should
    have been already, or that is not known.

    A ReplicaSet replaces a pod once it is marked for deletion. A StatefulSet waits for its end,
    which no kubelet reports. Sources: kubernetes/kubernetes:pkg/controller/tainteviction/
    taint_eviction.go#processPodOnNode #getMinTolerationTime, :pkg/controller/controller_utils.go
    #IsPodActive.
    """
    end, now = _evicted(pod, node), clock.now(cluster)
    if not _is_replaced(pod) or pod.deleted or end is None or now is None or end <= now:
        return ""
    left = clock.duration(end - now)
    then = "then its ReplicaSet starts it on another node, if one takes it"
    return f"it is evicted from {node.name} in {left}, {then}"


def _evicted(pod: Object, node: Object) -> datetime | None:
    """Return when the taints of a node evict a pod; None: none does, or that is not known."""
    tolerations = [each.value for each in pod.at("spec", "tolerations").items()]
    ends: list[datetime | None] = []
    for taint in node.at("spec", "taints").items():
        if taint["effect"].text != "NoExecute":
            continue
        covering = [each for each in tolerations if tolerates([each], taint.value)]
        times = [each.get("tolerationSeconds") for each in covering if isinstance(each, dict)]
        limits = [max(0, each) for each in times if isinstance(each, int) and each < clock.LONGEST]
        if covering and not limits:  # tolerated without end
            continue
        added = clock.instant(taint["timeAdded"].text)
        ends.append(added + timedelta(seconds=min(limits, default=0)) if added else None)
    known = [end for end in ends if end is not None]
    return min(known) if known and len(known) == len(ends) else None


def _is_replaced(pod: Object) -> bool:
    return bool(pod.owned_by(_REPLICA_SET))


def _remedy_of_lost(pod: Object, node: Object, cluster: Cluster) -> str:
    """Return what ends that a pod is on a silent node. Nothing on that node can repair it."""
    if gone := node_removals.instead_of_return(node.name, cluster):
        return gone
    repair = f"bring node {node.name} back, or fence it"
    if not _is_replaced(pod) or pod.deleted:
        return typed(repair, kubectl("describe", NODE, node.name))
    words = f"{repair}; sooner, let its ReplicaSet replace pod {pod.name} on another node"
    return typed(words, about("delete", pod, POD, "--wait=false"))


_REPLICA_SET: Final = "ReplicaSet"


def _fault(pod: Object) -> tuple[str, str]:
    """Return why a pod is not ready, and which container; empty: nothing says so."""
    for status in container_statuses(pod):
        name, waiting = status["name"].text or "?", status.at("state", "waiting")
        reason = waiting["reason"].text or ""
        if (
            reason in container_states.OF_STARTS
        ):  # its last end was before, such as at a boot of its node
            continue
        ended = next((each for each in _ends(status) if each["exitCode"].integer), None)
        if reason:
            return _waits(reason, waiting, _end(pod, name, ended)), name
        if ended is not None and not status.at("state", "running").present:
            return _end(pod, name, ended), name
    if cordoned_homes.is_unplaced(pod):
        said = pod.condition("PodScheduled")["message"].text or "?"
        return f"it has no node: {scheduler_words(said, _LONGEST)}", ""
    return "", ""


def _changed(pod: Object, cluster: Cluster) -> str:
    """Return what is new in the template of a DaemonSet whose older pods are ready; empty: nothing
    is known to be, or it has none.
    """
    own = _generation(pod)
    if not own or not pod.owned_by(DAEMON_SET.kind):
        return ""
    older = next(
        (
            each
            for each in workloads.siblings(pod, cluster)
            if 0 < _generation(each) < own and each.is_true("Ready")
        ),
        None,
    )
    new = list(_new_parts(pod, older))[:_FEW] if older is not None else []
    return f" (new in its template, whose older pods are ready: {', '.join(new)})" if new else ""


def _generation(pod: Object) -> int:
    """Return which template of its DaemonSet a pod is made of; 0: not known."""
    text = pod.labels.get("pod-template-generation", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else 0


def _new_parts(pod: Object, older: Object) -> Iterator[str]:
    """Yield the images, arguments and variables that an older pod does not have."""
    before = {each["name"].text: each for each in older.at("spec", "containers").items()}
    for container in pod.at("spec", "containers").items():
        old = before.get(container["name"].text)
        if old is None:
            yield f"container {container['name'].text}"
            continue
        image = container["image"].text
        if image and image != old["image"].text:
            yield f"image {cut_middle(image, _LONGEST)}"
        for part in ("command", "args", "env"):
            had = [each.value for each in old[part].items()]
            for each in container[part].items():
                if each.value not in had:
                    yield f"{part} {cut_middle(each['name'].text or each.text or '?', _LONGEST)}"


_FEW: Final = 2
_DIGITS: Final = 10


def _told(pod: Object, cluster: Cluster) -> tuple[str, bool]:
    """Return what the readiness probe of a pod answers, or what keeps it from its volumes and its
    network, and whether it is that; empty: no event of the last minutes says it."""
    starts = pod.at("status", "phase").text == "Pending"
    for reason, said in events.warnings(pod, clock.ago(_RECENT, cluster), cluster):
        if answer := events.probe_answer(reason, said):
            return _shortened(answer), False
        if starts and reason in _OF_START:
            return f"{reason}, {_shortened(said)}", True
    return "", False


def _shortened(said: str) -> str:
    return cut_middle(status_errors.plain(said).rstrip(". ").replace(";", ","), _SAID)


_OF_START: Final = (*events.OF_VOLUMES, "FailedCreatePodSandBox")
_RECENT: Final = timedelta(minutes=10)
_SAID: Final = 160


def _waits(reason: str, waiting: Field, end: str) -> str:
    """Return why a container waits: how it ended, which says more than a time between restarts,
    else the kubelet's words.
    """
    said = status_errors.plain(waiting["message"].text or "").replace(";", ",")
    said = cut_middle(said, _LONGEST)
    return f"{reason}, {end}" if end else f"{reason}: {said}" if said else reason


def _ends(status: Field) -> tuple[Field, Field]:
    return status.at("state", "terminated"), status.at("lastState", "terminated")


def _end(pod: Object, name: str, ended: Field | None) -> str:
    """Return how a container ended."""
    if ended is None:
        return ""
    if ended["reason"].text == _KILLED:
        limit = limit_of(pod, name)
        return f"container {name} {_KILLED}{f' at its limit of {limit}' if limit else ''}"
    single = len(list(pod.at("spec", "containers").items())) == 1
    last = _shortened(container_states.last_words(ended["message"].text or ""))
    code = f"exit code {ended['exitCode'].integer}{f' ({last})' if last else ''}"
    first = pod.at("status", "initContainerStatuses").named(name).present
    called = f"init container {name}" if first else "it" if single else f"container {name}"
    return f"{called} ends with {code}"


def limit_of(pod: Object, name: str) -> str:
    """Return the memory that a container may use; empty: it has no limit."""
    container = pod.at("spec", "containers").named(name)
    return container.at("resources", "limits", "memory").text or ""


def _remedy(pod: Object, why: str, container: str, cluster: Cluster) -> str:
    described = kubectl("describe", POD, pod.name, pod.namespace)
    if not container or (
        not why.startswith(_CRASHES) and " ends with " not in why and _KILLED not in why
    ):
        return typed(f"repair pod {pod.name}", described)
    named = container.removeprefix("?")
    logs, said = logs_of(pod, "--previous", container=named), _last_message(pod, container)
    if busy := busy_programs.remedy(pod, named, said):
        return busy
    if needed := _NO_ENDPOINT.search(said):
        first = f"repair Service {needed[2]}/{needed[1]} first, which has no endpoint"
        words = f"{first}, as the last log of pod {pod.name} says"
        return typed(words, kubectl("describe", SERVICE, needed[1], needed[2]))
    if _KILLED in why:
        return _more_memory(pod, container, logs, cluster)
    if said.strip():
        return typed(f"correct what pod {pod.name} says as it ends{_where(pod, cluster)}", logs)
    return typed(f"repair pod {pod.name}, whose last log says why it ends", logs)


def _where(pod: Object, cluster: Cluster) -> str:
    """Return where the cause of a pod's end is, by the other pods of its DaemonSet with the same
    template; empty: there are none, or some of them are ready and some are not.
    """
    node, name = pod.at("spec", "nodeName").text, pod.owned_by(DAEMON_SET.kind)
    alike = (e for e in workloads.siblings(pod, cluster) if _generation(e) == _generation(pod))
    others = [each for each in alike if each.name != pod.name]
    if not name or not node or not others:
        return ""
    ready = sum(each.is_true("Ready") for each in others)
    if ready == len(others):
        alone = "its only sibling is" if ready == 1 else f"its {ready} siblings are"
        return f", on {node}: {alone} ready"
    return "" if ready else f", in DaemonSet {name}: none of its {len(others) + 1} pods is ready"


_NO_ENDPOINT: Final = re.compile(
    r"\b([a-z0-9][a-z0-9-]{0,62})\.([a-z0-9][a-z0-9-]{0,62})\.svc\b"
    r"[^\n]{0,400}no endpoints available for service"
)
"""What the API server answers where a webhook refuses because its Service has no endpoint
(kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/util/proxy/proxy.go#ResolveEndpoint)."""


def _last_message(pod: Object, name: str) -> str:
    """Return how a container ended, in its own words."""
    statuses = (each for each in container_statuses(pod) if each["name"].text == name)
    ended = (end["message"].text or "" for status in statuses for end in _ends(status))
    return next(filter(None, ended), "")


def _more_memory(pod: Object, container: str, logs: str, cluster: Cluster) -> str:
    """Return what gives a container more memory: in its DaemonSet, unless that has an owner, which
    would take it back."""
    name, limit = pod.owned_by(DAEMON_SET.kind), limit_of(pod, container)
    amount = f"more memory{f' than {limit}' if limit else ''}"
    if not name:
        return typed(
            f"give container {container} of pod {pod.name} {amount}, and see what it did last", logs
        )
    whose = f"give container {container} of DaemonSet {pod.namespace}/{name} {amount}"
    daemon = find(cluster, DAEMON_SET, pod.namespace, name)
    top = daemon.controller if daemon is not None else None
    if top is not None:
        return typed(f"{whose} in {top['kind'].text} {top['name'].text}, which owns it", logs)
    if daemon is None:
        return typed(whose, logs)
    return typed(f"{whose}, also in its chart or operator", about("edit", daemon, DAEMON_SET))
