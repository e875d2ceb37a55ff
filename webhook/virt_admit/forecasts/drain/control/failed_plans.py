"""VMs that a Plan of Forklift moves, has moved or failed to move, and what refused it.

The Plan and its Migration only say that they have FAILED; the error is in the entry of the VM. A
cold migration stops its source, and starts it again only when it is cancelled. The new VM exists
after CreateVM, perhaps in a cluster that is not read, and stays there when a later run fails
earlier. Within one cluster the new VM has the MAC addresses of its source, so KubeMacPool refuses
it unless it ignores the namespace. Sources:
kubev2v/forklift:pkg/apis/forklift/v1beta1/plan/vm.go#VMStatus, pkg/controller/plan/migration.go
#Cancel #begin, pkg/controller/plan/migrator/base/migrator.go#coldItinerary,
https://github.com/kubev2v/forklift/pull/2474;
k8snetworkplumbingwg/kubemacpool:doc/opt-in-opt-out.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.control import held_copies, mac_addresses
from virt_admit.model.commands import about, argument, shell, virtctl
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry, unlisted
from virt_admit.model.kubernetes.kinds import FORKLIFT_PLAN, FORKLIFT_PROVIDER, VM
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import count, names
from virt_admit.model.problems import Problem

READS: Final[Reads] = {
    FORKLIFT_PLAN: (),
    FORKLIFT_PROVIDER: ("spec.type", "spec.url"),
    VM: ("metadata.uid", "spec", "status.printableStatus", "status.conditions"),
}
_IGNORE: Final = "mutatevirtualmachines.kubemacpool.io=ignore"
_CREATION: Final = "CreateVM"
_OPENSHIFT: Final = "openshift"
_EARLY: Final = frozenset(
    (
        "Started",
        "PreHook",
        "StorePowerState",
        "PowerOffSource",
        "WaitForPowerOff",
        "CreateDataVolumes",
        "CopyDisks",
        "AllocateDisks",
        "CreateGuestConversionPod",
        "ConvertGuest",
        "CopyDisksVirtV2V",
    )
)
"""The phases of a cold migration before CreateVM, which makes the new VM."""


class PlannedMove(NamedTuple):
    """The migration of one VM by a Plan."""

    plan: Object
    entry: Field
    """What the Plan says of it."""
    source: Object | None
    """None: it is not a VM of this cluster."""
    is_local: bool
    """Whether the new VM is for the cluster of its source, in a namespace that is known."""

    @property
    def name(self) -> str:
        """The name of the VM, with its namespace where it is known."""
        if self.source is not None:
            return self.source.full_name
        return self.entry["name"].text or self.entry["id"].text or "?"

    @property
    def error(self) -> str:
        """Why it failed, in the words of what refused it."""
        return "; ".join(each.words for each in self.entry.at("error", "reasons").items())

    @property
    def ended(self) -> str:
        """When it ended; a tilde: it has not."""
        return self.entry["completed"].text or "~"

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.entry["completed"].present

    @property
    def has_succeeded(self) -> bool:
        """Whether the VM was migrated."""
        met = {each["type"].text for each in self.entry["conditions"].items()}
        given_up = met & _NOT_MOVED or self.plan.is_true("Canceled")
        ended_well = "Succeeded" in met or not given_up
        return self.is_over and ended_well and not self.entry["error"].present

    @property
    def _target(self) -> tuple[str, str]:
        return _target(self.plan, self.entry)

    @property
    def new_vm(self) -> str:
        """The new VM in words, with the Provider of its cluster if that is another one."""
        there = self.plan.at("spec", "provider", "destination")
        provider = "/".join(filter(None, (there["namespace"].text, there["name"].text)))
        where = f" of Provider {provider}" if provider and not self.is_local else ""
        return f"VM {'/'.join(filter(None, self._target))}{where}"

    def made(self, cluster: Cluster) -> Object | None:
        """The new VM in the cluster of its source; None: it is not known there."""
        found = find(cluster, VM, *self._target) if self.is_local else None
        is_source = found is not None and found.full_name == self.name
        return None if is_source else found

    def may_exist(self, cluster: Cluster) -> bool:
        """Whether the new VM exists, or may exist: the source must not run beside it."""
        if not self.is_over or self.has_succeeded or self.made(cluster) is not None:
            return True
        phase, steps = self.entry["error"]["phase"].text, self.entry["pipeline"].items()
        making = (each for each in steps if each["name"].text == _STEP)
        early = phase in _EARLY or any(not each["started"].present for each in making)
        if self.is_local:
            return not (early or phase in (_CREATION, None)) or bool(unlisted(cluster, VM))
        return not early or len(tuple(_runs(self.plan))) > 1

    def stopped(self) -> bool:
        """Whether it stopped the source, failed, and the source is off since then."""
        if self.source is None or self.source.at("status", "printableStatus").text != "Stopped":
            return False
        stopped = clock.instant(self.source.condition("Ready")["lastTransitionTime"].text)
        failed = clock.instant(self.entry["completed"].text)
        before = stopped is not None and failed is not None and stopped <= failed
        was_on = self.entry["restorePowerState"].text == "On"
        return was_on and before and self.entry["error"].present

    def left_off(self, cluster: Cluster) -> bool:
        """Whether it stopped the source, which no new VM keeps from running again."""
        if self.source is None or not self.stopped() or self.may_exist(cluster):
            return False
        return not may_have_copy(self.source, cluster)

    def words(self, cluster: Cluster) -> str:
        """What it means for a source that is off; empty: nothing that is known."""
        begin = f"Plan {self.plan.full_name}"
        if not self.is_over:
            begun = "migrates" if self.plan.is_true("Executing") else "has begun to migrate"
            return f"{begin} {begun if self.entry['started'].present else 'is to migrate'} it"
        if self.has_succeeded:
            ago = clock.past(self.entry["completed"].text, cluster)
            return f"{begin} migrated it{ago} to {self.new_vm}"
        if not self.stopped():
            return ""
        words = f"{begin} stopped it to migrate it, and failed"
        if self.made(cluster) is not None:
            return f"{words}; {self.new_vm} exists already"
        if self.may_exist(cluster):
            unsure = f"whether {self.new_vm} exists is not known"
            return f"{words}; {unsure}: look there before this VM is started"
        return words


_NOT_MOVED: Final = {"Canceled", "Failed"}
_STEP: Final = "VirtualMachineCreation"
"""The step of a pipeline that makes the new VM (:pkg/controller/plan/migrator/base/doc.go)."""


def of(plan: Object, cluster: Cluster) -> Problem | None:
    """Return why the last run of a Plan failed; None: it did not, or all moved since then.

    Raises:
        Unseen: another Plan may have migrated its VMs since.
    """
    moves = _moves(plan, cluster) if _has_failed(plan) else ()
    found = [move for move in moves if _was_last(move, cluster)]
    if not found:
        return None
    if unread := unlisted(cluster, FORKLIFT_PLAN):
        raise Unseen(unread)
    return _problem(found, cluster)


def _problem(found: Sequence[PlannedMove], cluster: Cluster) -> Problem:
    """Return why VMs were not migrated, first one that is left off."""
    off = [each for each in found if each.left_off(cluster)]
    first = (off or found)[0]
    phase, history = first.entry["error"]["phase"], list(_runs(first.plan))
    run = history[-1].at("migration", "name").text if history else None
    more = f" (and {count(len(found) - 1, 'more VM')})" if len(found) > 1 else ""
    ago = clock.past(first.entry["completed"].text, cluster)
    reason = f"the migration of VM {first.name}{more} failed{ago}"
    reason += f" in Migration {run}" if run else ""
    reason += f" at {phase.text}" if phase.text else ""
    reason += f" and left {f'{len(off)} VMs' if len(off) > 1 else 'it'} off" if off else ""
    why = f": {held_copies.refusal(first.error)}" if first.error else ""
    if first.source is not None and first.may_exist(cluster):
        return _beside(first, f"{reason}{why}", cluster)
    start = _start([each.source for each in off if each.source is not None])
    refused = _of_mac(first, reason, start, cluster)
    if refused is not None:
        return refused
    words = f"{start}remove the cause, and start the plan again with a new Migration"
    return Problem(f"{reason}{why}", words, command=about("describe", first.plan, FORKLIFT_PLAN))


def _beside(move: PlannedMove, reason: str, cluster: Cluster) -> Problem:
    """Return the problem of a VM whose new VM exists or may exist: a new run meets its
    name and those of its disks, or makes a second copy."""
    made = move.made(cluster)
    exists, see = ("exists already", "is") if made is not None else ("may exist", "is there and")
    return Problem(
        f"{reason}; {move.new_vm} {exists}",
        f"see first whether that VM {see} complete: then it needs no new run. Never run both VMs",
        command=about(
            "describe", *((made, VM) if made is not None else (move.plan, FORKLIFT_PLAN))
        ),
    )


def _start(off: Sequence[Object]) -> str:
    """Return the words that start sources again; empty: there is none."""
    if not off:
        return ""
    command = virtctl("start", off[0].name, off[0].namespace)
    if len(off) == 1:
        return f"start that VM again meanwhile ({command}); "
    all_of_them = names(each.full_name for each in off)
    return f"start {all_of_them} again meanwhile (the first: {command}); "


def why_off(vm: Object, cluster: Cluster) -> str:
    """Return what Plans did to a VM that is off, the newest first; empty: nothing is known."""
    moves = sorted(_of(vm, cluster), key=lambda each: each.ended, reverse=True)
    return "; ".join(list(filter(None, (each.words(cluster) for each in moves)))[:2])


def may_have_copy(vm: Object, cluster: Cluster) -> bool:
    """Return whether a Plan moves a VM, or may have made its new VM, beside which it must not
    run."""
    return any(each.may_exist(cluster) for each in _of(vm, cluster))


def about_vm(vm: Object, cluster: Cluster) -> Iterator[tuple[Object, Problem]]:
    """Yield the Plan whose last run failed to migrate a VM, with why."""
    if unlisted(cluster, FORKLIFT_PLAN):
        return
    for mine in _of(vm, cluster):
        if _has_failed(mine.plan) and _was_last(mine, cluster):
            yield mine.plan, _problem([mine], cluster)


def _of(vm: Object, cluster: Cluster) -> Sequence[PlannedMove]:
    return entry(cluster, _by_source, vm.metadata["uid"].text or "-") or ()


def _of_mac(found: PlannedMove, reason: str, start: str, cluster: Cluster) -> Problem | None:
    """Return the problem of a VM whose MAC address another VM has; None: it is not known."""
    source = found.source
    if source is None or not found.is_local or not mac_addresses.is_refused(found.error):
        return None
    if unlisted(cluster, VM):
        return None
    named = mac_addresses.named(found.error)
    wanted = [mac for _, mac in mac_addresses.macs(source.at("spec", "template", "spec"))]
    asked = [mac for mac in wanted if not named or mac in named]
    others = [mac_addresses.holder(mac, source.full_name, cluster) for mac in asked]
    if not asked or (len(asked) > 1 and others.count(None) < len(others)):
        return None
    what = f"MAC address {asked[0]}" if len(asked) == 1 else "one of the MAC addresses"
    words = f"{reason}: KubeMacPool refuses {what}, which"
    if others[0] is not None:
        has = f"{words} VM {others[0].full_name} has too"
        way = f"{start}give one of them another address, and start the plan again"
        return Problem(has, way, command=about("edit", source, VM))
    space = found.plan.at("spec", "targetNamespace").text or ""
    way = (
        f"{start}let KubeMacPool ignore namespace {space} (label {_IGNORE}) while the plan "
        "runs again, never run both VMs, and take the label off afterwards"
    )
    labels = shell("kubectl", "get", "namespace", argument(space), "--show-labels")
    return Problem(f"{words} that VM keeps, for VM {space}/{source.name}", way, command=labels)


def _by_source(cluster: Cluster) -> Mapping[str, Sequence[PlannedMove]]:
    """Return the moves of each VM by its id, which is its uid where it is one of this cluster."""
    moves = (each for plan in cluster.known(FORKLIFT_PLAN) for each in _moves(plan, cluster))
    return grouped(moves, _key)


def _key(move: PlannedMove) -> str:
    """Return what all moves of a VM have in common: its id. An entry without one is compared within
    its Plan alone."""
    return move.entry["id"].text or f"{move.plan.full_name}/{move.entry['name'].text or ''}"


def _moves(plan: Object, cluster: Cluster) -> Iterator[PlannedMove]:
    is_one = _is_one_cluster(plan, cluster)
    for each in plan.at("status", "migration", "vms").items():
        uid, is_local = each["id"].text, is_one and all(_target(plan, each))
        yield PlannedMove(plan, each, entry(cluster, _by_uid, uid) if uid else None, is_local)


def _target(plan: Object, of_vm: Field) -> tuple[str, str]:
    """Return namespace and name of the new VM; empty: not known."""
    given = (of_vm[key].text for key in ("newName", "targetName", "name"))
    return plan.at("spec", "targetNamespace").text or "", next(filter(None, given), "")


def _is_one_cluster(plan: Object, cluster: Cluster) -> bool:
    """Return whether both Providers of a Plan are certainly of one cluster.

    A namespace may have its own Provider of the cluster of Forklift, which has no URL
    (:pkg/apis/forklift/v1beta1/provider.go#IsHost #IsRestrictedHost).
    """
    ends = [plan.at("spec", "provider", end) for end in ("source", "destination")]
    source, target = [(end["namespace"].text, end["name"].text) for end in ends]
    if source == target:
        return None not in source
    urls = [_url(namespace, name, cluster) for namespace, name in (source, target)]
    return urls[0] is not None and urls[0] == urls[1]


def _url(namespace: str | None, name: str | None, cluster: Cluster) -> str | None:
    """Return the URL of a cluster of KubeVirt, empty for that of Forklift; None: not known."""
    found = find(cluster, FORKLIFT_PROVIDER, namespace or "", name)
    if found is None or found.at("spec", "type").text != _OPENSHIFT:
        return None
    url = found.at("spec", "url")
    return (url.text or "").rstrip("/") if url.text is not None or not url.present else None


def _has_failed(plan: Object) -> bool:
    """Return whether the last run of a Plan failed."""
    over = plan.is_true("Failed") and not plan.is_true("Executing") and not plan.deleted
    return over and not plan.at("spec", "archived").boolean


def _was_last(move: PlannedMove, cluster: Cluster) -> bool:
    """Return whether a move failed as the last one of its VM, by any Plan."""
    every = entry(cluster, _by_source, _key(move)) or ()
    end = move.entry["completed"].text or ""
    return move.entry["error"].present and all(each.ended <= end for each in every)


def _by_uid(cluster: Cluster) -> Mapping[str, Object]:
    return {uid: vm for vm in cluster.known(VM) if (uid := vm.metadata["uid"].text)}


def _runs(plan: Object) -> Iterator[Field]:
    return plan.at("status", "migration", "history").items()
