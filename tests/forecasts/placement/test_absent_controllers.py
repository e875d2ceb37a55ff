"""Controllers of which no pod is ready: of the cluster itself, and of a CSI driver."""

import pytest

from tests.builders import manifest
from tests.healthy.clusters import plain
from tests.healthy.parts import ago
from tests.incidents.component_faults import claim
from tests.incidents.machines import guest
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.outage.outages import outage
from virt_admit.forecasts.outage.restarts.fates import LossOutcome
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.components import cluster_controllers, node_drivers
from virt_admit.forecasts.placement.components.drivers import absent_attachers
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.outage import text

DRIVER = "csi.acme.example.com"
KCM = cluster_controllers.MANAGER
SCHEDULER = cluster_controllers.SCHEDULER


def pod(name, *boxes, owner="", namespace="kube-system", since=60):
    """Return a pod that is not ready. ``boxes``: the names of its containers, ``!`` before one that
    crashes."""
    states = [
        {"name": each, "ready": True, "state": {"running": {}}}
        if not each.startswith("!")
        else {
            "name": each[1:],
            "ready": False,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        }
        for each in boxes
    ]
    down = any(each.startswith("!") for each in boxes)
    ready = {"type": "Ready", "status": "False" if down else "True"}
    ready["lastTransitionTime"] = ago(minutes=since)
    made = [{"kind": "ReplicaSet", "name": owner, "controller": True}] if owner else []
    return manifest(
        *("v1", "Pod", name, namespace),
        metadata={"ownerReferences": made},
        spec={"nodeName": "w1", "containers": [{"name": each.lstrip("!")} for each in boxes]},
        status={"phase": "Running", "conditions": [ready], "containerStatuses": states},
    )


def attacher(name="x", *boxes, owner="acme-csi-controller-5f7d", **fields):
    return pod(f"{owner}-{name}", *(boxes or ("!acme", "csi-attacher")), owner=owner, **fields)


def driver(attached=True):
    return manifest("storage.k8s.io/v1", "CSIDriver", DRIVER, spec={"attachRequired": attached})


def lease(name, minutes, namespace="kube-system"):
    spec = {"renewTime": ago(minutes=minutes)}
    return manifest("coordination.k8s.io/v1", "Lease", name, namespace, spec=spec)


def row(*objects, complete=("*",)):
    """Return the forecast of a VM on w1 whose disk is of the driver."""
    items = [each for each in guest("web", "w1") if not each["kind"].startswith("Persistent")]
    items = [*plain(), *items, *claim("web", driver=DRIVER)]
    found = Snapshot([*map(Object, items), *objects], complete)
    (own,) = drain_plan.plan(found, "w1").nodes
    (only,) = own.forecasts
    return only


@pytest.mark.parametrize(
    "objects",
    [
        [attacher()],
        [attacher(), attacher("y")],
        [attacher("x", "acme", "!csi-attacher")],
        [attacher(owner="csi-attacher-77c", namespace="acme-system")],
        [attacher(), pod("vast-0", "!vast", "csi-attacher", owner="vast-csi-controller-1")],
        [attacher("x", "!hostpath-provisioner", "attacher")],
        [attacher("x", "driver", "!external-attacher")],
    ],
    ids=[
        *("one", "all", "sidecar", "named-by-namespace", "beside-another-driver"),
        *("named-as-a-helper", "other-name-of-the-sidecar"),
    ],
)
def test_a_driver_whose_controller_is_down_attaches_nothing(objects):
    found = row(driver(), *objects)

    assert found.outcome is VmOutcome.BLOCKS
    assert (
        f"CSI driver {DRIVER} has attached no volume while no pod of its controller is ready (pod "
        f"{objects[0].name} is not ready for 59 min: CrashLoopBackOff"
    ) in found.reason
    assert f"kubectl logs {objects[0].name} " in found.remedy


@pytest.mark.parametrize(
    "objects",
    [
        [driver(), attacher(), attacher("y", "acme", "csi-attacher")],
        [driver(), attacher("x", "acme", "csi-attacher", "!csi-snapshotter")],
        [driver(), attacher("x", "acme", "csi-attacher", "!vsphere-syncer")],
        [driver(), attacher("x", "acme", "csi-attacher", "!volumemodifier")],
        [driver(), attacher("x", "acme", "attacher", "!provisioner", "!dell-csi-replicator")],
        [driver(), attacher(since=3)],
        [driver(False), attacher()],
        [attacher()],
        [driver(), pod("vast-0", "!vast", "csi-attacher", owner="vast-csi-controller-1")],
        [driver(), pod("acme-0", "!acme", owner="acme-csi-controller-1")],
    ],
    ids=[
        *("one-ready", "helper", "vsphere", "ebs", "dell", "young", "not-attached"),
        *("unknown", "another", "no-attacher"),
    ],
)
def test_other_drivers_and_pods_attach(objects):
    assert row(*objects).outcome is VmOutcome.MIGRATES


QUOTA = 'pods "x-" is forbidden: exceeded quota: q'


def workload(name="acme-csi-controller", *boxes, replicas=0, refused=0):
    """Return the Deployment of a controller without pods. ``refused``: for so many minutes."""
    failed = {"type": "ReplicaFailure", "status": "True", "message": QUOTA}
    failed["lastTransitionTime"] = ago(minutes=refused)
    return manifest(
        *("apps/v1", "Deployment", name, "store"),
        spec={
            "replicas": replicas,
            "template": {"spec": {"containers": [{"name": each} for each in boxes]}},
        },
        status={"conditions": [failed] if refused else []},
    )


BOXES = ("acme", "csi-attacher")


@pytest.mark.parametrize(
    ("objects", "why", "remedy"),
    [
        (
            [workload("acme-csi-controller", *BOXES)],
            "Deployment store/acme-csi-controller is scaled to 0",
            "kubectl scale deployment acme-csi-controller -n store --replicas=1",
        ),
        (
            [
                workload("acme-csi-controller", *BOXES),
                attacher("x", *BOXES, owner="acmefs-csi-controller-1"),
            ],
            "Deployment store/acme-csi-controller is scaled to 0",
            "kubectl scale",
        ),
        (
            [workload("acme-csi-controller", *BOXES, replicas=2, refused=60)],
            "its controller has no Ready pod (Deployment store/acme-csi-controller cannot create "
            f"one: {QUOTA})",
            "kubectl describe deployment acme-csi-controller -n store",
        ),
    ],
    ids=["scaled", "beside-a-similar-driver", "refused"],
)
def test_a_driver_whose_controller_has_no_pod_attaches_nothing(objects, why, remedy):
    found = row(driver(), *objects)

    assert found.outcome is VmOutcome.BLOCKS
    assert f"CSI driver {DRIVER} has attached no volume while {why}" in found.reason
    assert remedy in found.remedy


@pytest.mark.parametrize(
    "objects",
    [
        [workload("acme-csi-controller", *BOXES), attacher("x", *BOXES)],
        [workload("acme-csi-controller", "acme", "csi-provisioner")],
        [workload("vast-csi-controller", "vast", "csi-attacher")],
        [workload("acme-csi-controller", *BOXES, replicas=1)],
        [workload("acme-csi-controller", *BOXES, replicas=1, refused=3)],
    ],
    ids=["pods-left", "attaches-nothing", "another", "begins", "just-refused"],
)
def test_a_controller_that_may_have_pods_attaches(objects):
    assert row(driver(), *objects).outcome is VmOutcome.MIGRATES


def test_two_volumes_of_one_driver_have_one_reason():
    items = [each for each in guest("web", "w1") if not each["kind"].startswith("Persistent")]
    items += [*claim("web", driver=DRIVER), *claim("more", driver=DRIVER)]
    for item in items:
        if item["kind"] in ("VirtualMachineInstance", "Pod"):
            volume = {"name": "more", "persistentVolumeClaim": {"claimName": "more"}}
            item["spec"]["volumes"].append(volume)
    found = Snapshot([*map(Object, [*plain(), *items]), driver(), attacher()], ["*"])
    (own,) = drain_plan.plan(found, "w1").nodes
    (only,) = own.forecasts
    assert only.placement.refusals["w2"].count("has attached no volume") == 1


def test_a_volume_that_a_node_has_lets_no_other_one_there():
    kept = driver(), attacher()
    items = [*plain(), *guest("web", "w1"), *guest("db", "w1")]
    items = [each for each in items if not each["kind"].startswith("Persistent")]
    items += [*claim("web", driver=DRIVER), *claim("db", driver=DRIVER)]
    name = next(each["metadata"]["name"] for each in items if each["kind"] == "PersistentVolume")
    there = manifest(
        *("storage.k8s.io/v1", "VolumeAttachment", "csi-1"),
        spec={"attacher": DRIVER, "nodeName": "w2", "source": {"persistentVolumeName": name}},
        status={"attached": True},
    )
    found = Snapshot([*map(Object, items), *kept, there], ["*"])
    (own,) = drain_plan.plan(found, "w1").nodes
    filters = node_drivers.served(candidates.scheduler(found), found)
    pods = {row.vmi.name: row.target.pod for row in own.forecasts}
    assert [filters.accepting(pods[each]) for each in ("web", "db")] == [("w2",), ()]


LINSTOR = "linstor.csi.linbit.com"


def of_linstor(*objects, name=LINSTOR):
    kind = ("storage.k8s.io/v1", "CSIDriver", name)
    own = manifest(*kind, spec={"attachRequired": True})
    return absent_attachers.problem(name, Snapshot([own, *objects], ["*"], time=ago(minutes=0)))


def test_without_linstors_controller_its_driver_attaches_nothing():
    crashed = pod("linstor-controller-7c-x", "!linstor-controller", owner="linstor-controller-7c")
    found = of_linstor(crashed)
    assert found.reason.startswith("linstor-controller has no Ready pod (pod linstor-controller-7c")
    off = manifest("apps/v1", "Deployment", "linstor-controller", "store", spec={"replicas": 0})
    found = of_linstor(off)
    assert found.reason == "Deployment store/linstor-controller is scaled to 0"
    assert "kubectl scale deployment linstor-controller -n store --replicas=1" in found.remedy


def test_linstors_controller_that_may_work_and_other_drivers():
    owner = "linstor-controller-7c"
    crashed = pod("linstor-controller-7c-x", "!linstor-controller", owner=owner)
    works = pod("linstor-controller-7c-y", "linstor-controller", owner=owner)
    young = pod("linstor-controller-7c-z", "!linstor-controller", owner=owner, since=3)
    assert [of_linstor(*each) for each in ((crashed, works), (young,), ())] == [None] * 3
    assert of_linstor(crashed, name=DRIVER) is None


def test_without_kube_controller_manager_nothing_is_attached():
    down = pod(f"{KCM}-w1", f"!{KCM}")
    found = row(driver(), down)

    assert found.outcome is VmOutcome.BLOCKS
    assert f"has attached no volume while {KCM} has no Ready pod (pod {KCM}-w1" in found.reason
    assert row(driver(False), down).outcome is VmOutcome.MIGRATES
    assert row(driver(), down, lease(KCM, 4)).outcome is VmOutcome.BLOCKS
    assert row(driver(), down, lease(KCM, 1)).outcome is VmOutcome.MIGRATES


def test_without_kube_scheduler_no_vm_migrates():
    found = row(pod(f"{SCHEDULER}-w1", f"!{SCHEDULER}"), pod(f"{SCHEDULER}-w2", f"!{SCHEDULER}"))

    assert found.outcome is VmOutcome.BLOCKS
    assert found.reason.startswith(f"{SCHEDULER} has no Ready pod (pod {SCHEDULER}-w1 is not ready")
    assert found.reason.endswith(", so no new pod gets a node")
    assert f"kubectl logs {SCHEDULER}-w1 -n kube-system --previous" in found.remedy


@pytest.mark.parametrize(
    "objects",
    [
        [],
        [pod("s1", f"!{SCHEDULER}"), pod("s2", SCHEDULER)],
        [pod("s1", f"!{SCHEDULER}"), lease(SCHEDULER, 1)],
        [
            pod("s1", f"!{SCHEDULER}", namespace=f"openshift-{SCHEDULER}"),
            lease(SCHEDULER, 1, f"openshift-{SCHEDULER}"),
        ],
        [pod("s1", f"!{SCHEDULER}", since=3)],
        [pod("s1", SCHEDULER, "!cert-syncer", namespace=f"openshift-{SCHEDULER}")],
        [pod("s1", f"!{SCHEDULER}", namespace="tenant-1")],
    ],
    ids=["none", "one-ready", "leader", "on-openshift", "young", "helper", "of-a-hosted-cluster"],
)
def test_a_scheduler_that_may_work(objects):
    assert row(*objects).outcome is VmOutcome.MIGRATES


def test_pods_that_cannot_be_listed_leave_it_open():
    down = pod(f"{SCHEDULER}-w1", f"!{SCHEDULER}")
    assert cluster_controllers.down(SCHEDULER, Snapshot([down], ["nodes"])) is None
    assert cluster_controllers.down(SCHEDULER, Snapshot([down], ["*"])) is None  # no time


def test_without_kube_scheduler_no_vm_comes_back_after_a_loss():
    items = [each for each in guest("web", "w1") if not each["kind"].startswith("Persistent")]
    known = [*map(Object, [*plain(), *items, *claim("web", driver=DRIVER)])]
    down = pod(f"{SCHEDULER}-w2", f"!{SCHEDULER}")

    def lost(*objects):
        (only,) = outage(("w1",), Snapshot([*known, *objects], ["*"])).vms
        return only

    found = lost(down)
    assert found.outcome is LossOutcome.NEVER
    assert f"{SCHEDULER} has no Ready pod (pod {SCHEDULER}-w2 is not ready" in found.reason
    assert f"{SCHEDULER} has no" not in lost(down, lease(SCHEDULER, 1)).reason


def test_without_virt_controller_no_vm_that_is_shut_down_starts_again():
    items = [*plain(), *guest("web", "w1", strategy="None")]
    for item in items:
        if item["kind"] == "Pod" and item["metadata"]["name"].startswith("virt-controller"):
            ready = next(each for each in item["status"]["conditions"] if each["type"] == "Ready")
            ready |= {"status": "False", "lastTransitionTime": ago(minutes=60)}
    (own,) = drain_plan.plan(Snapshot(map(Object, items), ["*"]), "w1").nodes
    (found,) = own.forecasts
    assert found.outcome is VmOutcome.RESTARTS
    assert "but only later: virt-controller has no Ready pod" in found.reason
    assert found.reason.endswith(", so KubeVirt starts no VM")


@pytest.mark.parametrize(("name", "restarts"), [(SCHEDULER, False), (KCM, False), ("other", True)])
def test_without_the_controllers_no_other_pod_of_a_lost_node_restarts(name, restarts):
    known = [*map(Object, plain()), pod("shop", "main", owner="shop")]
    found = Snapshot([*known, pod(f"{name}-w2", f"!{name}")], ["*"])
    said = "\n".join(text.of_loss(outage(("w1",), found)))
    assert ("1 other pod of these nodes" in said) is restarts


def test_pods_are_gone_through_once_for_all_vms(monkeypatch):
    asked = []
    pods = cluster_controllers._pods
    monkeypatch.setattr(
        cluster_controllers, "_pods", lambda name, found: asked.append(name) or pods(name, found)
    )
    found = Snapshot([pod(f"{SCHEDULER}-w1", f"!{SCHEDULER}")], ["*"], time=ago(minutes=0))
    assert [cluster_controllers.places_none(found) is None for _ in range(3)] == [False] * 3
    assert sorted(asked) == [KCM, SCHEDULER]
