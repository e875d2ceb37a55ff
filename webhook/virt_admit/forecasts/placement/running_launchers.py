"""The launcher pods in which the VMIs of a cluster run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from virt_admit.model.kubernetes.cluster import Cluster, Entries, each, keeps, unlisted
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.scheduler.pods import FINISHED


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
    ended = not name or pod.at("status", "phase").text in FINISHED
    return None if ended else ((pod.namespace or "default", name), pod)
