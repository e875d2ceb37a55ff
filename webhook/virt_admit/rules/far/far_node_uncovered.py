"""A NodeHealthCheck selects a node for which the fence agent has no parameters.

**Why.** The operator looks parameters up by the exact node name. For a node without them the agent
runs without an address, or not at all. The remediation neither fails nor is repeated, so the node
and its VMs stay as they are.

**Fix.** Add the node to each entry of ``nodeparameters``, add a Secret in ``nodeSecretNames``, or
do not select the node.
"""

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import FAR_TEMPLATE, NHC, NODE
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.remediation import check_scope, health_checks
from virt_admit.model.remediation.remediators import far_gaps, far_spec
from virt_admit.rule import Action, Context, Finding, Findings, Object, Path, Unseen, names, rule


@rule(
    kinds=(FAR_TEMPLATE, NHC),
    reads={NHC: (), NODE: ("metadata.labels",), FAR_TEMPLATE: ()},
    action=Action.WARN,
    sources=(
        (
            "medik8s/"
            "fence-agents-remediation:fenceagentsremediation_params.go#validateFenceAgentParams"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    return _of_template(obj, context) if kinds.of(obj) is FAR_TEMPLATE else _of_check(obj, context)


def _of_template(template: Object, context: Context) -> Findings:
    if not far_spec(template)["nodeparameters"].map:
        return
    watches = check_scope.watches(context.cluster, NHC)
    for watch in watches.of(""):
        nhc = watch.check.obj
        if any(step.refers_to(template) for step in remediation_steps.steps(watch.check)):
            yield from _gaps(template, watch.selection, f"NodeHealthCheck {nhc.name} selects")
    watches.demand_all()


def _of_check(nhc: Object, context: Context) -> Findings:
    for step in remediation_steps.steps(context.cached(health_checks.view, nhc)):
        if step.kind is FAR_TEMPLATE:
            try:
                template = step.template(context.cluster)
            except Unseen as unseen:
                yield unseen
                continue
            if template is not None:
                selection = context.cached(check_scope.selected, nhc)
                yield from _gaps(template, selection, "this check selects", step.reference.path)


def _gaps(
    template: Object, nodes: Selection, selected_by: str, path: Path | None = None
) -> Findings:
    for parameter, missing in far_gaps(template, (node.name for node in nodes.objects)):
        yield Finding(
            path or parameter.path,
            f"no {parameter.path[-1]} for {names(missing, 80)}, which {selected_by}: fencing would "
            "fail silently. Add a value or a Secret.",
            value=(parameter.path[-1], *missing),
        )
    if nodes.unseen and far_spec(template)["nodeparameters"].map:
        yield Unseen(nodes.unseen)
