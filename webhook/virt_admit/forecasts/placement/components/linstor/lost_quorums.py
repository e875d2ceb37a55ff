"""DRBD volumes of LINSTOR without a quorum, for which its high-availability controller taints a
node.

The agent on each node sets the taint as long as one volume there has no quorum, so it comes back if
it is removed by hand. It keeps every pod off, also one without such a volume. The events name the
pod, the attachment, the volume or the claim. Sources:
piraeusdatastore/piraeus-ha-controller:README.md, :pkg/agent/agent.go #manageOwnTaints,
:pkg/agent/reconcile_failover.go; issues piraeusdatastore/piraeus-ha-controller#23 #72.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes import events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD, PV, PVC, VOLUME_ATTACHMENT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler.pods import claim_names

READS: Final[Reads] = {
    POD: ("metadata.labels", "spec.volumes.persistentVolumeClaim.claimName", "status.phase"),
    PVC: ("spec.volumeName",),
    PV: ("spec.claimRef", "spec.csi.driver"),
    VOLUME_ATTACHMENT: ("spec.source.persistentVolumeName",),
}
_KEY: Final = "drbd.linbit.com/lost-quorum"
DRIVER: Final = "linstor.csi.linbit.com"
_REASON: Final = "VolumeWithoutQuorum"
_COMPONENT: Final = "app.kubernetes.io/component"
_CONTROLLER: Final = "linstor-controller"


def of_taint(key: str, cluster: Cluster) -> Problem | None:
    """Return what the taint means; None: it is another one.

    Without a command: the controller of LINSTOR, which has its client, is not known.
    """
    if key != _KEY:
        return None
    volumes = names(dict.fromkeys(_volumes(cluster)))
    which = f" ({volumes})" if volumes else ""
    words = (
        f"LINSTOR sets it while a DRBD volume has no quorum on the node{which}, and it keeps all "
        "pods off, also those without such a volume"
    )
    remedy = (
        "give that volume its quorum again (linstor resource list shows its copies that are not "
        "connected or UpToDate): LINSTOR then removes the taint, and sets it again if it is "
        "removed by hand"
    )
    return Problem(words, remedy, command=client(cluster))


def _volumes(cluster: Cluster) -> Iterator[str]:
    """Yield the claims of which events say that they have no quorum, with their volumes."""
    for kind in (POD, VOLUME_ATTACHMENT, PV, PVC):
        for event in events.known(kind.kind, _REASON, cluster):
            about = event.at("involvedObject")
            namespace = about["namespace"].text or "" if kind.namespaced else ""
            found = find(cluster, kind, namespace, about["name"].text)
            if found is not None:
                yield from _of(found, cluster)


def _of(found: Object, cluster: Cluster) -> Iterator[str]:
    if found.kind == POD.kind:
        for name in claim_names(found):
            claim = find(cluster, PVC, found.namespace, name)
            if claim is not None:
                yield from _of(claim, cluster)
        return
    named = {
        PVC.kind: found.at("spec", "volumeName").text,
        VOLUME_ATTACHMENT.kind: found.at("spec", "source", "persistentVolumeName").text,
    }.get(found.kind, found.name)
    own = find(cluster, PV, "", named)
    if own is not None and own.at("spec", "csi", "driver").text == DRIVER:
        bound = own.at("spec", "claimRef")
        yield f"{own.name} of claim {bound['namespace'].text}/{bound['name'].text}"


def client(cluster: Cluster, *options: str) -> str:
    """Return the command that lists the resources of LINSTOR; empty: as below."""
    return linstor(cluster, "resource", "list", *options)


def linstor(cluster: Cluster, *words: str) -> str:
    """Return a command for the client of LINSTOR; empty: its controller, which has the client, is
    not known.
    """
    for pod in sorted(cluster.known(POD), key=lambda each: each.full_name):
        runs = pod.at("status", "phase").text == "Running"
        if runs and pod.labels.get(_COMPONENT) == _CONTROLLER:
            run = ("--", "linstor", *words)
            return shell("kubectl", "exec", argument(pod.name), "-n", pod.namespace, *run)
    return ""
