"""The shipped roles are enough for the webhook and the scan, and nothing in them is superfluous."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.webhook import Webhook
from tests.https.reviews import patch_of, review, vm
from tests.paths import MANIFESTS
from tests.prefork import virt_admit
from tests.waiting import eventually
from virt_admit.install import manifests
from virt_admit.install.manifests import SCAN
from virt_admit.kube.field_filter import looked_up_at_admission, looked_up_kinds
from virt_admit.rules import load_rules
from virt_admit.settings import NAMESPACE, SERVICE

RULES = load_rules().at_admission
HOMES = manifests.rbac_elsewhere(RULES)
REFUSED = "forbidden: this account may not list "
POLICY = ("configmap", "virt-admit-policy", "-n", NAMESPACE)
CONFIGURATIONS = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration")


@pytest.fixture(scope="module")
def plane(crds: ControlPlane) -> Iterator[ControlPlane]:
    """The API server with base and scan applied, as an administrator would,
    and with the optional namespaces.
    """
    crds.kubectl("apply", "-f", MANIFESTS / "base" / "namespace.yaml", check=True)
    for name in HOMES:
        crds.kubectl("create", "namespace", name)  # it may be there
    crds.kubectl("apply", "-k", MANIFESTS / "base", check=True)
    crds.kubectl("apply", "-k", MANIFESTS / "scan", check=True)
    for component in ("medik8s",):
        crds.kubectl("apply", "-f", MANIFESTS / "components" / component / "rbac.yaml", check=True)
    yield crds
    for component in ("medik8s",):
        crds.kubectl("delete", "-f", MANIFESTS / "components" / component / "rbac.yaml", check=True)
    for part in ("scan", "base"):  # all but the namespace, which no controller would empty
        built = yaml.load_all(
            crds.kubectl("kustomize", MANIFESTS / part, check=True).stdout, yaml.CSafeLoader
        )
        rest = yaml.safe_dump_all(obj for obj in built if obj["kind"] != "Namespace")
        crds.kubectl("delete", "-f", "-", input=rest, check=True)
    crds.kubectl(
        "delete", "secret", "virt-admit-certs", "-n", NAMESPACE, "--ignore-not-found", check=True
    )


def synced(webhook: Webhook) -> dict[str, bool]:
    """Each kind that is looked up, and whether it can be."""
    lines = webhook.ops("/metrics")[1].splitlines()
    prefix = 'virt_admit_informer_synced{kind="'
    return {
        line[len(prefix) : line.index('"}')]: line.endswith(" 1.0")
        for line in lines
        if line.startswith(prefix)
    }


@pytest.fixture(scope="module")
def webhook(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """The webhook as its account: look-ups, the Secret and the configurations through the shipped
    roles alone.
    """
    folder = tmp_path_factory.mktemp("rights")
    plane.kubectl("apply", "-k", MANIFESTS / "webhooks", check=True)
    config = plane.service_account_kubeconfig(NAMESPACE, SERVICE)
    flags = (
        "--live",
        "--kubeconfig",
        config,
        "--certs-secret",
        "virt-admit/virt-admit-certs",
        "--log-level",
        "debug",
    )
    policy = ("--policy-configmap", "virt-admit/virt-admit-policy")
    flags = (*flags, *policy, "--cert-name", "127.0.0.1")
    with Webhook(folder, *flags, program=virt_admit()) as running:
        secret = plane.kubectl(
            "get", "secret", "virt-admit-certs", "-n", NAMESPACE, "-o", "json", check=True
        )
        running.ca.parent.mkdir()
        running.ca.write_bytes(base64.b64decode(json.loads(secret.stdout)["data"]["ca.crt"]))
        yield running
    plane.kubectl("delete", ",".join(CONFIGURATIONS), "virt-admit", check=True)


def test_the_webhook_needs_no_other_right(webhook: Webhook, plane: ControlPlane) -> None:
    eventually(lambda: all(synced(webhook).values()))
    assert synced(webhook).keys() == {str(kind) for kind in looked_up_at_admission(RULES)}
    bundle = base64.b64encode(webhook.ca.read_bytes()).decode()
    path = "jsonpath={.items[?(@.metadata.name=='virt-admit')].webhooks[*].clientConfig.caBundle}"
    for kind in CONFIGURATIONS:
        written = plane.kubectl("get", kind, "-o", path, check=True).stdout
        assert set(written.split()) == {bundle}
    text = webhook.log.read_text().lower()
    assert '"msg": "started"' in text
    assert "forbidden" not in text
    assert "status 403" not in text


def test_its_look_ups_are_right(webhook: Webhook, plane: ControlPlane) -> None:
    kubevirt = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "default"},
        "spec": {"configuration": {"evictionStrategy": "External"}},
    }

    def fixes() -> list[dict[str, Any]]:
        status, answer = webhook.post("/mutate", review(vm("db", "default")))
        assert status == 200
        return patch_of(answer)

    eventually(lambda: all(synced(webhook).values()))
    assert fixes()
    plane.kubectl("apply", "-f", "-", input=json.dumps(kubevirt), check=True)
    try:
        eventually(lambda: not fixes())  # the cluster's own word for all VMs is respected
    finally:
        plane.kubectl("delete", "kubevirt", "kubevirt", check=True)
    eventually(fixes)


def write_policy(plane: ControlPlane, file: Path, text: str) -> None:
    """Apply the ConfigMap of the policy, as an administrator does."""
    file.write_text(text)
    words = ("create", *POLICY, "--dry-run=client", "-o", "yaml", f"--from-file={file}")
    made = plane.kubectl(*words, check=True)
    plane.kubectl("apply", "-f", "-", input=made.stdout, check=True)


def test_the_policy_of_the_administrator_is_in_force_and_survives_every_apply(
    webhook: Webhook, plane: ControlPlane, tmp_path: Path
) -> None:
    """A changed ConfigMap is used within seconds; one that is not valid leaves the policy, and
    readiness, as they were.
    """

    def denies() -> bool:
        _, answer = webhook.post(
            "/validate", review(vm("db", "default", running=True, runStrategy="Always"))
        )
        return not answer["response"]["allowed"]

    def current() -> bool:
        return "virt_admit_policy_current 1.0" in webhook.ops("/metrics")[1]

    def write(text: str) -> None:
        write_policy(plane, tmp_path / "policy.yaml", text)

    assert denies()
    try:
        write('rules: {"*": {action: warn}}')
        eventually(lambda: not denies())
        plane.kubectl("apply", "-k", MANIFESTS / "base", check=True)
        plane.kubectl("apply", "-k", MANIFESTS / "overlays" / "audit", check=True)
        kept = plane.kubectl("get", *POLICY, "-o", "json", check=True)
        assert json.loads(kept.stdout)["data"] == {"policy.yaml": 'rules: {"*": {action: warn}}'}

        write("rules: {vm-runing: {action: deny}}")
        eventually(lambda: not current())
        assert not denies()
        assert webhook.ops("/readyz")[0] == 200
        done = scan(plane.service_account_kubeconfig(NAMESPACE, SCAN))
        assert (done.returncode, "there is no rule vm-runing" in done.stderr) == (2, True)

        write("extends: strict")
        eventually(lambda: denies() and current())
        done = scan(plane.service_account_kubeconfig(NAMESPACE, SCAN))
        assert (done.returncode, done.stderr.splitlines()[-1]) == (
            0,
            "policy: ConfigMap virt-admit/virt-admit-policy",
        )
    finally:
        plane.kubectl("delete", *POLICY, "--ignore-not-found", check=True)
        plane.kubectl("apply", "-k", MANIFESTS / "base", check=True)


def test_without_its_role_every_look_up_is_out_of_sight(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Each kind is listed by its own right, so none that is granted is superfluous."""
    plane.service_account_token(NAMESPACE, "without-rights")
    with Webhook(
        tmp_path,
        "--live",
        "--kubeconfig",
        plane.service_account_kubeconfig(NAMESPACE, "without-rights"),
    ) as blind:
        granted = {
            f"{plural}.{group}".rstrip(".")
            for role in (*manifests.rbac(RULES), *(obj for home in HOMES.values() for obj in home))
            for rule in role.get("rules", ())
            if "resourceNames" not in rule
            for group in rule["apiGroups"]
            for plural in rule["resources"]
        }
        eventually(lambda: {kind for kind, can in synced(blind).items() if not can} == granted)

        def warned() -> set[str]:
            lines = blind.log.read_text().splitlines()
            return {json.loads(line)["kind"] for line in lines if "are forbidden" in line}

        eventually(lambda: warned() == granted)


def scan(config: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [virt_admit(), "scan", "--kubeconfig", config, "--fail-on", "never", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_scan_needs_no_other_right(plane: ControlPlane) -> None:
    done = scan(plane.service_account_kubeconfig(NAMESPACE, SCAN))
    assert done.returncode == 0, done.stderr
    assert "forbidden" not in done.stderr


def test_without_its_role_the_scan_sees_nothing(plane: ControlPlane) -> None:
    done = scan(plane.service_account_kubeconfig(NAMESPACE, "without-rights"))
    assert done.returncode == 2
    assert "--policy" in done.stderr  # it may not read the policy of the cluster either
    done = scan(
        plane.service_account_kubeconfig(NAMESPACE, "without-rights"), "--policy", "default"
    )
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith(REFUSED)]
    rules = load_rules().in_scan
    wanted = {str(kind) for kind in (*rules.kinds, *looked_up_kinds(rules))}
    assert set(line.removeprefix(REFUSED).partition(", so ")[0].split(", ")) == wanted


def doctor(config: Path) -> tuple[int, dict[str, set[str]]]:
    """Its exit code, and how each topic is."""
    command = [virt_admit(), "doctor", "--kubeconfig", config, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found: dict[str, set[str]] = {}
    for each in json.loads(done.stdout)["observations"]:
        found.setdefault(each["topic"], set()).add(each["health"])
    return done.returncode, found


def test_the_doctor_calls_it_sound_and_sees_what_is_taken_away(
    plane: ControlPlane, webhook: Webhook
) -> None:
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "virt-admit-webhook",
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": SERVICE},
        },
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": [f"10.1.0.{number}"], "conditions": {"ready": True}} for number in (1, 2)
        ],
        "ports": [{"name": "https", "port": 8443, "protocol": "TCP"}],
    }
    plane.kubectl("apply", "-f", "-", input=json.dumps(slice_), check=True)
    try:
        eventually(lambda: doctor(plane.kubeconfig)[0] == 0)
        code, found = doctor(plane.kubeconfig)
        assert found.pop("failing open") <= {"ok", "note"}
        assert (code, set().union(*found.values())) == (0, {"ok"}), found

        plane.kubectl(
            "delete", "-f", MANIFESTS / "components" / "medik8s" / "rbac.yaml", check=True
        )
        plane.kubectl("delete", "endpointslice", SERVICE, "-n", NAMESPACE, check=True)
        eventually(lambda: doctor(plane.kubeconfig)[1]["rights"] == {"wrong"})
        code, found = doctor(plane.kubeconfig)
        assert code == 1
        assert {topic for topic, health in found.items() if "wrong" in health} == {
            "rights",
            "endpoints",
        }

        # who may not look cannot tell
        code, found = doctor(plane.service_account_kubeconfig(NAMESPACE, SERVICE))
        assert (code, found["registration"], found["rights"]) == (2, {"unknown"}, {"unknown"})
    finally:
        plane.kubectl("apply", "-f", MANIFESTS / "components" / "medik8s" / "rbac.yaml", check=True)
        plane.kubectl(
            "delete", "endpointslice", SERVICE, "-n", NAMESPACE, "--ignore-not-found", check=True
        )
