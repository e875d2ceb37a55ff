"""Plausible mistakes of a first day: each gives one line that says what to do, and exit code 2
where nothing was judged.
"""

from __future__ import annotations

import json
import shutil
import sys
import types
from dataclasses import dataclass

import pytest

from tests.fake_api import FakeApi
from tests.paths import EXAMPLES
from virt_admit.cli import main
from virt_admit.rules import load_rules

pytestmark = pytest.mark.slow

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "prod", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "admin", "user": {"token": "x"}}],
    "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "admin"}}],
    "current-context": "prod",
}
OLD = {
    "apiVersion": "virt-admit.io/v1alpha1",
    "kind": "Snapshot",
    "time": "2020-01-31T22:00:00Z",
    "complete": ["*"],
    "items": [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "empty").mkdir()
    (folder / "manifests").mkdir()
    for file in EXAMPLES.glob("0*.yaml"):
        shutil.copy(file, folder / "manifests")
    shutil.copy(EXAMPLES / "cluster.yaml", folder)
    (folder / "policy.yaml").write_text("extends: default\n")
    (folder / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    (folder / "old.json").write_text(json.dumps(OLD))
    (folder / "half.json").write_text(json.dumps(OLD)[:150])
    (folder / "nothing.yaml").write_text("\n")
    return folder


@pytest.fixture
def run(folder, monkeypatch, capfd):
    """Run the entry point of the command here:
    to start a process for each mistake would take five times as long.
    """

    def run(text, cwd=folder, **variables):
        for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {"HOME": str(folder), "VIRT_ADMIT_POLICY": "", **variables}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["virt-admit", *text.split()])
        # click looks up its name there
        monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
        monkeypatch.setattr(main, "gc", NO_GC)
        with pytest.raises(SystemExit) as ended:
            main.main()
        return Done(ended.value.code, capfd.readouterr().err)

    return run


NO_GC = types.SimpleNamespace(set_threshold=lambda count: None, freeze=lambda: None)
"""The command sets Python's search for garbage for a process that ends soon."""


@dataclass(frozen=True)
class Done:
    code: int
    stderr: str


MISTAKES = {
    # a file
    "check manifest": (2, "manifest: No such file or directory. Did you mean manifests?"),
    "check manifests/01-shared-disc.yaml": (2, "Did you mean manifests/01-shared-disk.yaml?"),
    "check manifests --old manifest -o json": (
        2,
        "manifest: No such file or directory. Did you mean manifests?",
    ),
    "check cluster.yml": (2, "Did you mean cluster.yaml?"),
    "check manifests --cluster clustr.yaml": (
        2,
        "clustr.yaml: No such file or directory. Did you mean cluster.yaml?",
    ),
    "check empty": (0, "empty: no file *.yaml, *.yml or *.json is in this folder"),
    "check empty --fail-if-no-objects": (
        2,
        "empty: no file *.yaml, *.yml or *.json is in this folder",
    ),
    "check": (2, "name files or folders, or set paths in .virt-admit.yaml"),
    "check manifests --policy polcy.yaml": (2, "Did you mean policy.yaml?"),
    "check manifests --policy strickt": (2, "Did you mean strict?"),
    # a snapshot
    "drain --all --cluster empty": (
        2,
        "empty: no file *.yaml, *.yml or *.json is in this folder. Save a snapshot with: ",
    ),
    "drain --all --cluster nothing.yaml": (2, "nothing.yaml: the file is empty"),
    "drain --all --cluster half.json": (2, "half.json:1:"),
    "drain --all --cluster manifests": (
        2,
        "this is not a snapshot of a cluster. Save a new one: virt-admit scan --save",
    ),
    "drain --all --cluster old.json --max-age 24h": (
        2,
        "and --max-age is 24h. Save a new one: virt-admit scan --save",
    ),
    "scan --cluster policy.yaml": (2, "Save one with: virt-admit scan --save FILE"),
    "scan --cluster cluster.yaml --save new/there.json": (
        2,
        "new/there.json: No such file or directory. Create the folder",
    ),
    "drain --all --cluster cluster.yaml -o html=new/page.html": (2, "Create the folder new first"),
    # a name
    "rules vm-runing-deprecated": (2, "Did you mean vm-running-deprecated?"),
    "check manifests --select vm-runing-deprecated": (2, "Did you mean vm-running-deprecated?"),
    "check manifests --ignore nothing-like-it": (2, "`virt-admit rules` lists them"),
    "policy show shop vm-runing-deprecated --policy default": (
        2,
        "Did you mean vm-running-deprecated?",
    ),
    "drain wrker-1 --cluster cluster.yaml": (
        2,
        "node wrker-1 does not exist. Did you mean worker-1?",
    ),
    "drain worker-1,worker-2 --cluster cluster.yaml": (2, "separate several nodes with spaces"),
    "drain vm/db --cluster cluster.yaml": (2, "vm/db is not a node: write NODE or node/NAME"),
    "drain --pool wrker --cluster cluster.yaml": (
        2,
        "no MachineConfigPool or MachineDeployment is named wrker",
    ),
    "scan --cluster cluster.yaml -n shp": (
        0,
        "no object to judge in namespace shp. Did you mean shop?",
    ),
    "chekc manifests": (2, "no such verb 'chekc': did you mean check?"),
    # a flag
    "drain --al --cluster cluster.yaml": (2, "Did you mean one of: '--all'"),
    "drain --cluster cluster.yaml": (
        2,
        "give a NODE, --selector, --pool or --all. See: virt-admit drain --help",
    ),
    "drain worker-1 --all --cluster cluster.yaml": (
        2,
        "--all excludes NODE, --selector and --pool: choose one",
    ),
    "drain --all --cluster cluster.yaml -o jsn": (2, "Did you mean json?"),
    "check manifests -o jsn": (2, "Did you mean json?"),
    "check manifests --fail-on denny": (
        2,
        "'denny' is not one of 'deny', 'warn', 'audit', 'never'. See: ",
    ),
    "check manifests --target kubvirt=1.9": (2, "did you mean kubevirt"),
    "upgrade --start tomorrow --cluster cluster.yaml": (
        2,
        "is not a time such as 2027-01-31T22:00",
    ),
    "upgrade --max-unavailable many --cluster cluster.yaml": (2, "nor a percentage such as"),
    "drain --selector a==b,, --cluster cluster.yaml": (
        2,
        "write key=value, key in (a, b), key or !key",
    ),
    "scan --live --cluster cluster.yaml": (2, "--cluster excludes --live"),
    # a cluster
    "drain --all": (
        2,
        "no kubeconfig was found. Name one with --kubeconfig FILE or the variable KUBECONFIG",
    ),
    "drain --all --kubeconfig kubecfg": (
        2,
        "no cluster is configured: kubecfg: No such file or directory",
    ),
    "drain --all --kubeconfig kubeconfig --context prd": (
        2,
        "the kubeconfig has no context prd. Did you mean prod?",
    ),
    "doctor --kubeconfig kubeconfig --context staging": (
        2,
        "has no context staging. The contexts are: prod",
    ),
    "drain --all --kubeconfig kubeconfig": (
        2,
        "Check the context and the network: kubectl cluster-info",
    ),
}
MANY = ("check manifests --old manifest", "drain --all --cluster", "scan --cluster cluster.yaml -n")
"""Commands that print a report besides the line."""


@pytest.mark.parametrize("command", MISTAKES)
def test_one_line_says_what_to_do(run, command):
    code, says = MISTAKES[command]
    done = run(command)
    lines = [line for line in done.stderr.splitlines() if says in line]
    assert (done.code, len(lines)) == (code, 1), done.stderr
    assert "Traceback" not in done.stderr
    assert "Errno" not in done.stderr, done.stderr
    if not command.startswith(("check", "scan", *MANY)):
        assert done.stderr.splitlines() == lines


def test_there_are_more_than_twenty():
    assert len(MISTAKES) > 40


def test_the_variable_names_a_file_that_does_not_exist(run):
    done = run("drain --all", KUBECONFIG="gone/kubeconfig")
    assert done.code == 2
    assert "KUBECONFIG names gone/kubeconfig, which does not exist or is empty" in done.stderr


def test_no_error_names_a_temporary_file(run):
    done = run("scan --cluster cluster.yaml --save new/there.json")
    assert ".there.json." not in done.stderr
    done = run("scan --cluster cluster.yaml --save manifests")
    assert done.stderr
    assert ".manifests." not in done.stderr


def test_a_cluster_without_rights_names_the_right(run, tmp_path):
    with FakeApi() as api:
        for kind in {*load_rules().kinds, *(kind for rule in load_rules() for kind in rule.reads)}:
            api.install(kind)
        api.kubeconfig(tmp_path)
        api.token = "another"
        done = run("drain --all --kubeconfig kubeconfig", tmp_path)
    assert done.code == 2
    assert "Log in again: kubectl auth whoami" in done.stderr
