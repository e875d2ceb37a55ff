"""The ratchet: an update is not denied because of what was wrong before it."""

from __future__ import annotations

import json
from typing import Any

from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import FROM_OBJECT, Action, Finding


class KnownFindings:
    """The findings of a rule on the old object.

    A newly enabled rule must not block edits of objects that were admitted before, so an old denial
    becomes a warning. An old warning is left out, or every ``kubectl label`` would print it.
    """

    __slots__ = ("_actions", "complete")

    def __init__(self) -> None:
        self._actions: dict[tuple[tuple[str, ...], Any], Action] = {}
        self.complete = True
        """False: the rule was stopped. Whether another finding is new cannot be determined,
        so it never denies.
        """

    def add(self, finding: Finding, old: Object, action: Action) -> None:
        key = identity(finding, old)
        self._actions[key] = max(action, self._actions.get(key, Action.OFF))

    def ratchet(self, finding: Finding, obj: Object, action: Action) -> Action | None:
        """Return the action of a finding on the new object, at most the given one; None:
        leave the finding out.
        """
        before = self._actions.get(identity(finding, obj), None if self.complete else Action.DENY)
        if before is Action.DENY:
            return min(action, Action.WARN)
        if before is Action.WARN and action <= Action.WARN:
            return None
        return action


def identity(finding: Finding, obj: Object) -> tuple[tuple[str, ...], Any]:
    """Return what identifies a finding in several versions of an object: its path without indices,
    and its value.
    """
    value = obj.root.at(*finding.path).value if finding.value is FROM_OBJECT else finding.value
    value = _distinct(value)
    try:
        hash(value)
    except TypeError:  # a map or a list
        value = json.dumps(value, sort_keys=True, default=repr)
    return finding.path.without_indices, value


def _distinct(value: Any) -> Any:
    """Return a value in which no bool equals a number: in Python False is 0, and True is 1."""
    if isinstance(value, bool):
        return bool, value
    return tuple(map(_distinct, value)) if type(value) is tuple else value
