"""How an administrator looks into a guest: its serial console, or its screen.

The serial console of Windows shows nothing unless its Special Administration Console is switched
on. Sources: kubevirt/kubevirt:staging/src/kubevirt.io/api/core/v1/types.go#PreferenceAnnotation
#ClusterPreferenceAnnotation; kubevirt/common-templates:templates/windows2k22.tpl.yaml
(vm.kubevirt.io/os). The guest agent reports ``mswindows``, and Harvester's page sets its label.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.commands import virtctl
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms

_LABEL: Final = "harvesterhci.io/os"
_ANNOTATIONS: Final = (
    "vm.kubevirt.io/os",
    "kubevirt.io/preference-name",
    "kubevirt.io/cluster-preference-name",
)
READS: Final[Reads] = {
    VMI: (
        f"metadata.labels.{_LABEL}",
        *(f"metadata.annotations.{each}" for each in _ANNOTATIONS),
        "status.guestOSInfo.id",
    )
}


def command(vmi: Object) -> str:
    """Return the command that shows what a guest does."""
    verb = "vnc" if _is_windows(vmi) else "console"
    return virtctl(verb, vmi.name, vms.namespace_of(vmi))


def _is_windows(vmi: Object) -> bool:
    if known := vmi.at("status", "guestOSInfo", "id").text:  # the guest itself says so
        return known == "mswindows"
    said = (vmi.labels.get(_LABEL), *(vmi.annotations.get(each) for each in _ANNOTATIONS))
    return any(str(each or "").startswith("windows") for each in said)
