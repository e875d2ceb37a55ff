"""Tests for reading ``status.conditions``."""

import pytest

from virt_admit.model.kubernetes.objects import Object

READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"conditions": [{"type": "Other", "status": "False"}, READY]}, "True"),
        ({"conditions": [READY, {"type": "Ready", "status": "False"}]}, "True"),
        ({"conditions": [None, "Ready", {"status": "False"}, READY]}, "True"),
        ({"conditions": [{"type": "Ready", "status": True}]}, None),
        ({"conditions": []}, None),
        ({"conditions": READY}, None),
        ("Ready", None),
        (None, None),
    ],
)
def test_condition(status, expected):
    assert Object({"status": status}).condition("Ready")["status"].text == expected


def test_path_of_a_condition():
    node = Object({"status": {"conditions": [{"type": "Other"}, READY]}})

    assert str(node.condition("Ready")["status"].path) == "status.conditions[1].status"
    assert not node.condition("Gone").present
