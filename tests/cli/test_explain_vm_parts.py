"""What ``virt-admit explain vm/NAME`` says of what is around a VM: queue, migrations, budgets,
volumes, rules.
"""

import json
import shlex

import pytest

from tests import builders
from tests.builders import KUBEVIRT, NAMESPACE, manifest
from tests.cli.explain_vm_cases import OTHER, WORLD, Explainer, event, without
from tests.forecasts.drain import vm_motion as motion

TOOLS = ("kubectl", "virtctl", "virt-admit")


@pytest.fixture
def explain(tmp_path):
    return Explainer(tmp_path)


def test_its_place_in_the_queue(explain):
    kubevirt = manifest(
        KUBEVIRT, "KubeVirt", "kubevirt", "kubevirt",
        spec={"configuration": {"migrations": {"parallelOutboundMigrationsPerNode": 1}}},
        status={"observedKubeVirtVersion": "v1.9.0"},
    )  # fmt: skip
    running = motion.migration(
        "evacuation-2", "Running", of="web", age=3900, since={"Running": 3900}
    )
    waiting = motion.migration("evacuation-1", age=600, since={"Pending": 600})
    moving = motion.vmi(
        "web",
        migrationState={"migrationUid": "uid-evacuation-2", "startTimestamp": motion.ago(3900)},
    )
    world = (
        *WORLD,
        kubevirt,
        OTHER[0],
        moving,
        OTHER[2],
        motion.launcher("web", "b", "2", job="uid-evacuation-2"),
    )
    _, data = explain(*world, running, waiting)
    assert data["state"] == "queued"
    assert data["queue"] == {
        "waits": True,
        "limit": "a may send 1 at a time",
        "others": 0,
        "holders": ["shop/web"],
    }
    assert event(data, "migration")["outcome"] == "does not start"
    assert "migration evacuation-1 is queued: waits" in event(data, "migration")["reason"]
    assert data["commands"][0] == "virt-admit explain vm/web -n shop"


def test_its_last_migrations(explain):
    features = "guest CPU doesn't match specification: missing features: vmx-vmfunc"
    old = motion.failed(1, features, age=4000, lasted=60)
    _, data = explain(*WORLD, old)
    (found,) = data["migrations"]
    assert (found["name"], found["phase"], found["asked_by"], found["target"]) == (
        old.name,
        "Failed",
        "drain",
        "b",
    )
    assert found["failure"]["class"] == "P"
    assert "vmx-vmfunc" in found["failure"]["text"]
    _, text = explain(*WORLD, old, form="text")
    assert f"fails again between these nodes: {found['failure']['text']}" in text


def test_a_claim_that_is_too_small_does_not_refer_to_two_nodes(explain):
    why = "the destination volume is smaller then the source volume"
    _, text = explain(*WORLD, motion.failed(1, why, age=4000, lasted=60), form="text")
    assert f"fails again: {why}" in text
    assert "its migration failed" not in text


def test_the_phases_of_a_migration(explain):
    done = motion.migration(
        "done", "Succeeded", age=300, drain=False,
        since={"Scheduling": 290, "Running": 200, "Succeeded": 100}, sourceNode="a", targetNode="b",
    )  # fmt: skip
    _, data = explain(*WORLD, done)
    (found,) = data["migrations"]
    assert found["phases"] == [
        {"phase": "Pending", "seconds": 10},
        {"phase": "Scheduling", "seconds": 90},
        {"phase": "Running", "seconds": 100},
    ]
    assert (found["asked_by"], found["failure"]) == ("other", None)


def test_budgets_and_volumes(explain):
    budget = manifest(
        "policy/v1", "PodDisruptionBudget", "keep", NAMESPACE,
        spec={"minAvailable": 1, "selector": {"matchLabels": {"kubevirt.io": "virt-launcher"}}},
        status={"disruptionsAllowed": 0},
    )  # fmt: skip
    disks = [
        {"name": "root", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "image", "containerDisk": {"image": "x"}},
        {"name": "gone", "dataVolume": {"name": "gone"}},
    ]
    claim = manifest(
        "v1", "PersistentVolumeClaim", "data", NAMESPACE,
        spec={"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeName": "pv"},
        status={"phase": "Bound"},
    )  # fmt: skip
    volume = manifest("v1", "PersistentVolume", "pv", "", spec={"local": {"path": "/x"}})
    conditions = [{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}]
    vmi = motion.vmi(
        spec={"evictionStrategy": "None", "volumes": disks}, reported=False, conditions=conditions
    )
    world = (*WORLD[:3], vmi, WORLD[4], budget, claim, volume)
    _, data = explain(*world)
    assert data["budgets"] == [{"namespace": "shop", "name": "keep", "allowed": 0, "blocks": True}]
    root, image, gone = data["volumes"]
    assert (root["kind"], root["claim"], root["access_modes"]) == (
        "persistentVolumeClaim",
        "data",
        ["ReadWriteOnce"],
    )
    assert root["problem"] == (
        "its data is on one node: a local volume; it is not ReadWriteMany, which a migration needs"
    )
    assert (image["claim"], image["problem"]) == (None, "")
    assert gone["problem"] == "claim gone does not exist"
    assert event(data, "drain")["outcome"] == "blocks the drain"
    assert data["migratable"] is False
    assert "kubectl describe poddisruptionbudget keep -n shop" in data["commands"]
    assert "kubectl describe persistentvolumeclaim gone -n shop" not in data["commands"]
    _, unread = explain(
        *without("PersistentVolumeClaim", *world), unreadable=("persistentvolumeclaims",)
    )
    assert [each["access_modes"] for each in unread["volumes"]] == [None, [], None]
    assert [each["problem"] for each in unread["volumes"]] == ["", "", ""]


def test_the_rules_with_action_and_layer(explain, tmp_path):
    bad = manifest(
        KUBEVIRT,
        "VirtualMachine",
        "db",
        NAMESPACE,
        spec={"runStrategy": "Allways", "template": {"spec": {"domain": {"devices": {}}}}},
    )
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: virt-admit.io/v1alpha1\nkind: Policy\n"
        "namespaces:\n- match: shop\n  rules: {vm-run-strategy-unknown: {action: audit}}\n"
    )
    world = (*WORLD[:2], bad)
    _, data = explain(*world)
    (found,) = (each for each in data["rules"] if each["rule"] == "vm-run-strategy-unknown")
    assert (found["action"], found["object"]) == ("deny", "VirtualMachine/shop/db")
    _, data = explain(*world, flags=("--policy", str(policy)))
    (found,) = (each for each in data["rules"] if each["rule"] == "vm-run-strategy-unknown")
    assert found["action"] == "audit"
    assert "policy.yaml: namespaces[0]" in found["layer"]
    _, text = explain(*world, flags=("--policy", str(policy)), form="text")
    assert "audit  vm-run-strategy-unknown" in text


def test_the_problems_of_drain_and_of_the_rules(explain):
    conditions = [{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}]
    stuck = motion.vmi(reported=False, conditions=conditions)
    _, data = explain(*WORLD[:3], stuck, WORLD[4])
    assert data["problems"] == ["DisksNotLiveMigratable:shop/db"]
    assert data["drain"]["problems"] == data["problems"]
    shown = {rule["problem"] for rule in data["rules"]} - {None}
    assert shown == set(data["problems"])
    assert explain(*WORLD)[1]["problems"] == []
    assert data["commands"][0].startswith("kubectl patch ")
    # it has to wait for the maintenance window
    assert "virtctl restart" not in " ".join(data["commands"])
    assert [
        shlex.split(command)[0] for command in data["commands"] if command.split()[0] not in TOOLS
    ] == []


def test_a_finding_about_the_vm_and_its_vmi_is_one_line(explain):
    gpu = {"gpus": [{"name": "g", "deviceName": "example.com/gpu"}]}
    domain = {"devices": gpu, "memory": {"guest": "4Gi"}}
    spec = {"evictionStrategy": "LiveMigrate", "domain": domain}
    vm = builders.vm(name="db", runStrategy="Always", template={"spec": spec})
    kubevirt = builders.kubevirt({}, status={"observedKubeVirtVersion": "v1.9.0"})
    conditions = [
        {"type": "LiveMigratable", "status": "False", "reason": "HostDeviceNotLiveMigratable"}
    ]
    world = (
        *WORLD[:2],
        kubevirt,
        vm,
        motion.vmi(spec=spec, reported=False, conditions=conditions),
        WORLD[4],
    )
    _, data = explain(*world)
    messages = [
        rule["message"]
        for rule in data["rules"]
        if rule["rule"] == "vm-live-migrate-not-migratable"
    ]
    assert len(messages) > len(set(messages))
    _, text = explain(*world, form="text")
    lines = [line for line in text.splitlines() if "vm-live-migrate-not-migratable" in line]
    assert [line.split(maxsplit=2)[2] for line in lines] == [
        "the same cause: as for a drain of its node. [the rule itself]",
        "the VM cannot migrate (HostDeviceNotLiveMigratable: GPU 'example.com/gpu', not a mediated device), so drains hang. "  # noqa: E501
        # the remedy of the other one is to do
        "Remove it, or set LiveMigrateIfPossible or None. [the rule itself]",
    ]


def test_a_vm_whose_pod_is_gone_has_nothing_to_migrate(explain):
    """KubeVirt's condition LiveMigratable stays as it was when the guest ran."""
    lost = motion.vmi(activePods={"pod-db-1": "a"})
    rest = WORLD[:3]
    _, data = explain(*rest, lost)
    assert (data["state"], data["migratable"]) == ("gone", False)
    _, blind = explain(*rest, lost, unreadable=("pods",))
    assert blind["migratable"] is True


@pytest.mark.parametrize(("beat", "runs"), [(60, True), (1200, False)])
def test_virt_handler_may_report_without_its_kubelet(explain, beat, runs):
    """As in kubevirt#8104: the guest runs on, so a second one must not start."""
    lost = {"type": "Ready", "status": "Unknown", "lastTransitionTime": motion.ago(1000)}
    silent = builders.node("a", allocatable=motion.ROOM)
    silent.data["status"]["conditions"] = [lost]
    silent.data["metadata"].setdefault("annotations", {})["kubevirt.io/heartbeat"] = motion.ago(
        beat
    )
    _, data = explain(*(each for each in WORLD if each.name != "a"), silent)
    text = json.dumps(data)
    assert ("its guest probably runs on" in text) is runs
    assert ("whether its guest still runs is not known" in text) is not runs
    (update,) = [each for each in data["events"] if each["event"] == "update"]
    assert update["outcome"] != "migrated"


STARTING = motion.vmi(
    on="",
    phase="Scheduling",
    reported=False,
    spec={"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "data"}}]},
)


def waiting(*, on="", age=10_000, **condition):
    """The pod of a VM that starts."""
    pod = motion.launcher(
        on=on, phase="Pending", ready=False, age=age, conditions=[condition] if condition else []
    )
    pod.data["spec"]["volumes"] = [{"name": "root", "persistentVolumeClaim": {"claimName": "data"}}]
    return pod


def attachment(node, **status):
    volume = {
        "spec": {
            "attacher": "csi.example",
            "nodeName": node,
            "source": {"persistentVolumeName": "pv"},
        }
    }
    return manifest(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        f"csi-{node}",
        "",
        status={"attached": True} | status,
        **volume,
    )


def said(data):
    """Return what the drain of a VM says."""
    (drain,) = [each for each in data["events"] if each["event"] == "drain"]
    return f"{drain['reason']}: {drain['remedy']}"


def test_a_vm_that_starts_waits_for_a_volume_of_a_node_that_is_gone(explain):
    spec = {"accessModes": ["ReadWriteOnce"], "volumeName": "pv"}
    claim = manifest(
        "v1", "PersistentVolumeClaim", "data", NAMESPACE, spec=spec, status={"phase": "Bound"}
    )
    warning = {
        "reason": "FailedAttachVolume",
        "type": "Warning",
        "message": "Multi-Attach error",
        "lastTimestamp": motion.ago(60),
    }
    about = {"kind": "Pod", "name": "virt-launcher-db-1", "namespace": NAMESPACE}
    event_of_pod = manifest("v1", "Event", "e", NAMESPACE, involvedObject=about, **warning)
    world = (*WORLD[:3], STARTING, waiting(on="b"), claim, event_of_pod)
    _, data = explain(*world, attachment("z"))
    note = said(data)
    _, text = explain(*world, attachment("z"), form="text")
    assert text.count("vm-live-migrate-not-migratable") <= 1
    assert "its pod on b has not started for" in note
    assert "claim data is still attached to z, which does not exist" in note
    assert "As a decision, once the machine of z is confirmed to be gone" in note
    assert "kubectl edit volumeattachments.storage.k8s.io csi-z" in note
    assert (data["candidates"], data["migratable"]) == (["b"], False)
    _, here = explain(*world, attachment("z"), attachment("b"))
    assert "Multi-Attach error" in said(here)
    _, used = explain(*world, attachment("a"))
    assert (
        "is still attached to a: see why it is not detached: kubectl describe volumeattachments"
        in said(used)
    )
    young = waiting(on="b", age=60)
    _, healthy = explain(*WORLD[:3], STARTING, young, claim, attachment("a"))
    assert "volume" not in said(healthy)
    _, other = explain(*WORLD[:3], STARTING, young, claim, event_of_pod, attachment("a"))
    assert "Multi-Attach error" in said(other)


def test_a_vm_that_starts_waits_for_a_volume_that_another_pod_uses(explain):
    spec = {"accessModes": ["ReadWriteOnce"], "volumeName": "pv"}
    claim = manifest(
        "v1", "PersistentVolumeClaim", "data", NAMESPACE, spec=spec, status={"phase": "Bound"}
    )
    disks = [{"name": "x", "persistentVolumeClaim": {"claimName": "data"}}]
    reader = manifest(
        "v1",
        "Pod",
        "backup",
        NAMESPACE,
        spec={"nodeName": "a", "volumes": disks},
        status={"phase": "Running"},
    )
    _, data = explain(*WORLD[:3], STARTING, waiting(on="b"), claim, reader, attachment("a"))
    assert (
        "is still attached to a, where pod shop/backup uses it: end the use by that pod: kubectl"
        in said(data)
    )


@pytest.mark.parametrize("operator", [False, True])
def test_a_vm_that_starts_waits_for_a_volume_that_a_deployment_uses(explain, operator):
    spec = {"accessModes": ["ReadWriteOnce"], "volumeName": "pv"}
    claim = manifest("v1", "PersistentVolumeClaim", "data", NAMESPACE, spec=spec)
    disks = [{"name": "x", "persistentVolumeClaim": {"claimName": "data"}}]

    def made(kind, name, owner, **more):
        owners = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
        version = "v1" if kind == "Pod" else "apps/v1"
        return manifest(
            version, kind, name, NAMESPACE, metadata={"ownerReferences": owners}, **more
        )

    world = (
        made("Deployment", "export", ("Export", "export") if operator else None),
        made("ReplicaSet", "export-1", ("Deployment", "export")),
        made(
            "Pod",
            "export-1-a",
            ("ReplicaSet", "export-1"),
            spec={"nodeName": "a", "volumes": disks},
            status={"phase": "Running"},
        ),
    )
    _, data = explain(*WORLD[:3], STARTING, waiting(on="b"), claim, *world, attachment("a"))
    scaled = (
        "where pod shop/export-1-a uses it, which Deployment shop/export makes: scale Deployment "
        "shop/export to 0 as long as its volume is needed here, and it is down then: kubectl scale "
        "deployment export -n shop --replicas=0"
    )
    assert (scaled in said(data)) is not operator
    assert ("end the use by that pod: kubectl describe" in said(data)) is operator


def test_a_vm_that_starts_and_finds_no_node(explain):
    said = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector"
    refused = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": said,
    }
    vmi = motion.vmi(
        on="", phase="Scheduling", reported=False, spec={"nodeSelector": {"disk": "fast"}}
    )
    _, data = explain(*WORLD[:3], vmi, waiting(**refused))
    assert data["candidates"] == []
    assert "disk" in data["short"][0]["what"]
    assert said in data["notes"][0]
    _, data = explain(*WORLD[:3], motion.vmi(on="", phase="Scheduling", reported=False), waiting())
    assert (data["candidates"], data["notes"]) == (["a", "b"], [])


def test_a_node_that_does_not_report_is_no_future_loss(explain):
    conditions = [{"type": "Ready", "status": "Unknown", "lastHeartbeatTime": motion.ago(7200)}]
    silent = motion.node("a")
    silent.data["status"]["conditions"] = conditions
    pod = motion.launcher(metadata={"deletionTimestamp": motion.ago(6600)})
    world = (silent, *WORLD[1:4], pod)
    _, data = explain(*world)
    assert (data["vm"]["running"], data["vm"]["node_reports"]) == (True, False)
    assert event(data, "reboot")["outcome"] == "unknown"
    assert event(data, "loss")["reason"].startswith("its node is lost already: ")
    (note,) = data["notes"]
    assert "its node a does not report, so whether its guest still runs is not known" in note
    assert f"{pod.name} should have ended at {motion.ago(6600)}" in note
    _, text = explain(*world, form="text")
    assert text.startswith("VM shop/db: Running on a, which does not report\n")
    assert text.lower().count("repair or fence its node") == 1
    _, healthy = explain(*WORLD)
    assert (healthy["vm"]["node_reports"], healthy["notes"]) == (True, [])
