"""Webhooks that stay down because they refuse new pods that their own pods need.

Without cluster DNS most programs do not become ready. Where its pods are gone, as after a reboot of
all nodes, and the webhook refuses new ones, neither comes back. Sources: kubernetes/kubernetes:
staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/mutating/dispatcher.go#Dispatch;
linkerd/linkerd2 issues 5026 and 10817.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import service_pods
from virt_admit.model.commands import json_patch
from virt_admit.model.kubernetes import kinds, node_health, service_endpoints, webhook_requests
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import (
    DEPLOYMENT,
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    VALIDATING_CONFIGURATION,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubernetes.webhook_requests import InterceptedRequest
from virt_admit.model.lookups import find
from virt_admit.model.scheduler.pods import FINISHED

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
            f"Let {configuration.kind} {configuration.name} ignore failures until its pods are ready, "
            f"{exclusion(field, self.service[0])}, then set failurePolicy: Fail again: {ignoring([self.webhook])}"
        )


def refused_dns(cluster: Cluster) -> RefusedDns | None:
    """Return that a webhook that does not answer keeps cluster DNS down; None: nothing shows that."""
    return cluster.cached(_refused_dns)


def of_webhook(configuration: Object, webhook: Field, cluster: Cluster) -> RefusedDns | None:
    """Return that one webhook keeps cluster DNS down; None: it does not, or another one does."""
    found = refused_dns(cluster)
    if found is None:
        return None
    other, named = found.webhook
    same = other.kind == configuration.kind and other.name == configuration.name
    return found if same and named["name"].text == webhook["name"].text else None


def _refused_dns(cluster: Cluster) -> RefusedDns | None:
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


def _has_no_pod(service: tuple[str, str], cluster: Cluster) -> bool:
    if find(cluster, SERVICE, *service) is None or not _is_down(service, cluster):
        return False
    pods = service_pods.of_service(service, cluster)
    return all(pod.at("status", "phase").text in FINISHED for pod in pods)


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
        node = find(cluster, NODE, "", pod.at("spec", "nodeName").text or "")
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


def exclusion(webhook: Field, namespace: str) -> str:
    """Return how to exclude a namespace from a webhook: by a label that its selector looks at, if any."""
    for each in webhook.at("namespaceSelector", "matchExpressions").items():
        key = each["key"].text or ""
        value = next((found.text for found in each["values"].items() if found.text), "")
        if each["operator"].text == "NotIn" and value and not key.endswith("metadata.name"):
            return f"exclude namespace {namespace} with label {key}={value}"
    return f"exclude namespace {namespace} by its namespaceSelector"


def ignoring(webhooks: Sequence[OwnWebhook]) -> str:
    """Return the command that lets requests pass without an answer of webhooks.

    Those of the first configuration alone: a command patches one object.
    """
    first, _ = webhooks[0]
    own = (field for each, field in webhooks if (each.kind, each.name) == (first.kind, first.name))
    steps = [Patch("add", field.path / "failurePolicy", "Ignore") for field in own]
    return json_patch(kinds.of(first) or VALIDATING_CONFIGURATION, first.name, "", steps)
