"""Updates of storage that wait at a node for a VM: Portworx migrates VMs before it ends its pod.

Each VM is migrated once in an update; after a failure an event says so, again and again, until
a person moves or stops the VM. Sources: libopenstorage/operator:
pkg/controller/storagecluster/kubevirt.go#StartEvictingVMPods, .../update.go (``UpdatePaused``);
the page "Manage KubeVirt VMs during Portworx node upgrades" of Portworx.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.states import vm_states_failures
from virt_admit.model.commands import argument, shell, typed, virtctl
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, gather
from virt_admit.model.kubernetes.kinds import VMI, VMIM
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import (
    migration_failures,
    migration_timeouts,
    migrations,
    vmis,
)
from virt_admit.model.kubevirt.instances.migration_failures import FailureClass
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle, names

READS: Final[Reads] = union(
    clock.READS,
    migrations.READS,
    migration_timeouts.READS,
    vmis.READS,
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
_USUAL: Final = timedelta(minutes=30)
"""The VMs of a node have usually left it by then."""


class PausedUpdate(NamedTuple):
    """An update of storage that waits at a node until a VM has left it."""

    kind: str
    namespace: str
    name: str
    node: str
    vmis: tuple[Object, ...]
    """The VMs for which it waits, by name."""
    reason: str
    """As the beginning of a sentence, without its end."""
    remedy: str


@cached
def paused(cluster: Cluster) -> Sequence[PausedUpdate]:
    """Return the updates of storage that do not go on by themselves, by node and VM."""
    found: dict[tuple[str, str], PausedUpdate] = {}
    for event in (
        each for kind in _KINDS for each in events.known(kind, "FailedToEvictVM", cluster)
    ):
        update = _of(event, cluster)
        if update is not None:
            found.setdefault((update.node, update.vmis[0].full_name), update)
    told = {node for node, _ in found}
    for event in (each for kind in _KINDS for each in events.known(kind, "UpdatePaused", cluster)):
        update = _late(event, cluster)
        if update is not None and update.node not in told:
            found.setdefault((update.node, ""), update)
    return tuple(update for _, update in sorted(found.items(), key=lambda item: item[0]))


def of_node(node: str, cluster: Cluster) -> Iterator[str]:
    """Yield in sentences which updates of storage wait at a node."""
    yield from (f"{each.reason}. {each.remedy}" for each in paused(cluster) if each.node == node)


def of_vmi(vmi: Object, cluster: Cluster) -> Iterator[str]:
    """Yield in sentences which updates of storage wait for a VMI."""
    for each in paused(cluster):
        if any(one.full_name == vmi.full_name for one in each.vmis):
            yield f"{each.reason}. {each.remedy}"


def _late(event: Object, cluster: Cluster) -> PausedUpdate | None:
    """Return that VMs leave a node for longer than usual,
    although no migration is said to have failed.
    """
    said, now = _PAUSED.search(event["message"].words), clock.now(cluster)
    since = _since(said[1], cluster) if said is not None else None
    if (
        said is None
        or now is None
        or since is None
        or not _is_repeated(event, now)
        or now - since < _USUAL
    ):
        return None
    node = said[1]
    here, _ = gather(vmis.on_node(cluster, node))
    left = tuple(
        sorted((vmi for vmi in here if vmis.migratable(vmi)), key=lambda vmi: vmi.full_name)
    )
    if not left:
        return None
    kind, name, namespace = _about(event)
    who = f"VM{'s' * (len(left) > 1)} {names((vmi.full_name for vmi in left), 120)}"
    reason = (
        f"{_begin(event, node, cluster)}: {who} {'have' if len(left) > 1 else 'has'} not left it"
    )
    remedy = typed(
        "See what keeps them there; the update goes on once they have left",
        shell("virt-admit", "drain", argument(node)),
    )
    return PausedUpdate(kind, namespace, name, node, left, reason, remedy)


def _is_repeated(event: Object, now: datetime) -> bool:
    last = events.time_of(event)
    return last is not None and now - last <= _REPEATED


def _about(event: Object) -> tuple[str, str, str]:
    about = event["involvedObject"]
    return about["kind"].text or "", about["name"].text or "", about["namespace"].text or ""


def _begin(event: Object, node: str, cluster: Cluster) -> str:
    kind, name, namespace = _about(event)
    lasts = clock.lasts(clock.elapsed(_since(node, cluster), cluster))
    return f"The update of {kind} {namespace}/{name} is paused at {node}{lasts}"


def _of(event: Object, cluster: Cluster) -> PausedUpdate | None:
    """Return what waits by an event; None: it is over, or goes on by itself."""
    said, now = _NOT_MOVED.search(event["message"].words), clock.now(cluster)
    if said is None or now is None or not _is_repeated(event, now):
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
    failed = next(
        (each for each in migration_failures.in_a_row(vmi, cluster) if each.migration == migration),
        None,
    )
    why = f": {cut_middle(failed.text, 160)}" if failed is not None and failed.text else ""
    because = (
        f"its migration {migration} failed{why}"
        if ended == "failed"
        else "it is there again after its migration"
    )
    begin = f"{_begin(event, node, cluster)}: VM {vmi.full_name} still runs there"
    reason = f"{begin}, as {because}; Portworx does not migrate it again"
    first = ""
    if failed is not None and failed.kind is FailureClass.LOAD:
        settings = migration_timeouts.settings(vmi, Field(None), cluster)
        first = (
            f"{vm_states_failures.load_remedy(vmi, settings, cluster, last_resort=False)}; then "
        )
    words = f"{first}migrate the VM off {node}, or stop it, and the update goes on by itself"
    remedy = typed(f"{words[:1].upper()}{words[1:]}", virtctl("migrate", name, namespace))
    kind, own, where = _about(event)
    return PausedUpdate(kind, where, own, node, (vmi,), reason, remedy)


def _since(node: str, cluster: Cluster) -> datetime | None:
    """Return since when the update waits at a node; None: not known."""
    known = (each for kind in _KINDS for each in events.known(kind, "UpdatePaused", cluster))
    own = (
        each
        for each in known
        if (said := _PAUSED.search(each["message"].words)) is not None and said[1] == node
    )
    begun = (clock.instant(each["firstTimestamp"].text) or events.time_of(each) for each in own)
    return min(filter(None, begun), default=None)
