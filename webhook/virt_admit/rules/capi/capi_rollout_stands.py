"""The roll-out of a control plane or its workers does not go on for an hour.

**Why.** The providers of control planes replace no Machine while etcd or another part is not
healthy, and the Cluster only says that it scales. Talos' provider up to 0.5.12 takes a Machine
out of etcd before it deletes it. If that fails once, it waits forever for a member that is gone.
A MachineDeployment makes no Machine while its control plane counts as upgrading: as long as
``spec.version`` is greater than ``status.version``, of which ``v1.33.1-k0s.0`` is a pre-release.

**Fix.** Repair what the condition says. Delete a Machine by hand only if the members of etcd show
that it has left, and all others are healthy. Then update the provider. Of a control plane that is
updated, write the version as its provider reports it.
"""

from virt_admit.model.kubernetes.kinds import (
    KUBEADM,
    MACHINE_DEPLOYMENT,
    RKE2_CONTROL_PLANE,
    TALOS_CONTROL_PLANE,
)
from virt_admit.model.messages import advice_of, command_of
from virt_admit.model.node_updates.operators import preflight_checks, standing_control_planes
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union


@rule(
    kinds=(KUBEADM, MACHINE_DEPLOYMENT, RKE2_CONTROL_PLANE, TALOS_CONTROL_PLANE),
    reads=union(preflight_checks.READS, standing_control_planes.READS),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "https://github.com/siderolabs/cluster-api-control-plane-provider-talos/issues/237",
        "https://github.com/siderolabs/cluster-api-control-plane-provider-talos/pull/250",
        "siderolabs/cluster-api-control-plane-provider-talos:controllers/scale.go"
        "#scaleDownControlPlane",
        (
            "kubernetes-sigs/cluster-api:internal/controllers/machineset/"
            "machineset_preflight.go#controlPlaneStablePreflightCheck"
        ),
        "https://github.com/k0sproject/k0smotron/issues/1052",
    ),
)
def check(owner: Object, context: Context) -> Findings:
    if owner.kind == MACHINE_DEPLOYMENT.kind:
        waiting = preflight_checks.of(owner, context.cluster)
        if waiting is not None:
            begin, way = f"{waiting.brief}.", advice_of(waiting.remedy.partition("; ")[0])
            path = owner.at("status", "conditions").path
            said = check.first_that_fits(path, f"{begin} {way}", begin)
            yield Finding(path, said, value=owner.name, command=command_of(waiting.remedy))
        return
    found = standing_control_planes.of(owner, context.cluster)
    if found is None:
        return
    path = owner.at("status", "conditions").path
    texts = (f"{found.reason}. {found.advice}", f"{found.brief}. {found.advice}")
    text = check.first_that_fits(path, *texts, f"{found.brief}.")
    # a command is only shown with what has to be seen before
    command = command_of(found.remedy) if text in texts else ""
    yield Finding(path, text, value=owner.name, command=command)
