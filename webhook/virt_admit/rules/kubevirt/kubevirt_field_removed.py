"""A field is set that the next release of KubeVirt no longer has.

**Why.** The API server drops a field that the schema of the new release does not have, without a
message. What the field asked for no longer happens.

**Fix.** Remove the field, and set what replaces it. Between 1.5 and 1.9 one field was removed:
``basePolicy`` of a pool, which ``sortPolicy`` replaces.
"""

from collections.abc import Iterator

from virt_admit.model import releases
from virt_admit.model.kubernetes.kinds import KUBEVIRT, POOL, VM, VMI, VMIRS
from virt_admit.rule import Action, Cause, Context, Field, Finding, Findings, Object, rule


@rule(
    kinds=(KUBEVIRT, POOL, VM, VMI, VMIRS),
    action=Action.WARN,
    at_admission=False,
    target={releases.KUBEVIRT: "1.6"},
    sources=(
        "kubevirt/kubevirt:pkg/virt-operator/resource/generate/components/validations_generated.go",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    target = context.target.kubevirt
    if not target:
        return
    for written, release in releases.removed_fields(releases.KUBEVIRT, obj.kind, target):
        drops = f"KubeVirt {release} removed this field, and the API server drops it silently"
        message = f"{drops}. Remove it."
        for field in _at(obj.root, written.split(".")):
            yield Finding(field.path, message, value=field.path[-1], cause=Cause.NOT_SUPPORTED)


def _at(field: Field, steps: list[str]) -> Iterator[Field]:
    """Yield each present field at the path; ``[]`` after a name means every item of a list or a
    map.
    """
    if not steps:
        yield field
        return
    name, brackets, _ = steps[0].partition("[]")
    found = field[name]
    if not found.present:
        return
    inner = [found]
    if brackets:
        inner = list(found.items()) if found.is_list else [each for _, each in found.entries()]
    for each in inner:
        yield from _at(each, steps[1:])
