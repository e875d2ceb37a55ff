"""A node without VMs that does not report: nothing can update it, whatever its drain says."""

import json

import pytest
from click.testing import CliRunner

from tests.healthy.openshift import config_notes, pool
from tests.healthy.parts import snapshot
from tests.incidents_platform.case import NODES, cluster, dead, only
from virt_admit.cli.main import virt_admit

SILENT = "does not report since 5 h 00"


def empty(items, name):
    """Return the cluster with a lost node that has pods of DaemonSets alone."""
    kept = [each for each in items if each["kind"] != "Pod" or each["spec"].get("nodeName") != name or _is_daemon(each)]
    return dead(kept, name)


def _is_daemon(pod):
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ()))


@pytest.fixture
def ask(tmp_path):
    def run(items, *words):
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps(snapshot(items)))
        return CliRunner().invoke(virt_admit, [*words, "--cluster", str(path)], standalone_mode=False)

    return run


def test_it_is_not_updated(ask):
    found = ask(empty(cluster(), "n3"), "upgrade")
    assert found.return_value == 1
    assert f"stops at n3: it {SILENT}, so nothing can update it\n  to do: Repair or fence the node" in found.stdout
    assert ask(cluster(), "upgrade").return_value == 0


def test_a_node_with_pods_is_named_once(ask):
    items = dead(cluster(vms=[("web", "n3")]), "n3")
    out = ask(items, "upgrade").stdout
    assert out.count("stops at n3: Node n3: its kubelet does not report") == 1
    assert "nothing can update it" not in out


@pytest.mark.parametrize("form", ["--summary", None])
def test_the_answer_of_all_drains_says_it(ask, form):
    items = [*empty(cluster(**{name: config_notes("worker") for name in NODES}), "n3"), pool("worker", NODES)]
    words = ["drain", "--all", *filter(None, [form])]
    assert f"Can the cluster be upgraded today? No: node n3 {SILENT}." in ask(items, *words).stdout
    only(items, "Node", "n3")["metadata"]["annotations"]["cluster.x-k8s.io/machine"] = "machine-n3"
    assert "Can the cluster be upgraded today? Yes" in ask(items, *words).stdout
