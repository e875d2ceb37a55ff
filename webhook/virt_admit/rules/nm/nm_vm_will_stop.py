"""A NodeMaintenance shuts down a VM that does not start again.

**Why.** Only ``runStrategy: Always`` starts a VM again after the clean shutdown of a drain. With
``RerunOnFailure``, ``Manual``, ``Once`` or ``Halted`` it stays off until a user starts it. A VMI
that has no VM is lost.

**Fix.** Set ``runStrategy: Always``, let the VM migrate (``evictionStrategy: LiveMigrate``), or
plan to start it again after the maintenance.
"""

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.drain.vmi_evictions import Effect
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.kinds import NM, NM_KUBEVIRT
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.messages import names
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Context, Finding, Findings, Object, Operation, rule, union


@rule(
    kinds=(NM, NM_KUBEVIRT),
    reads=union(vmi_evictions.EVICTION_READS, vmis.OWNER_READS),
    operations=(Operation.CREATE,),
    action=Action.WARN,
    sources=(
        "OpenShift Virtualization, Node maintenance 11.1.1",
        "kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#syncRunStrategy",
        "kubevirt/kubevirt#9823",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    node = maintenance.node(obj)
    evictions = vmi_evictions.evictions(context.cluster, node.text or "")
    yield from evictions.unseen
    stopped: list[Object] = []
    told: list[str] = []
    for vmi in evictions.having(Effect.SHUTS_DOWN):
        try:
            after = vmis.comes_back(vmi, context.cluster)
        except Unseen as unseen:
            yield unseen
            continue
        if not after.comes and not vmi.deleted:  # else a user has stopped it already
            stopped.append(vmi)
            told.append(f"{vmi.full_name} ({after.why})")
    if stopped:
        yield Finding(
            node.path,
            "the drain shuts down these VMs and KubeVirt does not start them again: "
            f"{names(told, 80)}. Set runStrategy: Always, or start them manually.",
            command=vmis.edit(stopped),
        )
