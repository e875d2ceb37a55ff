"""How the tables of known fields grow."""

from __future__ import annotations

from typing import Any

import pytest

from tests import definitions
from tools import field_tables
from virt_admit.model.kubernetes import kinds

TEXT: dict[str, Any] = {"type": "string"}
FREE: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(**fields: Any) -> dict[str, Any]:
    schema = {"properties": {"spec": {"properties": fields}}}
    return {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}


def items(**fields: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"properties": fields}}


FIRST = field_tables.extended({}, definition(a=TEXT, b=items(c=TEXT), d=FREE))


@pytest.mark.parametrize(
    "same",
    [
        definition(a=TEXT, b=items(c=TEXT), d=FREE),
        definition(a=TEXT),
        definition(b={"properties": {"c": TEXT}}),
        definition(d={"properties": {"any": {"properties": {"thing": TEXT}}}}),
    ],
)
def test_a_definition_without_a_new_field_changes_nothing(same: dict[str, Any]) -> None:
    assert field_tables.extended(FIRST, same) == FIRST


@pytest.mark.parametrize(
    "new", [definition(e=TEXT), definition(b=items(f=TEXT)), definition(b=items(c=FREE, f=FREE))]
)
def test_a_definition_with_a_new_field_is_the_newest_release_and_the_others_stay(
    new: dict[str, Any],
) -> None:
    found = field_tables.extended(FIRST, new)
    assert found["v1"][1:] == FIRST["v1"]
    assert field_tables.extended(found, new) == found


def test_the_fields_of_two_releases_together_are_no_new_release() -> None:
    both = field_tables.extended(FIRST, definition(e=TEXT))
    assert field_tables.extended(both, definition(a=TEXT, e=TEXT)) == both


def test_a_map_of_any_keys_is_new_next_to_a_map_of_fields() -> None:
    free = definition(b={"additionalProperties": {"properties": {"c": TEXT}}})
    assert len(field_tables.extended(FIRST, free)["v1"]) == 2


def test_a_table_says_what_was_put_into_it() -> None:
    assert field_tables.releases(field_tables.table(FIRST)) == FIRST
    assert '"b":[' in field_tables.table(FIRST)


def test_without_definitions_tables_stay_and_the_kinds_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(definitions, "real", lambda **_: {})
    assert {path: path.read_text() for path in field_tables.files()} == field_tables.files()
    assert "nodehealthchecks.remediation.medik8s.io" in field_tables.not_compared()


def test_all_definitions_at_hand_are_in_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = [kind for kind in field_tables.judged() if kind.resource in definitions.real()]
    for kind in compared:
        known = field_tables.releases((field_tables.FOLDER / f"{kind.resource}.json").read_text())
        assert field_tables.extended(known, definitions.of(kind)) == known, kind
    assert kinds.NODE not in compared
