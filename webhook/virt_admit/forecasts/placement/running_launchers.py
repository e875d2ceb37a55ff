"""The launcher pods in which the VMIs of a cluster run, and the pods that attach volumes to
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from virt_admit.model.kubernetes.cluster import Cluster, Entries, each, entry, keeps, unlisted
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Version


@dataclass(frozen=True, slots=True)
class Launchers:
    """The launcher pods of the VMIs of a cluster."""

    by_vmi: Mapping[tuple[str, str], tuple[Object, ...]]
    unseen: str
    """What there may be more of; empty: nothing."""

    def on_node(self, vmi: Object) -> Object | None:
        """Return the pod in which the VMI runs: the one on its node."""
        node = vmi.at("status", "nodeName").text
        found = self.by_vmi.get((vms.namespace_of(vmi), vmi.name), ())
        return next((pod for pod in found if pod.at("spec", "nodeName").text == node), None)


def launchers(cluster: Cluster) -> Launchers:
    """Return the launcher pods that have not ended, by namespace and name of their VMI."""
    if keeps(cluster):
        return Launchers(Entries(cluster, by_vmi), unlisted(cluster, POD))
    return cluster.cached(_launchers)


def _launchers(cluster: Cluster) -> Launchers:
    return Launchers(cluster.cached(by_vmi), unlisted(cluster, POD))


def by_vmi(cluster: Cluster) -> Mapping[tuple[str, str], tuple[Object, ...]]:
    """Return the known launcher pods that have not ended, by namespace and name of their VMI."""
    found: dict[tuple[str, str], list[Object]] = {}
    for vmi, pod in filter(None, each(cluster, POD, _launcher)):
        found.setdefault(vmi, []).append(pod)
    return {vmi: tuple(some) for vmi, some in found.items()}


Place = tuple[str, str, str]
"""Namespace and name of a VMI, and a node."""


def place(pod: Object) -> Place | None:
    """Return the VMI of a launcher pod that has not ended, and its node."""
    found, node = _launcher(pod), pod.at("spec", "nodeName").text
    return None if found is None or node is None else (*found[0], node)


def _launcher(pod: Object) -> tuple[tuple[str, str], Object] | None:
    name = vm_ledger.vmi_name(pod)
    ended = not name or pod.ended
    return None if ended else ((pod.namespace or "default", name), pod)


# --- the pods that attach hotplugged volumes ------------------------------------------------------

COPIES_TOLERATIONS: Final = Version(1, 2)
"""The release from which the pod that attaches volumes has the tolerations of its launcher pod
(kubevirt/kubevirt:pkg/virt-controller/services/template.go#RenderHotplugAttachmentPodTemplate,
pull request #10852).
"""


def attachment_tolerations(vmi: Object, cluster: Cluster) -> list[Any] | None:
    """Return the tolerations of the pod that attaches the volumes of a VMI to the target of its
    migration; None: those of the launcher pod.

    A policy of the cluster may add some: those of the pod that attaches them now, else of another
    one in its namespace, show it.
    """
    if versions.has_release(cluster, COPIES_TOLERATIONS):
        return None
    namespace = vms.namespace_of(vmi)
    running = launchers(cluster).on_node(vmi)
    uid = running.metadata["uid"].text if running is not None else None
    found = entry(cluster, _attachments, namespace) or ()
    own = [tolerations for owner, tolerations in found if owner == uid]
    return [each for some in own or [some for _, some in found] for each in some]


_Attachment = tuple[str | None, list[Any]]


def _attachments(cluster: Cluster) -> Mapping[str, tuple[_Attachment, ...]]:
    """Return the owner and the tolerations of each pod that attaches volumes, by namespace."""
    found: dict[str, tuple[_Attachment, ...]] = {}
    for namespace, pod in filter(None, each(cluster, POD, _attachment)):
        found[namespace] = (*found.get(namespace, ()), pod)
    return found


def _attachment(pod: Object) -> tuple[str, _Attachment] | None:
    if pod.labels.get("kubevirt.io") != "hotplug-disk" or pod.ended:
        return None
    owner = pod.metadata["ownerReferences"][0]["uid"].text
    tolerations = pod.at("spec", "tolerations").value
    return vms.namespace_of(pod), (owner, tolerations if isinstance(tolerations, list) else [])
