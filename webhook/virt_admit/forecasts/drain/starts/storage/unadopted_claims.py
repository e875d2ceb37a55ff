"""DataVolumes of a VM that CDI refuses, as a claim of their name exists that none of them owns.

A restore leaves such claims. Sources: kubevirt/containerized-data-importer:pkg/apiserver/webhooks/
datavolume-validate.go, :pkg/controller/common/util.go#ClaimMayExistBeforeDataVolume, :doc/
datavolume-claim-adoption.md (since 1.59); kubevirt/kubevirt:pkg/storage/types/dv.go
#GenerateDataVolumeFromTemplate (sets the annotation since 1.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from virt_admit.forecasts.placement import volume_attachments
from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.kubernetes import events
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, POD, PVC, VM, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod, vm_ledger
from virt_admit.model.lookups import find, is_absent
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause

_VOLUMES: Final = (
    "volumes.persistentVolumeClaim",
    "volumes.dataVolume",
    "volumes.memoryDump.claimName",
    "volumes.ephemeral.persistentVolumeClaim.claimName",
    "utilityVolumes.claimName",
)
READS: Final[Reads] = union(
    volume_attachments.READS,
    {
        PVC: ("metadata.ownerReferences", "spec.resources.requests.storage", "status.phase"),
        DATA_VOLUME: ("metadata.name",),
        VM: (
            "spec.dataVolumeTemplates.metadata.name",
            *(f"spec.template.spec.{each}" for each in _VOLUMES),
        ),
        VMI: tuple(f"spec.{each}" for each in _VOLUMES),
    },
)
EVENT: Final = "FailedDataVolumeCreate"
_SAID: Final = re.compile(r"Destination PVC ([\w-]{1,63})/([\w.-]{1,253}) already exists")
_ADOPT: Final = "cdi.kubevirt.io/allowClaimAdoption"


def refused(vm: Object, cluster: Cluster) -> Object | None:
    """Return the claim because of which CDI refuses a DataVolume of a VM; None: it does not."""
    said = vm.condition("Failure")["message"].words if vm.is_true("Failure") else ""
    for words in (said, events.last_warning(vm, EVENT, None, cluster)) if said else ():
        if (found := _SAID.search(words)) is None:
            continue
        namespace, name = vms.namespace_of(vm), found[2]
        claim = find(cluster, PVC, namespace, name)
        if claim is None or claim.deleted or not is_absent(cluster, DATA_VOLUME, namespace, name):
            continue
        if not claim.owned_by(DATA_VOLUME.kind):
            return claim
    return None


def problem(vm: Object, lasts: str, cluster: Cluster) -> Problem | None:
    """Return which claim keeps CDI from creating a disk of a VM, and what ends that; None:
    no claim does.

    ``lasts``: since when.
    """
    claim = refused(vm, cluster)
    if claim is None:
        return None
    size = claim.at("spec", "resources", "requests", "storage").text
    state = ", ".join(filter(None, (claim.at("status", "phase").text, size)))
    owner, users = _owner(claim), tuple(_users(vm, claim, cluster))
    whose = "no DataVolume"
    if owner is not None:
        whose = "the VM itself" if _is(owner, vm) else _named(owner)
    used = f", and {names(users)} use{'s' * (len(users) == 1)} it" if users else ""
    begin = f"DataVolume {claim.name} of its dataVolumeTemplates does not exist, and CDI refuses it"
    exists = f"claim {claim.full_name} ({state}) exists already and belongs to {whose}{used}"
    reason = f"KubeVirt cannot create its DataVolumes{f' {lasts}' if lasts else ''}: "
    return Problem(
        f"{reason}{begin}, as {exists}",
        _remedy(vm, claim, owner, users, cluster),
        ProblemCause.NOT_REPORTED,
        brief=f"CDI refuses DataVolume {claim.name}, as {exists}",
    )


def _owner(claim: Object) -> Field | None:
    """Return the owner of a claim, with which it is deleted; None: it has none."""
    return claim.controller or next(claim.metadata["ownerReferences"].items(), None)


def _named(owner: Field) -> str:
    return f"{owner['kind'].text} {owner['name'].text}"


def _is(owner: Field, vm: Object) -> bool:
    """Return whether a VM is the owner: a restore makes it that of the claims that it restores
    (kubevirt/kubevirt:pkg/storage/snapshot/restore.go)."""
    return owner["kind"].text == VM.kind and owner["name"].text == vm.name


def _users(vm: Object, claim: Object, cluster: Cluster) -> Iterator[str]:
    """Yield the pods and the other VMs that use a claim: a VM that is stopped keeps its disks."""
    known = entry(cluster, _machines, (claim.namespace, claim.name)) or {}
    for name, kind in known.items():
        if name != vm.name:
            yield f"{kind} {claim.namespace}/{name}"
    for pod in volume_attachments.users(claim.namespace, claim.name, cluster):
        if vm_ledger.vmi_name(pod) != vm.name:
            yield f"pod {pod.full_name}"


def _machines(cluster: Cluster) -> Mapping[tuple[str, str], Mapping[str, str]]:
    """Return the names of the VMs, and of the VMIs without one, whose spec names a claim, with
    their kind, by the claim.
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    for kind, word in ((VM, "VM"), (VMI, "VMI")):
        for obj in sorted(cluster.known(kind), key=lambda each: each.full_name):
            spec, namespace = vms.vmi_spec(obj), vms.namespace_of(obj)
            made = (
                each.at("metadata", "name").text or ""
                for each in obj.at("spec", "dataVolumeTemplates").items()
            )
            for name in (*launcher_pod.all_claims(spec), *made):
                found.setdefault((namespace, name), {}).setdefault(obj.name, word)
    return found


def _remedy(
    vm: Object, claim: Object, owner: Field | None, users: Sequence[str], cluster: Cluster
) -> str:
    """Return what lets the VM start, without a second user of the claim: two guests that write one
    disk destroy it."""
    edit = kubectl("edit", VM, vm.name, vms.namespace_of(vm))
    own, phase = owner is not None and _is(owner, vm), claim.at("status", "phase").text
    keep = "do not delete the claim"
    if users and own:
        return typed(
            f"let {users[0]} give the claim up first, as two users that write one disk destroy it; "
            "then remove that template from the VM and name the claim in its volume as "
            "persistentVolumeClaim",
            edit,
        )
    if users or (owner is not None and not own):
        used = "is in use" if owner is None or users else f"belongs to {_named(owner)}"
        return typed(
            "give that template and the dataVolume of its volume another name, so that the VM gets "
            f"a new disk without the data of this claim, and {keep}, which {used}",
            edit,
        )
    if any(unlisted(cluster, kind) for kind in (POD, VM, VMI)) or phase not in _USABLE:
        unread = "which pods and VMs use the claim, as not all of them could be read"
        see = unread if phase in _USABLE else f"why the claim is {phase or 'without a phase'}"
        return typed(f"see {see}, and {keep}", about("describe", claim, PVC))
    named = "remove that template from the VM and name the claim in its volume as "
    named += f"persistentVolumeClaim ({keep}: it may hold the data)"
    if phase == _BOUND and not own:
        named += (
            f', or let CDI adopt the claim by annotation {_ADOPT}: "true" on the template, from '
            "CDI 1.59 on (KubeVirt 1.3 and later set it themselves); it is deleted with the VM then"
        )
    return typed(named, edit)


_BOUND: Final = "Bound"
_USABLE: Final = frozenset((_BOUND, "Pending"))
"""A claim may wait for its first pod."""
