"""VMs that Piraeus' high-availability controller frees from a lost node, without a health check.

Its agents see with DRBD that the lost node has no quorum for a volume. They delete each pod of that
node which has the volume, if the pod is owned and all its volumes are safe to fail over, and then
the attachment. KubeVirt fails a running VMI without a pod, so that its VM starts elsewhere.
Sources: piraeusdatastore/piraeus-ha-controller: pkg/agent/reconcile_failover.go
#RunForResource #evictPods #IsSafeVolume, README.md (What resources are monitored?);
piraeusdatastore/linstor-csi:pkg/volume/parameter.go; kubevirt/kubevirt:
pkg/virt-controller/watch/vmi/lifecycle.go#updateStatus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.linstor.lost_quorums import DRIVER
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, entry, unlisted
from virt_admit.model.kubernetes.kinds import DAEMON_SET, POD, PV, PVC, STORAGE_CLASS, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances.storage import SHARED
from virt_admit.model.kubevirt.launcher import hotplugs
from virt_admit.model.scheduler.pods import claim_names

_IMAGE: Final = "piraeus-ha-controller"
_EXEMPT: Final = "drbd.linbit.com/ignore-fail-over"
READS: Final[Reads] = {
    DAEMON_SET: (
        "spec.template.spec.containers.image",
        "status.desiredNumberScheduled",
        "status.numberReady",
    ),
    POD: (
        f"metadata.annotations.{_EXEMPT}",
        "metadata.ownerReferences",
        "spec.nodeName",
        "spec.volumes",
        "status.phase",
    ),
    VMI: ("metadata.uid", "spec.volumes", "spec.utilityVolumes", "status.nodeName"),
    PVC: ("spec.volumeName",),
    PV: ("spec.accessModes", "spec.csi.driver", "spec.csi.readOnly", "spec.storageClassName"),
    STORAGE_CLASS: ("parameters",),
}

_QUORUM: Final = 3
"""Nodes of a volume with a quorum: three copies, or two and one without data (README.md, What
resources are monitored?)."""
_SAFE: Final = (
    *("configMap", "csi", "downwardAPI", "emptyDir"),
    *("ephemeral", "gitRepo", "projected", "secret"),
)
"""The kinds of volumes that the agents count as safe, besides claims of LINSTOR."""
_CLAIM: Final = "persistentVolumeClaim"


class Failover(NamedTuple):
    """Who frees a VM of a lost node."""

    by: str
    unsure: str = ""
    """Why that is not certain; empty: it is."""
    within: tuple[int, int] = (0, 30)
    """Seconds until the pod and its attachments are deleted, once Kubernetes notices the loss:
    Piraeus' agents look every 5 s."""


def of_vmi(vmi: Object, cluster: Cluster) -> Failover | None:
    """Return the controller that frees a running VM once its node is lost; None: it does not."""
    agents, uid = _agents(cluster), vmi.metadata["uid"].text
    if agents is None or not uid or not _may_have_volumes(cluster):
        return None
    pods = entry(cluster, _pods, uid) or ()
    if len(pods) != 1:
        unsure = MIGRATES if pods else unlisted(cluster, POD)
        return agents._replace(unsure=unsure) if unsure else None
    own = pods[0]
    if own.at("spec", "nodeName").text != _node(vmi) or _EXEMPT in own.annotations:
        return None
    volumes = list(own.at("spec", "volumes").items())
    try:
        if not all(_is_safe(each, own, cluster) for each in volumes):
            return None
        copies = [_copies(each, own, cluster) for each in claim_names(own)]
        stays = next(filter(None, (_stays(each, own, cluster) for each in _plugged(vmi, own))), "")
    except Unseen as unseen:
        return agents._replace(unsure=unseen.what)
    if True in copies:
        return agents._replace(unsure=agents.unsure or stays)
    return agents._replace(unsure=_UNKNOWN) if None in copies else None


def _plugged(vmi: Object, pod: Object) -> Iterator[str]:
    """Yield the claims of hotplugged volumes, which pods of their own hold on the node."""
    held = frozenset(claim_names(pod))
    yield from (claim for _, claim in hotplugs.claims(vmi) if claim not in held)


def _stays(claim: str, pod: Object, cluster: Cluster) -> str:
    """Return that the agents may leave a claim on the lost node: it has no copies with a quorum, or
    is of another driver; empty: they free it, or other nodes may use it all the same.
    """
    bound = _volume(claim, pod, cluster)
    if bound is None or _copies(claim, pod, cluster) is True:
        return ""
    modes = bound.at("spec", "accessModes").items()
    if bound.at("spec", "csi", "driver").text != DRIVER and any(
        each.text == SHARED for each in modes
    ):
        return ""
    return f"whether hotplugged claim {claim} leaves the lost node"


@cached
def _may_have_volumes(cluster: Cluster) -> bool:
    """Return whether LINSTOR has volumes in the cluster, or that is not known."""
    drivers = (each.at("spec", "csi", "driver").text for each in cluster.known(PV))
    return DRIVER in drivers or bool(unlisted(cluster, PV))


_UNKNOWN: Final = "how many copies LINSTOR keeps of its volumes"
MIGRATES: Final = "whether Piraeus' HA controller frees a VM whose migration has not ended"


def _node(vmi: Object) -> str | None:
    return vmi.at("status", "nodeName").text


@cached
def _agents(cluster: Cluster) -> Failover | None:
    """Return the controller; None: no agents of it run."""
    for daemon in sorted(cluster.known(DAEMON_SET), key=lambda each: each.full_name):
        containers = daemon.at("spec", "template", "spec", "containers").items()
        if not any(_IMAGE in (each["image"].text or "") for each in containers):
            continue
        wanted, ready = (
            daemon.at("status", key).integer or 0
            for key in ("desiredNumberScheduled", "numberReady")
        )
        title = f"Piraeus' HA controller (DaemonSet {daemon.full_name})"
        if ready > 1:  # one of them may be on the lost node
            missing = f"whether {title} acts with {ready} of {wanted} pods ready"
            if ready >= wanted:  # two copies have no quorum without a third node
                few = f"whether volumes have a quorum, as {title} runs on {wanted} nodes alone"
                missing = few if wanted < _QUORUM else ""
            return Failover(title, missing)
    unread = unlisted(cluster, DAEMON_SET)
    return Failover("Piraeus' HA controller", unread) if unread else None


def _pods(cluster: Cluster) -> Mapping[str, tuple[Object, ...]]:
    """Return the running pods of VMIs, by the UID of the VMI: two while it migrates."""
    found: dict[str, list[Object]] = {}
    if unlisted(cluster, POD):
        return {}
    for pod in cluster.known(POD):
        owner = pod.controller
        running = pod.at("status", "phase").text == "Running"
        if running and owner is not None and owner["kind"].text == VMI.kind:
            found.setdefault(owner["uid"].text or "", []).append(pod)
    return {uid: tuple(pods) for uid, pods in found.items()}


def _is_safe(volume: Field, pod: Object, cluster: Cluster) -> bool:
    """Return whether an agent counts a volume of a pod as safe to fail over."""
    if not volume[_CLAIM].is_map:
        return any(volume[kind].present for kind in _SAFE)
    if volume[_CLAIM]["readOnly"].boolean:
        return True
    bound = _volume(volume[_CLAIM]["claimName"].text or "", pod, cluster)
    own = bound.at("spec", "csi") if bound is not None else None
    return own is not None and (own["readOnly"].boolean is True or own["driver"].text == DRIVER)


def _volume(claim: str, pod: Object, cluster: Cluster) -> Object | None:
    found = cluster.get(PVC, pod.namespace, claim)
    name = found.at("spec", "volumeName").text if found is not None else None
    return cluster.get(PV, "", name) if name else None


def _copies(claim: str, pod: Object, cluster: Cluster) -> bool | None:
    """Return whether DRBD keeps copies of a claim with a quorum; None: not known."""
    bound = _volume(claim, pod, cluster)
    if bound is None or bound.at("spec", "csi", "driver").text != DRIVER:
        return False
    name = bound.at("spec", "storageClassName").text
    used = cluster.get(STORAGE_CLASS, "", name) if name else None
    if used is None:
        return None
    given = dict(_parameters(used))
    if "drbd" not in given.get("layerlist", "drbd"):
        return False
    if given.get("drbdoptions/auto-quorum") in ("disabled", "off"):
        return False
    copies = given.get("autoplace") or given.get("placementcount", "")
    if not copies.isdigit():  # a resource group, or nodes by name
        return None
    witness = given.get("drbdoptions/auto-add-quorum-tiebreaker", "true").lower() != "false"
    return int(copies) >= (2 if witness else _QUORUM)


def _parameters(used: Object) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a StorageClass of LINSTOR, whose namespaces may be left out."""
    for key, value in used["parameters"].texts.items():
        yield key.removeprefix("property.").removeprefix(f"{DRIVER}/").lower(), value
