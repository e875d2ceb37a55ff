"""The selector of a machine set does not match the machines that the set makes, or has changed.

**Why.** A set that does not recognise its own machines creates new ones without end. The Machine API refuses both, but its
webhook is skipped while it does not answer.

**Fix.** Give the template's labels what the selector asks for; for another selector create another set.
"""

from collections.abc import Iterator

from virt_admit.model import selectors
from virt_admit.model.kinds import MACHINE_SET
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(machine_set: Object, context: Context[NoParams]) -> Iterator[Finding]:
    field = machine_set.at("spec", "selector")
    selector = selectors.parse(field.value)
    if context.old is not None and selectors.parse(context.old.at("spec", "selector").value) != selector:
        yield Finding(field.path, "the selector cannot be changed; create another machine set", cause=Cause.FORBIDDEN)
    for steps, problem in selector.errors:
        yield Finding(field.at(*steps).path, problem)
    labels = machine_set.at("spec", "template", "metadata", "labels")
    if not selector.errors and not selector.matches(labels.map):
        yield Finding(
            labels.path,
            f"the selector ({str(selector)[:120]}) does not match these labels: the set would create machines "
            "without end; add what is missing",
            value=(field.value, labels.value),
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MACHINE_SET,),
    action=Action.DENY,
    check=check,
    sources=("openshift/machine-api-operator:pkg/webhooks/machineset_webhook.go#validateMachineSetSpec",),
)
