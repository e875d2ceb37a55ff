"""Claims that stay Pending on purpose: Velero moves the data of a backup into their volume first.

Velero writes a selector into such a claim, so that no provisioner makes an empty volume for it, and
creates a DataDownload. At its end Velero makes a PersistentVolume with that label. Until then the
provisioner says that selectors are not supported, and kube-scheduler that the claim is not bound. A
claim that exists is never restored again. Sources: vmware-tanzu/velero:
pkg/restore/actions/csi/pvc_action.go#restoreFromDataUploadResult #Execute,
design/volume-snapshot-data-movement, pkg/apis/velero/v2alpha1/data_download_types.go,
pkg/cmd/server/config/config.go (default time limits); issue #8584.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, PVC, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.units import parse_duration
from virt_admit.model.kubevirt.instances import migratability, vms
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.resources import show

READS: Final[Reads] = {
    PVC: ("metadata.creationTimestamp", "spec.selector", "spec.volumeName", "status.phase")
}
DATA_DOWNLOAD: Final = Kind("velero.io", ("v2alpha1",), "datadownloads", "DataDownload")
"""Discovery finds its objects in a cluster."""
_RESTORE: Final = Kind("velero.io", ("v1",), "restores", "Restore")
_SELECTOR: Final = "velero.io/dynamic-pv-restore"
_ENDED: Final = ("Failed", "Canceled")
_WORKS: Final = ("InProgress", "Canceling")
_LONGEST: Final = 160
_BIND: Final = timedelta(minutes=10)
"""A claim is bound within seconds after its volume was made."""
_PREPARE: Final = timedelta(minutes=30)
"""The default of ``--data-mover-prepare-timeout``. Node agents move few volumes at once, so that
others wait for longer."""
_OPERATION: Final = timedelta(hours=4)
"""The default of ``--default-item-operation-timeout``, after which Velero cancels."""


class RestoredClaim(NamedTuple):
    """A claim whose volume Velero is to make."""

    claim: str
    words: str
    """Why it is Pending."""
    problem: Problem | None
    """What keeps Velero from that; None: it goes on, or that is not known."""

    @property
    def of_vm(self) -> Problem | None:
        """The problem in words about the VM."""
        problem = self.problem
        return problem._replace(reason=f"{self.pending}: {problem.reason}") if problem else None

    @property
    def pending(self) -> str:
        return f"its claim {self.claim} is Pending"


def waiting(obj: Object, cluster: Cluster) -> RestoredClaim | None:
    """Return the claim of a VM or VMI that Velero is to bind, one that it does not go on with
    first; None: there is none.
    """
    names = (migratability.claim_of(each) for each in vms.vmi_spec(obj)["volumes"].items())
    claims = (
        find(cluster, PVC, vms.namespace_of(obj), name.text)
        for name in names
        if name is not None and name.text
    )
    found = [each for claim in claims if claim is not None and (each := of(claim, cluster))]
    return next((each for each in found if each.problem), found[0] if found else None)


def of(claim: Object, cluster: Cluster) -> RestoredClaim | None:
    """Return what Velero does about a claim; None: the claim has a volume, or none of Velero."""
    marked = claim.at("spec", "selector", "matchLabels", _SELECTOR).present
    pending = claim.at("status", "phase").text in (None, "", "Pending")
    if not marked or not pending or claim.at("spec", "volumeName").text:
        return None
    download = _download(claim, cluster)
    if download is None:
        return _without_download(claim, cluster)
    phase = download.at("status", "phase").text or "New"
    called = f"DataDownload {download.full_name}"
    if phase in _ENDED:
        said = " ".join((download.at("status", "message").text or "").split())
        why = f": {cut_middle(said, _LONGEST)}" if said else ""
        begin = f"Velero has not restored its data: {called} is {phase}{why}"
        remedy = f"{'correct what it says, then ' if said else ''}{_again(claim, cluster)}"
        return _stopped(claim, begin, remedy, about("describe", download, DATA_DOWNLOAD))
    if phase == "Completed":
        return _completed(claim, download, called, cluster)
    lasts = clock.lasting(_since(download), cluster)
    words = f"Velero restores its data ({called}, {phase}{lasts}{_part(download)}). {_ON_PURPOSE}"
    late = _late(download, phase, called, cluster)
    return RestoredClaim(claim.name, words, late)


_ON_PURPOSE: Final = (
    "It stays Pending on purpose until that ends, and its provisioner may say that claim Selector "
    "is not supported: leave the claim and its selector, and wait"
)


def _again(claim: Object, cluster: Cluster) -> str:
    """Return how to get the data, which are in the backup alone.

    CDI makes the claim of a DataVolume again, and fills it from another source.
    """
    of_disk = find(cluster, DATA_VOLUME, claim.namespace, claim.name) is not None
    with_disk = " with its DataVolume, which CDI would fill from its own source" if of_disk else ""
    return (
        f"stop the VM, and restore this claim again from its backup{with_disk}: Velero skips a "
        "claim that exists, and this one has no volume. Do not take out its selector, as it would "
        "get an empty volume"
    )


def _stopped(claim: Object, words: str, remedy: str, command: str) -> RestoredClaim:
    problem = Problem(words, typed(remedy, command), ProblemCause.NOT_REPORTED)
    return RestoredClaim(claim.name, words, problem)


def _download(claim: Object, cluster: Cluster) -> Object | None:
    """Return the newest DataDownload for a claim; None: none is known, or one for a former claim."""
    created = claim.metadata["creationTimestamp"].text or ""
    own = [
        each
        for each in cluster.known(DATA_DOWNLOAD)
        if each.at("spec", "targetVolume", "pvc").text == claim.name
        and each.at("spec", "targetVolume", "namespace").text == claim.namespace
        and (each.at("status", "completionTimestamp").text or created) >= created
    ]
    return max(own, key=lambda each: each.metadata["creationTimestamp"].text or "", default=None)


def _without_download(claim: Object, cluster: Cluster) -> RestoredClaim:
    age = clock.since(claim.metadata["creationTimestamp"].text, cluster)
    if unlisted(cluster, DATA_DOWNLOAD) or age is None or age < _BIND:
        words = f"Velero is to make its volume (selector {_SELECTOR}). {_ON_PURPOSE}"
        return RestoredClaim(claim.name, words, None)
    words = (
        f"Velero was to make its volume (selector {_SELECTOR}), and no DataDownload for it exists "
        "any more, as after its Restore was deleted"
    )
    return _stopped(claim, words, _again(claim, cluster), "kubectl get restores.velero.io -A")


def _completed(claim: Object, download: Object, called: str, cluster: Cluster) -> RestoredClaim:
    ended = download.at("status", "completionTimestamp").text
    age = clock.since(ended, cluster)
    words = f"{called} of Velero is Completed{clock.lasting(ended, cluster)}"
    if age is None or age < _BIND:
        return RestoredClaim(claim.name, f"{words}, so that the claim is bound now", None)
    label = f"{_SELECTOR}={claim.at('spec', 'selector', 'matchLabels', _SELECTOR).text}"
    return _stopped(
        claim,
        f"{words}, and no PersistentVolume with its label is bound to the claim",
        "see whether that PersistentVolume exists and fits; the data are in the backup, too",
        f"kubectl get persistentvolumes -l {label}",
    )


def _late(download: Object, phase: str, called: str, cluster: Cluster) -> Problem | None:
    """Return that Velero takes longer than it may; None: it does not, or has other volumes first."""
    limit = _limit(download, cluster) if phase in _WORKS else _PREPARE
    age = clock.since(_since(download), cluster)
    if age is None or age <= limit:
        return None
    others = any(
        each.at("status", "phase").text in _WORKS and each.name != download.name
        for each in cluster.known(DATA_DOWNLOAD)
    )
    if phase not in _WORKS and (others or unlisted(cluster, DATA_DOWNLOAD)):
        return None
    may = "Velero allows" if phase in _WORKS else "Velero takes to prepare one"
    reason = (
        f"{called} of Velero, which restores its data, is {phase} for "
        f"{clock.duration(age)}{_part(download)}, longer than the {clock.duration(limit)} that {may}"
    )
    words = (
        f"see what Velero and its node agents in namespace {download.namespace} log about it. "
        "Leave the claim and its selector"
    )
    return Problem(
        reason,
        typed(words, f"kubectl logs daemonset/node-agent -n {download.namespace}"),
        ProblemCause.NOT_REPORTED,
    )


def _limit(download: Object, cluster: Cluster) -> timedelta:
    """Return after which time Velero cancels a download."""
    owner = download.controller
    name = owner["name"].text if owner is not None and owner["kind"].text == "Restore" else None
    restore = find(cluster, _RESTORE, download.namespace, name) if name else None
    given = restore.at("spec", "itemOperationTimeout").value if restore is not None else None
    try:
        return timedelta(microseconds=parse_duration(given) / 1000)
    except ValueError:
        return _OPERATION


def _since(download: Object) -> str | None:
    return (
        download.at("status", "startTimestamp").text or download.metadata["creationTimestamp"].text
    )


def _part(download: Object) -> str:
    """Return ``, 64Gi of 100Gi``; empty: it reports none."""
    progress = download.at("status", "progress")
    done, total = progress["bytesDone"].integer, progress["totalBytes"].integer
    return f", {show('storage', done or 0)} of {show('storage', total)}" if total else ""
