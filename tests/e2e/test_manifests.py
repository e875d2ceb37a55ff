"""Every object that we ship is one that a real API server takes as it is."""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.crds import install_crds
from tests.apiserver.webhook import Webhook, register
from tests.https.reviews import vm
from tests.install.test_docs import blocks
from tests.paths import MANIFESTS
from tests.prefork import virt_admit
from virt_admit.install import manifests
from virt_admit.install.guard import guard
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubevirt.settings.trusted_accounts import TRUSTED_NAMESPACES
from virt_admit.rules import load_rules

BUILDS = tuple(
    str(file.parent.relative_to(MANIFESTS))
    for file in sorted(MANIFESTS.rglob("kustomization.yaml"))
    if yaml.safe_load(file.read_text())["kind"] == "Kustomization"
)
THIRD_PARTY = (
    Kind("monitoring.coreos.com", ("v1",), "servicemonitors", "ServiceMonitor"),
    Kind("monitoring.coreos.com", ("v1",), "prometheusrules", "PrometheusRule"),
    Kind("cert-manager.io", ("v1",), "certificates", "Certificate"),
    Kind("cert-manager.io", ("v1",), "issuers", "Issuer"),
)
FAIL = {"virtual-machines.validate.virt-admit.io"}


@pytest.fixture(scope="module")
def plane(crds: ControlPlane) -> ControlPlane:
    """The API server with our namespace, and with the kinds of others that our manifests have
    objects of.
    """
    install_crds(crds, THIRD_PARTY)
    crds.kubectl("apply", "-f", MANIFESTS / "base" / "namespace.yaml", check=True)
    for name in manifests.rbac_elsewhere(load_rules().at_admission):
        crds.kubectl("create", "namespace", name)  # it may be there
    return crds


def build(plane: ControlPlane, path: str) -> list[dict[str, Any]]:
    """Return what kustomize makes of a folder. It runs once for each of ours."""
    found: list[dict[str, Any]] = json.loads(
        (_built_once if path in BUILDS else _built)(plane, path)
    )
    return found


def _built(plane: ControlPlane, path: str) -> str:
    built = plane.kubectl("kustomize", MANIFESTS / path, check=True).stdout
    return json.dumps([obj for obj in yaml.load_all(built, yaml.CSafeLoader) if obj])


_built_once = functools.cache(_built)


def as_text(objects: Iterable[dict[str, Any]]) -> str:
    return yaml.dump_all(objects, Dumper=yaml.CSafeDumper)


def webhooks(found: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for obj in found:
        for entry in obj.get("webhooks", ()):
            yield obj["kind"], entry


def test_there_is_something_to_build() -> None:
    assert {"base", "webhooks", "scan", "monitoring"} < set(BUILDS)
    assert {f"overlays/{name}" for name in ("audit", "enforce", "openshift", "cert-manager")} < set(
        BUILDS
    )
    assert {f"overlays/{name}/webhooks" for name in ("enforce", "openshift", "cert-manager")} < set(
        BUILDS
    )


@pytest.mark.parametrize("path", BUILDS)
def test_the_api_server_takes_every_object(plane: ControlPlane, path: str) -> None:
    built = build(plane, path)
    taken = plane.kubectl(
        "apply",
        "--dry-run=server",
        "--validate=strict",
        "-o",
        "json",
        "-f",
        "-",
        input=as_text(built),
    )
    # no warning of deprecated fields or of pod security
    assert (taken.returncode, taken.stderr) == (0, "")
    answer = json.loads(taken.stdout)
    assert len(answer["items"] if answer["kind"] == "List" else [answer]) == len(built)


@pytest.mark.parametrize("path", BUILDS)
def test_what_is_built_keeps_its_labels_and_has_no_ca_bundle(
    plane: ControlPlane, path: str
) -> None:
    built = build(plane, path)
    assert '"caBundle"' not in json.dumps(built)
    for obj in built:
        component = path if path in ("floor", "scan", "watch") else "webhook"
        assert manifests.labels(component).items() <= obj["metadata"]["labels"].items(), obj[
            "metadata"
        ]["name"]


@pytest.mark.parametrize("path", BUILDS)
def test_requests_fail_without_us_only_for_virtual_machines_under_enforce(
    plane: ControlPlane, path: str
) -> None:
    failing = {
        (kind, entry["name"])
        for kind, entry in webhooks(build(plane, path))
        if entry["failurePolicy"] == "Fail"
    }
    wanted = FAIL if path == "overlays/enforce/webhooks" else set()
    assert failing == {("ValidatingWebhookConfiguration", name) for name in wanted}
    (entry,) = [
        entry for entry in manifests.ENTRIES if f"{entry.name}.validate.virt-admit.io" in FAIL
    ]
    assert {str(kind) for kind in entry.kinds} == {
        "virtualmachines.kubevirt.io",
        "virtualmachinepools.pool.kubevirt.io",
        "virtualmachineinstancereplicasets.kubevirt.io",
    }


def test_enforce_comes_with_the_priority_that_it_needs(plane: ControlPlane) -> None:
    (pod,) = pods(build(plane, "overlays/enforce"))
    assert pod["spec"]["priorityClassName"] == "system-cluster-critical"


@pytest.mark.parametrize(
    ("path", "trusted"),
    [("webhooks", TRUSTED_NAMESPACES), ("overlays/openshift/webhooks", ("openshift-cnv",))],
)
def test_namespaces_that_are_trusted(
    plane: ControlPlane, path: str, trusted: tuple[str, ...]
) -> None:
    built = {
        kind: entry
        for kind, entry in webhooks(build(plane, path))
        if entry["name"].startswith("virtual-machines")
    }
    for obj in manifests.webhooks(load_rules().at_admission, trusted=trusted):
        assert built[obj["kind"]] == obj["webhooks"][0]


def test_the_address_of_the_runbooks_is_the_installers(plane: ControlPlane, tmp_path: Path) -> None:
    """As docs/metrics.md shows it."""
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    ours = tmp_path / "ours" / "monitoring"
    ours.mkdir(parents=True)
    page = (MANIFESTS.parent / "docs" / "metrics.md").read_text()
    (shown,) = [block for block in blocks(page, "yaml") if "ours/monitoring" in block]
    (ours / "kustomization.yaml").write_text(shown)
    built = list(yaml.safe_load_all(plane.kubectl("kustomize", ours, check=True).stdout))
    (alerts,) = [obj for obj in built if obj["kind"] == "PrometheusRule"]
    urls = {
        rule["alert"]: rule["annotations"]["runbook_url"]
        for group in alerts["spec"]["groups"]
        for rule in group["rules"]
    }
    runbooks = "https://git.example.com/tools/virt-admit/docs/runbooks"
    assert urls == {name: f"{runbooks}/{name}.md" for name in urls}
    assert [obj["metadata"]["name"] for obj in built if obj["kind"] == "ConfigMap"] == [
        "virt-admit-dashboard"
    ]


def test_the_guard_leaves_no_default_to_the_api_server(plane: ControlPlane) -> None:
    for shipped in guard():
        answer = plane.kubectl(
            "apply",
            "--dry-run=server",
            "-o",
            "json",
            "-f",
            "-",
            input=json.dumps(shipped),
            check=True,
        )
        assert json.loads(answer.stdout)["spec"] == shipped["spec"]


def test_webhooks_leave_no_default_to_the_api_server(plane: ControlPlane) -> None:
    """What the API server would add, a GitOps tool would take away, and so on without end."""
    sent = {obj["kind"]: obj for obj in manifests.webhooks(load_rules().at_admission)}
    taken = plane.kubectl(
        "apply",
        "--dry-run=server",
        "-o",
        "json",
        "-f",
        "-",
        input=as_text(sent.values()),
        check=True,
    )
    for obj in json.loads(taken.stdout)["items"]:
        assert obj["webhooks"] == sent[obj["kind"]]["webhooks"]


@pytest.mark.parametrize("issuer", ["openshift", "cert-manager"])
def test_with_another_issuer_our_rotation_and_its_rights_are_gone(
    plane: ControlPlane, issuer: str
) -> None:
    built = build(plane, f"overlays/{issuer}")
    rights = {obj["metadata"]["name"] for obj in built if "rbac" in obj["apiVersion"]}
    assert rights == {"virt-admit-reader", "virt-admit-policy"}
    (pod,) = pods(built)
    (container,) = pod["spec"]["containers"]
    assert {"name": "VIRT_ADMIT_CERTS_EXTERNAL", "value": "/var/run/virt-admit"} in container["env"]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {
        "/tmp",
        "/var/run/virt-admit",
    }
    (secret,) = [
        volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume
    ]
    named = {
        "openshift": [
            obj["metadata"]
            .get("annotations", {})
            .get("service.beta.openshift.io/serving-cert-secret-name")
            for obj in built
            if obj["kind"] == "Service"
        ],
        "cert-manager": [
            obj["spec"]["secretName"] for obj in built if obj["kind"] == "Certificate"
        ],
    }
    assert secret in named[issuer]
    annotation = {
        "openshift": {"service.beta.openshift.io/inject-cabundle": "true"},
        "cert-manager": {"cert-manager.io/inject-ca-from": f"virt-admit/{secret}"},
    }
    for obj in build(plane, f"overlays/{issuer}/webhooks"):
        assert obj["metadata"]["annotations"] == annotation[issuer]


def test_audit_changes_the_fallback_of_the_policy_alone(plane: ControlPlane) -> None:
    base, audit = (build(plane, path) for path in ("base", "overlays/audit"))
    (variable,) = pods(base)[0]["spec"]["containers"][0]["env"]
    assert variable["value"] == "virt-admit/virt-admit-policy,fallback=default"
    variable["value"] = "virt-admit/virt-admit-policy,fallback=audit"
    assert audit == base


@pytest.mark.parametrize("path", BUILDS)
def test_the_policy_of_the_administrator_is_never_applied(plane: ControlPlane, path: str) -> None:
    names = {obj["metadata"]["name"] for obj in build(plane, path) if obj["kind"] == "ConfigMap"}
    assert names == ({"virt-admit-dashboard"} if path == "monitoring" else set())


SHOWN = [
    block
    for page in ("install.md", "metrics.md")
    for block in blocks((MANIFESTS.parent / "docs" / page).read_text(), "yaml")
    if block.startswith("# ours/")
]
"""The kustomizations that the docs show, each with its path in the first line."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the manifests, beside which an administrator may put folders of their own."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(MANIFESTS, folder / "manifests")
    return folder


def test_kustomizations_are_shown() -> None:
    assert {block.splitlines()[0] for block in SHOWN} == {
        f"# ours/{folder}kustomization.yaml" for folder in ("", "webhooks/", "scan/", "monitoring/")
    }


@pytest.mark.parametrize("block", SHOWN)
def test_what_the_docs_show_can_be_built_and_applied(
    plane: ControlPlane, checkout: Path, block: str
) -> None:
    file = checkout / block.splitlines()[0].removeprefix("# ")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block)
    built = build(plane, str(file.parent))
    applied = plane.kubectl("apply", "--dry-run=server", "-f", "-", input=as_text(built))
    assert (applied.returncode, applied.stderr) == (0, "")
    for pod in pods(built):
        (container,) = pod["spec"]["containers"]
        assert container["image"] == "registry.example.com/virt-admit:0.1.0"
        if "10250" in block:
            assert container["args"][-1] == "--bind=0.0.0.0:10250"
            assert container["ports"][0] == {
                "name": "https",
                "containerPort": 10250,
                "protocol": "TCP",
            }


def test_components_go_together(plane: ControlPlane, checkout: Path) -> None:
    mine = checkout / "mine"
    mine.mkdir()
    components = ("openshift", "medik8s", "enforce", "audit")
    kustomization = {
        "resources": ["../manifests/base"],
        "components": [f"../manifests/components/{name}" for name in components],
    }
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    built = build(plane, str(mine))
    (pod,) = pods(built)
    assert pod["spec"]["priorityClassName"] == "system-cluster-critical"
    assert pod["spec"]["containers"][0]["env"]
    assert {obj["metadata"].get("namespace") for obj in built if obj["kind"] == "Role"} == {
        "medik8s-leases",
        "virt-admit",  # the policy of the administrator
    }
    applied = plane.kubectl("apply", "--dry-run=server", "-f", "-", input=as_text(built))
    assert (applied.returncode, applied.stderr) == (0, "")


@pytest.mark.parametrize(
    "path", [path for path in BUILDS if path in ("base", "scan") or path.startswith("overlays/")]
)
def test_pods_are_admitted_by_pod_security_restricted(plane: ControlPlane, path: str) -> None:
    """The namespace enforces it, and a Deployment would only be warned of."""
    for template in pods(build(plane, path)):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "try", "namespace": "virt-admit", **template["metadata"]},
            "spec": template["spec"],
        }
        made = plane.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
        assert (made.returncode, made.stderr) == (0, "")
        pod["spec"] = {**pod["spec"], "hostNetwork": True}
        refused = plane.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
        assert 'violates PodSecurity "restricted' in refused.stderr


def pods(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    deployed = [obj["spec"]["template"] for obj in found if obj["kind"] == "Deployment"]
    return deployed + [
        obj["spec"]["jobTemplate"]["spec"]["template"] for obj in found if obj["kind"] == "CronJob"
    ]


def test_match_conditions_bear_the_largest_objects(plane: ControlPlane, tmp_path: Path) -> None:
    """Conditions have a budget; under ``Fail`` an object that exceeds it would be refused."""
    many = [
        {"key": f"example.com/{number}", "operator": "Exists", "effect": "NoSchedule"}
        for number in range(4000)
    ]
    long = {"name": "init", "cloudInitNoCloud": {"userData": "#" * 900_000}}
    template = {
        "tolerations": many,
        "evictionStrategy": "None",
        "volumes": [long],
        "domain": {"devices": {}},
    }
    with Webhook(tmp_path, program=virt_admit()) as webhook:
        register(plane, webhook, failure_policy="Fail")
        try:
            large = json.dumps(vm("large", "default", template=template))
            assert len(large) > 1_000_000
            made = plane.kubectl("create", "-f", "-", input=large)
            assert made.returncode == 0, made.stderr
            for change in ("labels", "annotations"):
                patch = json.dumps({"metadata": {change: {"a": "b"}}})
                done = plane.kubectl("patch", "vm", "large", "--type=merge", "-p", patch)
                assert (done.returncode, done.stderr) == (0, "")
        finally:
            plane.kubectl("delete", "vm", "large", "--ignore-not-found", check=True)
            both = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
            plane.kubectl("delete", both, "virt-admit", check=True)


def test_the_series_of_the_api_server_are_named_as_alerts_and_dashboard_name_them(
    plane: ControlPlane, tmp_path: Path
) -> None:
    from tests.serving.test_monitoring import API_SERVER

    with Webhook(tmp_path, program=virt_admit()) as webhook:
        register(plane, webhook)
        webhook.stop()
        try:
            passed = plane.kubectl(
                "create", "--dry-run=server", "-f", "-", input=json.dumps(vm("v", "default"))
            )
            assert passed.returncode == 0, passed.stderr
        finally:
            both = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
            plane.kubectl("delete", both, "virt-admit", check=True)
    text = plane.kubectl("get", "--raw", "/metrics", check=True).stdout
    for name in API_SERVER:
        assert re.search(
            rf'^{name}{{[^}}]*name="[a-z-]+[.](validate|mutate)[.]virt-admit[.]io"',
            text,
            re.MULTILINE,
        ), name
