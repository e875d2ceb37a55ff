"""Nodes of bare metal whose Machine is being deleted and whose host is deprovisioned already.

Such a host is installed again, so its node is neither repaired, fenced nor uncordoned. A
MachineHealthCheck of OpenShift deletes Machines, unless it leaves the node to the bare metal
operator or to a remediation template, which power-cycle the host. Its pods stay until the Node
goes with the Machine, though the host runs Ironic's system by then, or is off.

Sources: openshift/machine-api-operator:
pkg/controller/machinehealthcheck/machinehealthcheck_controller.go#internalRemediation;
openshift/cluster-api-provider-baremetal:pkg/cloud/baremetal/actuators/machine/actuator.go#Delete;
metal3-io/baremetal-operator:apis/metal3.io/v1alpha1/baremetalhost_types.go#ProvisioningState
#OperationHistory, :internal/controller/metal3.io/host_state_machine.go#handleDeprovisioning (it
gives up after three failures only where the BareMetalHost itself is being deleted).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import BARE_METAL_HOST, MACHINE, MHC, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle
from virt_admit.model.remediation import bare_metal, health_checks

_BEGUN: Final = "status.operationHistory.deprovision.start"
READS: Final[Reads] = union(
    bare_metal.POWER_READS,
    machine_nodes.READS,
    clock.READS,
    {
        BARE_METAL_HOST: (_BEGUN,),
        MACHINE: ("metadata.deletionTimestamp",),
        MHC: (f"metadata.annotations.{health_checks.STRATEGY}", "spec.remediationTemplate"),
    },
)
_EMPTIED: Final = "deprovisioning"
_USUAL: Final = timedelta(hours=1)
"""A host is emptied in minutes where the metadata of its disks is erased, as by default."""
_LONGEST: Final = 200


def advice(node: str, cluster: Cluster) -> str:
    """Return what to do about a silent node whose host is deprovisioned, as its Machine is being
    deleted; empty: that is not so, or not known.
    """
    host = bare_metal.host_of(node, cluster)
    if host is None or host.at("status", "provisioning", "state").text != _EMPTIED:
        return ""
    owner = host.at("spec", "consumerRef")
    space, name = owner["namespace"].text or host.namespace, owner["name"].text or ""
    machine = find(cluster, MACHINE, space, name)
    if machine is None or not machine.deleted:
        return ""
    free = (
        "To free its VMs at once, as a decision, once its console shows that it is off or is being "
        f"cleaned, delete the Node ({kubectl('delete', NODE, node)})"
    )
    if failed := _failure(host):
        way = (
            f"{failed}. Do not repair or uncordon {node}: its Machine {machine.full_name} is "
            f"deleted once that host is deprovisioned, to be installed again. {free}"
        )
        return typed(way, about("describe", host, BARE_METAL_HOST))
    wait = (
        f"do not repair or uncordon {node}, and wait until Machine {machine.full_name} is deleted, "
        f"whose BareMetalHost {host.name} is being deprovisioned to be installed again"
        f"{_overdue(host, machine, cluster)}. {free}"
    )
    check = _deleter(machine, cluster)
    if check is None:
        return typed(wait, about("describe", host, BARE_METAL_HOST))
    asked = f"MachineHealthCheck {check.name} has asked for that deletion"
    view = health_checks.view(check)
    if view.external or view.template.present:  # it was changed afterwards
        return typed(f"{wait}. {asked}", about("describe", host, BARE_METAL_HOST))
    lacks = (
        f"as it has neither spec.remediationTemplate nor {health_checks.STRATEGY}="
        f"{health_checks.EXTERNAL}"
    )
    setting = f"{health_checks.STRATEGY}={health_checks.EXTERNAL}"
    return typed(
        f"{wait}. {asked}, {lacks}. So that it power-cycles hosts the next time, annotate it",
        about("annotate", check, MHC, setting, "--overwrite"),
    )


def _failure(host: Object) -> str:
    """Return what to repair so that a host is deprovisioned; empty: it reports no error.

    The operator tries again without end.
    """
    status = host["status"]
    said = status["errorMessage"].words
    if status["operationalStatus"].text != "error" and not said:
        return ""
    error = status["errorType"].text or ""
    what = "the power management (BMC)" if bare_metal.power_error(host) else "the fault"
    words = ": ".join(filter(None, (error, cut_middle(said, _LONGEST)))).rstrip(".")
    return (
        f"repair {what} of BareMetalHost {host.name}, whose deprovisioning fails"
        f"{f' ({words})' if words else ''}"
    )


def _overdue(host: Object, machine: Object, cluster: Cluster) -> str:
    """Return that a host should be deprovisioned by now, as the end of a clause; empty: it need
    not, or since when that lasts is not known.
    """
    began = host.at(*_BEGUN.split(".")).text or machine.metadata["deletionTimestamp"].text
    age = clock.since(began, cluster)
    if age is None or age < _USUAL:
        return ""
    return f" (for {clock.duration(age)}, which is unusual: see what it waits for)"


def _deleter(machine: Object, cluster: Cluster) -> Object | None:
    """Return the health check that an event names as the one that has deleted a Machine; None: no
    known one does.
    """
    for event in events.known(MACHINE.kind, "MachineDeleted", cluster):
        target = event["involvedObject"]
        if (target["namespace"].text, target["name"].text) != (machine.namespace, machine.name):
            continue
        said = (event["message"].text or "").removeprefix(f"Machine {machine.namespace}/")
        check, _, rest = said.partition("/")
        if rest.startswith(f"{machine.name}/"):
            return find(cluster, MHC, machine.namespace, check)
    return None
