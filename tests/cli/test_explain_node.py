"""``virt-admit explain node/NAME``: the drain and the loss of one node on one page."""

import pytest

from tests.builders import manifest
from tests.cli.explain_vm_cases import OTHER, WORLD, Explainer, without
from tests.forecasts.drain import vm_motion as motion

TEMPLATE = {"apiVersion": "self-node-remediation.medik8s.io/v1alpha1", "kind": "SelfNodeRemediationTemplate"}
CHECK = manifest(
    "remediation.medik8s.io/v1alpha1",
    "NodeHealthCheck",
    "workers",
    spec={
        "minHealthy": 1,
        "selector": {},
        "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": "300s"}],
        "remediationTemplate": TEMPLATE | {"name": "snr", "namespace": "shop"},
    },
)
SNR = manifest(TEMPLATE["apiVersion"], TEMPLATE["kind"], "snr", "shop", spec={"template": {"spec": {}}})


@pytest.fixture
def explain(tmp_path):
    run = Explainer(tmp_path)
    return lambda *objects, node="node/a", **options: run(*objects, target=node, **options)


def test_drain_and_loss_on_one_page(explain):
    code, data = explain(*WORLD, *OTHER, CHECK, SNR)
    assert code == 0
    assert data["node"] == {"name": "a", "state": [], "vms": ["shop/db", "shop/web"]}
    assert data["loss"]["covered"] is True
    (check,) = data["loss"]["checks"]
    assert (check["name"], check["idle"]) == ("workers", "")
    assert check["restart"]["low"] >= 350
    assert [vm["outcome"] for vm in data["loss"]["vms"]] == ["restarted", "restarted"]
    assert (data["drain"]["drainable"], data["upgrade"]["possible"], data["outage"]) == (True, True, None)
    assert "kubectl drain a --ignore-daemonsets" in data["commands"]
    _, drained = explain(*WORLD, *OTHER, CHECK, SNR, node="a", verb="drain")
    assert data["drain"] == drained["nodes"][0]


def test_the_text(explain):
    _, text = explain(*WORLD, CHECK, SNR, form="text")
    words = [" ".join(line.split()) for line in text.splitlines()]
    assert words[:3] == ["Drain", "node a: 1 VM: 1 migrates", "migrates shop/db LiveMigrate, LiveMigratable"]
    assert "Loss: the node stops reporting and does not come back" in words
    assert any(line.startswith("confirmed down by NodeHealthCheck workers VMs can start elsewhere") for line in words)
    assert any(line.startswith("restarted shop/db runStrategy Always") for line in words)


def test_vms_with_one_reason_share_a_line(explain):
    _, text = explain(*WORLD, *OTHER, CHECK, SNR, form="text")
    assert sum("shop/db, shop/web" in line for line in text.splitlines()) == 1


def test_a_check_that_does_nothing_is_named(explain):
    _, data = explain(*WORLD, CHECK)  # its template does not exist
    assert data["loss"]["covered"] is False
    (check,) = data["loss"]["checks"]
    assert check["restart"] is None
    assert "snr" in check["idle"]
    assert data["loss"]["vms"][0]["outcome"] == "stays off"


def test_a_vm_that_blocks_has_a_command(explain):
    blocked = motion.vmi(reported=False, conditions=[{"type": "LiveMigratable", "status": "False"}])
    _, data = explain(*WORLD[:3], blocked, WORLD[4])
    assert data["drain"]["drainable"] is False
    assert data["commands"][0] == "virt-admit explain vm/db -n shop"


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        ("VirtualMachineInstance", "virtualmachineinstances.kubevirt.io"),
        ("NodeHealthCheck", "nodehealthchecks.remediation.medik8s.io"),
    ],
)
def test_what_may_not_be_read_is_null_and_forbidden(explain, kind, resource):
    objects = without(kind, *WORLD, CHECK, SNR)
    _, data = explain(*objects, unreadable=(resource,))
    assert resource in data["unseen"]
    if kind == "VirtualMachineInstance":
        assert data["node"]["vms"] is None
    else:
        assert data["loss"]["covered"] is None
        assert data["loss"]["vms"][0]["outcome"] == "unknown"
    _, text = explain(*objects, unreadable=(resource,), form="text")
    assert f"forbidden: this account may not list {resource}. Ask the cluster administrator for: " in text
    assert "cannot be determined" in text


@pytest.mark.parametrize("target", ["node/a", "nodes/a", "no/a", "Node/a"])
def test_ways_to_name_it(explain, target):
    assert explain(*WORLD, node=target)[0] == 0


def test_a_node_that_does_not_exist(explain):
    assert explain(*WORLD, node="node/worker") == (1, "node worker does not exist. The nodes are: a, b")


@pytest.mark.parametrize(
    ("objects", "level"),
    [
        ((*WORLD, CHECK, SNR), "notice"),  # after the loss the VM restarts
        (WORLD, "severe"),  # no health check, so it stays off
        (without("VirtualMachine", *WORLD, CHECK, SNR), "severe"),
    ],
)
def test_the_page_is_green_only_where_all_is_well(explain, objects, level):
    _, page = explain(*objects, form="html")
    assert f'class="verdict {level}"' in page or f"verdict {level}" in page
    assert "Loss of the node" in page
