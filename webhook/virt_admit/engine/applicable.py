"""Which rules a request asks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from virt_admit.engine.admission_review import Request
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.policy.policy import Decided
from virt_admit.rule import Operation, Rule
from virt_admit.rules import Rules


def applicable_rules(request: Request, rules: Rules) -> tuple[Rule, ...]:
    """Return the rules to run for a request.

    Empty for kinds and sub-resources without rules. At admission also for objects being deleted,
    because their finalizers must stay removable; a scan asks the rules about these. Also empty for
    updates that change nothing a rule reads (status writes, storage migration), and for updates of
    kinds that are only reviewed on creation.
    """
    if request.kind is None or request.subject is None:
        return ()
    if request.subject.deleted:
        asked = rules.rules_for(
            request.kind, request.operation, request.subresource, request.target
        )
        return tuple(rule for rule in asked if rule.of_deleted and not rule.at_admission)
    if request.operation == Operation.UPDATE and (
        request.kind.created_only or _unchanged(request, rules)
    ):
        return ()
    return rules.rules_for(request.kind, request.operation, request.subresource, request.target)


def concerned(active: Sequence[Decided], obj: Object) -> Iterable[Decided]:
    """Return the rules that may find something in an object with the fields that it has."""
    present = vms.vm_spec(obj).map.keys() | vms.vmi_spec(obj).map.keys()
    return [
        each
        for each in active
        if not each[0].only_with or not present.isdisjoint(each[0].only_with)
    ]


def _unchanged(request: Request, rules: Rules) -> bool:
    obj, old = request.obj, request.old
    if (
        obj is None
        or old is None
        or request.kind is None
        or obj.data.get("spec") != old.data.get("spec")
    ):
        return False
    parts = ((obj.metadata[part], old.metadata[part]) for part in request.kind.judged_metadata)
    if any(now.value != before.value and now.texts != before.texts for now, before in parts):
        return False
    return all(
        _metadata(obj, key) == _metadata(old, key) for key in rules.metadata.get(request.kind, ())
    )


def _metadata(obj: Object, key: str) -> tuple[Any, Any]:
    return obj.annotation(key).value, obj.label(key).value
