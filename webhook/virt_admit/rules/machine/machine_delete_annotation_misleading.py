"""A deletion annotation of a machine has the opposite of its apparent effect, or none.

**Why.** Any value except the empty one marks a machine for deletion, so ``"false"`` marks it too
and an empty value has no effect. The Machine API ignores the keys of Cluster API.

**Fix.** To mark the machine, write ``machine.openshift.io/delete-machine: "true"``. To unmark it,
remove the annotation.
"""

from typing import Final

from virt_admit.model.remediation import health_checks, machines
from virt_admit.rule import MACHINE, Action, Context, Finding, Findings, Object, rule, show

_FOREIGN: Final = ("cluster.k8s.io/delete-machine", "cluster.x-k8s.io/delete-machine")


@rule(
    kinds=(MACHINE,),
    metadata=(*machines.DELETE_ANNOTATIONS, *_FOREIGN),
    action=Action.WARN,
    sources=("openshift/machine-api-operator:pkg/controller/machineset/delete_policy.go",),
)
def check(machine: Object, _context: Context) -> Findings:
    for key in machines.DELETE_ANNOTATIONS:
        annotation = machine.annotation(key)
        if annotation.text == "":
            yield Finding(
                annotation.path,
                'an empty value does not mark the machine for deletion. Write "true".',
            )
        elif annotation.text and health_checks.is_falsy_text(annotation.text):
            yield Finding(
                annotation.path,
                f"{show(annotation.text)} marks the machine for deletion, as any value does. To "
                "unmark it, remove the key.",
            )
    for key in _FOREIGN:
        annotation = machine.annotation(key)
        if annotation.present:
            yield Finding(
                annotation.path,
                f"the Machine API ignores this key. Use {machines.DELETE_ANNOTATIONS[0]}.",
            )
