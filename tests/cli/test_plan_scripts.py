"""The scripts of a plan, run with a kubectl and a virtctl that change a file of objects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.builders import manifest
from tests.forecasts.repair.broken_clusters import claim, cluster, kubevirt, storage_class, vm
from tests.forecasts.repair.budget_causes import BUDGETS
from tests.forecasts.repair.test_causes import BRIDGE, CAUSES
from tests.forecasts.repair.test_traps import HCO, NO_RWO
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import Goal
from virt_admit.reports.plan import scripts
from virt_admit.reports.plan.folder import files

SHELLCHECK = Path(sys.executable).with_name("shellcheck")
FAKE = Path(__file__).with_name("fake_kubectl.py")
IMPORTED = (FAKE.parent, Path(yaml.__file__).parents[1])
POOL_OWNER = {
    "apiVersion": "pool.kubevirt.io/v1beta1",
    "kind": "VirtualMachinePool",
    "name": "web",
    "controller": True,
}
TEMPLATE = {"metadata": {"name": "root"}, "spec": {"storage": {"accessModes": ["ReadWriteOnce"]}}}
OF_DATA_VOLUME = {"volumes": [{"name": "root", "dataVolume": {"name": "root"}}]}
SLOW = {"migrations": {"bandwidthPerMigration": "1Mi", "completionTimeoutPerGiB": 150}}


def pool(members, **more):
    spec = {"virtualMachineTemplate": {"spec": members[0].data["spec"]}} | more
    return manifest("pool.kubevirt.io/v1beta1", "VirtualMachinePool", "web", "shop", spec=spec)


def of_pool(**more):
    return vm("web-0", metadata={"ownerReferences": [POOL_OWNER]}, **more)


BRIDGED = of_pool(spec=BRIDGE, reason="InterfaceNotLiveMigratable")
MORE = {
    "the migration controller copies": (
        vm(
            spec=OF_DATA_VOLUME,
            own={"dataVolumeTemplates": [TEMPLATE]},
            reason="DisksNotLiveMigratable",
        ),
        claim("root"),
        storage_class(),
        HCO,
    ),
    "a copy that takes long": (vm(**NO_RWO), claim("root"), storage_class(), kubevirt(SLOW)),
    "the template of a pool": (BRIDGED, pool(BRIDGED)),
    "a pool that waits for restarts": (
        BRIDGED,
        pool(BRIDGED, updateStrategy={"opportunistic": {}}),
    ),
}
SOME = (
    "a disk on one node",
    "a bridge on the pod network",
    "pinned by a selector",
    "the template of a pool",
)
CLUSTERS = {name: objects for name, (objects, _) in (CAUSES | BUDGETS).items()} | MORE


def fake(name):
    """Return the command line of a program; imported, its code is compiled once."""
    code = f"import sys, {FAKE.stem}; {FAKE.stem}.main('{name}', sys.argv[1:])"
    return f'exec "{sys.executable}" -S -c "{code}" "$@"'


class Machine:
    """A shell with the scripts of a plan, kubectl and virtctl."""

    def __init__(self, folder, *objects):
        self.folder, self.store, self.log = folder / "plan", folder / "objects.json", folder / "log"
        broken = cluster(*objects)
        self.plan = repair(broken, Goal.DRAIN)
        for name, content in files(self.plan, "a test").items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        self.store.write_text(json.dumps([obj.data for obj in broken]))
        self.log.touch()
        self.programs = folder / "bin"
        self.programs.mkdir()
        for name in ("kubectl", "virtctl"):
            self.program(name, fake(name))
        self.program("sleep", "echo the script waits >&2; exit 1")

    def program(self, name, line):
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def run(self, script):
        environment = {
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "FAKE_STORE": str(self.store),
            "FAKE_LOG": str(self.log),
            "PYTHONPATH": os.pathsep.join(map(str, IMPORTED)),
        }
        return subprocess.run(
            ["sh", str(script)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=60,
            check=False,
        )

    @property
    def scripts(self):
        return sorted(self.folder.glob("steps/*.sh"))

    @property
    def written(self):
        return self.log.read_text().splitlines()

    def change(self, kind, name, edit):
        objects = json.loads(self.store.read_text())
        edit(
            next(
                each
                for each in objects
                if each["kind"] == kind and each["metadata"]["name"] == name
            )
        )
        self.store.write_text(json.dumps(objects))

    def specs(self):
        found = json.loads(self.store.read_text())
        return {
            f"{each['kind']} {each['metadata']['name']}": {
                key: each[key] for key in ("spec", "metadata") if key in each
            }
            for each in found
        }


@pytest.mark.slow
@pytest.mark.parametrize("name", CLUSTERS)
def test_a_second_run_changes_nothing(tmp_path, name):
    machine = Machine(tmp_path, *CLUSTERS[name])
    for script in machine.scripts:
        first = machine.run(script)
        assert (first.returncode, first.stderr) == (0, ""), script.name
        assert "done already" not in first.stdout, script.name
    written = machine.written
    for script in machine.scripts:
        again = machine.run(script)
        assert (again.returncode, again.stdout, again.stderr) == (0, "done already\n", ""), (
            script.name
        )
    assert machine.written == written


def test_shellcheck_finds_nothing_in_any_script(tmp_path):
    found = []
    for number, objects in enumerate(CLUSTERS.values()):
        for name, content in files(repair(cluster(*objects), Goal.DRAIN), "a test").items():
            if name.endswith(".sh"):
                found.append(tmp_path / f"{number}-{Path(name).name}")
                found[-1].write_text(content)
    assert len(found) > 20
    done = subprocess.run([SHELLCHECK, *found], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "word", ["a'b\n%d\\\\0$(id)`id`\"", "\x1b]0;x\x07", "\u202eé\u2028", "plain", "it's 50 %"]
)
def test_words_keep_their_meaning_in_a_shell_and_are_harmless_on_a_terminal(word):
    written = scripts._words("printf", "%s", word)
    assert written.isprintable()
    assert (
        subprocess.run(["sh", "-c", written], capture_output=True, text=True, check=True).stdout
        == word
    )


def test_a_restart_that_was_interrupted_is_made_once(tmp_path):
    machine = Machine(tmp_path, *CLUSTERS["a bridge on the pod network"])
    (script,) = machine.scripts
    machine.program("virtctl", "echo no connection >&2; exit 1")
    assert machine.run(script).returncode == 1
    assert [line.split()[0] for line in machine.written] == ["patch"]
    machine.program("virtctl", fake("virtctl"))
    assert machine.run(script).returncode == 0
    assert machine.run(script).stdout == "done already\n"
    assert [line.split()[0] for line in machine.written] == ["patch", "restart"]


@pytest.mark.parametrize("name", SOME)
def test_a_query_that_fails_changes_nothing(tmp_path, name):
    """What cannot be read is not absent: an empty answer would pass for a VM without
    RestartRequired.
    """
    machine = Machine(tmp_path, *CLUSTERS[name])
    fake = machine.programs / "kubectl"
    program = fake.read_text().splitlines()[1]
    machine.program("kubectl", f'[ "$1" != get ] || exit 1\n{program}')
    for script in machine.scripts:
        assert machine.run(script).returncode == 1, script.name
        assert machine.written == [], script.name


def test_a_vm_that_awaits_a_restart_is_not_copied_by_the_script(tmp_path):
    machine = Machine(tmp_path, *CLUSTERS["a disk on one node"])
    waits = [{"type": "RestartRequired", "status": "True"}]
    machine.change("VirtualMachine", "db", lambda found: found["status"].update(conditions=waits))
    done = machine.run(machine.scripts[0])
    assert (done.returncode, done.stderr) == (1, "stop: not true: the VM has no RestartRequired\n")
    assert machine.written == []


def test_an_object_that_has_changed_is_left_alone(tmp_path):
    machine = Machine(tmp_path, *CLUSTERS["a disk on one node"])
    other = [{"name": "root", "persistentVolumeClaim": {"claimName": "other"}}]
    machine.change(
        "VirtualMachine",
        "db",
        lambda found: found["spec"]["template"]["spec"].update(volumes=other),
    )
    done = machine.run(machine.scripts[0])
    assert done.returncode == 1
    assert "changed since the plan" in done.stderr
    assert machine.written == []  # no blank disk either


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_the_undo_in_a_script_leads_back(tmp_path, name):
    machine = Machine(tmp_path, *CLUSTERS[name])
    before = machine.specs()
    for script in machine.scripts:
        assert machine.run(script).returncode == 0
    for script in reversed(machine.scripts):
        _, _, undo = script.read_text().partition("# To undo it:\n")
        lines = undo.replace("# kubectl", "kubectl")
        taken_back = script.with_name("undo.sh")
        taken_back.write_text(f'set -e\ncd "$(dirname "$0")/.."\n{lines}')
        done = machine.run(taken_back)
        assert done.returncode == 0, (script.name, done.stderr)
    after = machine.specs()
    for made in (made for step in machine.plan.steps for made in step.patched if made.patch):
        key = f"{made.change.subject.kind.kind} {made.change.subject.name}"
        assert after[key] == before[key]
