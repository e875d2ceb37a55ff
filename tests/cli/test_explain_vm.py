"""``virt-admit explain vm/NAME``: one VM on one screen."""

import json
import shlex

import pytest
from click.testing import CliRunner

from tests import advice, builders
from tests.builders import KUBEVIRT, NAMESPACE, manifest
from tests.cli.explain_vm_cases import WORLD, Explainer, event, without
from tests.forecasts.drain import vm_motion as motion
from virt_admit.cli import main

KEYS = (
    *(
        "vm",
        "state",
        "strategy",
        "migratable",
        "candidates",
        "short",
        "migrations",
        "queue",
        "budgets",
        "volumes",
    ),
    *("control", "drain", "upgrade", "outage", "rules", "problems", "commands"),
)
"""The keys of the contract."""


@pytest.fixture
def explain(tmp_path):
    return Explainer(tmp_path)


def test_the_keys_of_the_contract_in_order(explain):
    code, data = explain(*WORLD)
    assert code == 0
    assert [key for key in data if key in KEYS] == list(KEYS)
    assert data["version"] == 1
    assert (data["state"], data["strategy"], data["migratable"], data["candidates"]) == (
        "still", "LiveMigrate", True, ["b"],
    )  # fmt: skip
    assert data["drain"]["outcome"] == data["upgrade"]["outcome"] == "migrates"
    assert (data["outage"]["outcome"], data["outage"]["node"]) == ("never restarts", "a")
    assert data["unseen"] == []


def test_the_text_fits_on_one_screen(explain):
    _, text = explain(*WORLD, form="text")
    lines = text.splitlines()
    assert lines[0] == "VM shop/db: Running on a"
    assert len(lines) <= 40
    words = " ".join(text.split())
    assert "a drain of its node migrates" in words
    assert "a migration now starts to b" in words
    assert "the loss of its node never restarts no health check watches a" in words
    assert "a reboot of the guest stays on its node" in words


def test_the_entry_of_drain_is_the_same(explain, tmp_path):
    _, data = explain(*WORLD)
    result = CliRunner().invoke(
        main.virt_admit,
        ("drain", "a", "--cluster", str(tmp_path / "cluster.json"), "-o", "json"),
        standalone_mode=False,
    )
    drained = json.loads(result.stdout)["nodes"][0]["vms"][0]
    assert data["drain"] == {key: drained[key] for key in data["drain"]}


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


def halted(**spec):
    template = {
        "spec": {
            "domain": {"devices": {}, "memory": {"guest": "4Gi"}},
            "nodeSelector": {"disk": "fast"},
        }
    }
    return builders.vm(name="db", runStrategy="Halted", template=template, **spec)


def test_where_a_vm_that_is_stopped_could_start(explain):
    fast = motion.node("b")
    fast.data["metadata"]["labels"]["disk"] = "fast"
    kubevirt = builders.kubevirt({}, status={"observedKubeVirtVersion": "v1.9.0"})
    world = (motion.node("a"), fast, kubevirt, manifest("v1", "Namespace", NAMESPACE))
    _, data = explain(*world, halted())
    assert data["candidates"] == ["b"]
    assert data["short"] == [{"node": "a", "what": "node selector disk=fast"}]
    _, data = explain(*world, halted(instancetype={"name": "large"}))
    assert data["candidates"] is data["short"] is None
    assert any("instancetypes" in what for what in data["unseen"])
    volumes = [{"name": "root", "dataVolume": {"name": "later"}}]
    waiting = halted()
    waiting.data["spec"]["template"]["spec"]["volumes"] = volumes
    _, data = explain(*world, waiting)
    assert data["candidates"] is None
    _, data = explain(*without("Node", *world), halted(), unreadable=("nodes",))
    assert data["candidates"] is None


def test_what_kubevirt_says_of_a_vm_that_should_run(explain):
    broken = builders.vm(name="db", runStrategy="Always")
    broken.data["status"] = {"printableStatus": "ErrorPvcNotFound"}
    _, data = explain(motion.node("a"), broken)
    assert (data["vm"]["status"], data["commands"][0]) == (
        "ErrorPvcNotFound",
        "kubectl describe vm db -n shop",
    )
    _, text = explain(motion.node("a"), broken, form="text")
    assert text.startswith("VM shop/db: not running (ErrorPvcNotFound)\n")


def test_a_vm_whose_vmi_has_ended(explain):
    _, data = explain(*WORLD[:3], motion.vmi(phase="Succeeded"))
    assert data["state"] == "stopped"
    assert data["events"][0]["reason"] == "it is not running: its VMI is Succeeded"


def test_a_vm_without_a_node_yet(explain):
    waiting = motion.vmi(phase="Scheduling", on=None)
    _, data = explain(*WORLD[:3], waiting)
    assert data["state"] == "starting"
    _, text = explain(*WORLD[:3], waiting, form="text")
    assert text.startswith("VM shop/db: Scheduling, does not run yet\n")


def test_a_vmi_without_a_vm(explain):
    alone = motion.vmi(metadata={"ownerReferences": []})
    _, data = explain(*WORLD[:2], alone, motion.launcher(), target="vmi/db")
    assert data["vm"]["kind"] == "VirtualMachineInstance"
    assert event(data, "loss")["outcome"] == "lost"
    assert "no VM owns it" in event(data, "loss")["reason"]
    _, text = explain(*WORLD[:2], alone, motion.launcher(), form="text")
    assert text.startswith("VMI (without VM) shop/db: Running on a\n")


@pytest.mark.parametrize(
    "target",
    ["vm/db", "VM/shop/db", "virtualmachines.kubevirt.io/db", "virtualmachine/db", "vmi/db"],
)
def test_ways_to_name_it(explain, target):
    assert explain(*WORLD, target=target)[0] == 0


@pytest.mark.parametrize("name", ["db", "shop/db"])
def test_a_name_after_its_kind_as_kubectl_takes_it(explain, name):
    assert explain(*WORLD, target="vm", flags=(name,)) == explain(*WORLD)


@pytest.mark.parametrize(
    ("target", "flags", "says"),
    [
        ("vm/dv", (), "vm/dv does not exist. Did you mean vm/db?"),
        ("vm/nothing", (), "vm/nothing does not exist"),
        (
            "vm/db",
            ("-n", "bank"),
            "vm/db in namespace bank does not exist. It exists in shop: use -n shop",
        ),
        ("vm/dv", ("-n", "shop"), "vm/dv in namespace shop does not exist. Did you mean vm/db?"),
    ],
)
def test_a_vm_that_does_not_exist(explain, target, flags, says):
    assert explain(*WORLD, target=target, flags=flags) == (1, says)


def test_a_vm_in_several_namespaces(explain):
    other = manifest(KUBEVIRT, "VirtualMachine", "db", "bank", spec={"runStrategy": "Halted"})
    code, says = explain(*WORLD, other)
    assert (code, says) == (1, "vm/db exists in several namespaces: bank, shop. Add -n NAMESPACE")
    assert explain(*WORLD, other, flags=("-n", "shop"))[1]["vm"]["namespace"] == "shop"
    assert explain(*WORLD, other, target="vm/bank/db")[1]["vm"]["namespace"] == "bank"


def test_a_vm_that_may_exist(explain):
    hidden = ("virtualmachines.kubevirt.io", "virtualmachineinstances.kubevirt.io")
    code, says = explain(*WORLD[:2], unreadable=hidden)
    assert code == 1
    assert says.startswith(
        "vm/db cannot be found: virtualmachines.kubevirt.io, virtualmachineinstances.kubevirt.io"
    )


@pytest.mark.parametrize(
    ("kind", "resource", "keys"),
    [
        (
            "VirtualMachineInstance",
            "virtualmachineinstances.kubevirt.io",
            ("state", "migratable", "candidates", "queue"),
        ),
        (
            "VirtualMachineInstanceMigration",
            "virtualmachineinstancemigrations.kubevirt.io",
            ("migrations", "queue"),
        ),
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
    assert any(
        command.startswith(f"kubectl auth can-i list {resource}") for command in data["commands"]
    )
    _, text = explain(*objects, unreadable=(resource,), form="text")
    assert (
        f"forbidden: this account may not list {resource}, so what rests on it is not judged. Ask "
        in text
    )
    assert "cannot be determined" in text


def test_without_its_vmi_nothing_is_certain(explain):
    _, data = explain(
        *without("VirtualMachineInstance", *WORLD),
        unreadable=("virtualmachineinstances.kubevirt.io",),
    )
    assert {each["outcome"] for each in data["events"]} == {"unknown"}
    assert data["vm"]["running"] is None


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
    _, data = explain(
        *WORLD, manifest(KUBEVIRT, "KubeVirt", "kubevirt", "kubevirt", spec=spec, status={})
    )
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
    _, data = explain(
        *WORLD[:2], vmi, motion.launcher(), unreadable=("virtualmachines.kubevirt.io",)
    )
    assert event(data, "reboot")["outcome"] == (
        "unknown" if policy.get("rebootPolicy") == "Terminate" else outcome
    )


def test_the_loss_of_its_node_with_a_health_check(explain):
    template = {
        "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
        "kind": "SelfNodeRemediationTemplate",
    }
    check = manifest(
        "remediation.medik8s.io/v1alpha1", "NodeHealthCheck", "workers", "",
        spec={
            "minHealthy": 1, "selector": {},
            "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": "300s"}],
            "remediationTemplate": template | {"name": "snr", "namespace": "shop"},
        },
    )  # fmt: skip
    snr = manifest(
        template["apiVersion"], template["kind"], "snr", NAMESPACE, spec={"template": {"spec": {}}}
    )
    _, data = explain(*WORLD, check, snr)
    found = event(data, "loss")
    assert found["outcome"] == "restarts"
    assert "NodeHealthCheck workers acts; it runs again after" in found["reason"]
    assert data["outage"]["to"] == "b"
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
    _, data = explain(*WORLD[:2], vm, vmi, target=f"vm/{evil}")
    named = [command for command in data["commands"] if "reboot" in command]
    assert named
    assert [command for command in named if evil not in shlex.split(command)] == []


def test_objects_without_a_namespace_are_in_default(explain):
    world = [motion.node("a"), motion.node("b"), motion.vm(), motion.vmi()]
    for obj in world[2:]:
        del obj.data["metadata"]["namespace"]
    _, data = explain(*world, target="vm/db", flags=("-n", "default"))
    assert (data["vm"]["namespace"], data["drain"]["outcome"], data["upgrade"]["moves"]) == (
        "default",
        "migrates",
        1,
    )


@pytest.mark.parametrize(
    ("conditions", "outcome", "says"),
    [
        ([{"type": "Ready", "status": "Unknown"}], "does not start", "its node does not report"),
        (
            [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}],
            "unknown",
            "which is not Ready",
        ),
        ([], "starts", "to b"),
    ],
)
def test_a_migration_away_from_a_node_that_is_not_ready(explain, conditions, outcome, says):
    here = motion.node("a")
    here.data["status"]["conditions"] = conditions
    _, data = explain(here, *WORLD[1:])
    found = event(data, "migration")
    assert (found["outcome"], says in found["reason"]) == (outcome, True), found


def test_what_an_upgrade_of_the_cluster_does(explain):
    _, text = explain(*WORLD, form="text")
    assert "cluster upgrade    possible, with 1 move of this VM" in text
    stuck = motion.vmi(reported=False, conditions=[{"type": "LiveMigratable", "status": "False"}])
    _, text = explain(*WORLD[:3], stuck, WORLD[4], form="text")
    assert "cluster upgrade    this VM stops it, as for a drain of its node\n" in text


def test_a_drain_under_way_is_followed(explain):
    assert "virt-admit drain a" in explain(*WORLD)[1]["commands"]
    cordoned = motion.node("a", unschedulable=True)
    assert "virt-admit drain a --follow" in explain(cordoned, *WORLD[1:])[1]["commands"]


def test_a_migration_that_can_last_hours(explain):
    spec = {"migrations": {"completionTimeoutPerGiB": 8000}}
    kubevirt = builders.kubevirt(spec, status={"observedKubeVirtVersion": "v1.9.0"})
    _, data = explain(*WORLD, kubevirt)
    assert (
        "to b; a migration of shop/db with a busy guest lasts at most"
        in event(data, "migration")["reason"]
    )
