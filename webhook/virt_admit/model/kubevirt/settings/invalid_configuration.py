"""The settings for which KubeVirt ignores its whole configuration and keeps the last valid one.

Source: kubevirt/kubevirt:pkg/virt-config/configuration.go#validateConfig.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes.objects import Field, Object

_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_INTERFACES: Final = ("bridge", "masquerade", "slirp")


def invalid_settings(kubevirt: Object) -> Iterator[tuple[Field, str]]:
    """Yield the invalid settings, each with the values to write.

    Empty text and zero count as absent.
    """
    settings = kubevirt.at("spec", "configuration")
    developer = settings["developerConfiguration"]
    if _unknown(settings["imagePullPolicy"], _PULL_POLICIES):
        yield settings["imagePullPolicy"], "Always, IfNotPresent or Never"
    if _unknown(settings["network"]["defaultNetworkInterface"], _INTERFACES):
        yield settings["network"]["defaultNetworkInterface"], "bridge or masquerade"
    for key in ("memoryOvercommit", "cpuAllocationRatio"):
        if (developer[key].integer or 0) < 0:
            yield developer[key], "a positive number"
    tolerance = developer["pvcTolerateLessSpaceUpToPercent"]
    if not 0 <= (tolerance.integer or 0) <= 100:
        yield tolerance, "a number from 0 to 100"


def _unknown(field: Field, words: tuple[str, ...]) -> bool:
    return bool(field.text) and field.text not in words
