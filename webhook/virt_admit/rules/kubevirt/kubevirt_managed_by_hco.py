"""A KubeVirt or CDI that HyperConverged manages is edited directly.

**Why.** HyperConverged writes the whole spec of these resources and restores it within minutes. The
edit seems to work and is then lost. ``check`` also reports a file with the label of HyperConverged,
because applying it is such an edit.

**Fix.** Edit HyperConverged. Use its ``…/jsonpatch`` annotations for settings that it does not
have.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from virt_admit.rule import CDI, KUBEVIRT, Action, Context, Finding, Findings, Object, param, rule

MANAGED_BY = "app.kubernetes.io/managed-by"
HCO_OPERATOR = "hco-operator"


@dataclass(frozen=True)
class Params:
    operators: tuple[str, ...] = param(
        ("system:serviceaccount:*:hyperconverged-cluster-operator",),
        "users that write these resources for HyperConverged (patterns of user names)",
    )


@rule(
    kinds=(KUBEVIRT, CDI),
    in_scan=False,
    action=Action.WARN,
    params=Params(),
    sources=("kubevirt/hyperconverged-cluster-operator:controllers/handlers/kubevirt.go#UpdateCR",),
)
def check(obj: Object, context: Context[Params]) -> Findings:
    old = context.old
    from_file = old is None and not context.user  # check without --old; every request has a user
    changed = old is not None and obj["spec"].value != old["spec"].value
    if (
        not (changed or (from_file and obj["spec"].map))
        or obj.labels.get(MANAGED_BY) != HCO_OPERATOR
    ):
        return
    if not any(fnmatchcase(context.user, operator) for operator in context.params.operators):
        yield Finding(
            obj["spec"].path,
            "HyperConverged manages this resource and reverts this edit within minutes. "
            "Edit HyperConverged, or its jsonpatch annotation for settings that it does not have.",
        )
