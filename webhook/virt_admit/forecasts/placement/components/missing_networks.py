"""Secondary networks that a VM names and that do not exist: no pod of the VM is made or started,
on whichever node.

The guest runs on without its NetworkAttachmentDefinition, so the loss shows at the next migration
or start alone.
"""

from __future__ import annotations

from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NAD, VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import networks
from virt_admit.model.kubevirt.instances.vms import namespace_of
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause


def problem(network: str, pod: str) -> Problem:
    """Return that a VM gets no new pod without its network, and what ends it.

    ``pod``: what it is called.
    """
    reason = f"no {pod} of it can be made: its network, {NAD.kind} {network}, does not exist"
    return Problem(reason, _way(network), ProblemCause.NETWORK_MISSING)


def _way(network: str) -> str:
    listed = kubectl("get", NAD, "", network.partition("/")[0])
    return typed(f"create {NAD.kind} {network} again, as it was", listed)


def makes_room(fault: str, otherwise: str = "free room or add a node") -> str:
    """Return what lets a pod start that no node takes: its network, if that is its fault."""
    network = networks.of_fault(fault)
    return _way(network) if network else otherwise


def of_start(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that a VM which starts gets no pod without its network; None: all networks exist,
    or that is not known.

    KubeVirt looks a name without a namespace up in that of the VM. Multus may be set to let pods
    use no network of another namespace (k8snetworkplumbingwg/multus-cni:docs/configuration.md).
    """
    network = networks.missing(vmi, cluster)
    if not network:
        return None
    found, (namespace, _, name) = problem(network, "pod"), network.partition("/")
    others = sorted(each.full_name for each in cluster.known(NAD) if each.name == name)
    if not others:
        words = f"create {NAD.kind} {network}, or let the VM name a network that exists"
        return found._replace(remedy=typed(words, kubectl("get", NAD, "", "", "-A")))
    own = find(cluster, VM, namespace_of(vmi), vmi.name) is not None
    command = (
        kubectl("edit", VM, vmi.name, namespace_of(vmi))
        if own
        else kubectl("get", NAD, "", "", "-A")
    )
    words = (
        f"let the VM name its network {others[0]}, unless Multus isolates namespaces, and restart "
        f"it; or create {NAD.kind} {name} in namespace {namespace}"
    )
    return found._replace(
        reason=f"{found.reason}, but {names(others)} does", remedy=typed(words, command)
    )
