"""A shared parameter of a fence agent contains an expression that is not valid.

**Why.** Shared values are Go templates with one variable, ``{{.NodeName}}``. A misspelled variable or an expression that is
not closed fails when the operator fences a node. The operator's webhook rejects it.

**Fix.** Write ``{{.NodeName}}`` where the value needs the name of the node.
"""

import re
from typing import Final

from virt_admit.model.remediation.remediators import far_spec
from virt_admit.rule import FAR_TEMPLATE, Action, Context, Finding, Findings, Object, rule, show

REST_OF_ACTION: Final = re.compile(
    r"""(?:-\s)?\s*+/\*(?>.*?\*/)\s*+-?\}\}  # a comment, which may hold anything
    |(?:"(?:[^"\\]|\\.)*+"|`[^`]*+`|'(?:[^'\\]|\\.)*+'|[^"`'{}])*+\}\}  # braces only within quotes
    """,
    re.DOTALL | re.VERBOSE,
)
"""The rest of an action after ``{{``. All quantifiers are possessive, so a hostile text is read only once."""

COMMENT: Final = re.compile(r"(?:-\s)?/\*")
CLOSED_COMMENT: Final = re.compile(r"(?:-\s)?/\*(?>.*?\*/)(?:\s-)?\}\}", re.DOTALL)
"""A comment fills its action: it begins right after ``{{`` and ends right before ``}}`` (text/template: lex.go#lexComment)."""

FIELD: Final = re.compile(r"-?\s*\.(\w+)\s*-?\}\}")

PART_OF_NAME: Final = re.compile(r"-?\s*\.NodeName(?:\.\w+)+\s*-?\}\}")
EMPTY: Final = re.compile(r"(?:-\s)?\s*(?:\s-)?\}\}")
WORD: Final = re.compile(r"(?:-\s)?\s*([A-Za-z_]\w*)\s*(?:\s-)?\}\}")
KEYWORD: Final = re.compile(r"(?:-\s)?\s*(if|range|with|block|define|else|end)\b")

WORDS: Final = frozenset(("true", "false", "else", "end", "break", "continue", "print", "println"))
"""What can be an action by itself: constants, keywords, and the functions of text/template that need no argument."""

NAMES: Final = WORDS | {
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

QUOTED: Final = re.compile(r"""/\*(?>.*?\*/)|"(?:[^"\\]|\\.)*+"|`[^`]*+`|'(?:[^'\\]|\\.)*+'""", re.DOTALL)
NAME: Final = re.compile(r"(?<![\w.$])[A-Za-z_]\w*")
NO_COMMAND: Final = re.compile(r"\|\s*(?:\||-?\}\})")


@rule(
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    not_in_cel="values are Go templates, and the regular expressions of CEL cannot follow their quotes and nested blocks",
    sources=("medik8s/fence-agents-remediation:pkg/template/template.go#RenderParameterTemplate",),
)
def check(template: Object, _context: Context) -> Findings:
    for _, value in far_spec(template)["sharedparameters"].entries():
        if problem := _problem(value.text or ""):  # never quote the value: it may be a password
            yield Finding(value.path, f"{problem}, so no node can be fenced. Write {{{{.NodeName}}}}.")


def _problem(text: str) -> str | None:
    depth = 0
    start = text.find("{{")
    while start >= 0:
        if COMMENT.match(text, start + 2) and not CLOSED_COMMENT.match(text, start + 2):
            return "a comment that starts with {{/* is not closed with */}}"
        action = REST_OF_ACTION.match(text, start + 2)
        if not action:
            return "an expression that starts with {{ is not closed with }}"
        if problem := _action_problem(action[0]):
            return problem
        keyword = KEYWORD.match(action[0])
        if keyword and keyword[1] in ("end", "else") and depth == 0:
            return f"{{{{{keyword[1]}}}}} has no beginning"
        if keyword and keyword[1] != "else":
            depth += -1 if keyword[1] == "end" else 1
        start = text.find("{{", action.end())
    return "an expression such as if has no {{end}}" if depth else None


def _action_problem(action: str) -> str | None:
    """Return what is wrong with one action, given without its ``{{``."""
    field = FIELD.fullmatch(action)
    if field and field[1] != "NodeName":
        return f"the variable {show('.' + field[1])} does not exist"
    if PART_OF_NAME.fullmatch(action):
        return "a field of .NodeName does not exist, because it is a text"
    if EMPTY.fullmatch(action):
        return "an expression is empty"
    word = WORD.fullmatch(action)
    if word and word[1] not in WORDS:
        return f"the function {show(word[1])} does not exist; a variable begins with a dot"
    code = QUOTED.sub('""', action)
    unknown = next((name for name in NAME.findall(code) if name not in NAMES), None)
    if unknown is not None:
        return f"the function {show(unknown)} does not exist"
    return "nothing follows the sign |" if NO_COMMAND.search(code) else None
