"""The controllers of Machines, and which of them replace a Machine that a health check found
unhealthy.

A MachineHealthCheck of machine.openshift.io deletes a Machine that has a controller of any kind.
One of Cluster API only marks the Machine, and its controller deletes it, each in its own way. With
a remediation template neither matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation.health_checks import HealthCheck

KUBEADM: Final = "KubeadmControlPlane"
"""Deletes one Machine at a time, and never the only one
(kubernetes-sigs/cluster-api: kubeadmcontrolplane/remediation.go#reconcileUnhealthyMachines)."""

TALOS: Final = "TalosControlPlane"
"""Does not read the mark, in all releases up to 0.5.12
(siderolabs/cluster-api-control-plane-provider-talos: controllers/taloscontrolplane_controller.go).
"""

UNOWNED: Final = "no controller owns it, so it is never deleted"


def title(machine: Object) -> str:
    """Return kind and name of the controller of a Machine; empty if it has none."""
    owner = machine.controller
    return "" if owner is None else f"{owner['kind'].text or '?'} {owner['name'].text or '?'}"


def decide(check: HealthCheck) -> bool:
    """Return whether the controllers of the Machines decide what becomes of unhealthy ones."""
    return check.kind is not kinds.NHC and not check.template.present and not check.external


def kept(check: HealthCheck, selection: Selection) -> Mapping[str, tuple[Object, ...]]:
    """Return the selected Machines that are never deleted when they are unhealthy,
    by the reason.
    """
    found: dict[str, list[Object]] = {}
    for machine in selection.objects if decide(check) else ():
        reason = _kept(check, machine, selection)
        if reason:
            found.setdefault(reason, []).append(machine)
    return {reason: tuple(some) for reason, some in found.items()}


def _kept(check: HealthCheck, machine: Object, selection: Selection) -> str:
    owner = machine.controller
    if owner is None:
        return UNOWNED
    if check.kind is not kinds.CAPI_MHC:
        return ""
    if owner["kind"].text == TALOS:
        return f"{title(machine)} replaces no unhealthy Machine (releases up to 0.5.12)"
    if owner["kind"].text == KUBEADM and not selection.unseen and _is_only(machine, selection):
        return f"{title(machine)} never deletes its only Machine"
    return ""


def _is_only(machine: Object, selection: Selection) -> bool:
    """Return whether no other Machine of the namespace, selected or not,
    has the same controller.
    """
    return sum(title(other) == title(machine) for other in selection.index.objects) == 1


def one_by_one(check: HealthCheck, selection: Selection) -> int:
    """Return how many of the selected Machines have a controller that deletes them one at a
    time.
    """
    if check.kind is not kinds.CAPI_MHC or not decide(check):
        return 0
    return sum(title(machine).startswith(f"{KUBEADM} ") for machine in selection.objects)
