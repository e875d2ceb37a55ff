"""A KubeadmControlPlane does not go on, because its etcd has a member that never started.

**Why.** ``kubeadm join`` adds the member before etcd runs. A Machine that fails then is replaced,
but Cluster API before 1.14 leaves its member, as it has no name. etcd takes one such member at
a time, so no new Machine joins: each runs as a VM without becoming a Node, and is replaced again.

**Fix.** Look at the members of etcd in that cluster. Remove the one without a name if all others
are started: ``etcdctl member remove``. Delete none of the Machines that work.
"""

from virt_admit.model.kubernetes.kinds import KUBEADM
from virt_admit.model.messages import command_of
from virt_admit.model.node_updates.operators import etcd_leftovers
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(KUBEADM,),
    reads=etcd_leftovers.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "https://github.com/kubernetes-sigs/cluster-api/issues/13221",
        "https://github.com/kubernetes-sigs/cluster-api/pull/13685",
    ),
)
def check(owner: Object, context: Context) -> Findings:
    found = etcd_leftovers.of(owner, context.cluster)
    if found is None:
        return
    path = owner.at("status", "conditions").path
    yield Finding(
        path,
        check.first_that_fits(path, f"{found.brief}. {found.advice}", f"{found.brief}."),
        value=owner.name,
        command=command_of(found.remedy),
    )
