"""Which policy may deny what a controller creates, and which answer names one."""

from __future__ import annotations

import pytest

from tests.builders import manifest, webhook_configuration
from virt_admit.model.evidence.writes import admission_policies, refused_writes
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import PDB

OLD, NOW = "2026-11-01T00:00:00Z", "2026-11-26T12:00:00Z"
CODE = 'violation[{"msg": msg}] { input.review.object.spec.maxUnavailable == 0 }'
PDBS = {"kinds": [{"apiGroups": ["policy"], "kinds": ["PodDisruptionBudget"]}]}
BUDGETS = {"kinds": ["PodDisruptionBudget"]}
RULE = {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "operations": ["*"]}


def space(**labels):
    return manifest("v1", "Namespace", "rook", metadata={"labels": labels})


def template(code=CODE):
    targets = [{"code": [{"engine": "Rego", "source": {"rego": code}}]}]
    spec = {"crd": {"spec": {"names": {"kind": "K8sBudgets"}}}, "targets": targets}
    return manifest("templates.gatekeeper.sh/v1", "ConstraintTemplate", "k8sbudgets", spec=spec)


def constraint(match=None, made=OLD, status=None, **spec):
    return manifest(
        "constraints.gatekeeper.sh/v1beta1",
        "K8sBudgets",
        "strict",
        metadata={"creationTimestamp": made},
        spec={"match": PDBS | (match or {})} | spec,
        status=status or {},
    )


def hook(name, rule=None, **more):
    return webhook_configuration("hooks", {"name": name, "rules": [rule or RULE]} | more)


GATEKEEPER = hook("validation.gatekeeper.sh")
KYVERNO = hook("validate.kyverno.svc-fail")


def found(*parts, labels=None):
    cluster = Snapshot([space(**(labels or {})), *parts], ["*"], time=NOW)
    before = clock.instant("2026-11-26T11:00:00Z")
    return admission_policies.denying(PDB, "rook", "maxUnavailable", before, cluster)


def test_a_constraint_of_gatekeeper_is_named_with_the_field_that_leaves_a_namespace_out():
    policy = found(template(), constraint(), GATEKEEPER)
    assert (policy.title, policy.reads) == (
        "K8sBudgets strict (Gatekeeper, enforcementAction deny)",
        True,
    )
    assert policy.order == "add rook to spec.match.excludedNamespaces of K8sBudgets strict"
    assert policy.command == "kubectl edit k8sbudgets strict"


def deny_at(point):
    actions = [{"action": "deny", "enforcementPoints": [{"name": point}]}]
    return {"enforcementAction": "scoped", "scopedEnforcementActions": actions}


@pytest.mark.parametrize(
    ("match", "fields", "named"),
    [
        ({"namespaces": ["ro*"]}, {}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "storage"}}}, {}, True),
        ({}, deny_at("*"), True),
        ({}, {"status": {"byPod": [{"enforced": False}, {"enforced": True}]}}, True),
        ({"excludedNamespaces": ["kube-*", "rook"]}, {}, False),
        ({"namespaces": ["shop"]}, {}, False),
        ({"namespaceSelector": {"matchLabels": {"team": "web"}}}, {}, False),
        ({"labelSelector": {"matchLabels": {"app": "web"}}}, {}, False),
        ({"kinds": [{"apiGroups": ["apps"], "kinds": ["Deployment"]}]}, {}, False),
        ({"scope": "Cluster"}, {}, False),
        ({"source": "Generated"}, {}, False),
        ({}, {"enforcementAction": "dryrun"}, False),
        ({}, deny_at("audit.gatekeeper.sh"), False),
        ({}, {"status": {"byPod": [{"enforced": False}]}}, False),
        ({}, {"made": "2026-11-26T11:30:00Z"}, False),
    ],
)  # fmt: skip
def test_what_a_constraint_covers(match, fields, named):
    policy = found(template(), constraint(match, **fields), GATEKEEPER, labels={"team": "storage"})
    assert (policy is not None) is named


@pytest.mark.parametrize(
    "parts",
    [
        [template('violation { not input.review.object.metadata.labels["team"] }'), GATEKEEPER],
        [template()],
        [template(), hook("validation.gatekeeper.sh", RULE | {"resources": ["pods"]})],
        [template(), hook("validation.gatekeeper.sh", namespaceSelector={
            "matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]})],
    ],
    ids=["reads another field", "no webhook", "not asked", "namespace ignored"],
)  # fmt: skip
def test_a_constraint_that_does_not_deny_budgets(parts):
    assert found(constraint(), *parts, labels={"team": "storage"}) is None


@pytest.mark.parametrize(("process", "named"), [("*", False), ("webhook", False), ("audit", True)])
def test_gatekeeper_itself_may_leave_a_namespace_out(process, named):
    match = [{"processes": [process], "excludedNamespaces": ["rook*"]}]
    config = manifest(
        "config.gatekeeper.sh/v1alpha1", "Config", "config", "g", spec={"match": match}
    )
    assert (found(template(), constraint(), GATEKEEPER, config) is not None) is named


def test_code_that_is_not_known_may_read_the_field():
    unread = manifest(template().api_version, template().kind, "k8sbudgets", spec={
        "crd": {"spec": {"names": {"kind": "K8sBudgets"}}}, "targets": [{}]})  # fmt: skip
    assert found(unread, constraint(), GATEKEEPER).reads is False


def kyverno(match=None, exclude=None, kind="ClusterPolicy", action="Enforce", rule=None, **spec):
    deny = {"deny": {"conditions": {"all": [{"key": "{{ request.object.spec.maxUnavailable }}"}]}}}
    rules = [{
        "name": "zero",
        "match": match or {"any": [{"resources": BUDGETS}]},
        "validate": deny | (rule or {}),
    } | ({"exclude": exclude} if exclude else {})]  # fmt: skip
    namespace = "rook" if kind == "Policy" else ""
    given = {"rules": rules, "validationFailureAction": action} | spec
    made = {"creationTimestamp": OLD}
    return manifest("kyverno.io/v1", kind, "budgets", namespace, spec=given, metadata=made)


def resources(**more):
    return {"any": [{"resources": BUDGETS | more}]}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, True),
        ({"kind": "Policy"}, True),
        ({"match": {"resources": {"kinds": ["policy/*/PodDisruptionBudget"]}}}, True),
        ({"action": "Audit", "rule": {"failureAction": "Enforce"}}, True),
        ({"exclude": resources(namespaces=["kube-*"])}, True),
        ({"exclude": {"resources": {}}}, True),
        ({"action": "Audit"}, False),
        ({"admission": False}, False),
        ({"match": {"any": [{"resources": {"kinds": ["Pod"]}}]}}, False),
        ({"match": {"any": [{"resources": {"kinds": ["apps/v1/*"]}}]}}, False),
        ({"match": resources(namespaces=["shop"])}, False),
        ({"match": resources(operations=["DELETE"])}, False),
        ({"match": resources(selector={"matchLabels": {"a": "b"}})}, False),
        ({"exclude": resources(namespaces=["rook"])}, False),
        ({"exclude": {"any": [{"subjects": [{"kind": "User"}]}]}}, False),
        ({"validationFailureActionOverrides": [{"action": "Audit", "namespaces": ["ro*"]}]}, False),
    ],
)
def test_what_a_policy_of_kyverno_covers(given, named):
    assert (found(kyverno(**given), KYVERNO) is not None) is named


def test_a_policy_of_kyverno_with_an_exception_may_not_deny():
    excepted = {"exceptions": [{"policyName": "budgets", "ruleNames": ["zero"]}]}
    exception = manifest("kyverno.io/v2", "PolicyException", "own", "rook", spec=excepted)
    assert found(kyverno(), KYVERNO, exception) is None
    assert found(kyverno()) is None


def vap(match=None, actions=("Deny",), rules=RULE, bound=None):
    made = {"creationTimestamp": OLD}
    own = {"resourceRules": [rules]} | (match or {})
    code = [{"expression": "object.spec.maxUnavailable > 0"}]
    group = "admissionregistration.k8s.io/v1"
    spec = {"matchConstraints": own, "validations": code}
    binding = {"policyName": "budgets", "validationActions": list(actions)}
    binding |= {"matchResources": bound} if bound else {}
    return [
        manifest(group, "ValidatingAdmissionPolicy", "budgets", spec=spec, metadata=made),
        manifest(group, "ValidatingAdmissionPolicyBinding", "all", spec=binding, metadata=made),
    ]


TEAM = {"namespaceSelector": {"matchLabels": {"team": "web"}}}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, True),
        ({"actions": ("Warn", "Audit")}, False),
        ({"rules": RULE | {"resources": ["pods"]}}, False),
        ({"rules": RULE | {"resourceNames": ["one"]}}, False),
        ({"match": TEAM}, False),
        ({"bound": TEAM}, False),
        ({"match": {"excludeResourceRules": [RULE]}}, False),
    ],
)
def test_what_an_admission_policy_covers(given, named):
    assert (found(*vap(**given)) is not None) is named


def test_what_writes_a_policy_would_revert_a_change():
    given = constraint()
    given.metadata.value["annotations"] = {"meta.helm.sh/release-name": "policies"}
    policy = found(template(), given, GATEKEEPER)
    assert policy.order.endswith(" of K8sBudgets strict, in Helm release policies, which writes it")
    assert policy.command == "kubectl describe k8sbudgets strict"


def test_a_binding_that_kyverno_makes_is_changed_in_its_policy():
    policy, binding = vap()
    owner = {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "name": "zero", "uid": "u"}
    binding.metadata.value["ownerReferences"] = [owner]
    made = found(policy, binding)
    assert made.order == (
        "leave rook out in ClusterPolicy zero, of which ValidatingAdmissionPolicyBinding all is "
        "made"
    )
    assert made.command == "kubectl describe clusterpolicy zero"


def test_policies_are_gone_through_once_for_all_writes():
    reads = []

    class Counted(Snapshot):
        def known(self, kind, namespace=None):
            reads.append(kind)
            return super().known(kind, namespace)

    cluster = Counted([space(), template(), constraint(), GATEKEEPER], ["*"], time=NOW)
    before = clock.instant("2026-11-26T11:00:00Z")
    first = admission_policies.denying(PDB, "rook", "", before, cluster)
    once = len(reads)
    assert admission_policies.denying(PDB, "rook", "", before, cluster) is first is not None
    assert len(reads) == once


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('admission webhook "validation.gatekeeper.sh" denied the request: [strict] no budget of 0',
         "add shop to spec.match.excludedNamespaces of K8sBudgets strict"),
        ('admission webhook "validate.kyverno.svc-fail" denied the request: \\n\\nresource '
         "PodDisruptionBudget/shop/db was blocked due to the following policies \\n\\nbudgets:\\n  "
         "zero: 'no budget of 0'",
         "exclude shop in the rule (exclude.any.resources.namespaces) of ClusterPolicy budgets"),
        ("ValidatingAdmissionPolicy 'budgets' with binding 'all' denied request: no budget of 0",
         "leave shop out by spec.matchResources.namespaceSelector of "
         "ValidatingAdmissionPolicyBinding all"),
        ('admission webhook "validation.gatekeeper.sh" denied the request: [other] no', None),
        ('admission webhook "default.example.com" denied the request: [strict] no', None),
    ],
)  # fmt: skip
def test_an_answer_names_its_policy(said, words):
    cluster = Snapshot([template(), constraint(), kyverno(), *vap()], ["*"], time=NOW)
    policy = admission_policies.named(said.replace("\\n", "\n"), "shop", cluster)
    assert (policy.order if policy else None) == words


@pytest.mark.parametrize(("action", "named"), [("dryrun", True), ("deny", False)])
def test_constraints_of_one_name_are_told_apart_by_what_they_do(action, named):
    spec = {"crd": {"spec": {"names": {"kind": "AllowedRepos"}}}, "targets": []}
    repos = manifest("templates.gatekeeper.sh/v1", "ConstraintTemplate", "repos", spec=spec)
    action = {"enforcementAction": action}
    other = manifest("constraints.gatekeeper.sh/v1beta1", "AllowedRepos", "strict", spec=action)
    cluster = Snapshot([repos, other, template(), constraint()], ["*"], time=NOW)
    said = 'admission webhook "validation.gatekeeper.sh" denied the request: [strict] no'
    policy = admission_policies.named(said, "shop", cluster)
    assert (policy.name if policy else None) == ("K8sBudgets strict" if named else None)


def test_a_message_is_told_with_its_policy():
    said = 'admission webhook "validation.gatekeeper.sh" denied the request: [strict] no'
    cluster = Snapshot([template(), constraint()], ["*"], time=NOW)
    assert refused_writes.hint(said, cluster, None, ()) == (
        ". K8sBudgets strict (Gatekeeper, enforcementAction deny) denies it. Add its namespace to "
        "spec.match.excludedNamespaces of K8sBudgets strict: kubectl edit k8sbudgets strict; or "
        "change what it rejects"
    )
