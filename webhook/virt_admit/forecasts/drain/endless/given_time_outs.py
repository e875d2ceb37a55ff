"""The time-outs that the owner of a Machine gives it, and those that it does not get any more.

Since Cluster API 1.4 a MachineSet and a KubeadmControlPlane write theirs to Machines that exist,
before to new ones only. They left out a Machine that is being deleted: a MachineSet before 1.8,
a KubeadmControlPlane before 1.9. Such a Machine waits as it was when it was deleted, although the
owner and the other Machines have a limit since. What a user writes to it stays, in contrast to
later releases. Sources: kubernetes-sigs/cluster-api:
internal/controllers/machineset/machineset_controller.go#syncMachines (v1.3.0, v1.4.0, v1.7.9,
v1.8.0), controlplane/kubeadm/internal/controllers/controller.go#syncMachines (v1.8.0, v1.9.0);
issues kubernetes-sigs/cluster-api#10588.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from virt_admit.forecasts.remediation import capi_releases
from virt_admit.forecasts.remediation.capi_releases import release
from virt_admit.model.commands import merge_patch, nested, typed
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, CAPI_MACHINE_SET, KUBEADM
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.lookups import find
from virt_admit.model.problems import Problem
from virt_admit.model.remediation import machine_drain

_FIELDS: Final = ("nodeDrainTimeout", "nodeVolumeDetachTimeout")
READS: Final[Reads] = union(
    clock.READS,
    capi_releases.READS,
    machine_drain.READS,
    {
        kind: tuple(
            f"spec.{at}.{each}"
            for at in places
            for each in (*_FIELDS, *(f"deletion.{field}Seconds" for field in _FIELDS))
        )
        for kind, places in (
            (CAPI_MACHINE_SET, ("template.spec",)),
            (KUBEADM, ("machineTemplate", "machineTemplate.spec")),
        )
    },
)
_IN_PLACE: Final = Version(1, 4)
_OF_DELETED: Final = {CAPI_MACHINE_SET.kind: Version(1, 8), KUBEADM.kind: Version(1, 9)}
"""From these releases on owners give their time-outs also to Machines that are being deleted."""
_SETTING: Final = {kind.kind: kind for kind in (CAPI_MACHINE_SET, KUBEADM)}
_DEPLOYMENT: Final = "cluster.x-k8s.io/deployment-name"


def set_in(machine: Object, cluster: Cluster) -> str:
    """Return kind and name of the object in which the time-outs of a Machine are set so that it
    gets them: the Machine itself, if its owner does not give it any.
    """
    return f"Machine {machine.name}" if _is_left_out(machine, cluster) else _owner_title(machine)


def of_drain(machine: Object, cluster: Cluster) -> int | None:
    """Return after how many seconds the drain ends of a Machine that is, or will be, deleted; None:
    never. Where its owner sets this, what a user wrote to the Machine does not stay.
    """
    owner = None if _is_left_out(machine, cluster) else _owner(machine, cluster)
    if owner is None:
        return machine_drain.timeout(machine)
    return _set_by(owner, "nodeDrainTimeout")[1]


def not_got(machine: Object, cluster: Cluster, field: str = "nodeDrainTimeout") -> Problem | None:
    """Return that the owner of a Machine that is being deleted sets a limit that the Machine does
    not get any more, and the command that sets it there; None: nothing says so.

    The reason is a clause, as ``MachineDeployment a sets 15m0s, but Cluster API 1.7.1 …``.
    """
    owner, limit = _owner(machine, cluster), machine_drain.seconds_of(machine["spec"], field)
    if owner is None or limit is not None or not _is_left_out(machine, cluster):
        return None
    found, seconds = _set_by(owner, field)
    if not machine.deleted or seconds is None:
        return None
    value = clock.duration(timedelta(seconds=clock.bounded(seconds)))
    why = (
        f"{_owner_title(machine)} sets {value}, but Cluster API {release(cluster)} does not give "
        "that to a Machine that is being deleted"
    )
    path = [step for step in found.path if step not in ("template", "machineTemplate", "spec")]
    data = nested(("spec", *path), found.value)
    patch = merge_patch(CAPI_MACHINE, machine.name, machine.namespace, data)
    return Problem(why, patch, brief=f"that of {_owner_title(machine)}, {value}, does not reach it")


def owner_seconds(machine: Object, cluster: Cluster) -> int | None:
    """Return the limit of a drain that the owner of a Machine sets; None: none."""
    owner = _owner(machine, cluster)
    return _set_by(owner, "nodeDrainTimeout")[1] if owner is not None else None


def lack(machine: Object, cluster: Cluster, field: str = "nodeDrainTimeout") -> str:
    """Return why a step of the deletion of a Machine has no limit, as a clause."""
    why, missed = machine_drain.no_timeout(machine, field), not_got(machine, cluster, field)
    return f"{why} there ({missed.reason})" if missed is not None else why


def way(machine: Object, cluster: Cluster) -> str:
    """Return the sentence that says how the drain gets the limit of the owner; empty: its Machine
    gets it, or there is none.
    """
    missed = not_got(machine, cluster)
    return f" {typed(_WAY, missed.remedy)}" if missed is not None else ""


_WAY: Final = (
    "To end this wait with what is left on the node, as a decision, set the limit on the Machine "
    "itself, which counts from the begin of its drain"
)


def _is_left_out(machine: Object, cluster: Cluster) -> bool:
    """Return whether the owner of a Machine certainly does not write its time-outs to it."""
    reference, runs = _owner_of(machine), release(cluster)
    if reference is None or runs is None:
        return False
    since = _OF_DELETED[reference["kind"].text or ""] if machine.deleted else _IN_PLACE
    return runs < since


def _set_by(owner: Object, field: str) -> tuple[Field, int | None]:
    """Return the field of an owner with a time-out of its Machines, and the seconds."""
    template = owner.at("spec", "template" if owner.kind == CAPI_MACHINE_SET.kind else _MACHINES)
    for spec in (template["spec"], template):
        newer = spec.at("deletion", f"{field}Seconds")
        if (found := newer if newer.present else spec[field]).present:
            return found, machine_drain.seconds_of(spec, field)
    return Field(None), None


_MACHINES: Final = "machineTemplate"


def _owner_title(machine: Object) -> str:
    reference = _owner_of(machine)
    if reference is None:
        return f"Machine {machine.name}"
    deployment = machine.labels.get(_DEPLOYMENT)
    if deployment and reference["kind"].text == CAPI_MACHINE_SET.kind:
        return f"MachineDeployment {deployment}"
    return f"{reference['kind'].text} {reference['name'].text}"


def _owner(machine: Object, cluster: Cluster) -> Object | None:
    """Return the owner that sets the time-outs of a Machine; None: it has none,
    or that is not known.
    """
    reference = _owner_of(machine)
    if reference is None:
        return None
    kind = _SETTING[reference["kind"].text or ""]
    return find(cluster, kind, machine.namespace, reference["name"].text)


def _owner_of(machine: Object) -> Field | None:
    """Return the reference to that owner; None: there is none."""
    reference = machine.controller if kinds.of(machine) is CAPI_MACHINE else None
    return reference if reference is not None and reference["kind"].text in _SETTING else None
