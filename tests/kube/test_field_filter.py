"""A check finds everything in the fields that its rule declares, and reads no others."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.rules import test_rules
from tests.rules.test_rules import CASES_BY_RULE, Recorder, ask, file_of
from virt_admit.kube.cache import KindStore
from virt_admit.kube.field_filter import retained_fields
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rules import Rules

LOOKING = [
    pytest.param(rule, looking, id=rule.id)
    for rule, cases in (each.values for each in CASES_BY_RULE)
    if (looking := [case for case in cases if case.get("cluster")])
]
"""The rules with those of their cases that have a cluster."""


def filtered(data, fields):
    """An object as a look-up returns it from a store with these fields."""
    kind = kinds.of(Object(data))
    if kind not in fields or not Object(data).name:
        return data
    store = KindStore(kind, fields=fields[kind])
    store.upsert(data)
    (obj,) = store.known(None)
    return obj.data


@pytest.mark.parametrize(("rule", "cases"), LOOKING)
def test_a_rule_finds_the_same_in_the_fields_that_it_declares(rule, cases):
    """The fields of this rule alone: those that other rules declare may go at any time."""
    declared = retained_fields(Rules([rule]))

    differing = {}
    for case in cases:
        expected, _ = ask(rule, case)
        result, _ = ask(
            rule, {**case, "cluster": [filtered(data, declared) for data in case["cluster"]]}
        )
        if result != expected:
            differing[case["name"]] = (result, expected)
    assert not differing, (
        f"{file_of(rule)}: name every field that the check looks up in reads: {differing}"
    )


class Read(dict):
    """A map of an object that notes which of its fields are read: ``seen`` gets paths;
    a map read as a whole adds *.
    """

    def __init__(self, data, seen, path=()):
        super().__init__((key, watched(value, seen, (*path, key))) for key, value in data.items())
        self.seen, self.path = seen, path

    def __getitem__(self, key):
        self.seen.add((*self.path, key))
        return super().__getitem__(key)

    def __contains__(self, key):
        self.seen.add((*self.path, key))
        return super().__contains__(key)

    def get(self, key, default=None):
        self.seen.add((*self.path, key))
        return super().get(key, default)

    def __iter__(self):
        self.seen.add((*self.path, "*"))
        return super().__iter__()

    def __eq__(self, other):
        self.seen.add((*self.path, "*"))
        return super().__eq__(other)

    __hash__ = None

    def items(self):
        self.seen.add((*self.path, "*"))
        return super().items()

    def keys(self):
        self.seen.add((*self.path, "*"))
        return super().keys()

    def values(self):
        self.seen.add((*self.path, "*"))
        return super().values()


def watched(value, seen, path=()):
    if isinstance(value, dict):
        return Read(value, seen, path)
    return [watched(item, seen, path) for item in value] if isinstance(value, list) else value


def is_kept(tree, path):
    """Whether a path leads to something that is kept, or to a map of which something is."""
    for step in path:
        if tree is None:
            return True
        if step not in tree:
            return False
        tree = tree[step]
    return True


@pytest.mark.parametrize(("rule", "cases"), LOOKING)
def test_a_rule_reads_no_field_that_it_does_not_declare(rule, cases, monkeypatch):
    """Also none that the objects of this case happen to lack."""
    # not a copy
    monkeypatch.setattr(
        Object, "annotations", property(lambda obj: obj.metadata["annotations"].map)
    )
    declared = retained_fields(Rules([rule]))
    undeclared: dict[tuple[kinds.Kind, tuple[str, ...]], str] = {}
    for case in cases:
        seen = [(kinds.of(Object(data)), set(), data) for data in case["cluster"]]
        ask(rule, {**case, "cluster": [watched(data, paths) for _, paths, data in seen]})
        for kind, paths, _ in seen:
            for path in paths if kind in declared else ():
                if not is_kept(declared[kind].tree, path):
                    undeclared.setdefault((kind, path), case["name"])
    parents = {(kind, path[:length]) for kind, path in undeclared for length in range(1, len(path))}
    fields = sorted(
        f"{kind}: {'.'.join(path)} (case {case})"
        for (kind, path), case in undeclared.items()
        if (kind, path) not in parents
    )
    if undeclared:
        pytest.fail(
            f"{file_of(rule)}: add these fields to reads: {', '.join(fields)}", pytrace=False
        )


class Narrow(Recorder):
    """A cluster that notes in which namespaces the kinds are looked up that have only one."""

    places: ClassVar[set] = set()

    def get(self, kind, namespace, name):
        self.places.add((kind, namespace))
        return super().get(kind, namespace, name)

    def list(self, kind, namespace=None):
        self.places.add((kind, namespace))
        return super().list(kind, namespace)

    def known(self, kind, namespace=None):
        self.places.add((kind, namespace))
        return super().known(kind, namespace)


def test_at_admission_some_kinds_are_looked_up_in_one_namespace_alone(monkeypatch):
    monkeypatch.setattr(test_rules, "Recorder", Narrow)
    for rule, cases in (each.values for each in LOOKING):
        for case in cases if rule.at_admission else ():
            ask(rule, case)

    elsewhere = {
        (kind, namespace)
        for kind, namespace in Narrow.places
        if kind.lookup_namespace not in ("", namespace)
    }
    assert not elsewhere
    assert {kind for kind, _ in Narrow.places if kind.lookup_namespace} == {kinds.LEASE}
