"""No rule breaks, whatever it is given: objects come from strangers, and any field may be anything.

What the fields are called is known from the cases of all rules; what stands in them is junk.
"""

import json
import os
from itertools import count, islice
from random import Random

import pytest

from tests.fuzz.mutation import places
from tests.rule_cases import rule_cases
from tests.rule_results import result_of
from tests.rules.test_rules import context_of
from virt_admit.engine.admission_review import Request, encode
from virt_admit.engine.review import judge
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy.policy import Policy
from virt_admit.rules import load_rules

pytestmark = pytest.mark.slow

RULES = load_rules()
CASES = [
    (RULES.by_id[rule_id], case)
    for rule_id, cases in rule_cases().items()
    for case in json.loads(json.dumps(cases, default=str))
]

EACH = int(os.environ.get("HOSTILE_VALUES", "1"))
"""Values for each field in turn; 20 are all."""
JUNK = [
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    10**4299,
    "",
    "x",
    "-1",
    "100%",
    "5m",
    "\ud800\x00\n%s{}",
    "9" * 5_000,
    [],
    [None],
    [[], {}, 1, "a", None],
    {},
    {"": None},
    {"a": {"b": [{"c": 1}]}, "key": 1, "name": [], "matchLabels": 5},
]
"""Values of every JSON type, among them the largest integer that Python still prints."""

TEXT = "ab0-./%é\x00\ud800\u2028😀"
"""Characters of random texts: those of names and numbers, and those that break printing."""


def value(random, depth=2):
    """A random value of a field: any JSON type, nested up to ``depth``."""
    if depth and random.random() < 0.3:
        inner = [value(random, depth - 1) for _ in range(random.randint(0, 3))]
        return inner if random.random() < 0.5 else {text(random): each for each in inner}
    plain = (None, True, random.randint(-(10**6), 10**6), random.uniform(-10, 10), text(random))
    return random.choice((*plain, *JUNK))


def text(random):
    return "".join(random.choices(TEXT, k=random.randint(0, 8)))


def put(data, path, value):
    """A copy of the data with the value at the path."""
    step, *rest = path
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[step] = put(copy[step], rest, value) if rest else value
    return copy


def is_faithful(path):
    """Whether a change there leaves the object one that the rule is asked about,
    or that can be looked up.
    """
    return path not in (("apiVersion",), ("kind",)) and path[-1] not in ("apiVersion", "kind")


def ask(rule, case, obj, old, others):
    cluster = Snapshot(map(Object, others), complete=case.get("complete", ["*"]))
    context = context_of(rule, case, Object(obj), None if old is None else Object(old), cluster)
    return result_of(rule, Object(obj), context)


@pytest.mark.parametrize("rule", list(RULES), ids=lambda rule: rule.id)
def test_a_rule_survives_any_single_fault(rule):
    """Each field of each case holds junk once: in the object, in the one before, and in each
    object of the cluster.

    More of it: ``make verify-random``.
    """
    turn, tried = count(), set()
    for case in (case for each, case in CASES if each is rule):
        obj, old, others = case["object"], case.get("old"), case.get("cluster", [])
        for path in filter(is_faithful, places(obj)):
            for junk in some(JUNK, next(turn)):
                assert not ask(rule, case, put(obj, path, junk), old, others).error, (
                    case["name"],
                    path,
                    junk,
                )
        for path in filter(is_faithful, places(old)):
            for junk in some(JUNK, next(turn)):
                assert not ask(rule, case, obj, put(old, path, junk), others).error, (
                    case["name"],
                    path,
                    junk,
                )
        texts = [json.dumps(each, sort_keys=True) for each in others]
        for path in filter(is_faithful, places(others)):
            if len(path) > 1 and (field := (texts[path[0]], path[1:])) not in tried:
                tried.add(field)  # cases share objects
                junk = JUNK[next(turn) % len(JUNK)]
                assert not ask(rule, case, obj, old, put(others, path, junk)).error, (
                    case["name"],
                    path,
                    junk,
                )


def some(values, turn):
    """Return a few of them, others at each turn."""
    return islice(values * 2, turn % len(values), turn % len(values) + EACH)


OBJECTS: dict[str, list] = {}
for _rule, _case in CASES:
    for _data in (_case["object"], *_case.get("cluster", [])):
        _kind = kinds.of(Object(_data))
        if _kind is not None and _data not in OBJECTS.setdefault(_kind.resource, []):
            OBJECTS[_kind.resource].append(_data)

REVIEWS = range(int(os.environ.get("HOSTILE_REVIEWS", "12")))
EVERYTHING = [data for objects in OBJECTS.values() for data in objects]


def faulty(random, objects):
    """One of the objects, with junk in up to four places."""
    data = random.choice(objects)
    for _ in range(random.randint(1, 4)):
        found = [path for path in places(data) if is_faithful(path)]
        if found:
            data = put(data, random.choice(found), value(random))
    return data


@pytest.mark.parametrize("kind", RULES.kinds, ids=lambda kind: kind.resource)
def test_every_review_of_faulty_objects_is_answered(kind):
    objects = OBJECTS[kind.resource]
    for number in REVIEWS:
        random = Random(f"{kind.resource} {number}")
        obj, old = faulty(random, objects), random.choice((None, faulty(random, objects)))
        others = [faulty(random, EVERYTHING) for _ in range(random.randint(0, 6))]
        answer(kind, obj, old, others, random.choice(("CREATE", "UPDATE", "DELETE")))


@pytest.mark.parametrize("kind", RULES.kinds, ids=lambda kind: kind.resource)
def test_every_review_of_arbitrary_objects_is_answered(kind):
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    for number in REVIEWS:
        random = Random(f"{kind.resource} {number}")
        metadata, spec, status, old = (value(random, 3) for _ in range(4))
        obj = head | {"metadata": metadata, "spec": spec, "status": status}
        others = [obj, head | {"spec": old}]
        answer(kind, obj, head | {"metadata": metadata, "spec": old}, others, "UPDATE")


def answer(kind, obj, old, others, operation):
    request = Request(
        operation=operation,
        kind=kind,
        obj=Object(obj, "shop"),
        old=Object(old, "shop") if old is not None else None,
        namespace="shop",
        uid="1",
    )
    response = judge(request, RULES, Snapshot(map(Object, others), complete=["*"]), Policy())
    assert not response.errors, (obj, old, others)
    assert json.loads(encode(request, response))["response"]["uid"] == "1"
