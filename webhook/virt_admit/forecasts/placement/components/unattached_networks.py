"""Secondary networks that new pods do not get, because Multus is not called: its CNI configuration
is not the first one.

Multus writes the annotation ``network-status`` before a pod has its address. A pod that asks for
networks and runs without it got the network of the cluster alone. By ``cni-exclusive`` the agent of
Cilium renames all other CNI configurations of its node to ``*.cilium_bak``
(cilium/cilium:daemon/cmd/cni/config.go; k8snetworkplumbingwg/multus-cni issue 1132). Pods that run
keep their networks, so the loss shows at the next start or migration alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.placement.components import node_pods
from virt_admit.model.commands import kubectl, logs_of, merge_patch, typed
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.kubevirt.instances import networks
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.kubevirt.launcher.launcher_pod import is_launcher
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause

_ASKED: Final = "k8s.v1.cni.cncf.io/networks"
_GIVEN: Final = ("k8s.v1.cni.cncf.io/network-status", "k8s.v1.cni.cncf.io/networks-status")
READS: Final[Reads] = {
    POD: (
        *(f"metadata.annotations.{key}" for key in (_ASKED, *_GIVEN)),
        "metadata.creationTimestamp",
        "metadata.labels",
        "spec.nodeName",
        "status.phase",
        "status.podIP",
    ),
    VMI: (*CONDITIONS, "spec.networks", "status.phase"),
}
_CONFIG_MAP: Final = kinds.guess("v1", "ConfigMap")
"""A snapshot may hold it. It is not read from a live cluster,
where it would need a right to read ConfigMaps.
"""
_OF_CILIUM: Final = "cilium-config"
_SETTING: Final = "cni-exclusive"
_MULTUS: Final = "multus"


def of_start(vmi: Object, pod: Object | None, cluster: Cluster) -> Problem | None:
    """Return that the pod in which a VMI starts has none of its secondary networks; None: it has,
    or that is not known.
    """
    if pod is None or not _is_without(pod) or not _fails(vmi):
        return None
    asked = names(name.text or "" for name in networks.secondary(vmi))
    node = pod.at("spec", "nodeName").text or ""
    reason = (
        f"its pod on {node} runs without network {asked}: it has no annotation network-status, so "
        "Multus was not called"
    )
    return Problem(f"{reason}{_why(cluster)}", _remedy(node, cluster), ProblemCause.NOT_REPORTED)


def doubt(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that a new pod of a VM may get none of its secondary networks, as another one; None:
    nothing says so.
    """
    if next(networks.secondary(vmi), None) is None:
        return None
    pod = cluster.cached(_last_without)
    if pod is None:
        return None
    node = pod.at("spec", "nodeName").text or ""
    reason = (
        f"its new pod may get no secondary network, as pod {pod.full_name} on {node}: Multus was "
        "not called for it"
    )
    return Problem(f"{reason}{_why(cluster)}", _remedy(node, cluster))


def _is_without(pod: Object) -> bool:
    """Return whether a pod asked for secondary networks and runs without an answer of Multus."""
    runs = pod.at("status", "phase").text == "Running" and bool(pod.at("status", "podIP").text)
    return (
        runs
        and bool(pod.annotations.get(_ASKED))
        and not any(pod.annotations.get(key) for key in _GIVEN)
    )


def _fails(vmi: Object) -> bool:
    """Return whether virt-handler cannot start the guest of a VMI in its pod."""
    return (
        vmi.at("status", "phase").text == "Scheduled"
        and vmi.condition("Synchronized")["status"].text == "False"
    )


def _last_without(cluster: Cluster) -> Object | None:
    """Return the newest launcher pod that failed for want of its networks, unless a later one got
    them: Multus works again.
    """
    launchers = [pod for pod in cluster.known(POD) if is_launcher(pod)]
    failed = max(
        (pod for pod in launchers if _is_without(pod) and _of_failing(pod, cluster)),
        key=_created,
        default=None,
    )
    served = (pod for pod in launchers if any(pod.annotations.get(key) for key in _GIVEN))
    if failed is not None and all(_created(pod) <= _created(failed) for pod in served):
        return failed
    return None


def _created(pod: Object) -> float:
    moment = clock.instant(pod.created)
    return moment.timestamp() if moment is not None else 0


def _of_failing(pod: Object, cluster: Cluster) -> bool:
    vmi = vm_ledger.vmi_of(pod, cluster)
    return vmi is not None and _fails(vmi)


# --- what keeps Multus from being called ----------------------------------------------------------


def _exclusive(cluster: Cluster) -> Object | None:
    """Return the configuration of Cilium that allows no other CNI configuration; None: there is
    none, or it is not known.
    """
    for namespace in sorted(set(_namespaces_of_cilium(cluster))):
        found = find(cluster, _CONFIG_MAP, namespace, _OF_CILIUM)
        if found is not None and found.at("data", _SETTING).text == "true":
            return found
    return None


def _namespaces_of_cilium(cluster: Cluster) -> Iterator[str]:
    return (
        pod.namespace or "" for pod in cluster.known(POD) if pod.labels.get("k8s-app") == "cilium"
    )


def _why(cluster: Cluster) -> str:
    found = _exclusive(cluster)
    if found is None:
        return ""
    where = f'{_SETTING} is "true" in ConfigMap {found.full_name}'
    return f". {where}: Cilium renames the CNI configuration of Multus on each node"


def _remedy(node: str, cluster: Cluster) -> str:
    found = _exclusive(cluster)
    again = "restart the pods of Cilium and of Multus, then restart the VMs that do not start"
    if found is not None:
        patch = merge_patch(
            _CONFIG_MAP, found.name, found.namespace or "", {"data": {_SETTING: "false"}}
        )
        return typed(
            f"set cni.exclusive=false in the Helm values of Cilium (or {_SETTING} here), {again}",
            patch,
        )
    namespaces = sorted(set(_namespaces_of_cilium(cluster)))
    if namespaces and find(cluster, _CONFIG_MAP, namespaces[0], _OF_CILIUM) is None:
        shown = kubectl("get", _CONFIG_MAP, _OF_CILIUM, namespaces[0], "-o", "yaml")
        return typed(
            f"see whether {_SETTING} of Cilium is true, which switches Multus off. Set it to "
            f"false, {again}",
            shown,
        )
    pod = next((each for each in node_pods.of_node(node, cluster) if _MULTUS in each.name), None)
    words = (
        f"see why the CNI configuration of Multus is not the first one in /etc/cni/net.d on {node}"
    )
    return typed(words, logs_of(pod) if pod is not None else "")
