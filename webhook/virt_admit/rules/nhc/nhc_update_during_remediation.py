"""An update changes the nodes or remediators of a NodeHealthCheck during remediation.

**Why.** The operator would abandon the requests in progress: nodes stay fenced or tainted, and
nothing ends their remediation. The operator rejects the update.

**Fix.** Wait until ``status.unhealthyNodes`` lists no remediations. To stop new ones, set
``pauseRequests``, which is allowed at any time.
"""

from typing import Any, Final

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model import cel, cel_durations
from virt_admit.model.kubernetes.kinds import NHC
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.units import DURATION
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Operation, names, rule

_REFERENCE_KEYS: Final = (
    "apiVersion",
    "kind",
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "fieldPath",
)
"""The fields of an ObjectReference; the API server removes others."""


def _busy(of: str) -> str:
    """Return whether a node is under remediation, in CEL."""
    return (
        f"{cel.items(f'{of}.?status.?unhealthyNodes')}.exists(node, type(node) == map"
        f" && {cel.items('node.?remediations')}.size() > 0)"
    )


_BUSY: Final = f"({_busy('self')} || {_busy('oldObject')})"
_SAME_SELECTOR: Final = (
    "self.?spec.?selector.?matchExpressions.orValue(null) == "
    "oldObject.?spec.?selector.?matchExpressions.orValue(null) && "
    f"[{cel.entries('self.?spec.?selector.?matchLabels')}].all(ours, "
    f"[{cel.entries('oldObject.?spec.?selector.?matchLabels')}].all(theirs, ours.all(k, "
    "theirs[?k].orValue(null) == ours[k]) && theirs.all(k, ours[?k].orValue(null) == theirs[k])))"
)


def _cel_reference(field: str) -> str:
    """Return a reference without its empty fields as a list, in CEL: null,
    or a value for each field.
    """
    values = (
        f"[reference.?{key}.orValue('')].map(v, v == null ? '' : v)[0]" for key in _REFERENCE_KEYS
    )
    return (
        f"({cel.present(field)} ? [[{cel.entries(field)}].map(reference, "
        f"[{', '.join(values)}])[0]] : [])"
    )


def _cel_steps(of: str) -> str:
    """Return the steps with parsed times, in CEL."""
    time = "step.?timeout.orValue(null)"
    return (
        f"{cel.items(f'{of}.?spec.?escalatingRemediations')}.map(item, type(item) == map ? item : "
        f"{{}}).map(step, [dyn({_cel_reference('step.?remediationTemplate')}), "
        "dyn(type(step.?order.orValue(null)) == int ? step.order : null), "
        f"dyn([{cel_durations.parsed(time, DURATION)}].map(times, times.size() > 0 && times[0] != "
        f"0 ? dyn(times[0]) : dyn({time}))[0])])"
    )


@rule(
    kinds=(NHC,),
    operations=(Operation.UPDATE,),
    action=Action.DENY,
    denials=(
        *(
            cel.Denial(
                when=f"{_BUSY} && {changed}",
                path=f"'spec.{name}'",
                message=(
                    "'cannot change while nodes are being remediated. Wait for them, or set "
                    "pauseRequests.'"
                ),
            )
            for name, changed in (
                ("selector", f"!({_SAME_SELECTOR})"),
                (
                    "remediationTemplate",
                    f"{_cel_reference('self.?spec.?remediationTemplate')}"
                    f" != {_cel_reference('oldObject.?spec.?remediationTemplate')}",
                ),
                ("escalatingRemediations", f"{_cel_steps('self')} != {_cel_steps('oldObject')}"),
            )
        ),
    ),
    sources=(
        "medik8s/node-healthcheck-operator:nodehealthcheck_webhook.go#isRestrictedFieldUpdated",
    ),
)
def check(nhc: Object, context: Context) -> Findings:
    old = context.old
    if old is None:
        return
    nodes = _under_remediation(nhc) or _under_remediation(old)
    if not nodes:
        return
    for name, meaning in (
        ("selector", _selector),
        ("remediationTemplate", _template),
        ("escalatingRemediations", _escalation),
    ):
        if meaning(nhc) != meaning(old):
            yield Finding(
                nhc["spec"][name].path,
                f"cannot change while nodes are being remediated ({names(nodes, 80)}). Wait for "
                "them, or set pauseRequests.",
                cause=Cause.FORBIDDEN,
            )


def _under_remediation(nhc: Object) -> list[str]:
    unhealthy = nhc.at("status", "unhealthyNodes").items()
    return [
        node["name"].text or ""
        for node in unhealthy
        if any(True for _ in node["remediations"].items())
    ]


def _selector(nhc: Object) -> Any:
    """Return the selector as written: the operator compares the order of its lists too
    (``reflect.DeepEqual``).
    """
    selector = nhc.at("spec", "selector")
    labels = {key: value for key, value in selector["matchLabels"].map.items() if value is not None}
    return labels, selector["matchExpressions"].value


def _template(nhc: Object) -> Any:
    return _reference(nhc.at("spec", "remediationTemplate"))


def _escalation(nhc: Object) -> Any:
    """Return the steps with parsed times, because the operator stores a time in another
    notation.
    """
    return [
        (_reference(step.reference), step.order.integer, step.known_timeout or step.timeout.value)
        for step in remediation_steps.escalation(nhc)
    ]


def _reference(field: Field) -> dict[str, Any] | None:
    """Return a reference without its empty fields, which are equivalent to absent ones."""
    if not field.present:
        return None
    return {key: value for key, value in field.map.items() if value not in (None, "")}
