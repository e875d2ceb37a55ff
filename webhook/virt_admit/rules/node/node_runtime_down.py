"""The kubelet of a node reports, but its container runtime does not answer it.

**Why.** ``PLEG is not healthy`` means that the kubelet cannot list the containers of the node.
Guests run on, but no pod of the node starts or ends: a drain does not complete, and pods that are
deleted after five minutes of this stay there, so that their VMs start nowhere else.

**Fix.** Restart the container runtime and the kubelet on the node, or reboot it. Where it comes
back again and again, look for a slow disk, many probes that run commands, or an old runtime.
"""

from collections.abc import Iterator
from datetime import timedelta

from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes import clock, events, node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.kinds import NODE, VMI
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.messages import capital, count, names, ordinal
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union

_PATIENCE = timedelta(minutes=2)
"""A kubelet that starts says the same for a moment."""
_OFTEN = 3


@rule(
    kinds=(NODE,),
    reads=union(clock.READS, vmis.READS, node_health.READS, {VMI: ("metadata.name",)}),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:pkg/kubelet/runtime.go#runtimeErrors",
        "kubernetes/kubernetes:pkg/kubelet/pleg/generic.go#Healthy",
        "https://github.com/kubernetes/kubernetes/issues/45419",
    ),
)
def check(node: Object, context: Context) -> Findings:
    cluster = context.cluster
    if not node_health.cannot_end_pods(node) or node_health.silence(node, cluster):
        return
    since = node.condition("Ready")["lastTransitionTime"].text
    if not clock.is_overdue(since, _PATIENCE, cluster):
        return
    found, unseen = gather(vmis.on_node(cluster, node.name))
    path = node.condition("Ready")["status"].path
    lasts = clock.lasting(since, cluster)
    begin = f"this node is not Ready{lasts}{''.join(_again(node, cluster))}: "
    why = f"{node_health.UNANSWERED} ({node_health.unready(node)})"
    shown = (
        f"{count(len(found), 'VM')} ({names((vmi.full_name for vmi in found), 100)}) run on, but "
    )
    effect = f"{shown if found else ''}no pod of it ends or starts"
    yield Finding(
        path,
        check.first_that_fits(
            path,
            f"{begin}{why}. {effect}. {capital(node_health.RESTART_RUNTIME)}.",
            f"{begin}{node_health.UNANSWERED}. {effect}. {capital(node_health.RESTART_RUNTIME)}.",
        ),
        value=node.name,
        problem=problem_of(ProblemCause.NODE_CANNOT_END_PODS, node),
        command=shell("kubectl", "describe", "node", argument(node.name)),
    )
    if unseen:
        yield Unseen(unseen)


def _again(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield how often a node has become not Ready of late, if it has often."""
    of_node = (
        each
        for each in events.known(NODE.kind, "NodeNotReady", cluster)
        if each.at("involvedObject", "name").text == node.name
    )
    most = max(of_node, key=lambda each: each["count"].integer or 1, default=None)
    times = (most["count"].integer or 1) if most is not None else 1
    if most is not None and times >= _OFTEN:
        first = clock.since(most["firstTimestamp"].text, cluster)
        yield (
            f", the {ordinal(times)} "
            f"time{f' in {clock.duration(first)}' if first is not None else ''}"
        )
