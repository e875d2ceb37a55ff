"""Disks that CDI does not fill: for a quota, for the size of the image, for a class without access
modes, or without a word.
"""

import pytest

from tests.healthy.parts import ago
from virt_admit.forecasts.drain.starts import unfinished_disks
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

CDI = "cdi.kubevirt.io/v1beta1"
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": "rbd",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "rbd.example",
    "volumeBindingMode": "Immediate",
}
WFFC = CLASS | {"volumeBindingMode": "WaitForFirstConsumer"}
REFUSED = (
    'persistentvolumeclaims "prime-u1" is forbidden: exceeded quota: q, requested: '
    "requests.storage=8Gi, used: requests.storage=8Gi, limited: requests.storage=12Gi"
)
TOO_SMALL = (
    "virtual image size 4294967296 is larger than the reported available storage 4058744094. A "
    "larger PVC is required"
)
NO_MODE = (
    "Spec is missing accessMode and volumeMode, cannot get access mode from StorageProfile rbd"
)
NEWER_NO_MODE = "no accessMode specified in StorageProfile rbd"


def obj(kind, api, name, minutes=40, **fields):
    metadata = {"name": name, "namespace": "shop", "creationTimestamp": ago(minutes=minutes)}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": metadata | fields.pop("metadata", {}),
        **fields,
    }


def disk(phase="Pending", minutes=40, message="", **spec):
    status = {
        "phase": phase,
        "conditions": [{"type": "Bound", "status": "False", "message": message}],
    }
    return obj(
        "DataVolume", CDI, "root", minutes, spec={"source": {"http": {}}} | spec, status=status
    )


def claim(size="8Gi", phase="Pending", name="root", **metadata):
    spec = {
        "storageClassName": "rbd",
        "dataSourceRef": {"kind": "VolumeImportSource"},
        "resources": {"requests": {"storage": size}},
    }
    return obj(
        "PersistentVolumeClaim",
        "v1",
        name,
        metadata={"uid": "u1", **metadata},
        spec=spec,
        status={"phase": phase},
    )


def quota(hard="12Gi", used="8Gi", **spec):
    status = {"hard": {"requests.storage": hard}, "used": {"requests.storage": used}}
    return obj("ResourceQuota", "v1", "q", spec={"hard": status["hard"], **spec}, status=status)


def event(reason, message, kind="PersistentVolumeClaim", minutes=2):
    about = {"kind": kind, "name": "root", "namespace": "shop"}
    when = {"lastTimestamp": ago(minutes=minutes)}
    return obj(
        "Event",
        "v1",
        f"root.{reason}",
        involvedObject=about,
        type="Warning",
        reason=reason,
        message=message,
        **when,
    )


def importer(message):
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}
    status = {"containerStatuses": [{"name": "importer", "restartCount": 11, "lastState": ended}]}
    spec = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "prime-u1"}}]}
    labels = {"app": "containerized-data-importer"}
    return obj(
        "Pod", "v1", "importer-prime-u1", metadata={"labels": labels}, spec=spec, status=status
    )


def found(*objects, templates=()):
    vm = obj("VirtualMachine", "kubevirt.io/v1", "db")
    volumes = [{"name": "root", "dataVolume": {"name": "root"}}]
    vm["spec"] = {
        "dataVolumeTemplates": list(templates),
        "template": {"spec": {"volumes": volumes}},
    }
    classes = () if WFFC in objects else (CLASS,)
    every = [Object(each) for each in (vm, *classes, *objects)]
    return unfinished_disks.problem(every[0], Snapshot(every, ["*"], time=ago()))


def test_a_quota_refuses_the_temporary_claim():
    stuck = found(disk(), claim(), event("ErrCreatingPVCPrime", REFUSED))
    assert "CDI needs its size twice" in stuck.reason
    assert "exceeded quota: q, requested: requests.storage=8Gi" in stuck.reason
    ways = (
        "raise ResourceQuota q to at least requests.storage 16Gi (up to 8.6Gi more while CDI fills "
        "it), or free at least 4Gi of requests.storage there"
    )
    assert stuck.remedy == f"{ways}: kubectl edit resourcequota q -n shop"


def test_a_quota_is_computed_without_an_event():
    assert found(disk(), claim(), quota()) == found(
        disk(), claim(), event("ErrCreatingPVCPrime", REFUSED)
    )


@pytest.mark.parametrize(
    "objects",
    [
        (claim(), quota(hard="16Gi")),
        (claim(), quota(scopes=["NotTerminating"])),
        (claim(), claim(name="prime-u1"), quota()),
        (claim(phase="Bound"), quota()),
        (WFFC, claim(), quota()),
    ],
)
def test_a_quota_that_refuses_nothing(objects):
    assert found(disk(minutes=10), *objects) is None


def test_a_claim_whose_node_is_chosen():
    chosen = {"annotations": {"volume.kubernetes.io/selected-node": "a"}}
    assert "exceeded quota" in found(disk(), claim(**chosen), quota(), WFFC).reason


def test_any_warning_about_a_claim_that_is_pending():
    stuck = found(
        disk(minutes=10), claim(), event("VolumeFailedDelete", "the backend is read-only")
    )
    assert (
        stuck.reason
        == "its disk root is not filled (Pending): VolumeFailedDelete: the backend is read-only"
    )
    assert (
        found(
            disk(minutes=10),
            claim(),
            event("VolumeFailedDelete", "the backend is read-only", minutes=35),
        )
        is None
    )


def test_a_disk_that_stays_pending_without_a_word():
    stuck = found(disk(minutes=20), claim())
    assert stuck.reason.endswith(
        "CDI has not begun with it for 20 min, and nothing that was read says why"
    )
    assert stuck.remedy.endswith("kubectl describe pvc root -n shop")
    assert found(disk(minutes=10), claim()) is None
    assert found(disk("WaitForFirstConsumer"), claim()) is None
    assert found(disk("ImportInProgress"), claim()) is None


def template(block):
    return {
        "metadata": {"name": "root"},
        "spec": {block: {"resources": {"requests": {"storage": "4Gi"}}}},
    }


def test_a_claim_as_large_as_its_image():
    stuck = found(
        disk("ImportInProgress"), claim("4Gi"), importer(TOO_SMALL), templates=[template("pvc")]
    )
    assert "fails (restarted 11 times): virtual image size 4294967296" in stuck.reason
    assert stuck.remedy.startswith(
        "let the disk ask for at least 5Gi (its filesystem leaves 3.8Gi of 4Gi, and spec.pvc does "
        "not add that), and delete"
    )
    change = (
        '"path":"/spec/dataVolumeTemplates/0/spec/pvc/resources/requests/storage","value":"5Gi"'
    )
    assert change in stuck.remedy


def test_cdi_adds_the_overhead_to_storage():
    image = "virtual image size 6442450944 is larger than the reported available storage 4058744094"
    stuck = found(
        disk("ImportInProgress", storage={}),
        claim("4Gi"),
        importer(image),
        templates=[template("storage")],
    )
    assert stuck.remedy.startswith("let the disk ask for at least 6Gi, and delete the empty")
    assert stuck.remedy.endswith(" && kubectl delete datavolume root -n shop")


def test_a_template_without_a_size():
    copy = {"metadata": {"name": "root"}, "spec": {"pvc": {}}}
    stuck = found(disk("ImportInProgress"), claim("4Gi"), importer(TOO_SMALL), templates=[copy])
    assert "kubectl edit vm db -n shop" in stuck.remedy


@pytest.mark.parametrize(
    ("reason", "said", "way"),
    [
        (
            "ErrClaimNotValid",
            'storageclass.storage.k8s.io "fast" not found',
            "correct what the disk asks for (storage)",
        ),
        (
            "ProvisioningFailed",
            'storageclass.storage.k8s.io "fast" not found',
            "create that StorageClass, or let the disk",
        ),
        (
            "ErrUnableToCreate",
            'pods is forbidden: User "cdi" cannot create',
            "let the operator of CDI restore",
        ),
        (
            "ErrUnableToCreate",
            "the certificate of the webhook is not valid",
            "correct what it says",
        ),
    ],
)
def test_the_words_of_an_event_are_not_about_the_source(reason, said, way):
    told = event(reason, said, "DataVolume")
    assert found(disk(minutes=10), told).remedy.startswith(way)


def test_a_data_volume_without_a_template():
    stuck = found(disk("ImportInProgress"), claim("4Gi"), importer(TOO_SMALL))
    assert stuck.remedy.startswith("create DataVolume root again with at least 5Gi (")
    assert stuck.remedy.endswith(": kubectl get datavolume root -n shop -o yaml")


def profile(name="rbd", sets=()):
    return {
        "apiVersion": CDI,
        "kind": "StorageProfile",
        "metadata": {"name": name},
        "status": {"claimPropertySets": list(sets)},
    }


MODES = ({"accessModes": ["ReadWriteMany"], "volumeMode": "Block"},)


@pytest.mark.parametrize("said", [NO_MODE, NEWER_NO_MODE, ""])
def test_a_class_without_access_modes(said):
    told = (event("ErrClaimNotValid", said, "DataVolume"),) if said else ()
    stuck = found(disk(None, storage={}), profile(), profile("other", MODES), *told)
    assert stuck.reason.endswith(
        (
            "StorageProfile rbd (the default class of provisioner rbd.example, whose access modes "
            "CDI does not know)"
        )
        if said
        else (
            "StorageProfile rbd has none (the default class of provisioner rbd.example, whose "
            "access modes CDI does not know)"
        )
    )
    assert "set spec.claimPropertySets of StorageProfile rbd" in stuck.remedy
    assert "or let the disk name accessModes, or storageClassName, such as other" in stuck.remedy
    assert ": kubectl edit storageprofile rbd; or let" in stuck.remedy


def test_a_class_with_access_modes():
    assert found(disk(None, 10, storage={}), profile(sets=MODES)) is None
    assert found(disk(None, 10, storage={"accessModes": ["ReadWriteOnce"]}), profile()) is None


def test_no_node_takes_the_pod_that_fills_a_disk():
    waits = importer("")
    waits["status"] = {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "message": "0/2 nodes are available: 2 Too many pods.",
            }
        ]
    }
    stuck = found(disk("ImportScheduled"), claim(phase="Bound"), waits)
    assert stuck.reason.endswith(
        "kube-scheduler finds no node for pod importer-prime-u1: 0/2 nodes are available: 2 Too "
        "many pods"
    )


def local(claim_name, *nodes):
    """Return a bound claim, and its volume, which only these nodes reach."""
    own = claim(phase="Bound", name=claim_name, uid=claim_name)
    own["spec"]["volumeName"] = f"pv-{claim_name}"
    demand = {"key": "openebs.io/nodeid", "operator": "In", "values": list(nodes)}
    terms = [{"matchExpressions": [demand]}]
    spec = {"storageClassName": "rbd", "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    volume = obj("PersistentVolume", "v1", f"pv-{claim_name}", spec=spec)
    del volume["metadata"]["namespace"]
    return [own, volume]


@pytest.mark.parametrize(
    ("disk_on", "scratch_on", "mode", "apart"),
    [
        (("a",), ("b",), CLASS, True),
        (("a",), ("b",), WFFC, True),
        (("a", "b"), ("b",), CLASS, False),  # another cause keeps the pod from node b
        (("a",), ("gone",), CLASS, False),  # the node of a volume is missing, not apart
    ],
)
def test_the_volumes_of_the_pod_that_fills_a_disk_lie_apart(disk_on, scratch_on, mode, apart):
    waits = importer("")
    scratch = {"name": "scratch", "persistentVolumeClaim": {"claimName": "prime-u1-scratch"}}
    waits["spec"]["volumes"].append(scratch)
    said = "0/2 nodes are available: 2 node(s) had volume node affinity conflict."
    placed = {"type": "PodScheduled", "status": "False", "message": said}
    waits["status"] = {"conditions": [placed]}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"openebs.io/nodeid": name}},
        }
        for name in "ab"
    ]
    claims = [*local("prime-u1", *disk_on), *local("prime-u1-scratch", *scratch_on)]
    stuck = found(disk("ImportScheduled"), claim(), waits, *nodes, *claims, mode)
    assert ("its volumes lie apart" in stuck.reason) is apart
    if not apart:
        assert "volume node affinity conflict" in stuck.reason
        return
    assert "claim prime-u1 is on node a alone (pv-prime-u1)" in stuck.reason
    assert ("StorageClass rbd places a volume" in stuck.reason) is (mode is CLASS)
    first = "make StorageClass rbd again with volumeBindingMode WaitForFirstConsumer"
    assert stuck.remedy.startswith(first if mode is CLASS else "delete DataVolume root")
    assert "kubectl delete datavolume root -n shop" in stuck.remedy


NO_CLASS = "PVC spec is missing accessMode and no storageClass to choose profile"


def unmarked(name="rbd"):
    return CLASS | {"metadata": {"name": name}}


def of_classes(*objects, said=True, complete=("*",), **storage):
    """Return what keeps a disk without claim from being filled, in a cluster with these classes."""
    told = (event("ErrClaimNotValid", NO_CLASS, "DataVolume"),) if said else ()
    wanted = disk("Pending" if said else None, minutes=50)
    wanted["spec"] = {"storage": {"resources": {"requests": {"storage": "8Gi"}}} | storage}
    vm = obj("VirtualMachine", "kubevirt.io/v1", "db")
    vm["spec"] = {
        "template": {"spec": {"volumes": [{"name": "root", "dataVolume": {"name": "root"}}]}}
    }
    every = [Object(each) for each in (vm, wanted, *told, *objects)]
    return unfinished_disks.problem(every[0], Snapshot(every, list(complete), time=ago()))


@pytest.mark.parametrize("said", [True, False])
def test_no_class_is_the_default(said):
    stuck = of_classes(unmarked(), said=said)
    assert "gets no claim, because it names no storageClassName and no accessModes" in stuck.reason
    assert stuck.reason.endswith("no StorageClass is marked as the default (there is rbd)")
    key = "storageclass.kubevirt.io/is-default-virt-class"
    assert f"mark rbd as the default ({key}), or name storageClassName in" in stuck.remedy
    assert (
        f'kubectl patch storageclass rbd --type=merge -p \'{{"metadata":{{"annotations":{{"{key}"'
        in stuck.remedy
    )


def test_one_of_several_classes_is_to_be_marked():
    stuck = of_classes(unmarked("a"), unmarked("b"))
    assert stuck.reason.endswith("(there are a, b)")
    assert stuck.remedy.startswith("mark a or b as the default")
    only = of_classes(unmarked("a"), unmarked("b"), profile("a"), profile("b", MODES))
    assert only.remedy.startswith("mark b as the default")
    local = unmarked("a")
    local["provisioner"] = "kubernetes.io/no-provisioner"  # no volume is made of it
    assert of_classes(local, unmarked("b")).remedy.startswith("mark b as the default")


def test_a_default_without_access_modes_would_not_help():
    remedy = of_classes(unmarked(), profile("rbd")).remedy
    assert remedy.startswith("name storageClassName and accessModes in")


def test_there_is_no_class():
    assert of_classes().remedy.startswith("create a StorageClass, and mark it as the default")


@pytest.mark.parametrize(
    "storage", [{"storageClassName": "rbd"}, {"accessModes": ["ReadWriteOnce"]}]
)
def test_a_disk_that_names_what_it_needs_lacks_no_default(storage):
    stuck = of_classes(unmarked(), said=False, **storage)
    assert stuck is None or "marked as the default" not in stuck.reason


def test_a_cluster_with_a_default_or_with_unread_classes_is_not_accused():
    for stuck in (of_classes(CLASS, said=False), of_classes(complete=())):
        assert stuck is None or "no StorageClass" not in stuck.reason


UNTRUSTED = "tls: failed to verify certificate: x509: certificate signed by unknown authority"


def of_import(source, templates=()):
    """Return what ends that the server of a disk is not trusted."""
    disk_of_server = disk("ImportInProgress")
    disk_of_server["spec"] = {"source": source}
    return found(disk_of_server, claim(), importer(UNTRUSTED), templates=templates).remedy


def test_the_ca_of_a_server_goes_where_the_disk_is_written():
    way = "give the source of the disk the CA of that server (certConfigMap)"
    own = of_import({"http": {"url": "https://images.example.com/a"}}, [template("storage")])
    assert own.startswith(
        f"{way}, in the dataVolumeTemplates of the VM, and delete that DataVolume"
    )
    assert own.endswith(
        " (the ConfigMap has to be in shop): kubectl edit vm db -n shop; then kubectl delete "
        "datavolume root -n shop"
    )
    alone = of_import({"http": {"url": "https://images.example.com/a"}})
    assert f"{way}, in a new DataVolume root, as its spec cannot be changed" in alone


def test_a_config_map_that_the_disk_names_lacks_the_ca():
    remedy = of_import(
        {"registry": {"url": "docker://images.example.com/a", "certConfigMap": "cas"}}
    )
    assert remedy.endswith("have the CA of that server: kubectl edit configmap cas -n shop")


def test_a_source_without_an_address_of_its_own():
    assert of_import({}).startswith("give the source of the disk the CA of that server")
