"""Plans of the system-upgrade-controller, with which k3s and RKE2 update their nodes,
that do not go on.

A Plan runs a Job on each node. Its pods tolerate the cordon and what the Plan names. The image of
k3s and RKE2 can wait in ``prepare`` for another Plan. Sources:
rancher/system-upgrade-controller:pkg/upgrade/job/job.go#New,
:pkg/upgrade/handle_batch.go#handleJobs, :pkg/upgrade/plan/plan.go#SelectConcurrentNodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from virt_admit.model.commands import about, merge_patch, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, PLAN, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.node_updates import plan_progress, update_orders
from virt_admit.model.node_updates.rancher import plan_pods, plan_selectors
from virt_admit.model.node_updates.update_orders import StandingOrder
from virt_admit.model.scheduler.node_labels import is_transient
from virt_admit.model.scheduler.node_selectors import tolerates

OF_PLAN: Final = plan_progress.OF_PLAN
ON_NODE: Final = plan_progress.ON_NODE
_NO_START: Final = ("NoSchedule", "NoExecute")

READS: Final[Reads] = union(
    plan_progress.READS,
    plan_selectors.READS,
    {NODE: ("spec.taints",), POD: ("spec.nodeName", "spec.tolerations")},
)


def standing(cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield the Plans that do not go on."""
    every = cluster.known(PLAN)
    for plan in every:
        if (none := plan_selectors.selects_none(plan, cluster)) is not None:
            yield _with_followers(none, every)
    plans = [plan for plan in every if not plan.is_true("Complete")]
    pods = plan_progress.unfinished(cluster) if plans else {}
    for plan in plans:
        stuck = next(_of_pods(plan, pods.get((plan.namespace, plan.name), ()), cluster), None)
        job = plan_progress.failed(plan, cluster) if stuck is None else None
        if stuck is not None:
            yield _with_followers(stuck, plans)
        elif job is not None:
            yield _with_followers(plan_progress.standing(job, cluster), plans)
        else:
            yield from _failing(plan, cluster)


def _of_pods(plan: Object, pods: Sequence[Object], cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield what keeps pods of a Plan from their node, what certainly does first."""
    waiting = [pod for pod in pods if not pod.at("spec", "nodeName").text]
    for pod in waiting:
        name = pod.labels.get(ON_NODE, "")
        node = find(cluster, NODE, "", name)
        # a node that starts has such taints for a moment
        taints = _refusing(pod, node) if node is not None and _lasts(plan, pod, cluster) else []
        if taints:
            which = names([_written(each) for each in taints], 120)
            reason = (
                f"{update_orders.title(plan)} tolerates no taint {which} of {name}, so its pod "
                f"{pod.name} cannot run there"
            )
            yield StandingOrder(
                plan, f"{reason}, and the Plan waits for that pod", _tolerate(plan, taints), True
            )
    for pod in waiting:
        said = pod.condition("PodScheduled")["message"].text
        if said and _lasts(plan, pod, cluster):
            lasts = clock.lasting(pod.created, cluster)
            reason = f"{update_orders.title(plan)} goes on: no node takes its pod {pod.name}{lasts}"
            see = typed("Let a node take that pod", about("describe", pod, POD))
            yield StandingOrder(plan, f"{reason}{update_orders.quoted(said)}", see, False)
    for pod in pods:
        if pod not in waiting and (held := plan_pods.stuck(pod, cluster)):
            reason = f"{update_orders.title(plan)} waits: its pod {pod.name} {held}"
            see = typed("See what that pod reports, and correct it", about("describe", pod, POD))
            yield StandingOrder(plan, reason, see, False)


def _began(plan: Object) -> str | None:
    """Return when a Plan got its present version,
    which is the last change that an administrator made.
    """
    return update_orders.since(plan.condition("LatestResolved"))


def _lasts(plan: Object, pod: Object, cluster: Cluster) -> bool:
    """Return whether a Plan, or the pod of one of its Jobs, has waited for long."""
    began_long_ago = update_orders.is_long(_began(plan), cluster)
    return began_long_ago or plan_pods.waits_long(pod, cluster)


def _refusing(pod: Object, node: Object) -> list[dict[str, Any]]:
    """Return the taints of a node that keep a pod away and do not pass by themselves."""
    own = pod.at("spec", "tolerations").value
    taints = [
        each.value for each in node.at("spec", "taints").items() if isinstance(each.value, dict)
    ]
    lasting = (
        each for each in taints if each.get("effect") in _NO_START and not is_transient(each)
    )
    return [each for each in lasting if not tolerates(own, each)]


def _written(taint: Mapping[str, Any]) -> str:
    value = taint.get("value")
    return f"{taint.get('key')}{f'={value}' if value else ''}:{taint.get('effect')}"


def _tolerate(plan: Object, taints: Sequence[Mapping[str, Any]]) -> str:
    given = plan.at("spec", "tolerations").value
    added = [
        {"key": key, "operator": "Exists"}
        for key in dict.fromkeys(str(each.get("key")) for each in taints)
    ]
    data = {"spec": {"tolerations": [*(given if isinstance(given, list) else ()), *added]}}
    command = merge_patch(PLAN, plan.name, plan.namespace, data)
    return typed(
        f"Add the toleration to {update_orders.title(plan)}, which then goes on by itself", command
    )


def _with_followers(stuck: StandingOrder, plans: Sequence[Object]) -> StandingOrder:
    """Return the same with the Plans that wait for this one in ``prepare``."""
    own = stuck.order
    after = [
        each.name
        for each in plans
        if each.namespace == own.namespace and _waits_for(each, own.name)
    ]
    words = f"; {names(after, 120)} waits for it in its step prepare" if after else ""
    return stuck._replace(
        reason=f"{stuck.reason}{words}", brief=f"{stuck.brief}{words}" if stuck.brief else ""
    )


def _waits_for(plan: Object, name: str) -> bool:
    return plan.name != name and any(
        each.text == name for each in plan.at("spec", "prepare", "args").items()
    )


def _failing(plan: Object, cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield that the controller cannot read a Plan, or that its Jobs fail, in its own words."""
    for kind, reason in (("Validated", ""), ("LatestResolved", ""), ("Complete", "JobFailed")):
        said = plan.condition(kind)
        told = said["status"].text == "False" and said["reason"].text == (
            reason or said["reason"].text
        )
        since = update_orders.since(said)
        if told and said["message"].text and update_orders.is_long(since, cluster):
            words = (
                f"{kind} is "
                f"False{clock.lasting(since, cluster)}{update_orders.quoted(said['message'].text)}"
            )
            logs = shell(
                "kubectl", "logs", "-n", plan.namespace, "-l", f"{OF_PLAN}={plan.name}", "--tail=50"
            )
            fails = typed("See in the log of its pods why they fail, and correct that", logs)
            see = fails if reason else typed("Correct the Plan", about("edit", plan, PLAN))
            yield StandingOrder(plan, f"{update_orders.title(plan)} goes on: {words}", see, False)
            return
