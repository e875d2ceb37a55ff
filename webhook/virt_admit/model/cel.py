"""Opinions in CEL, the language of ValidatingAdmissionPolicies: the parts that rules share.

``self`` stands for the object that is judged. An expression must mean what the check beside it
means, also for values of a wrong type: an expression that fails judges nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


def present(field: str) -> str:
    """Return whether an optional field exists and is not null."""
    return f"({field}.orValue(null) != null)"


def is_map(field: str) -> str:
    return f"(type({field}.orValue(null)) == map)"


def is_text(field: str) -> str:
    return f"(type({field}.orValue(null)) == string)"


def items(field: str) -> str:
    """Return the items of a list; of any other value none."""
    return f"(type({field}.orValue(null)) == list ? {field}.orValue([]) : [])"


def entries(field: str) -> str:
    """Return a map; of any other value an empty one."""
    return f"({is_map(field)} ? {field}.orValue({{}}) : {{}})"


def text(words: str) -> str:
    """Return a text as a CEL literal."""
    return "'" + words.replace("\\", "\\\\").replace("'", "\\'") + "'"


def pattern(expression: str) -> str:
    """Return a pattern of Python as a CEL literal:
    RE2 has neither its anchors nor its escapes for characters.
    """
    for ours, theirs in ((r"\A", "^"), (r"\Z", "$"), (r"\u00b5", "\u00b5"), (r"\u03bc", "\u03bc")):
        expression = expression.replace(ours, theirs)
    return text(expression)


def shown(value: str) -> str:
    """Return what ``show`` prints of a value.

    Long texts and those that Python would escape are not quoted.
    """
    return (
        f"(type({value}) == string ? ({value}.size() <= 60 && "
        f"{value}.matches({text(_PRINTED_AS_THEY_ARE)}) ? '\\'' + {value} + '\\'' : 'this text') : "
        f"{value} == null ? 'null' : type({value}) == int || type({value}) == bool ? "
        f"string({value}) : type({value}) == list ? 'a list' : type({value}) == map ? 'an object' "
        ": 'this number')"
    )


_PRINTED_AS_THEY_ARE: Final = r"^[ -&(-\[\]-~]*$"
"""ASCII without control characters, the apostrophe and the backslash."""


def one_of(value: str, words: tuple[str, ...]) -> str:
    return f"{value} in [{', '.join(map(text, words))}]"


_POOL: Final = "self.kind == 'VirtualMachinePool'"
VM_SPEC: Final = f"({_POOL} ? self.?spec.?virtualMachineTemplate.?spec : self.?spec)"
"""The spec of a VM, or of the template of a pool."""
VM_PATH: Final = f"({_POOL} ? 'spec.virtualMachineTemplate.spec.' : 'spec.')"


@dataclass(frozen=True)
class Denial:
    """When a rule denies, as CEL.

    Every field is an expression over ``self``, and over ``item`` with ``each``.
    """

    when: str
    path: str
    """The field that the finding names, without the indices of lists."""
    message: str
    value: str = "null"
    """The offending value: an update that keeps it is not refused."""
    each: str = ""
    """A list: each of its items is judged."""

    def findings(self) -> str:
        """Return the expression for the list of findings."""
        finding = (
            f"{{'path': dyn({self.path}), 'value': dyn({self.value}), 'message': "
            f"dyn({self.message})}}"
        )
        if self.each:
            return f"{self.each}.filter(item, {self.when}).map(item, {finding})"
        return f"(({self.when}) ? [{finding}] : [])"
