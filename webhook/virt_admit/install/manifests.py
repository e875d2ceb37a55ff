"""Webhook configurations and RBAC, generated from the rules.

Every default is written out, or GitOps tools apply the objects again forever
(argoproj/argo-cd#17643). There is no ``caBundle`` key: the rotation loop owns that field.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from virt_admit import __version__
from virt_admit.forecasts.drain import progress
from virt_admit.forecasts.outage import outages
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.kube.field_filter import looked_up_at_admission, looked_up_kinds, lookup_namespace
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.events import EVENT
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import down_vms
from virt_admit.model.kubevirt.settings.trusted_accounts import TRUSTED_NAMESPACES
from virt_admit.reports.findings.formats.policy_reports import WRITTEN
from virt_admit.rule import Operation
from virt_admit.rules import Rules
from virt_admit.settings import DOMAIN, NAMESPACE, POLICY_CONFIGMAP, SERVICE

NAME: Final = "virt-admit"
SCAN: Final = f"{NAME}-scan"
WATCHER: Final = f"{NAME}-watch"
READER: Final = f"{NAME}-reader"
WATCH: Final = ("list", "watch")
FORECAST_READS: Final = union(rehearsal.READS, outages.READS, progress.READS, down_vms.READS)
"""The fields that the forecasts of the watch, and of the scan with metrics,
read besides those of rules.
"""
Condition = tuple[str, str]
"""Name and CEL expression."""
MakeCondition = Callable[[Rules, tuple[str, ...]], Condition]
"""Makes a condition from the rules and the trusted namespaces."""
IGNORE_LABEL: Final = f"{DOMAIN}/ignore"


def labels(component: str = "webhook") -> dict[str, str]:
    """Return the labels of all our objects."""
    return {
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/instance": NAME,
        "app.kubernetes.io/managed-by": "kustomize",
        "app.kubernetes.io/name": NAME,
        "app.kubernetes.io/part-of": NAME,
        "app.kubernetes.io/version": __version__,
    }


SYSTEM_NAMESPACES: Final = ("kube-system", NAMESPACE)
KUBEVIRT_NAMESPACES: Final = ("kube-public", "kube-node-lease", *TRUSTED_NAMESPACES)
"""Left out for virtual machines alone: HyperConverged, KubeVirt and CDI live there."""

KUBEVIRT_ACCOUNTS: Final = tuple(
    f"kubevirt-{name}"
    for name in ("controller", "apiserver", "handler", "operator", "synchronization-controller")
)

NOT_DELETED: Final = (
    "not-being-deleted",
    "request.operation == 'DELETE' || !has(object.metadata.deletionTimestamp)",
)


def not_kubevirt(_rules: Rules, trusted: tuple[str, ...]) -> Condition:
    """Return the condition that stops requests of KubeVirt's own accounts,
    in the trusted namespaces alone.
    """
    pattern = f"^system:serviceaccount:({'|'.join(trusted)}):({'|'.join(KUBEVIRT_ACCOUNTS)})$"
    return "not-kubevirt-itself", f"!request.userInfo.username.matches('{pattern}')"


CHANGED: Final = (
    "something-changed",
    "request.operation != 'UPDATE' || object.?spec != oldObject.?spec"
    " || object.metadata.?annotations != oldObject.metadata.?annotations"
    " || object.metadata.?labels != oldObject.metadata.?labels",
)
"""Status writes, storage migration and finalizers change none of the three."""

_ROLL_OUT: Final = (
    "^system:serviceaccount:(openshift-machine-config-operator|openshift-machine-api):"
)


def _added_or_changed(where: str, key: str) -> str:
    """Return a CEL expression: whether an annotation or a label was added or has a new value."""
    new, old = f"object.metadata.{where}", f"oldObject.metadata.{where}"
    return (
        f"(has({new}) && '{key}' in {new} && (oldObject == null || !has({old}) || !('{key}' in "
        f"{old}) || {old}['{key}'] != {new}['{key}']))"
    )


_CORDONED: Final = (
    "(request.operation == 'UPDATE' && has(object.spec.unschedulable) && object.spec.unschedulable"
    " && !(has(oldObject.spec.unschedulable) && oldObject.spec.unschedulable))"
)


def node_changed(rules: Rules, _trusted: tuple[str, ...]) -> Condition:
    """Return the condition that lets through only what rules judge of a Node: a cordon,
    and their metadata keys.

    Kubelets and virt-handler write Nodes all the time. It is one expression, because conditions are
    AND-ed.
    """
    keys = sorted(rules.metadata.get(kinds.NODE, ()))
    changes = (_added_or_changed(where, key) for key in keys for where in ("annotations", "labels"))
    return "cordon-or-annotation", " || ".join((_CORDONED, *changes))


NOT_A_KUBELET: Final = ("not-a-kubelet", "!('system:nodes' in request.userInfo.groups)")
NOT_A_ROLL_OUT: Final = ("not-a-roll-out", f"!request.userInfo.username.matches('{_ROLL_OUT}')")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a webhook configuration: how the kinds with ``Kind.entry`` of its name are
    registered. Each kind is in one validating entry, because of several denials users see only the
    first (kubernetes/kubernetes#132637).
    """

    name: str
    conditions: tuple[Condition | MakeCondition, ...] = (NOT_DELETED, CHANGED)
    timeout: int = 5
    """Seconds."""
    exact: bool = False
    """Whether each version is matched as it is sent, not converted to the registered one."""
    without: tuple[str, ...] = SYSTEM_NAMESPACES
    """Namespaces that are left out."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(kind for kind in kinds.ALL if kind.entry == self.name)


ENTRIES: Final = (
    Entry(
        name="virtual-machines",
        conditions=(NOT_DELETED, not_kubevirt, CHANGED),
        without=SYSTEM_NAMESPACES + KUBEVIRT_NAMESPACES,
    ),
    Entry(
        name="instances",
        conditions=(NOT_DELETED, not_kubevirt),
        without=SYSTEM_NAMESPACES + KUBEVIRT_NAMESPACES,
    ),
    # Of its own, because requests for clones must never fail: findings on them are warnings
    Entry(name="clones", without=SYSTEM_NAMESPACES + KUBEVIRT_NAMESPACES),
    Entry(name="health-checks"),
    Entry(name="machines", timeout=3),
    Entry(name="maintenance"),
    Entry(name="templates", timeout=3),
    Entry(name="nodes", conditions=(NOT_A_KUBELET, NOT_A_ROLL_OUT, node_changed), timeout=2),
    Entry(name="hyperconverged", exact=True),
    # HyperConverged gives the dry runs of its webhook 3 s (its operator's
    # pkg/webhooks/validator/validator.go#updateDryRunTimeOut)
    Entry(name="configuration", timeout=2),
)

MAY_FAIL: Final = frozenset((f"virtual-machines.validate.{DOMAIN}",))
"""The entries that may have ``failurePolicy: Fail``:
the API server then rejects requests while virt-admit is away.
"""

MUTATING: Final = Entry(
    name="virtual-machines",
    conditions=(NOT_DELETED, not_kubevirt),
    timeout=3,
    without=SYSTEM_NAMESPACES + KUBEVIRT_NAMESPACES,
)


def webhooks(
    rules: Rules, url: str = "", ca: bytes = b"", trusted: tuple[str, ...] = TRUSTED_NAMESPACES
) -> list[dict[str, Any]]:
    """Return both webhook configurations.

    Args:
        rules: the rules that are asked at admission.
        url: the URL to call, instead of the Service.
        ca: the CA that API servers trust, with ``url``.
        trusted: the namespaces from which requests of KubeVirt's accounts are not sent.
    """
    asked = [entry for entry in ENTRIES if not rules.by_kind.keys().isdisjoint(entry.kinds)]
    validating = [
        _entry(entry, rules, "validate", _client("validate", url, ca), trusted) for entry in asked
    ]
    fixing = Rules(rule for rule in rules if rule.fix_by_default)
    mutating = _entry(MUTATING, fixing, "mutate", _client("mutate", url, ca), trusted)
    mutating["reinvocationPolicy"] = "IfNeeded"
    return [
        _object("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", NAME)
        | {"webhooks": [mutating]},
        _object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", NAME)
        | {"webhooks": validating},
    ]


def _entry(
    entry: Entry, rules: Rules, verb: str, client: dict[str, Any], trusted: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "name": f"{entry.name}.{verb}.{DOMAIN}",
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "failurePolicy": "Ignore",
        "matchPolicy": "Exact" if entry.exact else "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": entry.timeout,
        "namespaceSelector": all_but(entry.without),
        "objectSelector": {},
        "matchConditions": _conditions(entry, rules, trusted),
        "rules": [
            _rule(kind, _operations(kind, rules)) for kind in entry.kinds if kind in rules.by_kind
        ],
    }


def all_but(names: Iterable[str]) -> dict[str, Any]:
    """Return the selector of namespaces, without those that have the label to be ignored."""
    refused = {"kubernetes.io/metadata.name": list(names), IGNORE_LABEL: ["true"]}
    return {
        "matchExpressions": [
            {"key": key, "operator": "NotIn", "values": values} for key, values in refused.items()
        ]
    }


def _client(verb: str, url: str, ca: bytes) -> dict[str, Any]:
    if not url:
        return {
            "service": {"name": SERVICE, "namespace": NAMESPACE, "path": f"/{verb}", "port": 443}
        }
    client = {"url": f"{url.rstrip('/')}/{verb}"}
    return client | ({"caBundle": base64.b64encode(ca).decode()} if ca else {})


def _conditions(entry: Entry, rules: Rules, trusted: tuple[str, ...]) -> list[dict[str, str]]:
    conditions = (each(rules, trusted) if callable(each) else each for each in entry.conditions)
    return [{"name": name, "expression": expression} for name, expression in conditions]


def trusting_only(rules: Rules, trusted: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return kustomize patches of both configurations:
    trust KubeVirt's accounts in these namespaces alone.
    """
    return [
        {key: obj[key] for key in ("apiVersion", "kind")}
        | {"metadata": {"name": NAME}}
        | {
            "webhooks": [
                {key: entry[key] for key in ("name", "matchConditions")} for entry in changed
            ]
        }
        for obj, shipped in zip(webhooks(rules, trusted=trusted), webhooks(rules), strict=True)
        if (changed := [entry for entry in obj["webhooks"] if entry not in shipped["webhooks"]])
    ]


def _operations(kind: Kind, rules: Rules) -> list[str]:
    asked = {operation for rule in rules.by_kind[kind] for operation in rule.operations}
    return [
        str(each)
        for each in Operation
        if each in asked and not (kind.created_only and each is not Operation.CREATE)
    ]


def _rule(kind: Kind, operations: list[str]) -> dict[str, Any]:
    return {
        "apiGroups": [kind.group],
        # Equivalent converts to the registered version
        "apiVersions": list(kind.versions if kind.every_version else kind.versions[:1]),
        "operations": operations,
        "resources": [kind.plural, *(f"{kind.plural}/{name}" for name in kind.subresources)],
        "scope": "Namespaced" if kind.namespaced else "Cluster",
    }


def rbac(rules: Rules) -> list[dict[str, Any]]:
    """Return the roles of the webhook: read what rules look up, and by name the policy, its Secret
    and its configurations. It never writes user objects. ``create`` with a name permits creation by
    server-side apply of that name alone. The policy in ``guard.py`` narrows ``patch`` to
    ``caBundle``.
    """
    configurations = {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
        "resourceNames": [NAME],
        "verbs": ["get", "patch"],
    }
    secret = {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [f"{NAME}-certs"],
        "verbs": ["get", "create", "patch"],
    }
    policy_namespace, _, policy_name = POLICY_CONFIGMAP.partition("/")
    policy = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [policy_name],
        "verbs": ["get"],
    }
    return [
        *_granted(READER, _lookup_rules(looked_up_at_admission(rules), rules, WATCH), [SERVICE]),
        *_granted(f"{NAME}-configurations", [configurations], [SERVICE]),
        *_granted(f"{NAME}-certs", [secret], [SERVICE], NAMESPACE),
        *_granted(f"{NAME}-policy", [policy], [SERVICE, SCAN, WATCHER], policy_namespace),
    ]


def rbac_elsewhere(rules: Rules) -> dict[str, list[dict[str, Any]]]:
    """Return, by namespace, the roles for kinds that are looked up in that namespace alone: for the
    webhook and the scan. They are separate, because not every cluster has these namespaces.
    """
    kinds_of: dict[str, list[Kind]] = {}
    for kind in looked_up_at_admission(rules):
        kinds_of.setdefault(lookup_namespace(kind, rules), []).append(kind)
    readers = [SERVICE, SCAN, WATCHER]
    return {
        namespace: list(_granted(READER, _read_rules(found, WATCH), readers, namespace))
        for namespace, found in sorted(kinds_of.items())
        if namespace
    }


def scan_rbac(rules: Rules, name: str = SCAN) -> list[dict[str, Any]]:
    """Return the role of the scan, or of the watch: read what rules judge and look up,
    and what forecasts read.
    """
    rules = rules.in_scan
    evidence = () if name == WATCHER else (EVENT,)  # a watch would have to keep them
    judged_or_read = sorted({*rules.kinds, *looked_up_kinds(rules), *FORECAST_READS, *evidence})
    verbs = WATCH if name == WATCHER else ("list",)
    return list(
        _granted(
            name, _lookup_rules(judged_or_read, rules, verbs), [name], component=_component(name)
        )
    )


def _component(name: str) -> str:
    return name.removeprefix(f"{NAME}-")


def reports_rbac(name: str = SCAN) -> list[dict[str, Any]]:
    """Return the role that lets the scan, or the watch, write reports and Events
    (``--write-reports``, ``--events``).
    """
    granted = [
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        *(
            {
                "apiGroups": [form.namespaced.group],
                "resources": sorted((form.namespaced.plural, form.cluster.plural)),
                "verbs": ["list", "create", "patch", "delete"],
            }
            for form in WRITTEN.values()
        ),
    ]
    return list(_granted(f"{name}-reports", granted, [name], component=_component(name)))


def _lookup_rules(
    expected: Iterable[Kind], rules: Rules, verbs: Iterable[str]
) -> list[dict[str, Any]]:
    """Return RBAC rules to read what is looked up in the whole cluster.

    For the other kinds: to see whether their namespace exists.
    """
    namespace_of = {kind: lookup_namespace(kind, rules) for kind in expected}
    names = sorted({*namespace_of.values()} - {""})
    namespaces = {
        "apiGroups": [""],
        "resources": ["namespaces"],
        "resourceNames": names,
        "verbs": ["get"],
    }
    return [
        *_read_rules((kind for kind, name in namespace_of.items() if not name), verbs),
        *([namespaces] if names else ()),
    ]


def _read_rules(wanted: Iterable[Kind], verbs: Iterable[str]) -> list[dict[str, Any]]:
    groups: dict[str, list[str]] = {}
    for kind in wanted:
        groups.setdefault(kind.group, []).append(kind.plural)
    return [
        {"apiGroups": [group], "resources": sorted(plurals), "verbs": list(verbs)}
        for group, plurals in sorted(groups.items())
    ]


def _granted(
    name: str,
    rules: list[dict[str, Any]],
    accounts: Iterable[str],
    namespace: str = "",
    component: str = "webhook",
) -> Iterator[dict[str, Any]]:
    """Yield a role and its binding to our service accounts,
    in one namespace or in the whole cluster.
    """
    group, role = "rbac.authorization.k8s.io", "Role" if namespace else "ClusterRole"
    yield _object(f"{group}/v1", role, name, namespace, component) | {"rules": rules}
    yield _object(f"{group}/v1", f"{role}Binding", name, namespace, component) | {
        "roleRef": {"apiGroup": group, "kind": role, "name": name},
        "subjects": [
            {"kind": "ServiceAccount", "name": each, "namespace": NAMESPACE} for each in accounts
        ],
    }


def _object(
    api_version: str, kind: str, name: str, namespace: str = "", component: str = "webhook"
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": labels(component)}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
