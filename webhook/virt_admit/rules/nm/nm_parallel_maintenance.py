"""Several nodes are under maintenance at once.

**Why.** Each drained node leaves less room for the VMs that migrate. Their migrations also wait for
each other: by default the cluster runs five at a time.

**Fix.** Wait until the other maintenance is done, unless the cluster has room for the VMs of both
nodes.
"""

from virt_admit.model.kubernetes.kinds import NM, NM_KUBEVIRT
from virt_admit.model.messages import names
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Context, Finding, Findings, Object, Operation, Unseen, rule


@rule(
    kinds=(NM, NM_KUBEVIRT),
    reads={NM: (), NM_KUBEVIRT: ()},
    operations=(Operation.CREATE,),
    action=Action.WARN,
    sources=(
        "kubevirt/kubevirt:pkg/virt-config/virt-config.go",
        "OpenShift Virtualization, Nodes 10.1",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    node = maintenance.node(obj)
    active: list[str] = []
    for other in maintenance.others(obj, context.cluster):
        if isinstance(other, Unseen):
            yield other
        elif (
            maintenance.node(other).text != node.text
            and other.at("status", "phase").value != "Succeeded"
        ):
            active.append(f"{other.name} (node {maintenance.node(other).text})")
    if active:
        yield Finding(
            node.path,
            "another maintenance is not done, which leaves less room for VMs: "
            f"{names(active, 80)}. Wait for it, unless the cluster has room.",
        )
