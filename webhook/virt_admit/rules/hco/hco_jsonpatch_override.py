"""A jsonpatch annotation of HyperConverged overrides checked settings, or is not valid.

**Why.** HyperConverged applies the patch in ``kubevirt.kubevirt.io/jsonpatch`` to the KubeVirt
resource that it writes. A patch of updates, migrations, evictions, CPU models or certificates
replaces the settings that virt-admit checked in HyperConverged. A malformed JSON Patch, or one with
a path outside ``/spec/``, stops the operator. An ``add`` of a path that an earlier operation set
replaces the whole value (RFC 6902); the two are not merged.

**Fix.** Set the field of HyperConverged instead, if it has one. Write one operation for each path.
"""

from collections.abc import Iterator, Sequence

from virt_admit.model.kubernetes import json_codec
from virt_admit.rule import HCO, Action, Context, Finding, Findings, Object, cut, names, rule

ANNOTATION = "kubevirt.kubevirt.io/jsonpatch"
OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")  # RFC 6902
SETS = ("add", "replace")
SPEC = "/spec/"
CHECKED_PATHS = (
    "/spec/workloadUpdateStrategy",
    "/spec/configuration/migrations",
    "/spec/configuration/evictionStrategy",
    "/spec/configuration/obsoleteCPUModels",
    "/spec/configuration/cpuModel",
    "/spec/certificateRotateStrategy",
)


@rule(
    kinds=(HCO,),
    metadata=(ANNOTATION,),
    action=Action.DENY,
    not_in_cel="the patch is JSON within a text, and CEL has no function that reads JSON",
    sources=(
        "kubevirt/hyperconverged-cluster-operator:controllers/handlers/kubevirt.go#NewKubeVirt",
        "kubevirt/hyperconverged-cluster-operator:controllers/operands/operand.go#ApplyPatchToSpec",
        "kubevirt/hyperconverged-cluster-operator:docs/cluster-configuration.md",
    ),
)
def check(hco: Object, _context: Context) -> Findings:
    annotation = hco.annotation(ANNOTATION)
    if annotation.text is None:
        return
    operations = _operations(annotation.text)
    if operations is None:
        yield Finding(
            annotation.path,
            "HyperConverged cannot apply this value, because it is not a JSON Patch. "
            'Use a list such as [{"op": "add", "path": "/spec/…", "value": …}].',
        )
        return
    patched = dict.fromkeys(path for _, path in operations)
    outside = [path for path in patched if not path.startswith(SPEC)]
    if outside:
        yield Finding(
            annotation.path,
            "HyperConverged rejects this whole patch and stops, because it may only change paths "
            f"below {SPEC}. Remove or correct "
            f"{names([cut(path, 60) or '(empty)' for path in outside], 70)}",
        )
        return
    replaced = list(dict.fromkeys(_replaced(operations)))
    if replaced:
        yield Finding(
            annotation.path,
            "a later operation replaces what an earlier one set, without merging. "
            f"Write one operation for {names([cut(path, 60) for path in replaced], 70)}",
            value=tuple(replaced),
            max_action=Action.WARN,
        )
    overridden = [path for path in patched if path.startswith(CHECKED_PATHS)]
    if overridden:
        yield Finding(
            annotation.path,
            "this patch overrides settings that virt-admit checks. "
            f"Use fields of HyperConverged instead of {names(overridden, 70)}",
            max_action=Action.WARN,
        )


def _operations(text: str) -> list[tuple[str, str]] | None:
    """Return operation and path of each step, or None if the text is not a JSON Patch."""
    steps = json_codec.embedded(text)
    if not isinstance(steps, list):
        return None
    operations: list[tuple[str, str]] = []
    for step in steps:
        if not isinstance(step, dict):
            return None
        operation, path = step.get("op"), step.get("path")
        if operation not in OPERATIONS or not isinstance(path, str):
            return None
        operations.append((operation, path))
    return operations


def _replaced(operations: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the paths that are set although an earlier step has set them, or a field below them.

    ``add`` inserts an item into a list and replaces none.
    """
    touched: set[str] = set()
    for operation, path in operations:
        if operation not in SETS:
            continue
        parent, _, last = path.rpartition("/")
        if operation == "replace" or not (last == "-" or last.isdigit()):
            if path in touched:
                yield path
            parent = path
        while parent and parent not in touched:
            touched.add(parent)
            parent = parent.rpartition("/")[0]
