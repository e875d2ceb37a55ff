"""Objects, clusters and answers for the tests of hazards."""

from __future__ import annotations

import json
from typing import Any

from tests.https.reviews import review
from tests.rule_cases import rule_cases
from virt_admit.engine import review as engine
from virt_admit.install import manifests
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy.parser import load
from virt_admit.policy.policy import Policy
from virt_admit.rules import load_rules

ALL = load_rules()

RULES = ALL.at_admission

DEFAULT = load("default", ALL)

MUTATE, VALIDATE = manifests.webhooks(RULES)

ENTRIES = [*MUTATE["webhooks"], *VALIDATE["webhooks"]]

EMPTY = Snapshot(complete=["*"])
"""A cluster of which everything can be seen, and there is nothing."""


def instance(**spec: Any) -> dict[str, Any]:
    names = {"name": "db", "namespace": "shop"}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": names,
        "spec": spec,
    }


def cluster(*objects: dict[str, Any], complete: tuple[str, ...] = ("*",)) -> Snapshot:
    return Snapshot([Object(each) for each in objects], complete=complete)


def ask(
    obj: Any,
    old: Any = None,
    *,
    endpoint: str = "validate",
    over: Cluster = EMPTY,
    policy: Policy = DEFAULT,
    **more: Any,
) -> dict[str, Any]:
    """What the webhook answers about an object: ``allowed``, and ``status``, ``warnings``,
    ``patch`` where there are.
    """
    return answered(review(obj, old, **more), endpoint, over, policy)


def answered(
    body: dict[str, Any], endpoint: str, over: Cluster = EMPTY, policy: Policy = DEFAULT
) -> dict[str, Any]:
    """The answer to a review. Nothing may have gone wrong inside."""
    decide = engine.fix if endpoint == "mutate" else engine.review
    answer = engine.answer(json.dumps(body).encode(), decide, RULES, over, policy)
    assert answer.response.errors == ()
    response: dict[str, Any] = json.loads(answer.body)["response"]
    return {key: value for key, value in response.items() if key not in ("uid", "auditAnnotations")}


def silent(obj: Any, old: Any = None, **more: Any) -> bool:
    """Whether both endpoints allow it without a word and without a patch."""
    return all(
        ask(obj, old, endpoint=each, **more) == {"allowed": True} for each in ("mutate", "validate")
    )


def said(response: dict[str, Any]) -> str:
    """All texts of an answer."""
    return "\n".join([*response.get("warnings", ()), json.dumps(response.get("status", ""))])


def cases(*families: str) -> list[tuple[str, dict[str, Any]]]:
    """Return every case of the rules whose ids start with one of these words,
    with the rule's id.
    """
    assert {rule_id.split("-")[0] for rule_id in rule_cases()} >= set(families)
    return [
        (rule_id, case)
        for rule_id, found in rule_cases().items()
        if rule_id.split("-")[0] in families and rule_id in RULES.by_id
        for case in found
        if kinds.of(Object(case["object"]))
    ]


def registered() -> set[tuple[str, str, str, str]]:
    """Group, resource, operation and webhook of everything that the API server asks us about."""
    return {
        (group, resource, operation, entry["name"])
        for entry in ENTRIES
        for rule in entry["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }


def over(case: dict[str, Any]) -> Snapshot:
    """The cluster that a case describes."""
    items = [Object(data) for data in case.get("cluster", ())]
    return Snapshot(items, case.get("complete", ["*"]), server_version=case.get("serverVersion"))
