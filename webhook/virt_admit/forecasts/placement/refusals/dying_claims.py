"""Claims that are being deleted and that only the pods which use them keep.

The finalizer ``kubernetes.io/pvc-protection`` goes with the last pod that uses a claim; the claim
goes with it, and its volume if its reclaim policy is Delete. No new pod is scheduled meanwhile.
Sources: kubernetes/kubernetes:pkg/controller/volume/pvcprotection/pvc_protection_controller.go;
kubernetes/kubernetes:pkg/scheduler/framework/plugins/volumebinding/volume_binding.go#PreFilter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import volume_attachments
from virt_admit.model.commands import kubectl, merge_patch, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import POD, PV, PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.launcher.launcher_pod import is_launcher
from virt_admit.model.lookups import volume_of
from virt_admit.model.messages import capital, names
from virt_admit.model.scheduler.pods import claim_names

_SETTING: Final = {
    "openshift-image-registry": (
        " (spec.storage.pvc.claim of configs.imageregistry.operator.openshift.io cluster)"
    )
}
"""Where an operator that writes the workload takes the claim from, by namespace
(openshift/api:imageregistry/v1/types.go#ImageRegistryConfigStoragePVC).
"""
GOES: Final = "so a drain deletes it"
_PROTECTION: Final = "kubernetes.io/pvc-protection"
READS: Final[Reads] = {
    PVC: ("metadata.finalizers", "spec.volumeName"),
    PV: ("spec.persistentVolumeReclaimPolicy",),
    POD: ("metadata.labels", "spec.nodeName", "spec.volumes.persistentVolumeClaim", "status.phase"),
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
        which = f"claim {self.claim.full_name} is being deleted{age}"
        only = " only" if self.is_kept_by_pods else ""
        many = len(self.pods) > 1
        users = f"pod{'s' if many else ''} {self._users} use{'' if many else 's'} it"
        return f"{which} and stays{only} while {users}"

    @property
    def is_kept_by_pods(self) -> bool:
        """Whether no other finalizer keeps it as well."""
        every = self.claim.metadata["finalizers"].items()
        return all(each.text == _PROTECTION for each in every)

    def warning(self, cluster: Cluster) -> str:
        """Return what a drain of the node of its pods deletes, and how to keep it."""
        volume = self.volume.name if self.volume is not None else ""
        also = f" and its volume {volume} (reclaim policy Delete)" if volume else ""
        return f"{capital(self.why(cluster))}, {GOES}{also}. {capital(self.remedy)}"

    @property
    def remedy(self) -> str:
        """Return how its data are kept, with the command."""
        return typed(self.way, self.command)

    @property
    def way(self) -> str:
        """Return how its data are kept, and what then gives the workload a claim again."""
        by = _SETTING.get(self.claim.namespace, "")
        rescue = f"copy its data before {self._users} ends, and give the workload another claim{by}"
        first = f"let volume {self.volume.name} be retained, then " if self.volume else ""
        return f"a deletion cannot be taken back: {first}{rescue}"

    @property
    def command(self) -> str:
        """Return the command of the first step."""
        if self.volume is None:
            return kubectl("describe", PVC, self.claim.name, self.claim.namespace)
        patch = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
        return merge_patch(PV, self.volume.name, "", patch)

    @property
    def _users(self) -> str:
        return names((each.name for each in self.pods), 80)


def of_pod(pod: Object, cluster: Cluster) -> Iterator[DyingClaim]:
    """Yield the claims of a pod that are being deleted and that other pods keep."""
    every = cluster.cached(_by_claim)
    for name in claim_names(pod):
        found = every.get((pod.namespace, name))
        if found is not None and any(each.name != pod.name for each in found.pods):
            yield found


def of_claim(namespace: str, name: str, cluster: Cluster) -> DyingClaim | None:
    """Return the claim if it is being deleted and pods keep it."""
    return cluster.cached(_by_claim).get((namespace, name))


def lost_with(node: str, cluster: Cluster) -> Sequence[DyingClaim]:
    """Return the claims that go with the pods that a drain takes from a node: no pod elsewhere and
    no other finalizer keeps them.

    KubeVirt keeps the pods of VMs, which no new pod could replace.
    """
    return cluster.cached(_by_node).get(node, ())


@cached
def _by_node(cluster: Cluster) -> Mapping[str, Sequence[DyingClaim]]:
    found: dict[str, list[DyingClaim]] = {}
    for each in cluster.cached(_by_claim).values():
        nodes = {pod.at("spec", "nodeName").text or "" for pod in each.pods}
        stays = any(pod.deleted or is_launcher(pod) for pod in each.pods)
        if len(nodes) == 1 and each.is_kept_by_pods and not stays:
            found.setdefault(nodes.pop(), []).append(each)
    return found


@cached
def _by_claim(cluster: Cluster) -> Mapping[tuple[str, str], DyingClaim]:
    dying = {
        (each.namespace, each.name): each
        for each in cluster.known(PVC)
        if each.deleted
        and any(own.text == _PROTECTION for own in each.metadata["finalizers"].items())
    }
    found = {}
    for key, claim in dying.items():
        users = volume_attachments.users(*key, cluster)
        if placed := [pod for pod in users if pod.at("spec", "nodeName").text]:
            found[key] = DyingClaim(claim, placed, _lost(claim, cluster))
    return found


def _lost(claim: Object, cluster: Cluster) -> Object | None:
    volume = volume_of(claim, cluster)
    if volume is None or volume.at("spec", "persistentVolumeReclaimPolicy").text != "Delete":
        return None
    return volume
