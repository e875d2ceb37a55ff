"""A MachineHealthCheck of Cluster API names two clusters, or moves to another one.

**Why.** A check belongs to one cluster, for good; a selector with another cluster's label matches nothing. Cluster API's
own webhook refuses both, where it is installed.

**Fix.** Leave ``cluster.x-k8s.io/cluster-name`` out of the selector; for another cluster create another check.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CAPI_MHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.model.remediation.machines import CAPI_CLUSTER_LABEL
from virt_admit.model.units import show
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    name = obj.at("spec", "clusterName")
    if context.old is not None:
        before = context.old.at("spec", "clusterName").value
        if before != name.value:
            yield Finding(
                name.path,
                f"cannot be changed (it is {show(before)}); create another check for another cluster",
                cause=Cause.FORBIDDEN,
            )
    selector = context.cached(health_checks.view, obj).selector_field
    labels = selector["matchLabels"].map
    if CAPI_CLUSTER_LABEL in labels and labels[CAPI_CLUSTER_LABEL] != name.value:
        yield Finding(
            selector.path,
            f"{CAPI_CLUSTER_LABEL} is {show(labels[CAPI_CLUSTER_LABEL])} and clusterName {show(name.value)}: "
            "this matches nothing; leave the label out",
            value=(name.value, labels[CAPI_CLUSTER_LABEL]),
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(CAPI_MHC,),
    action=Action.DENY,
    check=check,
    sources=("kubernetes-sigs/cluster-api:core/webhooks/admission/machinehealthcheck.go#validate",),
)
