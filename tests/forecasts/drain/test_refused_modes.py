"""Disks whose provisioner refuses the access mode or volumeMode that they ask for."""

import pytest

from tests.forecasts.drain.test_unfinished_disks import (
    CLASS,
    MODES,
    claim,
    disk,
    event,
    found,
    importer,
    profile,
    template,
)

RBD_SAYS = (
    "rpc error: code = InvalidArgument desc = multi node access modes are only supported on rbd "
    "`block` type volumes"
)
ONLY_ONCE = (
    "rpc error: code = InvalidArgument desc = volume access mode MULTI_NODE_MULTI_WRITER not "
    "supported"
)
RWO = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}


def of(kind, name):
    return {"ownerReferences": [{"kind": kind, "name": name}]}


def shared_claim(name, owner):
    made = claim(name=name, uid="u1" if name == "root" else "u2", **owner)
    made["spec"] |= {"accessModes": ["ReadWriteMany"], "volumeMode": "Filesystem"}
    return made


def refused(said, *objects, block="pvc", owner=None, **spec):
    told = event(
        "ProvisioningFailed", f'failed to provision volume with StorageClass "rbd": {said}'
    )
    told["involvedObject"]["name"] = "prime-u1"
    data = disk("ImportScheduled", **{block: spec})
    data["metadata"] |= of("VirtualMachine", "db") if owner is None else owner
    waits = importer("")
    message = "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    waits["status"] = {
        "conditions": [{"type": "PodScheduled", "status": "False", "message": message}]
    }
    claims = (
        shared_claim("root", of("DataVolume", "root")),
        shared_claim("prime-u1", of("PersistentVolumeClaim", "root")),
    )
    events = (told,) if said else ()
    return found(data, *claims, waits, *events, *objects, templates=[template("pvc")])


def test_a_provisioner_refuses_a_mode_of_the_temporary_claim():
    stuck = refused(RBD_SAYS, profile(sets=(*MODES, RWO)))
    assert stuck.reason == (
        "its disk root is not filled (ImportScheduled): claim root is Pending, as CDI's prime-u1 "
        "gets no volume: it asks for ReadWriteMany with volumeMode Filesystem, which provisioner "
        "rbd.example of class rbd refuses: multi node access modes are only supported on rbd "
        "`block` type volumes"
    )
    way = (
        "let the disk ask for volumeMode Block (or ReadWriteOnce, without live migration), and "
        "delete the empty DataVolume"
    )
    assert way in stuck.remedy
    assert stuck.remedy.endswith("' && kubectl delete datavolume root -n shop")
    assert (
        '"path":"/spec/dataVolumeTemplates/0/spec/pvc/volumeMode","value":"Block"' in stuck.remedy
    )


def test_a_class_that_gives_one_node_alone():
    stuck = refused(ONLY_ONCE, profile(sets=(RWO,)))
    assert (
        "access mode ReadWriteOnce (what this class gives, without live migration)" in stuck.remedy
    )
    assert stuck.remedy.endswith(
        "kubectl edit vm db -n shop && kubectl delete datavolume root -n shop"
    )
    assert "another access mode or volumeMode, or a class" in refused(ONLY_ONCE).remedy


@pytest.mark.parametrize(
    ("provisioner", "named"),
    [("nfs.example", True), ("rbd.example", False), ("kubernetes.io/no-provisioner", False)],
)
def test_another_class_that_gives_the_mode(provisioner, named):
    """One of the same provisioner would refuse it as well."""
    other = CLASS | {"metadata": {"name": "nfs"}, "provisioner": provisioner}
    gives = profile("nfs", ({"accessModes": ["ReadWriteMany"], "volumeMode": "Filesystem"}, RWO))
    stuck = refused(ONLY_ONCE, profile(sets=(RWO,)), other, gives)
    way = (
        "without live migration), or for StorageClass nfs, whose StorageProfile has ReadWriteMany "
        "Filesystem, and delete the empty DataVolume"
    )
    assert (way in stuck.remedy) == named


def test_where_a_refused_mode_is_written():
    assert refused(RBD_SAYS, owner={}).remedy.startswith(
        "create DataVolume root again with volumeMode Block"
    )
    by_profile = refused(RBD_SAYS, block="storage")
    assert by_profile.remedy.startswith(
        "correct spec.claimPropertySets of StorageProfile rbd, which gives these modes"
    )


def test_another_error_of_a_provisioner_names_no_mode():
    assert "volumeMode" not in refused("rpc error: code = Internal desc = pool is full").reason


@pytest.mark.parametrize(
    ("said", "is_refused"),
    [
        ("Unavailable desc = {access_mode:<mode:SINGLE_NODE_WRITER>}: connection refused", False),
        ("ResourceExhausted desc = access mode MULTI_NODE_MULTI_WRITER, only 1Gi free", False),
        ("Internal desc = {access_mode:<mode:SINGLE_NODE_READER_ONLY>}: no route to host", False),
        ("InvalidArgument desc = no pool: {access_mode:<mode:MULTI_NODE_MULTI_WRITER>}", False),
        ("InvalidArgument desc = Volume capabilities MULTI_NODE not supported", True),
        ("InvalidArgument desc = access mode must be single node writer", True),
    ],
)
def test_an_error_that_only_shows_the_request_refuses_no_mode(said, is_refused):
    remedy = refused(f"rpc error: code = {said}", owner={}).remedy
    assert remedy.startswith("create DataVolume root again with") is is_refused


def test_a_pod_waits_for_a_claim_without_a_word():
    stuck = refused("")
    assert stuck.reason.endswith(
        "pod importer-prime-u1 waits for claim prime-u1, which gets no volume, and nothing that "
        "was read says why"
    )
    assert stuck.remedy == (
        "see the events of that claim, and what its provisioner rbd.example logs: kubectl describe "
        "pvc prime-u1 -n shop"
    )
