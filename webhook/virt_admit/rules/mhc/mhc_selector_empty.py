"""A MachineHealthCheck selects every machine.

**Why.** The schema of machine.openshift.io admits a check without a selector or with an empty one.
Such a check deletes any unhealthy machine of its namespace, including control-plane machines.

**Fix.** Select a label that only the intended machines have, such as
``machine.openshift.io/cluster-api-machineset: <name of the set>``.
"""

from virt_admit.model import cel
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.rule import CAPI_MHC, MHC, Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(MHC, CAPI_MHC),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=f"{cel_checks.EMPTY_SELECTOR}"
            f" && !(self.apiVersion.startsWith('machine.openshift.io/') && {cel_checks.HANDLER})",
            path="'spec.selector'",
            message=(
                "'an empty selector selects every machine, including the control plane. Add a "
                "label to matchLabels, ' + 'such as ' + "
                "(self.apiVersion.startsWith('machine.openshift.io/') ? "
                "'machine.openshift.io/cluster-api-machineset' : "
                "'cluster.x-k8s.io/deployment-name') + '.'"
            ),
        ),
    ),
    sources=(
        (
            "openshift/api:machine/v1beta1/tests/machinehealthchecks.machine.openshift.io/"
            "AAA_ungated.yaml"
        ),
        "kubernetes-sigs/cluster-api:core/webhooks/admission/machinehealthcheck.go#validate",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    exempt = view.handler and view.kind is MHC  # Cluster API's own webhook exempts none
    # mhc-selector-invalid reports null
    if view.selector.empty and not view.selector.pruned and not exempt:
        label = (
            "machine.openshift.io/cluster-api-machineset"
            if view.kind is MHC
            else "cluster.x-k8s.io/deployment-name"
        )
        yield Finding(
            view.selector_field.path,
            "an empty selector selects every machine, including the control plane. "
            f"Add a label to matchLabels, such as {label}.",
            value=None,  # an absent selector and an empty one are the same finding
            cause=Cause.REQUIRED,
        )
