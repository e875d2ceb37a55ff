"""A claim whose access mode or volume mode its provisioner refuses, and what the disk may ask for.

Ceph RBD gives ReadWriteMany only as a block device, and drivers of local disks give it not at all.
A claim is never changed: its disk is made again. What a class can give, its StorageProfile says.
Sources: ceph/ceph-csi:internal/rbd/controllerserver.go#validateVolumeReq, kubevirt/kubevirt#11163,
kubevirt/containerized-data-importer:doc/storageprofile.md, issue #1418; words of other drivers:
hetznercloud/csi-driver#145, democratic-csi/democratic-csi#2,
kubernetes/cloud-provider-openstack#2729.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.starts.storage import state_claims
from virt_admit.model.commands import json_patch, kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import (
    DATA_VOLUME,
    PVC,
    STORAGE_CLASS,
    STORAGE_PROFILE,
    VM,
    Kind,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import storage, vms
from virt_admit.model.lookups import fields, find
from virt_admit.model.messages import cut_middle
from virt_admit.model.problems import Problem

_BLOCKS: Final = ("storage", "pvc")
READS: Final[Reads] = {
    PVC: (
        "metadata.ownerReferences",
        "spec.accessModes",
        "spec.storageClassName",
        "spec.volumeMode",
    ),
    DATA_VOLUME: ("metadata.ownerReferences", *(f"spec.{block}" for block in _BLOCKS)),
    STORAGE_CLASS: ("provisioner",),
    STORAGE_PROFILE: (),
    VM: ("spec.dataVolumeTemplates",),
}
_NO: Final = (
    r"\b(?:not (?:be )?(?:supported?|allowed|valid)|unsupported|invalid|only|must|cannot)\b"
)
"""Whole words: a request may hold SINGLE_NODE_READER_ONLY."""
_MODES: Final = r"access[ _]?modes?\b|multi[-_ ]node|ReadWriteMany"
_PASSES: Final = (
    r"already exists|code = (?:Unavailable|DeadlineExceeded|ResourceExhausted|Aborted)|connection "
    r"refused"
)
"""Errors after which a driver may give the volume all the same, whatever its request was."""
_REFUSED: Final = re.compile(
    rf"(?!.*(?:{_PASSES})).*(?:(?:{_MODES}).{{0,80}}(?:{_NO})|(?:{_NO}).{{0,80}}(?:{_MODES})"
    r"|capabilit(?:y|ies)\b.{0,80}(?:not supported|unsupported|invalid)"
    r"|unsupported.{0,40}capabilit|(?:volume ?mode|block volumes?|raw block).{0,60}(?:support|only)"
    r"|support.{0,60}(?:volume ?mode|block volumes?|raw block))",
    re.IGNORECASE,
)
_ONLY_BLOCK: Final = re.compile(r"only\b.{0,60}\bblock\b", re.IGNORECASE)
_FRAME: Final = re.compile(r"^rpc error: code = \w+ desc = ")
_LONGEST: Final = 160
_FILESYSTEM: Final = "Filesystem"


class _Asked(NamedTuple):
    """One access mode with one volume mode."""

    access: str
    volume: str


def of(claim: Object, storage_class: Object, said: str, cluster: Cluster) -> Problem | None:
    """Return which modes of a claim are refused; None: it is refused for another cause.

    ``said``: the last error of the provisioner, without its frame.
    """
    if not _REFUSED.match(said):
        return None
    access = tuple(each.text or "" for each in claim.at("spec", "accessModes").items())
    asked = _Asked(" and ".join(access), claim.at("spec", "volumeMode").text or _FILESYSTEM)
    if not asked.access:
        return None
    driver = storage_class["provisioner"].text or "?"
    reason = (
        f"it asks for {asked.access} with volumeMode {asked.volume}, which provisioner {driver} of "
        f"class {storage_class.name} refuses: {cut_middle(_FRAME.sub('', said), _LONGEST)}"
    )
    return Problem(
        reason, _remedy(claim, asked, _instead(asked, storage_class.name, said, cluster), cluster)
    )


def _instead(asked: _Asked, storage_class: str, said: str, cluster: Cluster) -> _Asked | None:
    """Return what the class gives that is nearest to what was asked for; None: it is not known."""
    profile = find(cluster, STORAGE_PROFILE, "", storage_class)
    gives = [each for each in _given(profile) if each != asked] if profile is not None else []
    if gives:
        return max(
            gives, key=lambda each: (each.access == asked.access, each.volume == asked.volume)
        )
    only_block = asked.volume == _FILESYSTEM and _ONLY_BLOCK.search(said)
    return asked._replace(volume="Block") if only_block else None


def _given(profile: Object) -> Iterator[_Asked]:
    for each in profile.at("status", "claimPropertySets").items():
        volume = each["volumeMode"].text or _FILESYSTEM
        yield from (_Asked(mode.text, volume) for mode in each["accessModes"].items() if mode.text)


def _other_class(asked: _Asked, storage_class: str, cluster: Cluster) -> str:
    """Return the class of another provisioner that gives what was asked for,
    as its StorageProfile says; empty: none is known.
    """
    refusing = find(cluster, STORAGE_CLASS, "", storage_class)
    if refusing is None:
        return ""
    for profile in sorted(cluster.known(STORAGE_PROFILE), key=lambda each: each.name):
        driver = fields(cluster, STORAGE_CLASS, "", profile.name)["provisioner"].text
        if driver in (None, _STATIC, refusing["provisioner"].text):
            continue
        if asked in _given(profile):
            return profile.name
    return ""


_STATIC: Final = "kubernetes.io/no-provisioner"


def _or_class(words: str, asked: _Asked, other: str) -> str:
    """Return what a disk is to ask for, with the class that gives what it asks for now."""
    if not other:
        return words
    keeps = f"StorageClass {other}, whose StorageProfile has {asked.access} {asked.volume}"
    return f"{words.removesuffix(_ANY_CLASS)}, or for {keeps}"


_ANY_CLASS: Final = ", or a class whose provisioner can give these"


def _words(asked: _Asked, instead: _Asked | None) -> str:
    """Return what a disk is to ask for instead."""
    if instead is None:
        return f"another access mode or volumeMode{_ANY_CLASS}"
    if instead.access == asked.access:
        fallback = (
            " (or ReadWriteOnce, without live migration)" if asked.access == storage.SHARED else ""
        )
        return f"volumeMode {instead.volume}{fallback}"
    loss = ", without live migration" if asked.access == storage.SHARED else ""
    mode = f" and volumeMode {instead.volume}" if instead.volume != asked.volume else ""
    return f"access mode {instead.access}{mode} (what this class gives{loss})"


def _remedy(claim: Object, asked: _Asked, instead: _Asked | None, cluster: Cluster) -> str:
    """Return where the modes are written, and how the disk is made again."""
    if state_claims.is_empty(claim):
        return state_claims.remedy(claim, cluster)
    target = _owner(claim, PVC, cluster) or claim
    disk = _owner(target, DATA_VOLUME, cluster)
    words, plain = _words(asked, instead), ""
    if instead is None or instead.access != asked.access:
        name = target.at("spec", "storageClassName").text or ""
        plain, words = words, _or_class(words, asked, _other_class(asked, name, cluster))
    if disk is None:
        shown = kubectl("get", PVC, target.name, target.namespace, "-o", "yaml")
        return typed(f"create claim {target.name} again with {words}", shown)
    block = next((each for each in _BLOCKS if disk.at("spec", each).is_map), "pvc")
    deleted = kubectl("delete", DATA_VOLUME, disk.name, disk.namespace)
    if block == "storage" and not _names_modes(disk.at("spec", block)):
        profile = target.at("spec", "storageClassName").text or ""
        begin = (
            f"correct spec.claimPropertySets of StorageProfile {profile}, which gives these modes, "
            f"to {plain or words}"
        )
        edit = kubectl("edit", STORAGE_PROFILE, profile)
        return typed(
            f"{begin}, and delete the empty DataVolume, so that it is made again",
            f"{edit} && {deleted}",
        )
    vm = _owner(disk, VM, cluster)
    template = vms.disk_template(vm, disk.name) if vm is not None else None
    if vm is None or template is None:
        shown = kubectl("get", DATA_VOLUME, disk.name, disk.namespace, "-o", "yaml")
        return typed(f"create DataVolume {disk.name} again with {words}", shown)
    remade = (
        ", and delete the empty DataVolume, which KubeVirt makes again, because a claim is never "
        "changed"
    )
    asks = template.at("spec", block)
    changed = kubectl("edit", VM, vm.name, vm.namespace)
    if instead is not None and instead.access == asked.access and asks.is_map:
        step = Patch("add", asks.path / "volumeMode", instead.volume)
        changed = json_patch(VM, vm.name, vm.namespace, [step])
    return typed(
        f"in dataVolumeTemplates of VM {vm.name}, let the disk ask for {words}{remade}",
        f"{changed} && {deleted}",
    )


def _names_modes(block: Field) -> bool:
    return block["accessModes"].present or block["volumeMode"].present


def _owner(obj: Object, kind: Kind, cluster: Cluster) -> Object | None:
    """Return the owner of this kind, as of a temporary claim the claim of the disk."""
    owners = (
        each["name"].text
        for each in obj.metadata["ownerReferences"].items()
        if each["kind"].text == kind.kind
    )
    name = next(owners, None)
    return find(cluster, kind, obj.namespace, name)
