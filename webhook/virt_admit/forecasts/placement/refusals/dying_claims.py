"""Claims that are being deleted and that only the pods which use them keep.

The finalizer ``kubernetes.io/pvc-protection`` goes with the last pod that uses a claim; the claim
goes with it, and its volume if its reclaim policy is Delete. No new pod is scheduled meanwhile.
Sources: kubernetes/kubernetes:pkg/controller/volume/pvcprotection/pvc_protection_controller.go;
kubernetes/kubernetes:pkg/scheduler/framework/plugins/volumebinding/volume_binding.go#PreFilter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import kubectl, merge_patch, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import POD, PV, PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, names
from virt_admit.model.scheduler.pods import FINISHED

GOES: Final = "so a drain deletes it"
_PROTECTION: Final = "kubernetes.io/pvc-protection"
READS: Final[Reads] = {
    PVC: ("metadata.finalizers", "spec.volumeName"),
    PV: ("spec.persistentVolumeReclaimPolicy",),
    POD: ("spec.nodeName", "spec.volumes.persistentVolumeClaim", "status.phase"),
}


class DyingClaim(NamedTuple):
    """A claim that goes with the last of these pods."""

    claim: Object
    pods: Sequence[Object]
    """Those that run with it."""
    volume: Object | None
    """What is deleted with it; None: its volume is kept, or is not known."""

    def why(self, cluster: Cluster) -> str:
        """Return ``claim ns/a is being deleted for 26 h and stays only while pod b uses it``."""
        age = clock.lasting(self.claim.metadata["deletionTimestamp"].text, cluster)
        users = names((each.name for each in self.pods), 80)
        which = f"claim {self.claim.full_name} is being deleted{age}"
        many = "pods" if len(self.pods) > 1 else "pod"
        uses = "use" if len(self.pods) > 1 else "uses"
        return f"{which} and stays only while {many} {users} {uses} it"

    def warning(self, cluster: Cluster) -> str:
        """Return what a drain of the node of its pods deletes, and how to keep it."""
        volume = self.volume.name if self.volume is not None else ""
        also = f" and its volume {volume} (reclaim policy Delete)" if volume else ""
        gone = f"{capital(self.why(cluster))}, {GOES}{also}"
        return f"{gone}. {capital(self.remedy)}"

    @property
    def remedy(self) -> str:
        """Return how its data are kept, and what then gives the workload a claim again."""
        users = names((each.name for each in self.pods), 80)
        then = f"then copy its data before {users} ends, and give the workload another claim"
        if self.volume is None:
            command = kubectl("describe", PVC, self.claim.name, self.claim.namespace)
            return typed(f"a deletion cannot be taken back: {then[5:]}", command)
        patch = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
        return typed(
            f"a deletion cannot be taken back: let volume {self.volume.name} be retained, {then}",
            merge_patch(PV, self.volume.name, "", patch),
        )


def of_pod(pod: Object, cluster: Cluster) -> Iterator[DyingClaim]:
    """Yield the claims of a pod that are being deleted and that other pods keep."""
    every = cluster.cached(_by_claim)
    for name in _claims(pod):
        found = every.get((pod.namespace, name))
        if found is not None and any(each.name != pod.name for each in found.pods):
            yield found


def lost_with(node: str, cluster: Cluster) -> Iterator[DyingClaim]:
    """Yield the claims that go with the pods of a node, which do not end yet: no pod elsewhere
    keeps them."""
    for found in cluster.cached(_by_claim).values():
        here = all(each.at("spec", "nodeName").text == node for each in found.pods)
        if here and not any(each.deleted for each in found.pods):
            yield found


@cached
def _by_claim(cluster: Cluster) -> Mapping[tuple[str, str], DyingClaim]:
    dying = {
        (each.namespace, each.name): each
        for each in cluster.known(PVC)
        if each.deleted
        and any(own.text == _PROTECTION for own in each.metadata["finalizers"].items())
    }
    users: dict[tuple[str, str], list[Object]] = {}
    for pod in cluster.known(POD) if dying else ():
        running = pod.at("spec", "nodeName").text and pod.at("status", "phase").text not in FINISHED
        for name in _claims(pod) if running else ():
            users.setdefault((pod.namespace, name), []).append(pod)
    return {
        key: DyingClaim(claim, sorted(users[key], key=lambda pod: pod.name), _lost(claim, cluster))
        for key, claim in dying.items()
        if key in users
    }


def _lost(claim: Object, cluster: Cluster) -> Object | None:
    volume = find(cluster, PV, "", claim.at("spec", "volumeName").text or "")
    if volume is None or volume.at("spec", "persistentVolumeReclaimPolicy").text != "Delete":
        return None
    return volume


def _claims(pod: Object) -> Iterator[str]:
    for volume in pod.at("spec", "volumes").items():
        if name := volume.at("persistentVolumeClaim", "claimName").text:
            yield name
