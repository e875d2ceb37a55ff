"""Admission webhooks that fail closed and whose pods are all on lost nodes: what they get fails
until one runs elsewhere.

A webhook that gets what its own new pod needs, or what Kubernetes needs to notice the loss, never
runs again by itself: open-policy-agent/gatekeeper#291, kubernetes/kubernetes#107678. Sources are
those of ``webhook_reach``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.control import control_path, webhook_reach
from virt_admit.forecasts.drain.control.webhook_reach import ATTACHES, CONTROL, STARTS, Webhook
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.placement import quotas
from virt_admit.forecasts.placement.components import cluster_controllers, service_pods
from virt_admit.forecasts.placement.starts import priority_classes
from virt_admit.model.commands import about, typed
from virt_admit.model.evidence.writes import missing_services
from virt_admit.model.kubernetes import kinds, service_endpoints, webhook_requests
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import VALIDATING_CONFIGURATION
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.messages import names
from virt_admit.model.node_updates.rancher import unpromoted_nodes
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler.pods import Pod

READS: Final = union(control_path.READS, priority_classes.READS, unpromoted_nodes.READS)


@dataclass(frozen=True, slots=True)
class SilentWebhook:
    """A webhook that does not answer after a loss."""

    webhook: Webhook
    reason: str
    remedy: str
    lasting: bool | None
    """Whether it never answers again by itself. None: that cannot be determined."""
    everything: bool = False
    """Whether no controller acts without it. False: only the VMs wait whose start it gets."""


class OnStart(NamedTuple):
    """What webhooks do to the start of a VM."""

    never: SilentWebhook | None = None
    """It does not start."""
    unsure: SilentWebhook | None = None
    """Whether it starts cannot be determined."""
    later: SilentWebhook | None = None
    """It waits until the webhook runs elsewhere."""


def never(vmi: Object, hooks: OnStart, loss: Loss) -> Problem | None:
    """Return why no new pod of a VM starts after a loss: the API stops or refuses it, or a
    controller is down already; None: one does, as far as is known.
    """
    if loss.stopped:
        held = unpromoted_nodes.of_loss(loss.lost, loss.cluster)
        restore = held.remedy if held is not None else "restore the control plane"
        return Problem(loss.stopped, restore, cause="")
    if hooks.never is not None:
        return Problem(hooks.never.reason, hooks.never.remedy, cause=LOST)
    refused = (
        cluster_controllers.replaces_none(loss.cluster)
        or control_path.of_starts(loss.cluster)
        or priority_classes.absent(vmi, loss.cluster)
        or quotas.start_refusal(vmi, loss.nodes, loss.cluster)
    )
    return refused._replace(cause="") if refused is not None else None


LOST: Final = "WebhookLost"
"""The cause of a VM that does not start as a webhook does not answer."""


def on_start(vmi: Object, found: Sequence[SilentWebhook], cluster: Cluster) -> OnStart:
    """Return what the webhooks that do not answer do to the start of a VM."""
    stops = [(each, each.everything or _concerns(each.webhook, vmi, cluster)) for each in found]
    never = next((each for each, answer in stops if each.lasting and answer), None)
    unsure = next(
        (each for each, answer in stops if each.lasting is not False and answer is not False), None
    )
    later = next(
        (each for each, answer in stops if each.lasting is False and answer is not False), None
    )
    return OnStart(never, unsure, later)


def _concerns(webhook: Webhook, vmi: Object, cluster: Cluster) -> bool | None:
    """Return whether a webhook gets a request without which a VMI does not start, or has no
    volume."""
    effects = (STARTS, ATTACHES)
    answers = {webhook_reach.concerns(webhook.field, vmi, cluster, each) for each in effects}
    return True if True in answers else None if None in answers else False


def silent(loss: Loss) -> tuple[SilentWebhook, ...]:
    """Return the webhooks that do not answer after a loss, those that never do first."""
    found = [
        each
        for webhook in loss.cluster.cached(webhook_reach.critical).webhooks
        for each in _silence(webhook, loss)
    ]
    return tuple(sorted(found, key=lambda each: {True: 0, None: 1, False: 2}[each.lasting]))


def unread(cluster: Cluster) -> str:
    """Return what could not be read if more webhooks may exist than are known, else empty."""
    return cluster.cached(webhook_reach.critical).unseen


def _silence(webhook: Webhook, loss: Loss) -> Iterator[SilentWebhook]:
    cluster = loss.cluster
    if webhook.expired:
        remedy = typed("repair the operator that renews it", _described(webhook))
        yield SilentWebhook(
            webhook, f"{webhook.title} fails closed, and its CA bundle has expired", remedy, True
        )
        return
    try:
        if not service_endpoints.is_described(cluster):
            return
        backing = service_endpoints.backing(cluster, *webhook.service)
        found = (
            service_pods.of_service(webhook.service, cluster)
            if backing.nodes and backing.nodes <= loss.lost
            else []
        )
    except Unseen as unseen:
        reason = f"whether {webhook.title} still answers is not known: cannot see {unseen.what}"
        yield SilentWebhook(webhook, reason, "let virt-admit read it", None)
        return
    if backing.problem:
        remedy = missing_services.of_silent(webhook.service, backing.problem, cluster)
        yield SilentWebhook(
            webhook, f"{webhook.title} fails closed, and {backing.problem}", remedy, True
        )
    elif backing.nodes and backing.nodes <= loss.lost:
        yield from _lost(webhook, [pod for pod in found if pod.name in backing.pods], loss)


def _lost(webhook: Webhook, pods: Sequence[Object], loss: Loss) -> Iterator[SilentWebhook]:
    """Yield what becomes of a webhook whose ready pods are all on lost nodes."""
    cluster, namespace = loss.cluster, webhook.service[0]
    reason = f"{webhook.title} fails closed and runs on {names(loss.nodes)} alone"
    second = typed("run a second replica on another node", _described(webhook))
    needed = _control(webhook, loss)
    if needed is not False:
        why = (
            "it gets the requests by which Kubernetes notices that a node is lost and replaces pods"
        )
        remedy = f"exclude kube-system and nodes from its rules, or {second}"
        yield SilentWebhook(webhook, f"{reason}, and {why}", remedy, needed, everything=True)
        return
    itself = webhook_reach.gets_own_pods(webhook.field, namespace, pods, cluster)
    if itself is not False:
        remedy = f"exclude namespace {namespace} by its namespaceSelector, or {second}"
        yield SilentWebhook(webhook, f"{reason}, and it refuses its own new pod", remedy, itself)
        return
    again = _again([f"{pod.namespace or 'default'}/{pod.name}" for pod in pods], loss)
    if again is False:
        reason = f"{reason}, and no node that is left runs its pod"
    yield SilentWebhook(webhook, reason, second, None if again is None else not again)


def _control(webhook: Webhook, loss: Loss) -> bool | None:
    """Return whether a webhook gets a request without which no pod of a lost node is replaced."""
    space = loss.cluster.cached(webhook_reach.namespace_labels)
    answers = {
        webhook_requests.gets(
            webhook.field,
            each._replace(
                namespace_labels=space.get(each.namespace),
                labels={},
                name=each.name if each.namespace else loss.nodes[0],
            ),
        )
        for each in CONTROL
    }
    return True if True in answers else None if None in answers else False


def _again(own: Sequence[str], loss: Loss) -> bool | None:
    """Return whether a controller creates one of these pods again and a node that is left takes it;
    None: not known.
    """
    returning: list[Pod] = [pod for pod in loss.others if pod.full_name in own]
    placements = [loss.scheduler.place(pod) for pod in returning]
    if any(placement.has_candidate and placement.is_certain for placement in placements):
        return True
    return False if own and all(placement.is_certain for placement in placements) else None


def _described(webhook: Webhook) -> str:
    configuration = webhook.configuration
    return about("describe", configuration, kinds.of(configuration) or VALIDATING_CONFIGURATION)
