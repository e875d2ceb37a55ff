"""The phases of hotplugged volumes in ``status.volumeStatus``,
and which volumes the guest does not have.

Source: kubevirt/kubevirt:staging/src/kubevirt.io/api/core/v1/types.go#VolumePhase.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migratability

MOUNTED: Final = "MountedToPod"
LEAVING: Final = ("Detaching", "UnMountedFromPod")
ARRIVING: Final = ("Pending", "Bound", "AttachedToNode", MOUNTED)


def claims(vmi: Object) -> Iterator[tuple[str, str]]:
    """Yield the volumes of a VMI spec that use a claim, each with the claim."""
    for volume in vmi.at("spec", "volumes").items():
        claim = migratability.claim_of(volume)
        if claim is not None and claim.text and volume["name"].text:
            yield volume["name"].text, claim.text
    for volume in vmi.at("spec", "utilityVolumes").items():
        if volume["name"].text and volume["claimName"].text:
            yield volume["name"].text, volume["claimName"].text


def is_utility(vmi: Object, volume: str) -> bool:
    """Whether a volume is for virt-launcher alone: it is complete when it is mounted there
    (types.go#UtilityVolume).
    """
    return vmi.at("spec", "utilityVolumes").named(volume).present


def absent_claims(vmi: Object) -> frozenset[str]:
    """Return the claims of the hotplugged volumes that the guest does not have."""
    known = dict(claims(vmi))
    return frozenset(
        known[status["name"].text or ""]
        for status in vmi.at("status", "volumeStatus").items()
        if status["name"].text in known
        and status["hotplugVolume"].is_map
        and not status["target"].text
        and status["phase"].text in (*LEAVING, *ARRIVING)
    )
