"""A pod waits for a volume that a lost node still has: what is said of the VM, and of the node."""

import json

import pytest
from click.testing import CliRunner

from tests.healthy.parts import Object, snapshot
from tests.incidents_platform.case import only
from tests.incidents_platform.storage import volume_of_a_dead_node
from virt_admit.cli.main import virt_admit

TAINT = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
REMEDY = (
    "as a decision, once n2 is confirmed to be off, taint it out-of-service or delete its Node: "
    "kubectl taint nodes n2 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
)


def starting() -> list[Object]:
    """Return a cluster in which the pod of a VM is on n3 for 26 min, while n2, which is lost,
    still has its volume.
    """
    return volume_of_a_dead_node().items


def shared() -> list[Object]:
    items = starting()
    only(items, "PersistentVolumeClaim", "db")["spec"]["accessModes"] = ["ReadWriteMany"]
    return items


def reporting() -> list[Object]:
    items = starting()
    only(items, "Node", "n2")["status"] = only(items, "Node", "n1")["status"]
    return items


def fenced() -> list[Object]:
    items = starting()
    only(items, "Node", "n2")["spec"]["taints"] = [TAINT]
    return items


@pytest.fixture
def explain(tmp_path):
    def run(items, *words, **fields):
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps(snapshot(items, **fields)))
        return CliRunner().invoke(virt_admit, ["explain", *words, "--cluster", str(path)]).stdout

    return run


def flat(text):
    """Return a text in one line: each command of a remedy has a line of its own."""
    return " ".join(text.split())


def test_the_vm_says_that_the_node_of_its_volume_is_lost(explain):
    out = explain(starting(), "vm/db", "-n", "vms")
    assert (
        "claim db is still attached to n2, which has not reported for 5 h (volume pvc-vms-db)"
        in out
    )
    assert f"To do {REMEDY} " in flat(out)


def test_the_release_may_not_have_the_taint(explain):
    items = starting()
    for node in (each for each in items if each["kind"] == "Node"):
        node["status"].pop("nodeInfo", None)
    out = flat(explain(items, "vm/db", "-n", "vms", serverVersion=None))
    assert "or delete its Node (the taint has an effect from Kubernetes 1.26 on, and the" in out
    assert "release here is not known): kubectl taint nodes n2" in out


def test_the_node_says_who_waits_for_its_volume(explain):
    out = explain(starting(), "node/n2")
    assert (
        "note: Pod vms/virt-launcher-db-k2x7q on n3 does not start: claim db is still attached "
        "to n2, which"
    ) in out
    assert f"To free it, {REMEDY} " in flat(out)


@pytest.mark.parametrize("items", [reporting(), shared(), fenced()])
def test_other_nodes_are_not_accused(explain, items):
    assert "out-of-service or delete" not in explain(items, "vm/db", "-n", "vms") + explain(
        items, "node/n2"
    )


def test_a_lost_node_without_pods_is_not_drained(explain):
    items = starting()
    for each in [
        each for each in items if each["kind"] == "Pod" and each["spec"].get("nodeName") == "n2"
    ]:
        items.remove(each)
    out = explain(items, "node/n2")
    assert "never completes" not in out
    assert "kubectl drain" not in out
    assert "Commands\n  kubectl describe node n2\n" in out
    assert "kubectl drain n1" in explain(items, "node/n1")
