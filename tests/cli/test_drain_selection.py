"""Which nodes ``virt-admit drain`` judges: names in kubectl's forms, labels, pools;
and mistakes in them.
"""

from __future__ import annotations

import json

import pytest

from tests.cli.test_several_clusters import run as run_verb
from tests.model.kubevirt.drain_cases import ROOM

POOLS = [
    {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": name},
        "spec": {"nodeSelector": {"matchLabels": {f"node-role.kubernetes.io/{role}": ""}}},
    }
    for name, role in (("worker", "worker"), ("gpu", "gpu"))
]
MACHINES = [
    {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "Machine",
        "metadata": {
            "name": name,
            "namespace": "fleet",
            "labels": {
                "cluster.x-k8s.io/deployment-name": "md-0",
                "cluster.x-k8s.io/cluster-name": "c",
            },
        },
        "status": {"nodeRef": {"name": name}},
    }
    for name in ("worker-2", "worker-3")
]
DEPLOYMENT = {
    "apiVersion": "cluster.x-k8s.io/v1beta1",
    "kind": "MachineDeployment",
    "metadata": {"name": "md-0", "namespace": "fleet"},
    "spec": {},
}


def node(name: str, *roles: str) -> dict[str, object]:
    labels = {"kubevirt.io/schedulable": "true", "zone": name[-1]} | {
        f"node-role.kubernetes.io/{r}": "" for r in roles
    }
    status = {"allocatable": ROOM, "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": status,
    }


NODES = [node("worker-1", "worker"), node("worker-2", "worker", "gpu"), node("worker-3", "worker")]
BLOCKED = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "db", "namespace": "shop"},
    "spec": {"evictionStrategy": "External"},
    "status": {
        "phase": "Running",
        "nodeName": "worker-3",
        "conditions": [{"type": "LiveMigratable", "status": "True"}],
    },
}


@pytest.fixture
def drain(tmp_path, monkeypatch):
    def run(*args, **snapshot):
        items = [*NODES, *POOLS, DEPLOYMENT, *MACHINES, BLOCKED]
        content = {
            "apiVersion": "virt-admit.io/v1alpha1",
            "kind": "Snapshot",
            "complete": ["*"],
            "items": items,
        }
        (tmp_path / "cluster.json").write_text(json.dumps(content | snapshot))
        return run_verb("drain", *args, "--cluster", str(tmp_path / "cluster.json"))

    return run


def names(stdout):
    return sorted(found["name"] for found in json.loads(stdout)["nodes"])


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["worker-1"], ["worker-1"]),
        (["node/worker-1", "nodes/worker-2", "worker-1"], ["worker-1", "worker-2"]),
        (["-l", "zone in (1, 2)"], ["worker-1", "worker-2"]),
        (["--selector", "node-role.kubernetes.io/gpu", "worker-3"], ["worker-2", "worker-3"]),
        (["--pool", "worker"], ["worker-1", "worker-3"]),
        (["--pool", "gpu"], ["worker-2"]),
        (["--pool", "md-0"], ["worker-2", "worker-3"]),
        (["--all"], ["worker-1", "worker-2", "worker-3"]),
    ],
    ids=" ".join,
)
def test_the_nodes_that_are_judged(drain, args, expected):
    code, stdout, _ = drain(*args, "-o", "json")
    assert names(stdout) == expected
    assert code == ("worker-3" in expected)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["worker-9"], "node worker-9 does not exist. Did you mean worker-1?"),
        (
            ["elsewhere"],
            "node elsewhere does not exist. The nodes are: worker-1, worker-2, worker-3",
        ),
        (["-l", "zone=9"], "no node matches zone=9"),
        (
            ["--pool", "gpus"],
            "no MachineConfigPool or MachineDeployment is named gpus. Did you mean gpu?",
        ),
        (["-l", "zone in"], "zone in"),
        ([], "give a NODE, --selector, --pool or --all"),
        (["worker-1", "--all"], "--all excludes NODE, --selector and --pool: choose one"),
    ],
)
def test_a_selection_that_cannot_be_meant_is_one_line_and_exit_2(drain, args, says):
    code, stdout, stderr = drain(*args)
    assert (code, stdout) == (2, "")
    assert says in stderr
    assert "\n" not in stderr


def test_nodes_that_were_not_read_may_match_a_selector(drain):
    known = ["virtualmachineinstances.kubevirt.io", "pods", "poddisruptionbudgets.policy"]
    code, stdout, _ = drain("-l", "zone=1", "-o", "json", complete=known)
    assert json.loads(stdout)["drainable"] is None
    assert code == 2


def test_a_machine_that_was_not_read_may_belong_to_a_pool(drain):
    code, _, stderr = drain("--pool", "md-0", unreadable=["machines.cluster.x-k8s.io"])
    assert code == 2
    assert stderr == "no node matches pool md-0; not all could be read: machines.cluster.x-k8s.io"


def test_the_first_line_names_the_nodes_that_can_be_drained_now(drain):
    assert drain("--all")[1].splitlines()[0] == "Nodes that can be drained now: worker-1, worker-2"
    assert (
        drain("--all", "--summary")[1].splitlines()[0]
        == "Nodes that can be drained now: worker-1, worker-2"
    )
    assert not drain("worker-1")[1].startswith("Nodes that")


def test_no_node_can_be_drained(drain):
    assert (
        drain("--all", items=[NODES[2], BLOCKED])[1].splitlines()[0]
        == "No node can certainly be drained now."
    )
