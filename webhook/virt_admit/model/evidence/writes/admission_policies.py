"""Admission policies that may deny the writes of a controller: constraints of Gatekeeper, policies
of Kyverno, and ValidatingAdmissionPolicies.

A controller whose write is denied has only its log for that, so the object is just missing. What a
policy demands is code. Whether it covers a kind in a namespace, denies, and reads a field is plain.
Sources: open-policy-agent/gatekeeper:pkg/mutation/match/match.go#Matches,
:pkg/util/enforcement_action.go, :pkg/wildcard/wildcard.go; kyverno/kyverno:api/kyverno/v1/
spec_types.go#Spec, :api/kyverno/v1/rule_types.go#Rule, :pkg/utils/match; kubernetes/kubernetes:
staging/src/k8s.io/api/admissionregistration/v1/types.go#ValidatingAdmissionPolicyBindingSpec.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, Final, NamedTuple

from virt_admit.model.commands import kubectl
from virt_admit.model.evidence import writers
from virt_admit.model.evidence.writers import OwnerAbove
from virt_admit.model.kubernetes import clock, kinds, selectors, webhook_requests
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NAMESPACE, VALIDATING_CONFIGURATION, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.webhook_requests import InterceptedRequest
from virt_admit.model.lookups import find

READS: Final[Reads] = {NAMESPACE: ("metadata.labels",), VALIDATING_CONFIGURATION: ()}


def _of_cluster(api_version: str, kind: str, plural: str = "") -> Kind:
    """Return a kind without namespaces. In a live cluster discovery finds it."""
    found = kinds.guess(api_version, kind)
    return found._replace(namespaced=False, plural=plural or found.plural)


_TEMPLATE: Final = _of_cluster("templates.gatekeeper.sh/v1", "ConstraintTemplate")
_CONSTRAINTS: Final = "constraints.gatekeeper.sh/v1beta1"
_CONFIG: Final = kinds.guess("config.gatekeeper.sh/v1alpha1", "Config")
_CLUSTER_POLICY: Final = _of_cluster("kyverno.io/v1", "ClusterPolicy", "clusterpolicies")
_POLICY: Final = kinds.guess("kyverno.io/v1", "Policy")._replace(plural="policies")
_EXCEPTION: Final = kinds.guess("kyverno.io/v2", "PolicyException")
_BUILT_IN: Final = "admissionregistration.k8s.io/v1"
_VAP: Final = _of_cluster(_BUILT_IN, "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
_BINDING: Final = _of_cluster(_BUILT_IN, "ValidatingAdmissionPolicyBinding")
_GATEKEEPER: Final = "validation.gatekeeper.sh"
_KYVERNO: Final = "validate.kyverno.svc"
"""Begin of the names of its webhooks: ``validate.kyverno.svc-fail``."""


class AdmissionPolicy(NamedTuple):
    """A policy that denies some writes."""

    obj: Object
    kind: Kind
    of: str
    """``Gatekeeper, enforcementAction deny``"""
    exemption: str
    """What leaves the namespace out, as an order about a field."""
    reads: bool = False
    """Whether its code is known and reads the field."""
    maker: OwnerAbove | None = None
    """The policy of which an engine makes it, and would write it again."""

    @property
    def name(self) -> str:
        """``K8sRequiredLabels team``."""
        return f"{self.obj.kind} {self.obj.full_name}"

    @property
    def title(self) -> str:
        """The same with its tool and its action."""
        return f"{self.name} ({self.of})"

    @property
    def order(self) -> str:
        """What leaves the namespace out, and what would revert that."""
        if self.maker is not None:
            return f"{self.exemption} in {self.maker.title}, of which {self.name} is made"
        writer = writers.of(self.obj)
        source = f", in {writer.source}, which writes it" if writer is not None else ""
        return f"{self.exemption} of {self.name}{source}"

    @property
    def command(self) -> str:
        """The command that edits it, or shows what is to be changed at its source."""
        if self.maker is not None:
            return self.maker.command("describe")
        verb = "edit" if writers.of(self.obj) is None else "describe"
        return kubectl(verb, self.kind, self.obj.name, self.obj.namespace)


class PolicedWrite(NamedTuple):
    """What a controller would create, and its field that a policy may not accept."""

    kind: Kind
    namespace: str
    labels: Mapping[str, str]
    """Of the namespace."""
    field: str
    """Empty: any."""

    @property
    def request(self) -> InterceptedRequest:
        """The request as an API server shows it."""
        group, plural = self.kind.group, self.kind.plural
        return InterceptedRequest("CREATE", group, plural, self.namespace, self.labels)

    def is_read_by(self, code: object) -> bool | None:
        """Whether the code of a policy names the field; None: the code is not known."""
        if not self.field:
            return None
        text = json.dumps(code, default=str)
        known = any(f'"{key}"' in text for key in _CODE)
        return self.field in text if known else None


_CODE: Final = ("rego", "expression", "pattern", "anyPattern", "deny", "cel", "foreach")
"""Keys of the code of policies. Long texts of a live cluster are not kept."""


def denying(
    kind: Kind, namespace: str, field: str, before: datetime | None, cluster: Cluster
) -> AdmissionPolicy | None:
    """Return the oldest policy that denies some new objects of a kind in a namespace and reads a
    field of them; None: none is known.

    Args:
        kind: what a controller does not create.
        namespace: where.
        field: the name of the field in which its objects differ from others; empty: none does.
        before: when the controller was to create it. Policies that are newer did not keep it.
        cluster: the cluster.
    """
    if before is None:
        return None
    for each in cluster.cached(_covering(kind, namespace, field)):
        made = clock.instant(each.obj.created)
        if made is not None:
            return each if made <= before else None
    return None


@functools.lru_cache(maxsize=1024)
def _covering(
    kind: Kind, namespace: str, field: str
) -> Callable[[Cluster], Sequence[AdmissionPolicy]]:
    """Return what finds the policies of such writes once, whatever their number is, the oldest
    first.
    """

    def found(cluster: Cluster) -> Sequence[AdmissionPolicy]:
        home = find(cluster, NAMESPACE, "", namespace)
        if home is None:
            return ()
        labels = {"kubernetes.io/metadata.name": namespace, **home.labels}
        write = PolicedWrite(kind, namespace, labels, field)
        engines = (_constraints, _kyverno, _vaps)
        every = chain.from_iterable(engine(write, cluster) for engine in engines)
        return sorted(every, key=lambda each: each.obj.created or "")

    return found


def named(said: str, namespace: str, cluster: Cluster) -> AdmissionPolicy | None:
    """Return the policy that an answer of the API server names as what denies a write; None: it
    names none that is known.

    ``namespace``: where the object was to be; empty: not known.
    """
    where, words = namespace or "its namespace", " ".join(said.split())
    if found := _BY_GATEKEEPER.search(words):
        constraints = [
            pair
            for template in cluster.known(_TEMPLATE)
            for pair in _of_template(template, cluster)
            if pair[0].name == found[1] and _denies(pair[0])
        ]
        # those of other templates may have the same name, of which the answer does not say more
        return _constraint(*constraints[0], where) if len(constraints) == 1 else None
    if found := _BY_KYVERNO.search(words):
        policies = (*cluster.known(_CLUSTER_POLICY), *cluster.known(_POLICY))
        same = (each for each in policies if each.full_name == found[1])
        return next((_of_kyverno(each, where) for each in same), None)
    if found := _BY_BINDING.search(words):
        bindings = (each for each in cluster.known(_BINDING) if each.name == found[1])
        return next((_bound(each, where) for each in bindings), None)
    return None


_NAME: Final = r"([\w.-]{1,253})"
_BY_GATEKEEPER: Final = re.compile(
    rf'webhook \\?"{re.escape(_GATEKEEPER)}\\?" denied the request: \[{_NAME}\]'
)
_BY_KYVERNO: Final = re.compile(
    rf'webhook \\?"{re.escape(_KYVERNO)}[\w.-]*\\?" denied the request: .{{1,600}}? due to the '
    r"following policies ([\w./-]{1,253}):"
)
_BY_BINDING: Final = re.compile(
    rf"ValidatingAdmissionPolicy '[\w.-]{{1,253}}' with binding '{_NAME}' denied request"
)


def _is_asked(name: str, write: PolicedWrite, cluster: Cluster) -> bool:
    """Return whether a webhook whose name begins so gets a write, as far as is known."""
    return any(
        webhook_requests.gets(hook, write.request) is not False
        for each in cluster.known(VALIDATING_CONFIGURATION)
        for hook in each["webhooks"].items()
        if (hook["name"].text or "").startswith(name)
    )


def _texts(field: Field) -> tuple[str, ...]:
    return tuple(text for each in field.items() if (text := each.text) is not None)


def _selects(selector: Field, labels: Mapping[str, str] | None) -> bool:
    """Return whether a selector is known to select these labels; None: they are not known."""
    if not any(True for _ in selector.entries()):
        return True
    return labels is not None and selectors.parse(selector.value).matches(labels)


# --- Gatekeeper -----------------------------------------------------------------------------------


def _constraints(write: PolicedWrite, cluster: Cluster) -> Iterator[AdmissionPolicy]:
    templates = cluster.known(_TEMPLATE)
    if not templates or not _is_asked(_GATEKEEPER, write, cluster) or _is_exempt(write, cluster):
        return
    for template in templates:
        reads = write.is_read_by(template.at("spec", "targets").value)
        for each, kind in _of_template(template, cluster) if reads is not False else ():
            if _denies(each) and _matches(each.at("spec", "match"), write):
                yield _constraint(each, kind, write.namespace)._replace(reads=reads is True)


def _is_exempt(write: PolicedWrite, cluster: Cluster) -> bool:
    """Return whether Gatekeeper itself leaves a namespace out (:pkg/controller/config/process)."""
    return any(
        _has(each["processes"], "webhook")
        and _is_any(write.namespace, _texts(each["excludedNamespaces"]))
        for config in cluster.known(_CONFIG)
        for each in config.at("spec", "match").items()
    )


def _of_template(template: Object, cluster: Cluster) -> Iterator[tuple[Object, Kind]]:
    name = template.at("spec", "crd", "spec", "names", "kind").text
    kind = _of_cluster(_CONSTRAINTS, name or "?")._replace(plural=(name or "?").lower())
    yield from ((each, kind) for each in cluster.known(kind))


def _constraint(obj: Object, kind: Kind, namespace: str) -> AdmissionPolicy:
    way = f"add {namespace} to spec.match.excludedNamespaces"
    return AdmissionPolicy(obj, kind, "Gatekeeper, enforcementAction deny", way)


def _denies(constraint: Object) -> bool:
    """Return whether a constraint denies at admission, and its pods enforce it."""
    spec = constraint["spec"]
    pods = [each["enforced"].boolean for each in constraint.at("status", "byPod").items()]
    if pods and True not in pods:
        return False
    action = spec["enforcementAction"].text or "deny"
    if action != "scoped":
        return action == "deny"
    return any(
        each["action"].text == "deny"
        and {point["name"].text for point in each["enforcementPoints"].items()} & {"*", _GATEKEEPER}
        for each in spec["scopedEnforcementActions"].items()
    )


def _matches(match: Field, write: PolicedWrite) -> bool:
    names = list(match["kinds"].items())
    named = not names or any(
        _has(each["kinds"], write.kind.kind) and _has(each["apiGroups"], write.kind.group)
        for each in names
    )
    within, without = _texts(match["namespaces"]), _texts(match["excludedNamespaces"])
    return (
        named
        and match["scope"].text != "Cluster"
        and match["source"].text != "Generated"  # by a template of an expansion
        and not match["name"].text
        and (not within or _is_any(write.namespace, within))
        and not _is_any(write.namespace, without)
        and _selects(match["labelSelector"], None)
        and _selects(match["namespaceSelector"], write.labels)
    )


def _has(given: Field, name: str) -> bool:
    texts = _texts(given)
    return not texts or name in texts or "*" in texts


def _is_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, each) for each in patterns)


# --- Kyverno --------------------------------------------------------------------------------------


def _kyverno(write: PolicedWrite, cluster: Cluster) -> Iterator[AdmissionPolicy]:
    found = [*cluster.known(_CLUSTER_POLICY), *cluster.known(_POLICY, write.namespace)]
    if not found or not _is_asked(_KYVERNO, write, cluster):
        return
    excepted = {
        each["policyName"].text
        for exception in cluster.known(_EXCEPTION)
        for each in exception.at("spec", "exceptions").items()
    }
    for policy in found:
        called = {policy.name, policy.full_name}
        rules = [each for each in policy.at("spec", "rules").items() if _is_of(each, policy, write)]
        admits = policy.at("spec", "admission").boolean is not False
        if rules and admits and not called & excepted:
            reads = any(write.is_read_by(each["validate"].value) for each in rules)
            yield _of_kyverno(policy, write.namespace)._replace(reads=reads)


def _of_kyverno(policy: Object, namespace: str) -> AdmissionPolicy:
    kind = _POLICY if policy.namespace else _CLUSTER_POLICY
    way = f"exclude {namespace} in the rule (exclude.any.resources.namespaces)"
    return AdmissionPolicy(policy, kind, "Kyverno, Enforce", way)


def _is_of(rule: Field, policy: Object, write: PolicedWrite) -> bool:
    """Return whether a rule of a policy denies, reads the field, and covers a write."""
    validate = rule["validate"]
    action = validate["failureAction"].text or policy.at("spec", "validationFailureAction").text
    overrides = (
        *validate["failureActionOverrides"].items(),
        *policy.at("spec", "validationFailureActionOverrides").items(),
    )
    for each in overrides:
        if each["namespaceSelector"].present:
            return False
        if _is_any(write.namespace, _texts(each["namespaces"])):
            action = each["action"].text
    if not validate.present or (action or "").lower() != "enforce":
        return False
    if write.is_read_by(validate.value) is False:
        return False
    return _block(rule["match"], write) is True and _stays(rule["exclude"], write)


def _stays(exclude: Field, write: PolicedWrite) -> bool:
    """Return whether a rule is known not to leave a write out."""
    return not any(exclude.map.values()) or _block(exclude, write) is False


def _block(block: Field, write: PolicedWrite) -> bool | None:
    """Return whether ``match`` or ``exclude`` is about a write; None: it may be."""
    for key, decide in (("any", any), ("all", all)):
        if block[key].present:
            values = [_filter(each, write) for each in block[key].items()]
            sure = decide(value is True for value in values)
            return (
                True if sure else None if decide(value is not False for value in values) else False
            )
    return _filter(block, write)


def _filter(each: Field, write: PolicedWrite) -> bool | None:
    """Return whether a filter of resources is about a write; None: it may be."""
    resources = each["resources"]
    names, spaces = _texts(resources["kinds"]), _texts(resources["namespaces"])
    operations = _texts(resources["operations"])
    if names and not any(_is_kind(text, write.kind) for text in names):
        return False
    if spaces and not _is_any(write.namespace, spaces):
        return False
    if operations and "CREATE" not in operations:
        return False
    if not _selects(resources["namespaceSelector"], write.labels):
        return False
    others = (each[key].present for key in ("subjects", "roles", "clusterRoles"))
    more = (resources[key].present for key in ("name", "names", "selector", "annotations"))
    return None if any(others) or any(more) or not (names or spaces) else True


_WITH_GROUP: Final = 3


def _is_kind(text: str, kind: Kind) -> bool:
    """Return whether ``Kind``, ``version/Kind`` or ``group/version/Kind`` is of a kind."""
    parts = text.split("/")
    group = parts[0] if len(parts) == _WITH_GROUP else "*"
    return fnmatchcase(kind.kind, parts[-1]) and fnmatchcase(kind.group, group)


# --- Kubernetes -----------------------------------------------------------------------------------


def _vaps(write: PolicedWrite, cluster: Cluster) -> Iterator[AdmissionPolicy]:
    policies = {each.name: each for each in cluster.known(_VAP)}
    for binding in cluster.known(_BINDING) if policies else ():
        policy = policies.get(binding.at("spec", "policyName").text or "")
        if policy is None or "Deny" not in _texts(binding.at("spec", "validationActions")):
            continue
        spec = policy["spec"]
        bound, own = binding.at("spec", "matchResources"), spec["matchConstraints"]
        conditions = spec["matchConditions"].value
        covers = _gets(own, write, conditions) and (not bound.present or _gets(bound, write))
        reads = write.is_read_by(spec["validations"].value)
        if covers and reads is not False:
            yield _bound(binding, write.namespace)._replace(reads=reads is True)


def _bound(binding: Object, namespace: str) -> AdmissionPolicy:
    way = f"leave {namespace} out by spec.matchResources.namespaceSelector"
    policy = binding.at("spec", "policyName").text or "?"
    of, maker = f"ValidatingAdmissionPolicy {policy}, Deny", _maker(binding)
    if maker is not None:
        return AdmissionPolicy(binding, _BINDING, of, f"leave {namespace} out", maker=maker)
    return AdmissionPolicy(binding, _BINDING, of, way)


def _maker(binding: Object) -> OwnerAbove | None:
    """Return the policy of which Kyverno or Gatekeeper makes a binding; None: it is nothing's.

    Only Gatekeeper's is its controller (kyverno/kyverno:pkg/admissionpolicy/builder.go
    #BuildValidatingAdmissionPolicyBinding).
    """
    owner = next(iter(binding.metadata["ownerReferences"].items()), None)
    name = owner["name"].text if owner is not None else None
    if owner is None or not name:
        return None
    kind = _of_cluster(owner["apiVersion"].text or "/", owner["kind"].text or "?")
    return OwnerAbove(kind, name, "")


def _gets(match: Field, write: PolicedWrite, conditions: Any = None) -> bool:
    """Return whether the resources of a policy or of a binding have a write in them, as far as is
    known."""
    rules = match["resourceRules"].value or [_EVERY]
    shared = {key: match[key].value for key in ("namespaceSelector", "objectSelector")}
    given = Field({"rules": rules, "matchConditions": conditions} | shared)
    without = Field({"rules": match["excludeResourceRules"].value})
    named = any(each["resourceNames"].present for each in given["rules"].items())
    return (
        not named
        and webhook_requests.gets(given, write.request) is not False
        and not webhook_requests.intercepts(without, write.request)
    )


_EVERY: Final = {"operations": ["*"], "apiGroups": ["*"], "resources": ["*"]}
