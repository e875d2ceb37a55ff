"""A Cluster API MachineHealthCheck names no cluster or two, or changes its cluster.

**Why.** A health check belongs to one cluster permanently. A selector with another cluster's label
matches no machines. Cluster API's own webhook rejects both where it is installed. The schema
rejects a check without ``clusterName``, or with one that is longer than 63 characters.

**Fix.** Write the name of the Cluster as ``clusterName``. Remove ``cluster.x-k8s.io/cluster-name``
from the selector. For another cluster, create another health check.
"""

from typing import Final

from virt_admit.model import cel
from virt_admit.model.remediation import health_checks
from virt_admit.model.remediation.machines import CAPI_CLUSTER_LABEL
from virt_admit.rule import CAPI_MHC, Action, Cause, Context, Finding, Findings, Object, rule, show

LONGEST: Final = 63

_VALID: Final = (
    f"{cel.is_text('self.?spec.?clusterName')}"
    f" && self.spec.clusterName.size() > 0 && self.spec.clusterName.size() <= {LONGEST}"
)
_LABELS: Final = cel.entries("self.?spec.?selector.?matchLabels")


@rule(
    kinds=(CAPI_MHC,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=f"!({_VALID})",
            path="'spec.clusterName'",
            message=(
                "'this is not the name of a Cluster, so the schema rejects the check. Write 1 to "
                f"{LONGEST} characters.'"
            ),
            value="self.?spec.?clusterName.orValue(null)",
        ),
        cel.Denial(
            when=(
                f"{_VALID} && oldObject != null && oldObject.?spec.?clusterName.orValue(null) != "
                "self.spec.clusterName"
            ),
            path="'spec.clusterName'",
            message="'cannot be changed. Create another health check for that cluster.'",
            value="self.spec.clusterName",
        ),
        cel.Denial(
            when=(
                f"{_VALID} && "
                f"{_LABELS}[?{cel.text(CAPI_CLUSTER_LABEL)}].orValue(self.spec.clusterName) != "
                "self.spec.clusterName"
            ),
            path="'spec.selector'",
            message=(
                f"'{CAPI_CLUSTER_LABEL} differs from clusterName, so the selector matches no "
                "machines. ' + 'Remove the label from the selector.'"
            ),
            value=f"[self.spec.clusterName, {_LABELS}[{cel.text(CAPI_CLUSTER_LABEL)}]]",
        ),
    ),
    sources=(
        "kubernetes-sigs/cluster-api:core/webhooks/admission/machinehealthcheck.go#validate",
        (
            "kubernetes-sigs/cluster-api:api/core/v1beta2/"
            "machinehealthcheck_types.go#MachineHealthCheckSpec"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    name = obj.at("spec", "clusterName")
    if not (name.text and len(name.text) <= LONGEST):
        problem = (
            f"{show(name.value)} is not the name of a Cluster"
            if name.present
            else "clusterName is missing"
        )
        yield Finding(
            name.path,
            f"{problem}, so the schema rejects the check. Write the name of its Cluster, 1 to "
            f"{LONGEST} characters.",
            cause=Cause.INVALID if name.present else Cause.REQUIRED,
        )
        return
    if context.old is not None:
        before = context.old.at("spec", "clusterName").value
        if before != name.value:
            yield Finding(
                name.path,
                f"cannot be changed from {show(before)} to {show(name.value)}. Create another "
                "health check for that cluster.",
                cause=Cause.FORBIDDEN,
            )
    selector = context.cached(health_checks.view, obj).selector_field
    labels = selector["matchLabels"].map
    if CAPI_CLUSTER_LABEL in labels and labels[CAPI_CLUSTER_LABEL] != name.value:
        problem = (
            f"{CAPI_CLUSTER_LABEL} is {show(labels[CAPI_CLUSTER_LABEL])} but clusterName is "
            f"{show(name.value)}"
        )
        effect = "so the selector matches no machines. Remove the label from the selector."
        short = f"{CAPI_CLUSTER_LABEL} differs from clusterName"
        yield Finding(
            selector.path,
            check.first_that_fits(selector.path, f"{problem}, {effect}", f"{short}, {effect}"),
            value=(name.value, labels[CAPI_CLUSTER_LABEL]),
        )
