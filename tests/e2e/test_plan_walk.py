"""The walk of docs/plan.md: the example of a cluster on a real API server, its plan, the commands
typed, and then a "yes".

The API server runs without KubeVirt. Stand-ins do what its controllers do, and what the page leaves
to people.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from tests import definitions, prefork
from tests.apiserver.control_plane import ControlPlane
from tests.e2e.test_plan_patches import Api, creatable, list_of, path_of, played
from tests.install.commands import section, steps
from tests.paths import EXAMPLES, ROOT
from virt_admit.forecasts.repair.repair_plan import ObjectRef
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import NODE, PDB, POD, VMI, VMIM
from virt_admit.model.kubernetes.objects import Object

PAGE: Final = ROOT / "docs" / "plan.md"
HEADING: Final = "A walk: from no to yes"
SNAPSHOT: Final = EXAMPLES / "clusters" / "stuck.json"
ORDER: Final = (
    *(
        "Node",
        "StorageClass",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "KubeVirt",
        "VirtualMachine",
    ),
    *("VirtualMachineInstanceMigration", "VirtualMachineInstance", "Pod"),
)
"""Kinds whose uids others name, first. Quotas come last: they would refuse the pods that exist."""
LAST: Final = ("ResourceQuota",)


class Walk:
    """The API server with the objects of the snapshot, and a shell."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.api, self.folder = Api(plane), folder
        self.environment = played(plane, folder / "bin")
        self.environment["VIRT_ADMIT_DEBUG"] = "1"
        self.environment["PATH"] = f"{prefork.folder()}:{self.environment['PATH']}"

    def load(self) -> None:
        """Create the objects of the snapshot as if it had been saved now,
        with the uids that the API server gives.
        """
        text = SNAPSHOT.read_text()
        saved = json.loads(text)
        ago = datetime.now(UTC) - datetime.fromisoformat(saved["time"])
        text = re.sub(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
            lambda match: (datetime.fromisoformat(match[0]) + ago).strftime("%Y-%m-%dT%H:%M:%SZ"),
            text,
        )
        items = sorted(json.loads(text)["items"], key=_rank)
        for namespace in sorted({each["metadata"].get("namespace") for each in items} - {None}):
            self.must("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        uids: dict[str, str] = {}
        for each in items:
            made = self._create(_renamed(each, uids))
            uids[each["metadata"].get("uid", "")] = made["metadata"]["uid"]
        for each in items:
            if each["kind"] == VMI.kind:  # they name pods that come after them
                self.change(
                    VMI,
                    each["metadata"]["namespace"],
                    each["metadata"]["name"],
                    _renamed(each, uids)["status"],
                )

    def _create(self, each: Mapping[str, Any]) -> dict[str, Any]:
        obj = Object(dict(each))
        data = creatable(obj) | {
            "metadata": {key: value for key, value in each["metadata"].items() if key != "uid"}
        }
        for container in data.get("spec", {}).get("containers", ()) if obj.kind == "Pod" else ():
            requests = container.get("resources", {}).get("requests", {})
            devices = {name: amount for name, amount in requests.items() if "/" in name}
            container |= {"image": "x", "resources": {"requests": requests, "limits": devices}}
        subject = _subject(obj)
        made = self.must("POST", f"{list_of(subject)}?fieldValidation=Ignore", data)
        if "status" in data and kinds.of(obj) not in definitions.WITHOUT_STATUS:
            self.must("PUT", f"{path_of(subject)}/status", made | {"status": data["status"]})
        if obj.kind == "Node":
            self.api.patch(subject, [{"op": "remove", "path": "/spec/taints"}], "")
        return made

    def must(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = self.api.ask(method, path, body)
        assert answer.status < 300, (method, path, answer.data)
        return dict(answer.data)

    def get(self, kind: kinds.Kind, namespace: str, name: str) -> dict[str, Any]:
        return self.must("GET", path_of(ObjectRef(kind, namespace, name)))

    def change(self, kind: kinds.Kind, namespace: str, name: str, status: Any, **spec: Any) -> None:
        """Write the status of an object."""
        path = path_of(ObjectRef(kind, namespace, name)) + ("" if kind is VMI else "/status")
        self.must("PUT", path, self.get(kind, namespace, name) | {"status": status} | spec)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    # --- what people do ---

    def people(self) -> None:
        """Add a GPU node, repair the pod that does not start,
        and let the migration of the database end.
        """
        node = _fresh(self.get(NODE, "", "gpu-2"), "gpu-3")
        node["metadata"]["labels"]["kubernetes.io/hostname"] = "gpu-3"
        self._create(node)
        handler = _fresh(self.get(POD, "kubevirt", "virt-handler-gpu-2"), "virt-handler-gpu-3")
        handler["spec"]["nodeName"] = "gpu-3"
        self._create(handler)
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.change(POD, "shop", "checkout-b", ready)
        healthy = {
            "disruptionsAllowed": 1,
            "currentHealthy": 2,
            "desiredHealthy": 1,
            "expectedPods": 2,
        }
        self.change(PDB, "shop", "checkout", healthy)
        self._arrived()

    def _arrived(self) -> None:
        vmi = self.get(VMI, "shop", "db")
        status = {key: value for key, value in vmi["status"].items() if key != "evacuationNodeName"}
        end = {"completed": True, "endTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        status |= {"nodeName": "worker-4", "migrationState": status["migrationState"] | end}
        labels = vmi["metadata"]["labels"] | {"kubevirt.io/nodeName": "worker-4"}
        for uid, node in list(status["activePods"].items()):
            if node == "worker-2":
                del status["activePods"][uid]
        self.change(VMI, "shop", "db", status, metadata=vmi["metadata"] | {"labels": labels})
        for pod in self.must("GET", "/api/v1/namespaces/shop/pods")["items"]:
            if (
                pod["metadata"]["name"].startswith("virt-launcher-db-")
                and pod["spec"]["nodeName"] == "worker-2"
            ):
                self.must(
                    "DELETE",
                    path_of(ObjectRef(POD, "shop", pod["metadata"]["name"]))
                    + "?gracePeriodSeconds=0",
                )
        name = "kubevirt-evacuation-db"
        migration = self.get(VMIM, "shop", name)
        self.change(VMIM, "shop", name, migration.get("status", {}) | {"phase": "Succeeded"})


def _fresh(obj: Mapping[str, Any], name: str) -> dict[str, Any]:
    kept = {key: obj["metadata"][key] for key in ("labels", "namespace") if key in obj["metadata"]}
    made: dict[str, Any] = json.loads(json.dumps(dict(obj) | {"metadata": kept | {"name": name}}))
    return made


def _subject(obj: Object) -> ObjectRef:
    kind = kinds.of(obj)
    assert kind is not None, obj
    return ObjectRef.of(kind, obj)


def _rank(obj: Mapping[str, Any]) -> int:
    if obj["kind"] in LAST:
        return len(ORDER) + 1
    return ORDER.index(obj["kind"]) if obj["kind"] in ORDER else len(ORDER)


def _renamed(obj: Mapping[str, Any], uids: Mapping[str, str]) -> dict[str, Any]:
    """Return an object with the uids of the API server in its references and labels."""
    text = re.sub(
        r'"(uid-[^"]+)"', lambda match: json.dumps(uids.get(match[1], match[1])), json.dumps(obj)
    )
    renamed: dict[str, Any] = json.loads(text)
    return renamed


@pytest.fixture(scope="module")
def walk(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    with ControlPlane(control_plane.binaries, stored=control_plane.stored) as plane:
        walk = Walk(plane, tmp_path_factory.mktemp("walk"))
        walk.load()
        yield walk
        walk.api.close()


def test_the_walk_of_the_page_ends_with_yes(walk: Walk) -> None:
    text = section(PAGE, HEADING)
    before, _, after = text.partition("### What people do")
    commands, last = (
        [step.command for step in steps(part) if step.command] for part in (before, after)
    )
    first = walk.run("virt-admit drain --all")
    assert first.returncode == 1, first.stderr
    for command in commands:
        done = walk.run(command)
        allowed = {0, 1} if command.startswith("virt-admit") else {0}
        assert done.returncode in allowed, (command, done.stdout[-3000:], done.stderr[-3000:])
        if command.startswith("sh "):
            assert walk.run(command).stdout == "done already\n"
    scripts = sorted(f"sh plan/steps/{path.name}" for path in walk.folder.glob("plan/steps/*.sh"))
    assert [command for command in commands if command.startswith("sh ")] == scripts
    walk.people()
    for command in last:
        done = walk.run(command)
        assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
    assert "virt-admit drain --all" in last
