"""The pod of a CSI driver does not come back to a node, or does not start there.

**Why.** No volume of the driver can be mounted on the node: pods that start there, also the target
pods of migrations, stay in ContainerCreating. A pod of a DaemonSet that ran before the node was
tainted goes on running, and is lost with the next restart or roll-out. CSINode may list the driver
long after that.

A pod that is there, but runs none of its containers for five minutes, registers no driver either:
it waits for another part of the storage, as after a reboot into a kernel for which a module lacks.
A driver that crashes again and again stays registered, and mounts and unmounts nothing meanwhile.
No further volume gets to a node whose LINSTOR satellite, or whose Longhorn manager or instance
manager, does not run.

**Fix.** Repair the pod that the finding names; until then cordon the node. Or let the DaemonSet
tolerate the taint, where its chart or its operator sets that, or take the taint off.
"""

from collections.abc import Iterator, Mapping

from virt_admit.forecasts.placement.components import driver_daemons
from virt_admit.forecasts.placement.components.driver_daemons import AbsentPod
from virt_admit.forecasts.placement.starts import started_pods
from virt_admit.model.kubernetes import clock, nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.reads import LateReads, Reads, union
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import advice_of, command_of, ended, names
from virt_admit.rule import NODE, POD, Action, Context, Finding, Findings, Object, Urgency, rule


def _reads() -> Reads:
    from virt_admit.forecasts.drain.starts import start_obstacles  # noqa: PLC0415 - see LateReads
    from virt_admit.model.evidence import kernel_modules  # noqa: PLC0415 - see LateReads

    own: Reads = {POD: ("metadata.creationTimestamp", "spec.nodeName", "status.phase")}
    return union(start_obstacles.READS, driver_daemons.READS, kernel_modules.READS, own)


@rule(
    kinds=(NODE,),
    reads=LateReads(_reads),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:pkg/controller/daemon/daemon_controller.go#NodeShouldRunDaemonPod",
        "kubernetes/kubernetes:pkg/volume/csi/csi_client.go#newCsiDriverClient",
    ),
)
def check(node: Object, context: Context) -> Findings:
    waiting = list(_waiting(node.name, context.cluster))
    lost = {} if _runs_no_vms(node) else driver_daemons.stale(context.cluster).get(node.name, {})
    gone = dict(lost)
    for driver in sorted({each for each, _ in waiting} - gone.keys()):
        found = driver_daemons.absent(driver, node.name, context.cluster)
        if found is not None and found.lasts:
            gone[driver] = found
    for driver, found in gone.items():
        path = node.metadata["name"].path
        pods = [pod for each, pod in waiting if each == driver]
        texts = _texts(driver, found, pods, node.name, context.cluster)
        yield Finding(
            path,
            check.first_that_fits(path, *texts),
            value=driver,
            command=command_of(found.remedy),
        )
    yield from _unstarted(node, context.cluster)


def _unstarted(node: Object, cluster: Cluster) -> Findings:
    """Yield the drivers whose pod does not start, or crashes, or finds nothing there to ask."""
    from virt_admit.forecasts.placement.components import node_drivers  # noqa: PLC0415
    from virt_admit.forecasts.placement.components.drivers import node_agents  # noqa: PLC0415

    path = node.metadata["name"].path
    down = (node_drivers.unstarted(cluster), node_drivers.crashing(cluster))
    found = {each for drivers in down for each in drivers.get(node.name, ())}
    found |= node_agents.by_node(cluster).get(node.name, {}).keys()
    for driver in () if _runs_no_vms(node) else sorted(found):
        why = node_drivers.because(driver, node.name, cluster)
        remedy = node_drivers.remedy(driver, node.name, cluster)
        lacks = node_drivers.state(driver, node.name, cluster)
        begin = f"CSI driver {driver} {lacks}, so no volume of it can be mounted here"
        advice = advice_of(remedy)
        first = ended(advice.partition("; ")[0].partition(": ")[0])
        told = f"{begin}{why}."
        texts = (f"{told} {advice}", f"{told} {first}", told, f"{begin}.")
        told = check.first_that_fits(path, *texts)
        yield Finding(path, told, value=driver, command=command_of(remedy))


def _runs_no_vms(node: Object) -> bool:
    """Return whether only the control plane runs on a node:
    its taint keeps node plugins off as intended.
    """
    return nodes.SCHEDULABLE not in node.labels and any(
        role in node.labels for role in nodes.CONTROL_PLANE
    )


def _texts(
    driver: str, gone: AbsentPod, pods: list[Object], node: str, cluster: Cluster
) -> Iterator[str]:
    """Yield the message, the longest form first."""
    begin = f"{gone.words}, so no volume of driver {driver} can be mounted there"
    held, then = _held(pods, cluster), advice_of(gone.remedy)
    others = driver_daemons.also_at_risk(gone, node, cluster)
    risk = f" {names(others, 60)}: the same after the next restart of its pod." if others else ""
    yield f"{begin}{held}. {then}{risk}"
    yield f"{begin}{held}. {then}"
    yield f"{begin}. {then}"


def _held(pods: list[Object], cluster: Cluster) -> str:
    """Return which pods wait for the driver, and for how long."""
    if not pods:
        return ""
    first = min(pods, key=lambda each: each.created or "~")
    since = clock.lasting(first.created, cluster)
    which = names((pod.full_name for pod in pods), 80)
    return f", and {which} cannot start{since}"


def _waiting(node: str, cluster: Cluster) -> Iterator[tuple[str, Object]]:
    """Yield the pods of a node that say that a driver is missing, each with the driver."""
    # files alone know no pods that start
    from virt_admit.forecasts.placement.components import node_drivers  # noqa: PLC0415

    for pod in cluster.cached(_pending).get(node, ()):
        named = node_drivers.named_by(started_pods.of(pod, cluster).said, node)
        if named is not None and named[0] == node:
            yield named[1], pod


def _pending(cluster: Cluster) -> Mapping[str, list[Object]]:
    """Return the pods that have not started, by node."""
    waiting = (pod for pod in cluster.known(POD) if pod.at("status", "phase").text == "Pending")
    return grouped(waiting, lambda pod: pod.at("spec", "nodeName").text or "")
