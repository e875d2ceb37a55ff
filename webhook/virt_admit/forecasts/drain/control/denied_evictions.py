"""Evictions that are refused to a drain which is under way, as what drains the node reports it, and
webhooks that are known to deny each one.

A webhook may make way for what it denies, so that its denial counts once the drain has lasted. One
that cannot read an Eviction of policy/v1 never does. Sources:
medik8s/node-maintenance-operator:internal/controller/nodemaintenance_controller.go
#onReconcileErrorWithRequeue; openshift/machine-api-operator:pkg/controller/machine/
drain_controller.go#Reconcile; foriequal0/pod-graceful-drain:internal/pkg/webhooks/
eviction_mutator.go (policy/v1beta1 alone before 0.0.8, issue 31, pull request 32).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain import progress
from virt_admit.forecasts.drain.budgets import evicted_pods, pod_counts
from virt_admit.forecasts.drain.control import webhook_reach
from virt_admit.forecasts.drain.control.hindrances import Hindrance
from virt_admit.forecasts.placement.components import service_pods
from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, argument, kubectl, logs_of, shell, typed
from virt_admit.model.evidence import writers
from virt_admit.model.evidence.writes import (
    admission_policies,
    eviction_answers,
    refused_writes,
    service_callers,
)
from virt_admit.model.evidence.writes.eviction_answers import EvictionAnswer
from virt_admit.model.kubernetes import clock, events, kinds, webhook_requests
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, entry
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    MACHINE,
    NODE,
    POD,
    VALIDATING_CONFIGURATION,
    VMI,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import capital, count, cut_middle, names
from virt_admit.model.node_updates import updaters
from virt_admit.model.remediation import machine_drain, maintenance

READS: Final[Reads] = union(
    webhook_reach.READS,
    progress.READS,
    pod_counts.READS,
    refused_writes.READS,
    admission_policies.READS,
    machine_drain.READS,
    dict.fromkeys(maintenance.KINDS, ()),
    {
        MACHINE: (*CONDITIONS, "status.conditions.message"),
        POD: ("spec.containers.image", "metadata.labels"),
        VMI: ("status.evacuationNodeName", "status.nodeName"),
    },
)

_PATIENCE: Final = timedelta(minutes=10)
"""What makes way for an eviction that it denies has done so by then."""
_RECENT: Final = timedelta(hours=1)
"""What drains a node repeats its event while an eviction is refused: an older one is over."""
_ACCOUNT: Final = "system:serviceaccount:"
_WORDS: Final = 160
_FIXED: Final = ((re.compile(r"/pod-graceful-drain:v?0\.0\.[0-7](?![\w.])"), "0.0.8"),)
"""Images whose webhook cannot read an Eviction of policy/v1, and the first release that can."""


class RefusedEvictions(NamedTuple):
    """One cause for which evictions of a node are refused."""

    hindrance: Hindrance
    """Its ``vms`` are those that no eviction has reached so far."""
    others: bool
    """Whether it keeps pods that are not of VMs."""


class _Said(NamedTuple):
    """An answer, and what reports it."""

    by: str
    """``NodeMaintenance dimm``."""
    answer: EvictionAnswer
    pods: frozenset[str]
    """The pods that are on the node still."""


def of_node(node: str, cluster: Cluster) -> Sequence[RefusedEvictions]:
    """Return what refuses the evictions of a node."""
    return entry(cluster, _by_node, node) or ()


def _by_node(cluster: Cluster) -> Mapping[str, Sequence[RefusedEvictions]]:
    texts, outdated = _texts(cluster), cluster.cached(_outdated)
    found: dict[str, Sequence[RefusedEvictions]] = {}
    for node in cluster.known(NODE) if texts or outdated else ():
        said = [
            (by, answer)
            for by, text in texts.get(node.name, ())
            for answer in eviction_answers.of(text)
        ]
        if said or outdated:
            found[node.name] = tuple(_refused(node, said, cluster))
    return found


# --- what drains nodes, and what it reports -------------------------------------------------------


def _texts(cluster: Cluster) -> Mapping[str, Sequence[tuple[str, str]]]:
    """Return what is reported about the drain of each node, each with what reports it."""
    found = (each for each in _reports(cluster) if each[0] and each[2])
    return {
        node: [(by, text) for _, by, text in same]
        for node, same in grouped(found, lambda each: each[0]).items()
    }


def _reports(cluster: Cluster) -> Iterator[tuple[str, str, str]]:
    for kind in maintenance.KINDS:
        for each in cluster.known(kind):
            hang = None if each.deleted else maintenance.hang(each)
            if hang is not None:
                yield maintenance.node(each).text or "", f"{each.kind} {each.name}", hang.error
    for each in cluster.known(CAPI_MACHINE):
        if each.deleted:
            words, _ = machine_drain.reported(each)
            yield machine_nodes.node_name(each, cluster), f"Machine {each.full_name}", words
    for each in cluster.known(MACHINE):
        drained = each.condition("Drained")
        if each.deleted and drained["status"].text == "False":
            by, words = f"Machine {each.full_name}", drained["message"].text or ""
            yield machine_nodes.node_name(each, cluster), by, words
    for name, update in updaters.of_nodes(cluster).items():
        yield name, f"{update.kind} {update.name}", update.waits_for
    for node in cluster.known(NODE):
        start = progress.start(node, cluster)
        if start is not None:
            times = filter(None, (start.since, clock.ago(_RECENT, cluster)))
            for event in events.about(node, max(times, default=None), cluster):
                by = f"event {event['reason'].text or ''} of Node {node.name}"
                yield node.name, by, event["message"].text or ""


# --- what they mean -------------------------------------------------------------------------------


def _refused(
    node: Object, said: Sequence[tuple[str, EvictionAnswer]], cluster: Cluster
) -> Iterator[RefusedEvictions]:
    here = entry(cluster, evicted_pods.by_node, node.name) or ()
    left = {pod.full_name: pod for pod in here if evicted_pods.is_evicted(pod) and not pod.deleted}
    known = (_Said(by, answer, answer.pods & left.keys()) for by, answer in said)
    same = grouped((each for each in known if each.pods), lambda each: each.answer[:4])
    lasts, causes = _lasts(node, cluster), set()
    for every in same.values():
        pods = frozenset(name for each in every for name in each.pods)
        hook = _hook(every[0].answer.webhook, pods, left, cluster)
        if hook is not None and every[0].answer.is_unreadable:
            pods |= _got(hook[1], left, cluster)
        made = _hindrance(every[0], hook, pods, lasts, cluster)
        if made is not None:
            causes.add((made.kind, made.name))
            yield _of_pods(made, pods, left, node, cluster)
    for configuration, hook_field, image, release in cluster.cached(_outdated):
        pods = _got(hook_field, left, cluster)
        if pods and (configuration.kind, configuration.name) not in causes:
            hook = configuration, hook_field
            made = _unreadable(hook, f"its image {image}", pods, release, cluster)
            yield _of_pods(made, pods, left, node, cluster)


def _lasts(node: Object, cluster: Cluster) -> bool:
    start = progress.start(node, cluster)
    age = clock.elapsed(start.since, cluster) if start is not None else None
    return age is not None and age >= _PATIENCE


def _of_pods(
    made: Hindrance,
    pods: Collection[str],
    left: Mapping[str, Object],
    node: Object,
    cluster: Cluster,
) -> RefusedEvictions:
    launchers = [left[name] for name in pods if vm_ledger.vmi_name(left[name])]
    kept = frozenset(
        f"{vms.namespace_of(pod)}/{vm_ledger.vmi_name(pod)}"
        for pod in launchers
        if not _is_leaving(pod, node, cluster)
    )
    others = any(not evicted_pods.is_of_vm(left[name]) for name in pods)
    return RefusedEvictions(replace(made, evictions=True, vms=kept), others)


def _is_leaving(pod: Object, node: Object, cluster: Cluster) -> bool:
    """Return whether an eviction of the pod has reached KubeVirt, which moves its guest."""
    vmi = find(cluster, VMI, vms.namespace_of(pod), vm_ledger.vmi_name(pod))
    return vmi is not None and (
        vmi.at("status", "evacuationNodeName").text == node.name
        or vmi.at("status", "nodeName").text != node.name
    )


_Hook = tuple[Object, Field]
"""A webhook: its configuration, and its entry there."""


def _hook(
    name: str, pods: Collection[str], left: Mapping[str, Object], cluster: Cluster
) -> _Hook | None:
    """Return the webhook of this name that gets the evictions of some pods; None: none is known."""
    for each in service_callers.configurations(name, cluster) if name else ():
        hook = each["webhooks"].named(name)
        if set(pods) & _got(hook, left, cluster):
            return each, hook
    return None


def _got(hook: Field, left: Mapping[str, Object], cluster: Cluster) -> frozenset[str]:
    """Return the pods of which a webhook certainly gets an eviction."""
    labels = cluster.cached(webhook_reach.namespace_labels)
    found = (
        webhook_reach.EVICTION._replace(
            namespace=pod.namespace,
            namespace_labels=labels.get(pod.namespace),
            name=pod.name,
            labels={},
        )
        for pod in left.values()
    )
    return frozenset(
        name
        for name, request in zip(left, found, strict=True)
        if webhook_requests.gets(hook, request) is True
    )


def _hindrance(
    said: _Said, hook: _Hook | None, pods: Collection[str], lasts: bool, cluster: Cluster
) -> Hindrance | None:
    """Return what an answer means for a drain; None: what it names is not known."""
    answer, which = said.answer, _pods(pods)
    because = (
        f" ({said.by}): {cut_middle(answer.words, _WORDS)}" if answer.words else f" ({said.by})"
    )
    if answer.user:
        return _account(answer.user, f"may not evict {which} ({said.by})")
    if answer.binding:
        said_so = f"ValidatingAdmissionPolicy 'x' with binding '{answer.binding}' denied request"
        policy = admission_policies.named(said_so, "", cluster)
        if policy is None:
            return None
        reason = f"{policy.title} denies the eviction of {which}{because}"
        remedy = typed(f"{capital(policy.order)}, or change what it rejects", policy.command)
        made = Hindrance(policy.name, policy.kind.kind, "", policy.obj.name)
        return replace(made, reason=reason, remedy=remedy, stops=lasts)
    if hook is None:
        return None
    if answer.is_unreadable:
        return _unreadable(hook, f"{said.by}: {answer.words}", pods, "", cluster)
    made = _made(hook)
    if not answer.answers:
        reason = f"{made.component} does not answer to the eviction of {which}{because}"
        found = refused_writes.of(
            f'failed calling webhook "{answer.webhook}": {answer.words}', cluster, None
        )
        repair = capital(found.remedy) if found is not None else f"Repair {_backend(hook, cluster)}"
        return replace(made, reason=reason, remedy=typed(repair, _described(hook)), stops=lasts)
    reason = f"{made.component} denies the eviction of {which}{because}"
    see = f"Do what it asks for, or let {_backend(hook, cluster)} allow it"
    return replace(made, reason=reason, remedy=typed(see, _log(hook, cluster)), stops=lasts)


def _pods(pods: Collection[str]) -> str:
    return f"{count(len(pods), 'pod')} ({names(sorted(pods), 80)})"


def _account(user: str, words: str) -> Hindrance:
    space, _, name = user.removeprefix(_ACCOUNT).partition(":")
    is_account = user.startswith(_ACCOUNT) and bool(name)
    place = ("ServiceAccount", space, name) if is_account else ("User", "", user)
    check = shell(
        *("kubectl", "auth", "can-i", "create", "pods", "--subresource=eviction"),
        *("-A", f"--as={argument(user)}"),
    )
    remedy = typed("Let a ClusterRole of it create pods/eviction", check)
    return Hindrance(user, *place, reason=words, remedy=remedy, stops=True)


def _made(hook: _Hook) -> Hindrance:
    configuration, field = hook
    title = f"webhook {field['name'].text or configuration.name}"
    return Hindrance(title, configuration.kind, "", configuration.name)


def _unreadable(
    hook: _Hook, evidence: str, pods: Collection[str], release: str, cluster: Cluster
) -> Hindrance:
    """Return that a webhook denies each eviction, as it cannot read it, and what helps.

    ``release``: the first one that can; empty: look for it.
    """
    made, image = _made(hook), _image(hook[1], cluster)
    release = release or _release(image)
    reason = (
        f"{made.component} denies the eviction of {_pods(pods)}, as it cannot read an Eviction of "
        f"policy/v1 ({cut_middle(evidence, _WORDS)})"
    )
    old = f" from {image}" if image else ""
    new = f"release {release} or later" if release else "a release that reads policy/v1"
    update = f"Update {_backend(hook, cluster)}{old} to {new}; {_without(hook)}"
    return replace(made, reason=reason, remedy=update, stops=True)


def _without(hook: _Hook) -> str:
    """Return how evictions pass without a webhook that denies each of them: nothing that it does
    for them is lost.
    """
    configuration, field = hook
    kind, writer = kinds.of(configuration) or VALIDATING_CONFIGURATION, writers.of(configuration)
    by = f" ({writer.source} writes it)" if writer is not None else ""
    alone = sum(True for _ in configuration["webhooks"].items()) == 1
    if alone:
        words = f"or, as a decision, delete {configuration.kind} {configuration.name}{by}"
        return typed(words, kubectl("delete", kind, configuration.name))
    name = field["name"].text
    words = f"or, as a decision, remove {name} from {configuration.kind} {configuration.name}{by}"
    return typed(words, kubectl("edit", kind, configuration.name))


def _described(hook: _Hook) -> str:
    kind = kinds.of(hook[0]) or VALIDATING_CONFIGURATION
    return about("describe", hook[0], kind)


@cached
def _outdated(cluster: Cluster) -> Sequence[tuple[Object, Field, str, str]]:
    """Return the webhooks on evictions whose image cannot read policy/v1: the configuration, its
    entry, the image, and the first release that can.
    """
    hooks = (
        (configuration, hook)
        for kind in webhook_requests.CONFIGURATIONS
        for configuration in cluster.known(kind)
        for hook in configuration["webhooks"].items()
        if webhook_requests.intercepts(hook, webhook_reach.EVICTION)
    )
    found = (
        (*each, image, _release(image)) for each in hooks if (image := _image(each[1], cluster))
    )
    return [each for each in found if each[3]]


def _release(image: str) -> str:
    return next((release for pattern, release in _FIXED if pattern.search(image)), "")


def _image(hook: Field, cluster: Cluster) -> str:
    """Return the image that answers for a webhook, if all its pods have one; empty: not known."""
    images = {
        each["image"].text or ""
        for pod in _backing(hook, cluster)
        for each in pod.at("spec", "containers").items()
    }
    return images.pop() if len(images) == 1 else ""


def _backing(hook: Field, cluster: Cluster) -> Sequence[Object]:
    service = webhook_requests.asked(hook)
    if service is None:
        return ()
    try:
        pods = service_pods.of_service(service, cluster)
    except Unseen:
        return ()
    return [pod for pod in pods if not pod.ended and not pod.deleted]


def _backend(hook: _Hook, cluster: Cluster) -> str:
    """Return what answers for a webhook: ``Deployment policies/gate``."""
    pods, service = _backing(hook[1], cluster), webhook_requests.asked(hook[1])
    owner = pod_counts.owner(pods[0], cluster) if pods else None
    if owner is not None:
        return f"{owner.kind} {pods[0].namespace}/{owner.name}, which serves it,"
    return f"what serves it (Service {'/'.join(service)})" if service else "what serves it"


def _log(hook: _Hook, cluster: Cluster) -> str:
    """Return the command that shows why a webhook denies an eviction."""
    pods = _backing(hook[1], cluster)
    return logs_of(pods[0], "--since=10m") if pods else _described(hook)
