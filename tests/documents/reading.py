"""Reading one text, for the tests of the reader."""

from __future__ import annotations

import json
from typing import Any

from virt_admit.documents.reader import Document, DocumentError, read


def one(text: str | bytes) -> Document:
    found, errors = read(text.encode() if isinstance(text, str) else text, "vm.yaml")
    assert [str(error) for error in errors] == []
    assert len(found) == 1
    return found[0]


def failure(text: str | bytes) -> DocumentError:
    found, errors = read(text.encode() if isinstance(text, str) else text, "vm.yaml")
    assert [document.data for document in found] == []
    assert len(errors) == 1
    return errors[0]


def as_sent(value: Any) -> Any:
    """A value as the API server reads it: integers of 64 bits as such,
    all other numbers as floats.
    """
    match value:
        case dict():
            return {key: as_sent(item) for key, item in value.items()}
        case list():
            return [as_sent(item) for item in value]
        case bool():
            return value
        case int():
            return value if -(2**63) <= value < 2**63 else float(value)
        case float() if value.is_integer() and abs(value) < 2**63:
            return int(value)
    return value


def typed(value: Any) -> str:
    """Text that tells 1 from 1.0 and from true, which are equal in Python;
    the order of keys means nothing.
    """
    return json.dumps(value, sort_keys=True)


VM = """\
# a comment
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: datenbank-ü  # ü is one column
  labels: {app: "x", größe: xl}
spec:
  running: true
  runStrategy: Always
  template:
    spec:
      volumes:
      - name: root
        dataVolume:
          name: db
      -   name: two
      - cloudInitNoCloud:
          userData: |
            #cloud-config
            a: b
      empty:
"""
