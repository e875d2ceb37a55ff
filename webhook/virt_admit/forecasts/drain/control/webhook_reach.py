"""Admission webhooks that fail closed and that a drain needs: whether their Services answer, also after the drain.

Evictions, target pods and migrations are API requests. Where a webhook that gets one of them cannot be reached, the API
server refuses the request with code 500, and ``kubectl drain`` repeats only code 429. Sources:
kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/validating/dispatcher.go#Dispatch;
kubernetes/kubectl:pkg/drain/drain.go#evictPods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import candidates, running_launchers
from virt_admit.model.commands import about, argument, kubectl, shell
from virt_admit.model.kubernetes import clock, kinds, service_endpoints, webhook_bundles, webhook_requests
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import NAMESPACE, POD, SERVICE, VALIDATING_CONFIGURATION
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.webhook_requests import InterceptedRequest
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.problems import Problem, ProblemCause, ProblemId
from virt_admit.model.scheduler import pods as scheduled_pods

READS: Final[Reads] = union(
    clock.READS,
    service_endpoints.READS,
    webhook_requests.READS,
    vmis.READS,
    {NAMESPACE: ("metadata.labels",), POD: ("metadata.labels", "spec.nodeName")},
)


@dataclass(frozen=True, slots=True)
class Hindrance:
    """One thing outside a node that keeps its VMs there."""

    component: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    evictions: bool = False
    """Whether it also keeps VMs that would be shut down."""
    reason: str = ""
    remedy: str = ""
    stops: bool = False
    """Whether it certainly does. False: that cannot be determined."""
    now: bool = True
    """Whether it is so at this moment. False: it will be so in the course of the drain."""
    vms: frozenset[str] | None = None
    """Full names of the VMs that it keeps. None: all of the node."""

    @property
    def problem(self) -> Problem:
        return Problem(self.reason, self.remedy, id=ProblemId(ProblemCause.COMPONENT, self.namespace, self.name))

    @classmethod
    def unread(cls, component: str, what: str) -> Hindrance:
        """Return that it cannot be determined whether a component keeps VMs."""
        return cls(component, evictions=True, reason=f"{component}: cannot see {what}", remedy="let virt-admit read it")


def leaves_with(made: Hindrance, pods: Sequence[Object], node: str, label: str, cluster: Cluster) -> Hindrance:
    """Return what becomes of a component whose ready pods all run on the node that is drained.

    Pods without a guest leave in seconds, VMs in minutes.
    """
    if _fits_elsewhere(pods[0], node, cluster) is False:
        reason = f"{made.component} can run on {node} alone, and leaves it before the VMs"
        return replace(made, reason=reason, remedy="Add a node that its placement allows.", stops=True, now=False)
    cordon = shell("kubectl", "cordon", argument(node))
    drain = shell("kubectl", "drain", argument(node), "--ignore-daemonsets", "--pod-selector", label)
    remedy = f"Move it first: `{cordon}`, then `{drain}`, then the rest."
    return replace(made, reason=f"{made.component} runs on {node} alone", remedy=remedy, now=False)


def _fits_elsewhere(pod: Object, node: str, cluster: Cluster) -> bool | None:
    """Return whether another node takes a fresh copy of a pod. None: cannot be determined."""
    own = scheduled_pods.read(pod)
    filters = candidates.scheduler(cluster)
    gone = tuple(other for other in filters.state.pods.get(node, ()) if other.full_name == own.full_name)
    placement = filters.place(replace(own, node=""), without=node, gone=gone)
    return placement.has_candidate if placement.is_certain else None


# --- webhooks ----------------------------------------------------------------------------------------------------

_MIGRATION: Final = "virtualmachineinstancemigrations"
_INSTANCE: Final = "virtualmachineinstances"
_KUBEVIRT: Final = "kubevirt.io"

EVICTION: Final = InterceptedRequest("CREATE", "", "pods/eviction")
MIGRATION: Final = (
    InterceptedRequest("CREATE", "", "pods"),
    InterceptedRequest("CREATE", _KUBEVIRT, _MIGRATION),
    *(
        InterceptedRequest("UPDATE", _KUBEVIRT, f"{name}{sub}")
        for name in (_MIGRATION, _INSTANCE)
        for sub in ("", "/status")
    ),
)
STATE_CLAIM: Final = InterceptedRequest("CREATE", "", "persistentvolumeclaims")
"""Only for VMs with a persistent vTPM or EFI: the migration creates a second claim for their state."""


class _Webhook(NamedTuple):
    """A webhook that fails closed and asks for a request of a drain."""

    configuration: Object
    field: Field
    service: tuple[str, str]
    expired: bool

    @property
    def title(self) -> str:
        return f"webhook {self.field['name'].text or self.configuration.name}"


class _Critical(NamedTuple):
    webhooks: tuple[_Webhook, ...]
    unseen: str


def hindrances(cluster: Cluster, node: str, *, without: frozenset[tuple[str, str]]) -> Iterator[Hindrance]:
    """Yield the webhooks that keep VMs of a node there.

    ``without``: Services that are judged elsewhere.
    """
    critical = cluster.cached(_critical)
    running = gather(vmis.on_node(cluster, node))[0] if critical.webhooks or critical.unseen else []
    if not running:
        return
    for webhook in critical.webhooks:
        found = _state(webhook, node, cluster, without)
        if found is not None:
            yield from _kept(found, webhook, running, cluster)
    if critical.unseen:
        yield Hindrance.unread("admission webhooks", critical.unseen)


def of_pods(pods: Sequence[Object], node: str, cluster: Cluster) -> Iterator[Hindrance]:
    """Yield the webhooks that refuse the evictions of ordinary pods of a node now. All evictions are requested at once."""
    critical = cluster.cached(_critical)
    labels = cluster.cached(_namespace_labels) if pods and critical.webhooks else {}
    for webhook in critical.webhooks if pods else ():
        answers = set()
        for pod in pods:
            space = pod.namespace or "default"
            asked = EVICTION._replace(namespace=space, namespace_labels=labels.get(space), name=pod.name, labels={})
            answers.add(webhook_requests.gets(webhook.field, asked))
        made = _state(webhook, node, cluster, frozenset()) if answers & {True, None} else None
        if made is not None and made.now:
            stops = made.stops and True in answers
            yield replace(made, reason=f"{made.reason}: evictions fail" if made.stops else made.reason, stops=stops)
    if pods and critical.unseen:
        yield Hindrance.unread("admission webhooks", critical.unseen)


def _critical(cluster: Cluster) -> _Critical:
    found: list[_Webhook] = []
    unseen = ""
    now = clock.now(cluster)
    for kind in webhook_requests.CONFIGURATIONS:
        configurations, blind = gather(cluster.list(kind))
        unseen = unseen or blind
        for configuration in configurations:
            ended = {
                bundle.field.text for bundle in webhook_bundles.bundles(configuration) if now and bundle.has_ended(now)
            }
            for webhook in configuration["webhooks"].items():
                service = webhook_requests.service(webhook)
                asked = any(webhook_requests.intercepts(webhook, each) for each in (EVICTION, *MIGRATION, STATE_CLAIM))
                if service is not None and asked:
                    expired = webhook.at("clientConfig", "caBundle").text in ended
                    found.append(_Webhook(configuration, webhook, service, expired))
    return _Critical(tuple(found), unseen)


def _state(webhook: _Webhook, node: str, cluster: Cluster, without: frozenset[tuple[str, str]]) -> Hindrance | None:
    """Return why a webhook does not answer, now or in the course of a drain; None: it answers, or is not judged."""
    namespace, name = webhook.service
    configuration = webhook.configuration
    made = Hindrance(webhook.title, configuration.kind, "", configuration.name)
    described = kubectl("describe", SERVICE, name, namespace)
    repair = f"Repair the pods of Service {namespace}/{name}, or the failurePolicy of the webhook: {described}"
    if webhook.expired:
        reason = f"{webhook.title} fails closed, and its CA bundle has expired"
        described = about("describe", configuration, kinds.of(configuration) or VALIDATING_CONFIGURATION)
        remedy = f"Repair the operator that renews it: {described}"
        return replace(made, reason=reason, remedy=remedy, stops=True)
    if webhook.service in without:
        return None
    try:
        if not service_endpoints.is_described(cluster):
            return None
        backing = service_endpoints.backing(cluster, namespace, name)
    except Unseen as blind:
        return Hindrance.unread(webhook.title, blind.what)
    if backing.problem:
        reason = f"{webhook.title} fails closed, and {backing.problem}"
        return replace(made, reason=reason, remedy=repair, stops=True)
    if backing.nodes != {node} or not backing.pods:
        return None
    pods = [pod for pod in cluster.known(POD, namespace) if pod.name in backing.pods]
    label = next((f"{key}={value}" for pod in pods for key, value in sorted(pod.labels.items())), "LABEL")
    return leaves_with(made, pods, node, label, cluster) if pods else None


def _kept(made: Hindrance, webhook: _Webhook, running: Sequence[Object], cluster: Cluster) -> Iterator[Hindrance]:
    """Yield which VMs a webhook keeps: those that cannot be evicted, and those that cannot migrate."""
    for evictions in (True, False):
        answers = {vmi.full_name: _concerns(webhook.field, vmi, cluster, evictions=evictions) for vmi in running}
        for answer in (True, None):
            names = frozenset(name for name, found in answers.items() if found is answer)
            if not names:
                continue
            what = "evictions" if evictions else "migrations"
            reason = f"{made.reason}: {what} fail" if made.stops else made.reason
            yield replace(made, reason=reason, evictions=evictions, vms=names, stops=made.stops and answer is True)


def _concerns(webhook: Field, vmi: Object, cluster: Cluster, *, evictions: bool) -> bool | None:
    """Return whether a webhook gets a request without which a VMI is not evicted, or does not migrate."""
    answers = {webhook_requests.gets(webhook, each) for each in _requests(vmi, cluster, evictions=evictions)}
    return True if True in answers else None if None in answers else False


def _requests(vmi: Object, cluster: Cluster, *, evictions: bool) -> Iterable[InterceptedRequest]:
    namespace = vms.namespace_of(vmi)
    labels = cluster.cached(_namespace_labels).get(namespace)
    pod = running_launchers.launchers(cluster).on_node(vmi)
    for each in (EVICTION,) if evictions else MIGRATION:
        request = each._replace(namespace=namespace, namespace_labels=labels)
        if evictions:  # of an object without labels
            yield request._replace(name=pod.name if pod is not None else f"virt-launcher-{vmi.name}", labels={})
        elif request.resource == "pods":
            yield request._replace(labels=pod.labels if pod is not None else None)
        elif request.resource.startswith(_MIGRATION):
            yield request
        else:
            yield request._replace(name=vmi.name, labels=vmi.labels)
    devices = vmi.at("spec", "domain", "devices")
    efi = vmi.at("spec", "domain", "firmware", "bootloader", "efi")
    if not evictions and (devices.at("tpm", "persistent").boolean or efi["persistent"].boolean):
        yield STATE_CLAIM._replace(namespace=namespace, namespace_labels=labels)


def _namespace_labels(cluster: Cluster) -> dict[str, dict[str, str]]:
    return {
        found.name: {"kubernetes.io/metadata.name": found.name, **found.labels} for found in cluster.known(NAMESPACE)
    }
