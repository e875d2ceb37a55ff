"""An interface has a network binding that the next release rejects.

**Why.** KubeVirt discontinued the bindings slirp, macvtap and passt of the VM API in release 1.3.
Its webhook rejects VMs and pools that use one, and a VM that is stored already does not start
again.

**Fix.** Use masquerade for the pod network, or a network binding plugin that KubeVirt registers.
Release 1.8 and later also have ``passtBinding``, with the feature gate PasstBinding.
"""

from virt_admit.model import releases
from virt_admit.model.kubernetes.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import vms
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, rule

REMOVED = {
    "slirp": "masquerade",
    "passt": "masquerade or a binding plugin",
    "macvtap": "a binding plugin",
}
"""The removed bindings, and what to use instead."""


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    action=Action.WARN,
    at_admission=False,
    target={releases.KUBEVIRT: "1.5"},
    sources=(
        "kubevirt/kubevirt:pkg/network/admitter/discontinued.go#validateDiscontinuedBindings",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    target = context.target.kubevirt
    if not target:
        return
    for interface in vms.vmi_spec(obj).at("domain", "devices", "interfaces").items():
        for binding, instead in REMOVED.items():
            field = interface[binding]
            if field.present:
                refused = f"KubeVirt {target} rejects the binding {binding}"
                message = f"{refused}, so the VM does not start. Use {instead}."
                yield Finding(field.path, message, value=binding, cause=Cause.NOT_SUPPORTED)
