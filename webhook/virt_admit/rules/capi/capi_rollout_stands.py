"""The roll-out of a control plane does not go on: a condition has been False for an hour.

**Why.** The providers of control planes replace no Machine while etcd or another part is not
healthy, and the Cluster only says that it scales. Talos' provider up to 0.5.12 takes a Machine
out of etcd before it deletes it. If that fails once, it waits forever for a member that is gone.

**Fix.** Repair what the condition says. Delete a Machine by hand only if the members of etcd show
that it has left, and all others are healthy. Then update the provider.
"""

from virt_admit.model.kubernetes.kinds import KUBEADM, RKE2_CONTROL_PLANE, TALOS_CONTROL_PLANE
from virt_admit.model.messages import command_of
from virt_admit.model.node_updates.operators import standing_control_planes
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(KUBEADM, RKE2_CONTROL_PLANE, TALOS_CONTROL_PLANE),
    reads=standing_control_planes.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "https://github.com/siderolabs/cluster-api-control-plane-provider-talos/issues/237",
        "https://github.com/siderolabs/cluster-api-control-plane-provider-talos/pull/250",
        "siderolabs/cluster-api-control-plane-provider-talos:controllers/scale.go"
        "#scaleDownControlPlane",
    ),
)
def check(owner: Object, context: Context) -> Findings:
    found = standing_control_planes.of(owner, context.cluster)
    if found is None:
        return
    path = owner.at("status", "conditions").path
    texts = (f"{found.reason}. {found.advice}", f"{found.brief}. {found.advice}")
    text = check.first_that_fits(path, *texts, f"{found.brief}.")
    # a command is only shown with what has to be seen before
    command = command_of(found.remedy) if text in texts else ""
    yield Finding(path, text, value=owner.name, command=command)
