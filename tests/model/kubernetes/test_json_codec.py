"""With orjson and without it, JSON is the same."""

from __future__ import annotations

import json

import pytest

from tests.for_each import for_each
from tests.work import measured
from virt_admit.model.kubernetes import json_codec


@pytest.fixture(params=["orjson", "standard library"], autouse=True)
def library(request, monkeypatch):
    if request.param == "orjson":
        pytest.importorskip("orjson")
    else:
        monkeypatch.setattr(json_codec, "orjson", None)


def test_values_survive():
    value = {"text": 'ä \u2028 "', "list": [1, 2.5, True, None, {}], "": {"b": 1, "a": 2}}
    text = json_codec.dumps(value)
    assert json_codec.loads(text) == value
    assert text == '{"text":"ä \u2028 \\"","list":[1,2.5,true,null,{}],"":{"b":1,"a":2}}'.encode()


@for_each("text", [b"", b"{", b"\xff", b"{'a': 1}", b"1 2"])
def test_what_is_not_json(text):
    with pytest.raises(ValueError):
        json_codec.loads(text)


def nested(depth):
    return '{"a":[' * (depth // 2) + "1" + "]}" * (depth // 2)


def depth_of(value):
    depth = 0
    while isinstance(value, (dict, list)):
        value, depth = (value["a"] if isinstance(value, dict) else value[0]), depth + 1
    return depth


@pytest.mark.parametrize("depth", [1_100, 10_000])
def test_what_is_nested_too_deeply_hides_nothing_else(depth):
    text = (
        rf'{{"x": "}}{{[\\\"{{", "deep": {nested(depth)}, "y": [{{"z": 1}}], "again": '
        rf"[{nested(depth)}, 2]}}"
    ).encode()
    with pytest.raises((ValueError, RecursionError)):
        json_codec.loads(text)
    found = json_codec.loads_bounded(text)
    assert found["x"] == '}{[\\"{'
    assert found["y"] == [{"z": 1}]
    assert depth_of(found["deep"]) == json_codec.MAX_DEPTH - 1
    assert depth_of(found["again"]) == json_codec.MAX_DEPTH - 1
    assert found["again"][1] == 2


@pytest.mark.parametrize("depth", [300, 800])
def test_what_can_be_read_can_be_written(depth):
    value = {"x": 1, "deep": json.loads(nested(depth))}
    written = json_codec.loads(json_codec.dumps_bounded(value))
    assert written["x"] == 1
    assert depth_of(written["deep"]) in (json_codec.MAX_DEPTH - 1, depth)


@for_each(
    "text",
    [
        b"{" * 100_000,
        b"[" * 101 + b'""' * 1_000_000,
        b"[" * 101 + b'"\\' * 1_000_000,
        b"}" * 100_000,
        b"[" * 200,
    ],
)
def test_what_is_not_json_is_refused_in_time(text):
    with measured() as work, pytest.raises(ValueError):
        json_codec.loads_bounded(text)
    assert work.seconds < 2


OUT_OF_RANGE = ("NaN", "-Infinity", '{"a": 1e999}')


@pytest.mark.parametrize("text", [None, "", "{", "[" * 100_000, '{"a": 1', *OUT_OF_RANGE])
def test_a_text_that_is_no_json_is_none(text):
    assert json_codec.embedded(text) is None


def test_json_in_a_text():
    assert json_codec.embedded('{"a": [1]}') == {"a": [1]}
