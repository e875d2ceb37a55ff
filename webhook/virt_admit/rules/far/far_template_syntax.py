"""A shared parameter of a fence agent contains an expression that is not valid.

**Why.** Shared values are Go templates with one variable, ``{{.NodeName}}``. A misspelled variable or an expression that is
not closed fails when the operator fences a node. The operator's webhook rejects it.

**Fix.** Write ``{{.NodeName}}`` where the value needs the name of the node.
"""

import re
from collections.abc import Iterator
from typing import Final

from virt_admit.model.kinds import FAR_TEMPLATE
from virt_admit.model.objects import Object
from virt_admit.model.remediation.remediators import far_spec
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

REST_OF_ACTION: Final = re.compile(
    r"""(?:-\s)?\s*+/\*(?>.*?\*/)\s*+-?\}\}  # a comment, which may hold anything
    |(?:"(?:[^"\\]|\\.)*+"|`[^`]*+`|'(?:[^'\\]|\\.)*+'|[^"`'{}])*+\}\}  # braces only within quotes
    """,
    re.DOTALL | re.VERBOSE,
)
"""The rest of an action after ``{{``. All quantifiers are possessive, so a hostile text is read only once."""

FIELD: Final = re.compile(r"-?\s*\.(\w+)\s*-?\}\}")


def check(template: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for _, value in far_spec(template)["sharedparameters"].entries():
        if problem := _problem(value.text or ""):  # never quote the value: it may be a password
            yield Finding(value.path, f"{problem}, so no node can be fenced. Write {{{{.NodeName}}}}.")


def _problem(text: str) -> str | None:
    start = text.find("{{")
    while start >= 0:
        action = REST_OF_ACTION.match(text, start + 2)
        if not action:
            return "an expression that starts with {{ is not closed with }}"
        field = FIELD.fullmatch(action[0])
        if field and field[1] != "NodeName":
            return f"the variable {show('.' + field[1])} does not exist"
        start = text.find("{{", action.end())
    return None


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(FAR_TEMPLATE,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/fence-agents-remediation:pkg/template/template.go#RenderParameterTemplate",),
)
