"""VMs in a namespace that is being deleted: the API server creates no migration and no pod in it.

Source: k8s.io/apiserver:pkg/admission/plugin/namespace/lifecycle/admission.go#Admit.
"""

from __future__ import annotations

from virt_admit.model import api_discovery
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NAMESPACE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem, ProblemCause

_REMAINS = (
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionContentFailure",
    "NamespaceContentRemaining",
)
"""The conditions that say why a namespace stays, the cause before its effects."""


def reason(vmi: Object, cluster: Cluster) -> str:
    """Return that the namespace of a VMI is being deleted; empty: it is not,
    or that is not known.
    """
    namespace = find(cluster, NAMESPACE, "", vms.namespace_of(vmi))
    if namespace is None or not namespace.deleted:
        return ""
    said = (
        condition
        for kind in _REMAINS
        if (condition := namespace.condition(kind))["status"].text == "True"
    )
    words = next((each["message"].text for each in said if each["message"].text), "")
    why = f" ({cut_middle(words, 200)})" if words else ""
    return f"namespace {namespace.name} is being deleted{why}"


def problem(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why no migration of a VMI can be created; None: nothing says so."""
    why = reason(vmi, cluster)
    if not why:
        return None
    command = kubectl("get", NAMESPACE, vms.namespace_of(vmi), "", "-o", "yaml")
    failing = _failing(vmi, cluster)
    if failing:
        return Problem(
            f"no migration can be created: {why}",
            f"{failing}; or stop the VM",
            ProblemCause.NOT_CREATED,
        )
    remedy = "remove what keeps the namespace, or stop the VM"
    return Problem(
        f"no migration can be created: {why}", remedy, ProblemCause.NOT_CREATED, command=command
    )


def of_start(vm: Object, cluster: Cluster) -> Problem | None:
    """Return why a VM that does not run gets no pod; None: nothing says so."""
    why = reason(vm, cluster)
    if not why:
        return None
    shown = kubectl("get", NAMESPACE, vms.namespace_of(vm), "", "-o", "yaml")
    # a namespace that is being deleted never comes back
    way = "if it is needed, create it in another namespace, with copies of its disks"
    return Problem(
        f"no VMI and no pod can be created: {why}", typed(way, shown), ProblemCause.NOT_CREATED
    )


def _failing(vmi: Object, cluster: Cluster) -> str:
    """Return which APIService keeps the namespace of a VMI, and what to do with it; empty:
    none is known to.
    """
    namespace = find(cluster, NAMESPACE, "", vms.namespace_of(vmi))
    api = (
        next(iter(api_discovery.failing(namespace, cluster)), None)
        if namespace is not None
        else None
    )
    if api is None:
        return ""
    remedy = api_discovery.remedy(api, cluster)
    return typed(remedy.words.replace("this APIService", f"APIService {api.name}"), remedy.command)
