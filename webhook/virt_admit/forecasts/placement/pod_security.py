"""Whether the API server takes another launcher pod of a VM where the namespace enforces Pod
Security.

The level may have been set after the VM was started. Exemptions are files of the API server, which
nothing else can read. Sources:
kubernetes/pod-security-admission:policy/check_seccompProfile_restricted.go;
kubevirt/kubevirt:pkg/virt-controller/services/template.go#computePodSecurityContext.
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.placement.running_launchers import launchers
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NAMESPACE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.problems import Problem

READS: Final[Reads] = {POD: ("spec.securityContext.seccompProfile.type",)}

_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_PROFILE: Final = ("spec", "configuration", "seccompConfiguration", "virtualMachineInstanceProfile")


def doubt(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why the API server may refuse another launcher pod of a running VMI; None:
    nothing speaks against it.

    A pod that was admitted under the level ``restricted`` has a seccomp profile, be it from
    KubeVirt or from a SecurityContextConstraint.

    Raises:
        Unseen: the namespace cannot be read.
    """
    name = vms.namespace_of(vmi)
    namespace = cluster.get(NAMESPACE, "", name)
    if namespace is None or namespace.labels.get(_ENFORCE) != "restricted":
        return None
    running = launchers(cluster).on_node(vmi)
    if running is None or running.at("spec", "securityContext", "seccompProfile", "type").text:
        return None
    kubevirt = configuration.kubevirt_in_effect(cluster)
    if kubevirt is not None and kubevirt.at(*_PROFILE).present:
        return None
    return Problem(
        f"namespace {name} enforces Pod Security restricted, and its launcher pod has no seccomp "
        "profile: the API server may refuse the next one",
        "set seccompConfiguration of KubeVirt, or let the namespace enforce another level",
    )
