"""JSON Patch as jsonpatch understands it, and the object that it starts from stays as it is."""

import copy

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virt_admit.model.kubernetes import json_patch
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.objects import Object, Path

# 1 equals true in Python
LEAF = st.none() | st.booleans() | st.integers(2, 3) | st.sampled_from(["", "a", "b/c", "~"])
KEYS = st.sampled_from(["a", "b", "b/c", "m~n"])
JSON = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
)


@st.composite
def cases(draw):
    """An object, and an operation that mostly names a place that exists."""
    data = draw(st.dictionaries(KEYS, JSON, min_size=1, max_size=3))
    here, steps = data, []
    while isinstance(here, dict | list) and here and (not steps or draw(st.booleans())):
        inside = here
        steps.append(
            draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
        )
        here = here[steps[-1]]
    if draw(st.booleans()):
        steps[-1] = draw(
            KEYS if isinstance(inside, dict) else st.integers(0, len(inside) + 1) | st.just("-")
        )
    value = here if draw(st.booleans()) else draw(JSON)
    return data, Patch(
        draw(st.sampled_from(["add", "remove", "replace", "test"])), Path(*steps), value
    )


@given(cases())
def test_it_does_what_jsonpatch_does(case):
    data, operation = case
    before = copy.deepcopy(data)
    try:
        expected = jsonpatch.apply_patch(data, [operation.as_json()])
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        with pytest.raises(json_patch.PatchError):
            json_patch.apply(Object(data), [operation])
    else:
        assert json_patch.apply(Object(data), [operation]).data == expected
    assert data == before


def test_operations_follow_each_other():
    steps = [
        Patch("add", Path("spec"), {}),
        Patch("add", Path("spec", "x"), 1),
        Patch("test", Path("spec", "x"), 1),
    ]

    assert json_patch.apply(Object({"kind": "A"}, "shop"), steps).data == {
        "kind": "A",
        "spec": {"x": 1},
    }
    assert json_patch.apply(Object({}, "shop"), steps).namespace == "shop"


@pytest.mark.parametrize(
    ("operation", "order", "report"),
    [
        (Patch("remove", Path("spec", "x", 0)), "remove spec.x[0]", "spec.x[0] was removed"),
        (Patch("add", Path("spec", "x"), "ä"), "set spec.x to ä", "spec.x was set to ä"),
        (
            Patch("replace", Path("spec", "x"), {"a": [1, None]}),
            'set spec.x to {"a":[1,null]}',
            'spec.x was set to {"a":[1,null]}',
        ),
    ],
)
def test_in_words(operation, order, report):
    assert str(operation) == order
    assert operation.passive("was") == report
