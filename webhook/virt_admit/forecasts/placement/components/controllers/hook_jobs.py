"""Jobs that begin the upgrade of a chart of the platform and whose pods no node takes, because of
the anti-affinity of the pods that the chart runs already.

Helm runs the Jobs of its hooks before it changes anything else, and waits for them. kube-scheduler
also applies the required anti-affinity of pods that run to a new pod, which may have none itself.
Rancher's hook had the label by which its own pods keep apart (rancher/rancher#51111, fixed by
#51133). Sources: helm/helm:pkg/action/hooks.go#execHook;
kubernetes/kubernetes:pkg/scheduler/framework/plugins/interpodaffinity/filtering.go
#satisfyExistingPodsAntiAffinity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, argument, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, JOB, NODE, POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import WHOLE_CONDITIONS, Reads, union
from virt_admit.model.lookups import find, maker_of
from virt_admit.model.messages import names
from virt_admit.model.pod_owners import READS as OWNER_READS
from virt_admit.model.scheduler.pod_terms import PodTerm, pod_terms

_HOOK: Final = "helm.sh/hook"
_CHART: Final = "chart"
_RELEASES: Final = ("app.kubernetes.io/instance", "release")
READS: Final[Reads] = union(
    clock.READS,
    OWNER_READS,
    {
        JOB: (
            *(f"metadata.annotations.{_HOOK}", "metadata.labels", "metadata.ownerReferences"),
            *("status.active", "status.ready", "status.startTime"),
        ),
        POD: (
            *("metadata.labels", "spec.nodeName", "spec.affinity.podAntiAffinity"),
            *("status.phase", *WHOLE_CONDITIONS),
        ),
        NODE: ("metadata.labels", "spec.unschedulable"),
        DEPLOYMENT: ("spec.replicas",),
    },
)
_PLATFORM: Final = re.compile(
    r"(?:cattle|fleet|harvester|longhorn|kubevirt|cdi|rook|openshift|okd|kube|capi|capk|cert-manager|"
    r"calico|tigera|cilium|metallb|linstor|piraeus|portworx|trident|nfd|node-feature)(?:-[a-z0-9-]*)?"
)
"""Namespaces of what runs VMs, nodes, disks and networks."""
_BEGINS: Final = ("pre-install", "pre-upgrade")
_PATIENCE: Final = timedelta(minutes=10)
"""Helm itself gives up after five by default, and a node that comes back takes the pod by then."""
_REPELLED: Final = "existing pods anti-affinity"
"""What kube-scheduler says of nodes that it refuses by this filter."""
_WIDTH: Final = 90


class HeldHook(NamedTuple):
    """A hook that holds the upgrade of a chart."""

    owner: Object
    """Its Job, or what tells of it where the Job is gone."""
    reason: str
    brief: str
    """The same in as few words as a finding has, without its end."""
    remedy: str


class _Repelling(NamedTuple):
    """The pods that keep another one from every node."""

    maker: Field
    term: PodTerm
    nodes: Sequence[str]


@cached
def held(cluster: Cluster) -> Sequence[HeldHook]:
    """Return the hooks of platform charts whose pods no node takes, by the anti-affinity of the
    pods of one workload.
    """
    if any(unlisted(cluster, kind) for kind in (POD, NODE)):
        return ()
    found = (_of(job, cluster) for job in cluster.known(JOB) if _begins(job))
    return [each for each in found if each is not None]


def _begins(job: Object) -> bool:
    waits = job.at("status", "active").integer and not job.at("status", "ready").integer
    return bool(waits) and not hooks(job).isdisjoint(_BEGINS) and is_of_platform(job.namespace)


def hooks(job: Object) -> set[str]:
    """Return at which steps of a chart Helm runs a Job."""
    return {each.strip() for each in (job.annotation(_HOOK).text or "").split(",")}


def is_of_platform(namespace: str) -> bool:
    """Return whether what is in a namespace runs VMs, nodes, disks or networks."""
    return _PLATFORM.fullmatch(namespace) is not None


def _of(job: Object, cluster: Cluster) -> HeldHook | None:
    for pod in cluster.known(POD, job.namespace):
        if pod.owned_by(JOB.kind) == job.name and _is_refused(pod, cluster):
            repelling = _repelling(pod, cluster)
            return None if repelling is None else _held(job, pod, repelling, cluster)
    return None


def _is_refused(pod: Object, cluster: Cluster) -> bool:
    said = pod.condition("PodScheduled")
    return (
        said["reason"].text == "Unschedulable"
        and _REPELLED in (said["message"].text or "")
        and clock.has_lasted(said["lastTransitionTime"].text, _PATIENCE, cluster)
    )


def _repelling(pod: Object, cluster: Cluster) -> _Repelling | None:
    """Return which workload keeps a pod from every node that is open; None: several do, or other
    nodes are left.
    """
    every = [each for each in cluster.known(NODE) if not each.at("spec", "unschedulable").boolean]
    closed: dict[str, tuple[PodTerm, Field]] = {}
    for other in cluster.known(POD, pod.namespace):
        for term in _terms(other, pod):
            maker = maker_of(other, cluster)
            here = _domain(other, term, cluster)
            if maker is not None and here:
                closed |= {
                    node.name: (term, maker)
                    for node in every
                    if node.labels.get(term.topology_key) == here
                }
    makers = {(each["kind"].text, each["name"].text) for _, each in closed.values()}
    if not every or len(closed) < len(every) or len(makers) != 1:
        return None
    term, maker = next(iter(closed.values()))
    return _Repelling(maker, term, sorted(closed))


def _terms(other: Object, pod: Object) -> Iterator[PodTerm]:
    """Yield the terms by which a running pod keeps another one away."""
    if other.name == pod.name or other.at("status", "phase").text in ("Succeeded", "Failed"):
        return
    affinity = other.at("spec", "affinity")
    for term in pod_terms(affinity, other.namespace, other.name, other.labels).anti_affinity:
        if term.matches(pod.namespace, _NO_LABELS, pod.labels):
            yield term


_NO_LABELS: Final[Mapping[str, str]] = {}


def _domain(pod: Object, term: PodTerm, cluster: Cluster) -> str:
    node = find(cluster, NODE, "", pod.at("spec", "nodeName").text)
    return node.labels.get(term.topology_key, "") if node is not None else ""


def _held(job: Object, pod: Object, by: _Repelling, cluster: Cluster) -> HeldHook:
    waited = clock.lasting(pod.condition("PodScheduled")["lastTransitionTime"].text, cluster)
    hook = job.annotation(_HOOK).text or ""
    chart = job.labels.get(_CHART, "")
    asked = by.term.selector.requirements if by.term.selector is not None else ()
    labels = names(sorted(f"{each.key}={pod.labels.get(each.key, '')}" for each in asked), _WIDTH)
    owner = f"{by.maker['kind'].text} {job.namespace}/{by.maker['name'].text}"
    begin = (
        f"The upgrade{f' to chart {chart}' if chart else ''} does not begin: its hook Job "
        f"{job.full_name} ({hook}) has waited{waited} for a node"
    )
    reason = (
        f"{begin}. Pod {pod.name} has the label "
        f"{labels}, from which the pods of {owner} keep away by a required anti-affinity "
        f"({by.term.topology_key}), and they are on each node ({names(by.nodes, _WIDTH)})"
    )
    return HeldHook(job, reason, begin, _remedy(job, by, cluster))


def _remedy(job: Object, by: _Repelling, cluster: Cluster) -> str:
    """Return what frees a node for the hook, and what is to be done then."""
    release = next(filter(None, (job.labels.get(each) for each in _RELEASES)), "")
    history = shell("helm", "history", argument(release), "-n", job.namespace) if release else ""
    again = "Helm gives up meanwhile, so repeat the upgrade then"
    again += f" if it says failed ({history})" if history else ""
    soft = (
        "or first make that anti-affinity preferred in what runs now, as the hook comes before the "
        "changes of its own upgrade"
    )
    name = by.maker["name"].text
    own = find(cluster, DEPLOYMENT, job.namespace, name)
    replicas = own.at("spec", "replicas").integer if own is not None else None
    if own is None or by.maker["kind"].text != DEPLOYMENT.kind or not replicas or replicas < _TWO:
        return typed(
            f"Give the hook a node without those pods; {soft}", about("describe", job, JOB), again
        )
    scale = about("scale", own, DEPLOYMENT, f"--replicas={replicas - 1}")
    words = f"Scale Deployment {own.full_name} to {replicas - 1} until the upgrade is done"
    return typed(words, scale, f"{soft}. {again}")


_TWO: Final = 2
