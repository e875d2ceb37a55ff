"""Target pods of migrations without the annotation from which a network binding plugin learns its
device.

KubeVirt before 1.6.3 writes ``kubevirt.io/network-info`` only once a pod is the active one of its
VMI, which is after the migration. SR-IOV devices are attached then too. A binding plugin with
``downwardAPI: device-info`` needs it before QEMU starts on the target. Sources:
kubevirt/kubevirt:pkg/network/pod/annotations/generator.go#GenerateFromActivePod,
pkg/virt-controller/watch/migration/migration.go (since 1.6.3 and 1.7.0, #15663), issue #15634.
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.commands import typed, virtctl
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBEVIRT, POD, VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher.launcher_pod import CREATED_BY, MIGRATION_JOB
from virt_admit.model.kubevirt.settings import configuration, versions
from virt_admit.model.kubevirt.settings.configuration import known_or_none
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause

_INFO: Final = "kubevirt.io/network-info"
_STATUS: Final = "k8s.v1.cni.cncf.io/network-status"
_DEVICE: Final = "device-info"
"""The value of ``downwardAPI`` of a binding, and the key of Multus in the status of a network."""
READS: Final[Reads] = {
    KUBEVIRT: (),
    POD: (
        *(f"metadata.annotations.{key}" for key in (_INFO, _STATUS)),
        *(f"metadata.labels.{key}" for key in (CREATED_BY, MIGRATION_JOB)),
    ),
}


def problem(vmi: Object, failure: str, cluster: Cluster) -> Problem | None:
    """Return that the target pods of a VMI lack what the plugin of its interface needs; None: the
    migration failed for another reason, or not known.

    ``failure``: the words of the failed migration, which name the interface.
    """
    bound = _plugin(vmi, failure, cluster)
    release = versions.kubevirt_version(cluster)
    if bound is None or release is None or release >= versions.Feature.TARGET_NETWORK_INFO.since:
        return None
    plugin, interface = bound
    uid = vmi.metadata["uid"].text or "-"
    own = [
        pod
        for pod in cluster.known(POD, vms.namespace_of(vmi))
        if pod.labels.get(CREATED_BY) == uid and _DEVICE in (pod.annotation(_STATUS).text or "")
    ]
    targets = [pod for pod in own if pod.labels.get(MIGRATION_JOB)]
    without = [pod.name for pod in targets if not pod.annotation(_INFO).present]
    if not without or len(without) != len(targets):
        return None
    reason = (
        f"KubeVirt {release} gives no target pod the annotation {_INFO} (missing in "
        f"{names(without, 80)}), which network binding {plugin} of interface {interface} needs "
        f"(downwardAPI: {_DEVICE}), so no node and no retry helps: {failure}"
    )
    fixed = f"update KubeVirt to {versions.Feature.TARGET_NETWORK_INFO.since} or later"
    owner = vmi.owned_by(VM.kind)
    command = virtctl("restart", owner, vms.namespace_of(vmi)) if owner else ""
    until = "until then the VM leaves its node by a restart alone, which shuts its guest down"
    remedy = typed(f"{fixed}; {until}", command)
    return Problem(reason, remedy, ProblemCause.MIGRATION_FAILS, command=command)


def is_cause(found: Problem | None) -> bool:
    """Return whether a problem is that of ``problem``."""
    return found is not None and f"gives no target pod the annotation {_INFO}" in found.reason


def _plugin(vmi: Object, failure: str, cluster: Cluster) -> tuple[str, str] | None:
    """Return the plugin that needs the annotation, and its interface that a failure names."""
    kubevirt = known_or_none(configuration.kubevirt, cluster)
    if kubevirt is None:
        return None
    plugins = kubevirt.at("spec", "configuration", "network", "binding")
    for interface in vmi.at("spec", "domain", "devices", "interfaces").items():
        plugin, name = interface.at("binding", "name").text, interface["name"].text
        if (
            plugin
            and name
            and plugins[plugin]["downwardAPI"].text == _DEVICE
            and re.search(rf"\b{re.escape(name)}\b", failure)
        ):
            return plugin, name
    return None
