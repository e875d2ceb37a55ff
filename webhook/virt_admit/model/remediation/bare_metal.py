"""Whether the machines of a health check are bare metal,
which takes much longer to become a node than a VM.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.units import MINUTE
from virt_admit.model.messages import names
from virt_admit.model.remediation import check_scope, health_checks, machines

READS: Final[Reads] = union(
    machines.SELECT_READS,
    {
        kinds.MACHINE: ("spec.providerSpec.value.instanceType", "spec.providerSpec.value.kind"),
        kinds.CAPI_MACHINE: ("spec.infrastructureRef.kind",),
        kinds.INFRASTRUCTURE: (),
    },
)
"""The fields that ``reason`` reads."""

_PROVIDERS: Final = ("Metal3", "BareMetal", "Tinkerbell")
"""The first words of the kinds of bare metal providers: Metal3Machine,
BareMetalMachineProviderSpec.
"""

_METAL_TYPE: Final = re.compile(r"\.metal(-[a-z0-9]+)?\Z")
"""Instance types such as ``c5.metal`` and ``c7i.metal-24xl``."""


HOST: Final = "metal3.io/BareMetalHost"
"""The annotation of a Machine of OpenShift with its host."""
ENOUGH: Final = 20 * MINUTE
"""Nanoseconds that a host of bare metal usually needs at most to become a node: it tests its
hardware and is written.
"""


def reason(obj: Object, cluster: Cluster) -> str:
    """Return why the machines of a health check are bare metal; empty if they are not.

    Raises:
        Unseen: a machine or the platform that decides cannot be read.
    """
    check = health_checks.view(obj)
    kind = check.template["kind"].text or ""
    if check.external or kind.startswith(_PROVIDERS):
        return "hosts" if check.external else kind
    selection = check_scope.selected_by(check, cluster)
    for machine in selection.objects:
        found = _of_machine(machine)
        if found:
            return found
    if check.kind is kinds.MHC and machines.platform(cluster) == "BareMetal":
        return "platform BareMetal"
    if selection.unseen:
        raise Unseen(selection.unseen)
    return ""


def _of_machine(machine: Object) -> str:
    if kinds.of(machine) is kinds.CAPI_MACHINE:
        kind = machine.at("spec", "infrastructureRef", "kind").text or ""
    else:
        spec = machine.at("spec", "providerSpec", "value")
        instance_type = spec["instanceType"].text or ""
        if _METAL_TYPE.search(instance_type):
            return instance_type
        kind = spec["kind"].text or ""
    return kind if kind.startswith(_PROVIDERS) else ""


# --- hosts ----------------------------------------------------------------------------------------

HOST_READS: Final[Reads] = {
    kinds.BARE_METAL_HOST: ("spec.consumerRef", "status.provisioning.state"),
    kinds.MACHINE: (f"metadata.annotations.{HOST}", "spec.providerSpec.value.kind"),
    kinds.CAPI_MACHINE: (
        "spec.infrastructureRef.kind",
        "spec.infrastructureRef.name",
        "status.conditions",
        "status.v1beta2.conditions",
    ),
}
"""The fields that ``host_shortage`` reads."""
_FREE: Final = ("available", "ready")
"""The states of a host that a Machine can get
(openshift/cluster-api-provider-baremetal:pkg/cloud/baremetal/actuators/machine/
actuator.go#chooseHost;
metal3-io/cluster-api-provider-metal3:baremetal/metal3machine_manager.go#chooseHost).
"""


def free_hosts(cluster: Cluster) -> int | None:
    """Return how many known hosts a Machine can get; None: no host is known."""
    known = cluster.known(kinds.BARE_METAL_HOST)
    return sum(map(_is_free, known)) if known else None


def _is_free(host: Object) -> bool:
    taken = host.at("spec", "consumerRef").present
    return not taken and host.at("status", "provisioning", "state").text in _FREE


def host_shortage(machine: Object, cluster: Cluster) -> str:
    """Return why a Machine without a host gets none, as ``all 6 BareMetalHosts are in use``; empty:
    that is not known.
    """
    has_host = machine.annotation(HOST).present or machine.is_true("InfrastructureReady")
    if has_host or not _of_machine(machine):
        return ""
    try:
        found = [
            each
            for each in cluster.list(kinds.BARE_METAL_HOST)
            if each.namespace == machine.namespace
        ]
    except Unseen:
        return ""
    consumer = _consumer(machine)
    if any(each.at("spec", "consumerRef", "name").text == consumer for each in found):
        return ""
    idle = [each for each in found if not each.at("spec", "consumerRef").present]
    if any(map(_is_free, idle)):
        return ""
    if not idle:
        all_of_them = (
            f"all {len(found)} BareMetalHosts are"
            if len(found) > 1
            else "the only BareMetalHost is"
        )
        return f"{all_of_them} in use" if found else "no BareMetalHost exists"
    states = names(
        f"{each.name} is in state {each.at('status', 'provisioning', 'state').text or '?'}"
        for each in idle
    )
    return f"no BareMetalHost is available: {states}"


def _consumer(machine: Object) -> str:
    """Return the name in ``consumerRef`` of the host of a Machine:
    with Cluster API that of its Metal3Machine.

    Source:
    metal3-io/cluster-api-provider-metal3:baremetal/metal3machine_manager.go#setHostConsumerRef.
    """
    if kinds.of(machine) is kinds.CAPI_MACHINE:
        return machine.at("spec", "infrastructureRef", "name").text or machine.name
    return machine.name


# --- hosts that are to be powered off -------------------------------------------------------------

POWER_READS: Final[Reads] = union(
    HOST_READS,
    machine_nodes.READS,
    {
        kinds.BARE_METAL_HOST: (
            "metadata.annotations",
            "spec.bmc",
            "status.errorMessage",
            "status.errorType",
            "status.operationalStatus",
            "status.poweredOn",
        )
    },
)
"""The fields that ``host_of`` and the questions about a host read."""
_TO_BE_OFF: Final = "reboot.metal3.io/"
"""The begin of the annotations that keep a host off while they are there; a remediation sets one
(metal3-io/baremetal-operator:internal/controller/metal3.io/baremetalhost_controller.go
#manageHostPower #hasRebootAnnotation;
openshift/cluster-api-provider-baremetal:pkg/cloud/baremetal/actuators/machine/actuator.go
#requestPowerOff; metal3-io/cluster-api-provider-metal3:baremetal/metal3remediation_manager.go).
"""
_OF_POWER: Final = (
    *("registration error", "provisioned registration error"),
    "power management error",
)
"""The errors of a host whose management controller cannot be reached, or does not obey
(metal3-io/baremetal-operator:apis/metal3.io/v1alpha1/baremetalhost_types.go#ErrorType).
"""


def host_of(node: str, cluster: Cluster) -> Object | None:
    """Return the known BareMetalHost of a node; None: none is known."""
    return _hosts(cluster).get(node)


@cached
def _hosts(cluster: Cluster) -> Mapping[str, Object]:
    """Return the known hosts by the names of their nodes."""
    consumers = {
        (consumer["namespace"].text or host.namespace, consumer["name"].text): host
        for host in cluster.known(kinds.BARE_METAL_HOST)
        if (consumer := host.at("spec", "consumerRef")).present
    }
    known = (kinds.MACHINE, kinds.CAPI_MACHINE) if consumers else ()
    return {
        name: host
        for kind in known
        for machine in cluster.known(kind)
        if (host := consumers.get((machine.namespace, _consumer(machine)))) is not None
        if (name := machine_nodes.node_name(machine, cluster))
    }


def is_asked_off(host: Object) -> bool:
    """Return whether a host is to be off and is not known to be.

    A remediation lets the VMs of its node start elsewhere only once it is (#remediateIfNeeded;
    metal3-io/cluster-api-provider-metal3:controllers/metal3remediation_controller.go
    #remediateRebootStrategy).
    """
    return host.at("status", "poweredOn").boolean is not False and any(
        key.startswith(_TO_BE_OFF) for key in host.annotations
    )


def power_error(host: Object) -> str:
    """Return which error keeps a host from being powered off; empty: it reports none."""
    status = host["status"]
    error = status["errorType"].text or ""
    return error if status["operationalStatus"].text == "error" and error in _OF_POWER else ""
