"""Pods, VMIs and volumes as kube-scheduler's filters read them."""

from __future__ import annotations

import functools
from dataclasses import replace

from virt_admit.model.kubernetes.cluster import Cluster, Unseen, check_time
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.scheduler import pods, volumes
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.volumes import Volumes


def moving(vmi: Object) -> Pod | None:
    """Return what a VMI that runs demands of other pods.

    Its affinity can change while its pod keeps an earlier one.
    """
    check_time()
    return None if vmi.ended else launcher_pod.linked_pod(vmi)


def bound(pod: Object) -> Pod | None:
    """Return a pod that is bound to a node as kube-scheduler sees it,
    None for one that is not or has ended.
    """
    if not pod.at("spec", "nodeName").text or pod.ended:
        return None
    return _read(pod)


def _read(pod: Object) -> Pod:
    """Return a pod as kube-scheduler sees it, without the term by which a target pod keeps off its
    own source: it concerns no other VMI, and there is one for each VMI that has migrated.

    Raises:
        OutOfTime: the time of the review is over; each pod may have many terms.
    """
    check_time()
    read = pods.read(pod)
    uid = pod.labels.get(launcher_pod.CREATED_BY)
    if not uid or not read.anti_affinity:
        return read
    own = tuple(
        term
        for term in read.anti_affinity
        if term.selector is None
        or not any(each.key == launcher_pod.CREATED_BY for each in term.selector.requirements)
    )
    return replace(read, anti_affinity=own)


def volumes_of(cluster: Cluster) -> Volumes:
    """Return the claims and the limits of a cluster, each read once when it is asked for."""

    @functools.cache
    def claim(namespace: str, name: str) -> volumes.Claim | Unseen:
        try:
            return volumes.claim(cluster, namespace, name)
        except Unseen as unseen:
            return unseen

    def read(namespace: str, name: str) -> volumes.Claim:
        found = claim(namespace, name)
        if isinstance(found, Unseen):
            raise Unseen(found.what)
        return found

    return Volumes(read, functools.cache(lambda node: volumes.limits(cluster, node)))
