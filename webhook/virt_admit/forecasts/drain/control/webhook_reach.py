"""Admission webhooks that fail closed and that a drain needs: whether their Services answer,
also after the drain.

Evictions, target pods and migrations are API requests. Where a webhook that gets one of them cannot
be reached, the API server refuses the request with code 500, and ``kubectl drain`` repeats only
code 429. Sources:
kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/validating/dispatcher.go#Dispatch,
:pkg/registry/core/pod/storage/storage.go#BindingREST,
:pkg/kubelet/status/status_manager.go#syncPod; kubernetes/kubectl:pkg/drain/drain.go#evictPods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.control.hindrances import Hindrance, leaves_with
from virt_admit.forecasts.placement import running_launchers
from virt_admit.forecasts.placement.components import service_pods, webhook_deadlocks
from virt_admit.forecasts.placement.components.longhorn import attach_requests
from virt_admit.model.commands import about, kubectl
from virt_admit.model.evidence.writes import missing_services, service_callers
from virt_admit.model.kubernetes import (
    clock,
    kinds,
    nodes,
    service_endpoints,
    webhook_bundles,
    webhook_requests,
)
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import (
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    VALIDATING_CONFIGURATION,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.webhook_requests import InterceptedRequest
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital

READS: Final[Reads] = union(
    vmis.READS,
    attach_requests.READS,
    webhook_deadlocks.READS,
    missing_services.READS,
    {POD: ("spec.nodeName",), NODE: ("metadata.labels", "spec.unschedulable")},
)


_MIGRATION: Final = "virtualmachineinstancemigrations"
_INSTANCE: Final = "virtualmachineinstances"
_KUBEVIRT: Final = "kubevirt.io"
_BINDING: Final = "pods/binding"

EVICTION: Final = InterceptedRequest("CREATE", "", "pods/eviction")
POD_END: Final = (
    InterceptedRequest("UPDATE", "", "pods/status"),
    InterceptedRequest("DELETE", "", "pods"),
)
"""What a kubelet asks for when a pod has ended. Until it succeeds the pod exists,
and a drain waits for it.
"""
POD_START: Final = (
    InterceptedRequest("CREATE", "", "pods"),
    InterceptedRequest("CREATE", "", _BINDING),
    InterceptedRequest("UPDATE", "", "pods/status"),
)
"""What a new pod needs: its creator, kube-scheduler and a kubelet ask for it."""
_REPORTED: Final = tuple(
    InterceptedRequest("UPDATE", _KUBEVIRT, f"{_INSTANCE}{sub}") for sub in ("", "/status")
)
MIGRATION: Final = (
    *POD_START,
    InterceptedRequest("CREATE", _KUBEVIRT, _MIGRATION),
    *(InterceptedRequest("UPDATE", _KUBEVIRT, f"{_MIGRATION}{sub}") for sub in ("", "/status")),
    *_REPORTED,
)
STATE_CLAIM: Final = InterceptedRequest("CREATE", "", "persistentvolumeclaims")
"""Only for VMs with a persistent vTPM or EFI:
the migration creates a second claim for their state.
"""
START: Final = (*POD_START, InterceptedRequest("CREATE", _KUBEVIRT, _INSTANCE), *_REPORTED)


class WebhookEffect(NamedTuple):
    """What fails for a VM without an answer to one of some requests."""

    words: str
    requests: tuple[InterceptedRequest, ...]
    evictions: bool = False
    starts: bool = False


CORDON: Final = WebhookEffect(
    "no node can be cordoned or uncordoned, and its drain fails at once",
    (InterceptedRequest("UPDATE", "", "nodes", cluster_scoped=True),),
    evictions=True,
)
"""How a drain begins, unless the node is cordoned already."""
STARTS: Final = WebhookEffect("VMs do not start", START, starts=True)
ATTACHES: Final = WebhookEffect("VMs do not start", (attach_requests.TICKET,), starts=True)
_EFFECTS: Final = (
    WebhookEffect("evictions fail", (EVICTION,), evictions=True),
    WebhookEffect("evicted pods do not end", POD_END, evictions=True),
    WebhookEffect("migrations fail", (*MIGRATION, STATE_CLAIM, attach_requests.TICKET)),
    STARTS,
    ATTACHES,
)
"""The worst first: a VM that cannot be evicted needs no target."""
CONTROL: Final = (
    InterceptedRequest(
        "UPDATE", "coordination.k8s.io", "leases", "kube-system", name="kube-controller-manager"
    ),
    InterceptedRequest("UPDATE", "", "nodes/status", cluster_scoped=True),
)
"""What Kubernetes asks for before it notices that a node is lost, and replaces a pod: a controller
that cannot renew its lease ends (client-go: tools/leaderelection), and a node stays Ready
(pkg/controller/nodelifecycle).
"""
_ASKED: Final = frozenset(
    request for effect in (CORDON, *_EFFECTS) for request in effect.requests
) | {*CONTROL}


class Webhook(NamedTuple):
    """A webhook that fails closed and asks for a request of a drain."""

    configuration: Object
    field: Field
    service: tuple[str, str]
    expired: bool

    @property
    def title(self) -> str:
        return f"webhook {self.field['name'].text or self.configuration.name}"

    @property
    def described(self) -> str:
        """The command that shows its configuration."""
        kind = kinds.of(self.configuration) or VALIDATING_CONFIGURATION
        return about("describe", self.configuration, kind)


class Critical(NamedTuple):
    """The webhooks without which VMs do not leave or start, or controllers do not act."""

    webhooks: tuple[Webhook, ...]
    unseen: str


def hindrances(
    cluster: Cluster, node: str, *, without: frozenset[tuple[str, str]], drains: bool = True
) -> Iterator[Hindrance]:
    """Yield the webhooks that keep VMs of a node there.

    ``without``: Services that are judged elsewhere. ``drains``: whether the node is drained; else
    its VMs are to migrate one by one, without a cordon and an eviction.
    """
    needed = cluster.cached(critical)
    running = gather(vmis.on_node(cluster, node))[0] if needed.webhooks or needed.unseen else []
    if not running:
        return
    certain: dict[tuple[tuple[str, str], bool], set[str]] = {}
    for webhook in sorted(needed.webhooks, key=_is_general):
        found = _state(webhook, node, cluster, without)
        if found is None:
            continue
        # one Service that does not answer is one cause
        known = certain.setdefault((webhook.service, found.now), set())
        left = [vmi for vmi in running if vmi.full_name not in known]
        for kept in _kept(found, webhook, left, _effects(found, node, cluster, drains), cluster):
            if kept.evictions and kept.stops:
                known |= kept.vms or set()
            yield kept
    if needed.unseen:
        yield Hindrance.unread("admission webhooks", needed.unseen)


def _is_general(webhook: Webhook) -> bool:
    """Return whether a webhook names no resource of nodes itself: one that does is named first."""
    resources = (
        each for rule in webhook.field["rules"].items() for each in rule["resources"].items()
    )
    return not any(each.text == "nodes" for each in resources)


def of_pods(pods: Sequence[Object], node: str, cluster: Cluster) -> Iterator[Hindrance]:
    """Yield the webhooks that refuse the evictions of ordinary pods of a node now.

    All evictions are requested at once.
    """
    needed = cluster.cached(critical)
    labels = cluster.cached(namespace_labels) if pods and needed.webhooks else {}
    for webhook in needed.webhooks if pods else ():
        for effect in _EFFECTS[:2]:
            asked = webhook_requests.received(webhook.field, effect.requests)
            answers = {
                webhook_requests.gets(webhook.field, each)
                for pod in (pods if asked else ())
                for each in _of_pod(pod, asked, labels)
            }
            made = _state(webhook, node, cluster, frozenset()) if answers & {True, None} else None
            if made is not None and made.now:
                stops = made.stops and True in answers
                yield replace(
                    made,
                    reason=f"{made.reason}: {effect.words}" if made.stops else made.reason,
                    stops=stops,
                )
                break
    if pods and needed.unseen:
        yield Hindrance.unread("admission webhooks", needed.unseen)


def _of_pod(
    pod: Object, asked: Iterable[InterceptedRequest], labels: Mapping[str, Mapping[str, str]]
) -> Iterator[InterceptedRequest]:
    """Yield requests as webhooks get them for a pod. An Eviction and a Binding have no labels."""
    space = pod.namespace or "default"
    for each in asked:
        own = {} if each.resource in (EVICTION.resource, _BINDING) else pod.labels
        yield each._replace(
            namespace=space, namespace_labels=labels.get(space), name=pod.name, labels=own
        )


def critical(cluster: Cluster) -> Critical:
    """Return the webhooks that fail closed and get a request of a drain,
    a start or a controller.
    """
    return failing_closed(_ASKED, cluster)


def failing_closed(requests: Iterable[InterceptedRequest], cluster: Cluster) -> Critical:
    """Return the webhooks that fail closed and name one of these requests in their rules."""
    wanted, found = tuple(requests), list[Webhook]()
    unseen = ""
    now = clock.now(cluster)
    for kind in webhook_requests.CONFIGURATIONS:
        configurations, blind = gather(cluster.list(kind))
        unseen = unseen or blind
        for configuration in configurations:
            for webhook in configuration["webhooks"].items():
                service = webhook_requests.service(webhook)
                if service is not None and webhook_requests.received(webhook, wanted):
                    end = webhook_bundles.end_of(webhook) if now else None
                    expired = end is not None and now is not None and end <= now
                    found.append(Webhook(configuration, webhook, service, expired))
    return Critical(tuple(found), unseen)


def _state(
    webhook: Webhook, node: str, cluster: Cluster, without: frozenset[tuple[str, str]]
) -> Hindrance | None:
    """Return why a webhook does not answer, now or in the course of a drain; None: it answers,
    or is not judged.
    """
    configuration = webhook.configuration
    made = Hindrance(webhook.title, configuration.kind, "", configuration.name)
    if webhook.expired:
        reason = f"{webhook.title} fails closed, and its CA bundle has expired"
        remedy = f"Repair the operator that renews it: {webhook.described}"
        return replace(made, reason=reason, remedy=remedy, stops=True)
    if webhook.service in without:
        return None
    try:
        if not service_endpoints.is_described(cluster):
            return None
        backing = service_endpoints.backing(cluster, *webhook.service)
    except Unseen as blind:
        return Hindrance.unread(webhook.title, blind.what)
    if backing.problem:
        reason, remedy = _unanswered(webhook, backing.problem, cluster)
        return replace(made, reason=reason, remedy=remedy, stops=True)
    if not backing.pods or backing.nodes != {node}:
        return None
    return _leaving(webhook, made, backing.pods, node, cluster)


def _unanswered(webhook: Webhook, problem: str, cluster: Cluster) -> tuple[str, str]:
    """Return why nothing answers for the Service of a webhook, and what helps."""
    if service_callers.is_missing(problem):
        gone = missing_services.remedy(webhook.service, cluster)
        return f"{webhook.title} fails closed, and {problem}", capital(gone)
    namespace, name = webhook.service
    unready = service_pods.unready(webhook.service, cluster)
    pods = f" ({unready})" if unready else ""
    reason = f"{webhook.title} fails closed, and {problem}{pods}"
    if refusing := refusing_own_pods(webhook, cluster):
        off = [(each.configuration, each.field) for each in refusing]
        same = configurations(refusing) == configurations([webhook])
        return reason, webhook_deadlocks.way_out(namespace, off, same=same)
    dns = webhook_deadlocks.of_webhook(webhook.configuration, webhook.field, cluster)
    if dns is not None:
        why = f"{reason}, while {dns.lacks} and it refuses new ones, so neither comes back"
        return why, dns.remedy
    if broken := service_pods.broken(webhook.service, cluster):
        return reason, capital(broken.remedy)
    repair = f"Repair the pods of Service {namespace}/{name}, or the failurePolicy of the webhook"
    return reason, f"{repair}: {kubectl('describe', SERVICE, name, namespace)}"


def _leaving(
    webhook: Webhook, made: Hindrance, backing: Collection[str], node: str, cluster: Cluster
) -> Hindrance | None:
    """Return what becomes of a webhook whose ready pods all run on the node that is drained."""
    namespace, _ = webhook.service
    here = (pod for pod in cluster.known(POD, namespace) if pod.name in backing)
    pods = [pod for pod in here if not pod.owned_by("DaemonSet")]  # a drain leaves that one
    own = service_pods.of_service(webhook.service, cluster)
    asks_itself = gets_own_pods(webhook.field, namespace, own, cluster)
    if asks_itself:
        left = f"{webhook.title} runs on {node} alone, and once it has left"
        reason = f"{left}, it refuses its own new pod"
        exclude = f"Exclude namespace {namespace} by its namespaceSelector"
        is_single = cluster.cached(nodes.single) == node
        second = "" if is_single else ", or run a second replica on another node"
        remedy = f"{exclude}{second}: {webhook.described}"
        return replace(made, reason=reason, remedy=remedy, stops=True, now=False)
    if not pods:
        return None
    labels = (f"{key}={value}" for pod in pods for key, value in sorted(pod.labels.items()))
    found = leaves_with(made, pods, node, next(labels, "LABEL"), cluster)
    if found.stops or asks_itself is not None:
        return found
    # to move it alone may be the deadlock
    second = f"Run a second replica on another node first: {webhook.described}"
    return replace(found, remedy=second)


def silence(webhook: Webhook, cluster: Cluster) -> str:
    """Return why a webhook certainly does not answer now; empty: it does, or that is not known."""
    if webhook.expired:
        return "its CA bundle has expired"
    try:
        known = service_endpoints.is_described(cluster)
        return service_endpoints.backing(cluster, *webhook.service).problem if known else ""
    except Unseen:
        return ""


def unanswered(webhook: Webhook, cluster: Cluster) -> Hindrance | None:
    """Return why a webhook certainly does not answer now, with what helps; None: as above."""
    found = _state(webhook, "", cluster, frozenset())
    return found if found is not None and found.stops else None


def refusing_own_pods(webhook: Webhook, cluster: Cluster) -> list[Webhook]:
    """Return the webhooks of the same Service that get what its new pods need; none:
    they let its pods start.

    Where the Service has no endpoint, each of them keeps the pods away that would answer: the
    webhook stays down.
    """
    own = service_pods.of_service(webhook.service, cluster)
    same = (each for each in cluster.cached(critical).webhooks if each.service == webhook.service)
    return [each for each in same if gets_own_pods(each.field, each.service[0], own, cluster)]


def configurations(webhooks: Iterable[Webhook]) -> list[str]:
    """Return the configurations of webhooks, each once:
    ``ValidatingWebhookConfiguration policy``.
    """
    return list(
        dict.fromkeys(f"{each.configuration.kind} {each.configuration.name}" for each in webhooks)
    )


def gets_own_pods(
    webhook: Field, namespace: str, pods: Sequence[Object], cluster: Cluster
) -> bool | None:
    """Return whether a webhook gets a request without which a new pod of its own does not start.

    ``namespace``: that of its Service. ``pods``: those that the Service selects.
    """
    labels = cluster.cached(namespace_labels).get(namespace)
    own = pods[0].labels if pods else None
    answers = {
        webhook_requests.gets(
            webhook,
            each._replace(
                namespace=namespace,
                namespace_labels=labels,
                labels={} if each.resource == _BINDING else own,
            ),
        )
        for each in POD_START
    }
    return True if True in answers else None if None in answers else False


def _effects(made: Hindrance, node: str, cluster: Cluster, drains: bool) -> Sequence[WebhookEffect]:
    """Return what may fail for VMs that leave a node."""
    if not drains:
        return [each for each in _EFFECTS if not each.evictions]
    own = find(cluster, NODE, "", node)
    cordoned = own is not None and own.at("spec", "unschedulable").boolean is True
    return (CORDON, *_EFFECTS) if made.now and not cordoned else _EFFECTS


def _kept(
    made: Hindrance,
    webhook: Webhook,
    running: Sequence[Object],
    effects: Sequence[WebhookEffect],
    cluster: Cluster,
) -> Iterator[Hindrance]:
    """Yield which VMs a webhook keeps: those that cannot be evicted, that cannot migrate,
    and that do not start again.
    """
    left = list(running)
    for effect in effects:
        answers = {vmi.full_name: concerns(webhook.field, vmi, cluster, effect) for vmi in left}
        for answer in (True, None):
            names = frozenset(name for name, found in answers.items() if found is answer)
            if not names:
                continue
            reason = f"{made.reason}: {effect.words}" if made.stops else made.reason
            # the VMs of the only node are evicted together with the pods of the webhook
            raced = not made.now and effect is _EFFECTS[0] and cluster.cached(nodes.may_be_single)
            stops = made.stops and answer is True and not raced
            yield replace(
                made,
                reason=reason,
                evictions=effect.evictions,
                starts=effect.starts,
                vms=names,
                stops=stops,
            )
        if effect.evictions:
            left = [vmi for vmi in left if answers[vmi.full_name] is not True]


def concerns(webhook: Field, vmi: Object, cluster: Cluster, effect: WebhookEffect) -> bool | None:
    """Return whether a webhook gets a request without which a VMI is not evicted,
    does not migrate or start.
    """
    answers = {webhook_requests.gets(webhook, each) for each in _requests(vmi, cluster, effect)}
    return True if True in answers else None if None in answers else False


def _requests(vmi: Object, cluster: Cluster, effect: WebhookEffect) -> Iterable[InterceptedRequest]:
    namespace = vms.namespace_of(vmi)
    labels = cluster.cached(namespace_labels).get(namespace)
    pod = running_launchers.launchers(cluster).on_node(vmi)
    here = pod.name if pod is not None else f"virt-launcher-{vmi.name}"
    for each in effect.requests:
        if each.cluster_scoped:
            name = vmi.at("status", "nodeName").text
            node = find(cluster, NODE, "", name or "")
            yield each._replace(name=name, labels=node.labels if node is not None else None)
            continue
        request = each._replace(namespace=namespace, namespace_labels=labels)
        if request.resource.startswith("pods"):
            own = pod.labels if pod is not None else None
            without_labels = request.resource in (EVICTION.resource, _BINDING)
            name = here if effect.evictions else None
            yield request._replace(name=name, labels={} if without_labels else own)
        elif request.resource.startswith(_MIGRATION):
            yield request
        elif each is attach_requests.TICKET:
            yield from (each,) * attach_requests.needs(vmi, cluster)
        elif each is not STATE_CLAIM:
            yield request._replace(name=vmi.name, labels=vmi.labels)
        elif vms.keeps_state(vmi):
            yield request


def namespace_labels(cluster: Cluster) -> dict[str, dict[str, str]]:
    return {
        found.name: {"kubernetes.io/metadata.name": found.name, **found.labels}
        for found in cluster.known(NAMESPACE)
    }
