"""A SelfNodeRemediationConfig uses a field that does not exist.

**Why.** The API server drops a field that the schema does not define, so the setting has no effect. ``kubectl`` rejects
such a file by default. Other clients and GitOps tools lose the setting without an error. Only ``virt-admit check`` can
find this, because the API server drops the field before it calls the webhook.

**Fix.** Use the field that the message names, or remove it. A field counts as unknown only if no API version and no
release that virt-admit has a table of defines it. A newer release may define it.
"""

from virt_admit.model import unknown_fields
from virt_admit.rule import SNR_CONFIG, Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(SNR_CONFIG,),
    action=Action.WARN,
    at_admission=False,
    in_scan=False,
    sources=(
        "medik8s/self-node-remediation:config/crd/bases/self-node-remediation.medik8s.io_selfnoderemediationconfigs.yaml",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    for unknown in unknown_fields.find(obj):
        yield Finding(unknown.path, unknown.message("snrc-field-unknown"), cause=Cause.FORBIDDEN)
