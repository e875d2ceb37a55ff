"""What lets the API server ask a Service: webhooks, conversions and aggregated APIs.

An answer names a webhook, but not its configuration, and several may have one of that name. Source:
kubernetes/kubernetes:staging/src/k8s.io/apiserver/pkg/util/webhook/error.go#ErrCallingWebhook.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import kinds, service_endpoints, webhook_requests
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached
from virt_admit.model.kubernetes.kinds import API_SERVICE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import names

READS: Final[Reads] = union(
    service_endpoints.READS,
    webhook_requests.READS,
    {API_SERVICE: ("metadata.annotations", "metadata.labels", "spec.service")},
)

_CRD: Final = kinds.guess("apiextensions.k8s.io/v1", "CustomResourceDefinition")._replace(
    namespaced=False
)
_FEW: Final = 3
ServiceName = tuple[str, str]
"""Namespace and name."""


class ServiceCaller(NamedTuple):
    """An object that lets the API server ask a Service."""

    obj: Object
    title: str
    deletable: bool
    """Whether nothing that answers is lost with it: all that it asks is missing, and it holds no
    data, as a CustomResourceDefinition does."""


@cached
def callers(cluster: Cluster) -> Mapping[ServiceName, Sequence[ServiceCaller]]:
    """Return what lets the API server ask Services, by Service: without what may fail."""
    pairs = [
        (service, obj)
        for kind in (*webhook_requests.CONFIGURATIONS[::-1], API_SERVICE, _CRD)
        for obj in cluster.known(kind)
        for service in dict.fromkeys(_services(obj))
    ]
    found = grouped(pairs, lambda pair: pair[0])
    return {
        service: [
            ServiceCaller(obj, f"{obj.kind} {obj.name}", _is_deletable(obj, cluster))
            for _, obj in same
        ]
        for service, same in found.items()
    }


def _services(obj: Object) -> Iterator[ServiceName]:
    asked = [webhook_requests.service(hook) for hook in obj["webhooks"].items()]
    paths = (("service",), ("conversion", "webhook", "clientConfig", "service"))
    for own in (obj.at("spec", *path) for path in paths):
        namespace, name = own["namespace"].text, own["name"].text
        asked += [(namespace, name)] if namespace and name else []
    yield from filter(None, asked)


def _is_deletable(obj: Object, cluster: Cluster) -> bool:
    if kinds.of(obj) is API_SERVICE:
        return True
    hooks = [hook.at("clientConfig", "service") for hook in obj["webhooks"].items()]
    asked = [(hook["namespace"].text or "", hook["name"].text or "") for hook in hooks]
    return bool(asked) and all(all(each) and is_missing(silence(each, cluster)) for each in asked)


def who(service: ServiceName, cluster: Cluster) -> tuple[str, str]:
    """Return what asks a Service, and the verb for it."""
    asking = callers(cluster).get(service, ())
    titles = [each.title for each in asking]
    title = " and ".join(titles) if len(titles) < _FEW else names(titles, 200)
    closed = " (failurePolicy Fail)" * any(each.obj["webhooks"].present for each in asking)
    return f"{title}{closed}", "call" if len(asking) > 1 else "calls"


def hooks(service: ServiceName, cluster: Cluster) -> set[str | None]:
    """Return the names of the webhooks for which a Service is asked."""
    return {
        hook["name"].text
        for each in callers(cluster)[service]
        for hook in each.obj["webhooks"].items()
        if webhook_requests.service(hook) == service
    }


def configurations(webhook: str, cluster: Cluster) -> Sequence[Object]:
    """Return the known configurations with a webhook of this name: cert-manager has a validating
    and a mutating one of one name, and an answer does not say which of them it is of.
    """
    return [
        each
        for kind in webhook_requests.CONFIGURATIONS
        for each in cluster.known(kind)
        if each["webhooks"].named(webhook).present
    ]


def titles(found: Sequence[Object]) -> str:
    """Return kinds and names of configurations of which one is meant."""
    return " or ".join(f"{each.kind} {each.name}" for each in found)


def silence(service: ServiceName, cluster: Cluster) -> str:
    """Return why nothing answers for a Service; empty: something does, or it is not known."""
    try:
        known = service_endpoints.is_described(cluster)
        return service_endpoints.backing(cluster, *service).problem if known else ""
    except Unseen:
        return ""


def is_missing(problem: str) -> bool:
    """Return whether a problem of a Service is that it does not exist."""
    return problem.endswith("does not exist")
