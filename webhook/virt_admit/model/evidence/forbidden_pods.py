"""Pods that the API server forbids for Pod Security, as it answers the controller that makes them.

The answer does not name the namespace, whose label decides. One without that label has the level
of the configuration of the API server, which is baseline on Talos. Sources:
kubernetes/kubernetes:staging/src/k8s.io/pod-security-admission/admission/admission.go;
https://docs.siderolabs.com/kubernetes-guides/security/pod-security.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NAMESPACE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find

_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_ALL: Final = "privileged"
_LEVELS: Final = (_ALL, "baseline", "restricted")
LABEL: Final = f"{_ENFORCE}={_ALL}"
"""What a namespace needs in which every pod may run."""
READS: Final[Reads] = {NAMESPACE: ("metadata.labels",)}
_SAID: Final = re.compile(
    r'(?:pods? \\?"(?P<pod>[\w.-]{1,253})\\?" is )?forbidden: violates PodSecurity '
    r'\\?"(?P<level>[\w.:-]{1,63})\\?": (?P<why>.*)'
)
ADDED: Final = "capabilities.add"
"""In the words about a capability that a container asks for. No field of a VM does."""
_MAKERS: Final = frozenset(("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "Job"))
"""Kinds whose pods are in their own namespace."""


class ForbiddenPod(NamedTuple):
    """A pod that Pod Security forbids."""

    pod: str
    """Its name; empty: it has none yet."""
    level: str
    """``baseline:latest``"""
    why: str
    """What it asks for: ``hostPath volumes (volume "data")``."""


def of(said: str) -> ForbiddenPod | None:
    """Return which pod an answer of the API server forbids; None: none, or for another cause."""
    found = _SAID.search(said)
    return ForbiddenPod(found["pod"] or "", found["level"], found["why"]) if found else None


def of_maker(maker: Object, cluster: Cluster) -> ForbiddenPod | None:
    """Return which pod of a controller Pod Security has forbidden lately; None: none, or its
    namespace was labelled after that.
    """
    said = events.last_warning(maker, "FailedCreate", clock.ago(RETRIED, cluster), cluster)
    found = of(said) if said else None
    return None if found is None or is_allowed(maker.namespace, cluster) else found


RETRIED: Final = timedelta(hours=1)
"""A controller tries again after 16 minutes at the latest."""


def level(namespace: str, forbidden: ForbiddenPod, cluster: Cluster) -> str:
    """Return which object sets the level that forbids a pod, as the end of a sentence.

    The answer may be up to an hour old: the label may have changed since.
    """
    found = find(cluster, NAMESPACE, "", namespace)
    if found is None:
        return f'Pod Security "{forbidden.level}" of its namespace forbids'
    own, said = found.labels.get(_ENFORCE), forbidden.level.partition(":")[0]
    if own in _LEVELS and said in _LEVELS[_LEVELS.index(own) + 1 :]:
        return (
            f"Pod Security {said} forbade: label {_ENFORCE} of Namespace {namespace} is {own} by "
            "now"
        )
    if own:  # a stricter level forbids the same
        return f"Namespace {namespace} forbids with label {_ENFORCE}={own}"
    return (
        f"Pod Security forbids: Namespace {namespace} has no label {_ENFORCE} now, so the API "
        f"server's default is {said}, or the label was removed after that"
    )


def is_allowed(namespace: str, cluster: Cluster) -> bool:
    """Whether a namespace is known to allow every pod: it was labelled after the answer."""
    found = find(cluster, NAMESPACE, "", namespace)
    return found is not None and found.labels.get(_ENFORCE) == _ALL


def remedy(namespace: str, then: str = "", other: str = "") -> str:
    """Return how a namespace allows such pods.

    ``then``: what follows, as a clause. ``other``: another way.
    """
    command = shell("kubectl", "label", "namespace", argument(namespace), LABEL, "--overwrite")
    return typed(f"let namespace {namespace} enforce Pod Security {_ALL}{then}", command, other)


def hint(obj: Object, said: str) -> str:
    """Return what to do about the pods of a workload that reports such an answer, if any."""
    own = obj.kind in _MAKERS and of(said) is not None
    return f"; {remedy(obj.namespace)}" if own else ""
