"""A Cluster API MachineHealthCheck uses a field of another API version.

**Why.** Version v1beta2 has other field names and paths than v1beta1. The API server drops fields
that the version does not have, so the check watches less than written. The dropped fields do not
appear in the cluster.

**Fix.** Move the value to the field that the message names, or use the apiVersion that has these
fields.
"""

from virt_admit.model.remediation import capi_versions
from virt_admit.rule import CAPI_MHC, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(CAPI_MHC,),
    action=Action.WARN,
    at_admission=False,
    sources=(
        (
            "kubernetes-sigs/cluster-api:core/config/crd/bases/"
            "cluster.x-k8s.io_machinehealthchecks.yaml"
        ),
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    for field, replacement in capi_versions.foreign_fields(obj):
        yield Finding(
            field.path,
            f"not a field of {obj.version}: the API server would drop it. Use {replacement}.",
        )
