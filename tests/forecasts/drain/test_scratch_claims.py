"""Pods of CDI whose scratch claim is not made: the class that it would have, or the log."""

import pytest

from tests.builders import manifest, node, warning
from tests.forecasts.drain.test_absent_workers import controller
from tests.healthy.parts import ago
from virt_admit.forecasts.drain.starts.storage import scratch_claims
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.messages import command_of

HARVESTER = node("a", {"harvesterhci.io/managed": "true"})
SCRATCH = manifest("v1", "PersistentVolumeClaim", "prime-u1-scratch", "shop")


def storage_class(name, default="false"):
    notes = {"storageclass.kubernetes.io/is-default-class": default}
    found = manifest("storage.k8s.io/v1", "StorageClass", name, metadata={"annotations": notes})
    found.data["provisioner"] = "driver.longhorn.io"
    return found


CLASSES = [storage_class("longhorn-static"), storage_class("usual", "true")]
CDI = manifest("cdi.kubevirt.io/v1beta1", "CDI", "cdi")


def config(status="", spec=None):
    return manifest(
        "cdi.kubevirt.io/v1beta1",
        "CDIConfig",
        "config",
        spec=spec or {},
        status={"scratchSpaceStorageClass": status},
    )


def importer(minutes=40, status="False"):
    said = 'claims: persistentvolumeclaim "prime-u1-scratch" not found. not found'
    placed = {"type": "PodScheduled", "status": status, "message": said}
    volumes = [
        {"name": each, "persistentVolumeClaim": {"claimName": each}}
        for each in ("prime-u1", "prime-u1-scratch")
    ]
    return manifest(
        "v1",
        "Pod",
        "importer",
        "shop",
        metadata={"creationTimestamp": ago(minutes=minutes)},
        spec={"volumes": volumes},
        status={"conditions": [placed]},
    )


def target(name="longhorn-static"):
    return manifest(
        "v1", "PersistentVolumeClaim", "prime-u1", "shop", spec={"storageClassName": name}
    )


def found(*objects, pod=None):
    pod = pod or importer()
    cluster = Snapshot([pod, CDI, *CLASSES, *objects], complete=["*"], time=ago())
    return scratch_claims.problem(pod, "its disk root is not filled", cluster)


def test_a_class_that_harvester_reserves():
    problem = found(HARVESTER, target(), config())
    assert problem.reason == (
        "its disk root is not filled: pod importer waits for its scratch claim prime-u1-scratch, "
        "which CDI has not made for 40 min: scratchSpaceStorageClass of CDI is not set, so it "
        "takes longhorn-static, that of the disk, which Harvester's webhook reserves for its own "
        "claims"
    )
    assert problem.brief.startswith(
        "pod importer waits for its scratch claim, not made for 40 min: scratchSpaceStorageClass"
    )
    assert command_of(problem.remedy) == (
        "kubectl patch cdi cdi --type=merge "
        """-p '{"spec":{"config":{"scratchSpaceStorageClass":"usual"}}}'"""
    )


def test_a_class_of_an_image_makes_no_empty_volumes():
    image = storage_class("an-image")
    image.data["parameters"] = {"backingImage": "vmi-1"}
    cluster = Snapshot([image, storage_class("other"), *CLASSES], complete=["*"])
    assert list(scratch_claims.provisioned(cluster)) == ["usual", "longhorn-static", "other"]


def test_a_class_that_is_set_and_does_not_exist():
    gone = config(spec={"scratchSpaceStorageClass": "gone"})
    assert (
        "is gone, no class, so it takes longhorn-static" in found(HARVESTER, target(), gone).brief
    )


@pytest.mark.parametrize(
    "objects",
    [[target(), config()], [HARVESTER, target("usual"), config()], [HARVESTER, target()]],
    ids=["not Harvester", "another class", "class not known"],
)
def test_another_refusal_is_only_in_the_log(objects):
    problem = found(*objects, controller())
    assert "only the log of its controller says why" in problem.reason
    assert "why the API server refuses that claim" in problem.remedy
    assert command_of(problem.remedy).startswith("kubectl logs cdi-deployment-1 -n cdi")


def test_a_quota_refuses_it():
    said = (
        'persistentvolumeclaims "prime-u1-scratch" is forbidden: exceeded quota: q, requested: '
        "requests.storage=10Gi, used: requests.storage=15Gi, limited: requests.storage=20Gi"
    )
    event = warning(target(), "ErrExceededQuota", said, ago(minutes=2))
    problem = found(HARVESTER, target(), config(), event)
    assert "quota" in problem.reason.lower()
    assert "scratchSpaceStorageClass" not in problem.reason


@pytest.mark.parametrize(
    ("pod", "objects"),
    [(importer(minutes=2), []), (importer(status="True"), []), (importer(), [SCRATCH])],
    ids=["just made", "placed", "made meanwhile"],
)
def test_a_claim_that_comes(pod, objects):
    assert found(HARVESTER, target(), config(), *objects, pod=pod) is None


_OF_CLASS = "storageclass.storage.k8s.io"
_NAMES = {"claims": "persistentvolumeclaims", "storage": "requests.storage"}


def quota(used="0", **hard):
    """Return a quota that limits claims of class ``usual`` and their storage."""
    limits = {f"usual.{_OF_CLASS}/{_NAMES[each]}": value for each, value in hard.items()}
    status = {"hard": limits, "used": dict.fromkeys(limits, used)}
    return manifest("v1", "ResourceQuota", "q", "shop", spec={"hard": limits}, status=status)


def refused(claim, *objects):
    said = (
        'persistentvolumeclaims "prime-u1-scratch" is forbidden: exceeded quota: q, requested: '
        f"usual.{_OF_CLASS}/persistentvolumeclaims=1, used: "
        f"usual.{_OF_CLASS}/persistentvolumeclaims=0, limited: "
        f"usual.{_OF_CLASS}/persistentvolumeclaims=0"
    )
    event = warning(claim, "ErrExceededQuota", said, ago(minutes=2))
    return found(claim, event, *objects)


def disk(name):
    spec = {"storageClassName": name, "resources": {"requests": {"storage": "47Gi"}}}
    return manifest("v1", "PersistentVolumeClaim", "prime-u1", "shop", spec=spec)


def test_a_quota_refuses_the_class_of_scratch_space():
    """kubevirt/containerized-data-importer#3848."""
    problem = refused(disk("tenant"), config("usual"), quota(claims="0", storage="0"))

    assert problem.reason.endswith(
        "scratchSpaceStorageClass of CDI is usual, and ResourceQuota q refuses a claim of it: it "
        f"allows usual.{_OF_CLASS}/requests.storage 0, usual.{_OF_CLASS}/persistentvolumeclaims 0, "
        "while the disk has class tenant"
    )
    assert command_of(problem.remedy) == (
        "kubectl patch cdi cdi --type=merge "
        """-p '{"spec":{"config":{"scratchSpaceStorageClass":"tenant"}}}'"""
    )
    assert (
        f"or raise ResourceQuota q to at least usual.{_OF_CLASS}/requests.storage 50Gi, "
        f"usual.{_OF_CLASS}/persistentvolumeclaims 1: kubectl edit resourcequota q -n shop"
    ) in problem.remedy


def test_what_a_quota_has_counted_of_the_class_is_told():
    problem = refused(disk("tenant"), config("usual"), quota("30Gi", storage="40Gi"))
    assert f"it allows usual.{_OF_CLASS}/requests.storage 40Gi (30Gi used)" in problem.reason


@pytest.mark.parametrize(
    ("claim", "objects"),
    [
        (disk("usual"), [config("usual"), quota(claims="0")]),
        (disk("tenant"), [config("usual"), quota(claims="5", storage="80Gi")]),
        (disk("tenant"), [quota(claims="0")]),
        (disk("tenant"), [config("usual")]),
    ],
    ids=["the same class", "raised by now", "class not known", "quota not known"],
)
def test_another_class_is_proposed_only_where_that_helps(claim, objects):
    problem = refused(claim, *objects)
    assert "scratchSpaceStorageClass" not in problem.remedy
    assert "raise ResourceQuota q" in problem.remedy
