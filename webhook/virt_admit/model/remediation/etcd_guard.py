"""What guards etcd of OpenShift: the budget of its guard pods,
and the hook of the Machines that hold its members.

Sources: medik8s/common:pkg/etcd/etcd.go#IsEtcdDisruptionAllowed;
openshift/cluster-etcd-operator:pkg/operator/
machinedeletionhooks/machinedeletionhooks.go#attemptToDeleteMachineDeletionHook;
openshift/api:machine/v1/ types_controlplanemachineset.go#ControlPlaneMachineSetState (it is never
Inactive again once it is Active).
"""

from __future__ import annotations

from typing import Final

from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, merge_patch, typed
from virt_admit.model.kubernetes import kinds, selectors
from virt_admit.model.kubernetes.cluster import Cluster, more_may_exist
from virt_admit.model.kubernetes.kinds import CONTROL_PLANE_SET, MACHINE, PDB, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.messages import names
from virt_admit.model.remediation import machines

ETCD: Final = "openshift-etcd"

_HOOK: Final = ("EtcdQuorumOperator", "clusteroperator/etcd")
"""Name and owner of the hook."""

HOOK_READS: Final[Reads] = {
    MACHINE: ("metadata.labels", "spec.lifecycleHooks", "status.nodeRef"),
    CONTROL_PLANE_SET: ("spec.replicas", "spec.state"),
}
"""The fields that ``replacement`` reads."""

READS: Final[Reads] = {
    PDB: ("spec.selector", "status.disruptionsAllowed"),
    POD: ("metadata.labels", "spec.nodeName", *CONDITIONS),
}


def refusal(node: str, cluster: Cluster) -> str:
    """Return why etcd allows no disruption of a node; empty if it does.

    A node whose own guard pod is missing or not ready is disrupted already, so it takes nothing
    more from the quorum.

    Raises:
        Unseen: the budget or the guard pods could not be read.
    """
    budgets = list(cluster.list(PDB, ETCD))
    if len(budgets) != 1:
        return f"{ETCD} has {len(budgets)} PodDisruptionBudgets instead of 1"
    (budget,) = budgets
    if (budget.at("status", "disruptionsAllowed").integer or 0) >= 1:
        return ""
    selector = selectors.parse(budget.at("spec", "selector").value)
    for pod in cluster.list(POD, ETCD):
        if pod.at("spec", "nodeName").text == node and selector.matches(pod.labels):
            ready = pod.condition("Ready")["status"].text
            if ready in ("True", "Unknown"):
                return f"PodDisruptionBudget {budget.name} allows no disruption"
            return ""
    return ""


def is_held(machine: Object) -> bool:
    """Return whether a Machine that is being deleted stays because it holds a member of etcd."""
    return machine.deleted and has_hook(machine)


def has_hook(machine: Object) -> bool:
    """Return whether the operator of etcd keeps a Machine from being drained when it is deleted."""
    if kinds.of(machine) is not MACHINE:
        return False
    hooks = machine.at("spec", "lifecycleHooks", "preDrain").items()
    return any((hook["name"].text, hook["owner"].text) == _HOOK for hook in hooks)


def held_nodes(cluster: Cluster) -> frozenset[str]:
    """Return the nodes that must not be drained: their Machines are held as members of etcd."""
    return frozenset(
        machine_nodes.node_name(each, cluster) for each in cluster.known(MACHINE) if is_held(each)
    )


def replacement(machine: Object, cluster: Cluster) -> tuple[str, str]:
    """Return how the Machine comes that replaces one which is held, and what to do for that.

    etcd lets the old one go after the new one has joined. Until then its node may be updated and
    rebooted as any other.
    """
    joins = (
        "The owner removes it after a replacement Machine has joined etcd, whose quorum it guards"
    )
    never = "so nothing makes that Machine, and this wait does not end by itself"
    leave = "A drain by hand does not help, and the hook must stay"
    by_hand = "create a control-plane Machine by hand"
    found = next(
        (each for each in cluster.known(CONTROL_PLANE_SET) if each.namespace == machine.namespace),
        None,
    )
    made = _replacements(machine, found, cluster)
    if made:
        return f"{joins}: {names(made)} may do that", typed(
            leave, about("describe", machine, MACHINE)
        )
    if found is None:
        unread = any(True for _ in more_may_exist(cluster, CONTROL_PLANE_SET))
        kind = CONTROL_PLANE_SET.kind
        why = (
            f"Only a {kind} that is Active makes that Machine"
            if unread
            else f"No {kind} exists, {never}"
        )
        return f"{joins}. {why}", f"{leave}: {by_hand}."
    known = f"{joins}. {CONTROL_PLANE_SET.kind} {found.name}"
    if found.at("spec", "state").text == "Active":
        see = typed("See its status", about("describe", found, CONTROL_PLANE_SET))
        return f"{known} makes that Machine", f"{leave}. {see}"
    activate = merge_patch(
        CONTROL_PLANE_SET, found.name, found.namespace, {"spec": {"state": "Active"}}
    )
    do = f"Check its template and activate it, which is for good; or {by_hand}"
    return f"{known} is Inactive, {never}", f"{leave}. {typed(do, activate)}"


def _replacements(machine: Object, own: Object | None, cluster: Cluster) -> list[str]:
    """Return the newest control-plane Machines if there are as many as are wanted besides those
    that are being deleted.
    """
    others = [
        each
        for each in cluster.known(MACHINE)
        if each.namespace == machine.namespace and not each.deleted
    ]
    masters = [
        each
        for each in others
        if any(each.labels.get(key) == machines.MASTER for key in machines.ROLE_LABELS)
    ]
    wanted = own.at("spec", "replicas").integer if own is not None else None
    if len(masters) < (machines.CONTROL_PLANE_SIZE if wanted is None else wanted):
        return []
    return [each.name for each in masters if not machines.node_name(each)] or [
        each.name for each in masters
    ]
