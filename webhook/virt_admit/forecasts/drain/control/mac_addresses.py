"""Which MAC addresses VMs have, and a restored one would have: KubeMacPool gives each out once.

Source: k8snetworkplumbingwg/kubemacpool:pkg/pool-manager/virtualmachine_pool.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import VM, VM_SNAPSHOT, VM_SNAPSHOT_CONTENT
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.lookups import fields, find, grouped

_TAKEN: Final = re.compile(r"(?i)\bmac\b.*(allocat|in use|collision|conflict)")
_OF_POOL: Final = "kubemacpool"
DENIED: Final = re.compile(r'admission webhook "([^"]{1,253})" denied the request: (.+)', re.DOTALL)
"""How the API server quotes the refusal of a webhook."""


def is_refused(error: str) -> bool:
    """Return whether KubeMacPool has refused an address, as another VM has it."""
    denied = DENIED.search(error)
    return denied is not None and _OF_POOL in denied[1] and _TAKEN.search(denied[2]) is not None


def holder(mac: str, besides: str, cluster: Cluster) -> Object | None:
    """Return a known VM whose template has a MAC address, and not this full name."""
    found = entry(cluster, _by_mac, mac) or ()
    return next((vm for _, vm in found if vm.full_name != besides), None)


def _by_mac(cluster: Cluster) -> Mapping[str, Sequence[tuple[str, Object]]]:
    known = cluster.known(VM)
    held = ((mac, vm) for vm in known for _, mac in macs(vm.at("spec", "template", "spec")))
    return grouped(held, lambda each: each[0])


def wanted(restore: Object, cluster: Cluster) -> Iterator[tuple[int, str]]:
    """Yield index and MAC address of the interfaces of the restored VM that no patch changes."""
    name = restore.at("spec", "virtualMachineSnapshotName").text or ""
    snapshot = fields(cluster, VM_SNAPSHOT, restore.namespace, name)
    saved = snapshot.at("status", "virtualMachineSnapshotContentName").text
    content = find(cluster, VM_SNAPSHOT_CONTENT, restore.namespace, saved)
    if content is None:
        return
    patched = {
        index: value
        for each in restore.at("spec", "patches").items()
        for index, value in _patched(each)
    }
    template = content.at("spec", "source", "virtualMachine", "spec", "template", "spec")
    wanted = dict(macs(template)) | patched
    yield from ((index, mac) for index, mac in sorted(wanted.items()) if mac)


def _patched(patch: Field) -> Iterator[tuple[int, str]]:
    """Yield the interface whose MAC address a patch sets, and the address; empty:
    the patch removes it.
    """
    step = json_codec.embedded(patch.text)
    path = _OF_INTERFACE.search(str(step.get("path"))) if isinstance(step, dict) else None
    if path is not None:
        value = step.get("value")
        yield int(path[1]), _normal(value) if isinstance(value, str) else ""


def macs(spec: Field) -> Iterator[tuple[int, str]]:
    """Yield index and MAC address of the interfaces of a VM, in one way of writing."""
    for index, interface in enumerate(spec.at("domain", "devices", "interfaces").items()):
        if mac := interface["macAddress"].text:
            yield index, _normal(mac)


def named(text: str) -> set[str]:
    """Return the MAC addresses that a text names, in the same way of writing."""
    return set(map(_normal, _MAC.findall(text)))


_MAC: Final = re.compile(r"(?i)\b(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}\b")


def _normal(mac: str) -> str:
    return mac.lower().replace("-", ":")


_OF_INTERFACE: Final = re.compile(r"/interfaces/([0-9]{1,3})/macAddress\Z")
