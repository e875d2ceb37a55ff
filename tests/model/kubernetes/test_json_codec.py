"""With orjson and without it, JSON is the same."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"{'a': 1}", b"1 2"])
def test_what_is_not_json(text):
    with pytest.raises(ValueError):
        json_codec.loads(text)
