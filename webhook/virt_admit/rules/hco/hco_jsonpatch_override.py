"""A jsonpatch annotation on HyperConverged changes what is judged here, or cannot be applied.

**Why.** HyperConverged applies the patch in ``kubevirt.kubevirt.io/jsonpatch`` to the KubeVirt resource that it
writes. What it says about updates, migrations, evictions, CPU models and certificates is then not what stands in
the HyperConverged that was checked. A patch that is no JSON Patch stops the operator.

**Fix.** Set the field of HyperConverged instead, where there is one.
"""

import json
from collections.abc import Iterator
from typing import Any

from virt_admit.model.kinds import HCO
from virt_admit.model.messages import names
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

ANNOTATION = "kubevirt.kubevirt.io/jsonpatch"
OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")  # RFC 6902
JUDGED = (
    "/spec/workloadUpdateStrategy",
    "/spec/configuration/migrations",
    "/spec/configuration/evictionStrategy",
    "/spec/configuration/obsoleteCPUModels",
    "/spec/configuration/cpuModel",
    "/spec/certificateRotateStrategy",
)


def check(hco: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    annotation = hco.annotation(ANNOTATION)
    if annotation.text is None:
        return
    steps = _steps(annotation.text)
    if steps is None:
        yield Finding(
            annotation.path,
            "this is no JSON Patch and HyperConverged cannot apply it; "
            'write a list such as [{"op": "add", "path": "/spec/…", "value": …}]',
        )
        return
    judged = [path for path in dict.fromkeys(steps) if path.startswith(JUDGED)]
    if judged:
        yield Finding(
            annotation.path,
            f"KubeVirt will differ from what is checked here; use HyperConverged's own fields: {names(judged, 70)}",
            max_action=Action.WARN,
        )


def _steps(text: str) -> list[str] | None:
    """The path of each operation of a JSON Patch; None: it is none."""
    try:
        steps: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(steps, list):
        return None
    paths: list[str] = []
    for step in steps:
        operation, path = (step.get("op"), step.get("path")) if isinstance(step, dict) else (None, None)
        if operation not in OPERATIONS or not isinstance(path, str):
            return None
        paths.append(path)
    return paths


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO,),
    metadata=(ANNOTATION,),
    action=Action.DENY,
    check=check,
    sources=(
        "kubevirt/hyperconverged-cluster-operator:controllers/handlers/kubevirt.go#NewKubeVirt",
        "kubevirt/hyperconverged-cluster-operator:docs/cluster-configuration.md",
    ),
)
