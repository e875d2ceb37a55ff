"""PodDisruptionBudgets of Longhorn: they keep the last copy of a volume reachable while a node is
drained.

Sources:
longhorn/longhorn-manager:controller/instance_manager_controller.go#canDeleteInstanceManagerPDB,
:datastore/longhorn.go#ListVolumePDBProtectedHealthyReplicasRO,
:controller/kubernetes_pdb_controller.go#reconcile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.drain.budgets import (
    longhorn_instances,
    longhorn_migrations,
    longhorn_rebuilds,
    operator_eviction,
)
from virt_admit.forecasts.drain.budgets.operator_eviction import (
    OperatorAnswer,
    PodEviction,
    Way,
    is_schedulable,
    not_ready,
    selected_labels,
)
from virt_admit.forecasts.placement.components.longhorn import longhorn_copies, volume_users
from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, merge_patch, typed, virtctl
from virt_admit.model.kubernetes import clock, nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_MANAGER,
    LONGHORN_REPLICA,
    LONGHORN_SETTING,
    LONGHORN_VOLUME,
    NODE,
    PDB,
    VM,
    VMI,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.instances.lifecycle import Eviction
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import fields, find
from virt_admit.model.messages import capital, count, names
from virt_admit.model.node_updates import maintenance_updates

READS: Final = union(
    operator_eviction.READS,
    longhorn_copies.READS,
    longhorn_instances.READS,
    longhorn_rebuilds.READS,
    machine_nodes.READS,
    {
        LONGHORN_VOLUME: ("spec.dataLocality", "spec.numberOfReplicas", "status.state"),
        NODE: (f"metadata.annotations.{maintenance_updates.REQUESTED}",),
        LONGHORN_REPLICA: ("spec.desireState", "status.currentState"),
        VM: ("spec.template.spec.volumes",),
    },
)

_COMPONENT: Final = "longhorn.io/component"
_MANAGER: Final = "instance-manager"
_LONGHORN_NODE: Final = "longhorn.io/node"
_BY_DEFAULT: Final = longhorn_rebuilds.LAST_ALONE
_MAY_STOP: Final = "allow-if-replica-is-stopped"
_WIDTH: Final = 240


def is_instance_manager(budget: Object) -> bool:
    """Return whether Longhorn made a budget for one of its instance managers: the labels that it
    selects by have changed with the releases, and all of them are Longhorn's own."""
    selected = selected_labels(budget)
    return selected.get(_COMPONENT) == _MANAGER or any(
        key.startswith(f"longhorn.io/{_MANAGER}-") for key in selected
    )


def instance_manager(eviction: PodEviction) -> OperatorAnswer:
    """Longhorn removes the budget on a cordoned node without volumes, if its policy allows that."""
    return longhorn_instances.obstacle(eviction) or _by_policy(eviction)


def _by_policy(eviction: PodEviction) -> OperatorAnswer:
    cluster, node, namespace = eviction.cluster, eviction.node, eviction.budget.namespace
    setting = cluster.get(LONGHORN_SETTING, namespace, "node-drain-policy")
    policy = (setting["value"].text if setting is not None else None) or _BY_DEFAULT
    idle = longhorn_instances.idle_for(eviction)
    waits = OperatorAnswer(Way.WAITS, _wait(idle, eviction))
    if policy == "always-allow":
        return _overdue((), idle, eviction) or waits
    for _ in cluster.list(LONGHORN_REPLICA, namespace):  # raises Unseen unless all are known
        pass
    here = cluster.cached(longhorn_copies.by_node).get((namespace, node), ())
    if policy == "block-for-eviction":
        kept = list(here)
    else:
        elsewhere = _protected_nodes(namespace, cluster) - {node}
        kept = [
            replica
            for replica in here
            if not (policy == _MAY_STOP and _is_stopped(replica))
            and _is_last(replica, elsewhere, cluster)
        ]
    if not kept:
        return _overdue(here if policy == _BY_DEFAULT else (), idle, eviction) or waits
    bound = _bound(kept, eviction)
    if policy == _MAY_STOP:  # they stop with what uses them, which starts on this node alone
        free = {each.name for each in bound if not any(_migrating(each, node, cluster))}
        kept = [each for each in kept if each.at("spec", "volumeName").text not in free]
    elif bound:
        return _in_place(bound, policy, eviction)
    if policy.startswith("block-for-eviction"):
        ids, stuck = longhorn_rebuilds.placeless(kept, eviction)
        if stuck and policy == "block-for-eviction":
            elsewhere = _protected_nodes(namespace, cluster) - {node}
            return longhorn_rebuilds.without_place(ids, stuck, elsewhere, eviction)
        if len(stuck) == len(ids):  # another copy that Longhorn counts ends that of a last one
            return _of_last(kept, policy, eviction)
        raise Unseen(
            f"it first moves {count(len(kept), 'replica')} to other nodes, which need disk space"
        )
    return _of_last(kept, policy, eviction) if kept else waits


def _wait(idle: timedelta | None, eviction: PodEviction) -> str:
    """Return when Longhorn removes a budget that it does not need on a node that is drained."""
    node = eviction.node
    gone = f"as no volume is attached to node {node}"
    if idle is not None:
        return f"Longhorn removes it within minutes, {gone} any more"
    work = longhorn_instances.work(node, eviction.budget.namespace, eviction.cluster)
    if not work and longhorn_instances.is_unused(node, eviction.cluster):
        return f"Longhorn removes it after the node is cordoned, {gone}"
    done = f", and {work} is done" if work else ""
    return f"Longhorn removes it once the VMs and pods with its volumes have left node {node}{done}"


def _of_last(kept: Sequence[Object], policy: str, eviction: PodEviction) -> OperatorAnswer:
    """Return what holds a budget up for replicas without a healthy one that Longhorn counts."""
    cluster, node, namespace = eviction.cluster, eviction.node, eviction.budget.namespace
    volumes = sorted({replica.at("spec", "volumeName").text or replica.name for replica in kept})
    copies = cluster.cached(longhorn_copies.healthy)
    cordoned = [
        found
        for name in sorted(
            {on for volume in volumes for on in copies.get((namespace, volume), ())} - {node}
        )
        if (found := cluster.get(NODE, "", name)) is not None
        and found.at("spec", "unschedulable").boolean
    ]
    waiting = {each.name for each in cordoned}
    alone = [
        volume for volume in volumes if waiting.isdisjoint(copies.get((namespace, volume), ()))
    ]
    if not alone:
        reason = (
            f"the other healthy copies of {_titles(volumes, eviction)} are on nodes that are "
            f"cordoned ({names(sorted(waiting))}), which Longhorn does not count"
        )
        return longhorn_rebuilds.on_cordoned(reason, cordoned, eviction)
    if policy != _MAY_STOP and all(map(_is_stopped, kept)):
        return _stopped(alone, policy, eviction)
    return _last_copies(alone, eviction, may_stop=policy == _MAY_STOP)


def _stopped(volumes: list[str], policy: str, eviction: PodEviction) -> OperatorAnswer:
    """Return what holds a budget up for last copies that do not run: the policy alone."""
    node, found = eviction.node, _last_copies(volumes, eviction, may_stop=False)
    if found.way is not Way.NEVER or machine_nodes.is_leaving(node, eviction.cluster):
        return found
    reason = f"{found.reason}, which node-drain-policy {policy} demands elsewhere even if stopped"
    namespace = eviction.budget.namespace
    command = merge_patch(LONGHORN_SETTING, "node-drain-policy", namespace, {"value": _MAY_STOP})
    words = f"Let the drain leave stopped replicas on {node}, which come back with its disks"
    built = "which Longhorn builds only while the volume is attached"
    other = f"or a{found.remedy.rstrip('.')[1:]}, {built}"
    return OperatorAnswer(Way.NEVER, reason, typed(words, command, other))


def _bound(replicas: Sequence[Object], eviction: PodEviction) -> list[Object]:
    """Return the volumes of replicas that can never be elsewhere: Longhorn gives such a replica a
    hardNodeAffinity and refuses to attach it to another node (webhook/resources/volume/validator.go
    #hasLocalReplicaOnSameNodeAsStrictLocalVolume; longhorn/longhorn#8753).
    """
    ids = sorted({each.at("spec", "volumeName").text or "" for each in replicas})
    known = (
        find(eviction.cluster, LONGHORN_VOLUME, eviction.budget.namespace, each) for each in ids
    )
    return [
        each
        for each in known
        if each is not None and each.at("spec", "dataLocality").text == "strict-local"
    ]


def _in_place(volumes: Sequence[Object], policy: str, eviction: PodEviction) -> OperatorAnswer:
    """Return that Longhorn keeps a budget for replicas that have to stay where they are."""
    node, namespace, cluster = eviction.node, eviction.budget.namespace, eviction.cluster
    titles = _titles([each.name for each in volumes], eviction)
    demand = (
        "waits for a move to another node"
        if policy.startswith("block-for-eviction")
        else "demands a healthy copy on another node"
    )
    reason = (
        f"node-drain-policy {policy} {demand}, but dataLocality: strict-local of {titles} binds "
        f"the only replica to node {node}, so Longhorn never removes this budget"
    )
    lost = (
        "their data goes with the node, so back these volumes up and restore them elsewhere first"
    )
    see = about("describe", volumes[0], LONGHORN_VOLUME)
    if machine_nodes.is_leaving(node, cluster):
        remedy = typed(f"The Machine of {node} is being deleted, and {lost}", see)
        return OperatorAnswer(Way.NEVER, reason, remedy)
    command = merge_patch(LONGHORN_SETTING, "node-drain-policy", namespace, {"value": _MAY_STOP})
    words = f"or, if it does, let the drain leave stopped replicas there until then ({_MAY_STOP})"
    stays = f"Make sure that {node} comes back with its disks; if not, {lost}"
    return OperatorAnswer(Way.NEVER, reason, f"{typed(stays, see)}; {typed(words, command)}")


def _overdue(
    here: Sequence[Object], idle: timedelta | None, eviction: PodEviction
) -> OperatorAnswer | None:
    """Return that a budget stays that nothing needs; None: Longhorn has its time for that.

    Releases before 1.1.2, and those before 1.3.0 itself, demand a healthy copy elsewhere also of a
    volume that was never attached, which has none (longhorn/longhorn#2673, #4103).

    Args:
        here: the replicas on the node that its policy looks at.
        idle: for how long the cordoned node has had no volume; None: it has one, or is not known.
    """
    cluster, node, namespace = eviction.cluster, eviction.node, eviction.budget.namespace
    setting = fields(cluster, LONGHORN_SETTING, namespace, "current-longhorn-version")
    release = setting["value"].text or ""
    copies = cluster.cached(longhorn_copies.healthy)
    named = {each.at("spec", "volumeName").text or "" for each in here if _is_unused(each)}
    unused = sorted(each for each in named if not copies.get((namespace, each)))
    if _KNOWS_UNUSED.match(release):
        unused = []
    if not (unused and release) and (idle is None or idle < longhorn_instances.PATIENCE):
        return None
    begin = f"no volume has been attached to node {node}{clock.lasts(idle)}, and " if idle else ""
    if not unused:
        see = f"See in the log of longhorn-manager why it keeps the budget of {node}"
        return OperatorAnswer(
            Way.NOW,
            f"{begin}Longhorn keeps it all the same",
            typed(see, longhorn_instances.log(eviction)),
        )
    why, demand = ("", f", as Longhorn {release} demands") if release else ("most likely ", "")
    volume = find(cluster, LONGHORN_VOLUME, namespace, unused[0])
    space, claim = volume_users.claim_of(volume)
    title = f"volume {unused[0]}{f' (claim {space}/{claim})' if claim else ''}"
    return OperatorAnswer(
        Way.NOW,
        f"{begin}Longhorn keeps this budget, {why}because {title} was never attached: no other "
        f"node has a healthy copy of that volume{demand}",
        _attach_once(unused[0], volume, eviction),
    )


def _attach_once(name: str, volume: Object | None, eviction: PodEviction) -> str:
    """Return what makes the copies of a volume healthy that was never attached.

    If all are on the node, that would make one of them the last healthy copy, which keeps the
    budget in any release. Longhorn adds a replica only while a volume is attached
    (:controller/volume_controller.go#replenishReplicas).
    """
    cluster = eviction.cluster
    copies = cluster.cached(longhorn_copies.by_volume).get(name, ())
    places = [
        each.at("spec", "nodeID").text for each in copies if not each["spec"]["failedAt"].text
    ]
    if not any(place not in (None, "", eviction.node) for place in places):
        return _copy_first(volume, places.count(eviction.node))
    namespace, claim = volume_users.claim_of(volume)
    for vm in cluster.known(VM, namespace) if claim else ():
        if claim in launcher_pod.claims(vm.at("spec", "template", "spec")):
            return typed(
                f"Start VM {vm.full_name} once, if it may run (or attach the volume on "
                "Longhorn's page)",
                virtctl("start", vm.name, vm.namespace),
            )
    return "Attach it once to another node on Longhorn's page, and detach it again."


def _copy_first(volume: Object | None, here: int) -> str:
    """Return what to do about a volume without data, of which no other node has a replica."""
    needless = "as a decision, delete its disk if empty and unneeded"
    if volume is None:
        return f"{capital(needless)}."
    described = about("describe", volume, LONGHORN_VOLUME)
    if volume.at("spec", "dataLocality").text == "strict-local":  # Longhorn refuses a second copy
        return typed(capital(needless), described)
    wanted = volume.at("spec", "numberOfReplicas").integer or 0
    if wanted > here:
        see = "See why Longhorn has no replica of it on another node, before anything attaches it"
        return typed(see, described, f"or, {needless}")
    more = {"spec": {"numberOfReplicas": here + 1}}
    return typed(
        "Add a replica on another node, then attach it once",
        merge_patch(LONGHORN_VOLUME, volume.name, volume.namespace, more),
        f"or, {needless}",
    )


def _is_unused(replica: Object) -> bool:
    """Return whether a replica was never used, so that it holds no data."""
    return not replica.at("spec", "healthyAt").text and not replica.at("spec", "failedAt").text


_KNOWS_UNUSED: Final = re.compile(
    r"v?(?:1\.1\.[2-9]|1\.2\.|1\.3\.(?:0(?!-)|[1-9])|1\.(?:[4-9]|\d{2})\.|[2-9]\.)"
)
"""The releases that let a node go whose unused replicas are the only ones of their volumes."""


def _last_copies(volumes: list[str], eviction: PodEviction, *, may_stop: bool) -> OperatorAnswer:
    """Return what holds a budget up that protects volumes without a healthy copy elsewhere.

    ``may_stop``: whether the policy lets a replica go that does not run.
    """
    cluster, node, namespace = eviction.cluster, eviction.node, eviction.budget.namespace
    found = [cluster.get(LONGHORN_VOLUME, namespace, name) for name in volumes]
    known = [volume for volume in found if volume is not None]
    here = len(known) == len(volumes) and all(
        each.at("status", "currentNodeID").text == node for each in known
    )
    users = (
        sorted({vmi for volume in known for vmi in _migrating(volume, node, cluster)})
        if may_stop and here
        else []
    )
    if may_stop and here and not users:
        raise Unseen(
            f"the replicas of {_titles(volumes, eviction)} stop only if no VM starts elsewhere "
            "with them"
        )
    healthy = max(_number_here(volume, eviction) for volume in volumes)
    copy = f"all {healthy} healthy copies" if healthy > 1 else "the only healthy copy"
    reason = (
        f"{copy} of {_titles(volumes, eviction)} {'are' if healthy > 1 else 'is'} on node {node}"
    )
    alone = nodes.single(cluster) == node
    if users and not alone:
        reason += f", and VM {names(users)} needs them there after its migration, too"
    wanted = max((each.at("spec", "numberOfReplicas").integer or 0 for each in known), default=0)
    rebuilding = len(known) == len(volumes) and all(
        (each.at("spec", "numberOfReplicas").integer or 0)
        > max(1, _number_here(each.name, eviction))
        for each in known
    )
    if rebuilding:
        return longhorn_rebuilds.answer(reason, known, eviction)
    if alone:  # a further copy has no place
        return OperatorAnswer(Way.NEVER, reason, "Stop the VMs that use them before maintenance.")
    elsewhere = " and replicaSoftAntiAffinity: disabled" if healthy > 1 else ""
    more = f"set numberOfReplicas: {max(wanted, healthy, 1) + 1}{elsewhere} in the Longhorn volume"
    return OperatorAnswer(Way.NEVER, reason, f"Add a replica: {more}.")


def _migrating(volume: Object, node: str, cluster: Cluster) -> Iterator[str]:
    """Yield the VMs of a node that take a volume with them to another node.

    Raises Unseen after those that are known.
    """
    for vmi in vmis.on_node(cluster, node) if all(volume_users.claim_of(volume)) else ():
        moves = longhorn_migrations.uses(vmi, volume) and not vmi.deleted
        if moves and vmi_evictions.eviction(vmi, cluster) is Eviction.MIGRATES:
            yield vmi.full_name


def _number_here(volume: str, eviction: PodEviction) -> int:
    """Return how many healthy replicas of a volume are on the node that is drained."""
    replicas = eviction.cluster.cached(longhorn_copies.by_node).get(
        (eviction.budget.namespace, eviction.node), ()
    )
    return sum(
        longhorn_copies.is_healthy(each) and each.at("spec", "volumeName").text == volume
        for each in replicas
    )


def _titles(volumes: list[str], eviction: PodEviction) -> str:
    """Return volumes with their claims; a single one also with what uses it."""
    alone, space = len(volumes) == 1, eviction.budget.namespace
    found = ((name, find(eviction.cluster, LONGHORN_VOLUME, space, name)) for name in volumes)
    titles = [f"{name}{_claim(volume, alone)}" for name, volume in found]
    return f"Longhorn volume{'s' if len(volumes) > 1 else ''} {names(titles, _WIDTH)}"


def _claim(volume: Object | None, alone: bool) -> str:
    namespace, claim = volume_users.claim_of(volume)
    if volume is None or not claim:
        return ""
    name = f"claim {namespace}/{claim}"
    if not alone or volume.at("status", "state").text != "detached":
        return f" ({name})"
    users = {
        _user(each)
        for each in volume.at("status", "kubernetesStatus", "workloadsStatus").items()
        if each["workloadName"].text
    }
    if not users:
        return f" ({name}, which no VM uses now)"
    return (
        f" ({name} of {names(sorted(users))}, which {'do' if len(users) > 1 else 'does'} not run)"
    )


def _user(workload: Field) -> str:
    """Return what used a volume: other pods of a StatefulSet may run with volumes of their own."""
    pod, kind = workload["podName"].text, workload["workloadType"].text
    return f"pod {pod}" if pod and kind != VMI.kind else workload["workloadName"].text or ""


def _is_stopped(replica: Object) -> bool:
    return (
        replica.at("spec", "desireState").text
        == replica.at("status", "currentState").text
        == "stopped"
    )


def _is_last(replica: Object, nodes: set[str], cluster: Cluster) -> bool:
    """Return whether none of these nodes has a healthy copy of the volume.

    A replica never used holds no data.
    """
    spec = replica["spec"]
    if _is_unused(replica):
        return False
    copies = cluster.cached(longhorn_copies.healthy).get(
        (replica.namespace, spec["volumeName"].text or ""), set()
    )
    return copies.isdisjoint(nodes)


def _protected_nodes(namespace: str, cluster: Cluster) -> set[str]:
    """Return the schedulable nodes whose instance manager has a budget: Longhorn finds it by the
    name that both have (types/types.go#GetPDBName), and its selector names the node, too.
    """
    marked: set[str | None] = set()
    for budget in cluster.list(PDB, namespace):
        if is_instance_manager(budget):
            manager = fields(cluster, LONGHORN_MANAGER, namespace, budget.name)
            own = manager.at("spec", "nodeID").text
            marked.add(own or selected_labels(budget).get(_LONGHORN_NODE))
    return {node for node in marked if node and is_schedulable(node, cluster)}


def is_csi(budget: Object) -> bool:
    own = selected_labels(budget).get("app") == budget.name
    return own and budget.name in ("csi-attacher", "csi-provisioner")


def csi(eviction: PodEviction) -> OperatorAnswer:
    if eviction.never:
        reason = f"{eviction.never}, and Longhorn keeps it while a volume is attached"
        return OperatorAnswer(
            Way.NEVER,
            reason,
            f"Run three replicas of {eviction.budget.name}, as Longhorn does by default.",
        )
    return not_ready(f"a pod of {eviction.budget.name}")
