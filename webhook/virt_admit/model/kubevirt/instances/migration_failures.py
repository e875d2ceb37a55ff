"""Why migrations failed, and whether the next one fails for the same reason.

KubeVirt keeps the last five finished migrations of a VMI and repeats those of a drain forever. Its
text is that of libvirt, wrapped in the name of the call. Sources:
kubevirt/kubevirt:pkg/virt-launcher/virtwrap/live-migration-source.go #setMigrationResult,
#handleLegacyConvergence; issues kubevirt/kubevirt#12519, #16386.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Final

from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, cached, each
from virt_admit.model.kubernetes.kinds import VMI, VMIM
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import migration_timeouts, migrations
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle


class FailureClass(enum.StrEnum):
    """What a failure depends on, so whether a repetition helps."""

    PAIR = "P"
    """The two nodes: this pair never works."""
    LOAD = "L"
    """The guest's load: the next migration fails too unless the guest calms down."""
    MOMENT = "M"
    """The moment: a repetition may succeed. Also every text that is not known."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed migration of a VMI."""

    kind: FailureClass
    text: str
    """KubeVirt's reason without the names of calls. Empty: it gives none."""
    target: str
    """The node that it went to. Empty: not known."""
    migration: str
    """The name of the VirtualMachineInstanceMigration. Empty: it does not exist any more."""
    lasted: timedelta | None = None
    """How long it ran. None: not known."""


_PAIR: Final = re.compile(
    r"guest CPU doesn't match specification: (?:missing|extra) features: [^'\"()]+"
    r"|unsupported machine type[^()]*"
    r"|[^:()]{0,200}destination volume[^:()]*(?:smaller|too small)[^:()]*",
    re.IGNORECASE,
)
_DEVICE_STATE: Final = re.compile(
    r"Features 0x[0-9a-f]+ unsupported|Bad config data|(?:Length|Size) mismatch: |Unknown ramblock"
    r"|Unknown savevm section|unsupported version \d+ for|Machine type received is"
)
"""What QEMU says where it can never load what the other QEMU has sent: their devices differ
(qemu/qemu:hw/virtio/virtio.c #virtio_load, hw/pci/pci.c#get_pci_config_device,
migration/ram.c#parse_ramblock, migration/savevm.c).
"""
_QEMU_LINE: Final = re.compile(r"(?:^|\s)(?:\d{4}-\d\d-\d\dT[\d:.]+Z )?qemu-(?:kvm|system-\w+): ")
_CONCLUSION: Final = "load of migration failed: Invalid argument"
"""QEMU's last line: it refuses the state for what the lines before say."""
_ABORTED: Final = "Live migration has been aborted"
"""KubeVirt writes it from 1.9 on for a time-out and for an abort that a user asked for."""
_STUCK: Final = re.compile(r"Live migration stuck for \d+ sec")
"""KubeVirt's words for no progress (live-migration-source.go#isMigrationProgressing)."""
_MESSAGE: Final = re.compile(r"Message='(.*)'", re.DOTALL)
_BEFORE_HANDOVER: Final = frozenset(("Pending", "Scheduling"))


def in_a_row(vmi: Object, cluster: Cluster) -> tuple[Failure, ...]:
    """Return the failed migrations of a VMI since its last success, oldest first,
    whatever created them.

    Failures before the hand-over are left out: they mean that no node took the target pod, or that
    it did not start.
    """
    found: list[Failure] = []
    known: set[str] = set()
    state = vmi.at("status", "migrationState")
    for migration in migrations.own(vmi, cluster):
        known.add(migration.metadata["uid"].text or "")
        phase = migration.at("status", "phase").text
        is_current = state["migrationUid"].text == (migration.metadata["uid"].text or "-")
        if phase == "Succeeded":
            found.clear()
        elif phase == "Failed" and not failed_before_handover(migration):
            # KubeVirt copies the state a moment later
            last = state if is_current else migration.at("status", "migrationState")
            found.append(_failure(vmi, last, migration.name, cluster))
        elif phase != "Failed" and is_current and state["failed"].boolean and not migration.deleted:
            # still open
            found.append(_failure(vmi, state, migration.name, cluster))
    if state["failed"].boolean and state["migrationUid"].text not in known:
        found.append(_failure(vmi, state, "", cluster))
    return tuple(found)


USERFAULTFD: Final = "userfaultfd not available"
"""QEMU's words, in lower case, where the kernel of a node forbids what post-copy needs:
no such migration starts.
"""


def is_of_post_copy(failure: Failure) -> bool:
    """Whether a migration failed since it may switch to post-copy."""
    return USERFAULTFD in failure.text.lower()


@cached
def without_post_copy(cluster: Cluster) -> str:
    """Return a VM whose last migration failed since nodes forbid post-copy; empty: none."""
    suspects = chain(each(cluster, VMI, _failed_last), each(cluster, VMIM, _whose_failed))
    for vmi in filter(
        None, (find(cluster, VMI, *name) for name in sorted(set(filter(None, suspects))))
    ):
        failed = in_a_row(vmi, cluster)
        if failed and is_of_post_copy(failed[-1]):
            return vmi.full_name
    return ""


def _failed_last(vmi: Object) -> tuple[str, str] | None:
    """Return the name of a VMI whose last migration failed."""
    return (
        (vmi.namespace, vmi.name) if vmi.at("status", "migrationState", "failed").boolean else None
    )


def _whose_failed(migration: Object) -> tuple[str, str] | None:
    """Return the name of the VMI of a migration that failed."""
    failed = migration.at("status", "phase").text == "Failed"
    return (migration.namespace, migration.at("spec", "vmiName").text or "") if failed else None


def of_migration(
    vmi: Object, migration: Object, cluster: Cluster, pod: Object | None = None
) -> Failure | None:
    """Return why a migration of the VMI failed; None: it did not.

    ``pod``: its target pod, if that is known.
    """
    if migration.at("status", "phase").text != "Failed":
        return None
    if failed_before_handover(migration):
        return Failure(FailureClass.MOMENT, f"its target pod {unstarted(pod)}", "", migration.name)
    return _failure(vmi, migration.at("status", "migrationState"), migration.name, cluster)


def unstarted(pod: Object | None) -> str:
    """Return what became of a target pod that never took over, as far as it is known."""
    node = pod.at("spec", "nodeName").text if pod is not None else None
    if pod is None or not node:
        return "was not scheduled or did not start"
    reason, said = (pod.at("status", field).text or "" for field in ("reason", "message"))
    why = cut_middle(": ".join(filter(None, (reason, said))), 150)
    return f"ended on {node}: {why}" if reason else f"did not start on {node}"


def impossible_targets(vmi: Object, cluster: Cluster) -> dict[str, str]:
    """Return the nodes that can never take the VMI from its node, each with the reason."""
    return {
        each.target: each.text
        for each in in_a_row(vmi, cluster)
        if each.kind is FailureClass.PAIR and each.target
    }


def loads_in_a_row(vmi: Object, cluster: Cluster) -> int:
    """Return how many of the newest failures in a row were time-outs."""
    number = 0
    for failure in reversed(in_a_row(vmi, cluster)):
        if failure.kind is not FailureClass.LOAD:
            break
        number += 1
    return number


def failed_before_handover(migration: Object) -> bool:
    """Whether a failed migration is known to have ended before its target pod ran."""
    if migration.at("status", "migrationState").present:
        return False
    stamps = migration.at("status", "phaseTransitionTimestamps").items()
    ordered = sorted(stamps, key=lambda item: item["phaseTransitionTimestamp"].text or "")
    phases = [item["phase"].text or "" for item in ordered if item["phase"].text != "Failed"]
    return bool(phases) and phases[-1] in _BEFORE_HANDOVER


def _failure(vmi: Object, state: Field, name: str, cluster: Cluster) -> Failure:
    text = essence(
        state["failureReason"].text
        or _of_event(vmi, state["migrationUid"].text or "", cluster)
        or _of_own_event(vmi, name, cluster)
    )
    if not text or _TARGET_ENDED.search(text):
        text = ": ".join(filter(None, (text, _of_target(vmi, state, name, cluster))))
    here = state["sourceNode"].text
    if not text and here and here == state["targetNode"].text:  # kubevirt/kubevirt#18946
        text = f"its target pod was on {here}, where the VM runs"
    kind, target = _kind(vmi, state, text, cluster), state["targetNode"].text or ""
    return Failure(kind, text, target, name, migration_timeouts.said(text) or _lasted(state))


def _lasted(state: Field) -> timedelta | None:
    """Return from its start to its end how long a migration ran."""
    begin = clock.instant(state["startTimestamp"].text)
    end = clock.instant(state["endTimestamp"].text)
    return end - begin if begin is not None and end is not None and end >= begin else None


def _of_event(vmi: Object, uid: str, cluster: Cluster) -> str:
    """Return the reason in an event about the VMI; empty: none is known.

    Older releases write it nowhere else. Source: pkg/virt-handler/vm.go
    (``VirtualMachineInstance migration uid %s failed. reason:%s``).
    """
    begin = f"VirtualMachineInstance migration uid {uid} failed. reason:"
    said = (
        text for _, text in events.warnings(vmi, None, cluster) if uid and text.startswith(begin)
    )
    return next(said, "").removeprefix(begin).strip()


def _of_own_event(vmi: Object, name: str, cluster: Cluster) -> str:
    """Return the reason in the event about the migration; empty: none is known.

    No other place has it where virt-controller ends a migration, as for a pod that does not start.

    Source: pkg/virt-controller/watch/migration/migration.go#updateStatus.
    """
    migration = find(cluster, VMIM, vmi.namespace, name)
    if migration is None:
        return ""
    return _BEGIN.sub("", events.last_warning(migration, "FailedMigration", None, cluster))


_BEGIN: Final = re.compile(r"^Migration failed (?:because|due to) ")


def _of_target(vmi: Object, state: Field, name: str, cluster: Cluster) -> str:
    """Return what virt-handler of the target node said while it prepared a migration; empty:
    nothing that is known.

    virt-controller says only that the target pod has ended. virt-handler tells the cause in an
    event about the VMI, by a command that no source node gets
    (kubevirt/kubevirt:pkg/virt-handler/migration-target.go#execute;
    :pkg/virt-handler/cmd-client/client.go#handleError).
    """
    migration = find(cluster, VMIM, vmi.namespace, name)
    begin = clock.instant(migration.created) if migration is not None else None
    end = clock.instant(state["endTimestamp"].text)
    node = state["targetNode"].text
    for event in events.about(vmi, begin, cluster) if begin is not None and node else ():
        first = events.begin_of(event) or events.time_of(event)
        said = _TARGET_SAID.search(events.message(event))
        is_late = first is not None and end is not None and first > end
        if said is not None and not is_late and events.host(event) in ("", node):
            return said[1].replace('\\"', '"').removeprefix(_PREPARING).strip()
    return ""


_TARGET_ENDED: Final = re.compile(r"^(?:migration )?target pod\b[^:]*$", re.IGNORECASE)
"""What virt-controller says where it only knows that the target pod has ended."""
_TARGET_SAID: Final = re.compile(r'command SyncMigrationTarget failed: "(.*)"', re.DOTALL)
_PREPARING: Final = "failed to prepare migration target: "


def is_without_progress(failure: Failure) -> bool:
    """Whether KubeVirt ended a migration as it made no progress (``progressTimeout``)."""
    return _STUCK.match(failure.text) is not None


def _kind(vmi: Object, state: Field, text: str, cluster: Cluster) -> FailureClass:
    if is_of_pair(text):
        return FailureClass.PAIR
    return FailureClass.LOAD if _timed_out(vmi, state, text, cluster) else FailureClass.MOMENT


def is_of_pair(text: str) -> bool:
    """Whether a reason says that a VM can never migrate between two nodes."""
    return _PAIR.search(text) is not None or is_of_devices(text)


def is_of_cpu(text: str) -> bool:
    """Whether a reason says that the target would give the guest other CPU features than it has."""
    return _CPU_FEATURES in text


_CPU_FEATURES: Final = "guest CPU doesn't match specification"


def is_of_devices(text: str) -> bool:
    """Whether a reason says that QEMU on the target can never take the devices of the guest,
    as it was started.
    """
    return _DEVICE_STATE.search(text) is not None


def _timed_out(vmi: Object, state: Field, text: str, cluster: Cluster) -> bool:
    """Whether a migration ran until its deadline, or was aborted earlier as it made no progress."""
    if migration_timeouts.said(text) is not None or _STUCK.match(text):
        return True
    if _ABORTED not in text or state["abortRequested"].boolean:
        return False
    lasted = _lasted(state)
    used = migration_timeouts.settings(vmi, state, cluster)
    limit = migration_timeouts.seconds(vmi, used, cluster)
    return lasted is not None and limit is not None and lasted.total_seconds() >= limit


def essence(reason: str) -> str:
    """Return KubeVirt's reason without the names of calls: the words that matter come first."""
    text = " ".join(reason.split())
    pair = _PAIR.search(text)  # KubeVirt's own words about a volume stand before the message
    if pair:
        return pair[0].strip()
    message = _MESSAGE.search(text)
    return _of_qemu((message[1] if message else text).removeprefix("operation failed: ").strip())


def _of_qemu(text: str) -> str:
    """Return what QEMU itself said in libvirt's sentence, its first line first:
    that is the cause of the others.
    """
    lines = [line.strip() for line in _QEMU_LINE.split(text)[1:]]
    said = [line for line in lines if line and not line.startswith("warning: ")]
    return ", ".join(line for line in said if line != _CONCLUSION or len(said) == 1) or text


def missing_features(text: str) -> tuple[str, ...]:
    """Return the CPU features that the guest has and that a target did not give it; empty: the
    reason is another.
    """
    _, _, features = text.partition(_MISSING) if is_of_cpu(text) else ("", "", "")
    return tuple(filter(None, (each.strip() for each in features.split(","))))


_MISSING: Final = "missing features: "


def pair_words(text: str) -> str:
    """Return what a node lacks or has too much, instead of libvirt's sentence."""
    for libvirt, words in (
        (_MISSING, "it lacks "),
        ("extra features: ", "the guest must not have "),
    ):
        _, found, features = text.partition(libvirt)
        if found:
            return f"{words}{features}"
    return text
