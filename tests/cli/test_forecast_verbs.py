"""``virt-admit drain`` and ``virt-admit explain`` as commands."""

import json
import os
import threading
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.fake_api import FakeApi
from tests.paths import EXAMPLES
from virt_admit.cli import main
from virt_admit.cli.commands import drain, explain
from virt_admit.model.kubernetes.kinds import NODE, PDB, VMI

CLUSTER = str(EXAMPLES / "cluster.yaml")


def vmi(name, node, strategy, migratable):
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"evictionStrategy": strategy},
        "status": {
            "phase": "Running",
            "nodeName": node,
            "conditions": [
                {"type": "LiveMigratable", "status": migratable, "reason": "DisksNotLiveMigratable"}
            ],
        },
    }


@pytest.fixture
def blocked(tmp_path):
    """The example cluster with a VM on worker-1 that blocks a drain."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "cluster.yaml").write_text(Path(CLUSTER).read_text())
    (folder / "vmi.json").write_text(json.dumps(vmi("db", "worker-1", "LiveMigrate", "False")))
    return str(folder)


@pytest.fixture
def live(tmp_path, monkeypatch):
    """A cluster with every kind that the verbs look at, and the options that name it."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with FakeApi() as fake:
        for kind in {*drain.LOOKS_UP, *explain.LOOKS_UP}:
            fake.install(kind)
        fake.put(NODE, {"metadata": {"name": "n0", "labels": {"pool": "a"}}})
        fake.put(VMI, vmi("db", "n0", "None", "True"))
        yield fake, ("--kubeconfig", fake.kubeconfig(tmp_path))


def run(*command, stdin=None):
    result = CliRunner().invoke(main.virt_admit, command, standalone_mode=False, input=stdin)
    if isinstance(result.exception, click.ClickException):
        return 2, result.exception.message
    assert result.exception is None, result.exception
    return result.return_value, result.stdout


def test_a_vm_that_blocks_is_exit_1(blocked):
    code, out = run("drain", "worker-1", "--cluster", blocked)
    assert code == 1
    assert "shop/db" in out
    assert run("drain", "worker-2", "--cluster", blocked)[0] == 0


def test_every_node_as_json(blocked):
    code, out = run("drain", "--all", "--cluster", blocked, "-o", "json")
    assert code == 1
    assert "worker-1" in json.dumps(json.loads(out))


def test_a_node_that_is_not_there():
    assert run("drain", "nope", "--cluster", CLUSTER) == (
        2,
        "node nope does not exist. The nodes are: worker-1, worker-2",
    )


@pytest.mark.parametrize(
    "command",
    [("drain",), ("drain", "a", "--all"), ("drain", "--all", "--cluster", CLUSTER, "--live")],
)
def test_wrong_usage(command):
    assert run(*command)[0] == 2


def test_a_live_cluster_with_budgets_in_every_namespace(live):
    fake, where = live
    assert run("drain", "n0", *where)[0] == 0
    budget = {"spec": {"selector": {}}, "status": {"disruptionsAllowed": 0}}
    fake.put(PDB, {"metadata": {"name": "all", "namespace": "shop"}, **budget})
    code, out = run("drain", "--all", *where)
    assert code == 1
    assert "PodDisruptionBudget all forbids" in out


def test_a_live_cluster_that_does_not_answer(tmp_path):
    assert run("drain", "--all", "--kubeconfig", str(tmp_path / "none"))[0] == 2


CHECK = """\
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {name: workers}
spec: {selector: {matchLabels: {pool: a}}, minHealthy: 1}
---
apiVersion: machine.openshift.io/v1beta1
kind: MachineHealthCheck
metadata: {name: machines}
spec: {selector: {matchLabels: {pool: a}}, maxUnhealthy: 1}
---
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {name: m0, labels: {pool: a}, namespace: apis}
"""


def test_health_checks_on_standard_input_over_a_live_cluster(live):
    _, where = live
    code, out = run("explain", "-", "-n", "apis", "-o", "json", *where, stdin=CHECK)
    assert code == 0
    assert [
        (each["selected"]["names"], each["selected"]["complete"]) for each in json.loads(out)
    ] == [(["n0"], True), (["m0"], True)]


def test_a_file_alone_shows_what_it_holds(tmp_path):
    (tmp_path / "check.yaml").write_text(CHECK)
    code, out = run("explain", str(tmp_path / "check.yaml"), "-n", "apis")
    assert code == 0
    assert "selects        1 machine that can be read: m0" in out
    assert "Not available" in out


def test_a_health_check_in_a_file():
    code, out = run("explain", str(EXAMPLES / "07-health-check.yaml"), "--cluster", CLUSTER)
    assert code == 0
    assert "selects        2 machines: worker-a-1, worker-a-2" in out


def test_a_health_check_from_a_pipe(tmp_path):
    """``virt-admit explain <(kubectl get …)``: the shell names a pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(CHECK,), daemon=True)
    writer.start()
    code, out = run("explain", str(pipe), "-n", "apis")
    assert code == 0
    assert "NodeHealthCheck workers" in out


def test_a_folder_is_not_explained(tmp_path):
    code, out = run("explain", str(tmp_path))
    assert code == 2
    assert "is not a file and does not name an object" in out


@pytest.mark.parametrize("target", ["mhc/", "mhc", "vm/", "pod/a"])
def test_a_wrong_target_is_reported_before_the_cluster(tmp_path, target):
    code, out = run("explain", target, "--kubeconfig", str(tmp_path / "none"))
    assert (code, out) == (
        2,
        (
            f"{target} is not a file and does not name an object: write nhc/NAME, "
            "mhc/NAMESPACE/NAME, vm/NAME or node/NAME"
        ),
    )


@pytest.mark.parametrize(
    "command",
    [
        ("check", str(EXAMPLES / "01-shared-disk.yaml")),
        ("explain", "mhc/a"),
        ("drain", "--all"),
        ("upgrade",),
        ("scan",),
    ],
)
def test_two_clusters_are_reported_before_the_kubeconfig(tmp_path, command):
    code, out = run(*command, "--cluster", CLUSTER, "--kubeconfig", str(tmp_path / "none"))
    assert (code, out) == (2, "--cluster excludes --live, --kubeconfig and --context")


@pytest.mark.parametrize("command", [("drain", "--all"), ("upgrade",), ("explain", "mhc/a")])
@pytest.mark.parametrize(
    "outputs", [("json", "text"), ("text", "html=page.html"), ("json", "json")]
)
def test_two_outputs_are_refused(command, outputs):
    given = [part for output in outputs for part in ("-o", output)]
    assert run(*command, "--cluster", CLUSTER, *given) == (2, "several outputs: give -o once")


def test_a_health_check_of_the_cluster_as_json(tmp_path):
    folder = tmp_path / "cluster"
    folder.mkdir()
    for name in ("cluster.yaml", "07-health-check.yaml"):
        (folder / name).write_text((EXAMPLES / name).read_text())
    code, out = run(
        "explain", "mhc/openshift-machine-api/workers", "--cluster", str(folder), "-o", "json"
    )
    assert code == 0
    assert isinstance(json.loads(out), dict)


@pytest.mark.parametrize(
    "target", ["nope.yaml", "vm/a", "mhc/a/b", str(EXAMPLES / "01-shared-disk.yaml")]
)
def test_what_cannot_be_explained(target):
    code, out = run("explain", target, "--cluster", CLUSTER)
    assert code == 2
    assert out
