"""The pods, VMIs and migrations that decide what happens on one draining node, found by an index.

A node has a hundredth of the VMs of a cluster, so a live forecast of one node decodes only these
objects. Besides the objects on the node they are: every unfinished migration with its VMI and pods
(they hold the places that a VM waits for), VMIs that arrive, and KubeVirt's own pods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Any, Final

from virt_admit.model.kubernetes.kinds import POD, VMI, VMIM, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import vm_ledger

Name = tuple[str, str]
"""Namespace and name."""

_OPEN: Final = ("open",)
_KUBEVIRT: Final = ("kubevirt",)


def _pod_keys(data: Mapping[str, Any]) -> Iterator[Hashable]:
    pod = Object(dict(data))
    node, part = pod.at("spec", "nodeName").text, pod.labels.get("kubevirt.io")
    if node:
        yield ("node", node)
    if part == "virt-launcher":
        yield ("vmi", vms.namespace_of(pod), vm_ledger.vmi_name(pod))
        yield ("uid", pod.metadata["uid"].text or "")
    elif part == "hotplug-disk":
        for owner in pod.metadata["ownerReferences"].items():
            yield ("owner", owner["uid"].text or "")
    elif part:
        yield _KUBEVIRT


def _vmi_keys(data: Mapping[str, Any]) -> Iterator[Hashable]:
    node = Object(dict(data)).at("status", "nodeName").text
    if node:
        yield ("node", node)


def _migration_keys(data: Mapping[str, Any]) -> Iterator[Hashable]:
    migration = Object(dict(data))
    yield ("vmi", vms.namespace_of(migration), migration.at("spec", "vmiName").text or "")
    if not migration.ended:
        yield _OPEN
    source = migration.at("status", "migrationState", "sourceNode").text
    if source:
        yield ("source", source)


KEYS: Final[Mapping[Kind, Callable[[Mapping[str, Any]], Iterator[Hashable]]]] = {
    POD: _pod_keys,
    VMI: _vmi_keys,
    VMIM: _migration_keys,
}
"""How the objects of these kinds are found."""


def of_node(
    node: str,
    named: Callable[[Kind, Hashable], Collection[Name]],
    keys: Callable[[Kind, Name], tuple[Hashable, ...]],
) -> Mapping[Kind, frozenset[Name]]:
    """Return the objects that decide on a node.

    Args:
        node: the name of the node.
        named: returns the objects of a kind that have a key.
        keys: returns the keys of an object.
    """
    here = set(named(POD, ("node", node)))
    open_migrations = set(named(VMIM, _OPEN))
    instances = set(named(VMI, ("node", node)))
    for kind, names in ((POD, here), (VMIM, open_migrations)):
        instances |= {
            key[1:]
            for name in names
            for key in keys(kind, name)
            if isinstance(key, tuple) and key[0] == "vmi"
        }
    pods = here | set(named(POD, _KUBEVIRT))
    moves = open_migrations | set(named(VMIM, ("source", node)))
    for instance in instances:
        own = named(POD, ("vmi", *instance))
        moves.update(named(VMIM, ("vmi", *instance)))
        pods.update(own)
        for pod in own:
            for key in keys(POD, pod):
                if isinstance(key, tuple) and key[0] == "uid":
                    pods.update(named(POD, ("owner", key[1])))
    return {POD: frozenset(pods), VMI: frozenset(instances), VMIM: frozenset(moves)}
