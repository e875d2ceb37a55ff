"""What to do about what asks a Service that does not exist.

What calls a Service whose product is gone, or has moved, stays and refuses every write. Source:
rancher/rancher issue 54970.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.evidence import writers
from virt_admit.model.evidence.writes import service_callers
from virt_admit.model.evidence.writes.service_callers import ServiceName, hooks, silence
from virt_admit.model.kubernetes import kinds, webhook_bundles
from virt_admit.model.kubernetes.cluster import Cluster, Snapshot, cached, unlisted
from virt_admit.model.kubernetes.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    NAMESPACE,
    POD,
    SERVICE,
    STATEFUL_SET,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import NAME, Reads, union
from virt_admit.model.lookups import find, find_named, is_absent

READS: Final[Reads] = union(
    service_callers.READS,
    {
        NAMESPACE: NAME,
        DEPLOYMENT: NAME,
        STATEFUL_SET: NAME,
        DAEMON_SET: NAME,
        POD: ("metadata.labels", "status.phase"),
    },
)

_CSV: Final = kinds.guess("operators.coreos.com/v1alpha1", "ClusterServiceVersion")
_WORKLOADS: Final = (DEPLOYMENT, STATEFUL_SET, DAEMON_SET, POD)
_BUILT_IN: Final = ("", "apps", "autoscaling", "batch", "policy")
_OF_API_SERVER: Final = ".k8s.io"
"""Groups of which only pods, and what has a template of them, make pods."""
_MANAGED: Final = "app.kubernetes.io/managed-by"


def of_silent(service: ServiceName, problem: str, cluster: Cluster) -> str:
    """Return what lets a Service answer that does not for this reason."""
    if service_callers.is_missing(problem):
        return remedy(service, cluster)
    namespace, name = service
    described = kubectl("describe", SERVICE, name, namespace)
    return typed(f"repair the pods of Service {namespace}/{name}", described)


def remedy(service: ServiceName, cluster: Cluster) -> str:
    """Return what to do about what asks a Service that does not exist: make the Service again, or,
    as a decision, delete what is left of a product that is gone.
    """
    asking, place = service_callers.callers(cluster).get(service, ()), "/".join(service)
    again = f"make Service {place} again by installing its product again"
    if not asking:
        return again
    if installer := next(filter(None, (_installer(each.obj, cluster) for each in asking)), ""):
        return f"let {installer} make Service {place} again"
    left = [each for each in asking if each.deletable]
    runs = _runs(service[0], cluster)
    if runs or len(left) < len(asking):
        also = f": {runs} is still in its namespace" if runs else ""
        return f"{again}{also}"
    moved = _successor(service, cluster)
    if runs is None:
        unread = any(unlisted(cluster, kind) for kind in _WORKLOADS)
        idle = "" if unread else f"no pod runs in namespace {service[0]}{moved}: "
        return f"{idle}{again}, or delete what calls it if that product was removed"
    one = len(left) == 1
    delete = shell(
        "kubectl",
        "delete",
        *(f"{each.obj.kind.lower()}/{argument(each.obj.name)}" for each in left),
    )
    left_over = f"this {left[0].obj.kind} is" if one else "these are"
    gone = is_absent(cluster, NAMESPACE, "", service[0])
    empty = (
        f"namespace {service[0]} does not exist"
        if gone
        else f"nothing in namespace {service[0]} can run pods"
    )
    why = f"{empty}{moved}: {left_over} left over"
    release = next(filter(None, (_release(each.obj) for each in left)), None)
    if release is not None:
        asked = shell("helm", "status", argument(release[1]), "-n", release[0])
        words = f"{why}, unless Helm still has the release, which then makes the Service again"
        return typed(words, asked, f"without a release: {delete}")
    decide = f"{why}. Decide to delete {'it' if one else 'them'}"
    return typed(decide if moved else f"{decide}; or {again}", delete)


def _installer(obj: Object, cluster: Cluster) -> str:
    """Return what makes an object and its Service; empty: nothing shows that it is installed."""
    owner = next(iter(obj.metadata["ownerReferences"].items()), None)
    if owner is not None:
        return f"its owner {owner['kind'].text} {owner['name'].text}"
    if any(
        (hook["name"].text or "").endswith(webhook_bundles.PRODUCTS)
        for hook in obj["webhooks"].items()
    ):
        return "its operator"
    if csv := obj.labels.get("olm.owner"):
        space = obj.labels.get("olm.owner.namespace") or ""
        gone = find(cluster, _CSV, space, csv) is None and not unlisted(cluster, _CSV)
        return "" if gone else f"ClusterServiceVersion {csv}"
    managed = find_named(cluster, DEPLOYMENT, obj.labels.get(_MANAGED))
    if managed is not None:
        return f"Deployment {managed.full_name}"
    writer = writers.of(obj)
    return writer.source if writer is not None and writer.tool != "Helm" else ""


def _release(obj: Object) -> ServiceName | None:
    """Return namespace and name of the release of Helm that an object is of; None: of none."""
    name = obj.annotations.get("meta.helm.sh/release-name")
    space = obj.annotations.get("meta.helm.sh/release-namespace")
    return (space, name) if name and space else None


def _runs(namespace: str, cluster: Cluster) -> str | None:
    """Return what is in a namespace and may be the product of a Service; empty: nothing can be;
    None: it is not known.

    A product may run, or be scaled to zero, by an object of any kind, as a Rollout of Argo.
    """
    for kind in _WORKLOADS:
        for obj in cluster.known(kind, namespace):
            if not obj.ended:
                return f"{obj.kind} {obj.name}"
    if is_absent(cluster, NAMESPACE, "", namespace):
        return ""
    every = _makers(cluster)
    return every.get(namespace, "") if every is not None else None


@cached
def _makers(cluster: Cluster) -> Mapping[str, str] | None:
    """Return an object that may make pods of each namespace that has one; None: not every kind is
    known.
    """
    if not isinstance(cluster, Snapshot) or "*" not in cluster.complete or cluster.unreadable:
        return None
    return {obj.namespace: f"{obj.kind} {obj.name}" for obj in cluster if _may_make_pods(obj)}


def _may_make_pods(obj: Object) -> bool:
    """Return whether an object may make pods: of a custom resource, its operator decides."""
    spec = obj["spec"]
    if obj.group in _BUILT_IN or obj.group.endswith(_OF_API_SERVER):
        return spec["template"].present or spec["jobTemplate"].present
    return spec.present


def _successor(service: ServiceName, cluster: Cluster) -> str:
    """Return which other Service has taken over, as a clause: one of the same name that answers
    webhooks of the same names; empty: none is known.
    """
    asked = hooks(service, cluster)
    for other in service_callers.callers(cluster):
        same = other[1] == service[1] and other != service and hooks(other, cluster) & asked
        if same and find(cluster, SERVICE, *other) is not None and not silence(other, cluster):
            return f", and Service {'/'.join(other)} answers for the same webhooks"
    return ""
