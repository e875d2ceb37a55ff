"""A VM that a user names: its VirtualMachine, its VMI, or both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.messages import did_you_mean, names

_KINDS: Final = (VM, VMI)


class FoundVm(NamedTuple):
    """A VM of the cluster. At least one of the two objects is known."""

    namespace: str
    name: str
    vm: Object | None
    """None: it does not exist, or ``unseen`` names it."""
    vmi: Object | None
    """None: the VM does not run, or ``unseen`` names it."""
    unseen: tuple[str, ...]
    obj: Object
    """The VMI, else the VM."""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


def find(name: str, namespace: str | None, cluster: Cluster) -> FoundVm:
    """Return the VM with a name. Without a namespace it must exist in one namespace alone.

    Raises:
        LookupError: no VM or several have this name, or whether it exists cannot be determined.
    """
    places = [namespace] if namespace else _namespaces(name, cluster)
    if len(places) > 1:
        raise LookupError(
            f"vm/{name} exists in several namespaces: {names(places)}. Add -n NAMESPACE"
        )
    if not places:
        raise LookupError(_missing(name, None, cluster, tuple(_unread(cluster))))
    objects: list[Object | None] = []
    unseen: list[str] = []
    for kind in _KINDS:
        try:
            objects.append(cluster.get(kind, places[0], name))
        except Unseen as blind:
            objects.append(None)
            unseen.append(blind.what)
    vm, vmi = objects
    obj = vmi or vm
    if obj is None:
        raise LookupError(_missing(name, places[0], cluster, unseen))
    return FoundVm(places[0], name, vm, vmi, tuple(unseen), obj)


def _namespaces(name: str, cluster: Cluster) -> list[str]:
    found = (obj for kind in _KINDS for obj in cluster.known(kind))
    return sorted({vms.namespace_of(obj) for obj in found if obj.name == name})


def _unread(cluster: Cluster) -> list[str]:
    return [blind.what for kind in _KINDS for blind in more_may_exist(cluster, kind)]


def _missing(name: str, namespace: str | None, cluster: Cluster, unseen: Sequence[str]) -> str:
    """Return why there is no VM to explain, and what the user may have meant."""
    called = f"vm/{name} in namespace {namespace}" if namespace else f"vm/{name}"
    if unseen:
        return f"{called} cannot be found: {names(unseen)} cannot be read"
    elsewhere = _namespaces(name, cluster) if namespace else []
    if elsewhere:
        return f"{called} does not exist. It exists in {names(elsewhere)}: use -n {elsewhere[0]}"
    known = sorted({obj.name for kind in _KINDS for obj in cluster.known(kind, namespace)})
    meant = did_you_mean(name, known) if known else None
    if meant:
        return f"{called} does not exist. Did you mean vm/{meant}?"
    return f"{called} does not exist"
