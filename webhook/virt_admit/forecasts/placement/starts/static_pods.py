"""Static pods of OpenShift's control plane that a new revision is being rolled out to.

The operators of etcd, kube-apiserver, kube-controller-manager and kube-scheduler install a revision
on one node after the other: the old static pod ends, the new one starts, and the guard there is not
ready meanwhile. Sources: openshift/library-go:
pkg/operator/staticpod/controller/installer/installer_controller.go
#prepareNodeInstallerConditionApplyConfiguration;
:pkg/operator/staticpod/controller/missingstaticpod/missing_static_pod_controller.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CLUSTER_OPERATOR, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubernetes.workloads import CONTAINERS, container_statuses
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.node_updates import node_phases

_REVISION: Final = "revision"
READS: Final[Reads] = union(
    clock.READS,
    pod_starts.READS,
    {
        CLUSTER_OPERATOR: (*CONDITIONS, "status.conditions.reason", "status.conditions.message"),
        NODE: (*CONDITIONS, "status.conditions.lastTransitionTime"),
        POD: (
            *CONDITIONS,
            *("metadata.creationTimestamp", f"metadata.labels.{_REVISION}"),
            "status.conditions.lastTransitionTime",
            *(f"status.{kind}.restartCount" for kind in CONTAINERS),
        ),
    },
)
_ROLLED: Final = timedelta(minutes=10)
"""The grace period of a static pod and 150 s, after which its operator reports that the new one has
not shown up (missing_static_pod_controller.go#timeoutMultiNode), and the 5 minutes after which the
startup monitor falls back to the former revision
(pkg/operator/staticpod/startupmonitor/assets/startup-monitor-pod.yaml).
"""
_MADE: Final = timedelta(minutes=5)
"""A guard is made once its node is Ready, schedulable and has the static pod, and is ready with the
first probe (pkg/operator/staticpod/controller/guard/guard_controller.go#sync,
manifests/guard-pod.yaml).
"""
_ROLLS: Final = "NodeInstaller"
"""What a ClusterOperator names while nodes are not at its latest revision."""


def motion(component: str, guards: Sequence[Object], cluster: Cluster) -> str:
    """Return that guards are not ready only as their operator rolls a revision out to their node,
    or has just made them again; empty: for another reason, or for longer than that takes.

    It rolls one node at a time, so several guards that are not ready have another reason.
    """
    if len(guards) != 1:
        return ""
    guard = guards[0]
    on = guard.at("spec", "nodeName").text or ""
    node, own = (
        find(cluster, NODE, "", on),
        find(cluster, POD, guard.namespace, f"{component}-{on}"),
    )
    operator = find(cluster, CLUSTER_OPERATOR, "", component.removeprefix("openshift-"))
    fails = own is not None and pod_starts.words(own, cluster)
    if node is None or not node.is_true("Ready") or fails:
        return ""
    if operator is not None and operator.is_true("Degraded"):
        return ""
    age = clock.age(guard, cluster)
    if age is not None and age <= _MADE:
        return f"the guard of {component} on {on} was created only {clock.duration(age)} ago"
    lasts = clock.since(guard.condition("Ready")["lastTransitionTime"].text, cluster)
    is_new = own is not None and _has_begun(own, cluster)
    if lasts is None or lasts > _ROLLED or not (is_new or _rolls(operator)):
        return ""
    revision = own.labels.get(_REVISION, "") if own is not None and is_new else ""
    to = f"revision {revision}" if revision else "a new revision"
    return f"{component} on {on} has been rolling to {to} for {clock.duration(lasts)}"


def returned(nodes: Sequence[str], component: str, cluster: Cluster) -> str:
    """Return that nodes have no guard only as they have just become Ready; empty: for another
    reason, or for longer than it takes to make one again.
    """
    found = [find(cluster, NODE, "", name) for name in nodes]
    since = [
        clock.since(clock.stamp(node_phases.true_since(node.condition("Ready"))), cluster)
        for node in found
        if node is not None
    ]
    known = [lasts for lasts in since if lasts is not None and lasts <= _MADE]
    if not known or len(known) != len(nodes):
        return ""
    became = f"became Ready only {clock.duration(max(known))} ago"
    return f"{component} has no guard on {names(nodes)} yet, which {became}"


def _has_begun(pod: Object, cluster: Cluster) -> bool:
    """Return whether the pod of a revision has started for the first time, and not long ago."""
    age = clock.age(pod, cluster)
    restarts = (each["restartCount"].integer for each in container_statuses(pod))
    return age is not None and age <= _ROLLED and not any(restarts)


def _rolls(operator: Object | None) -> bool:
    if operator is None:
        return False
    progressing = operator.condition("Progressing")
    said = (progressing[key].text or "" for key in ("reason", "message"))
    return progressing["status"].text == "True" and any(_ROLLS in each for each in said)
