"""Networks and SR-IOV devices that no node has, and the object that sets them up on other nodes, or
on none.

Such a policy reports no fault if its nodeSelector matches nothing. Nothing is said of networks and
devices without a policy. Sources: k8snetworkplumbingwg/sriov-network-operator:api/v1/helper.go
#Selected; harvester/network-controller-harvester:pkg/controller/manager/vlanconfig,
:pkg/controller/agent/vlanconfig/controller.go#addNodeLabel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.refusals.refusal_remedies import common_causes
from virt_admit.model.commands import kubectl
from virt_admit.model.evidence import writers
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import NODE, SRIOV_POLICY, VLAN_CONFIG, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import networks
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem

READS: Final[Reads] = {
    NODE: ("metadata.labels",),
    SRIOV_POLICY: ("metadata.annotations", "metadata.labels", "spec"),
    VLAN_CONFIG: ("metadata.annotations", "metadata.labels", "spec"),
}
_SELECTOR: Final = ("spec", "nodeSelector")


class _Setting(NamedTuple):
    """An object that sets something up on the nodes that it selects."""

    kind: Kind
    obj: Object
    makes: str
    """What it makes, after ``which``."""

    @property
    def title(self) -> str:
        return f"{self.kind.kind} {self.obj.full_name}"

    def selects(self, node: Object) -> bool:
        """Return whether a node has all its labels; without any it selects all nodes."""
        wanted = self.obj.at(*_SELECTOR).map
        return all(node.labels.get(key) == value for key, value in wanted.items())


def of(
    lacked: str, refusals: Mapping[str, str], cluster: Cluster, where: str = "another node"
) -> Problem | None:
    """Return which object would set up what all these nodes lack, after a colon, and what lets it
    reach one of them; None: there is none, or it is for these nodes.

    ``lacked``: the device that no node has; empty: they lack something else. ``where``: the node
    that it is to reach.
    """
    found = list(_devices(lacked, cluster) if lacked else _networks(refusals, cluster))
    every = sorted(cluster.known(NODE), key=lambda each: each.name)
    if not found or unlisted(cluster, NODE) or any(unlisted(cluster, each.kind) for each in found):
        return None
    chosen = [(each, [node for node in every if each.selects(node)]) for each in found]
    if any(node.name in refusals for _, own in chosen for node in own):
        return None
    setting, own = min(chosen, key=lambda each: (len(each[1]), each[0].title))
    return Problem(
        f": {_told(setting, own)}", _way(setting, own, where), command=_command(setting, own)
    )


def _devices(device: str, cluster: Cluster) -> Iterator[_Setting]:
    """Yield the policies that offer a device; the operator may be told another prefix."""
    resource = device.rpartition("/")[2]
    for policy in cluster.known(SRIOV_POLICY):
        if policy.at("spec", "resourceName").text == resource:
            yield _Setting(SRIOV_POLICY, policy, "offers it")


def _networks(refusals: Mapping[str, str], cluster: Cluster) -> Iterator[_Setting]:
    """Yield the configurations of the cluster network of Harvester that all nodes lack."""
    causes = [each for each in common_causes(refusals) if f"(label {networks.HARVESTER}" in each]
    for config in cluster.known(VLAN_CONFIG) if causes else ():
        name = config.at("spec", "clusterNetwork").text
        if name and any(f"(label {networks.HARVESTER}{name})" in cause for cause in causes):
            yield _Setting(VLAN_CONFIG, config, f"sets up cluster network {name}")


def _told(setting: _Setting, own: Collection[Object]) -> str:
    begin = f"{setting.title}, which {setting.makes}, selects"
    if own:
        return f"{begin} {names(each.name for each in own)} alone"
    wanted = setting.obj.at(*_SELECTOR).map
    labels = names(sorted(f"{key}={value}" for key, value in wanted.items()))
    return f"{begin} no node: none has {'label' if len(wanted) == 1 else 'the labels'} {labels}"


def _way(setting: _Setting, own: Collection[Object], where: str) -> str:
    writer = writers.of(setting.obj)
    source = f", in {writer.source}, which writes it" if writer is not None else ""
    if setting.kind is SRIOV_POLICY:
        return (
            f"let the nodeSelector of {setting.title} select another node{source}, if its cards "
            "fit, or give that node its labels"
        )
    if own:  # its network leaves a node that it does not select any more
        return (
            f"make a further VlanConfig like {setting.obj.full_name} that selects {where}, with "
            "uplinks of that node (a label of the network alone sets nothing up)"
        )
    return f"let the nodeSelector of {setting.title} select nodes{source} that have its uplinks"


def _command(setting: _Setting, own: Collection[Object]) -> str:
    """Return the command that edits a setting, or shows one that stays as it is."""
    stays = writers.of(setting.obj) is not None or (own and setting.kind is VLAN_CONFIG)
    verb = "describe" if stays else "edit"
    return kubectl(verb, setting.kind, setting.obj.name, setting.obj.namespace)
