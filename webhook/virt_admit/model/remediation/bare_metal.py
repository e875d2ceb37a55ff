"""Whether the machines of a health check are bare metal,
which takes much longer to become a node than a VM.
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
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


def host_shortage(machine: Object, cluster: Cluster) -> str:
    """Return why a Machine without a host gets none, as ``all 6 BareMetalHosts are in use``; empty:
    that is not known.
    """
    has_host = (
        machine.annotation(HOST).present
        or machine.condition("InfrastructureReady")["status"].text == "True"
    )
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
    if any(each.at("status", "provisioning", "state").text in _FREE for each in idle):
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
