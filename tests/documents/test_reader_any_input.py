"""Any value reads back, and any bytes end with documents or errors."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tests.documents.reading import VM, as_sent, one, typed
from virt_admit.documents.plain_yaml import MANY
from virt_admit.documents.reader import Document, DocumentError, parse
from virt_admit.documents.tree import Span, SpanPositions
from virt_admit.documents.yaml_reader import YamlReader
from virt_admit.model.kubernetes.objects import PathStep

TEXT = st.text(max_size=8) | st.sampled_from(
    ["yes", "1e3", "0o10", "1:30", "~", "<<", "a: b", "- a", "#", "\t", "{{"]
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)

OBJECT = st.dictionaries(TEXT, JSON, max_size=4)


class Dumper(yaml.SafeDumper):
    """Quotes every string, for PyYAML leaves plain what only the Go library takes for a number;
    knows no aliases.
    """

    def ignore_aliases(self, data: Any) -> bool:
        return True


Dumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


@given(OBJECT, st.booleans(), st.integers(1, 6))
def test_any_value_in_yaml_reads_back(value: dict[str, Any], flow: bool, indent: int) -> None:
    text = yaml.dump(
        value,
        Dumper=Dumper,
        default_flow_style=flow,
        indent=indent,
        allow_unicode=True,
        sort_keys=False,
    )
    assert typed(one(text).data) == typed(as_sent(value))


@given(OBJECT, st.booleans(), st.none() | st.integers(0, 4))
def test_any_value_in_json_reads_back(
    value: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert typed(one(text).data) == typed(as_sent(value))


@given(OBJECT, st.booleans(), st.integers(1, 6))
def test_recorded_offsets_are_those_of_the_spans(
    value: dict[str, Any], flow: bool, indent: int
) -> None:
    text = yaml.dump(
        value,
        Dumper=Dumper,
        default_flow_style=flow,
        indent=indent,
        allow_unicode=True,
        sort_keys=False,
    )
    (plain,), (complete,) = YamlReader().documents(text), YamlReader().any_documents(text)
    assert isinstance(complete.positions, SpanPositions)
    assert plain.positions.spans(plain.value) == complete.positions.span
    for path in [*paths(complete.positions.span), ("not there",), ("a", 0, "b")][: 2 * MANY]:
        assert plain.positions.find(plain.value, path) == complete.positions.find(
            complete.value, path
        )


def paths(span: Span, path: tuple[PathStep, ...] = ()) -> list[tuple[PathStep, ...]]:
    """The paths of all values in a document."""
    children = span[2]
    if isinstance(children, dict):
        below = [(key, member[2]) for key, member in children.items()]
    else:
        below = list(enumerate(children or ()))
    return [path, *(found for step, child in below for found in paths(child, (*path, step)))]


@given(
    st.binary(max_size=60)
    | st.text(alphabet='ab:-{}[]"\\u0d8&*!<> \n\t#|\x00é', max_size=40).map(str.encode)
)
@example(b"\xff\xfe")
@example(b"%")
@example(b"{")
def test_any_bytes_end_with_documents_or_errors(content: bytes) -> None:
    for each in parse(content, "fuzz"):
        if isinstance(each, Document):
            assert each.line >= 1
            assert each.location(("a", 0)).line >= 1
        else:
            assert isinstance(each, DocumentError)
            assert each.line >= 1


@given(st.data())
def test_damaged_manifests_end_with_documents_or_errors(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(VM)))
    junk = data.draw(
        st.sampled_from(
            ["\t", "&x ", "*x", '"', "'", "{", "]", ": ", "\n", "\ufeff", "!!int ", "<<: ", "|"]
        )
    )
    length = data.draw(st.integers(0, 3))
    for each in parse((VM[:at] + junk + VM[at + length :]).encode(), "fuzz"):
        assert isinstance(each, Document | DocumentError)
