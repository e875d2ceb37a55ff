"""What is kept of looked-up objects is all that rules read of them."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.rules import test_rules
from tests.rules.test_rules import CASES, Recorder, ask
from virt_admit.kube.cache import KindStore
from virt_admit.kube.field_filter import keep
from virt_admit.model import kinds
from virt_admit.model.objects import Object
from virt_admit.rules import load_rules

LOOKING = [case for case in CASES if case.values[1].get("cluster")]


def is_trimmed(kind, rule):
    """Whether a rule sees objects of the kind trimmed. A sweep does not trim the kinds that are judged."""
    return kind is not None and (rule.at_admission or kind not in load_rules().by_kind)


def shelved(data, rule):
    """An object as a look-up gives it back after it was put on its shelf."""
    kind = kinds.of(Object(data))
    if kind is None or not Object(data).name:
        return data
    store = KindStore(kind, whole=not is_trimmed(kind, rule))
    store.put(data)
    (obj,) = store.known(None)
    return obj.data


@pytest.mark.parametrize(("rule", "case"), LOOKING)
def test_rules_find_the_same_in_what_is_kept(rule, case):
    whole, _ = ask(rule, case)
    trimmed, _ = ask(rule, {**case, "cluster": [shelved(data, rule) for data in case["cluster"]]})

    assert trimmed == whole


class Read(dict):
    """A map of an object that notes which of its fields are read: ``seen`` gets paths; a map read as a whole adds *."""

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


@pytest.mark.parametrize(("rule", "case"), LOOKING)
def test_rules_read_nothing_that_is_not_kept(rule, case, monkeypatch):
    """Also nothing that this case happens to lack."""
    monkeypatch.setattr(Object, "annotations", property(lambda obj: obj.metadata["annotations"].map))  # not a copy
    seen = [(kinds.of(Object(data)), set(), data) for data in case["cluster"]]
    ask(rule, {**case, "cluster": [watched(data, paths) for _, paths, data in seen]})

    for kind, paths, _ in seen:
        if is_trimmed(kind, rule):
            lost = {".".join(path) for path in paths if not is_kept(keep(kind).tree, path)}
            assert not lost, f"{kind}: webhook/trimming.py must keep these"


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
    for case in LOOKING:
        rule, data = case.values
        if rule.at_admission:
            ask(rule, data)

    elsewhere = {(kind, namespace) for kind, namespace in Narrow.places if keep(kind).namespace not in ("", namespace)}
    assert not elsewhere
    assert {kind for kind, _ in Narrow.places if keep(kind).namespace} == {kinds.POD, kinds.PDB, kinds.LEASE}
