"""Machines that are left over: one is being deleted,
and its node was installed again and has a new Machine.

Cluster API drains and deletes a Node by its name and asks for no other Machine. Rancher holds the
deletion while other machines join the cluster through the old one. Sources:
kubernetes-sigs/cluster-api:core/reconcilers/machine/ machine_controller.go#isDeleteNodeAllowed
#drainNode; rancher/rancher:pkg/controllers/capr/bootstrap/controller.go
#reconcileMachinePreTerminateAnnotation, :pkg/controllers/capr/etcdmgmt/saferemoval.go;
harvester/harvester#7065, #10534.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes
from virt_admit.model.commands import shell, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import names
from virt_admit.model.remediation import machine_drain

_HOOK: Final = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/rke-bootstrap-cleanup"
_JOINED: Final = "rke.cattle.io/joined-to"
_COLUMNS: Final = (
    r"NAME:.metadata.name,URL:.metadata.annotations.rke\.cattle\.io/join-url,"
    r"JOINED-TO:.metadata.annotations.rke\.cattle\.io/joined-to"
)
_BRIEF: Final = (
    f"Point {_JOINED} of the machines that joined it to a server that stays, "
    "or remove the hook once etcd has no such member."
)


class TwinMachine(NamedTuple):
    """A Machine that is being deleted and names a node that other Machines have as well."""

    machine: Object
    stay: tuple[str, ...]
    """The other Machines, as ``namespace/name``."""

    @property
    def note(self) -> str:
        """What becomes of the node."""
        again = (
            ", and cordons it again until then" if machine_drain.cordons_again(self.machine) else ""
        )
        return (
            f"Machine {self.machine.full_name}, which is being deleted, has the same node as "
            f"Machine {names(self.stay, 120)}: Cluster API deletes the Node with it{again}. See "
            "which of them is left over, and whether this node is to stay, before that deletion "
            "goes on."
        )


def of_node(node: str, cluster: Cluster) -> Sequence[TwinMachine]:
    """Return the Machines that are being deleted, for a node that another Machine has as well."""
    return cluster.cached(_left_over).get(node, ())


def _left_over(cluster: Cluster) -> Mapping[str, Sequence[TwinMachine]]:
    stay: dict[tuple[str, str, str], list[str]] = {}
    for machine in sorted(cluster.known(CAPI_MACHINE), key=lambda each: each.full_name):
        name = "" if machine.deleted else machine_nodes.node_name(machine, cluster)
        if name:
            stay.setdefault(_key(machine, name), []).append(machine.full_name)
    found: dict[str, list[TwinMachine]] = {}
    for machine in cluster.known(CAPI_MACHINE):
        name = machine_nodes.emptied_node(machine, cluster) if machine.deleted else ""
        if others := stay.get(_key(machine, name)):
            found.setdefault(name, []).append(TwinMachine(machine, tuple(others)))
    return found


def _key(machine: Object, node: str) -> tuple[str, str, str]:
    return machine.namespace, machine.at("spec", "clusterName").text or "", node


def rancher_wait(machine: Object, cluster: Cluster) -> tuple[str, str, str] | None:
    """Return how Rancher's hook of a Machine goes away, what to do, and that in short; None: it
    does not have the hook.

    Rancher sets it for members of etcd alone.
    """
    if kinds.of(machine) is not CAPI_MACHINE or _HOOK not in machine.annotations:
        return None
    why = (
        "Rancher removes this hook of a member of etcd when no other machine is joined to that "
        f"server ({_JOINED} of its Secret is the join-url of this one), and etcd has removed the "
        "member"
    )
    node = machine_nodes.emptied_node(machine, cluster)
    is_twin = any(each.machine is machine for each in of_node(node, cluster))
    back = (
        f"Restart rke2-server on {node} afterwards, since the Node is deleted as well, and "
        "uncordon it. "
    )
    words = (
        "Point joined-to of such Secrets to a server that stays, or remove the hook once etcd has "
        f"no member of the old installation. {back if is_twin else ''}To see who is joined to it"
    )
    return why, typed(words, _secrets(machine)), _BRIEF


def _secrets(machine: Object) -> str:
    """Return the command that lists who is joined to whom, without the contents of the Secrets."""
    kind = "type=rke.cattle.io/machine-plan"
    columns = f"custom-columns={_COLUMNS}"
    return shell(
        "kubectl",
        "get",
        "secrets",
        "-n",
        machine.namespace,
        "--field-selector",
        kind,
        "-o",
        columns,
    )
