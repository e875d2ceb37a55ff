"""The selector of a MachineSet changes or does not match the machines that it creates.

**Why.** A MachineSet that does not match its own machines creates new ones forever. The Machine API
rejects both, but the API server skips its webhook while the webhook is unavailable.

**Fix.** Add the labels that the selector requires to the template. For another selector create
another MachineSet.
"""

from typing import Final

from virt_admit.model import cel, cel_selectors
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.kinds import MACHINE_SET
from virt_admit.rule import Action, Cause, Context, Field, Finding, Findings, Object, rule

_SELECTOR: Final = "self.?spec.?selector"
_OLD: Final = "oldObject.?spec.?selector"
_LABELS: Final = cel.entries("self.?spec.?template.?metadata.?labels")
_SAME: Final = cel_selectors.same(*map(cel_selectors.requirements, (_SELECTOR, _OLD)))
_CHANGED: Final = (
    f"({_SELECTOR}.orValue(null) != {_OLD}.orValue(null) && !({cel_selectors.valid(_SELECTOR)} && "
    f"{cel_selectors.valid(_OLD)} && {_SAME}))"
)


@rule(
    kinds=(MACHINE_SET,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=f"oldObject != null && self == object && {_CHANGED}",
            path="'spec.selector'",
            message="'the selector cannot be changed. Create another MachineSet.'",
        ),
        *cel_selectors.denials(_SELECTOR, "spec.selector", ""),
        cel.Denial(
            when=f"{cel_selectors.valid(_SELECTOR)}"
            f" && !{cel_selectors.matches(cel_selectors.requirements(_SELECTOR), _LABELS)}",
            path="'spec.template.metadata.labels'",
            message=(
                "'the selector does not match these labels, so the MachineSet would create "
                "machines forever. ' + 'Add the missing labels.'"
            ),
            value=(
                "[self.?spec.?selector.orValue(null), "
                "self.?spec.?template.?metadata.?labels.orValue(null)]"
            ),
        ),
    ),
    sources=(
        "openshift/machine-api-operator:pkg/webhooks/machineset_webhook.go#validateMachineSetSpec",
    ),
)
def check(machine_set: Object, context: Context) -> Findings:
    field = machine_set.at("spec", "selector")
    selector = selectors.parse_custom(field.value)
    if context.old is not None and _changed(context.old.at("spec", "selector"), field):
        yield Finding(
            field.path,
            "the selector cannot be changed. Create another MachineSet.",
            cause=Cause.FORBIDDEN,
        )
    for pruned in selector.pruned:
        found = selector.pruned_text("machine")
        yield Finding(field.at(*pruned).path, f"{found}. Write a value, in quotes.", value=None)
    for subpath, problem in selector.errors:
        yield Finding(field.at(*subpath).path, problem)
    labels = machine_set.at("spec", "template", "metadata", "labels")
    if not selector.errors and not selector.matches(labels.map):
        yield Finding(
            labels.path,
            f"the selector ({str(selector)[:60]}) does not match these labels, so the MachineSet "
            "would create machines forever. Add the missing labels.",
            value=(field.value, labels.value),
        )


def _changed(before: Field, after: Field) -> bool:
    """Return whether a selector changes.

    One that is not valid has no meaning, so every change of it counts.
    """
    old, new = selectors.parse_custom(before.value), selectors.parse_custom(after.value)
    return before.value != after.value and (bool(old.errors or new.errors) or old != new)
