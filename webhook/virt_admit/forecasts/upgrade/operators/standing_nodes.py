"""Nodes at which an upgrade of Harvester stands: what its objects say of the step that does not
end.

A Job of Harvester prepares a node, Rancher drains it and updates Kubernetes there, and a second
Job updates its system. That Job begins by waiting, without a limit, until the Deployment with the
files of the release is available. Sources: harvester/harvester: package/upgrade/upgrade_node.sh
#command_post_drain, :package/upgrade/lib.sh#wait_repo_deployment #wait_repo_vm,
:pkg/controller/master/upgrade/common.go#applyNodeJob.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain import pod_evictions
from virt_admit.forecasts.drain.endless import unasked_vms
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.placement.components import longhorn_starts
from virt_admit.forecasts.placement.components.longhorn import awaited_health
from virt_admit.forecasts.upgrade.operators import counted_vms, leaving_vms, operand_pods
from virt_admit.model.commands import about, argument, shell, typed
from virt_admit.model.kubernetes import clock, selectors
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    DEPLOYMENT,
    HARVESTER_UPGRADE,
    JOB,
    NODE,
    POD,
    PVC,
    STORAGE_CLASS,
    UPGRADE_PLAN,
    VM,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.instances import storage
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import fields, find
from virt_admit.model.messages import capital, cut_middle, names
from virt_admit.model.node_updates import harvester_upgrades, update_orders
from virt_admit.model.node_updates.node_phases import IN_FLIGHT, NodeUpdate, Phase
from virt_admit.model.node_updates.rancher import planner_waits
from virt_admit.model.node_updates.rancher.planner_waits import PlannerWait
from virt_admit.model.node_updates.update_orders import LONG, StandingOrder

_OF_NODE: Final = "harvesterhci.io/node"
_OF_UPGRADE: Final = "harvesterhci.io/upgrade"
_OF_PLAN: Final = "management.harvesterhci.io/upgrade-plan"
_COPIES: Final = "numberOfReplicas"

READS: Final[Reads] = union(
    harvester_upgrades.READS,
    planner_waits.READS,
    operand_pods.READS,
    leaving_vms.READS,
    awaited_health.READS,
    longhorn_starts.READS,
    counted_vms.READS,
    unasked_vms.READS,
    {
        JOB: ("metadata.labels", "status.active", "status.startTime", "status.completionTime"),
        DEPLOYMENT: (*CONDITIONS, "spec.selector", "spec.replicas", "status.readyReplicas"),
        NODE: ("metadata.creationTimestamp",),
        VM: ("spec.template.spec.volumes", "status.printableStatus"),
        PVC: ("spec.volumeName",),
        STORAGE_CLASS: ("metadata.annotations", f"parameters.{_COPIES}"),
    },
)

_USUAL: Final = timedelta(minutes=30)
"""A Deployment whose pod moves with a drain is available again by then, and so are probes."""
_YEAR: Final = timedelta(days=365)
_GOES_ON: Final = "The upgrade then goes on by itself"
_SELF_SIGNED: Final = ("kube-controller-manager", "kube-scheduler")
_WORDS: Final = 300


class _Cause(NamedTuple):
    """Why a step does not end, as a clause, and what ends it."""

    by: str
    """What waits for it; empty: that is not said apart."""
    why: str
    remedy: str
    certain: bool


def standing(cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield the upgrade of Harvester for each node whose step has no end that is known."""
    for order, update in harvester_upgrades.going(cluster):
        begun = {name: node for name, node in update.nodes.items() if node.phase in IN_FLIGHT}
        for name, node in begun.items():
            if node.phase is not Phase.FAILING:
                yield from _of_node(order, name, node, cluster)
        if not begun and not update.paused:
            yield from _before_nodes(order, cluster)


def _before_nodes(order: Object, cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield that the update of Harvester's own services waits for what Rancher does at a node."""
    for node in cluster.known(NODE):
        cause = _planner(node.name, cluster)
        if cause is not None:
            stands = f"waits at {node.name} before it begins with the nodes"
            full = f"{update_orders.title(order)} {stands}: {cause.why}"
            brief = f"it {stands}: {cause.why}"
            yield StandingOrder(order, full, cause.remedy, cause.certain, brief, node.name)
            return


def _of_node(
    order: Object, name: str, update: NodeUpdate, cluster: Cluster
) -> Iterator[StandingOrder]:
    jobs = [each for each in cluster.known(JOB, order.namespace) if _is_of(each, order, name)]
    since = _began(jobs, update)
    active = next((each for each in jobs if each.at("status", "active").integer), None)
    cause = (
        _repository(order, active, since, cluster)
        or _stranded_vm(order, name, active, since, cluster)
        or _counted(order, active, name, cluster)
        or _planner(name, cluster)
        or _volume(name, active, since, cluster)
        or _untainted(order, name, update, cluster)
    )
    if cause is None and vm_states_times.is_older(since, LONG, cluster):
        doubt = _repository_vm(order, active, cluster) if active is not None else None
        cause = doubt or _unexplained(order, name, update, active, cluster)
    if cause is None:
        return
    state = harvester_upgrades.state(order, name) or str(update.phase)
    age = vm_states_times.age(since, cluster)
    stands = f"stands at {name} ({state}{f', for {age}' if age else ''})"
    title = update_orders.title(order)
    full, brief = f"{title} {stands}: {cause.by}{cause.why}", f"it {stands}: {cause.why}"
    yield StandingOrder(order, full, cause.remedy, cause.certain, brief, name)


def _is_of(job: Object, order: Object, node: str) -> bool:
    return job.labels.get(_OF_UPGRADE) == order.name and job.labels.get(_OF_NODE) == node


def _began(jobs: Sequence[Object], update: NodeUpdate) -> datetime | None:
    """Return when the step began: with the begin or the end of a Job, else with the cordon."""
    stamps = (
        each.at("status", name).text for each in jobs for name in ("startTime", "completionTime")
    )
    return max(filter(None, map(clock.instant, stamps)), default=update.since)


# --- the files of the release ---------------------------------------------------------------------


def _repository(
    order: Object, job: Object | None, since: datetime | None, cluster: Cluster
) -> _Cause | None:
    """Return that a Job waits for the Deployment with the files of the release; None: it does
    not.
    """
    found = find(cluster, DEPLOYMENT, order.namespace, f"upgrade-repo-{order.name}")
    if job is None or found is None or not vm_states_times.is_older(since, _USUAL, cluster):
        return None
    available = found.condition("Available")
    since_when = available["lastTransitionTime"].text
    if available["status"].text != "False" or not clock.has_lasted(since_when, _USUAL, cluster):
        return None
    ready, wanted = found.at("status", "readyReplicas").integer or 0, found.at("spec", "replicas")
    which = f"Deployment {found.full_name} ({ready} of {wanted.integer or 1} ready)"
    by = f"its Job {job.name} waits for "
    selector = selectors.parse(found.at("spec", "selector").value)
    pods = [each for each in cluster.known(POD, found.namespace) if selector.matches(each.labels)]
    broken = operand_pods.first(pods, cluster)
    if broken is None:
        repair = typed("Repair it", about("describe", found, DEPLOYMENT))
        return _Cause(by, which, repair, certain=True)
    on = broken.pod.at("spec", "nodeName").text
    pod = f"pod {broken.pod.name}{f' on {on}' if on else ''} is not ready{broken.since}"
    said = f": {broken.why}" if broken.why else ""
    return _Cause(by, f"{which}: {pod}{said}", capital(broken.remedy), certain=True)


def _repository_vm(order: Object, job: Object, cluster: Cluster) -> _Cause | None:
    """Return that the VM which had the files before release 1.7 does not run: its Job starts it,
    but may have it no more.
    """
    found = _stopped_vm(order, cluster)
    if found is None:
        return None
    state = found.at("status", "printableStatus").text
    see = shell("virt-admit", "explain", f"vm/{found.name}", "-n", found.namespace)
    which = f"VM {found.full_name}, which is {state}"
    return _Cause(f"its Job {job.name} may wait for ", which, typed("See why", see), certain=False)


def _stranded_vm(
    order: Object, node: str, job: Object | None, since: datetime | None, cluster: Cluster
) -> _Cause | None:
    """Return that the VM with the files cannot start, as the replicas of its disk are on the node
    of the Job, which is cordoned: both wait for each other. None: it does not wait for that.
    """
    found = _stopped_vm(order, cluster)
    if job is None or found is None or not vm_states_times.is_older(since, _USUAL, cluster):
        return None
    for claim in launcher_pod.all_claims(found.at("spec", "template", "spec")):
        own = fields(cluster, PVC, found.namespace, claim)["spec"]
        stranded = longhorn_starts.stranded(own["volumeName"].text or "", cluster)
        if stranded is None or stranded.nodes != (node,):
            continue
        state = found.at("status", "printableStatus").text
        why = (
            f"VM {found.full_name} with the files of the release, which is {state}: Longhorn does "
            f"not attach volume {stranded.volume.name} of its claim {claim}: {stranded.words}"
        )
        begin = (
            f"Uncordon {node} until that VM runs, then cordon it again: Longhorn makes its instance"
            " manager, and the Job goes on by itself"
        )
        remedy = typed(begin, shell("kubectl", "uncordon", argument(node)), _more_copies(cluster))
        return _Cause(f"its Job {job.name} waits for ", why, remedy, certain=True)
    return None


def _more_copies(cluster: Cluster) -> str:
    """Return what keeps the next upgrade from the same: Harvester makes the class of its image with
    the parameters of the default class; empty: that has more copies, or is not known.
    """
    for each in storage.all_marked(storage.DEFAULT_FOR_ALL, cluster):
        if each.at("parameters", _COPIES).text == "1":
            return (
                f"before the next upgrade, make a StorageClass with more than one replica the "
                f"default: {each.name} has {_COPIES} 1"
            )
    return ""


def _stopped_vm(order: Object, cluster: Cluster) -> Object | None:
    """Return the VM which had the files before release 1.7, if it is known not to run."""
    found = find(cluster, VM, order.namespace, f"upgrade-repo-{order.name}")
    state = found.at("status", "printableStatus").text if found is not None else None
    return None if state in (None, "Running") else found


# --- VMs that have ended --------------------------------------------------------------------------


def _counted(order: Object, job: Object | None, node: str, cluster: Cluster) -> _Cause | None:
    """Return that a Job waits for a VM which has ended; None: it does not."""
    found = counted_vms.of_job(order, job, node, cluster) if job is not None else None
    if job is None or found is None:
        return None
    return _Cause(f"its Job {job.name} waits for ", found.words, found.remedy, certain=True)


def awaited_vmi(node: str, cluster: Cluster) -> str:
    """Return the VMI that has ended and that Harvester awaits before it drains a node; empty:
    none.
    """
    for order, _ in harvester_upgrades.going(cluster):
        for job in cluster.known(JOB, order.namespace):
            if _is_of(job, order, node) and job.at("status", "active").integer:
                found = counted_vms.of_job(order, job, node, cluster)
                if found is not None:
                    return found.vmi
    return ""


# --- volumes that have to become healthy first ----------------------------------------------------


def _volume(
    name: str, job: Object | None, since: datetime | None, cluster: Cluster
) -> _Cause | None:
    """Return that a Job waits for a volume whose missing replica only the node of the Job itself
    could take, which is cordoned: both wait for each other. None: it does not.
    """
    node = find(cluster, NODE, "", name)
    if job is None or node is None or not vm_states_times.is_older(since, _USUAL, cluster):
        return None
    found = awaited_health.mutual(node, cluster)
    by = f"its Job {job.name} waits for "
    return None if found is None else _Cause(by, found.why, found.remedy(name), certain=True)


def _untainted(order: Object, name: str, update: NodeUpdate, cluster: Cluster) -> _Cause | None:
    """Return that a Job waits for VMs that nothing asks to leave, as the taint was taken away, or
    may have been; None: it does not. An UpgradePlan has no namespace, and a label of its own on its
    Jobs.
    """
    node = find(cluster, NODE, "", name)
    if node is None or update.phase is not Phase.DRAINING:
        return None
    for job in cluster.known(JOB):
        own = _is_of(job, order, name) or (
            job.labels.get(_OF_PLAN) == order.name and job.labels.get(_OF_NODE) == name
        )
        if own and job.at("status", "active").integer:
            began = clock.instant(job.at("status", "startTime").text)
            lost = unasked_vms.taken_away(node, began, order.kind, cluster)
            if lost is not None:
                by = f"its Job {job.name} waits for "
                return _Cause(by, lost.words, lost.remedy, lost.certain)
    return None


# --- Rancher --------------------------------------------------------------------------------------


def _planner(node: str, cluster: Cluster) -> _Cause | None:
    """Return that the planner of Rancher waits for probes of a node for long; None: it does not."""
    wait = planner_waits.of_node(node, cluster)
    if wait is None or not wait.probes or not wait.exact or wait.lasts(cluster) < _USUAL:
        return None
    lasts = clock.duration(wait.lasts(cluster))
    why = (
        f"Rancher ({wait.by}) has waited for {lasts} for probes of {node}: {', '.join(wait.probes)}"
    )
    asked = (find(cluster, POD, "kube-system", f"{name}-{node}") for name in wait.probes)
    pods = [pod for pod in asked if pod is not None]  # the static pods behind the probes
    if (broken := operand_pods.first(pods, cluster)) is not None:
        return _Cause("", f"{why}. {capital(broken.words)}", capital(broken.remedy), certain=True)
    if not set(wait.probes) <= set(_SELF_SIGNED):
        return _Cause("", why, _see_agent(node, wait), certain=True)
    runs = [pod.name for pod in pods]
    if runs:
        why += f". {names(runs)} {'is' if len(runs) == 1 else 'are'} Ready"
    return _Cause("", f"{why}{_aged(node, cluster)}", _renew(node, wait.probes), certain=True)


def _aged(node: str, cluster: Cluster) -> str:
    """Return that the certificates may have expired, by the age of the node."""
    own = find(cluster, NODE, "", node)
    age = clock.age(own, cluster) if own is not None else None
    if age is None or age < _YEAR:
        return ""
    return (
        f", and the node is {clock.duration(age)} old: the usual reason is that their serving "
        "certificates, which last a year, have expired"
    )


def _renew(node: str, probes: Sequence[str]) -> str:
    file = f"/var/lib/rancher/rke2/server/tls/{probes[0]}/{probes[0]}.crt"
    rest = f", and that of {probes[1]}" if probes[1:] else ""
    return (
        f"On {node}, see when the serving certificate expires (openssl x509 -enddate -noout -in "
        f"{file}{rest}). If it has expired, move its .crt and .key away and stop that container "
        f"(crictl stop), which makes new ones; so on nodes of the same age. {_GOES_ON}. If the "
        f"certificate is valid, see the log of Rancher's agent on {node} (journalctl -u "
        "rancher-system-agent)"
    )


def _see_agent(node: str, wait: PlannerWait) -> str:
    agent = shell("journalctl", "-u", "rancher-system-agent", "-n", "200", "--no-pager")
    return typed(
        f"See on {node} why that does not end ({agent})",
        about("describe", wait.machine, CAPI_MACHINE),
    )


# --- nothing that is known ------------------------------------------------------------------------


def _unexplained(
    order: Object, node: str, update: NodeUpdate, job: Object | None, cluster: Cluster
) -> _Cause | None:
    """Return that a step lasts too long; None: VMs or pods that are left on a node which is
    drained say why.
    """
    if update.phase is Phase.DRAINING and (
        leaving_vms.explain(node, cluster)
        or pod_evictions.of_node(cluster, node, has_vms=False).blockers
    ):
        return None
    wait = planner_waits.of_node(node, cluster)
    if job is not None:
        logs = shell("kubectl", "logs", f"job/{job.name}", "-n", job.namespace, "--tail=50")
        why = f"its Job {job.name} has not ended"
        return _Cause("", why, typed("See for what that Job waits", logs), certain=False)
    if wait is not None:
        why = f"Rancher ({wait.by}) says {cut_middle(wait.words, _WORDS)}"
        return _Cause("", why, _see_agent(node, wait), certain=False)
    kind = HARVESTER_UPGRADE if order.kind == HARVESTER_UPGRADE.kind else UPGRADE_PLAN
    see = typed("See what it reports of that node", about("describe", order, kind))
    return _Cause("", "nothing that is known of it has moved since", see, certain=False)
