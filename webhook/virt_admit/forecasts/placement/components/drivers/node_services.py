"""A service of a node that the driver of a volume needs and that does not run there.

The driver's own pod works: it asks the host. On OpenShift a MachineConfig enables a service on all
nodes of a pool, and its nodes have none of their own. Sources:
NetApp/trident:utils/osutils.go#iSCSIPreChecks; docs.netapp.com, Trident requirements
(``find_multipaths: no``); open-iscsi/open-iscsi:usr/iscsid_req.c#iscsid_connect;
nfs-utils:utils/mount/network.c#start_statd; multipathd.service of Red Hat
(ConditionPathExists=/etc/multipath.conf); siderolabs/extensions:storage/iscsi-tools.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from virt_admit.model import machine_pools
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import MACHINE_CONFIG_POOL, NODE, Kind
from virt_admit.model.kubernetes.nodes import TALOS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import count
from virt_admit.model.node_updates.config_pool_updates import CURRENT

READS: Final[Reads] = union(
    machine_pools.READS, {NODE: (f"metadata.annotations.{CURRENT}", "status.nodeInfo.osImage")}
)
_MULTIPATH: Final = "multipathd"
_ISCSI: Final = "iscsid"
_SERVICES: Final = {
    _MULTIPATH: re.compile(r"\bmultipathd(?:\.service)? is not (?:running|active)\b"),
    _ISCSI: re.compile(
        r"can not connect to iSCSI daemon \(\d+\)|could not connect to iscsid\b|"
        r"\biscsid(?:\.service)? is not (?:running|active)\b"
    ),
    "rpc-statd": re.compile(r"\brpc\.statd is not running but is required\b"),
}
"""What drivers and the tools of the host say of a service, by its name for systemd."""
_TRIDENT: Final = "csi.trident.netapp.io"
_GROUP: Final = MACHINE_CONFIG_POOL.group
_MACHINE_CONFIG: Final = Kind(_GROUP, ("v1",), "machineconfigs", "MachineConfig", namespaced=False)
_ROLE: Final = f"{_GROUP}/role"


class MissingService(NamedTuple):
    """A service that does not run on a node."""

    what: str
    remedy: str
    of_node: bool
    """Whether other nodes may have it."""


def missing(said: str, driver: str, on: str, cluster: Cluster) -> MissingService | None:
    """Return that a service of a node does not run which the driver of a volume needs; None: the
    error names none.
    """
    service = next((name for name, words in _SERVICES.items() if words.search(said)), "")
    node = find(cluster, NODE, "", on) if service else None
    if node is None:
        return None
    pool, size = _pool(node, cluster)
    if pool is not None:
        return _of_pool(service, driver, node, pool, size, cluster)
    what = f"{service} does not run on {on}, which driver {driver} needs there"
    shown = kubectl("describe", NODE, on)
    image = node.at("status", "nodeInfo", "osImage").text or ""
    if image.startswith(TALOS) and service == _ISCSI:
        way = (
            "add the system extension iscsi-tools to the image of the nodes, and upgrade them to it"
        )
    else:
        way = (
            f"enable and start {service}.service on the host {on}{_settings(service, driver)}, and "
            "on each other node that is to use such volumes"
        )
    return MissingService(what, typed(way, shown), of_node=True)


def _of_pool(
    service: str, driver: str, node: Object, pool: Object, size: int, cluster: Cluster
) -> MissingService:
    """Return the same of a node that the Machine Config Operator configures."""
    unit, rendered = f"{service}.service", node.annotations.get(CURRENT, "")
    config = find(cluster, _MACHINE_CONFIG, "", rendered)
    what = f"{service} does not run on {node.name}, which driver {driver} needs there"
    units = config.at("spec", "config", "systemd", "units").items() if config is not None else ()
    if any(each["name"].text == unit and each["enabled"].boolean for each in units):
        told = f"{what}, although MachineConfig {rendered} enables it"
        see = f"see on the host why {unit} has failed, and restart it"
        shown = kubectl("describe", NODE, node.name)
        return MissingService(told, typed(see, shown), of_node=True)
    if config is not None:
        of = f"of MachineConfigPool {pool.name} ({count(size, 'node')})"
        what = f"{what}: MachineConfig {rendered} {of} does not enable {unit}"
    listed = kubectl("get", _MACHINE_CONFIG, "", "", "-l", f"{_ROLE}={pool.name}")
    way = (
        f"let a MachineConfig with the label {_ROLE}: {pool.name} enable {unit}"
        f"{_settings(service, driver)}"
    )
    then = "its nodes are then drained and rebooted one after another"
    return MissingService(what, typed(way, listed, then), of_node=config is None)


def _settings(service: str, driver: str) -> str:
    """Return the file that a service needs."""
    if service != _MULTIPATH:
        return ""
    value = ' with find_multipaths "no"' if driver == _TRIDENT else ""
    return f" and write /etc/multipath.conf{value}, without which it does not start"


def _pool(node: Object, cluster: Cluster) -> tuple[Object | None, int]:
    """Return the MachineConfigPool that updates a node, and the number of its nodes."""
    pools = cluster.known(MACHINE_CONFIG_POOL)
    every = cluster.known(NODE) if pools else ()
    found = machine_pools.members(pools, every)
    return next(
        ((pool, len(own)) for pool, own in found if any(each.name == node.name for each in own)),
        (None, 0),
    )
