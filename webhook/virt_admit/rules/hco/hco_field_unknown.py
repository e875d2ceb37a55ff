"""HyperConverged uses a field that does not exist.

**Why.** The API server drops a field that the schema does not define, so the setting has no effect. ``kubectl`` rejects
such a file by default. Other clients and GitOps tools lose the setting without an error. Only ``virt-admit check`` can
find this, because the API server drops the field before it calls the webhook.

**Fix.** Use the field that the message names, or remove it. A field counts as unknown only if no API version and no
release that virt-admit has a table of defines it. A newer release may define it. The rule hco-field-wrong-version
reports the fields of another API version.
"""

from virt_admit.model import unknown_fields
from virt_admit.model.kubevirt.settings import hco_versions
from virt_admit.rule import HCO, Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(HCO,),
    action=Action.WARN,
    at_admission=False,
    in_scan=False,
    sources=("kubevirt/hyperconverged-cluster-operator:deploy/crds/hco00.crd.yaml",),
)
def check(hco: Object, _context: Context) -> Findings:
    wrong_version = {field.path for field in hco_versions.foreign_fields(hco)}
    for unknown in unknown_fields.find(hco):
        if unknown.path[:2] not in wrong_version:
            yield Finding(unknown.path, unknown.message("hco-field-unknown"), cause=Cause.FORBIDDEN)
