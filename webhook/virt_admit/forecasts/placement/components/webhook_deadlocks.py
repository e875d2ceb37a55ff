"""Webhooks without endpoints that refuse new pods, also their own or what those need:
they stay down.

Without cluster DNS most programs do not become ready. Where its pods are gone, as after a reboot of
all nodes, and the webhook refuses new ones, neither comes back. Sources: kubernetes/kubernetes:
staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go#Dispatch;
linkerd/linkerd2 issues 5026 and 10817.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import broken_pods, service_pods
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.model.commands import json_patch, kubectl, typed
from virt_admit.model.kubernetes import kinds, node_health, service_endpoints, webhook_requests
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, unlisted
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import (
    DEPLOYMENT,
    MUTATING_CONFIGURATION,
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    VALIDATING_CONFIGURATION,
    Kind,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubernetes.webhook_requests import InterceptedRequest
from virt_admit.model.lookups import find

READS: Final[Reads] = union(
    node_health.READS,
    service_endpoints.READS,
    service_pods.READS,
    webhook_requests.READS,
    {
        NAMESPACE: ("metadata.labels",),
        POD: ("status.phase",),
        DEPLOYMENT: ("status.conditions.message", *CONDITIONS),
    },
)

_DNS: Final = (
    ("kube-system", "kube-dns"),
    ("kube-system", "rke2-coredns-rke2-coredns"),
    ("openshift-dns", "dns-default"),
)
"""The Service of cluster DNS: of kubeadm and most others, of RKE2, of OpenShift."""
_PATIENCE: Final = timedelta(minutes=5)
"""A pod that takes longer than this to become ready may never do so."""
_NEW_POD: Final = InterceptedRequest("CREATE", "", "pods")
OwnWebhook = tuple[Object, Field]
"""A configuration and one of its webhooks."""


class RefusedDns(NamedTuple):
    """Cluster DNS without a pod, whose new pods a webhook refuses."""

    service: tuple[str, str]
    webhook: OwnWebhook

    @property
    def words(self) -> str:
        """``cluster DNS has no pod, as MutatingWebhookConfiguration mesh refuses it``."""
        configuration = self.webhook[0]
        return f"cluster DNS has no pod, as {configuration.kind} {configuration.name} refuses it"

    @property
    def lacks(self) -> str:
        """``cluster DNS (Service kube-system/kube-dns) has no pod``."""
        return f"cluster DNS (Service {'/'.join(self.service)}) has no pod"

    @property
    def remedy(self) -> str:
        """What ends it, as a sentence with its command."""
        configuration, field = self.webhook
        return (
            f"Let {configuration.kind} {configuration.name} ignore failures until its pods are "
            f"ready, {exclusion(field, self.service[0])}, then set failurePolicy: Fail again: "
            f"{ignoring([self.webhook])}"
        )


@cached
def refused_dns(cluster: Cluster) -> RefusedDns | None:
    """Return that a webhook that does not answer keeps cluster DNS down; None:
    nothing shows that.
    """
    if unlisted(cluster, POD):
        return None
    service = next((each for each in _DNS if _has_no_pod(each, cluster)), None)
    if service is None:
        return None
    space = find(cluster, NAMESPACE, "", service[0])
    asked = _NEW_POD._replace(namespace=service[0])
    if space is not None:
        labels = {"kubernetes.io/metadata.name": space.name, **space.labels}
        asked = asked._replace(namespace_labels=labels)
    for kind in webhook_requests.CONFIGURATIONS:
        for configuration in cluster.known(kind):
            for webhook in configuration["webhooks"].items():
                own = webhook_requests.service(webhook)
                if own is None or own == service or not webhook_requests.gets(webhook, asked):
                    continue
                if _is_down(own, cluster) and not _has_just_begun(own, cluster):
                    return RefusedDns(service, (configuration, webhook))
    return None


def of_webhook(configuration: Object, webhook: Field, cluster: Cluster) -> RefusedDns | None:
    """Return that one webhook keeps cluster DNS down; None: it does not, or another one does."""
    found = refused_dns(cluster)
    if found is None:
        return None
    other, named = found.webhook
    same = other.kind == configuration.kind and other.name == configuration.name
    return found if same and named["name"].text == webhook["name"].text else None


def _has_no_pod(service: tuple[str, str], cluster: Cluster) -> bool:
    if find(cluster, SERVICE, *service) is None or not _is_down(service, cluster):
        return False
    pods = service_pods.of_service(service, cluster)
    return all(pod.ended for pod in pods)


def _is_down(service: tuple[str, str], cluster: Cluster) -> bool:
    """Return whether a Service certainly has no ready endpoint."""
    try:
        known = service_endpoints.is_described(cluster)
        return known and bool(service_endpoints.backing(cluster, *service).problem)
    except Unseen:
        return False


def _has_just_begun(service: tuple[str, str], cluster: Cluster) -> bool:
    """Return whether a pod behind a Service may only have to become ready, as after a reboot."""
    if find(cluster, SERVICE, *service) is None:
        return False
    for pod in service_pods.of_service(service, cluster):
        node = find(cluster, NODE, "", pod.at("spec", "nodeName").text)
        age = node_health.pod_unready_for(pod, node, cluster)
        if age is not None and age < _PATIENCE:
            return True
    return False


def refused_workloads(webhook: Field, cluster: Cluster) -> Iterator[str]:
    """Yield the Deployments that say that a webhook refuses their new pods, by their conditions."""
    named = f'failed calling webhook "{webhook["name"].text}"'
    for each in cluster.known(DEPLOYMENT):
        failure = each.condition("ReplicaFailure")
        if failure["status"].text == "True" and named in (failure["message"].text or ""):
            yield each.full_name


# --- the new pods of one VM ----------------------------------------------------------------------


class RefusedPods(NamedTuple):
    """The webhooks without endpoints that refuse each new pod of a VM."""

    webhooks: tuple[OwnWebhook, ...]
    lacks: str
    refusing: tuple[OwnWebhook, ...]
    """Those of them that refuse the pods of their own Service as well."""
    service: tuple[str, str]
    broken: BrokenPod | None
    """The pod of that Service which is not ready; None: none says so."""

    @property
    def reason(self) -> str:
        """Who refuses a pod, and why. The remedy of a deadlock names the configurations."""
        one = len(self.webhooks) == 1
        who = " and ".join(field["name"].text or "" for _, field in self.webhooks)
        of = "" if self.refusing else f" (of {' and '.join(configurations(self.webhooks))})"
        refuse = f"webhook{'' if one else 's'} {who}{of} refuse{'s' if one else ''} it"
        pod = f" ({self.broken.words})" if self.broken is not None else ""
        return f"{self.lacks}{pod}, so {refuse} (failurePolicy Fail)"

    @property
    def remedy(self) -> str:
        """What ends it, with its command."""
        if self.refusing:
            alone = len(configurations(self.webhooks)) == 1
            return way_out(self.service[0], self.refusing, same=alone)
        if self.broken is not None:
            return self.broken.remedy
        namespace, name = self.service
        described = kubectl("describe", SERVICE, name, namespace)
        return typed(f"repair the pods of Service {namespace}/{name}", described)


def of_pod(pod: InterceptedRequest, cluster: Cluster) -> RefusedPods | None:
    """Return the webhooks that certainly refuse a new pod, as they do not answer; None: none does.

    ``pod``: the request that creates it.
    """
    asked = (each for each in _closed(cluster) if _gets(each, pod))
    found = tuple(each for each in asked if _stays_down(each, cluster))
    if not found:
        return None
    service = _service(found[0])
    same = tuple(each for each in found if _service(each) == service)
    pods = service_pods.of_service(service, cluster)
    labels = pods[0].labels if pods else None
    own = _new_pod(service[0], labels, cluster)
    refusing = tuple(each for each in same if _gets(each, own))
    lacks = service_endpoints.backing(cluster, *service).problem
    return RefusedPods(same, lacks, refusing, service, broken_pods.first(pods, cluster))


def of_namespace(
    namespace: str, labels: Mapping[str, str] | None, cluster: Cluster
) -> RefusedPods | None:
    """Return the same for a new pod with these labels; no labels: they are not known."""
    return of_pod(_new_pod(namespace, labels, cluster), cluster)


def _closed(cluster: Cluster) -> Iterator[OwnWebhook]:
    """Yield the webhooks that fail closed, in the order in which the API server asks them."""
    for kind in (MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION):
        for configuration in cluster.known(kind):
            for webhook in configuration["webhooks"].items():
                if webhook_requests.service(webhook) is not None:
                    yield configuration, webhook


def _stays_down(webhook: OwnWebhook, cluster: Cluster) -> bool:
    service = _service(webhook)
    return _is_down(service, cluster) and not _has_just_begun(service, cluster)


def _service(webhook: OwnWebhook) -> tuple[str, str]:
    return webhook_requests.service(webhook[1]) or ("", "")


def _gets(webhook: OwnWebhook, asked: InterceptedRequest) -> bool:
    return webhook_requests.gets(webhook[1], asked) is True


def _new_pod(
    namespace: str, labels: Mapping[str, str] | None, cluster: Cluster
) -> InterceptedRequest:
    space = find(cluster, NAMESPACE, "", namespace)
    own = {"kubernetes.io/metadata.name": namespace, **space.labels} if space is not None else None
    return _NEW_POD._replace(namespace=namespace, namespace_labels=own, labels=labels)


def configurations(webhooks: Iterable[OwnWebhook]) -> list[str]:
    """Return the configurations of webhooks: ``ValidatingWebhookConfiguration policy``."""
    return list(dict.fromkeys(f"{each.kind} {each.name}" for each, _ in webhooks))


def way_out(namespace: str, refusing: Sequence[OwnWebhook], *, same: bool) -> str:
    """Return how a webhook without endpoints comes back whose own new pods these webhooks refuse.

    Args:
        namespace: that of its Service.
        refusing: the webhooks.
        same: whether the reason names their one configuration alone.
    """
    asked = sorted(refusing, key=lambda each: each[0].kind)  # mutating ones are asked first
    which = configurations(asked)
    words = (
        f"Exclude namespace {namespace} by its namespaceSelector, because the new pods of its "
        f"Service are refused, too. Until they are ready, let {which[0]} ignore failures"
    )
    if not same:
        words = (
            f"Let {' and '.join(which)} ignore failures until their pods are ready, "
            f"and exclude namespace {namespace}, whose new pods they refuse, too"
        )
    return f"{words}: {ignoring(asked)}"


def exclusion(webhook: Field, namespace: str) -> str:
    """Return how to exclude a namespace from a webhook: by a label that its selector looks at,
    if any.
    """
    for each in webhook.at("namespaceSelector", "matchExpressions").items():
        key = each["key"].text or ""
        value = next((found.text for found in each["values"].items() if found.text), "")
        if each["operator"].text == "NotIn" and value and not key.endswith("metadata.name"):
            return f"exclude namespace {namespace} with label {key}={value}"
    return f"exclude namespace {namespace} by its namespaceSelector"


def ignoring(webhooks: Sequence[OwnWebhook]) -> str:
    """Return the command that lets requests pass: a patch of each configuration."""
    steps: dict[tuple[Kind, str], list[Patch]] = {}
    for configuration, field in webhooks:
        key = (kinds.of(configuration) or VALIDATING_CONFIGURATION, configuration.name)
        # the order may have changed since it was read: the patch then fails
        steps.setdefault(key, []).extend(
            (
                Patch("test", field.path / "name", field["name"].text),
                Patch("add", field.path / "failurePolicy", "Ignore"),
            )
        )
    return " && ".join(json_patch(kind, name, "", own) for (kind, name), own in steps.items())
