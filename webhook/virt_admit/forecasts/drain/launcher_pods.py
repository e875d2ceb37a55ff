"""virt-launcher pods without a VMI, whose eviction KubeVirt refuses.

Source: kubevirt/kubevirt pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go.
"""

from __future__ import annotations

import datetime
from typing import Final

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kubernetes.kinds import NODE, POD, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union

DOMAIN: Final = "kubevirt.io/domain"
"""Annotation of a virt-launcher pod: the name of its VMI."""

READS: Final = union(
    clock.READS,
    {POD: ("metadata.labels", "metadata.creationTimestamp", f"metadata.annotations.{DOMAIN}")},
)

_SETTLED: Final = datetime.timedelta(minutes=10)
"""A younger pod may be of a VMI that did not exist yet when VMIs were listed: a large cluster is not read at once."""


def lost_its_vmi(pod: Object, cluster: Cluster) -> bool:
    """Return whether a virt-launcher pod is known to have no VMI, although it has not ended.

    The webhook answers its eviction with code 429, so ``kubectl drain`` repeats it forever
    (pod-eviction-admitter.go#admitLauncherPod). It lets hotplug pods of such a pod go (#admitHotplugPod).
    """
    name = pod.annotations.get(DOMAIN)
    if pod.labels.get("kubevirt.io") != "virt-launcher" or not name:
        return False
    age = clock.since(pod.metadata["creationTimestamp"].text, cluster)
    try:
        if age is None:
            for unread in more_may_exist(cluster, NODE):  # their heartbeats are the clock
                raise unread
        elif age < _SETTLED:
            return False
        return cluster.get(VMI, pod.namespace, name) is None
    except Unseen:
        return False
