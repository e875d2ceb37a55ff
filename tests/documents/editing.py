"""Applying patches to a text, for the tests of edits."""

from __future__ import annotations

from typing import Any

from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.objects import Path


def adding(*steps: str | int, value: Any = "New") -> Patch:
    return Patch("add", Path(*steps), value)


MANY = """\
# one
kind: A
spec: {}
---
kind: List
items:
- kind: B
  spec: &s
    a: 1
- kind: C
  spec: *s
- kind: D
  spec:
    # about a
    a: 1
--- # broken
a: [
---
# none
---
kind: E
spec: {}
"""
