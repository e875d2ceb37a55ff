"""An obsolete CPU model has a name that no model can have.

**Why.** Models are labels of nodes. What cannot be the name of a label never matches anything: a placeholder from
the manual (``<obsolete_cpu_1>``), blanks, or an unquoted ``486``, which is a number.

**Fix.** Write the model's name, each once, and quote what looks like a number.
"""

import re
from collections.abc import Iterator
from typing import Any

from virt_admit.model.kinds import HCO, KUBEVIRT
from virt_admit.model.kubevirt.configuration import Setting, setting
from virt_admit.model.objects import Object
from virt_admit.model.units import show
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule

MODEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    models = setting(obj, Setting.OBSOLETE_CPU_MODELS)
    for name in models.map:
        problem = _problem(name)
        if problem:
            yield Finding(models[name].path, problem, value=name)
    seen: set[str] = set()
    for item in models.items():
        problem = _problem(item.value)
        if problem:
            yield Finding(item.path, problem)
        elif item.value in seen:
            yield Finding(item.path, f"{show(item.value)} is listed again; remove it", cause=Cause.DUPLICATE)
        else:
            seen.add(item.value)


def _problem(name: Any) -> str:
    if isinstance(name, str):
        if MODEL.fullmatch(name):
            return ""
        return f"{show(name)} cannot be a CPU model, nor a label of a node; write a name such as Westmere"
    remedy = "quote it" if isinstance(name, (int, float)) and not isinstance(name, bool) else "write a string"
    return f"{show(name)} is no string; {remedy}"


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    check=check,
    sources=(
        "OpenShift Virtualization, Node maintenance 11.5.3",
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/node_labeller.go",
    ),
)
