"""The ValidatingAdmissionPolicy that limits our service accounts to the ``caBundle`` of our webhook
configurations.

RBAC grants ``patch`` on whole objects. Without this policy, a stolen token could register the
webhook for ``*/*``. An API server evaluates such policies for webhook configurations, although it
never sends them to webhooks
(kubernetes/apiserver:pkg/admission/plugin/policy/generic/policy_dispatcher.go).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from virt_admit.install.manifests import NAME, labels
from virt_admit.settings import NAMESPACE

GROUP: Final = "admissionregistration.k8s.io"
GUARD: Final = f"{NAME}-configurations"
PLURALS: Final = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")


def _same_except(new: str, old: str, keys: Iterable[str]) -> str:
    """Return a CEL expression: whether two maps are equal apart from these keys.

    Keys of later releases count too.
    """
    ignored = " || ".join(f"k == '{key}'" for key in keys)
    return (
        f"dyn({new}).all(k, {ignored} || (k in dyn({old}) && dyn({new})[k] == dyn({old})[k]))"
        f" && dyn({old}).all(k, {ignored} || k in dyn({new}))"
    )


_CHECKS: Final = (
    (
        f"request.operation == 'UPDATE' && request.name == '{NAME}'",
        f"service accounts of {NAMESPACE} may only update the webhook configurations named {NAME}",
    ),
    (
        "request.operation != 'UPDATE' || ("
        + _same_except(
            "object.metadata",
            "oldObject.metadata",
            ("managedFields", "resourceVersion", "generation"),
        )
        + ")",
        f"service accounts of {NAMESPACE} may change nothing but caBundle: the metadata differs",
    ),
    (
        (
            "request.operation != 'UPDATE' || (object.?webhooks.orValue([]).size() == "
            "oldObject.?webhooks.orValue([]).size() && object.?webhooks.orValue([]).all(new, "
            "oldObject.?webhooks.orValue([]).exists(old, new.name == old.name && "
        )
        + _same_except("new", "old", ("clientConfig",))
        + " && "
        + _same_except("new.clientConfig", "old.clientConfig", ("caBundle",))
        + ")))",
        f"service accounts of {NAMESPACE} may change nothing but caBundle: a webhook differs",
    ),
)


def guard() -> list[dict[str, Any]]:
    """Return the policy and its binding.

    Every default is written out, as in the webhook configurations.
    """
    constraints = {
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "resourceRules": [
            {
                "apiGroups": [GROUP],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE", "DELETE"],
                "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
                "scope": "*",
            }
        ],
    }
    ours = f"request.userInfo.username.startsWith('system:serviceaccount:{NAMESPACE}:')"
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": constraints,
        "matchConditions": [{"name": "our-service-accounts", "expression": ours}],
        "validations": [
            {"expression": expression, "message": message, "reason": "Forbidden"}
            for expression, message in _CHECKS
        ],
    }
    binding = {"policyName": GUARD, "validationActions": ["Deny"]}
    return [
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": kind,
            "metadata": {"name": GUARD, "labels": labels()},
            "spec": spec,
        }
        for kind, spec in (
            ("ValidatingAdmissionPolicy", policy),
            ("ValidatingAdmissionPolicyBinding", binding),
        )
    ]
