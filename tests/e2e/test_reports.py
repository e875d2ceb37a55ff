"""Reports and Events in a real cluster: written, brought up to date, taken away,
with the shipped rights alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.crds import install_crds
from tests.https.reviews import vm
from tests.paths import MANIFESTS
from tests.prefork import virt_admit
from tests.waiting import eventually
from virt_admit.install.manifests import SCAN
from virt_admit.reports.findings.formats.policy_reports import WRITTEN
from virt_admit.settings import NAMESPACE

RULE = "vm-running-and-run-strategy"
HOME = "reported"
Scan = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def plane(crds: ControlPlane) -> ControlPlane:
    """The API server with the kinds of reports, and with two namespaces."""
    install_crds(
        crds, [kind for form in WRITTEN.values() for kind in (form.namespaced, form.cluster)]
    )
    crds.kubectl("apply", "-f", MANIFESTS / "base" / "namespace.yaml", check=True)
    crds.kubectl("create", "namespace", HOME, check=True)
    base = yaml.safe_load_all((MANIFESTS / "base" / "rbac.yaml").read_text())
    policy = [obj for obj in base if obj["metadata"]["name"] == "virt-admit-policy"]
    crds.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(policy), check=True)
    return crds


@pytest.fixture(autouse=True)
def swept(plane: ControlPlane) -> Iterator[None]:
    """What one test leaves behind, the next does not meet."""
    yield
    kinds = ["virtualmachines", "events", *(str(form.namespaced) for form in WRITTEN.values())]
    for kind in kinds:
        plane.kubectl("delete", kind, "--all", "-n", HOME, check=True)


@pytest.fixture(scope="module")
def rights(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[dict[str, Any]]]:
    """The scan with the component, as an administrator would build it, applied."""
    folder = tmp_path_factory.mktemp("overlay")
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(MANIFESTS / "scan", folder.resolve())],
        "components": [
            os.path.relpath(MANIFESTS / "components" / "scan-reports", folder.resolve())
        ],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(overlay))
    built = plane.kubectl("kustomize", folder, check=True).stdout
    plane.kubectl("apply", "-f", "-", input=built, check=True)
    yield [obj for obj in yaml.load_all(built, yaml.CSafeLoader) if obj]
    plane.kubectl("delete", "-f", "-", input=built, check=True)


@pytest.fixture
def scan(plane: ControlPlane, rights: list[dict[str, Any]]) -> Scan:
    """Run the verb as its service account, over one namespace or over all."""
    kubeconfig = plane.service_account_kubeconfig(NAMESPACE, SCAN)

    def run(*flags: str, everywhere: bool = False) -> subprocess.CompletedProcess[str]:
        command = [
            virt_admit(),
            "scan",
            "--kubeconfig",
            kubeconfig,
            *(() if everywhere else ("-n", HOME)),
            "--fail-on",
            "never",
            *flags,
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    return run


def apply(plane: ControlPlane, **spec: Any) -> str:
    """Create or change the machine; its uid."""
    obj = vm("db", HOME, **spec)
    return str(
        json.loads(
            plane.kubectl(
                "apply", "-f", "-", "-o", "json", input=json.dumps(obj), check=True
            ).stdout
        )["metadata"]["uid"]
    )


def items(plane: ControlPlane, what: str) -> list[dict[str, Any]]:
    found = plane.kubectl(
        "get", what, "-n", HOME, "-o", "json", "--show-managed-fields", check=True
    ).stdout
    return list(json.loads(found)["items"])


def events(plane: ControlPlane) -> dict[str, dict[str, Any]]:
    """Our Events by the rule that they are of."""
    found = [event for event in items(plane, "events") if event["source"]["component"] == SCAN]
    return {event["message"].rpartition("/")[2].rstrip("]"): event for event in found}


def test_the_component_makes_the_scan_write(rights: list[dict[str, Any]]) -> None:
    (job,) = [obj for obj in rights if obj["kind"] == "CronJob"]
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "scan"
    assert container["args"][-2:] == ["--write-reports=openreports", "--events"]


@pytest.mark.parametrize("name", WRITTEN)
def test_reports_and_events(plane: ControlPlane, scan: Scan, name: str) -> None:
    kind = WRITTEN[name].namespaced
    uid = apply(plane, running=True, runStrategy="Always")
    done = scan("--write-reports", name, "--events")
    assert done.returncode == 0, done.stderr
    (report,) = items(plane, str(kind))
    assert report["metadata"]["name"] == report["metadata"]["ownerReferences"][0]["uid"] == uid
    assert report["metadata"]["managedFields"][0]["manager"] == "virt-admit-scan"
    results = {each["policy"]: each for each in report["results"]}
    assert (results[RULE]["result"], results[RULE]["properties"]) == (
        "fail",
        {"path": "spec.running"},
    )
    assert results[RULE]["timestamp"]["seconds"] > 1_700_000_000
    before = events(plane)[RULE]
    assert before["involvedObject"]["uid"] == uid
    shown = plane.kubectl("describe", "virtualmachine", "db", "-n", HOME, check=True).stdout
    assert f"[virt-admit/{RULE}]" in shown

    # the same again: nothing twice; both times are in whole seconds
    time.sleep(1.1)
    assert scan("--write-reports", name, "--events").returncode == 0
    (again,) = items(plane, str(kind))
    after = events(plane)[RULE]
    assert (
        again["results"][0]["timestamp"]["seconds"] > report["results"][0]["timestamp"]["seconds"]
    )
    assert again["metadata"]["uid"] == report["metadata"]["uid"]
    assert (after["metadata"]["uid"], after["firstTimestamp"]) == (
        before["metadata"]["uid"],
        before["firstTimestamp"],
    )
    assert after["lastTimestamp"] > before["lastTimestamp"]

    # repaired
    apply(plane, runStrategy="Always")
    assert scan("--write-reports", name).returncode == 0
    (repaired,) = items(plane, str(kind))
    assert {each["policy"]: each["result"] for each in repaired["results"]}[RULE] == "pass"
    assert repaired["summary"]["fail"] == report["summary"]["fail"] - 1

    # gone; here no controller follows owner references
    plane.kubectl("delete", "virtualmachine", "db", "-n", HOME, check=True)
    assert scan("--write-reports", name).returncode == 0
    assert items(plane, str(kind)) == []


def allow_nothing(plane: ControlPlane, namespace: str) -> None:
    """Give a namespace a quota without room for Events and reports, as its user may."""
    hard = dict.fromkeys(("count/events", "count/reports.openreports.io", "count/configmaps"), "0")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": hard},
    }
    plane.kubectl("apply", "-n", namespace, "-f", "-", input=json.dumps(quota), check=True)
    # what the quota controller writes
    status = json.dumps({"status": {"hard": hard, "used": hard}})
    flags = ("-n", namespace, "--subresource=status", "--type=merge", "-p", status)
    plane.kubectl("patch", "resourcequota", "none", *flags, check=True)
    probe = ("create", "configmap", "probe", "-n", namespace, "--dry-run=server")
    eventually(lambda: "exceeded quota" in plane.kubectl(*probe).stderr)


def test_what_a_user_does_to_one_namespace_hides_no_other(plane: ControlPlane, scan: Scan) -> None:
    """A quota that permits nothing, and an Event with the name of ours that the API server
    validates more strictly.
    """
    uid = apply(plane, running=True, runStrategy="Always")
    plane.kubectl("create", "namespace", "full", check=True)
    allow_nothing(plane, "full")
    spec = {"running": True, "runStrategy": "Always"}
    plane.kubectl("apply", "-f", "-", input=json.dumps(vm("a", "full", **spec)), check=True)
    name = "virt-admit." + hashlib.sha256(f"{uid}/{RULE}".encode()).hexdigest()[:16]
    trap = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": HOME},
        "involvedObject": {"kind": "VirtualMachine", "namespace": HOME, "name": "db"},
        "eventTime": "2026-11-21T04:00:00.000000Z",
        **dict.fromkeys(("reportingComponent", "reportingInstance", "action"), "x"),
        **{"reason": "Fine", "message": "all is well", "type": "Normal"},
    }
    plane.kubectl("create", "-f", "-", input=json.dumps(trap), check=True)
    try:
        done = scan("--write-reports", "--events", everywhere=True)
        assert done.returncode == 2, done.stderr
        (problem,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
        assert "cannot write reports.openreports.io full/" in problem
        assert [each["metadata"]["name"] for each in items(plane, "reports.openreports.io")] == [
            uid
        ]
        written = {event["metadata"]["name"]: event["message"] for event in items(plane, "events")}
        assert f"[virt-admit/{RULE}]" in written[name]
    finally:
        plane.kubectl("delete", "virtualmachines", "--all", "-n", "full", check=True)
        plane.kubectl("delete", "resourcequota", "none", "-n", "full", check=True)


def test_reports_of_others_are_left_alone(plane: ControlPlane, scan: Scan) -> None:
    kind = WRITTEN["openreports"].namespaced
    other = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "other", "namespace": HOME},
    }
    plane.kubectl("apply", "-f", "-", input=json.dumps(other), check=True)
    assert scan("--write-reports").returncode == 0
    assert [each["metadata"]["name"] for each in items(plane, str(kind))] == ["other"]


def test_without_the_component_it_may_not(plane: ControlPlane, scan: Scan) -> None:
    apply(plane, running=True, runStrategy="Always")
    component = MANIFESTS / "components" / "scan-reports" / "rbac.yaml"
    plane.kubectl("delete", "-f", component, check=True)
    try:
        for flag, says in (
            ("--write-reports", "cannot list reports.openreports.io"),
            ("--events", "cannot write events"),
        ):
            while (done := scan(flag)).returncode != 2:  # the API server learns of it by a watch
                assert done.returncode == 0, done.stderr
            assert says in done.stderr
            assert "Traceback" not in done.stderr
    finally:
        plane.kubectl("apply", "-f", component, check=True)
