"""kured is to reboot a node, and never does: a node that is gone or blocked holds its lock.

**Why.** kured reboots one node at a time, the one that holds the lock. A node that was deleted
while it held the lock does not give it up, and without ``--lock-ttl`` the lock never expires. kured
1.13 takes the lock before it looks for pods of ``--blocking-pod-selector``, and keeps it while such
a pod blocks the reboot. No node gets its new kernel, and nothing reports an error.

**Fix.** Make sure that the holder is gone, then remove the annotation
``weave.works/kured-node-lock`` of the DaemonSet. Where a pod blocks the holder, update kured first
to 1.14 or later, or move that pod or VM to another node.
"""

from virt_admit.model.kubernetes import clock
from virt_admit.model.messages import capital, cut
from virt_admit.model.node_updates import kured
from virt_admit.rule import NODE, Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(NODE,),
    reads=kured.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="NodeRebootHeld",
    at_admission=False,
    sources=(
        "kubereboot/kured:pkg/daemonsetlock/daemonsetlock.go#Acquire",
        "https://github.com/kubereboot/kured/issues/137",
        "https://github.com/kubereboot/kured/issues/792",
    ),
)
def check(node: Object, context: Context) -> Findings:
    hold = kured.hold(context.cluster)
    if hold is None or not hold.concerns(node.name, context.cluster):
        return
    holder, daemon = cut(hold.lock.node, 60), cut(hold.lock.daemon.full_name, 60)
    which = "this node" if hold.waiting else "any node"
    since = clock.lasts(clock.elapsed(hold.lock.since, context.cluster))
    if hold.blocked:
        told = (
            f"kured does not reboot {which}: {holder}, whose reboot {cut(hold.blocked, 70)} "
            f"blocks, has its lock{since}. Update kured to 1.14, then remove the annotation "
            f"{kured.LOCK} of DaemonSet {daemon}."
        )
    else:
        told = (
            f"kured never reboots {which}: {holder}, which does not exist, holds its lock. Remove "
            f"the annotation {kured.LOCK} of DaemonSet {daemon}."
        )
    yield Finding(node.metadata["name"].path, capital(told), value=node.name, command=hold.release)
