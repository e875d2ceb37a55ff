"""Our verdicts and explanations of health checks against the API server's validation and Cluster
API's own code.

``python -m tests.upstream.health 5000`` compares that many random objects; a second number is the
first seed. The program in ``health/`` links upstream's code.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

from tests import definitions
from tests.model.remediation.health_check_reviews import review
from tests.upstream.health_cases import case
from tests.upstream.renderer import HEALTH, program, render
from virt_admit.forecasts.outage.explanation import KINDS, Explanation, explain
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Action

STRICTER: Final[Mapping[str, Sequence[str]]] = {
    "the webhook of the operator rejects it (it is not linked)": (
        *(
            "far-action-unsupported",
            "far-agent-name",
            "far-parameters-missing",
            "far-template-syntax",
            "nm-node-not-found",
        ),
        *(
            "nhc-escalation-order-duplicate",
            "nhc-escalation-same-kind",
            "nhc-escalation-timeout-too-short",
        ),
        *(
            "nhc-max-unhealthy-with-mdr",
            "nhc-remediation-exactly-one",
            "nhc-selector-empty",
            "nhc-threshold-exactly-one",
        ),
        *("snrc-not-the-config", "snrc-scheduling-invalid", "snrc-time-too-small"),
    ),
    "the controller cannot decode or use it": (
        *(
            "capi-mhc-unhealthy-range-invalid",
            "condition-incomplete",
            "condition-timeout-invalid",
            "far-retry-interval-invalid",
        ),
        *(
            "far-timeout-zero",
            "mhc-max-unhealthy-invalid",
            "mhc-node-startup-timeout-invalid",
            "nhc-duration-invalid",
        ),
        *("nhc-threshold-invalid", "remediation-template-invalid", "remediation-template-shape"),
    ),
    "it never matches a node, or matches every healthy one": (
        *(
            "condition-list-missing",
            "condition-matches-healthy-state",
            "condition-status-unknown-value",
        ),
        "condition-type-misspelled",
    ),
    "it deletes or fences machines that work": (
        *(
            "condition-timeout-too-short",
            "far-retry-count-not-positive",
            "mhc-node-startup-timeout-too-short",
        ),
        *("mhc-selector-empty",),
    ),
}
"""Why some rules deny what the API server, and for Cluster API its webhook, accept.
docs/upstream.md repeats this.
"""

SELECTORS: Final = ("mhc-selector-invalid", "nhc-selector-invalid")
"""These rules have to deny exactly what LabelSelectorAsSelector refuses, and nulls,
which the API server drops.
"""

NOT_JUDGED: Final = re.compile(
    r"spec\.(reason|pauseRequests(\[0\])?|escalatingRemediations|customDsTolerations\[0\]): "
    r"Invalid value.* must be of type"
)
"""Wrong JSON types that no rule of ours looks for.
Every client shows the error of the API server.
"""

_GROUP: Final = 500
"""Cases in one run of the program."""


def compare(binary: Path, seeds: Sequence[int]) -> Iterator[tuple[int, list[str]]]:
    """Yield the seed of each case of a kind in ``judged`` and the disagreements;
    empty if there are none.
    """
    with definitions.written(judged()) as folder:
        for start in range(0, len(seeds), _GROUP):
            found = {
                seed: one
                for seed in seeds[start : start + _GROUP]
                if _kind(one := case(seed)) in judged()
            }
            answers = render(binary, found.values(), str(folder))
            for (seed, one), answer in zip(found.items(), answers, strict=True):
                yield seed, list(differences(one, answer))


def judged() -> list[Kind]:
    """Return the kinds of the cases that have a real definition at hand:
    no other one validates values.
    """
    return [kind for kind in kinds.ALL if kind.resource in definitions.real()]


def _kind(given: dict[str, Any]) -> Kind | None:
    return kinds.of(Object(given["object"]))


def differences(given: dict[str, Any], answer: dict[str, Any]) -> Iterator[str]:
    """Yield where we and upstream's code disagree about one case."""
    cluster = Snapshot([Object(each) for each in given["cluster"]], complete=["*"])
    response = review(given["object"], given["old"], cluster)
    denied = {verdict.rule.id for verdict in response.verdicts if verdict.action == Action.DENY}
    if answer["rejected"]:
        if not denied and not all(map(NOT_JUDGED.match, answer["rejected"])):
            yield f"accepts what upstream rejects: {answer['rejected'][0]}"
        return
    stricter = {*SELECTORS, *(rule for rules in STRICTER.values() for rule in rules)}
    for rule in sorted(denied - stricter):
        yield f"rejects what upstream accepts: {rule}"
    obj = Object(given["object"])
    if kinds.of(obj) in KINDS:
        yield from _selector(obj, denied, answer)
        if not answer["selector"]:
            yield from _explanations(explain(obj, cluster), answer)


def _selector(obj: Object, denied: Set[str], answer: dict[str, Any]) -> Iterator[str]:
    unusable = bool(answer["selector"]) or '": null' in json.dumps(
        obj.at("spec", "selector", "matchLabels").value
    )
    refused = not denied.isdisjoint(SELECTORS)
    if refused and not unusable:
        yield "refuses a selector that upstream reads"
    if unusable and not refused:
        yield f"accepts a selector: {answer['selector']}"


def _explanations(ours: Explanation, answer: dict[str, Any]) -> Iterator[str]:
    checked = answer["checked"]
    if checked is None:
        if (found := _names(ours)) != sorted(answer["selected"]):
            yield f"selects {found} instead of {sorted(answer['selected'])}"
    elif not checked["error"] and not checked["paused"]:
        yield from _controller(ours, checked)


def _names(ours: Explanation) -> list[str]:
    return sorted(obj.name for obj in ours.selection.objects)


def _controller(ours: Explanation, checked: dict[str, Any]) -> Iterator[str]:
    """Yield where ``explain`` and a reconcile of the controller disagree."""
    targets = checked["targets"] or []
    if _names(ours) != targets:
        yield f"selects {_names(ours)} instead of {targets}"
        return
    marked = set(checked["healthy"] or [])
    unhealthy = {name for name, _ in ours.unhealthy}
    # the template cannot be read, so the controller does not mark the machines
    if len(marked) < checked["allHealthy"]:
        if ours.all_unhealthy and len(targets) - len(unhealthy) != checked["allHealthy"]:
            yield (
                f"finds {sorted(unhealthy)} unhealthy of {targets}; upstream counts "
                f"{checked['allHealthy']} healthy"
            )
        return
    theirs = set(targets) - marked
    if (unhealthy != theirs) if ours.all_unhealthy else not unhealthy <= theirs:
        yield f"finds {sorted(unhealthy)} unhealthy instead of {sorted(theirs)}"
        return
    remediated = set(checked["remediated"] or [])
    if not ours.all_unhealthy:
        return
    budget = ours.budget
    low = budget.least if ours.check.range.present else 0
    if budget.most is not None and (low <= len(unhealthy) <= budget.most) != checked["allowed"]:
        yield (
            f"allows {low} to {budget.most} of {budget.total}, with {len(unhealthy)}: upstream "
            f"says {checked['allowed']}"
        )
    blocked = [reason for reason in ours.obstacles if not reason.startswith("to ")]
    if blocked and remediated:
        yield f"does nothing ({blocked[0]}), but upstream remediates {sorted(remediated)}"
    if not remediated <= unhealthy:
        yield f"upstream remediates {sorted(remediated - unhealthy)}, which are healthy"
    if not ours.obstacles and checked["allowed"] and (missed := _due(ours) - remediated):
        yield f"upstream does not remediate {sorted(missed)}"


def _due(ours: Explanation) -> set[str]:
    """Return the machines that the controller has to remediate:
    all conditions of the cases have lasted for years.
    """
    waits = {"is being deleted", *(["has no node"] if ours.check.known_startup_time() == 0 else [])}
    deleted = {machine.name for machine in ours.selection.objects if machine.deleted}
    return {name for name, why in ours.unhealthy if why not in waits} - deleted


def main(count: int, first: int) -> int:
    """Compare many cases and print what differs. Returns the exit code."""
    different: Counter[str] = Counter()
    cases = 0
    for seed, found in compare(program(HEALTH), range(first, first + count)):
        cases += 1
        for text in found:
            different[text.partition(":")[0]] += 1
            print(f"seed {seed}: {text}")
    print(
        f"{cases} of {count} health checks and remediators, differences: "
        f"{dict(different) or 'none'}"
    )
    print(f"compared: {', '.join(map(str, judged()))}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
