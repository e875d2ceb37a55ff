"""An update changes the nodes or remediators of a NodeHealthCheck during remediation.

**Why.** The operator would abandon the requests in progress: nodes stay fenced or tainted, and nothing ends their
remediation. The operator rejects the update.

**Fix.** Wait until ``status.unhealthyNodes`` lists no remediations. To stop new ones, set ``pauseRequests``, which is
allowed at any time.
"""

from typing import Any

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.rule import NHC, Action, Cause, Context, Field, Finding, Findings, Object, Operation, names, rule


@rule(
    kinds=(NHC,),
    operations=(Operation.UPDATE,),
    action=Action.DENY,
    sources=("medik8s/node-healthcheck-operator:nodehealthcheck_webhook.go#isRestrictedFieldUpdated",),
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
                f"cannot change while nodes are being remediated ({names(nodes, 80)}). Wait for them, or set pauseRequests.",
                cause=Cause.FORBIDDEN,
            )


def _under_remediation(nhc: Object) -> list[str]:
    unhealthy = nhc.at("status", "unhealthyNodes").items()
    return [node["name"].text or "" for node in unhealthy if any(True for _ in node["remediations"].items())]


def _selector(nhc: Object) -> Any:
    """Return the selector as written: the operator compares the order of its lists too (``reflect.DeepEqual``)."""
    selector = nhc.at("spec", "selector")
    labels = {key: value for key, value in selector["matchLabels"].map.items() if value is not None}
    return labels, selector["matchExpressions"].value


def _template(nhc: Object) -> Any:
    return _reference(nhc.at("spec", "remediationTemplate"))


def _escalation(nhc: Object) -> Any:
    """Return the steps with parsed times, because the operator stores a time in another notation."""
    return [
        (_reference(step.reference), step.order.integer, step.known_timeout or step.timeout.value)
        for step in remediation_steps.escalation(nhc)
    ]


def _reference(field: Field) -> dict[str, Any] | None:
    """Return a reference without its empty fields, which are equivalent to absent ones."""
    return {key: value for key, value in field.map.items() if value not in (None, "")} if field.present else None
