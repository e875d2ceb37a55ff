"""A virtual machine that migrates has a secondary network whose addresses each node assigns by
itself.

**Why.** The IPAM plugin ``host-local`` keeps the assigned addresses in files of one node. After a
migration the new node assigns another address, or one that a VM on another node has. Connections
break.

**Fix.** Assign addresses for the whole cluster, for example with whereabouts, DHCP or the IPAM of
OVN-Kubernetes, or remove ``ipam`` from the network and set the address in the guest.
"""

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.model.kubernetes.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import migratability, networks
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, cut, rule, union


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    only_with=("networks",),
    reads=union(migratability.READS, networks.READS),
    action=Action.AUDIT,
    sources=(
        "containernetworking/plugins:plugins/ipam/host-local",
        "k8snetworkplumbingwg/whereabouts:README.md",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    named = list(networks.secondary(obj))
    if not named or not vmi_evictions.awaits_migration(obj, context.facts):
        return
    for name in named:
        try:
            found = networks.ipam(obj, name, context.cluster)
        except Unseen as unseen:
            yield unseen
            continue
        if found == networks.NODE_LOCAL_IPAM:
            yield Finding(
                name.path,
                f"each node assigns the addresses of {cut(name.text or '', 40)} (host-local), so a "
                "migration changes the VM's address. Use whereabouts or DHCP.",
            )
