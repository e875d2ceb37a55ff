"""Pods of CDI that are ended for their use of memory: which one, at which limit,
and where that limit is set.
"""

import pytest

from tests.healthy.parts import ago
from virt_admit.forecasts.drain.starts import unfinished_disks
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

V1BETA1 = (
    "v1beta1",
    "spec.resourceRequirements.storageWorkloads",
    '{"resourceRequirements":{"storageWorkloads":',
)
V1 = (
    "v1",
    "spec.storage.workloadResourceRequirements",
    '{"storage":{"workloadResourceRequirements":',
)
KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
WAITS = {
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": KILLED,
    "restartCount": 4,
}


def obj(kind, api, name, namespace="shop", **fields):
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": ago(minutes=40)}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": metadata | fields.pop("metadata", {}),
        **fields,
    }


def claim(name, uid, namespace="shop", phase="Bound"):
    return obj(
        "PersistentVolumeClaim",
        "v1",
        name,
        namespace,
        metadata={"uid": uid},
        spec={"storageClassName": "nfs"},
        status={"phase": phase},
    )


STORAGE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "nfs"},
    "provisioner": "nfs.csi.k8s.io",
}


def pod(name, used, status=WAITS, namespace="shop", limit="750Mi"):
    resources = {"limits": {"memory": limit}} if limit else {}
    spec = {
        "nodeName": "w1",
        "containers": [{"name": "work", "resources": resources}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": used}}],
    }
    status = {"phase": "Running", "containerStatuses": [{"name": "work", **status}]}
    metadata = {"labels": {"app": "containerized-data-importer"}}
    return obj("Pod", "v1", name, namespace, metadata=metadata, spec=spec, status=status)


def hyperconverged(version):
    return obj("HyperConverged", f"hco.kubevirt.io/{version}", "hco", "cnv")


def cdi():
    return obj("CDI", "cdi.kubevirt.io/v1beta1", "cdi", "")


def problem(*items, source=None):
    volumes = [{"name": "root", "dataVolume": {"name": "root"}}]
    vm = obj(
        "VirtualMachine", "kubevirt.io/v1", "db", spec={"template": {"spec": {"volumes": volumes}}}
    )
    status = {"phase": "CloneInProgress" if source else "ImportInProgress", "progress": "30%"}
    disk = obj(
        "DataVolume",
        "cdi.kubevirt.io/v1beta1",
        "root",
        spec={"source": source or {}},
        status=status,
    )
    cluster = Snapshot(
        [
            Object(each)
            for each in (vm, disk, claim("root", "u1", phase="Pending"), STORAGE, *items)
        ],
        ["*"],
        time=ago(),
    )
    return unfinished_disks.problem(Object(vm), cluster)


@pytest.mark.parametrize(("version", "field", "patch"), [V1BETA1, V1])
def test_a_copy_is_received_in_the_namespace_of_its_source(version, field, patch):
    """A source by reference names no namespace,
    so that its pod is found by the name of the claim alone.
    """
    copy = claim("tmp-pvc-u1", "u2", "images")
    found = problem(
        copy,
        pod("cdi-upload-tmp-pvc-u1", "tmp-pvc-u1", namespace="images"),
        hyperconverged(version),
        cdi(),
    )

    assert found.reason == (
        "its disk root is not filled (ImportInProgress): pod images/cdi-upload-tmp-pvc-u1 was "
        "ended for lack of memory at its limit of 750Mi (OOMKilled, exit code 137), and restarted "
        "4 times"
    )
    assert found.remedy.startswith(
        f"raise {field}.limits.memory of HyperConverged hco, which writes the CDI object, above "
        "750Mi, such as 1500Mi: kubectl patch hyperconverged hco"
    )
    assert found.remedy.endswith(
        "; then let CDI make this pod again with it (kubectl delete pod cdi-upload-tmp-pvc-u1 -n "
        "images)"
    )
    assert (
        f"""kubectl patch hyperconverged hco -n cnv --type=merge -p '{{"spec":{patch}"""
        in found.remedy
    )


def test_the_pod_that_sends_a_copy():
    items = (
        claim("tmp-pvc-u1", "u2", "images"),
        pod(
            "cdi-upload-tmp-pvc-u1",
            "tmp-pvc-u1",
            {"state": {"running": {}}, "restartCount": 0},
            "images",
        ),
        pod("u2-source-pod", "golden", namespace="images"),
    )
    found = problem(*items, source={"pvc": {"namespace": "images", "name": "golden"}})

    assert "pod images/u2-source-pod was ended for lack of memory" in found.reason


def test_an_import_without_hyperconverged():
    found = problem(pod("importer-prime-u1", "prime-u1", limit="600M"), cdi())

    assert (
        "pod shop/importer-prime-u1 was ended for lack of memory at its limit of 600M"
        in found.reason
    )
    assert found.remedy.startswith(
        "raise spec.config.podResourceRequirements.limits.memory of CDI cdi, above 600M, such as"
    )
    assert (
        """-p '{"spec":{"config":{"podResourceRequirements":{"limits":{"memory":"2G"}}}}}'; then """
        in found.remedy
    )


@pytest.mark.parametrize(
    ("driver", "least", "command"),
    [
        (
            "nfs.csi.k8s.io",
            "above 600M and above the size of the image, which the pages that wait to be written "
            "to NFS (StorageClass nfs) reach on some kernels",
            "kubectl edit cdi cdi",
        ),
        ("rbd.csi.ceph.com", "above 600M, such as 2G", "kubectl patch cdi cdi --type=merge"),
    ],
)
def test_an_upload_is_repeated_and_needs_room_for_its_image_on_nfs(driver, least, command):
    """kubevirt/containerized-data-importer#3557."""
    uploads = pod("cdi-upload-prime-u1", "prime-u1", limit="600M")
    items = uploads, claim("prime-u1", "u2"), {**STORAGE, "provisioner": driver}, cdi()
    remedy = problem(*items, source={"upload": {}}).remedy

    assert f"of CDI cdi, {least}: {command}" in remedy
    assert remedy.endswith("-n shop), and repeat the upload, which does not go on by itself")
    imported = problem(*items, source={"http": {}}).remedy
    assert "above 600M, such as 2G: kubectl patch" in imported
    assert "upload, which" not in imported


@pytest.mark.parametrize(("image", "stops"), [("shop/root", True), ("shop/other", False)])
def test_the_image_of_an_upgrade_needs_a_new_claim_too(image, stops):
    upgrade = obj(
        "Upgrade", "harvesterhci.io/v1beta1", "up", "harvester-system", status={"imageID": image}
    )
    remedy = problem(pod("importer-prime-u1", "prime-u1", limit="600M"), cdi(), upgrade).remedy

    assert ("delete upgrades.harvesterhci.io up -n harvester-system), and start it" in remedy) is (
        stops
    )
    assert ("kubectl delete pod" in remedy) is not stops


def test_a_pod_without_a_limit_shows_that_its_node_is_short():
    found = problem(pod("importer-prime-u1", "prime-u1", limit=""), cdi())

    assert "without a limit of its own" in found.reason
    assert found.remedy == "free memory on w1: kubectl describe node w1"


@pytest.mark.parametrize(
    "status",
    [
        {"state": {"running": {}}, "restartCount": 0},
        {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}, "restartCount": 0},
    ],
)
def test_a_pod_that_works_is_not_accused(status):
    assert problem(pod("importer-prime-u1", "prime-u1", status), cdi()) is None


def test_a_pod_of_another_disk_is_not_accused():
    assert (
        problem(pod("importer-prime-u9", "prime-u9"), pod("u9-source-pod", "golden"), cdi()) is None
    )


@pytest.mark.parametrize(
    ("said", "way"),
    [
        (
            "x509: certificate signed by unknown authority",
            "give the source of the disk the CA of that server",
        ),
        (
            "x509: certificate has expired or is not yet valid",
            "renew the certificate of that server",
        ),
        (
            "dial tcp: lookup images.example.com: no such host",
            "let the pods of CDI reach that server, or correct the address",
        ),
        (
            "expected status code 200, got 404. Status: 404 Not Found",
            "correct the address of the source of the disk",
        ),
        (
            "virtual image size is larger than the reported available storage",
            "let the disk ask for more storage",
        ),
        ("it failed", "correct the source of the disk"),
    ],
)
def test_what_ends_another_failure(said, way):
    status = {"lastState": {"terminated": {"exitCode": 1, "message": said}}, "restartCount": 3}
    found = problem(pod("importer-prime-u1", "prime-u1", status))

    assert said in found.reason
    assert found.remedy.startswith(way)
