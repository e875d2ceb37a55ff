"""``virt-admit explain vm/NAME``: one VM on one screen."""

import json
import shlex

import click
import pytest
from click.testing import CliRunner

from tests import advice, builders
from tests.builders import KUBEVIRT, NAMESPACE, manifest
from tests.forecasts.drain import vm_motion as motion
from virt_admit.cli import main

KEYS = (
    *("vm", "state", "strategy", "migratable", "candidates", "short", "migrations", "queue", "budgets", "volumes"),
    *("control", "drain", "upgrade", "outage", "rules", "problems", "commands"),
)
"""The keys of the contract."""
WORLD = (motion.node("a"), motion.node("b"), motion.vm(), motion.vmi(), motion.launcher())
OTHER = (motion.vm("web"), motion.vmi("web"), motion.launcher("web"))


@pytest.fixture
def explain(tmp_path):
    """Explain a VM of a snapshot: returns the exit code and the text, or the JSON data."""

    def run(*objects, vm="vm/db", flags=(), form="json", unreadable=(), complete=("*",)):
        file = tmp_path / "cluster.json"
        snapshot = {"apiVersion": "virt-admit.io/v1alpha1", "kind": "Snapshot", "time": motion.NOW}
        snapshot |= {
            "complete": list(complete),
            "unreadable": list(unreadable),
            "items": [each.data for each in objects],
        }
        file.write_text(json.dumps(snapshot))
        command = ("explain", vm, "--cluster", str(file), "-o", form, *flags)
        result = CliRunner().invoke(main.virt_admit, command, standalone_mode=False)
        if isinstance(result.exception, click.ClickException):
            return result.exception.exit_code, result.exception.message
        assert result.exception is None, result.exception
        return result.return_value, json.loads(result.stdout) if form == "json" else result.stdout

    return run


def event(data, name):
    return next(each for each in data["events"] if each["event"] == name)


def test_the_keys_of_the_contract_in_order(explain):
    code, data = explain(*WORLD)
    assert code == 0
    assert [key for key in data if key in KEYS] == list(KEYS)
    assert data["version"] == 1
    assert (data["state"], data["strategy"], data["migratable"], data["candidates"]) == (
        "still", "LiveMigrate", True, ["b"],
    )  # fmt: skip
    assert data["drain"]["outcome"] == data["upgrade"]["outcome"] == "migrates"
    assert data["outage"] is None
    assert data["unseen"] == []


def test_the_text_fits_on_one_screen(explain):
    _, text = explain(*WORLD, form="text")
    lines = text.splitlines()
    assert lines[0] == "VM shop/db: Running on a"
    assert len(lines) <= 40
    words = " ".join(text.split())
    assert "a drain of its node migrates" in words
    assert "a migration now starts to b" in words
    assert "the loss of its node stays off runStrategy Always, but no health check confirms that a is down" in words
    assert "a reboot of the guest stays on its node" in words


def test_the_entry_of_drain_is_the_same(explain, tmp_path):
    _, data = explain(*WORLD)
    result = CliRunner().invoke(
        main.virt_admit,
        ("drain", "a", "--cluster", str(tmp_path / "cluster.json"), "-o", "json"),
        standalone_mode=False,
    )
    assert data["drain"] == json.loads(result.stdout)["nodes"][0]["vms"][0]


def test_a_vm_that_is_stopped(explain):
    stopped = builders.vm(name="db", runStrategy="Halted")
    code, data = explain(motion.node("a"), stopped)
    assert code == 0
    assert data["state"] == "stopped"
    assert data["vm"]["running"] is False
    assert {each["outcome"] for each in data["events"]} == {"not running"}
    assert data["drain"]["outcome"] == data["upgrade"]["outcome"] == "not running"
    assert data["commands"][0] == "virtctl start db -n shop"
    _, text = explain(motion.node("a"), stopped, form="text")
    assert text.startswith("VM shop/db: not running\n")


def test_a_vm_whose_vmi_has_ended(explain):
    _, data = explain(*WORLD[:3], motion.vmi(phase="Succeeded"))
    assert data["state"] == "stopped"
    assert data["events"][0]["reason"] == "it is not running: its VMI is Succeeded"


def test_a_vm_without_a_node_yet(explain):
    waiting = motion.vmi(phase="Scheduling", on=None)
    _, data = explain(*WORLD[:3], waiting)
    assert data["state"] == "starting"
    _, text = explain(*WORLD[:3], waiting, form="text")
    assert text.startswith("VM shop/db: Scheduling, on no node yet\n")


def test_a_vmi_without_a_vm(explain):
    alone = motion.vmi(metadata={"ownerReferences": []})
    _, data = explain(*WORLD[:2], alone, motion.launcher(), vm="vmi/db")
    assert data["vm"]["kind"] == "VirtualMachineInstance"
    assert event(data, "loss")["outcome"] == "stays off"
    assert "no VM owns it" in event(data, "loss")["reason"]
    _, text = explain(*WORLD[:2], alone, motion.launcher(), form="text")
    assert text.startswith("VMI (without VM) shop/db: Running on a\n")


@pytest.mark.parametrize(
    "target", ["vm/db", "VM/shop/db", "virtualmachines.kubevirt.io/db", "virtualmachine/db", "vmi/db"]
)
def test_ways_to_name_it(explain, target):
    assert explain(*WORLD, vm=target)[0] == 0


@pytest.mark.parametrize(
    ("target", "flags", "says"),
    [
        ("vm/dv", (), "vm/dv does not exist. Did you mean vm/db?"),
        ("vm/nothing", (), "vm/nothing does not exist"),
        ("vm/db", ("-n", "bank"), "vm/db in namespace bank does not exist. It exists in shop: use -n shop"),
        ("vm/dv", ("-n", "shop"), "vm/dv in namespace shop does not exist. Did you mean vm/db?"),
    ],
)
def test_a_vm_that_does_not_exist(explain, target, flags, says):
    assert explain(*WORLD, vm=target, flags=flags) == (1, says)


def test_a_vm_in_several_namespaces(explain):
    other = manifest(KUBEVIRT, "VirtualMachine", "db", "bank", spec={"runStrategy": "Halted"})
    code, says = explain(*WORLD, other)
    assert (code, says) == (1, "vm/db exists in several namespaces: bank, shop. Add -n NAMESPACE")
    assert explain(*WORLD, other, flags=("-n", "shop"))[1]["vm"]["namespace"] == "shop"
    assert explain(*WORLD, other, vm="vm/bank/db")[1]["vm"]["namespace"] == "bank"


def test_a_vm_that_may_exist(explain):
    hidden = ("virtualmachines.kubevirt.io", "virtualmachineinstances.kubevirt.io")
    code, says = explain(*WORLD[:2], unreadable=hidden)
    assert code == 1
    assert says.startswith("vm/db cannot be found: virtualmachines.kubevirt.io, virtualmachineinstances.kubevirt.io")


def without(kind, *objects):
    return [each for each in objects if each.kind != kind]


@pytest.mark.parametrize(
    ("kind", "resource", "keys"),
    [
        (
            "VirtualMachineInstance",
            "virtualmachineinstances.kubevirt.io",
            ("state", "migratable", "candidates", "queue"),
        ),
        ("VirtualMachineInstanceMigration", "virtualmachineinstancemigrations.kubevirt.io", ("migrations", "queue")),
        ("PodDisruptionBudget", "poddisruptionbudgets.policy", ("budgets",)),
        ("Node", "nodes", ("candidates",)),
    ],
)
def test_what_may_not_be_read_is_null_and_forbidden(explain, kind, resource, keys):
    objects = without(kind, *WORLD)
    code, data = explain(*objects, unreadable=(resource,))
    assert code == 0
    assert [key for key in keys if data[key] is not None] == []
    assert any(what.startswith(resource) for what in data["unseen"])
    assert any(command.startswith(f"kubectl auth can-i list {resource}") for command in data["commands"])
    _, text = explain(*objects, unreadable=(resource,), form="text")
    assert f"forbidden: list {resource}. Ask for the verbs get and list on it." in text
    assert "cannot be determined" in text


def test_without_its_vmi_nothing_is_certain(explain):
    _, data = explain(*without("VirtualMachineInstance", *WORLD), unreadable=("virtualmachineinstances.kubevirt.io",))
    assert {each["outcome"] for each in data["events"]} == {"unknown"}
    assert data["vm"]["running"] is None


def test_its_place_in_the_queue(explain):
    kubevirt = manifest(
        KUBEVIRT, "KubeVirt", "kubevirt", "kubevirt",
        spec={"configuration": {"migrations": {"parallelOutboundMigrationsPerNode": 1}}},
        status={"observedKubeVirtVersion": "v1.9.0"},
    )  # fmt: skip
    running = motion.migration("evacuation-2", "Running", of="web", age=3900, since={"Running": 3900})
    waiting = motion.migration("evacuation-1", age=600, since={"Pending": 600})
    moving = motion.vmi("web", migrationState={"migrationUid": "uid-evacuation-2", "startTimestamp": motion.ago(3900)})
    world = (*WORLD, kubevirt, OTHER[0], moving, OTHER[2], motion.launcher("web", "b", "2", job="uid-evacuation-2"))
    _, data = explain(*world, running, waiting)
    assert data["state"] == "queued"
    assert data["queue"] == {"waits": True, "limit": "a may send 1 at a time", "others": 0, "holders": ["shop/web"]}
    assert event(data, "migration")["outcome"] == "does not start"
    assert "migration evacuation-1 is under way" in event(data, "migration")["reason"]
    assert data["commands"][0] == "virt-admit explain vm/web -n shop"


def test_its_last_migrations(explain):
    features = "guest CPU doesn't match specification: missing features: vmx-vmfunc"
    old = motion.failed(1, features, age=4000, lasted=60)
    _, data = explain(*WORLD, old)
    (found,) = data["migrations"]
    assert (found["name"], found["phase"], found["asked_by"], found["target"]) == (old.name, "Failed", "drain", "b")
    assert found["failure"]["class"] == "P"
    assert "vmx-vmfunc" in found["failure"]["text"]
    _, text = explain(*WORLD, old, form="text")
    assert "class P: " in text


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
        spec={"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeName": "pv"}, status={"phase": "Bound"},
    )  # fmt: skip
    volume = manifest("v1", "PersistentVolume", "pv", "", spec={"local": {"path": "/x"}})
    conditions = [{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}]
    vmi = motion.vmi(spec={"evictionStrategy": "None", "volumes": disks}, reported=False, conditions=conditions)
    world = (*WORLD[:3], vmi, WORLD[4], budget, claim, volume)
    _, data = explain(*world)
    assert data["budgets"] == [{"namespace": "shop", "name": "keep", "allowed": 0, "blocks": True}]
    root, image, gone = data["volumes"]
    assert (root["kind"], root["claim"], root["access_modes"]) == ("persistentVolumeClaim", "data", ["ReadWriteOnce"])
    assert (
        root["problem"] == "its data is on one node: a local volume; it is not ReadWriteMany, which a migration needs"
    )
    assert (image["claim"], image["problem"]) == (None, "")
    assert gone["problem"] == "claim gone does not exist"
    assert event(data, "drain")["outcome"] == "blocks the drain"
    assert data["migratable"] is False
    assert "kubectl describe poddisruptionbudget keep -n shop" in data["commands"]
    assert "kubectl describe persistentvolumeclaim gone -n shop" in data["commands"]
    _, unread = explain(*without("PersistentVolumeClaim", *world), unreadable=("persistentvolumeclaims",))
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


def test_a_migration_that_is_not_possible_says_why(explain):
    _, data = explain(*without("Node", *WORLD), motion.node("a"))
    assert event(data, "migration")["outcome"] == "does not start"
    assert data["candidates"] == []
    _, data = explain(*WORLD[:3], motion.vmi(reported=False), motion.launcher())
    assert event(data, "migration")["outcome"] == "unknown"


def test_an_update_waits_for_a_method(explain):
    assert explain(*WORLD)[1]["upgrade"]["update"] == "unknown"
    kubevirt = manifest(KUBEVIRT, "KubeVirt", "kubevirt", "kubevirt", spec={}, status={})
    _, data = explain(*WORLD, kubevirt)
    assert data["upgrade"]["update"] == "never"
    spec = {"workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]}}
    _, data = explain(*WORLD, manifest(KUBEVIRT, "KubeVirt", "kubevirt", "kubevirt", spec=spec, status={}))
    assert data["upgrade"]["update"] == event(data, "update")["outcome"] == "migrated"


@pytest.mark.parametrize(
    ("policy", "run_strategy", "outcome"),
    [
        ({}, "Always", "stays on its node"),
        ({"rebootPolicy": "Reboot"}, "Manual", "stays on its node"),
        ({"rebootPolicy": "Terminate"}, "Always", "restarted"),
        ({"rebootPolicy": "Terminate"}, "Manual", "stays off"),
    ],
)
def test_a_reboot_of_the_guest(explain, policy, run_strategy, outcome):
    vmi = motion.vmi(spec={"domain": {"devices": {}, "memory": {"guest": "4Gi"}} | policy})
    vm = builders.vm(name="db", runStrategy=run_strategy)
    _, data = explain(*WORLD[:2], vm, vmi, motion.launcher())
    assert event(data, "reboot")["outcome"] == outcome
    _, data = explain(*WORLD[:2], vmi, motion.launcher(), unreadable=("virtualmachines.kubevirt.io",))
    assert event(data, "reboot")["outcome"] == ("unknown" if policy.get("rebootPolicy") == "Terminate" else outcome)


def test_the_loss_of_its_node_with_a_health_check(explain):
    template = {"apiVersion": "self-node-remediation.medik8s.io/v1alpha1", "kind": "SelfNodeRemediationTemplate"}
    check = manifest(
        "remediation.medik8s.io/v1alpha1", "NodeHealthCheck", "workers", "",
        spec={
            "minHealthy": 1, "selector": {},
            "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": "300s"}],
            "remediationTemplate": template | {"name": "snr", "namespace": "shop"},
        },
    )  # fmt: skip
    snr = manifest(template["apiVersion"], template["kind"], "snr", NAMESPACE, spec={"template": {"spec": {}}})
    _, data = explain(*WORLD, check, snr)
    found = event(data, "loss")
    assert found["outcome"] == "restarted"
    assert "NodeHealthCheck workers confirms that a is down after" in found["reason"]
    _, data = explain(*WORLD, snr, unreadable=("nodehealthchecks.remediation.medik8s.io",))
    assert event(data, "loss")["outcome"] == "unknown"


def test_post_copy_is_left_alone(explain):
    moving = motion.migration("evacuation-1", "Running", since={"Running": 60})
    state = {
        "migrationUid": "uid-evacuation-1",
        "startTimestamp": motion.ago(60),
        "mode": "PostCopy",
        "targetNode": "b",
    }
    world = (
        *WORLD[:3],
        motion.vmi(migrationState=state),
        WORLD[4],
        motion.launcher("db", "b", "2", job="uid-evacuation-1"),
    )
    _, data = explain(*world, moving)
    assert data["state"] == "post-copy"
    assert data["avoid"]
    _, text = explain(*world, moving, form="text")
    assert advice.risky(text) == []


def test_commands_are_quoted(explain):
    evil = "db; reboot"
    vm, vmi = motion.vm(), motion.vmi()
    for each in (vm, vmi):
        each.data["metadata"]["name"] = evil
    vmi.data["metadata"]["ownerReferences"][0]["name"] = evil
    _, data = explain(*WORLD[:2], vm, vmi, vm=f"vm/{evil}")
    named = [command for command in data["commands"] if "reboot" in command]
    assert named
    assert [command for command in named if evil not in shlex.split(command)] == []
