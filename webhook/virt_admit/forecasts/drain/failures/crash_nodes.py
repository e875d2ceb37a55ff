"""What a node where a launcher crashed has unlike the nodes where launchers of the same image run.

An image that runs elsewhere is not to blame, and a VM of another image says nothing about it: after
an update of KubeVirt the VMs that were not restarted run with their former launcher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import running_launchers
from virt_admit.model.evidence import node_differences
from virt_admit.model.evidence.node_differences import System, UnlikeNode
from virt_admit.model.kubernetes.cluster import Cluster, cached, entry, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD, VMI
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find
from virt_admit.model.messages import names

READS: Final[Reads] = {
    NODE: (f"metadata.labels.{SCHEDULABLE}", "status.nodeInfo"),
    POD: ("metadata.labels", "spec.containers", "spec.nodeName", "status.phase"),
    VMI: ("status.nodeName", "status.phase"),
}
_WIDTH: Final = 80


class CrashNode(NamedTuple):
    """A node where a launcher crashed, against those where the same image runs."""

    runs: Sequence[str]
    """``infra/monitor on kube-w4``."""
    places: frozenset[str]
    """The nodes where the same image runs."""
    unlike: UnlikeNode

    @property
    def words(self) -> str:
        """The comparison, in sentences."""
        return (
            f"Launchers of the same image run only on other nodes ({names(self.runs, _WIDTH)}), "
            f"unlike which {self.unlike.words}"
        )


def of_pod(pod: Object, cluster: Cluster) -> CrashNode | None:
    """Return what the node of a crashed launcher has unlike those where its image runs; None:
    nothing, the image runs there, or nowhere, or not all is known.
    """
    node, image = pod.at("spec", "nodeName").text or "", _image(pod)
    here = find(cluster, NODE, "", node)
    if here is None or not image or any(unlisted(cluster, kind) for kind in (VMI, POD, NODE)):
        return None
    there = entry(cluster, _running, image)
    if there is None or node in there.places:
        return None
    unlike = node_differences.unlike(here, there.systems, cluster)
    return CrashNode(there.runs, there.places, unlike) if unlike is not None else None


class _Runs(NamedTuple):
    """Where an image runs."""

    runs: Sequence[str]
    places: frozenset[str]
    systems: frozenset[System]


@cached
def _running(cluster: Cluster) -> Mapping[str, _Runs]:
    """Return where VMs run, by the image of their launcher, if all those nodes are known."""
    by_image: dict[str, list[tuple[str, str]]] = {}
    for vmi in sorted(cluster.known(VMI), key=lambda each: each.full_name):
        if vmi.at("status", "phase").text == "Running":
            pod = running_launchers.launchers(cluster).on_node(vmi)
            if pod is not None and (image := _image(pod)):
                on = pod.at("spec", "nodeName").text or ""
                by_image.setdefault(image, []).append((vmi.full_name, on))
    found = {}
    for image, runs in by_image.items():
        places = frozenset(place for _, place in runs)
        there = [node for place in places if (node := find(cluster, NODE, "", place)) is not None]
        if len(there) == len(places):
            said = [f"{vm} on {place}" for vm, place in runs]
            found[image] = _Runs(said, places, frozenset(map(node_differences.system, there)))
    return found


def _image(pod: Object) -> str:
    return pod.at("spec", "containers").named("compute")["image"].text or ""
