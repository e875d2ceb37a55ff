"""Whether KubeVirt applies changes of a VM's node selector and affinity to its running VMI.

``vmRolloutStrategy`` is LiveUpdate by default since 1.6, before that Stage. A VM with the condition
RestartRequired is left out. Sources: kubevirt/kubevirt:pkg/virt-config/virt-config.go
#DefaultVMRolloutStrategy, pkg/virt-controller/watch/vm/vm.go#handleAffinityChangeRequest.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubevirt.settings.configuration import known_or_none, kubevirt
from virt_admit.model.kubevirt.settings.versions import (
    Gate,
    Version,
    gate_is_known_on,
    kubevirt_version,
)

STRATEGY: Final = ("spec", "configuration", "vmRolloutStrategy")
_LIVE_SINCE: Final = Version(1, 6)


def is_live(cluster: Cluster) -> bool | None:
    """Return whether such changes reach a running VMI; None: not known."""
    found = known_or_none(kubevirt, cluster)
    if found is None:
        return None
    strategy = found.at(*STRATEGY).text
    if strategy is not None:
        return strategy == "LiveUpdate" and gate_is_known_on(cluster, Gate.VM_LIVE_UPDATE)
    version = kubevirt_version(cluster)
    return None if version is None else version >= _LIVE_SINCE


def is_staged(cluster: Cluster) -> bool:
    """Return whether KubeVirt is known to keep each change of a VM until its next start."""
    found = known_or_none(kubevirt, cluster)
    return found is not None and found.at(*STRATEGY).text == "Stage"


def effect(cluster: Cluster) -> str:
    """Return how such a change of a VM takes effect: what follows its words."""
    live = is_live(cluster)
    if live is None:
        return ", and restart the VM if vmRolloutStrategy is Stage"
    return _LIVE if live else ", and restart the VM"


_LIVE: Final = ", which the running VM gets without a restart (unless it has RestartRequired)"
