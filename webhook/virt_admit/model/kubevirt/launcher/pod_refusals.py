"""What ends the refusal of a pod or a VMI by the API server, from the words of the refusal.

A quota is told by its amounts elsewhere. Sources:
kubernetes/kubernetes:plugin/pkg/admission/priority/admission.go,
:plugin/pkg/admission/runtimeclass/admission.go, :plugin/pkg/admission/serviceaccount/admission.go,
:plugin/pkg/admission/limitranger/admission.go,
:staging/src/k8s.io/pod-security-admission/admission/admission.go,
:staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors/statuserror.go,
:plugin/namespace/lifecycle/admission.go;
kubernetes/kubernetes:pkg/apis/core/validation/validation.go#validateContainerResourceRequirements;
kubevirt/kubevirt:pkg/virt-api/webhooks/mutating-webhook/mutators/namespace-limits.go,
:pkg/virt-api/webhooks/validating-webhook/admitters/vmi-create-admitter.go;
openshift/apiserver-library-go:pkg/securitycontextconstraints/sccadmission/admission.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.evidence import demanding_quotas, forbidden_pods
from virt_admit.model.evidence.writes import admission_policies, refused_fields
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    HCO,
    KUBEVIRT,
    LIMIT_RANGE,
    NAMESPACE,
    PRIORITY_CLASS,
    RESOURCE_QUOTA,
    VM,
    VMI,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import limit_ranges
from virt_admit.model.kubevirt.settings import configuration, feature_gates, refused_gates, versions
from virt_admit.model.messages import names

_RESERVED: Final = ("system-", "kubevirt-cluster-critical")
"""Priority classes of the parts of the cluster itself."""


class _Refused(NamedTuple):
    """An object that the API server refuses: a VM, or a VMI for which KubeVirt creates a pod."""

    obj: Object
    found: re.Match[str]
    cluster: Cluster

    @property
    def namespace(self) -> str:
        return vms.namespace_of(self.obj)

    @property
    def edit(self) -> str:
        return _edit(self.obj)


def _edit(obj: Object) -> str:
    """Return the command that changes what KubeVirt makes the pod of a VM or VMI of."""
    owners = (each["kind"].text for each in obj.metadata["ownerReferences"].items())
    of_vm = obj.kind == VM.kind or VM.kind in owners
    return kubectl("edit", VM if of_vm else VMI, obj.name, vms.namespace_of(obj))


def remedy(obj: Object, said: str, cluster: Cluster) -> str:
    """Return what ends a refusal, with a command; empty: the words name no cause that is known.

    Args:
        obj: the VM or VMI for which KubeVirt creates something.
        said: what the API server answered.
        cluster: where the objects are looked up that may be named instead.
    """
    for pattern, way in _WAYS:
        found = pattern.search(said)
        if found and (known := way(_Refused(obj, found, cluster))):
            return known
    return ""


def _priority_class(refused: _Refused) -> str:
    return without_class(refused.obj, refused.found[1], refused.cluster)


def without_class(obj: Object, name: str, cluster: Cluster) -> str:
    """Return what helps a VM or VMI that names a PriorityClass which does not exist."""
    known = sorted(each.name for each in cluster.known(PRIORITY_CLASS))
    others = [each for each in known if not each.startswith(_RESERVED)]
    instead = f" to one that exists ({names(others)})" if others else ""
    words = (
        f"create PriorityClass {name}, or correct priorityClassName of the VM{instead} and stop "
        "and start it"
    )
    return typed(words, _edit(obj))


def _runtime_class(refused: _Refused) -> str:
    words = f"create RuntimeClass {refused.found[1]}, or correct defaultRuntimeClass of KubeVirt"
    hco = configuration.known_or_none(configuration.hyperconverged, refused.cluster)
    found = hco or configuration.known_or_none(configuration.kubevirt, refused.cluster)
    if found is None:
        return words
    kind = HCO if hco is not None else KUBEVIRT
    return typed(words, kubectl("edit", kind, found.name, found.namespace))


def _account(refused: _Refused) -> str:
    create = shell(
        "kubectl", "create", "serviceaccount", argument(refused.found[1]), "-n", refused.namespace
    )
    return typed("create the service account, which a volume of the VM names", create)


def _pod_security(refused: _Refused) -> str:
    adds = forbidden_pods.ADDED in refused.found.string
    vm = "run the VM in a namespace that does" if adds else "remove from the VM what is named"
    return forbidden_pods.remedy(refused.namespace, other=f"or {vm}")


def _security_context(_: _Refused) -> str:
    words = (
        "let the service account kubevirt-controller use SecurityContextConstraints "
        "kubevirt-controller again"
    )
    return typed(words, "kubectl describe securitycontextconstraints kubevirt-controller")


def _limit_range(refused: _Refused) -> str:
    words = "change that limit in the LimitRange; or change what the VM requests"
    return typed(words, kubectl("edit", LIMIT_RANGE, "", refused.namespace))


def _default_limit(refused: _Refused) -> str:
    """Return what ends that a default limit is below what a VM without a limit asks for.

    virt-api copies the default of the namespace into a VMI, and the API server into a pod.
    """
    resource, amount = refused.found[1], refused.found[2]
    spec = vms.vmi_spec(refused.obj)
    if not spec.present or spec.at("domain", "resources", "limits", resource).present:
        return ""
    defaults = {
        each.name: limit
        for each in reversed(limit_ranges.of_namespace(refused.cluster, refused.namespace))
        if (limit := limit_ranges.default_limit(each, resource)) and amount in (None, limit)
    }
    own = f"set limits.{resource} of the VM (domain.resources) to at least what its guest has"
    ways = [] if _instancetype(refused) else [own]
    if not defaults:
        return typed(f"{own}, as it sets none", refused.edit) if ways else ""
    name, limit = list(defaults.items())[-1]
    which = f"the default {resource} limit {limit} of LimitRange {refused.namespace}/{name}"
    ways.insert(0, f"raise {which}, which the VM gets because it sets none")
    return typed("; or ".join(ways), kubectl("edit", LIMIT_RANGE, name, refused.namespace))


_RESTART: Final = "then stop and start the VM"
"""A VMI keeps the resources with which it was made. Only the pod gets those of a LimitRange."""


def _quota(refused: _Refused) -> str:
    missing = names(demanding_quotas.missing(refused.found[2]))
    words = (
        f"set {missing} in the resources of the VM, which ResourceQuota {refused.found[1]} demands"
    )
    if "limits." not in missing:
        return typed(words, refused.edit, _RESTART)
    own = _instancetype(refused)
    ways = [f"add a LimitRange to {refused.namespace} with default limits as large as its VMs need"]
    ways += [words] if not own else []
    gate = _automatic_limits(refused.cluster)
    if gate is not None:
        ways.insert(
            0,
            f"{gate[0]}, so that KubeVirt sets {missing} as ResourceQuota {refused.found[1]} "
            "demands",
        )
    shown = kubectl("describe", RESOURCE_QUOTA, refused.found[1], refused.namespace)
    why = f" (its own resources cannot have limits, as it uses instance type {own})" if own else ""
    if gate is not None or own:
        return typed(f"{'; or '.join(ways)}{why}", gate[1] if gate is not None else shown)
    return f"{ways[0]}; or {typed(words, refused.edit, _RESTART)}"


def unset_remedy(
    quota: Object, lacking: Mapping[str, int | None], cluster: Cluster
) -> tuple[str, str] | None:
    """Return what lets the second pod of a running VM pass a quota that demands what its containers
    do not set (those lack None), which no larger quota does, and the command; None: they set it.
    """
    missing = [name for name, lack in lacking.items() if lack is None]
    if not missing:
        return None
    namespace = vms.namespace_of(quota)
    what, limits = names(missing), [each for each in missing if each.startswith("limits.")]
    sides = ("limits", "limits and requests")[len(limits) < len(missing)] if limits else "requests"
    ways = [
        f"add a LimitRange to {namespace} with default {sides} as large as its VMs need",
        f"set {what} in the resources of the VMs, and restart them",
    ]
    gate = _automatic_limits(cluster) if len(limits) == len(missing) else None
    if gate is not None:
        return "; or ".join((f"{gate[0]}, so that KubeVirt sets {what}", *ways)), gate[1]
    return "; or ".join(ways), kubectl("describe", RESOURCE_QUOTA, quota.name, namespace)


def _instancetype(refused: _Refused) -> str:
    """Return the instance type of a VM, with which KubeVirt accepts no resources of the VM itself;
    empty: it has none.

    Source: kubevirt/kubevirt:pkg/instancetype/apply (conflicts of the VMI spec).
    """
    obj = refused.obj
    notes = (
        obj.annotations.get(f"kubevirt.io/{scope}instancetype-name") for scope in ("", "cluster-")
    )
    return obj.at("spec", "instancetype", "name").text or next(filter(None, notes), "")


def _automatic_limits(cluster: Cluster) -> tuple[str, str] | None:
    """Return how KubeVirt is told to set limits itself, and the command; None: it does, cannot, or
    that is not known.

    From release 1.5 it always does in a namespace whose quota has limits
    (pkg/virt-config/featuregate/inactive.go).
    """
    found = configuration.known_or_none(configuration.kubevirt, cluster)
    release = versions.kubevirt_version(cluster) if found is not None else None
    if found is None or release is None or not _SINCE <= release < _ALWAYS:
        return None
    if sets_limits(cluster):
        return None
    hco = configuration.known_or_none(configuration.hyperconverged, cluster)
    if hco is not None:  # it writes the gates of KubeVirt
        words = f"enable feature gate autoResourceLimits of HyperConverged {hco.full_name}"
        return words, kubectl("edit", HCO, hco.name, hco.namespace)
    words = f"enable feature gate {_GATE} of KubeVirt {found.full_name}"
    return words, kubectl("edit", KUBEVIRT, found.name, found.namespace)


def sets_limits(cluster: Cluster) -> bool:
    """Return whether KubeVirt certainly sets the limits that a quota demands of its pods."""
    found = configuration.known_or_none(configuration.kubevirt, cluster)
    release = versions.kubevirt_version(cluster) if found is not None else None
    if found is None or release is None or release < _SINCE:
        return False
    gates = feature_gates.kubevirt_gates(found)
    return release >= _ALWAYS or any(gate.name == _GATE and gate.enabled for gate in gates)


_GATE: Final = "AutoResourceLimitsGate"
_SINCE: Final = versions.Version(1, 1)
_ALWAYS: Final = versions.Version(1, 5)


def _namespace(refused: _Refused) -> str:
    words = f"create the VM in another namespace, because {refused.namespace} is being deleted"
    return typed(words, kubectl("describe", NAMESPACE, refused.namespace))


def _webhook(refused: _Refused) -> str:
    name = refused.found[1]
    if name.endswith(".kubevirt.io"):
        known = configuration.known_or_none(configuration.kubevirt, refused.cluster)
        title = f"KubeVirt {known.full_name}" if known is not None else "KubeVirt"
        template = vms.vmi_spec(refused.obj)
        said = refused.found.string
        if gate := refused_gates.remedy(said, refused.cluster):
            return gate
        if _OF_SETTINGS.search(said) and not refused_gates.is_removed(said, refused.cluster):
            allow = f"allow in the configuration of {title} what this names"
            return typed(f"{allow}, or correct it in the VM", refused.edit)
        field = refused_fields.remedy(refused.obj, template, said, title)
        return field or typed("correct in the VM what KubeVirt rejects", refused.edit)
    said, namespace = refused.found.string, refused.namespace
    if (policy := admission_policies.named(said, namespace, refused.cluster)) is not None:
        return typed(f"{policy.order}; or change in the VM what it rejects", policy.command)
    listed = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
    return typed(
        f"let webhook {name} accept it in {refused.namespace}, or change in the VM what it rejects",
        listed,
    )


def _policy(refused: _Refused) -> str:
    said, namespace = refused.found.string, refused.namespace
    if (binding := admission_policies.named(said, namespace, refused.cluster)) is not None:
        return typed(f"{binding.order}; or change in the VM what it rejects", binding.command)
    shown = shell("kubectl", "describe", "validatingadmissionpolicy", argument(refused.found[1]))
    return typed(
        f"change ValidatingAdmissionPolicy {refused.found[1]}, or change in the VM what it rejects",
        shown,
    )


_OF_SETTINGS: Final = re.compile(r"\bin kubevirt.(?:config|resource)\b|\bfeature gate\b")
"""Words of virt-api about what the cluster allows, and not about the VM."""
_NAME: Final = r"([\w.-]{1,253})"
_AT_MOST: Final = "(?:equal to or less than the|less than or equal to)"
_IS: Final = r" \\?['\"]?(\w+)"
_LIMIT: Final = rf"(?: (?:[\w.]*limits\.\w+|of){_IS})?"
"""The words of virt-api and of the API server, which names the amount in newer releases alone."""
_WAYS: Final[Sequence[tuple[re.Pattern[str], Callable[[_Refused], str]]]] = (
    (re.compile(rf"must be {_AT_MOST} (memory|cpu) limit{_LIMIT}"), _default_limit),
    (re.compile(rf"is greater than \S*limits\.(memory|cpu){_IS}"), _default_limit),
    (re.compile(rf'admission webhook \\?"{_NAME}\\?" denied'), _webhook),
    (re.compile(rf"ValidatingAdmissionPolicy '{_NAME}'"), _policy),
    (re.compile(rf"[Nn]o PriorityClass with name {_NAME} was found"), _priority_class),
    (re.compile(rf'RuntimeClass \\?"{_NAME}\\?" not found'), _runtime_class),
    (re.compile(rf'serviceaccount \\?"{_NAME}\\?" not found'), _account),
    (re.compile(r"violates PodSecurity"), _pod_security),
    (re.compile(r"unable to validate against any security context constraint"), _security_context),
    (demanding_quotas.SAID, _quota),
    (re.compile(r" per (?:Container|Pod) is "), _limit_range),
    (re.compile(r"because it is being terminated"), _namespace),
)
"""The first that is found. A webhook quotes others."""
