"""The changes of repair plans on a real API server: accepted strictly, refused on a changed object,
taken back exactly.

kubectl tells of an unknown field in a warning alone, so the patches are sent with
``fieldValidation=Strict``, and a warning fails. The scripts run once for each kind of change, with
kubectl, and with stand-ins for the controllers.
"""

from __future__ import annotations

import copy
import http.client
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import definitions
from tests.apiserver.control_plane import GO, ControlPlane
from tests.apiserver.crds import install_crds
from tests.builders import EVERY_NODE, manifest
from tests.cli.test_plan_scripts import CLUSTERS
from tests.forecasts.repair.broken_clusters import cluster, vm
from tests.forecasts.repair.moving_causes import MOVING
from tests.forecasts.repair.rare_causes import RARE
from tests.forecasts.repair.test_causes import HERE
from tests.forecasts.repair.test_outage import TEMPLATE, workers
from virt_admit.forecasts.repair.causes.disk_copies import STORAGE_MIGRATION, STORAGE_PLAN
from virt_admit.forecasts.repair.changed_cluster import ChangedCluster
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import Command, Goal, ObjectRef, RepairPlan
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.plan.folder import files

STRICT = "fieldManager=test&fieldValidation=Strict"
DRY = f"{STRICT}&dryRun=All"
PAUSED = manifest(
    "machineconfiguration.openshift.io/v1",
    "MachineConfigPool",
    "worker",
    spec={"paused": True, "nodeSelector": EVERY_NODE},
)
OLDER = "no migration starts, with an older HyperConverged"
"""The real definition stores the newer version,
and without its conversion the API server drops the fields of this one.
"""
MANY = CLUSTERS | {name: some for name, (some, _) in (RARE | MOVING).items() if name != OLDER}
PLANS: dict[str, tuple[Goal, Snapshot]] = {
    name: (Goal.DRAIN, cluster(*some)) for name, some in MANY.items()
} | {
    "a pool of machines is paused": (Goal.UPGRADE, cluster(vm(spec=HERE), PAUSED)),
    "no health check": (Goal.OUTAGE, cluster(*workers("a", "b", "c"), TEMPLATE, vm(), nodes=())),
}
RUN = (
    "a disk on one node",
    "a bridge on the pod network",
    "pinned by a selector",
    "a quota",
    "the only other node is cordoned",
    "a mark that is left over",
    "a copy that takes long",
)
"""One cluster for each kind of change."""
PLAYED = Path(__file__).with_name("played_controllers.py")

IDLE_SECONDS = 30
"""The API server closes a connection that is idle for long, in the middle of the next request."""


class Answer(NamedTuple):
    """What the API server says."""

    status: int
    data: Any
    warnings: list[str]


class Api:
    """Requests to an API server on one connection."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        trust = ssl.create_default_context(cafile=str(plane.folder / "ca.crt"))
        address = plane.url.removeprefix("https://")
        self._connection = http.client.HTTPSConnection(address, context=trust, timeout=60)
        self._used = time.monotonic()

    def ask(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> Answer:
        headers = {"Authorization": f"Bearer {self.plane.token}", "Content-Type": kind}
        if time.monotonic() - self._used > IDLE_SECONDS:
            self._connection.close()  # the next request opens it again
        self._connection.request(
            method, path, json.dumps(body) if body is not None else None, headers
        )
        response = self._connection.getresponse()
        data = json.loads(response.read() or b"{}")
        self._used = time.monotonic()
        return Answer(response.status, data, response.headers.get_all("Warning") or [])

    def close(self) -> None:
        self._connection.close()

    def patch(self, subject: ObjectRef, operations: list[dict[str, Any]], query: str) -> Answer:
        return self.ask(
            "PATCH", f"{path_of(subject)}?{query}", operations, "application/json-patch+json"
        )

    def create(self, obj: Object) -> Object:
        """Create an object with its status; return it as it is stored."""
        kind = kinds.of(obj)
        assert kind is not None, obj
        subject = ObjectRef.of(kind, obj)
        data = creatable(obj)
        made = self.ask("POST", f"{list_of(subject)}?fieldValidation=Ignore", data)
        assert made.status == 201, (str(subject), made.data)
        if "status" in data and kind not in definitions.WITHOUT_STATUS:
            written = self.ask(
                "PUT", f"{path_of(subject)}/status", made.data | {"status": data["status"]}
            )
            assert written.status == 200, (str(subject), written.data)
        return Object(made.data)


def list_of(subject: ObjectRef) -> str:
    group = "api/v1" if subject.kind.group == "" else f"apis/{subject.kind.api_version}"
    place = f"namespaces/{subject.namespace}/" if subject.namespace else ""
    return f"/{group}/{place}{subject.kind.plural}"


def path_of(subject: ObjectRef) -> str:
    return f"{list_of(subject)}/{subject.name}"


def creatable(obj: Object) -> dict[str, Any]:
    """Return an object with what the API server demands,
    and the clusters of the tests leave out.
    """
    data: dict[str, Any] = copy.deepcopy(dict(obj.data))
    for key in ("ownerReferences", "uid", "creationTimestamp"):
        data["metadata"].pop(key, None)
    if obj.kind in ("Deployment", "StatefulSet"):
        labels = {"app": "web"}
        pod = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "x"}]},
        }
        data["spec"] = data.get("spec", {}) | {"selector": {"matchLabels": labels}, "template": pod}
        # a saved snapshot has only the fields that are read
        if ready := data.get("status", {}).get("readyReplicas"):
            data["status"] = {"replicas": ready, "availableReplicas": ready} | data["status"]
    if obj.kind == "VirtualMachinePool":
        data["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    return data


@pytest.fixture(scope="module")
def api(crds: ControlPlane) -> Iterator[Api]:
    install_crds(crds, [STORAGE_PLAN, STORAGE_MIGRATION])
    for namespace in ("shop", "kubevirt"):
        crds.kubectl("create", "namespace", namespace)
    api = Api(crds)
    yield api
    api.close()


@pytest.fixture
def created(api: Api) -> Iterator[list[ObjectRef]]:
    """The objects that a test makes, which the next one does not meet."""
    made: list[ObjectRef] = []
    yield made
    for subject in made:
        api.ask("DELETE", path_of(subject))


def changed_objects(plan: RepairPlan, broken: Snapshot) -> Iterator[Object]:
    """Yield the objects that the patches of a plan change."""
    made = (made.change.subject for step in plan.steps for made in step.patched if made.patch)
    for subject in dict.fromkeys(made):
        found = broken.get(*subject)
        assert found is not None
        yield found


def content(data: Mapping[str, Any]) -> Mapping[str, Any]:
    kept = {key: data["metadata"].get(key) for key in ("name", "labels", "annotations")}
    return {
        "metadata": {key: value for key, value in kept.items() if value},
        "spec": data.get("spec"),
    }


@pytest.mark.parametrize("name", PLANS)
def test_each_change_is_accepted_strictly_and_can_be_taken_back(
    api: Api, created: list[ObjectRef], name: str
) -> None:
    goal, broken = PLANS[name]
    stored = [api.create(obj) for obj in changed_objects(repair(broken, goal), broken)]
    created += [ObjectRef.of(kinds.of(obj) or _none(), obj) for obj in stored]
    # the API server adds defaults
    own = [obj for obj in stored if obj.kind in ("LimitRange", "HyperConverged")]
    plan = repair(ChangedCluster(broken, own), goal)
    assert plan.steps
    for step in plan.steps:
        for change in step.followed:  # the controllers of upstream make it
            if step.takes_effect.value.startswith("with a data copy"):
                edits = [
                    {"op": "add", "path": "/" + "/".join(map(str, path)), "value": value}
                    for path, value in change.edits
                ]
                assert api.patch(change.subject, edits, STRICT).status in (200, 404), step.id
        for made in step.patched:
            subject = made.change.subject
            if made.change.command is Command.APPLY and made.change.manifest is not None:
                definitions.needs_real(subject.kind)
                accepted = api.ask("POST", f"{list_of(subject)}?{DRY}", dict(made.change.manifest))
                assert (accepted.status, accepted.warnings) == (201, []), (step.id, accepted.data)
            if not made.patch:
                continue
            definitions.needs_real(subject.kind)
            patch, undo = ([each.as_json() for each in some] for some in (made.patch, made.undo))
            before = api.ask("GET", path_of(subject)).data
            accepted = api.patch(subject, patch, DRY)
            assert (accepted.status, accepted.warnings) == (200, []), (step.id, accepted.data)
            assert api.patch(subject, patch, STRICT).status == 200
            assert api.patch(subject, patch, DRY).status == 422, (
                f"{step.id} changes what it did not see"
            )
            back = api.patch(subject, undo, STRICT)
            assert (back.status, back.warnings) == (200, []), (step.id, back.data)
            assert content(back.data) == content(before), step.id
            assert api.patch(subject, patch, STRICT).status == 200


def _none() -> Kind:
    raise AssertionError("a kind that is not known")


@pytest.mark.parametrize("name", RUN)
def test_a_script_works_with_kubectl_and_says_done_the_second_time(
    api: Api, created: list[ObjectRef], name: str, tmp_path: Path
) -> None:
    goal, broken = PLANS[name]
    plan = repair(broken, goal)
    vmis = [obj for kind in (kinds.VM, kinds.VMI) for obj in broken.known(kind)]
    for obj in {
        (each.kind, each.name): each for each in (*changed_objects(plan, broken), *vmis)
    }.values():
        api.create(obj)
        created.append(ObjectRef.of(kinds.of(obj) or _none(), obj))
    for step in plan.steps:
        created += [
            made.change.subject for made in step.patched if made.change.manifest is not None
        ]
    for path, text in files(plan, "a test").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    environment = played(api.plane, tmp_path / "bin")
    scripts = sorted(tmp_path.glob("steps/*.sh"))
    assert scripts
    for script in scripts:
        first, second = (
            subprocess.run(
                ["sh", script],
                env=environment,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            for _ in range(2)
        )
        assert (first.returncode, first.stderr) == (0, ""), (
            script.name,
            first.stdout,
            first.stderr,
        )
        assert "done already" not in first.stdout
        assert (second.returncode, second.stdout, second.stderr) == (0, "done already\n", ""), (
            script.name
        )


def played(plane: ControlPlane, folder: Path) -> dict[str, str]:
    """Return an environment with kubectl, and with a virtctl and a sleep during which controllers
    work.
    """
    folder.mkdir()
    (folder / "kubectl").symlink_to(plane.binaries.kubectl)
    for name in ("virtctl", "sleep"):
        (folder / name).write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -S "{PLAYED}" {name} "$@"\n'
        )
        (folder / name).chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(plane.folder), **plane.kubectl_settings(), **GO}
