"""Updates of storage that wait at a node for a VM: Portworx migrates VMs before it ends its pod.

Each VM is migrated once in an update; after a failure an event says so, again and again, until
a person moves or stops the VM. Only snapshots hold events. Sources: libopenstorage/operator:
pkg/controller/storagecluster/kubevirt.go#StartEvictingVMPods, .../update.go (``UpdatePaused``);
the page "Manage KubeVirt VMs during Portworx node upgrades" of Portworx.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.states import vm_states_failures
from virt_admit.model.commands import typed, virtctl
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import VMI, VMIM
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migration_failures, migration_timeouts, migrations, vmis
from virt_admit.model.kubevirt.instances.migration_failures import FailureClass
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle

READS: Final[Reads] = union(
    clock.READS,
    migrations.READS,
    migration_timeouts.READS,
    {
        VMI: (
            "metadata.creationTimestamp",
            "metadata.ownerReferences",
            "status.migrationState",
            "status.nodeName",
            "status.phase",
        ),
        VMIM: ("metadata.uid",),
    },
)
_KINDS: Final = ("StorageCluster", "StorageNode")
_NOT_MOVED: Final = re.compile(
    r"Live migration (\S{1,253}) (failed|has already succeeded) for VM "
    r"([a-z0-9.-]{1,63})/(\S{1,253}) on node ([a-z0-9.-]{1,253})\.(?:\s|\Z)"
)
_PAUSED: Final = re.compile(r"update of the storage node ([a-z0-9.-]{1,253}) has been paused")
_REPEATED: Final = timedelta(minutes=20)
"""The operator looks each 30 seconds; of equal events a client sends one in five minutes."""


class PausedUpdate(NamedTuple):
    """An update of storage that waits at a node until a VM has left it."""

    kind: str
    namespace: str
    name: str
    node: str
    vmi: Object
    reason: str
    """As the beginning of a sentence, without its end."""
    remedy: str


def paused(cluster: Cluster) -> Sequence[PausedUpdate]:
    """Return the updates of storage that do not go on by themselves, by node and VM."""
    return cluster.cached(_paused)


def of_node(node: str, cluster: Cluster) -> Iterator[str]:
    """Yield in sentences which updates of storage wait at a node."""
    yield from (f"{each.reason}. {each.remedy}" for each in paused(cluster) if each.node == node)


def of_vmi(vmi: Object, cluster: Cluster) -> Iterator[str]:
    """Yield in sentences which updates of storage wait for a VMI."""
    yield from (f"{each.reason}. {each.remedy}" for each in paused(cluster) if each.vmi.full_name == vmi.full_name)


def _paused(cluster: Cluster) -> tuple[PausedUpdate, ...]:
    found: dict[tuple[str, str], PausedUpdate] = {}
    for event in (each for kind in _KINDS for each in events.known(kind, "FailedToEvictVM", cluster)):
        update = _of(event, cluster)
        if update is not None:
            found.setdefault((update.node, update.vmi.full_name), update)
    return tuple(update for _, update in sorted(found.items(), key=lambda item: item[0]))


def _of(event: Object, cluster: Cluster) -> PausedUpdate | None:
    """Return what waits by an event; None: it is over, or goes on by itself."""
    said, now, last = _NOT_MOVED.search(_message(event)), clock.now(cluster), events.time_of(event)
    if said is None or now is None or last is None or now - last > _REPEATED:
        return None
    migration, ended, namespace, name, node = said.groups()
    vmi = find(cluster, VMI, namespace, name)
    if vmi is None or not vmis.running(vmi) or vmi.at("status", "nodeName").text != node:
        return None
    try:
        if any(migrations.unfinished(vmi, cluster)):
            return None  # it waits for that migration, whatever asked for it
    except Unseen:
        return None
    about = event["involvedObject"]
    kind, own, where = (about[key].text or "" for key in ("kind", "name", "namespace"))
    since = _since(node, cluster)
    for_long = f" for {clock.duration(now - since)}" if since is not None else ""
    failed = next((each for each in migration_failures.in_a_row(vmi, cluster) if each.migration == migration), None)
    why = f": {cut_middle(failed.text, 160)}" if failed is not None and failed.text else ""
    because = f"its migration {migration} failed{why}" if ended == "failed" else "it is there again after its migration"
    reason = (
        f"The update of {kind} {where}/{own} is paused at {node}{for_long}: VM {vmi.full_name} still runs there, as "
        f"{because}; Portworx does not migrate it again"
    )
    first = ""
    if failed is not None and failed.kind is FailureClass.LOAD:
        settings = migration_timeouts.settings(vmi, Field(None), cluster)
        first = f"{vm_states_failures.load_remedy(vmi, settings)}; then "
    words = f"{first}migrate the VM off {node}, or stop it, and the update goes on by itself"
    remedy = typed(f"{words[:1].upper()}{words[1:]}", virtctl("migrate", name, namespace))
    return PausedUpdate(kind, where, own, node, vmi, reason, remedy)


def _since(node: str, cluster: Cluster) -> datetime | None:
    """Return since when the update waits at a node; None: not known."""
    known = (each for kind in _KINDS for each in events.known(kind, "UpdatePaused", cluster))
    own = (each for each in known if (said := _PAUSED.search(_message(each))) is not None and said[1] == node)
    begun = (clock.instant(each["firstTimestamp"].text) or events.time_of(each) for each in own)
    return min(filter(None, begun), default=None)


def _message(event: Object) -> str:
    return " ".join((event["message"].text or "").split())
