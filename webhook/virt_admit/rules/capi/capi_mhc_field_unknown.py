"""A Cluster API MachineHealthCheck uses a field that does not exist.

**Why.** The API server drops a field that the schema does not define, so the setting has no effect. ``kubectl`` rejects
such a file by default. Other clients and GitOps tools lose the setting without an error. Only ``virt-admit check`` can
find this, because the API server drops the field before it calls the webhook.

**Fix.** Use the field that the message names, or remove it. A field counts as unknown only if no API version and no
release that virt-admit has a table of defines it. A newer release may define it. The rule capi-mhc-field-wrong-version
reports the fields of the other version.
"""

from virt_admit.model import unknown_fields
from virt_admit.model.remediation import capi_versions
from virt_admit.rule import CAPI_MHC, Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(CAPI_MHC,),
    action=Action.WARN,
    at_admission=False,
    in_scan=False,
    sources=("kubernetes-sigs/cluster-api:core/config/crd/bases/cluster.x-k8s.io_machinehealthchecks.yaml",),
)
def check(obj: Object, _context: Context) -> Findings:
    wrong_version = {field.path for field, _ in capi_versions.foreign_fields(obj)}
    for unknown in unknown_fields.find(obj):
        if unknown.path[:2] not in wrong_version:
            yield Finding(unknown.path, unknown.message("capi-mhc-field-unknown"), cause=Cause.FORBIDDEN)
