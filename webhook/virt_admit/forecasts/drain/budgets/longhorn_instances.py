"""Budgets of Longhorn's instance managers that stay although every VM has left the node.

Sources: longhorn/longhorn-manager:controller/instance_manager_controller.go#syncInstanceManagerPDB,
#isResponsibleFor, #canDeleteInstanceManagerPDB (an engine process, and any attached volume, keeps
the budget), :controller/volume_attachment_controller.go#handleNodeCordoned; longhorn/longhorn#5680,
#5688, #6552, #6978, #11605.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Final, TypeVar

from virt_admit.forecasts.drain.budgets import longhorn_migrations
from virt_admit.forecasts.drain.budgets.operator_eviction import (
    OperatorAnswer,
    PodEviction,
    Way,
    cordoned_at,
)
from virt_admit.forecasts.placement.components import node_pods
from virt_admit.forecasts.placement.components.longhorn import longhorn_copies, volume_users
from virt_admit.forecasts.placement.components.longhorn_starts import DRIVER
from virt_admit.model.commands import argument, logs_of, merge_patch, shell, typed, virtctl
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry, unlisted
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_ATTACHMENT,
    LONGHORN_ENGINE,
    LONGHORN_MANAGER,
    LONGHORN_REPLICA,
    LONGHORN_SETTING,
    LONGHORN_VOLUME,
    NODE,
    PDB,
    POD,
    VMI,
    VOLUME_ATTACHMENT,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.lookups import fields, find, is_absent
from virt_admit.model.messages import ended, names

K = TypeVar("K", bound=Hashable)

READS: Final[Reads] = union(
    longhorn_copies.READS,
    longhorn_migrations.READS,
    node_pods.READS,
    vmis.READS,
    volume_users.READS,
    {
        LONGHORN_MANAGER: ("spec.nodeID", "status.ownerID", "status.instanceEngines"),
        LONGHORN_ENGINE: (
            "spec.desireState",
            "spec.nodeID",
            "spec.volumeName",
            "status.currentState",
        ),
        LONGHORN_SETTING: ("value",),
        NODE: ("spec.taints",),
        VMI: ("status.migrationState",),
        VOLUME_ATTACHMENT: ("metadata.creationTimestamp", "spec.attacher"),
    },
)


def obstacle(eviction: PodEviction) -> OperatorAnswer | None:
    """Return why Longhorn does not remove a budget after the VMs have left; None: it removes it.

    Raises:
        Unseen: instance managers, engines or attachments cannot be read.
    """
    manager = eviction.cluster.get(
        LONGHORN_MANAGER, eviction.budget.namespace, eviction.budget.name
    )
    if manager is None:  # Longhorn removes the budgets of instance managers that do not exist
        return None
    node, own = eviction.node, manager.at("spec", "nodeID").text or eviction.node
    if own != node:
        return _of_another_node(manager, own, eviction)
    keeper = manager.at("status", "ownerID").text or node
    if keeper != node and _leaves_it_to_the_node(eviction):
        return OperatorAnswer(
            Way.NOW,
            f"no longhorn-manager runs on {node}, and this release of Longhorn removes the budget "
            "only from there",
            f"Let longhorn-manager run on {node}, for example with a toleration for its taints, or "
            "update Longhorn.",
        )
    orphans = sorted(_orphans(manager, eviction))
    if not orphans:
        return longhorn_migrations.obstacle(manager, eviction) or _attached_by_hand(eviction)
    return OperatorAnswer(
        Way.NOW,
        f"its instance manager still runs engine {names(orphans, 80)}, whose volume is not "
        f"attached on {node}, and Longhorn keeps the budget while an engine runs",
        _ending(orphans, manager, eviction),
    )


def _of_another_node(manager: Object, own: str, eviction: PodEviction) -> OperatorAnswer:
    """Return that a budget selects the pod of this node although it is that of another one, which
    Longhorn removes once that one is cordoned and runs no engine.
    """
    node, cluster = eviction.node, eviction.cluster
    reason = (
        f"Longhorn wrote it for the instance manager of {own}, but it selects that of {node} "
        f"(pod {eviction.pod.name}), so cordoning {node} does not remove it{_unguarded(eviction)}"
    )
    release = longhorn_copies.running_release(manager, cluster)
    update = "Update Longhorn (fixed in 1.3.3 and 1.4.2). Until then " if _is_old(release) else ""
    begin = f"{update}{'cordon' if update else 'Cordon'} {own}, "
    end = f"wait until Longhorn has removed the budget, and uncordon {own}"
    cordon = shell("kubectl", "cordon", argument(own))
    engines = sorted(manager.at("status", "instanceEngines").map)
    if not engines:
        return OperatorAnswer(Way.NOW, reason, typed(f"{begin}{end}", cordon))
    guests = sorted(
        {each.full_name: each for each in _guests(engines, own, manager, cluster)}.items()
    )
    users = f"VM {names((name for name, _ in guests), 80)}" if guests else "what uses its volumes"
    moves = (virtctl("migrate", vmi.name, vms.namespace_of(vmi)) for _, vmi in guests)
    words = (
        f"{begin}migrate {users} off it, or stop what cannot migrate, as Longhorn keeps the budget "
        f"while engine {names(engines, 80)} runs there. Then {end}"
    )
    return OperatorAnswer(Way.NOW, reason, typed(words, cordon, _then(next(moves, ""))))


def _then(command: str) -> str:
    return f"then {command}" if command else ""


def _guests(
    engines: Iterable[str], node: str, manager: Object, cluster: Cluster
) -> Iterator[Object]:
    """Yield the VMIs of a node that use the volumes of these engines."""
    for name in engines:
        engine = fields(cluster, LONGHORN_ENGINE, manager.namespace, name)
        of = engine.at("spec", "volumeName").text or name.rpartition("-e-")[0]
        volume = find(cluster, LONGHORN_VOLUME, manager.namespace, of)
        for vmi in entry(cluster, vmis.by_node, node) or ():
            if volume is not None and longhorn_migrations.uses(vmi, volume):
                yield vmi


def _ending(orphans: Sequence[str], manager: Object, eviction: PodEviction) -> str:
    """Return what ends engines without a volume, and nothing else: the replicas beside them go on.

    An engine that is made while the cluster is read looks the same, which a cordon of some minutes
    excludes. The v2 data engine has no process for each instance. Source:
    longhorn/website:content/kb/troubleshooting-orphan-instance.md.
    """
    known, pod, node = manager.at("status", "instanceEngines"), eviction.pod, eviction.node
    if any(known[each].at("spec", "dataEngine").text == "v2" for each in orphans):
        return (
            "Update Longhorn, which removes such orphaned engines from 1.9 on with "
            "orphan-resource-auto-deletion."
        )
    closed = clock.elapsed(cordoned_at(node, eviction.cluster), eviction.cluster)
    if closed is None or closed < PATIENCE or unlisted(eviction.cluster, VMI):
        return typed(
            f"Ask again once {node} has been cordoned for 10 minutes, since no new VM can need the "
            "engine then",
            shell("virt-admit", "drain", argument(node)),
        )
    first, *others = orphans
    tool = ("--", "instance-manager", "process", "delete", "--name", first)
    further = f"then the same for {names(others, 80)}" if others else ""
    return typed(
        "End this process, which no volume needs, so that Longhorn removes the budget",
        shell("kubectl", "exec", argument(pod.name), "-n", pod.namespace, *tool),
        further,
    )


PATIENCE: Final = timedelta(minutes=10)
"""Longhorn looks again within a minute, and Kubernetes detaches a volume at the latest 6 minutes
after its pod has ended (``maxWaitForUnmountDuration``).
"""


def idle_for(eviction: PodEviction) -> timedelta | None:
    """Return since when a node has certainly been cordoned without a volume of Longhorn, and with
    the copies that its volumes have now: since the cordon, or since anything last left some node,
    or a copy became healthy; None: it is not, or that is not known.
    """
    cluster, node, namespace = eviction.cluster, eviction.node, eviction.budget.namespace
    cordoned = cordoned_at(node, cluster)
    if cordoned is None or not is_unused(node, cluster):
        return None
    here = cluster.cached(longhorn_copies.by_node).get((namespace, node), ())
    healthy = cluster.cached(_healthy)
    times = (
        cordoned,
        cluster.cached(_moved).get(node),
        cluster.cached(_last_use),
        *(healthy.get(each.at("spec", "volumeName").text or "") for each in here),
    )
    return clock.elapsed(max(filter(None, times)), cluster)


def is_unused(node: str, cluster: Cluster) -> bool:
    """Return whether certainly no volume of Longhorn is attached to a node, or is to be."""
    unread = any(unlisted(cluster, kind) for kind in _CHANGES)
    return not unread and node not in cluster.cached(_in_use)


_CHANGES: Final = (LONGHORN_ATTACHMENT, LONGHORN_REPLICA, LONGHORN_VOLUME, VMI, VOLUME_ATTACHMENT)


def _in_use(cluster: Cluster) -> set[str]:
    """Return the nodes that a known volume, ticket or attachment names."""
    volumes = (node for each in cluster.known(LONGHORN_VOLUME) for node in volume_users.nodes(each))
    attached = (
        each.at("spec", "nodeName").text or ""
        for each in cluster.known(VOLUME_ATTACHMENT)
        if each.at("spec", "attacher").text == DRIVER
    )
    tickets = (
        ticket["nodeID"].text or ""
        for each in cluster.known(LONGHORN_ATTACHMENT)
        for _, ticket in each.at("spec", "attachmentTickets").entries()
    )
    return {*volumes, *attached, *tickets}


def _moved(cluster: Cluster) -> Mapping[str, datetime]:
    """Return when the last migration from each node ended."""
    states = (each.at("status", "migrationState") for each in cluster.known(VMI))
    return _newest((each["sourceNode"].text or "", each["endTimestamp"].text) for each in states)


def _healthy(cluster: Cluster) -> Mapping[str, datetime]:
    """Return when the newest healthy copy of each volume became so."""
    specs = (each["spec"] for each in cluster.known(LONGHORN_REPLICA))
    return _newest((each["volumeName"].text or "", each["healthyAt"].text) for each in specs)


def _last_use(cluster: Cluster) -> datetime | None:
    """Return when a pod with a volume last ended, or Kubernetes last attached one."""
    ended = ((None, _last_pod(each)) for each in cluster.known(LONGHORN_VOLUME))
    attached = ((None, each.created) for each in cluster.known(VOLUME_ATTACHMENT))
    return _newest(chain(ended, attached)).get(None)


def _last_pod(volume: Object) -> str | None:
    return volume.at("status", "kubernetesStatus", "lastPodRefAt").text


def _newest(stamps: Iterable[tuple[K, str | None]]) -> dict[K, datetime]:
    found: dict[K, datetime] = {}
    for key, text in stamps:
        if (time := clock.instant(text)) is not None:
            found[key] = max(time, found.get(key, time))
    return found


def log(eviction: PodEviction) -> str:
    """Return the command that shows what the longhorn-manager says that keeps a budget; empty: its
    pod is not known.
    """
    budget = eviction.budget
    manager = fields(eviction.cluster, LONGHORN_MANAGER, budget.namespace, budget.name)
    keeper = manager.at("status", "ownerID").text
    for pod in node_pods.of_node(keeper or eviction.node, eviction.cluster):
        if node_pods.daemon(pod) == "longhorn-manager":
            return logs_of(pod, "--all-containers", "--since=10m")
    return ""


def _unguarded(eviction: PodEviction) -> str:
    """Return that Longhorn guards the pod no more, as it has removed the budget of its own; empty:
    it has one, or is unread.

    Longhorn removes it only where no attached volume and no last healthy copy needs the node
    (#canDeleteInstanceManagerPDB).
    """
    namespace, name = eviction.budget.namespace, eviction.pod.name
    manager = find(eviction.cluster, LONGHORN_MANAGER, namespace, name)
    if manager is None or manager.at("spec", "nodeID").text != eviction.node:
        return ""
    removed = ". No data is at stake: Longhorn has removed the pod's own budget already"
    return removed if is_absent(eviction.cluster, PDB, namespace, name) else ""


_BY_HAND: Final = "longhorn-api"
"""The type of the tickets of attachments that a user made, in Longhorn's page or by its API."""


def _attached_by_hand(eviction: PodEviction) -> OperatorAnswer | None:
    """Return which volumes stay attached when the pods have left,
    since a user attached them to the node.
    """
    cluster, node, namespace = eviction.cluster, eviction.node, eviction.budget.namespace
    volumes = cluster.cached(_attachments_by_hand).get((namespace, node), ())
    if not volumes:
        if cluster.cached(_volumes_without_pods).get((namespace, node)):
            # raises Unseen unless all are known
            for _ in cluster.list(LONGHORN_ATTACHMENT, namespace):
                pass
        return None
    setting = cluster.get(LONGHORN_SETTING, namespace, _DETACHES)
    if setting is not None and setting["value"].text == "true":
        return None
    described = names((_with_claim(each, namespace, cluster) for each in volumes), 160)
    remedy = "Detach it on Longhorn's page"
    if setting is not None:  # only releases that have it make it
        value = merge_patch(LONGHORN_SETTING, _DETACHES, namespace, {"value": "true"})
        remedy = typed(f"{remedy}, or let Longhorn detach such volumes from cordoned nodes", value)
    return OperatorAnswer(
        Way.NOW,
        f"Longhorn volume {described} was attached to {node} by hand, and Longhorn keeps the "
        "budget while a volume is attached",
        ended(remedy),
    )


_DETACHES: Final = "detach-manually-attached-volumes-when-cordoned"


def _with_claim(volume: str, namespace: str, cluster: Cluster) -> str:
    """Return a volume of Longhorn with its claim, as far as that is known."""
    claim = volume_users.claim_of(find(cluster, LONGHORN_VOLUME, namespace, volume))
    return f"{volume} (claim {'/'.join(claim)})" if all(claim) else volume


def _attachments_by_hand(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[str]]:
    """Return the volumes that a user attached, by namespace and node."""
    found: dict[tuple[str, str], list[str]] = {}
    for attachment in cluster.known(LONGHORN_ATTACHMENT):
        spec = attachment["spec"]
        for _, ticket in spec["attachmentTickets"].entries():
            if ticket["type"].text == _BY_HAND:
                volumes = found.setdefault((attachment.namespace, ticket["nodeID"].text or ""), [])
                volumes.append(spec["volume"].text or attachment.name)
    return {place: sorted(set(volumes)) for place, volumes in found.items()}


_WORK: Final = {
    "volume-restore-controller": "the restore of",
    "volume-clone-controller": "the clone into",
    "volume-rebuilding-controller": "the rebuild of",
    "volume-expansion-controller": "the expansion of",
}
"""The types of the tickets of work that ends by itself and that needs no pod
(:k8s/pkg/apis/longhorn/v1beta2/volumeattachment.go#AttacherType)."""


def work(node: str, namespace: str, cluster: Cluster) -> str:
    """Return Longhorn's own work on a node, whose engines run until it is done, in words; empty:
    nothing is known of any.
    """
    return names(cluster.cached(_work).get((namespace, node), ()), 120)


def _work(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for attachment in cluster.known(LONGHORN_ATTACHMENT):
        tickets = [each for _, each in attachment.at("spec", "attachmentTickets").entries()]
        kinds = {each["type"].text or "" for each in tickets}
        if not kinds or not kinds <= _WORK.keys():  # else a pod keeps it attached as well
            continue
        namespace = attachment.namespace
        name = attachment.at("spec", "volume").text or attachment.name
        claim = volume_users.claim_of(find(cluster, LONGHORN_VOLUME, namespace, name))
        title = f"claim {'/'.join(claim)}" if all(claim) else f"volume {name}"
        for place in sorted({each["nodeID"].text or "" for each in tickets}):
            found.setdefault((namespace, place), []).append(f"{_WORK[min(kinds)]} {title}")
    return found


def _volumes_without_pods(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[str]]:
    """Return the attached volumes that Longhorn sees no pod use, by namespace and node."""
    found: dict[tuple[str, str], list[str]] = {}
    for volume in cluster.known(LONGHORN_VOLUME):
        node = volume.at("status", "currentNodeID").text
        seen = volume.at("status", "kubernetesStatus")
        if node and seen.map and not any(seen["workloadsStatus"].items()):
            found.setdefault((volume.namespace, node), []).append(volume.name)
    return found


_VERSION: Final = re.compile(r"v?(\d{1,3})\.(\d{1,3})\.(\d{1,3})")
_REPAIRED: Final = {(1, 3): 3, (1, 4): 2}
"""The patch release of a minor release from which any longhorn-manager removes the budget;
later ones all do.
"""


def _leaves_it_to_the_node(eviction: PodEviction) -> bool:
    """Return whether only the longhorn-manager of the node itself removes the budget
    (longhorn/longhorn#5688).
    """
    setting = eviction.cluster.get(
        LONGHORN_SETTING, eviction.budget.namespace, "current-longhorn-version"
    )
    found = _VERSION.match((setting["value"].text if setting is not None else None) or "")
    return found is not None and _is_old(tuple(map(int, found.groups())))


def _is_old(release: tuple[int, ...]) -> bool:
    """Return whether a release is older than the repairs of these budgets; False: not known."""
    if not release:
        return False
    major, minor, patch = release
    return patch < _REPAIRED.get((major, minor), 0) or (major, minor) < min(_REPAIRED)


def _orphans(manager: Object, eviction: PodEviction) -> Iterator[str]:
    """Yield the engine processes that no volume on this node needs:
    they do not end when the VMs leave.

    Raises:
        Unseen: the engines, or what may name the node for a volume, cannot be read.
    """
    for name, process in manager.at("status", "instanceEngines").entries():
        if process.at("status", "state").text != _RUNNING:  # it starts, or ends
            continue
        engine = eviction.cluster.get(LONGHORN_ENGINE, manager.namespace, name)
        if engine is not None and not _is_orphaned(engine, manager.name, eviction.node):
            continue
        named = engine.at("spec", "volumeName").text if engine is not None else None
        volume = named or name.rpartition("-e-")[0]
        if volume and not _may_need(volume, eviction):
            yield name


_RUNNING: Final = "running"


def _may_need(name: str, eviction: PodEviction) -> bool:
    """Return whether anything names the node for a volume, or did so until a moment ago.

    An Engine that is made, or deleted, while the cluster is read is absent, too: a migration has
    one of its own on the target.
    """
    cluster, node = eviction.cluster, eviction.node
    for kind in (LONGHORN_VOLUME, LONGHORN_ATTACHMENT, VOLUME_ATTACHMENT, POD):
        if unread := unlisted(cluster, kind):
            raise Unseen(unread)
    volume = cluster.get(LONGHORN_VOLUME, eviction.budget.namespace, name)
    if volume_users.is_named(name, volume, node, cluster):
        return True
    ended = clock.instant(_last_pod(volume)) if volume is not None else None
    times = filter(None, (ended, cluster.cached(_moved).get(node)))
    left = clock.elapsed(max(times, default=None), cluster)
    return left is not None and left < PATIENCE


def _is_orphaned(engine: Object, manager: str, node: str) -> bool:
    wanted = engine.at("spec", "desireState").text == _RUNNING  # it may be starting
    stopped = engine.at("status", "currentState").text == "stopped" and not wanted
    leaves = engine.at("status", "instanceManagerName").text == manager  # it is its own still
    return stopped or (not leaves and engine.at("spec", "nodeID").text not in (node, "", None))
