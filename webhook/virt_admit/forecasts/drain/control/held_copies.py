"""Snapshots, restores and clones of VMs that have failed, or that do not end,
and what refuses them.

KubeVirt writes its errors into the reasons of conditions, and repeats a restore without end unless
it has failed for good. A restore makes the VM of the snapshot again, with its MAC addresses.
KubeMacPool gives each address to one VM, so it refuses a restore to another name while the source
exists. A clone removes the addresses itself. Sources:
kubevirt/kubevirt:pkg/storage/snapshot/restore.go#updateVMRestore #doUpdateErrorWithFailure,
snapshot.go#updateSnapshotStatus, pkg/storage/admitters/vmrestore.go (a restore cannot be changed,
and a patch has one colon in each part, so no MAC address),
pkg/virt-controller/watch/clone/clone.go#updateStatus;
k8snetworkplumbingwg/kubemacpool:pkg/pool-manager/virtualmachine_pool.go#allocateRequestedVirtualMachineInterfaceMac.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.control import mac_addresses, small_claims
from virt_admit.forecasts.drain.control.mac_addresses import DENIED
from virt_admit.forecasts.drain.guests import paused_guests
from virt_admit.model.commands import about, kubectl, typed, virtctl
from virt_admit.model.evidence import status_errors
from virt_admit.model.evidence.writes import refused_writes
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import (
    PVC,
    VM,
    VM_CLONE,
    VM_RESTORE,
    VM_SNAPSHOT,
    VM_SNAPSHOT_CONTENT,
    VMI,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import fields, find
from virt_admit.model.messages import command_of, cut_middle, ended, sentence, without_command
from virt_admit.model.problems import Problem

_STATUS: Final = ("metadata", "spec", "status")
_READS: Final[Reads] = {
    VM: ("spec",),
    VM_SNAPSHOT: _STATUS,
    VM_RESTORE: _STATUS,
    VM_CLONE: _STATUS,
    VM_SNAPSHOT_CONTENT: ("spec.source.virtualMachine.spec",),
    PVC: ("status.phase",),
    VMI: ("status.conditions",),
}
READS: Final[Reads] = union(small_claims.READS, refused_writes.READS, _READS)

_SETTLED: Final = timedelta(minutes=5)
"""So long KubeVirt may repeat a step, and wait for a VM to stop (snapshot/v1beta1
DefaultGracePeriod).
"""
_UNUSUAL: Final = timedelta(minutes=30)
"""So long the filling of claims is nothing unusual."""
_WORDS: Final = 200
_ERRORS: Final = re.compile(
    r"(?:VirtualMachine\w+ )?(?:encountered error|failed(?! calling webhook)) "
)
_OF_FREEZE: Final = re.compile(r"(?i)freez|return code 400\b|domain is (?:not running|paused)")
"""What KubeVirt writes where a freeze is refused: the answer of virt-handler, or its reason."""
_AFRESH: Final = "delete it, and create it again"
_MAC_FIELD: Final = "macAddress"
_FAILED: Final = "it has failed"
_AGAIN: Final = ": KubeVirt tries again by itself"
_POWER_OFF: Final = "power"
"""What the messages about a target that runs have in common."""


def of(obj: Object, cluster: Cluster) -> Problem | None:
    """Return why a snapshot, a restore or a clone does not end; None: it has ended,
    or nothing shows a fault.

    Raises:
        Unseen: it has failed, and whether a later one exists cannot be determined.
    """
    found = None if obj.deleted else _OF[obj.kind](obj, cluster)
    if found is None:
        return None
    found = _unanswered(obj, found, cluster)
    return found._replace(command=found.command or about("describe", obj, _KINDS[obj.kind]))


def quietly(obj: Object, cluster: Cluster) -> Problem | None:
    """Return the same; None also where it cannot be determined."""
    try:
        return of(obj, cluster)
    except Unseen:
        return None


def about_vm(vm: Object, cluster: Cluster) -> Iterator[tuple[Object, Problem]]:
    """Yield the known copies from a VM or to it that do not end, with why.

    Those that a clone makes are told with it.
    """
    for kind in _KINDS.values():
        for obj in cluster.known(kind, vm.namespace):
            try:
                mine = vm.name in _ends(obj, cluster) and made_by(obj, cluster) is None
                found = of(obj, cluster) if mine else None
            except Unseen:
                continue
            if found is not None:
                yield obj, found


def awaited(name: str, namespace: str, cluster: Cluster) -> Iterator[str]:
    """Yield which restores and clones are to create a VM that does not exist,
    with what keeps them from it.
    """
    for kind in (VM_RESTORE, VM_CLONE):
        for obj in cluster.known(kind, namespace):
            held = quietly(obj, cluster) if obj.at("spec", "target", "name").text == name else None
            if held is not None:
                yield words(obj, held)


def words(obj: Object, held: Problem) -> str:
    """Return why a copy does not end, with the object and the remedy."""
    return (
        f"{obj.kind} {obj.name}: {ended(held.reason)} {sentence(typed(held.remedy, held.command))}"
    )


def made_by(obj: Object, cluster: Cluster) -> Object | None:
    """Return the clone that a snapshot or a restore is a step of; None: it is none,
    or its clone does not exist.

    Raises:
        Unseen: it cannot be determined whether the clone exists.
    """
    owner = obj.owned_by(VM_CLONE.kind)
    return cluster.get(VM_CLONE, obj.namespace, owner) if owner else None


def _ends(obj: Object, cluster: Cluster) -> Iterator[str]:
    """Yield the names of the VMs that an object copies from and to."""
    for end in ("source", "target"):
        named = obj.at("spec", end)
        if named["kind"].text == VM.kind and named["name"].text:
            yield named["name"].text
        elif named["kind"].text == VM_SNAPSHOT.kind:
            yield _source(obj.namespace, named["name"].text or "", cluster)
    if obj.kind == VM_RESTORE.kind:
        yield _source(
            obj.namespace, obj.at("spec", "virtualMachineSnapshotName").text or "", cluster
        )


def _source(namespace: str, snapshot: str, cluster: Cluster) -> str:
    return fields(cluster, VM_SNAPSHOT, namespace, snapshot).at("spec", "source", "name").text or ""


# --- restores -------------------------------------------------------------------------------------


def _restore(restore: Object, cluster: Cluster) -> Problem | None:
    if restore.at("status", "complete").boolean is True:
        return None
    target = restore.at("spec", "target", "name").text or "?"
    exists = find(cluster, VM, restore.namespace, target) is not None
    effect = f"restore VM {target}" if exists else f"create VM {target}"
    failed = restore.condition("Failure")
    if failed["status"].text == "True":
        why = refusal(_said(failed))
        stop = f"stop VM {target} first ({virtctl('stop', target, restore.namespace)})"
        first = f"{stop}; then " if _POWER_OFF in why and exists else ""
        return Problem(f"{_FAILED}, and KubeVirt does not try again: {why}", f"{first}{_AFRESH}")
    age, error = clock.age(restore, cluster), _error(restore, cluster)
    if not error:
        return (
            _filling(restore, effect, age, cluster) if age is not None and age >= _SETTLED else None
        )
    if age is None or age < _SETTLED:
        return None
    words = f"for {clock.duration(age)} it cannot {effect}: {refusal(error)}"
    if _POWER_OFF in error.lower() and exists:
        return Problem(words, "stop that VM", command=virtctl("stop", target, restore.namespace))
    if mac_addresses.is_refused(error):
        return _mac(restore, words, target, cluster)
    refused = (
        f"remove what refuses it{_AGAIN}. If it is the spec of the VM, {_AFRESH} with spec.patches"
    )
    return Problem(words, refused if DENIED.search(error) else f"repair what it says{_AGAIN}")


def _error(restore: Object, cluster: Cluster) -> str:
    """Return the error of a restore: what its condition says, else a warning that is newer; empty:
    none is known.
    """
    progress = restore.condition("Progressing")
    if progress["status"].text == "False" and _said(progress):
        return _said(progress)
    since = clock.instant(progress["lastTransitionTime"].text)
    if progress.present and since is None:
        return ""
    return next((message for _, message in events.warnings(restore, since, cluster) if message), "")


def _mac(restore: Object, words: str, target: str, cluster: Cluster) -> Problem:
    """Return the problem of a restore whose VM wants a MAC address that another VM has, with the
    patch that clears it.
    """
    wanted = list(mac_addresses.wanted(restore, cluster))
    own = f"{restore.namespace}/{target}"
    holders = ((index, mac, mac_addresses.holder(mac, own, cluster)) for index, mac in wanted)
    taken = [(index, mac, holder) for index, mac, holder in holders if holder is not None]
    if not taken:
        cleared = f"{_AFRESH} with a patch that clears {_MAC_FIELD} of each interface"
        return Problem(words, cleared, command=_delete(restore))
    index, mac, holder = taken[0]
    path = f"/spec/template/spec/domain/devices/interfaces/{index}/{_MAC_FIELD}"
    more = f" (and {len(taken) - 1} more)" if len(taken) > 1 else ""
    name = holder.name if holder.namespace == restore.namespace else holder.full_name
    patch = json.dumps({"op": "remove", "path": path})
    return Problem(
        f"{words} (VM {name} has {mac}{more})",
        f"{_AFRESH} with spec.patches: ['{patch}']",
        command=_delete(restore),
    )


def _delete(restore: Object) -> str:
    return about("delete", restore, VM_RESTORE)


def _filling(restore: Object, effect: str, age: timedelta, cluster: Cluster) -> Problem | None:
    """Return which claim of a restore is not bound; None: all are, or that is not known."""
    for volume in restore.at("status", "restores").items():
        name = volume["persistentVolumeClaim"].text or ""
        claim = find(cluster, PVC, restore.namespace, name)
        if claim is not None and claim.at("status", "phase").text == "Pending":
            lasts = f"for {clock.duration(age)} it cannot {effect}: its claim {name} is Pending"
            said = next(events.about(claim, None, cluster), None)
            text = said["message"].words if said is not None else ""
            failed = events.last_warning(claim, "ProvisioningFailed", None, cluster) or text
            small = small_claims.of(claim, failed, cluster)
            if small is not None:
                return Problem(f"{lasts}: {small.reason}", small.remedy, command=small.command)
            if age < _UNUSUAL:
                continue
            command = kubectl("describe", PVC, name, restore.namespace)
            why = f" ({_words(text)})" if text else ""
            return Problem(
                f"{lasts}{why}", "repair what keeps the claim from being filled", command=command
            )
    return None


# --- snapshots and clones -------------------------------------------------------------------------


def _snapshot(snapshot: Object, cluster: Cluster) -> Problem | None:
    status = snapshot["status"]
    error = _words(status.at("error", "message").text) or _reported(snapshot, cluster)
    if status["phase"].text == "Failed":
        if _is_replaced(snapshot, cluster):
            return None
        why = ": ".join(filter(None, (_words(_said(snapshot.condition("Failure"))), error)))
        reason = f"{_FAILED}, so nothing can be restored from it{f': {why}' if why else ''}"
        then = "delete it and take another one"
        held = _unfrozen(snapshot, reason, then, cluster)
        return held or Problem(reason, f"remove the cause, {then}")
    age = clock.age(snapshot, cluster)
    if error and status["phase"].text in ("InProgress", None):
        lasts = f" for {clock.duration(age)}" if age is not None else ""
        then = "KubeVirt tries again until it fails, and then take another one"
        if held := _unfrozen(snapshot, f"it does not get ready{lasts}: {error}", then, cluster):
            return held
    if status["phase"].text not in ("InProgress", "Unknown", None) or age is None or age < _SETTLED:
        return None
    progress = snapshot.condition("Progressing")
    why = error or (_words(_said(progress)) if progress["status"].text == "False" else "")
    if not why and age < _UNUSUAL:
        return None
    return Problem(
        f"it does not end for {clock.duration(age)}{f': {why}' if why else ''}",
        "repair what it says"
        if why
        else "see the VolumeSnapshots of its claims and their CSI driver",
    )


def _unfrozen(snapshot: Object, reason: str, then: str, cluster: Cluster) -> Problem | None:
    """Return that a snapshot fails as its guest was paused by a user when its file systems were to
    be frozen; None: nothing shows that.

    virt-launcher cannot freeze a paused guest that has an agent (kubevirt/kubevirt#10759); later
    releases count the pause as a freeze (#15001), and report no such error.
    """
    status, name = snapshot["status"], snapshot.at("spec", "source", "name").text or ""
    vmi = find(cluster, VMI, snapshot.namespace, name)
    since = paused_guests.since_by_user(vmi) if vmi is not None else None
    refused = clock.instant(status.at("error", "time").text)
    agent = any(each.text == "GuestAgent" for each in status["indications"].items())
    if (
        vmi is None
        or since is None
        or not agent
        or refused is None
        or refused < since
        or not _OF_FREEZE.search(status.at("error", "message").text or "")
    ):
        return None
    return Problem(
        f"{reason}. Its VM {name} is {paused_guests.words(vmi, cluster)}, and a guest with an "
        "agent cannot be frozen while it is paused",
        f"resume the guest if its pause is over; {then} (a stopped VM needs no freeze)",
        command=paused_guests.resume(vmi),
    )


def _is_replaced(snapshot: Object, cluster: Cluster) -> bool:
    """Return whether a later snapshot of the same VM is ready."""
    made = snapshot.created
    return any(
        each.at("spec", "source", "name").text == snapshot.at("spec", "source", "name").text
        and each.at("status", "readyToUse").boolean is True
        and each.created > made
        for each in cluster.list(VM_SNAPSHOT, snapshot.namespace)
    )


def _clone(clone: Object, cluster: Cluster) -> Problem | None:
    status, ready = clone["status"], _said(clone.condition("Ready"))
    if status["phase"].text == "Succeeded":
        return None
    if status["phase"].text == "Failed":
        return Problem(
            f"{_FAILED}{f': {refusal(ready)}' if ready else ''}",
            "remove the cause, delete it and create it again",
        )
    for kind, field in ((VM_RESTORE, "restoreName"), (VM_SNAPSHOT, "snapshotName")):
        name = status[field].text
        step = find(cluster, kind, clone.namespace, name)
        if step is not None and (found := of(step, cluster)) is not None:
            command = about("delete", clone, VM_CLONE) if _AFRESH in found.remedy else found.command
            reason = f"its {kind.kind} {name}: {found.reason}"
            return Problem(reason, _of_clone(found.remedy, clone), command=command)
    age = clock.age(clone, cluster)
    if age is None or age < _SETTLED:
        return None
    pending = clone.condition("Progressing")
    why = _reported(clone, cluster)
    if pending["status"].text == "False" and _said(pending) == "Pending":
        why = refusal(ready)
    if not why:
        return None
    return Problem(
        f"it does not end for {clock.duration(age)}: {why}", f"repair what it says{_AGAIN}"
    )


def _of_clone(remedy: str, clone: Object) -> str:
    """Return a remedy for a restore in the words for the clone that makes it:
    it generates the patches.
    """
    begin, again, rest = remedy.partition(_AFRESH)
    if not again:
        return remedy
    macs = "spec.newMacAddresses" if clone.at("spec", "newMacAddresses").map else ""
    change = (
        f" with other {macs}"
        if macs and _MAC_FIELD in rest
        else " with other spec.patches"
        if rest
        else ""
    )
    return f"{begin}delete the clone, and create it again{change}"


# --- words ----------------------------------------------------------------------------------------


def _said(condition: Field) -> str:
    """Return what a condition says: KubeVirt writes whole sentences into its reason."""
    return condition["message"].words or condition["reason"].words


def _unanswered(obj: Object, found: Problem, cluster: Cluster) -> Problem:
    """Return the problem of a copy whose writes get no answer with the cause instead of the words
    about it. KubeVirt tries again, so they are about now.
    """
    if found.reason.startswith(_FAILED):
        return found
    said = [obj.at("status", "error", "message").words]
    said += [_said(each) for each in obj.at("status", "conditions").items()]
    said += [message for _, message in events.warnings(obj, None, cluster)]
    for text in filter(None, said):
        quote = next((each for each in (refusal(text), _words(text)) if each in found.reason), "")
        why = refused_writes.of(text, cluster, clock.now(cluster)) if quote else None
        if why is not None:
            reason = found.reason.replace(quote, why.words)
            remedy = f"{without_command(why.remedy)}{_AGAIN}"
            return found._replace(reason=reason, remedy=remedy, command=command_of(why.remedy))
    return found


def _reported(obj: Object, cluster: Cluster) -> str:
    """Return the newest warning of an event about an object; empty: none is known."""
    return next(
        (refusal(message) for _, message in events.warnings(obj, None, cluster) if message), ""
    )


def refusal(text: str) -> str:
    """Return an error in fewer words: which webhook refuses, and why."""
    denied = DENIED.search(text)
    if denied is None:
        return _words(_ERRORS.sub("", text, count=1))
    return f"webhook {denied[1]} denied the request: {_words(denied[2])}"


def _words(text: str | None) -> str:
    return cut_middle(status_errors.plain(text or "").rstrip("."), _WORDS)


_KINDS: Final = {kind.kind: kind for kind in (VM_SNAPSHOT, VM_RESTORE, VM_CLONE)}
_OF: Final = {VM_SNAPSHOT.kind: _snapshot, VM_RESTORE.kind: _restore, VM_CLONE.kind: _clone}
