"""Problem ids: ``scan``, ``drain`` and ``upgrade`` name the same problem by the same id,
and text prints it once.
"""

import json

import pytest
from click.testing import CliRunner

from tests.builders import manifest
from virt_admit.cli import main
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.drain.report import report
from virt_admit.reports.values import as_data

KUBEVIRT = "kubevirt.io/v1"
DISK, DEVICE = "DisksNotLiveMigratable:shop/db", "HostDeviceNotLiveMigratable:shop/db"
LABELS = {"kubevirt.io/schedulable": "true"}
MASQUERADE = {"interfaces": [{"name": "default", "masquerade": {}}]}


def node(name, ready="True", **labels):
    return manifest(
        "v1",
        "Node",
        name,
        metadata={"labels": LABELS | labels},
        status={
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "250"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    )


def vm(name="db", on="a", strategy="LiveMigrate", reason="DisksNotLiveMigratable", **devices):
    """A VM with its VMI, and a claim that only one node can mount."""
    spec = {
        "evictionStrategy": strategy,
        "domain": {"devices": MASQUERADE | devices, "memory": {"guest": "1Gi"}},
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": f"{name}-root"}}],
    }
    return [
        manifest(
            KUBEVIRT,
            "VirtualMachine",
            name,
            "shop",
            spec={"runStrategy": "Always", "template": {"spec": spec}},
        ),
        manifest(
            KUBEVIRT,
            "VirtualMachineInstance",
            name,
            "shop",
            metadata={
                "ownerReferences": [{"kind": "VirtualMachine", "name": name, "controller": True}]
            },
            spec=spec,
            status={
                "phase": "Running",
                "nodeName": on,
                "conditions": [{"type": "LiveMigratable", "status": "False", "reason": reason}],
            },
        ),
        manifest(
            "v1",
            "PersistentVolumeClaim",
            f"{name}-root",
            "shop",
            spec={"accessModes": ["ReadWriteOnce"], "volumeName": f"pv-{name}"},
            status={"phase": "Bound"},
        ),
        manifest("v1", "PersistentVolume", f"pv-{name}", spec={"accessModes": ["ReadWriteOnce"]}),
    ]


def budget(name="web", namespace="shop"):
    return [
        manifest(
            "policy/v1",
            "PodDisruptionBudget",
            name,
            namespace,
            spec={"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
            status={"expectedPods": 1, "disruptionsAllowed": 0},
        ),
        manifest(
            "v1",
            "Pod",
            "web-1",
            namespace,
            metadata={
                "labels": {"app": "web"},
                "ownerReferences": [{"kind": "ReplicaSet", "controller": True}],
            },
            spec={"nodeName": "a"},
            status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        ),
    ]


@pytest.fixture
def run(tmp_path):
    """Run a verb over a snapshot and return what it prints."""

    def run(verb, items, *arguments):
        objects = [
            item.data for group in items for item in (group if isinstance(group, list) else [group])
        ]
        data = {
            "apiVersion": "virt-admit.io/v1alpha1",
            "kind": "Snapshot",
            "complete": ["*"],
            "items": objects,
        }
        (tmp_path / "cluster.json").write_text(json.dumps(data))
        call = [verb, "--cluster", str(tmp_path / "cluster.json"), *arguments]
        result = CliRunner().invoke(main.virt_admit, call)
        assert result.exit_code in (0, 1), result.output
        return result.stdout

    return run


DEVICES = {"hostDevices": [{"name": "card", "deviceName": "example.com/card"}]}


def test_every_verb_names_a_problem_by_the_same_id(run):
    items = [node("a"), node("b"), vm(**DEVICES), budget()]
    scanned = json.loads(run("scan", items, "-o", "json"))["results"]
    drained = json.loads(run("drain", items, "--all", "-o", "json"))
    stops = json.loads(run("upgrade", items, "-o", "json", "--by", "plain"))["stops"]
    (drained_vm,) = [vm for node in drained["nodes"] for vm in node["vms"]]
    (blocker,) = [blocker for node in drained["nodes"] for blocker in node["blockers"]]

    assert sorted(drained_vm["problems"]) == [DISK, DEVICE]
    assert blocker["problem"] == "BudgetForbidsEviction:shop/web"
    ids = {DISK, DEVICE, blocker["problem"]}
    assert sorted(stop["problem"] for stop in stops) == sorted(ids), "one stop for each cause"
    assert {result["problem"] for result in scanned} - {None} == ids
    shown = {
        (result["rule"], result["object"]["kind"])
        for result in scanned
        if result["problem"] == DISK
    }
    assert shown >= {
        ("vm-live-migrate-not-migratable", "VirtualMachine"),
        ("vm-live-migrate-not-migratable", "VirtualMachineInstance"),
        ("vmi-not-migratable", "VirtualMachineInstance"),
    }


def test_text_prints_a_problem_once_and_json_all_results(run):
    items = [node("a"), node("b"), vm()]
    rules = ("--select", "vm-live-migrate-not-migratable", "--select", "vmi-not-migratable")
    text = run("scan", items, *rules)
    found = [line for line in text.splitlines() if "[vm" in line and not line.startswith(" ")]
    assert len(found) == 1, text
    assert "db-root" in found[0]
    (also,) = [line for line in text.splitlines() if line.startswith("    also: ")]
    assert "VirtualMachineInstance/shop/db [vm-live-migrate-not-migratable]" in also
    assert "VirtualMachineInstance/shop/db [vmi-not-migratable]" in also
    assert run("scan", items, *rules, "-q") == text
    assert len(json.loads(run("scan", items, *rules, "-o", "json"))["results"]) == 3
    assert (
        sum("[vm" in line for line in run("scan", items, *rules, "--all-lines").splitlines()) == 3
    )


CAPI = "cluster.x-k8s.io/v1beta1"


def tenant(name, on):
    """A VM of a tenant cluster whose MachineHealthCheck replaces it, with its Machine."""
    found = vm(name, on, strategy="External")
    mark = "capk.cluster.x-k8s.io/kubevirt-machine"
    found[1].data["metadata"]["labels"] = {f"{mark}-name": name, f"{mark}-namespace": "shop"}
    owner = {"apiVersion": CAPI, "kind": "MachineSet", "name": "md", "controller": True}
    metadata = {"labels": {"cluster.x-k8s.io/cluster-name": "prod"}, "ownerReferences": [owner]}
    machine = {"kind": "KubevirtMachine", "name": name}
    spec = {"clusterName": "prod", "infrastructureRef": machine}
    status = {"nodeRef": {"name": f"tenant-{name}"}}
    return [
        *found,
        manifest(CAPI, "Machine", name, "shop", metadata=metadata, spec=spec, status=status),
    ]


def test_only_some_of_the_vms_of_many_nodes(run):
    limits = {"maxUnhealthy": "100%", "selector": {}, "clusterName": "prod"}
    limits["unhealthyConditions"] = [{"type": "Ready", "status": "Unknown", "timeout": "300s"}]
    items = [
        manifest(CAPI, "MachineHealthCheck", "md", "shop", spec=limits),
        manifest(CAPI, "Cluster", "prod", "shop"),
        *map(node, ("node-1", "node-2")),
    ]
    for number in (1, 2):
        items += [vm(f"own-{number}", f"node-{number}"), tenant(f"t-{number}", f"node-{number}")]
    text = run("scan", items, "--select", "node-without-health-check")

    assert "Node/node-1 and 1 more: " in text
    assert "so some VMs on it would not restart after its loss" in text


def test_equal_lines_about_many_nodes_are_one(run):
    items = [
        *(node(f"node-{number:03}") for number in range(250)),
        vm(on="node-007", strategy="None"),
    ]
    items += [vm(f"vm-{number:03}", f"node-{number:03}", strategy="None") for number in range(250)]
    text = run("scan", items, "--select", "node-without-health-check")
    found = [line for line in text.splitlines() if "[node-without-health-check]" in line]
    assert len(found) <= 2, text[:2000]
    assert any(" and 249 more: " in line for line in found)
    # each node has a number of its own, and other VMs may restart
    assert any("so VMs on it would not restart" in line for line in found)
    assert (
        len(
            json.loads(run("scan", items, "--select", "node-without-health-check", "-o", "json"))[
                "results"
            ]
        )
        == 250
    )


def test_problems_of_other_objects_are_not_merged(run):
    text = run("scan", [node("a"), node("b"), vm(), vm("mail")], "--select", "vmi-not-migratable")
    assert sum("[vmi-not-migratable]" in line for line in text.splitlines()) == 2


def test_the_id_of_a_hostile_reason_is_a_word():
    data = as_data(report(plan(Snapshot([node("a"), *vm(reason="x\n$(id):../y")], ["*"]))))
    problems = data["nodes"][0]["vms"][0]["problems"]
    assert problems == ["NotLiveMigratable:shop/db", DISK]


def test_a_node_that_does_not_report_is_one_problem_of_all_its_vms():
    data = as_data(
        report(plan(Snapshot([node("a", ready="Unknown"), node("b"), *vm(), *vm("mail")], ["*"])))
    )
    (silent,) = [one for one in data["nodes"] if one["name"] == "a"]
    assert all("NodeNotReporting:a" in vm["problems"] for vm in silent["vms"])
    assert [blocker["problem"] for blocker in silent["blockers"]] == ["NodeNotReporting:a"]


def stops(run, *items, by):
    found = json.loads(run("upgrade", items, "-o", "json", "--by", by))["stops"]
    return {(stop["node"], stop["problem"]) for stop in found}


def test_every_certain_stop_is_listed(run):
    """The simulation meets the first node alone: the others wait for it."""
    items = [
        node("a"),
        node("b"),
        node("c"),
        vm(strategy="External"),
        vm("web", "b", strategy="External"),
    ]
    assert stops(run, *items, by="plain") == {
        ("a", "ExternalEvictionStrategy:shop/db"),
        ("b", "ExternalEvictionStrategy:shop/web"),
    }


def test_a_pool_that_is_paused_is_a_problem_of_the_pool(run):
    role = "node-role.kubernetes.io/worker"
    spec = {"paused": True, "nodeSelector": {"matchLabels": {role: ""}}}
    pool = manifest(
        "machineconfiguration.openshift.io/v1", "MachineConfigPool", "worker", spec=spec
    )
    assert ("", "PoolPaused:worker") in stops(
        run, node("a", **{role: ""}), node("b"), pool, by="machineconfig"
    )
