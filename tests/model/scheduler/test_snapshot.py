"""The index of pods by label."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

from virt_admit.model.kubernetes import selectors
from virt_admit.model.scheduler.pod_terms import PodTerm
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.snapshot import Node, SchedulerSnapshot, labels_of

KEYS = ("a", "b", "c")
VALUES = [str(number) for number in range(13)]


def selector(random: Random) -> selectors.Selector:
    expressions: list[dict[str, Any]] = []
    for key in random.sample(KEYS, random.randint(0, 3)):
        operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        values = (
            random.sample(VALUES, random.choice((1, 2, 10, 11))) if operator.endswith("In") else []
        )
        expressions.append({"key": key, "operator": operator, "values": values})
    return selectors.parse({"matchExpressions": expressions})


def pod(random: Random, number: int) -> Pod:
    labels = {key: random.choice(VALUES[:4]) for key in random.sample(KEYS, random.randint(0, 3))}
    term = PodTerm("zone", selector(random), frozenset(("shop",)), None)
    return Pod(namespace="shop", name=f"p{number}", node="n0", labels=labels, anti_affinity=(term,))


def test_the_index_yields_each_pod_that_a_selector_selects_once() -> None:
    for seed in range(300):
        random = Random(seed)
        pods = [pod(random, number) for number in range(8)]
        state = SchedulerSnapshot.of([Node("n0", {})], pods[:6], {})
        state.bind(pods[6])
        state.bind(pods[7])
        state.unbind(pods[7])
        for other in pods:
            (term,) = other.anti_affinity
            assert term.selector is not None
            found = [each.name for each in state.selected(term.selector)]
            assert len(found) == len(set(found))
            assert {each.name for each in pods[:7] if term.selector.matches(each.labels)} <= set(
                found
            )
            repelling = itertools.chain(
                *(state.repelling.get(label, {}).items() for label in labels_of(other))
            )
            names = [each.name for _, those in repelling for each in those]
            assert len(names) == len(set(names))
            matching = (
                each for each in pods[:7] if each.anti_affinity[0].matches("shop", {}, other.labels)
            )
            assert {each.name for each in matching} <= set(names)


def test_a_term_that_demands_a_label_is_compared_with_pods_that_have_it() -> None:
    def bound(name: str, **labels: str) -> Pod:
        return Pod(namespace="shop", name=name, node="n0", labels=labels)

    state = SchedulerSnapshot.of(
        [], [bound("p1", a="1"), bound("p2", a="2"), bound("p3", b="1"), bound("p4")], {}
    )

    def found(expression: dict[str, Any]) -> list[str]:
        return [
            each.name
            for each in state.selected(selectors.parse({"matchExpressions": [expression]}))
        ]

    assert found({"key": "a", "operator": "In", "values": ["2", "3"]}) == ["p2"]
    assert found({"key": "a", "operator": "In", "values": VALUES}) == ["p1", "p2"]
    assert found({"key": "b", "operator": "Exists"}) == ["p3"]
    assert len(found({"key": "b", "operator": "DoesNotExist"})) == 4


def test_a_copy_shares_the_pods_of_the_cluster_and_selects_those_bound_later_too() -> None:
    def bound(name: str) -> Pod:
        return Pod(namespace="shop", name=name, node="n0", labels={"app": "web"})

    state = SchedulerSnapshot.of([Node("n0", {})], [bound(f"p{number}") for number in range(3)], {})
    copy, late, every = (
        state.fork(),
        bound("late"),
        selectors.parse({"matchLabels": {"app": "web"}}),
    )
    copy.bind(late)
    assert all(copy.by_label[label] is some for label, some in state.by_label.items())
    assert [each.name for each in copy.selected(every)] == ["p0", "p1", "p2", "late"]
    assert [each.name for each in state.selected(every)] == ["p0", "p1", "p2"]
    copy.unbind(late)
    copy.unbind(state.pods["n0"][0])
    assert [each.name for each in copy.selected(every)] == ["p1", "p2"]
