"""Whether the machines of a health check are bare metal, which takes much longer to become a node than a VM."""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.units import MINUTE
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
"""The first words of the kinds of bare metal providers: Metal3Machine, BareMetalMachineProviderSpec."""

_METAL_TYPE: Final = re.compile(r"\.metal(-[a-z0-9]+)?\Z")
"""Instance types such as ``c5.metal`` and ``c7i.metal-24xl``."""


ENOUGH: Final = 20 * MINUTE
"""Nanoseconds that a host of bare metal usually needs at most to become a node: it tests its hardware and is written."""


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
