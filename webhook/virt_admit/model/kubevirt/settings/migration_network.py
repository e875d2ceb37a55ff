"""The network of migrations, where a virt-handler has no address on it.

virt-handler ends at its start if its interface has none. Multus writes into an annotation of a pod
what its interfaces got. They stay as they are until the pod is gone. Without an IPAM plugin only
IPv6 routers of the network give an address. Sources:
kubevirt/kubevirt:pkg/virt-handler/migration.go#FindMigrationIP, cmd/virt-handler/virt-handler.go;
k8snetworkplumbingwg/network-attachment-definition-client:pkg/utils/net-attach-def.go.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, NAD, POD, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.kubevirt.settings import configuration, migration_limits
from virt_admit.model.lookups import find
from virt_admit.model.problems import Problem

INTERFACE: Final = "migration0"
"""What KubeVirt calls the interface (api/core/v1/types.go#MigrationInterfaceName)."""
HANDLER: Final = "virt-handler"
_NETWORKS: Final = "k8s.v1.cni.cncf.io/networks"
"""Annotation of a pod: the networks that it joins."""
_STATUS: Final = "k8s.v1.cni.cncf.io/network-status"
_BY_IPAM: Final = frozenset(
    ("bridge", "cnv-bridge", "host-device", "ipvlan", "macvlan", "ovs", "sriov", "vlan")
)
"""Plugins that give an interface the addresses of its ``ipam`` alone."""


JOINED_READS: Final[Reads] = {
    POD: ("metadata.labels", f"metadata.annotations.{_NETWORKS}", *CONDITIONS)
}
"""The fields of pods that ``has_joined`` reads."""


def fault(pod: Object, cluster: Cluster) -> Problem | None:
    """Return that a pod of virt-handler has no address for migrations; None: it has one, needs
    none, or that is not known.
    """
    is_handler = pod.labels.get("kubevirt.io") == HANDLER
    network = _without_address(pod) if is_handler and _has_ended(pod) else ""
    if not network or _was_killed(pod) or _has_routers(network, pod.namespace, cluster):
        return None
    namespace, _, name = network.rpartition("/")
    definition = find(cluster, NAD, namespace or pod.namespace, name)
    full_name = f"{NAD.kind} {namespace or pod.namespace}/{name}"
    got = f"{INTERFACE} got no IP address from migration network {full_name}"
    begin = f"{_waits(pod)}it ends as {got}"
    again = typed(f"let pod {pod.name} be created again", about("delete", pod, POD))
    if _configured(cluster) != (namespace or pod.namespace, name):
        return Problem(f"{begin} when it was created", again)
    if definition is None or not lacks_ipam(definition):
        ways = f"see that {full_name} has free addresses, then {again}"
        return Problem(f"{begin} when it was created", ways)
    owner = definition.controller
    where = f" in {owner['kind'].text} {owner['name'].text}, which owns it" if owner else ""
    way = f"give {full_name} an ipam with free addresses (such as whereabouts){where}"
    further = f"then delete pod {pod.name}, which keeps its interface; or remove {_field(cluster)}"
    why = f"{begin}, which has no ipam: each new {HANDLER} pod fails alike"
    return Problem(why, typed(way, about("edit", definition, NAD), further))


def _has_ended(pod: Object) -> bool:
    """Whether a container of a pod has ended before: an address may also come from a router."""
    return any((each["restartCount"].integer or 0) > 0 for each in _containers(pod))


def _was_killed(pod: Object) -> bool:
    """Whether a signal ended a container last, as a lack of memory does: one without an address
    ends by itself.
    """
    ends = (
        each.at(when, "terminated") for each in _containers(pod) for when in ("state", "lastState")
    )
    return any(
        each["reason"].text == "OOMKilled" or (each["exitCode"].integer or 0) > _SIGNAL
        for each in ends
    )


_SIGNAL: Final = 128
"""A container that a signal ends has this exit code and the number of the signal."""


def _has_routers(network: str, namespace: str, cluster: Cluster) -> bool:
    """Whether routers of a network give addresses: a virt-handler works that got none when it was
    created.
    """
    return any(
        each.labels.get("kubevirt.io") == HANDLER
        and each.is_true("Ready")
        and _without_address(each) == network
        for each in cluster.known(POD, namespace)
    )


def _waits(pod: Object) -> str:
    """Return what a container waits for now, such as ``CrashLoopBackOff``, before other words."""
    waits = (each.at("state", "waiting", "reason").text for each in _containers(pod))
    return next((f"{each}, " for each in waits if each), "")


def _containers(pod: Object) -> Iterator[Field]:
    yield from pod.at("status", "containerStatuses").items()


def has_joined(pod: Object, network: str) -> bool:
    """Whether a virt-handler that works has an interface in a network for migrations."""
    if pod.labels.get("kubevirt.io") != HANDLER or not pod.is_true("Ready"):
        return False
    joined = (each.strip() for each in pod.annotations.get(_NETWORKS, "").split(","))
    return any(each.rpartition("/")[2] == f"{network}@{INTERFACE}" for each in joined)


def lacks_ipam(definition: Object) -> bool:
    """Whether a network gives no addresses, as its plugin is one that needs an ``ipam`` for it."""
    config = Field(json_codec.embedded(definition.at("spec", "config").text))
    chain = list(config["plugins"].items()) or [config]
    has = any(each.at("ipam", "type").text for each in chain)
    return not has and chain[0]["type"].text in _BY_IPAM


def _configured(cluster: Cluster) -> tuple[str, str] | None:
    """Return the network that the next pods of virt-handler join; None: none is known."""
    kubevirt = configuration.known_or_none(configuration.kubevirt, cluster)
    found = migration_limits.network(kubevirt) if kubevirt is not None else None
    return (found[0] or kubevirt.namespace, found[1]) if found and kubevirt else None


def create(network: str, cluster: Cluster) -> str:
    """Return what helps where the network does not exist."""
    owner, kind = _owner(cluster)
    edit = about("edit", owner, kind) if owner is not None else ""
    return f"create {NAD.kind} {network}; or {typed(f'correct {_field(cluster)}', edit)}"


def _owner(cluster: Cluster) -> tuple[Object | None, Kind]:
    """Return the object with the setting: HyperConverged where it writes those of KubeVirt."""
    for read, kind in ((configuration.hyperconverged, HCO), (configuration.kubevirt, KUBEVIRT)):
        owner = configuration.known_or_none(read, cluster)
        if owner is not None:
            return owner, kind
    return None, KUBEVIRT


def _field(cluster: Cluster) -> str:
    """Return the setting in words."""
    owner, kind = _owner(cluster)
    if owner is None:
        return "the network of migrations in the configuration"
    return f"{migration_limits.block(owner)['network'].path} of {kind.kind} {owner.name}"


def _without_address(pod: Object) -> str:
    """Return the network whose interface has no address in a pod; empty: each has one, or nothing
    says so.
    """
    for each in Field(json_codec.embedded(pod.annotations.get(_STATUS))).items():
        if each["interface"].text == INTERFACE and not any(
            _is_global(address.text or "") for address in each["ips"].items()
        ):
            return each["name"].text or ""
    return ""


def _is_global(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return True  # not known
    return not (address.is_link_local or address.is_multicast or address.is_loopback)
