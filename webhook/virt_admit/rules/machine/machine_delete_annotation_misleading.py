"""An annotation marks a machine for deletion, or does not, contrary to what it says.

**Why.** Any value but the empty one marks a machine, so ``"false"`` marks it, too, and an empty one has no effect. The keys
of Cluster API mean nothing to the Machine API.

**Fix.** To mark write ``machine.openshift.io/delete-machine: "true"``; to unmark remove the annotation.
"""

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kinds import MACHINE
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks, machines
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule

_FOREIGN: Final = ("cluster.k8s.io/delete-machine", "cluster.x-k8s.io/delete-machine")


def check(machine: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for key in machines.DELETE_ANNOTATIONS:
        annotation = machine.annotation(key)
        if annotation.text == "":
            yield Finding(annotation.path, 'an empty value does not mark the machine for deletion; write "true"')
        elif annotation.text and health_checks.is_falsy_text(annotation.text):
            yield Finding(
                annotation.path,
                f"{show(annotation.text)} marks the machine for deletion, as any value does; to unmark it remove that",
            )
    for key in _FOREIGN:
        annotation = machine.annotation(key)
        if annotation.present:
            yield Finding(
                annotation.path, f"has no effect on this Machine; the key is {machines.DELETE_ANNOTATIONS[0]}"
            )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MACHINE,),
    metadata=(*machines.DELETE_ANNOTATIONS, *_FOREIGN),
    action=Action.WARN,
    check=check,
    sources=("openshift/machine-api-operator:pkg/controller/machineset/delete_policy.go",),
)
