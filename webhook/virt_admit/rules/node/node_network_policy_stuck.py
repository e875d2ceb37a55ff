"""A policy of kubernetes-nmstate does not reach all its nodes, and does not by itself.

**Why.** The bridges and other interfaces of the policy are missing on the nodes that wait, so VMs
that need one find no node there: a drain of their node does not end. A handler that is ended while
it changes a node, as when that node is removed, leaves its place in the policy taken. The others
then wait for it without an end, although no node is being changed. A policy that failed on a node
is not tried on further ones.

**Fix.** Correct a policy that failed: it is not tried again before its spec changes. Where a node
lacks a port that other nodes have, as after its machine was replaced, write a second policy for it.
Where another policy makes that port, see to that one first. A count that is left over is set in the
status of the policy: as long as nodes wait, its spec cannot be changed. Releases of
kubernetes-nmstate after 0.86 also reset it when the handler on a waiting node starts. Do not make
the bridge by hand next to the policy.
"""

from collections.abc import Iterator

from virt_admit.model import node_bridges
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NAD, NNCP, VM
from virt_admit.model.kubevirt.instances import networks
from virt_admit.model.messages import advice_of, capital, command_of, ended, names
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union

_RESOURCE = "k8s.v1.cni.cncf.io/resourceName"


@rule(
    kinds=(NNCP,),
    reads=union(
        node_bridges.READS,
        clock.READS,
        {NAD: (f"metadata.annotations.{_RESOURCE}",), VM: ("spec.template.spec.networks",)},
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "nmstate/kubernetes-nmstate:controllers/handler/"
        "nodenetworkconfigurationpolicy_controller.go#incrementUnavailableNodeCount",
        "nmstate/kubernetes-nmstate:cmd/handler/main.go#cleanStaleUnavailableCounts",
        "https://github.com/nmstate/kubernetes-nmstate/pull/854",
    ),
)
def check(policy: Object, context: Context) -> Findings:
    path = policy.metadata["name"].path
    problems = node_bridges.problems(policy, context.cluster)
    users = names(_users(policy, context.cluster)) if problems else ""
    for stuck in problems:
        said = ended(capital(stuck.reason))
        needed = f" VMs that need it: {users}." if users else ""
        advice = advice_of(stuck.remedy)
        first = ended(advice.partition("; then ")[0])
        texts = (f"{said}{needed} {advice}", f"{said} {advice}", f"{said} {first}", said)
        message = check.first_that_fits(path, *texts)
        yield Finding(path, message, value=stuck.reason, command=command_of(stuck.remedy))


def _users(policy: Object, cluster: Cluster) -> Iterator[str]:
    """Yield the VMs with a network on a bridge of the policy, as far as they are known."""
    made = node_bridges.interfaces(policy)
    networks_of = {
        (each.namespace, each.name)
        for each in cluster.known(NAD)
        if node_bridges.bridge(each.annotation(_RESOURCE).text or "") in made
    }
    for vm in cluster.known(VM) if networks_of else ():
        if any(networks.full_name(vm, name) in networks_of for name in networks.secondary(vm)):
            yield vm.full_name
