"""A Secret or ConfigMap that a pod mounts and its namespace lacks: whether the VM names it, or a
webhook added it to the pod.

A mutating webhook may add volumes to launcher pods, as Harvester's does by the label
``app: rancher`` in every namespace. Sources:
kubernetes/kubernetes:pkg/volume/secret/secret.go#SetUpAt;
harvester/harvester:pkg/webhook/resources/pod/mutator.go, issue 8962 and pull request 8973.
"""

from __future__ import annotations

import json
import re
from typing import Final

from virt_admit.forecasts.placement.components.drivers import missing_device_files
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import MUTATING_CONFIGURATION, NAMESPACE, VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.webhook_requests import InterceptedRequest, gets
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem

_MISSING: Final = re.compile(
    r'MountVolume\.SetUp failed for volume "([\w.-]{1,250})" : (secret|configmap) '
    r'"([\w.-]{1,250})" not found'
)
_KINDS: Final = {"secret": kinds.guess("v1", "Secret"), "configmap": kinds.guess("v1", "ConfigMap")}
_HARVESTER: Final = "harvester-mutator"
_RANCHER: Final = ("app", "rancher")
READS: Final = missing_device_files.READS


def of_pod(pod: Object, said: str, cluster: Cluster) -> Problem | None:
    """Return the object, or the device file of its node, that a pod lacks by the words of its
    kubelet; None: they name none.
    """
    match = _MISSING.search(said)
    if match is None:
        return missing_device_files.of_pod(pod, said, cluster)
    volume, kind, name = match.groups()
    title = f"{_KINDS[kind].kind} {pod.namespace}/{name}"
    listed = kubectl("get", _KINDS[kind], "", pod.namespace)
    owner = vm_ledger.vmi_of(pod, cluster)
    if owner is None:
        lacks = f"{title} of volume {volume} does not exist"
        return Problem(
            lacks, typed(f"create {title}, or correct the name in what made the pod", listed)
        )
    if _names(owner, name):
        way = f"create {title}, or correct the name in the VM"
        return Problem(f"{title}, which the VM names, does not exist", typed(way, listed))
    adders = _adders(pod, cluster)
    by = f"webhook {names(adders, 80)}" if len(adders) == 1 else "an admission webhook"
    what = f"{by} adds volume {volume}, whose {title} does not exist"
    return Problem(what, _without(pod, owner, adders, title))


def _names(vmi: Object, name: str) -> bool:
    """Return whether the spec of a VMI contains a name as a whole value."""
    return json.dumps(name) in json.dumps(vmi["spec"].value)


def _adders(pod: Object, cluster: Cluster) -> list[str]:
    """Return the webhook configurations that may change this pod when it is created, Harvester's
    alone where it does.
    """
    own = find(cluster, NAMESPACE, "", pod.namespace)
    labels = own.labels if own is not None else None
    request = InterceptedRequest("CREATE", "", "pods", pod.namespace, labels, pod.name, pod.labels)
    found = [
        each.name
        for each in cluster.known(MUTATING_CONFIGURATION)
        if any(gets(webhook, request) is not False for webhook in each["webhooks"].items())
    ]
    return [_HARVESTER] if _HARVESTER in found and _is_rancher(pod) else sorted(found)


def _is_rancher(pod: Object) -> bool:
    key, value = _RANCHER
    return pod.labels.get(key) == value


def _without(pod: Object, vmi: Object, adders: list[str], title: str) -> str:
    """Return how the VM starts without the volume."""
    owner = vmis.owner(vmi, VM.kind)
    if adders == [_HARVESTER] and owner:
        words = (
            "rename the label app: rancher in the VM and restart it; Harvester takes such a pod "
            "for one of Rancher"
        )
        return typed(words, kubectl("edit", VM, owner, pod.namespace))
    if len(adders) == 1:
        shown = kubectl("get", MUTATING_CONFIGURATION, adders[0], "", "-o", "yaml")
        return typed(
            f"let webhook {adders[0]} leave this pod alone; its selectors and the labels of the VM "
            "decide",
            shown,
        )
    listed = kubectl("get", MUTATING_CONFIGURATION)
    return typed(
        f"find the webhook that adds it, and let it leave pods of VMs alone; else it needs {title}",
        listed,
    )
