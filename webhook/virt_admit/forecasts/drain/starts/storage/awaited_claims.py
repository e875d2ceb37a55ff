"""Claims that stay Pending on purpose: another controller fills their volume before it binds them.

A claim with a data source of another API group is filled by the controller of that kind, such as
VolSync or Forklift, and no provisioner makes an empty volume for it. Velero writes a selector into
the claims whose data it moves from a backup, and creates a DataDownload for each. At its end Velero
makes a PersistentVolume with that label. Until then the provisioner says that selectors are not
supported, and kube-scheduler that the claim is not bound. Velero skips a claim that exists.
Sources: vmware-tanzu/velero:pkg/restore/actions/csi/pvc_action.go#restoreFromDataUploadResult
#Execute, :design/volume-snapshot-data-movement, :pkg/apis/velero/v2alpha1/data_download_types.go,
:pkg/cmd/server/config/config.go (time limits), issue #8584;
kubernetes-csi/lib-volume-populator:populator-machinery/controller.go.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, PVC, STORAGE_CLASS, VMI, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.units import parse_duration
from virt_admit.model.kubevirt.instances import migratability, vms
from virt_admit.model.lookups import fields, find
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.resources import show

_CHOSEN: Final = "volume.kubernetes.io/selected-node"
READS: Final[Reads] = {
    STORAGE_CLASS: (),
    VMI: ("metadata.creationTimestamp",),
    PVC: (
        f"metadata.annotations.{_CHOSEN}",
        *("metadata.creationTimestamp", "spec.dataSourceRef", "spec.selector"),
        *("spec.storageClassName", "spec.volumeName", "status.phase"),
    ),
}
DATA_DOWNLOAD: Final = Kind("velero.io", ("v2alpha1",), "datadownloads", "DataDownload")
"""Discovery finds its objects in a cluster."""
_RESTORE: Final = Kind("velero.io", ("v1",), "restores", "Restore")
_SELECTOR: Final = "velero.io/dynamic-pv-restore"
_ENDED: Final = ("Failed", "Canceled")
_WORKS: Final = ("InProgress", "Canceling")
_AWAITS: Final = "Accepted"
"""In which a node agent waits until a pod uses the claim (:pkg/exposer/generic_restore.go#Expose).
"""
_LONGEST: Final = 160
_BIND: Final = timedelta(minutes=10)
"""A claim is bound within seconds after its volume was made."""
_PREPARE: Final = timedelta(minutes=30)
"""The default of ``--data-mover-prepare-timeout``. Node agents move few volumes at once, so that
others wait for longer."""
_OPERATION: Final = timedelta(hours=4)
"""The default of ``--default-item-operation-timeout``, after which Velero cancels."""


class AwaitedClaim(NamedTuple):
    """A claim whose volume another controller is to make."""

    claim: str
    words: str
    """Why it is Pending."""
    problem: Problem | None
    """What keeps that controller from it; None: it goes on, or that is not known."""
    awaits_node: bool = False
    """Whether a node has to be chosen for the first pod before."""

    @property
    def of_vm(self) -> Problem | None:
        """The problem in words about the VM."""
        problem = self.problem
        return problem._replace(reason=f"{self.pending}: {problem.reason}") if problem else None

    @property
    def pending(self) -> str:
        return f"its claim {self.claim} is Pending"


def waiting(obj: Object, cluster: Cluster) -> AwaitedClaim | None:
    """Return the claim of a VM or VMI that another controller is to bind, one that it does not go
    on with first; None: there is none.
    """
    names = (migratability.claim_of(each) for each in vms.vmi_spec(obj)["volumes"].items())
    claims = (
        find(cluster, PVC, vms.namespace_of(obj), name.text)
        for name in names
        if name is not None and name.text
    )
    started = obj.created if obj.kind == VMI.kind else ""
    known = (of(claim, cluster, started) for claim in claims if claim is not None)
    found = list(filter(None, known))
    return next((each for each in found if each.problem), found[0] if found else None)


def of(claim: Object, cluster: Cluster, started: str = "") -> AwaitedClaim | None:
    """Return what another controller does about a claim; None: it has a volume, or gets one from
    its provisioner.

    Args:
        started: when the VMI of the claim was made; empty: it is not known.
    """
    pending = claim.at("status", "phase").text in (None, "", "Pending")
    if not pending or claim.at("spec", "volumeName").text:
        return None
    named = find(cluster, STORAGE_CLASS, "", claim.at("spec", "storageClassName").text)
    waits = named is not None and named["volumeBindingMode"].text == "WaitForFirstConsumer"
    awaits = waits and not claim.annotations.get(_CHOSEN)
    if claim.at("spec", "selector", "matchLabels", _SELECTOR).present:
        found: AwaitedClaim | None = _of_velero(claim, awaits, cluster)
    else:
        found = _of_populator(claim, awaits, started if waits else "", cluster)
    return found._replace(awaits_node=awaits) if found is not None else None


_PROVISIONED: Final = (None, "", "snapshot.storage.k8s.io", DATA_VOLUME.group)
"""API groups of the data sources that provisioners copy, and that CDI fills, which is judged with
its data volumes."""
_FILLED: Final = timedelta(hours=1)
"""A copy of much data may last longer, and is worth a look then."""


def _of_populator(
    claim: Object, awaits: bool, started: str, cluster: Cluster
) -> AwaitedClaim | None:
    source = claim.at("spec", "dataSourceRef")
    group, kind, name = (source[key].text for key in ("apiGroup", "kind", "name"))
    if group in _PROVISIONED or not group or not kind or not name:
        return None
    begun = max(claim.created, started)
    lasts, age = clock.lasting(begun, cluster), clock.since(begun, cluster)
    words = f"the controller of {kind} {name} ({group}) is to fill its volume"
    if awaits:
        going = f"{words} {_FIRST}. The claim stays Pending until then"
        return AwaitedClaim(claim.name, going, None)
    if age is None or age < _FILLED:
        going = (
            f"{words}{lasts.replace(' for ', ', since ', 1)}. The claim stays Pending until then"
        )
        return AwaitedClaim(claim.name, going, None)
    namespace = source["namespace"].text or claim.namespace
    shown = kubectl("describe", kinds.guess(f"{group}/v1", kind), name, namespace)
    return _stopped(
        claim,
        f"{words}, and has not done so{lasts}",
        f"see what {kind} {name} reports, and leave the claim: its data come from there",
        shown,
    )


_FIRST: Final = "as soon as a node is chosen for the first pod of its VM"


def _of_velero(claim: Object, awaits: bool, cluster: Cluster) -> AwaitedClaim:
    """Return what Velero does about a claim with its selector."""
    download = _download(claim, cluster)
    if download is None:
        return _without_download(claim, cluster)
    phase = download.at("status", "phase").text or "New"
    called = f"DataDownload {download.full_name}"
    if phase in _ENDED:
        said = download.at("status", "message").words
        why = f": {cut_middle(said, _LONGEST)}" if said else ""
        begin = f"Velero has not restored its data: {called} is {phase}{why}"
        remedy = f"{'correct what it says, then ' if said else ''}{_again(claim, cluster)}"
        return _stopped(claim, begin, remedy, about("describe", download, DATA_DOWNLOAD))
    if phase == "Completed":
        return _completed(claim, download, called, cluster)
    lasts = clock.lasting(_since(download), cluster)
    words = f"Velero restores its data ({called}, {phase}{lasts}{_part(download)}). {_ON_PURPOSE}"
    if awaits and phase == _AWAITS:
        return AwaitedClaim(claim.name, f"{words}. It goes on {_FIRST}", None)
    return AwaitedClaim(claim.name, words, _late(download, phase, called, cluster))


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


def _stopped(claim: Object, words: str, remedy: str, command: str) -> AwaitedClaim:
    problem = Problem(words, typed(remedy, command), ProblemCause.NOT_REPORTED)
    return AwaitedClaim(claim.name, words, problem)


def _download(claim: Object, cluster: Cluster) -> Object | None:
    """Return the newest DataDownload for a claim; None: none, or for a former claim."""
    created = claim.created
    own = [
        each
        for each in cluster.known(DATA_DOWNLOAD)
        if each.at("spec", "targetVolume", "pvc").text == claim.name
        and each.at("spec", "targetVolume", "namespace").text == claim.namespace
        and (each.at("status", "completionTimestamp").text or created) >= created
    ]
    return max(own, key=lambda each: each.created, default=None)


def _without_download(claim: Object, cluster: Cluster) -> AwaitedClaim:
    age = clock.age(claim, cluster)
    if unlisted(cluster, DATA_DOWNLOAD) or age is None or age < _BIND:
        words = f"Velero is to make its volume (selector {_SELECTOR}). {_ON_PURPOSE}"
        return AwaitedClaim(claim.name, words, None)
    words = (
        f"Velero was to make its volume (selector {_SELECTOR}), and no DataDownload for it exists "
        "any more, as after its Restore was deleted"
    )
    return _stopped(claim, words, _again(claim, cluster), "kubectl get restores.velero.io -A")


def _completed(claim: Object, download: Object, called: str, cluster: Cluster) -> AwaitedClaim:
    ended = download.at("status", "completionTimestamp").text
    age = clock.since(ended, cluster)
    words = f"{called} of Velero is Completed{clock.lasting(ended, cluster)}"
    if age is None or age < _BIND:
        return AwaitedClaim(claim.name, f"{words}, so that the claim is bound now", None)
    label = f"{_SELECTOR}={claim.at('spec', 'selector', 'matchLabels', _SELECTOR).text}"
    return _stopped(
        claim,
        f"{words}, and no PersistentVolume with its label is bound to the claim",
        "see whether that PersistentVolume exists and fits; the data are in the backup, too",
        f"kubectl get persistentvolumes -l {label}",
    )


def _late(download: Object, phase: str, called: str, cluster: Cluster) -> Problem | None:
    """Return that Velero takes longer than it may; None: no, or others come first."""
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
    lasts = f"{clock.duration(age)}{_part(download)}"
    reason = (
        f"{called} of Velero, which restores its data, is {phase} for {lasts}, longer than the "
        f"{clock.duration(limit)} that {may}"
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
    restore = fields(cluster, _RESTORE, download.namespace, download.owned_by("Restore"))
    try:
        given = parse_duration(restore.at("spec", "itemOperationTimeout").value)
        return timedelta(microseconds=given / 1000)
    except ValueError:
        return _OPERATION


def _since(download: Object) -> str | None:
    return download.at("status", "startTimestamp").text or download.created


def _part(download: Object) -> str:
    """Return ``, 64Gi of 100Gi``; empty: it reports none."""
    progress = download.at("status", "progress")
    done, total = progress["bytesDone"].integer, progress["totalBytes"].integer
    return f", {show('storage', done or 0)} of {show('storage', total)}" if total else ""
