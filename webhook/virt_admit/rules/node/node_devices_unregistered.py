"""virt-handler works on a node, and its device plugins are not registered with the kubelet.

**Why.** The node has the label ``kubevirt.io/schedulable: "false"`` and offers no
``devices.kubevirt.io/kvm``, ``tun`` or ``vhost-net``. VMs there run on, and none starts or arrives.
If all nodes are so, a VM that stops stays off.

**Fix.** The log of virt-handler says why they are not registered. KubeVirt before 0.58 does not
work with kubelets since 1.25: update KubeVirt. If the kubelet has another root directory than
``/var/lib/kubelet`` of the host, which virt-handler mounts (k0s has ``/var/lib/k0s/kubelet``; see
its ``--root-dir`` on the node), bind mount it there and delete the virt-handler pod of that node
while no migration from or to it runs; virt-operator takes a roll-out of the DaemonSet back. A
device that the host lacks is not the cause: its plugin registers all the same.
"""

from collections.abc import Iterator

from virt_admit.forecasts.placement.refusals import unserved_nodes
from virt_admit.model.messages import advice_of, command_of
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(NODE,),
    reads=unserved_nodes.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubevirt/kubevirt:pkg/virt-handler/heartbeat/heartbeat.go#do",
        "https://github.com/kubevirt/kubevirt/issues/5913",
        "https://github.com/kubevirt/kubevirt/issues/8478",
        "https://github.com/kubevirt/kubevirt/pull/8451",
    ),
)
def check(node: Object, context: Context) -> Findings:
    cluster = context.cluster
    if not unserved_nodes.is_unregistered(node.name, cluster):
        return
    found = unserved_nodes.unregistered(cluster)
    path, remedy = node.metadata["name"].path, unserved_nodes.remedy(found, cluster)
    every = unserved_nodes.is_everywhere(found, cluster)
    known = unserved_nodes.versions(found, cluster)
    yield Finding(
        path,
        check.first_that_fits(path, *_texts(found, remedy, every, known, context)),
        value="false",
        command=command_of(remedy),
    )


def _texts(
    found: tuple[str, ...], remedy: str, every: bool, known: str, context: Context
) -> Iterator[str]:
    """Yield the message, the longest form first."""
    why = unserved_nodes.why(found, context.cluster)
    effect = "no VM starts or arrives on any node" if every else "no VM starts or arrives there"
    # the heartbeat after a restart of the kubelet may say so once
    lasts = " (if that lasts)" if len(found) == 1 else ""
    advice = advice_of(remedy)
    which = f" ({known})" if known else ""
    for end in (
        f"{which}: {effect}{lasts}. {advice}",
        f": {effect}{lasts}. {advice}",
        f". {advice}",
        f". {advice.partition(' (kubectl ')[0]}.",
    ):
        yield f"{why}{end}"
