"""An obsolete CPU model has a malformed name.

**Why.** KubeVirt compares the name with labels of nodes. A value that cannot be part of a label
name never matches: a placeholder from the manual (``<obsolete_cpu_1>``), a name with blanks, or an
unquoted ``486``, which is a number.

**Fix.** Write the name of the model. Quote a name that looks like a number, and list each name
once.
"""

import re
from typing import Any, Final

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubevirt.settings import cel_settings
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, rule, show

MODEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

_MODELS: Final = cel_settings.cel_setting(Setting.OBSOLETE_CPU_MODELS)
_PATTERN: Final = cel.text(f"^(?:{MODEL.pattern})$")
_MESSAGE: Final = (
    "'this is not the name of a CPU model and never matches a node. Use a name such as Westmere.'"
)


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    denials=(
        cel.Denial(
            each=f"{cel.entries(_MODELS)}.map(name, name)",
            when=f"!item.matches({_PATTERN})",
            path=f"{cel_settings.cel_path(Setting.OBSOLETE_CPU_MODELS)} + '.' + item",
            message=_MESSAGE,
            value="item",
        ),
        cel.Denial(
            each=cel.items(_MODELS),
            when=f"!(type(item) == string && item.matches({_PATTERN}))",
            path=cel_settings.cel_path(Setting.OBSOLETE_CPU_MODELS),
            message=_MESSAGE,
            value="item",
        ),
        cel.Denial(
            each=cel.items(_MODELS),
            when=f"type(item) == string && item.matches({_PATTERN})"
            f" && {cel.items(_MODELS)}.filter(other, other == item).size() > 1",
            path=cel_settings.cel_path(Setting.OBSOLETE_CPU_MODELS),
            message="item + ' is already in the list. Remove this item.'",
            value="item",
        ),
    ),
    sources=(
        "OpenShift Virtualization, Node maintenance 11.5.3",
        "kubevirt/kubevirt:pkg/virt-handler/node-labeller/node_labeller.go",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
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
            yield Finding(
                item.path,
                f"{show(item.value)} is already in the list. Remove this item.",
                cause=Cause.DUPLICATE,
            )
        else:
            seen.add(item.value)


def _problem(name: Any) -> str:
    if isinstance(name, str):
        if MODEL.fullmatch(name):
            return ""
        return (
            f"{show(name)} is not a valid CPU model name and never matches a node. Use a name such "
            "as Westmere."
        )
    is_number = isinstance(name, (int, float)) and not isinstance(name, bool)
    return (
        f"{show(name)} is not a string. "
        f"{'Quote it' if is_number else 'Use a model name such as Westmere'}."
    )
