"""Jobs with which Forklift tries the VDDK image of a provider, and why they cannot pull it.

Forklift makes a Job ``vddk-validator-PLAN…`` in the target namespace of a Plan, and again when it
is deleted. Its condition about the image says neither the image nor why the kubelet cannot pull it.
Sources: kubev2v/forklift:pkg/controller/plan/validation.go#validateVddkImageJob
#createVddkCheckJob; kubernetes/kubernetes:pkg/kubelet/images/image_manager.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, kubectl, shell
from virt_admit.model.kubernetes import events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import JOB, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.messages import cut_middle

_OF_PLAN: Final = "plan"
"""Label of such a Job: the uid of the Plan."""
READS: Final[Reads] = {
    JOB: (f"metadata.labels.{_OF_PLAN}", "metadata.creationTimestamp"),
    POD: (
        "metadata.labels",
        "spec.serviceAccountName",
        "status.initContainerStatuses.image",
        "status.initContainerStatuses.state.waiting",
    ),
}
_JOB: Final = "vddk-validator-"
_LONGEST_PREFIX: Final = 58
"""Characters of ``generateName`` that the API server keeps (apiserver:pkg/storage/names)."""
_PULLS: Final = frozenset(
    ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "RegistryUnavailable")
)
_FAILED: Final = re.compile(r"(?:ErrImagePull|Failed to pull image \"[^\"]{1,512}\"): (.+)")
_CAUSES: Final = (
    (r"x509|certificate", "Let the nodes trust the CA of that registry"),
    (
        r"authentication|unauthorized|denied|forbidden|\b40[13]\b|no basic auth",
        "Give service account {account} of {namespace} a pull secret for that registry "
        "(imagePullSecrets) and delete Job {job}, which Forklift makes again",
    ),
    (r"manifest unknown|not found|\b404\b", "Push that image"),
    (
        r"no such host|refused|timeout|timed out|no route|unreachable",
        "Let the nodes reach that registry",
    ),
)
"""What makes an image pullable, by the words of the registry; the first that fits."""


class UnpulledImage(NamedTuple):
    """A VDDK image that cannot be pulled, and what ends that."""

    reasons: tuple[str, ...]
    """The reason, the longest form first."""
    remedy: str
    command: str


def unpulled(plan: Object, cluster: Cluster) -> UnpulledImage | None:
    """Return why the image of the source provider of a Plan cannot be pulled; None:
    nothing says so.
    """
    for pod in _pods(plan, cluster):
        for status in pod.at("status", "initContainerStatuses").items():
            waiting = status.at("state", "waiting")
            image = status["image"].text
            if image and waiting["reason"].text in _PULLS:
                why = _why(pod, waiting["message"].text or "", cluster)
                return _unpulled(plan, pod, image, why or waiting["reason"].text or "")
    return None


def job(plan: Object, cluster: Cluster) -> Object | None:
    """Return the newest Job that tries the image for a Plan; None: none is known."""
    target, uid = plan.at("spec", "targetNamespace").text, plan.metadata["uid"].text
    jobs = cluster.known(JOB, target) if target and uid else ()
    found = [each for each in jobs if each.label(_OF_PLAN).text == uid and _is_own(each.name, plan)]
    return max(found, key=lambda each: each.created or "", default=None)


def _pods(plan: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the pods that try the image for a Plan."""
    target = plan.at("spec", "targetNamespace").text
    for pod in cluster.known(POD):
        name = pod.labels.get("job-name", "") if pod.namespace == target else ""
        if isinstance(name, str) and _is_own(name, plan):
            yield pod


def _is_own(name: str, plan: Object) -> bool:
    """Whether a Job with this name tries the image for a Plan."""
    begin = f"{_JOB}{plan.name}"[:_LONGEST_PREFIX]
    return name.startswith(begin) and len(name) == len(begin) + 5


def _why(pod: Object, message: str, cluster: Cluster) -> str:
    """Return why the kubelet cannot pull an image: in its status, else in its last event."""
    told = (said for reason, said in events.warnings(pod, None, cluster) if reason == "Failed")
    found = (_FAILED.search(" ".join(text.split())) for text in (message, *told))
    return next((each[1] for each in found if each is not None), "")


def _unpulled(plan: Object, pod: Object, image: str, why: str) -> UnpulledImage:
    source = plan.at("spec", "provider", "source")
    provider = f"Provider {source['namespace'].text or plan.namespace}/{source['name'].text or '?'}"
    begin = f"VDDK image {image} ({provider}) cannot be pulled in namespace {pod.namespace}"
    by, last = f" by pod {pod.name}", cut_middle(why.rpartition(": ")[2], 60)
    reasons = (f"{begin}{by}: {cut_middle(why, 110)}", f"{begin}{by}: {last}", f"{begin}: {last}")
    account = pod.at("spec", "serviceAccountName").text or "default"
    job = pod.labels.get("job-name", "")
    known = next(
        (way for words, way in _CAUSES if re.search(words, why, re.IGNORECASE)),
        "Make it pullable there",
    )
    way = known.format(account=account, namespace=pod.namespace, job=job)
    edit = shell("kubectl", "edit", "serviceaccount", argument(account), "-n", pod.namespace)
    command = edit if "pull secret" in way else kubectl("describe", POD, pod.name, pod.namespace)
    return UnpulledImage(
        reasons, f"{way}, or correct settings.vddkInitImage of that Provider.", command
    )
