"""The selector of a MachineSet changes or does not match the machines that it creates.

**Why.** A MachineSet that does not match its own machines creates new ones forever. The Machine API rejects both, but
the API server skips its webhook while the webhook is unavailable.

**Fix.** Add the labels that the selector requires to the template. For another selector create another MachineSet.
"""

from virt_admit.model.kubernetes import selectors
from virt_admit.rule import MACHINE_SET, Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(MACHINE_SET,),
    action=Action.DENY,
    sources=("openshift/machine-api-operator:pkg/webhooks/machineset_webhook.go#validateMachineSetSpec",),
)
def check(machine_set: Object, context: Context) -> Findings:
    field = machine_set.at("spec", "selector")
    selector = selectors.parse_custom(field.value)
    if context.old is not None and selectors.parse_custom(context.old.at("spec", "selector").value) != selector:
        yield Finding(field.path, "the selector cannot be changed. Create another MachineSet.", cause=Cause.FORBIDDEN)
    for pruned in selector.pruned:
        found = selector.pruned_text("machine")
        yield Finding(field.at(*pruned).path, f"{found}. Write a value, in quotes.", value=None)
    for subpath, problem in selector.errors:
        yield Finding(field.at(*subpath).path, problem)
    labels = machine_set.at("spec", "template", "metadata", "labels")
    if not selector.errors and not selector.matches(labels.map):
        yield Finding(
            labels.path,
            f"the selector ({str(selector)[:60]}) does not match these labels, so the MachineSet would create "
            "machines forever. Add the missing labels.",
            value=(field.value, labels.value),
        )
