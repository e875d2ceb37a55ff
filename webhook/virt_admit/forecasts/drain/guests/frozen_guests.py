"""Guests whose file systems are frozen: for a copy of their disks, or since what froze them did not
thaw them.

virt-launcher thaws a guest by itself after five minutes, unless the freeze asks for another time.
Velero freezes and thaws guests with the hooks on the pods of VMs while it copies their claims. To
thaw a guest during the copy spoils it. Sources: kubevirt/kubevirt:cmd/virt-freezer/virt-freezer.go,
:pkg/virt-launcher/virtwrap/manager.go#FreezeVMI, :docs/freeze.md;
vmware-tanzu/velero:pkg/apis/velero/v1/backup_types.go#BackupPhaseInProgress.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Final

from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import VM_SNAPSHOT, VOLUME_SNAPSHOT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.messages import names

_BACKUP: Final = kinds.guess("velero.io/v1", "Backup")
"""Only snapshots of a cluster hold them."""
_CLAIM: Final = "PersistentVolumeClaim"
_VM: Final = "VirtualMachine"
_THAWED_WITHIN: Final = timedelta(minutes=5)


def is_frozen(vmi: Object) -> bool:
    """Return whether KubeVirt reports that the file systems of a guest are frozen."""
    return vmi.at("status", "fsFreezeStatus").text == "frozen"


def words(vmi: Object, cluster: Cluster) -> str:
    """Return that a guest is frozen, for which copy, and what thaws it; empty: it is not."""
    if not is_frozen(vmi):
        return ""
    begin = "its file systems are frozen"
    thaw = shell("virtctl", "unfreeze", argument(vmi.name), "-n", vms.namespace_of(vmi))
    cannot = "so its applications cannot write"
    default = f"after {clock.duration(_THAWED_WITHIN)} by default"
    copies = list(_copies(vmi, cluster))
    backups = [f"Backup {each.full_name}" for each in _backups(vmi, cluster)]
    young = [each for each in copies if (clock.age(each, cluster) or _NONE) < _THAWED_WITHIN]
    if young or backups:
        own = [f"{each.kind} {each.name}" for each in young if each.kind == VM_SNAPSHOT.kind]
        others = (f"{each.kind} {each.name}" for each in young if each.kind != VM_SNAPSHOT.kind)
        what = names(own or [*backups, *others])  # it makes the others of its claims
        return f"{begin} for {what}, {cannot}. That ends by itself: KubeVirt thaws them {default}"
    if copies:
        first = copies[0]
        age = clock.duration(clock.age(first, cluster) or _NONE)
        open_end = f"{first.kind} {first.name} is not complete after {age}"
        return f"{begin}, {cannot}. {open_end}. Once no copy of its disks needs the freeze: {thaw}"
    return (
        f"{begin}, {cannot}. KubeVirt thaws them {default}. If they stay frozen, and no backup of "
        f"it runs: {thaw}"
    )


_NONE: Final = timedelta()


def _copies(vmi: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the snapshots of a VM and of its claims that are not complete, the newest first.

    One that has failed, or is older than a copy takes, does not explain the freeze.
    """
    namespace, claims = vms.namespace_of(vmi), set(launcher_pod.claims(vmi["spec"]))
    found = [
        each
        for kind, sources in ((_CLAIM, sorted(claims)), (_VM, [vmi.name]))
        for name in sources
        for each in entry(cluster, _by_source, (namespace, kind, name)) or ()
    ]
    open_ends = [each for each in found if not each.deleted and not _has_ended(each, cluster)]
    yield from sorted(open_ends, key=lambda each: each.created, reverse=True)


def _by_source(cluster: Cluster) -> Mapping[tuple[str, str, str], Sequence[Object]]:
    """Return the snapshots by namespace, kind and name of what they copy."""
    found: dict[tuple[str, str, str], list[Object]] = {}
    for each in (*cluster.known(VOLUME_SNAPSHOT), *cluster.known(VM_SNAPSHOT)):
        source = each.at("spec", "source")
        claim = source["persistentVolumeClaimName"].text
        kind, name = (_CLAIM, claim) if claim else (source["kind"].text, source["name"].text)
        found.setdefault((each.namespace, kind or "", name or ""), []).append(each)
    return found


_ABANDONED: Final = timedelta(days=1)


def _has_ended(snapshot: Object, cluster: Cluster) -> bool:
    status, age = snapshot["status"], clock.age(snapshot, cluster)
    complete = status["readyToUse"].boolean is True or status["phase"].text in (
        "Succeeded",
        "Failed",
    )
    return complete or status["error"].present or (age is not None and age > _ABANDONED)


def _backups(vmi: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the backups of Velero that run now and cover the namespace of a VM."""
    namespace = vms.namespace_of(vmi)
    for backup in cluster.known(_BACKUP):
        included, excluded = (
            [each.text or "" for each in backup.at("spec", f"{word}Namespaces").items()]
            for word in ("included", "excluded")
        )
        covered = (not included or _matches(namespace, included)) and not _matches(
            namespace, excluded
        )
        if covered and backup.at("status", "phase").text == "InProgress":
            yield backup


def _matches(namespace: str, patterns: Sequence[str]) -> bool:
    """Return whether a namespace is named, by its name or by a pattern such as ``shop*``."""
    return any(fnmatchcase(namespace, each) for each in patterns)
