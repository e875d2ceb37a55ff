"""A jsonpatch annotation of HyperConverged overrides checked settings, or is not valid.

**Why.** HyperConverged applies the patch in ``kubevirt.kubevirt.io/jsonpatch`` to the KubeVirt resource that it writes.
A patch of updates, migrations, evictions, CPU models or certificates replaces the settings that virt-admit checked in
HyperConverged. A malformed JSON Patch, or one with a path outside ``/spec/``, stops the operator.

**Fix.** Set the field of HyperConverged instead, if it has one.
"""

import json
from collections.abc import Iterator
from typing import Any

from virt_admit.model.kinds import HCO
from virt_admit.model.messages import cut, names
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

ANNOTATION = "kubevirt.kubevirt.io/jsonpatch"
OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")  # RFC 6902
SPEC = "/spec/"
CHECKED_PATHS = (
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
    patched = _patched_paths(annotation.text)
    if patched is None:
        yield Finding(
            annotation.path,
            "HyperConverged cannot apply this value, because it is not a JSON Patch. "
            'Use a list such as [{"op": "add", "path": "/spec/…", "value": …}].',
        )
        return
    outside = [path for path in dict.fromkeys(patched) if not path.startswith(SPEC)]
    if outside:
        yield Finding(
            annotation.path,
            f"HyperConverged rejects this whole patch and stops, because it may only change paths below {SPEC}. "
            f"Remove or correct {names([cut(path, 60) or '(empty)' for path in outside], 70)}",
        )
        return
    overridden = [path for path in dict.fromkeys(patched) if path.startswith(CHECKED_PATHS)]
    if overridden:
        yield Finding(
            annotation.path,
            "this patch overrides settings that virt-admit checks. "
            f"Use fields of HyperConverged instead of {names(overridden, 70)}",
            max_action=Action.WARN,
        )


def _patched_paths(text: str) -> list[str] | None:
    """Return the path of each operation, or None if the text is not a JSON Patch."""
    try:
        operations: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(operations, list):
        return None
    paths: list[str] = []
    for step in operations:
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
        "kubevirt/hyperconverged-cluster-operator:controllers/common#ApplyPatchToSpec",
        "kubevirt/hyperconverged-cluster-operator:docs/cluster-configuration.md",
    ),
)
