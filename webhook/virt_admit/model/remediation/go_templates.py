"""What is wrong with a Go template that only names a node: the shared values of fence agents.

Source: medik8s/fence-agents-remediation:pkg/template/template.go#RenderParameterTemplate; Go's
text/template/parse.
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.kubernetes.units import show

_REST_OF_ACTION: Final = re.compile(
    r"""(?:-\s)?\s*+/\*(?>.*?\*/)\s*+-?\}\}  # a comment, which may hold anything
    |(?:"(?:[^"\\]|\\.)*+"|`[^`]*+`|'(?:[^'\\]|\\.)*+'|[^"`'{}])*+\}\}  # braces only within quotes
    """,
    re.DOTALL | re.VERBOSE,
)
"""The rest of an action after ``{{``. All quantifiers are possessive,
so a hostile text is read only once.
"""

_COMMENT: Final = re.compile(r"(?:-\s)?/\*")
_CLOSED_COMMENT: Final = re.compile(r"(?:-\s)?/\*(?>.*?\*/)(?:\s-)?\}\}", re.DOTALL)
"""A comment fills its action: it begins right after ``{{`` and ends right before ``}}``
(text/template: lex.go#lexComment).
"""

_FIELD: Final = re.compile(r"-?\s*\.(\w+)\s*-?\}\}")

_PART_OF_NAME: Final = re.compile(r"-?\s*\.NodeName(?:\.\w+)+\s*-?\}\}")
_EMPTY: Final = re.compile(r"(?:-\s)?\s*(?:\s-)?\}\}")
_WORD: Final = re.compile(r"(?:-\s)?\s*([A-Za-z_]\w*)\s*(?:\s-)?\}\}")
_KEYWORD: Final = re.compile(r"(?:-\s)?\s*(if|range|with|block|define|else|end)\b")

_WORDS: Final = frozenset(("true", "false", "else", "end", "break", "continue", "print", "println"))
"""What can be an action by itself: constants, keywords,
and the functions of text/template that need no argument.
"""

_NAMES: Final = _WORDS | {
    *(
        "if",
        "range",
        "with",
        "block",
        "define",
        "template",
        "nil",
        "and",
        "or",
        "not",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
    ),
    *("len", "index", "slice", "printf", "html", "js", "call", "urlquery"),
}
"""Every keyword and function of text/template."""

_QUOTED: Final = re.compile(
    r"""/\*(?>.*?\*/)|"(?:[^"\\]|\\.)*+"|`[^`]*+`|'(?:[^'\\]|\\.)*+'""", re.DOTALL
)
_NAME: Final = re.compile(r"(?<![\w.$])[A-Za-z_]\w*")
_NO_COMMAND: Final = re.compile(r"\|\s*(?:\||-?\}\})")


def template_problem(text: str) -> str:
    """Return why a template cannot be rendered for a node; empty: it can."""
    depth = 0
    start = text.find("{{")
    while start >= 0:
        if _COMMENT.match(text, start + 2) and not _CLOSED_COMMENT.match(text, start + 2):
            return "a comment that starts with {{/* is not closed with */}}"
        action = _REST_OF_ACTION.match(text, start + 2)
        if not action:
            return "an expression that starts with {{ is not closed with }}"
        if problem := _action_problem(action[0]):
            return problem
        keyword = _KEYWORD.match(action[0])
        if keyword and keyword[1] in ("end", "else") and depth == 0:
            return f"{{{{{keyword[1]}}}}} has no beginning"
        if keyword and keyword[1] != "else":
            depth += -1 if keyword[1] == "end" else 1
        start = text.find("{{", action.end())
    return "an expression such as if has no {{end}}" if depth else ""


def _action_problem(action: str) -> str:
    """Return what is wrong with one action, given without its ``{{``."""
    field = _FIELD.fullmatch(action)
    if field and field[1] != "NodeName":
        return f"the variable {show('.' + field[1])} does not exist"
    if _PART_OF_NAME.fullmatch(action):
        return "a field of .NodeName does not exist, because it is a text"
    if _EMPTY.fullmatch(action):
        return "an expression is empty"
    word = _WORD.fullmatch(action)
    if word and word[1] not in _WORDS:
        return f"the function {show(word[1])} does not exist; a variable begins with a dot"
    code = _QUOTED.sub('""', action)
    unknown = next((name for name in _NAME.findall(code) if name not in _NAMES), None)
    if unknown is not None:
        return f"the function {show(unknown)} does not exist"
    return "nothing follows the sign |" if _NO_COMMAND.search(code) else ""
