"""Why Longhorn does not attach a volume to a node: an engine or a replica that should run does not.

A volume is attached once its engine runs. A migration has a second engine on the target, with a
copy of each replica. Sources:
longhorn/longhorn-manager:controller/volume_controller.go#openVolumeDependentResources
#prepareReplicasAndEngineForMigration #isReplicaValidForMigration,
:controller/instance_handler.go#createInstance,
:datastore/longhorn.go#GetDefaultInstanceManagerByNodeRO, :controller/engine_image_controller.go
#syncNodeDeploymentMap,
:controller/volume_attachment_controller.go#updateStatusForDesiredAttachingAttachmentTicket; issues
longhorn/longhorn#11994, #12311, #4386, #2475.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods, driver_daemons, node_pods
from virt_admit.forecasts.placement.components.busy_volumes import HeldVolume
from virt_admit.forecasts.placement.components.longhorn import (
    absent_nodes,
    backing_images,
    dangling_migrations,
    longhorn_copies,
    stopped_managers,
    stranded_replicas,
    tickets_left,
)
from virt_admit.forecasts.placement.components.longhorn.stranded_replicas import StrandedReplicas
from virt_admit.model.commands import about, argument, logs_of, merge_patch, shell, typed
from virt_admit.model.kubernetes import clock, events, node_health
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import (
    DAEMON_SET,
    LONGHORN_ENGINE,
    LONGHORN_IMAGE,
    LONGHORN_REPLICA,
    LONGHORN_SETTING,
    LONGHORN_VOLUME,
    PV,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, WHOLE_CONDITIONS, Reads, union
from virt_admit.model.lookups import fields, find, find_named
from virt_admit.model.messages import cut_middle, names

_INSTANCE: Final = (
    "spec.dataEngine",
    "spec.desireState",
    "spec.image",
    "spec.nodeID",
    "spec.volumeName",
    "status.currentState",
    *CONDITIONS,
    "status.conditions.message",
)
READS: Final[Reads] = union(
    driver_daemons.READS,
    node_health.READS,
    backing_images.READS,
    dangling_migrations.READS,
    longhorn_copies.READS,
    longhorn_copies.OF_RELEASE,
    tickets_left.READS,
    stopped_managers.READS,
    stranded_replicas.READS,
    absent_nodes.READS,
    {
        PV: ("spec.csi.driver", "spec.csi.volumeHandle"),
        LONGHORN_VOLUME: (
            *("spec.migrationNodeID", "spec.numberOfReplicas"),
            *("status.currentNodeID", "status.state"),
            *WHOLE_CONDITIONS,
        ),
        LONGHORN_SETTING: ("value",),
        LONGHORN_ENGINE: _INSTANCE,
        LONGHORN_REPLICA: (
            *_INSTANCE,
            "spec.engineName",
            "spec.failedAt",
            "spec.lastFailedAt",
            "spec.migrationEngineName",
        ),
        LONGHORN_IMAGE: ("spec.image", "status.nodeDeploymentMap"),
    },
)
DRIVER: Final = "driver.longhorn.io"
_RUNNING: Final = "running"
_RECENT: Final = timedelta(minutes=10)
_LONGEST: Final = 120


def cause(volume: str, node: str, cluster: Cluster) -> HeldVolume | None:
    """Return why Longhorn does not attach a PersistentVolume to a node; None: nothing says so, or
    its engine runs there.
    """
    own = _volume(volume, cluster)
    if own is None:
        return None
    engine = _engine(own, node, cluster)
    if engine is not None and _runs_on(engine, node):
        return None
    held = (
        dangling_migrations.of(own, cluster)
        or backing_images.awaited(own, cluster)
        or absent_nodes.pending(own, cluster)
    )
    if held is not None:
        return held
    moves = own.at("spec", "migrationNodeID").text == node
    known = entry(cluster, longhorn_copies.by_volume, own.name) or ()
    copies = [
        each for each in known if engine is None or not moves or engine.name in _engines_of(each)
    ]
    begin = "Longhorn"
    if moves and engine is not None:
        begin = f"Longhorn's migration engine {_short(engine, own)} does not run, it"
    instances = [each for each in copies if _waits(each) or (moves and _failed(each))]
    instances += [engine] if engine is not None and _waits(engine) else []
    found = [(each, _reason(each, own, cluster, copied=moves)) for each in instances]
    instance, reason = next(
        (each for each in found if each[1] is not None), found[0] if found else (None, None)
    )
    if instance is None:
        stranded = None if moves else stranded_replicas.of(own, cluster)
        return stranded.held if stranded is not None else _of_rest(own, copies, node, cluster)
    on = instance.at("spec", "nodeID").text or "no node"
    what = (
        f"{begin} waits for {_kind(instance)} {_short(instance, own)} on {on} ({_state(instance)})"
    )
    if instance is engine:
        what = (
            f"Longhorn's {_kind(instance)} {_short(instance, own)} on {on} should run and is "
            f"{_state(instance)}"
        )
    alike = [each for each, _ in found if each is not engine]
    if reason is None and len(alike) > 1 and len(alike) == len(copies):
        return _of_all(alike, own)
    if reason is None:
        return HeldVolume(
            what,
            typed(
                f"see why longhorn-manager on {on} does not start it", _logs(on, instance, cluster)
            ),
        )
    # another node may attach it only if its engine is to run where the pod is
    of_node = reason.of_node and instance is engine and on == node
    what = f"Longhorn attaches no volume on {on}" if of_node else what
    return reason._replace(words=f"{what}: {reason.words}", of_node=of_node)


def _of_rest(
    volume: Object, copies: Sequence[Object], node: str, cluster: Cluster
) -> HeldVolume | None:
    """Return why a volume is not attached of which no instance is to start."""
    return (
        _of_failed(volume, copies, cluster)
        or tickets_left.of_ticket(volume, node, cluster)
        or absent_nodes.named(volume, node, cluster)
    )


def _runs_on(engine: Object, node: str) -> bool:
    return _state(engine) == _RUNNING and engine.at("spec", "nodeID").text == node


def _of_all(replicas: Sequence[Object], volume: Object) -> HeldVolume:
    """Return that no replica of a volume starts, for which none of their nodes is to blame."""
    nodes = sorted({each.at("spec", "nodeID").text or "no node" for each in replicas})
    return HeldVolume(
        f"Longhorn waits for all its {len(replicas)} replicas ({names(nodes)})",
        typed("see what keeps them all", about("describe", volume, LONGHORN_VOLUME)),
    )


def stranded(volume: str, cluster: Cluster) -> StrandedReplicas | None:
    """Return the replicas of the volume behind a PersistentVolume, if none of them can start."""
    own = _volume(volume, cluster)
    return stranded_replicas.of(own, cluster) if own is not None else None


def _volume(name: str, cluster: Cluster) -> Object | None:
    """Return the volume of Longhorn behind a PersistentVolume; None: it has none,
    or that is not known.
    """
    csi = fields(cluster, PV, "", name).at("spec", "csi")
    if csi["driver"].text != DRIVER:
        return None
    return find_named(cluster, LONGHORN_VOLUME, csi["volumeHandle"].text or name)


def _engine(volume: Object, node: str, cluster: Cluster) -> Object | None:
    """Return the engine of a volume that is to run on a node; None: it is not known,
    or the volume is still elsewhere.
    """
    known = entry(cluster, longhorn_copies.engines_by_volume, volume.name) or ()
    here = next((each for each in known if each.at("spec", "nodeID").text == node), None)
    # its node is empty while its replicas start
    if here is None and volume.at("spec", "migrationNodeID").text == node:
        return next((each for each in known if not each.at("spec", "nodeID").text), None)
    return here


def _engines_of(replica: Object) -> tuple[str | None, str | None]:
    return replica.at("spec", "engineName").text, replica.at("spec", "migrationEngineName").text


def _state(instance: Object) -> str:
    return instance.at("status", "currentState").text or "not started"


def _waits(instance: Object) -> bool:
    """Return whether an engine or a replica should run and does not."""
    return instance.at("spec", "desireState").text == _RUNNING and _state(instance) != _RUNNING


def _failed(replica: Object) -> bool:
    """Return whether a copy for a migration counts as failed: a new one replaces it,
    as often as that fails.
    """
    spec = replica["spec"]
    return _state(replica) != _RUNNING and bool(spec["failedAt"].text or spec["lastFailedAt"].text)


def _kind(instance: Object) -> str:
    return instance.kind.lower()


def _short(instance: Object, volume: Object) -> str:
    """Return the name of an engine or a replica without that of its volume,
    which the sentence has already.
    """
    own = instance.name.removeprefix(f"{volume.name}-")
    return instance.name if own == instance.name else f"…-{own}"


def _reason(
    instance: Object, volume: Object, cluster: Cluster, *, copied: bool
) -> HeldVolume | None:
    """Return why an engine or a replica does not start: what is missing on its node,
    else what Longhorn says.
    """
    node = instance.at("spec", "nodeID").text or ""
    if silent := node_health.silent_for(node, cluster):
        command = shell("kubectl", "describe", "node", argument(node))
        return HeldVolume(f"{node} {silent}", typed(f"repair {node}", command))
    return (
        _of_image(instance, node, cluster)
        or stopped_managers.of_node(node, stopped_managers.data_engine(instance), cluster)
        or (_of_copy(instance, volume, cluster) if copied else None)
        or _of_words(instance, node, cluster)
    )


def _of_image(instance: Object, node: str, cluster: Cluster) -> HeldVolume | None:
    """Return that the engine image is not on the node:
    its DaemonSet has no pod there that is ready.
    """
    image = instance.at("spec", "image").text
    for each in cluster.known(LONGHORN_IMAGE):
        deployed = dict(each.at("status", "nodeDeploymentMap").entries()).get(node)
        if (
            not image
            or each.at("spec", "image").text != image
            or deployed is None
            or deployed.boolean is not False
        ):
            continue
        why, called = f"engine image {each.name} is not deployed there", f"engine-image-{each.name}"
        daemon = find(cluster, DAEMON_SET, each.namespace, called)
        pod = next(
            (pod for pod in node_pods.of_node(node, cluster) if node_pods.daemon(pod) == called),
            None,
        )
        broken = broken_pods.of_pod(pod, cluster) if pod is not None else None
        if broken is not None:
            return HeldVolume(f"{why}, {broken.words}", broken.remedy)
        absent = (
            driver_daemons.of_daemon(daemon, DRIVER, node, cluster)
            if daemon is not None and pod is None
            else None
        )
        if absent is not None:
            return HeldVolume(f"{why}, {absent.why}", absent.remedy, absent.lasts)
        return HeldVolume(
            why,
            typed(
                f"let the pods of DaemonSet {called} run on {node}",
                about("describe", each, LONGHORN_IMAGE),
            ),
        )
    return None


_KEEPS_TIME: Final = ((1, 9, 3), (1, 10, 1))
"""The releases that regard a copy with ``lastFailedAt`` as failed and copy that field
(longhorn/longhorn#12311).
"""


def _of_copy(replica: Object, volume: Object, cluster: Cluster) -> HeldVolume | None:
    """Return that a copy for a migration counts as failed because its source failed once."""
    last = replica.at("spec", "lastFailedAt").text
    source = any(
        each.at("spec", "lastFailedAt").text == last and each.name != replica.name
        for each in entry(cluster, longhorn_copies.by_volume, volume.name) or ()
    )
    if not last or not source:
        return None
    release = longhorn_copies.release(volume, cluster)
    if release and release not in _KEEPS_TIME:
        return None
    return HeldVolume(
        f"this copy has lastFailedAt {last} of its source; Longhorn 1.9.3 and 1.10.1 replace it "
        "again and again",
        typed("update Longhorn to 1.10.2 or later, then migrate the VM again", _instances(volume)),
        lasts=True,
    )


_DEGRADED: Final = "allow-volume-creation-with-degraded-availability"
_ATTACHES: Final = (1, 7, 3)
"""From this release and from 1.8.1 on, the condition Scheduled keeps no volume from a pod
(longhorn/longhorn#9938).
"""


def _of_failed(volume: Object, replicas: Sequence[Object], cluster: Cluster) -> HeldVolume | None:
    """Return that a failed replica which cannot start keeps a volume from being attached, as
    Longhorn is set to attach none with fewer replicas; None: nothing says so.
    """
    setting = fields(cluster, LONGHORN_SETTING, volume.namespace, _DEGRADED)
    scheduled = volume.condition("Scheduled")
    waits = volume.at("status", "state").text != "attached" and setting["value"].text == "false"
    if not waits or scheduled["status"].text != "False":
        return None
    failed = [each for each in replicas if each.at("spec", "failedAt").text]
    found = ((each, _reason(each, volume, cluster, copied=False)) for each in failed)
    replica, reason = next((each for each in found if each[1] is not None), (None, None))
    if replica is None or reason is None:
        return None
    said = cut_middle(scheduled["message"].words, _LONGEST)
    release = longhorn_copies.running_release(volume, cluster)
    number = f" {'.'.join(map(str, release))}" if release else ""
    words = (
        f"Longhorn{number} does not bring the volume up while its condition Scheduled is False"
        f"{f' ({said})' if said else ''}: replica {_short(replica, volume)} on "
        f"{replica.at('spec', 'nodeID').text} has failed, and {reason.words}"
    )
    patch = merge_patch(LONGHORN_SETTING, _DEGRADED, volume.namespace, {"value": "true"})
    old = release and (release < _ATTACHES or release == (1, 8, 0))
    update = ", or update Longhorn to 1.7.3, 1.8.1 or later" if old else ""
    ways = f"; or, as a decision, let Longhorn attach volumes with fewer replicas ({patch}){update}"
    return HeldVolume(words, f"{reason.remedy}{ways}")


def _of_words(instance: Object, node: str, cluster: Cluster) -> HeldVolume | None:
    """Return what Longhorn says of an instance: its condition,
    else a warning of the last minutes.
    """
    created = instance.condition("InstanceCreation")
    said = created["message"].text if created["status"].text == "False" else ""
    said = said or events.last_warning(
        instance, "FailedStarting", clock.ago(_RECENT, cluster), cluster
    )
    if not said:
        return None
    words = cut_middle(
        " ".join(said.split()).removeprefix(f"Error starting {instance.name}: "), _LONGEST
    )
    return HeldVolume(
        f"Longhorn says {words}",
        typed(f"remove that cause on {node}", _logs(node, instance, cluster)),
    )


def _instances(volume: Object) -> str:
    """Return the command that shows the engines and the replicas of a volume,
    which have its name as a label.
    """
    kinds = ",".join(f"{kind.plural}.{kind.group}" for kind in (LONGHORN_ENGINE, LONGHORN_REPLICA))
    return shell(
        "kubectl", "get", kinds, "-n", volume.namespace, "-l", f"longhornvolume={volume.name}"
    )


def _logs(node: str, instance: Object, cluster: Cluster) -> str:
    """Return the command that shows what longhorn-manager on a node says,
    else the instance itself.
    """
    pods = (
        each
        for each in node_pods.of_node(node, cluster)
        if node_pods.daemon(each) == "longhorn-manager"
    )
    pod = next(pods, None)
    if pod is not None:
        return logs_of(pod, "--all-containers")
    return about(
        "describe", instance, LONGHORN_ENGINE if _kind(instance) == "engine" else LONGHORN_REPLICA
    )
