"""A BareMetalHost cannot be registered, as Ironic has its MAC address under the name of a host that
does not exist any more.

**Why.** The Bare Metal Operator deletes its record from Ironic when a BareMetalHost is deleted. If
the finalizer of the host was taken off by hand, the record stays, and Ironic refuses the same
machine under another name. The host never becomes available, and a Machine that waits for one never
becomes a node.

**Fix.** On OpenShift restart the pod of Ironic: its records are made again from the BareMetalHosts.
Or give the host its old name. Never take the finalizer off a BareMetalHost by hand.
"""

from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import BARE_METAL_HOST
from virt_admit.model.messages import advice_of, command_of
from virt_admit.model.remediation import bare_metal
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(BARE_METAL_HOST,),
    reads=bare_metal.RECORD_READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "metal3-io/baremetal-operator:pkg/provisioner/ironic/register.go#Register",
        "https://github.com/metal3-io/metal3-docs/pull/484",
        "https://github.com/openshift/openshift-docs/pull/34147",
    ),
)
def check(host: Object, context: Context) -> Findings:
    record = bare_metal.stale_record(host, context.cluster)
    if record is not None:
        path, remedy = (
            host.at("status", "errorMessage").path,
            bare_metal.record_remedy(record, context.cluster),
        )
        begin = f"it cannot be registered, as {record.brief}. "
        ways = (f"{begin}{advice_of(each)}" for each in (remedy, remedy.partition("; ")[0]))
        message = check.first_that_fits(path, *ways)
        yield Finding(path, message, value=host.name, command=command_of(remedy))
    elif bare_metal.conflicts(host):
        yield from more_may_exist(context.cluster, BARE_METAL_HOST)
