"""A node without VMs that does not report: nothing can update it, whatever its drain says."""

import json

import pytest
from click.testing import CliRunner

from tests.healthy.openshift import config_notes, pool
from tests.healthy.parts import ago, snapshot
from tests.incidents import held_nodes
from tests.incidents_platform.case import NODES, cluster, dead, only
from tests.remedies import joined
from virt_admit.cli.main import virt_admit

SILENT = "has not reported for 5 h"


def empty(items, name):
    """Return the cluster with a lost node that has pods of DaemonSets alone."""
    kept = [
        each
        for each in items
        if each["kind"] != "Pod" or each["spec"].get("nodeName") != name or _is_daemon(each)
    ]
    return dead(kept, name)


def _is_daemon(pod):
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ()))


@pytest.fixture
def ask(tmp_path):
    def run(items, *words):
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps(snapshot(items)))
        return CliRunner().invoke(
            virt_admit, [*words, "--cluster", str(path)], standalone_mode=False
        )

    return run


def test_it_is_not_updated(ask):
    items, stop = (
        empty(cluster(), "n3"),
        f"stops at n3: it {SILENT}, so nothing can update it\n  to do: ",
    )
    notes = only(items, "Node", "n3")["metadata"]["annotations"]
    notes["kubevirt.io/heartbeat"] = ago(seconds=30)
    found = ask(items, "upgrade")
    assert found.return_value == 1
    assert f"{stop}Repair its kubelet: virt-handler there reports" in found.stdout
    notes["kubevirt.io/heartbeat"] = ago(hours=5)
    assert f"{stop}Repair or fence the node" in ask(items, "upgrade").stdout
    assert f"{stop}Do not fence n3; check" in joined(
        ask([*items, held_nodes.request("csr-1", "n3", 50)], "upgrade").stdout
    )
    assert ask(cluster(), "upgrade").return_value == 0


def test_a_node_with_pods_is_named_once(ask):
    items = dead(cluster(vms=[("web", "n3")]), "n3")
    out = ask(items, "upgrade").stdout
    assert out.count("stops at n3: Node n3: its kubelet does not report") == 1
    assert "nothing can update it" not in out


@pytest.mark.parametrize("form", ["--summary", None])
def test_the_answer_of_all_drains_says_it(ask, form):
    items = [
        *empty(cluster(**{name: config_notes("worker") for name in NODES}), "n3"),
        pool("worker", NODES),
    ]
    words = ["drain", "--all", *filter(None, [form])]
    assert f"Can the cluster be upgraded today? No: node n3 {SILENT}." in ask(items, *words).stdout
    only(items, "Node", "n3")["metadata"]["annotations"]["cluster.x-k8s.io/machine"] = "machine-n3"
    stop = "the next update of MachineConfigPool worker would not begin: n3"
    assert f"Can the cluster be upgraded today? No: {stop}" in ask(items, *words).stdout
    assert stop in ask(items, "upgrade").stdout


def pooled(incident):
    """Return a cluster of an incident as one of OpenShift,
    whose workers are to get another configuration.
    """
    items = incident.items
    for each in items:
        if each["kind"] == "Node" and each["metadata"]["name"].startswith("w"):
            each["metadata"]["annotations"] |= config_notes("worker")
    return [*items, pool("worker", ["w1", "w2", "w3"], target="2", updated=0)]


def remedy(ask, items):
    stop = "updates no other node: "
    said = joined(ask(items, "upgrade").stdout)
    return said.partition(stop)[2].partition("to do: ")[2].partition("\n")[0]


def test_a_pool_gets_the_node_back_that_waits_for_a_certificate(ask):
    items = pooled(held_nodes.certificate_that_expired("scan"))
    assert remedy(ask, items).startswith(
        "Do not fence w1; check that the request is of w1, approve it"
    )
    assert remedy(ask, items).endswith(": kubectl certificate approve csr-b")
    only(items, "Node", "w3")["spec"]["unschedulable"] = True
    assert remedy(ask, items).endswith(
        "that follows: kubectl certificate approve csr-b; then see to w3"
    )


def test_a_pool_gets_the_node_back_that_is_still_fenced(ask):
    items = pooled(held_nodes.volume_of_a_fenced_node("scan"))
    assert remedy(ask, items).startswith(
        "Scale Deployment edge/agent to 0 for this time, after which the remediator"
    )
    assert remedy(ask, items).endswith(": kubectl scale deployment agent -n edge --replicas=0")


def test_a_taint_of_an_administrator_is_removed_before_an_uncordon(ask):
    items = [
        each
        for each in pooled(held_nodes.volume_of_a_fenced_node("scan"))
        if each["kind"] != "VolumeAttachment"
    ]
    only(items, "Node", "w1")["spec"]["taints"].pop(0)
    untaint = "kubectl taint nodes w1 node.kubernetes.io/out-of-service-"
    assert (
        remedy(ask, items) == f"Check w1, then remove its taint by hand, and uncordon w1: {untaint}"
    )
    del only(items, "Node", "w1")["spec"]["taints"]
    assert (
        remedy(ask, items)
        == "Uncordon w1: kubectl uncordon w1; or raise maxUnavailable so that others go on"
    )


@pytest.mark.parametrize(("minutes", "waits"), [(3, True), (40, False)], ids=["boots", "stays-off"])
def test_a_node_that_was_fenced_a_moment_ago_is_waited_for(ask, minutes, waits):
    resource = {"kind": "SelfNodeRemediation", "namespace": "medik8s", "name": "n3-x"}
    begun = {"started": ago(minutes=minutes + 3), "resource": resource}
    ended = {"type": "Succeeded", "status": "True", "lastTransitionTime": ago(minutes=minutes)}
    items = [
        *empty(cluster(), "n3"),
        {
            "apiVersion": "remediation.medik8s.io/v1alpha1",
            "kind": "NodeHealthCheck",
            "metadata": {"name": "workers"},
            "status": {"unhealthyNodes": [{"name": "n3", "remediations": [begun]}]},
        },
        {
            "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
            "kind": "SelfNodeRemediation",
            "metadata": {"name": "n3-x", "namespace": "medik8s"},
            "status": {"conditions": [ended]},
        },
    ]
    upgrade, drain = ask(items, "upgrade"), ask(items, "drain", "--all")
    words = "NodeHealthCheck workers, whose SelfNodeRemediation n3-x fenced it 3 min ago"
    assert (words in upgrade.stdout, words in drain.stdout) == (waits, waits)
    assert upgrade.return_value == (0 if waits else 1)
    assert ("upgraded today? Yes" in drain.stdout) is waits
