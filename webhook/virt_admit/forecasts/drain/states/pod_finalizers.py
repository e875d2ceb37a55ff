"""Which controller removes a finalizer of a pod, and whether it works.

Sources: argoproj/argo-workflows:workflow/common/common.go#FinalizerPodStatus;
kubernetes-sigs/kueue:pkg/controller/jobs/pod/ pod_webhook.go#PodFinalizer;
kubernetes/kubernetes:pkg/apis/batch/types.go#JobTrackingFinalizer, pull request 108752: a
kube-controller-manager without it forgets a pod whose Job is deleted before the pod is counted
(issue 108645). workflow-controller forgets a pod whose Workflow is deleted while it does not run
(argoproj/argo-workflows#12952, pull request 14088).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.commands import json_patch, kubectl, logs_of, typed
from virt_admit.model.evidence.writes.stored_versions import CRD
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry, unlisted
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import API_SERVICE, JOB, NAMESPACE, POD, WORKFLOW, Kind
from virt_admit.model.kubernetes.objects import Object, Path
from virt_admit.model.kubernetes.reads import CONDITIONS, NAME, Reads, union
from virt_admit.model.messages import cut_middle, names

READS: Final[Reads] = union(
    pod_starts.READS,
    dict.fromkeys((JOB, WORKFLOW), ("metadata.uid",)),
    dict.fromkeys((API_SERVICE, NAMESPACE), NAME),
    {POD: ("metadata.ownerReferences", "status.phase", *CONDITIONS)},
)

_STATUS: Final = "workflows.argoproj.io/status"
_DEPLOYMENTS: Final = {
    _STATUS: "workflow-controller",
    "kueue.x-k8s.io/managed": "kueue-controller-manager",
}
"""The Deployment of the controller, by the finalizer."""
_JOB_TRACKING: Final = "batch.kubernetes.io/job-tracking"
_OWNERS: Final = {
    _JOB_TRACKING: (JOB, "kube-controller-manager counts"),
    _STATUS: (WORKFLOW, "workflow-controller records"),
}
"""The kind for which a finalizer keeps a pod until its controller has taken note of how it ended,
and what that controller does.
"""
_BUILT_IN: Final = frozenset((_JOB_TRACKING, "foregroundDeletion", "orphan"))
_LONGEST: Final = 120


class KeptFinalizer(NamedTuple):
    """Why a finalizer is still there."""

    why: str
    """Empty: nothing says so."""
    remedy: str
    title: str = ""
    """The finalizers of the pod, as ``finalizer a is``."""


def held(pod: Object, cluster: Cluster) -> KeptFinalizer | None:
    """Return why the controller of the first finalizer does not remove it, as far as that is known;
    None: a pod has none.
    """
    every = [item.text for item in pod.metadata["finalizers"].items() if item.text]
    if not every:
        return None
    title = f"finalizers {names(every)} are" if len(every) > 1 else f"finalizer {every[0]} is"
    return _held(pod, every[0], cluster)._replace(title=title)


def _held(pod: Object, finalizer: str, cluster: Cluster) -> KeptFinalizer:
    kind, notes = _OWNERS.get(finalizer, (None, ""))
    if kind is not None and (gone := _lost_owner(pod, kind, cluster)):
        words = f"{gone}, so {notes} it for none and does not remove the finalizer"
        return KeptFinalizer(
            words, _removed("Nothing else needs this finalizer, so remove it alone", pod, finalizer)
        )
    if finalizer in _BUILT_IN:
        return KeptFinalizer("", "Repair kube-controller-manager, which removes the finalizer.")
    name = _DEPLOYMENTS.get(finalizer)
    pods = cluster.cached(_controllers).get(name, ()) if name is not None else ()
    if not pods and (project := _not_installed(pod, finalizer, cluster)):
        asked = project not in _PROJECTS.values() and not unlisted(cluster, API_SERVICE)
        nothing = "no pod, no namespace and no API" if asked else "no pod and no namespace"
        return KeptFinalizer(
            f"its controller does not seem to run: {nothing} here is called like {project}",
            _by_hand(pod, finalizer, project),
        )
    if name is None:
        return KeptFinalizer("", "Repair the controller of the finalizer.")
    return _of_pods(name, pods, cluster)


def _not_installed(pod: Object, finalizer: str, cluster: Cluster) -> str:
    """Return the project of a finalizer, as its domain says, if nothing here bears it; empty:
    something does. Of a domain that is not known, any part may be the name of the project.
    """
    domain = finalizer.partition("/")[0]
    words = _words(domain)
    found = entry(cluster, _bearers, domain) if words else None
    if found is None or unlisted(cluster, POD) or unlisted(cluster, NAMESPACE):
        return ""
    alike = (pod.namespace, _stem(pod)) in found.workloads
    others = len(found.workloads) > alike or found.namespaces - {pod.namespace}
    return "" if others or found.is_served else words[0] if len(words) == 1 else domain


def _words(domain: str) -> Sequence[str]:
    """Return what may be the name of the project of a domain."""
    host = domain.removesuffix(".k8s.io").removesuffix(".x").replace(".x-k8s.io", "")
    labels = [each for each in host.split(".") if each not in _NO_PROJECT]
    known = next((_PROJECTS[each] for each in labels if each in _PROJECTS), "")
    return [known] if known else labels


def _bears(name: str, words: Sequence[str]) -> bool:
    """Return whether a name contains a word; a short one may stand in another word by chance."""
    return any(word in name if len(word) > _SHORT else word in _PARTS.split(name) for word in words)


_SHORT: Final = 3
_PARTS: Final = re.compile(r"[-./]")


class _Bearers(NamedTuple):
    """What bears the name of a project, or of its namespace.

    A pod and those made with it are no controller of its finalizer, and neither is a namespace that
    has no other pods.
    """

    workloads: Set[tuple[str, str]]
    """What pods with a controller are named after, with their namespace."""
    namespaces: Set[str]
    is_served: bool
    """Whether an API or a definition bears it; those of the known projects often outlast them."""


def _bearers(cluster: Cluster) -> Mapping[str, _Bearers]:
    """Return what bears the name of a project, by the domain of each finalizer of a pod."""
    pods = list(cluster.known(POD))
    workloads = {(each.namespace, _stem(each)) for each in pods if each.controller is not None}
    namespaces = [each.name for each in cluster.known(NAMESPACE)]
    apis = [each.name for kind in (API_SERVICE, CRD) for each in cluster.known(kind)]
    every = (item.text or "" for each in pods for item in each.metadata["finalizers"].items())
    found = {}
    for domain in {each.partition("/")[0] for each in every}:
        words = _words(domain)
        found[domain] = _Bearers(
            {each for each in workloads if any(_bears(name, words) for name in each)},
            {each for each in namespaces if _bears(each, words)},
            not any(each in _PROJECTS.values() for each in words)
            and any(_bears(each, words) for each in apis),
        )
    return found


def _stem(pod: Object) -> str:
    return pod.name.rpartition("-")[0] or pod.name


_PROJECTS: Final = {"argoproj": "argo", "kueue": "kueue"}
"""The word in the names of a project's pods, by the label of the finalizer's domain."""
_NO_PROJECT: Final = frozenset(
    (
        "",
        "app",
        "apps",
        "cloud",
        "com",
        "corp",
        "dev",
        "finalizer",
        "finalizers",
        "internal",
        "io",
        "k8s",
        "kubernetes",
        "local",
        "net",
        "org",
        "x",
    )
)


def _lost_owner(pod: Object, kind: Kind, cluster: Cluster) -> str:
    """Return that the Job or Workflow of a pod that has ended does not exist any more; empty: it
    does, or that is not known.
    """
    phase, owner = pod.at("status", "phase").text or "", pod.controller
    if not pod.ended or (owner is not None and owner["kind"].text != kind.kind):
        return ""
    if owner is None:
        return f"it has ended ({phase}) and belongs to no {kind.kind} any more"
    name, uid = owner["name"].text or "", owner["uid"].text
    try:
        found = cluster.get(kind, pod.namespace, name)
    except Unseen:
        return ""
    same = found is not None and uid in (None, found.metadata["uid"].text)
    owned = f"its {kind.kind} {name}"
    return "" if same else f"it has ended ({phase}) and {owned} does not exist any more"


def _by_hand(pod: Object, finalizer: str, project: str) -> str:
    """Return how a finalizer goes whose controller is not installed any more."""
    begin = f"Start that controller. If {project} is not installed any more, nothing else removes "
    if project in _PROJECTS.values():
        return _removed(f"{begin}the finalizer, so do it", pod, finalizer)
    guarded = finalizer.rpartition("/")[2]
    words = (
        f"{begin}the finalizer: as a decision, see that what it guards ({guarded}) is released, "
        "then remove it, and take it out of what makes such pods"
    )
    return _removed(words, pod, finalizer)


def _removed(words: str, pod: Object, finalizer: str) -> str:
    """Return a remedy with the command that removes one finalizer of a pod,
    and fails if it is not there any more.
    """
    index = next(
        (i for i, each in enumerate(pod.metadata["finalizers"].items()) if each.text == finalizer),
        0,
    )
    path = Path("metadata", "finalizers", index)
    command = json_patch(
        POD, pod.name, pod.namespace, [Patch("test", path, finalizer), Patch("remove", path)]
    )
    return typed(words, command)


def _controllers(cluster: Cluster) -> dict[str, list[Object]]:
    """Return the pods of each controller that have not ended.

    A chart may write its name before that of the Deployment.
    """
    found: dict[str, list[Object]] = {}
    for pod in cluster.known(POD):
        for name in _DEPLOYMENTS.values():
            runs = pod.controller is not None and not pod.ended
            if f"-{name}-" in f"-{pod.name}" and runs:
                found.setdefault(name, []).append(pod)
    return found


def _of_pods(name: str, pods: Sequence[Object], cluster: Cluster) -> KeptFinalizer:
    then = "which then removes the finalizer by itself"
    if not pods:
        # it may have another name
        return KeptFinalizer("", f"See that its controller, {name}, runs, {then}.")
    # one replica leads
    first = min(pods, key=lambda pod: (not pod.is_true("Ready"), pod.full_name))
    title = f"Deployment {first.namespace}/{first.name.partition(name)[0]}{name}"
    see = kubectl("describe", POD, first.name, first.namespace)
    if first.is_true("Ready"):
        return KeptFinalizer("", typed(f"See why {title} does not remove it", logs_of(first)))
    said = cut_middle(pod_starts.words(first, cluster), _LONGEST) or "it is not ready"
    return KeptFinalizer(
        f"its controller, {title}, does not work ({said})", typed(f"Repair {title}, {then}", see)
    )
