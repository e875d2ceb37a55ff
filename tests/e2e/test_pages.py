"""Commands of the pages, run on an installation that an administrator customised: the customisation survives them."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from tests.apiserver.control_plane import ControlPlane
from tests.install.test_docs import PAGES, blocks
from tests.paths import MANIFESTS
from virt_admit.install import manifests
from virt_admit.rules import load_rules
from virt_admit_certs.certificates import certs_pem, new_signer

IMAGE = "registry.example.com/mirror/virt-admit:0.1.0-custom"
POLICY = 'rules: {"*": {action: warn}}\n'
CONFIGURATIONS = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
NOW = datetime.now(UTC)
CA = base64.b64encode(certs_pem([new_signer(NOW, timedelta(days=1)).cert])).decode()


RUN = r"apply -(k \w|f -)| (get|scale|patch) (?!.*[|\\\\])|delete validating"
"""What can run without a kubelet or another controller: no logs, no rollout, no port-forward."""


def commands_of_pages() -> dict[str, list[str]]:
    """The commands of each page that an API server alone can run, from blocks and from the text."""
    found: dict[str, list[str]] = {}
    for page in PAGES:
        text = page.read_text()
        lines = [line for block in blocks(text, "console") for line in block.splitlines()]
        inline = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        commands = [line.partition(" #")[0].strip().removeprefix("$ ") for line in (*lines, *inline)]
        chosen = [each for each in commands if each.startswith("kubectl") and re.search(RUN, each)]
        if chosen:
            found[page.name] = list(dict.fromkeys(chosen))
    return found


COMMANDS = commands_of_pages()


def kustomization(resource: str, **more: object) -> str:
    kind = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [resource]}
    return yaml.safe_dump({**kind, **more})


@pytest.fixture(scope="module")
def folder(crds: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkout with ``ours``, applied, and the policy of the administrator."""
    checkout = tmp_path_factory.mktemp("pages")
    shutil.copytree(MANIFESTS, checkout / "manifests")
    name, _, tag = IMAGE.rpartition(":")
    images = [{"name": "virt-admit", "newName": name, "newTag": tag}]
    for part in ("ours", "ours/webhooks", "ours/scan"):
        (checkout / part).mkdir()
    mine = {"labels": [{"pairs": {"team": "virtualization"}}]}
    base = kustomization(
        "../manifests/base", images=images, replicas=[{"name": "virt-admit-webhook", "count": 4}], **mine
    )
    (checkout / "ours/kustomization.yaml").write_text(base)
    (checkout / "ours/webhooks/kustomization.yaml").write_text(kustomization("../../manifests/webhooks", **mine))
    (checkout / "ours/scan/kustomization.yaml").write_text(kustomization("../../manifests/scan", images=images, **mine))
    (checkout / "policy.yaml").write_text(POLICY)
    crds.kubectl("apply", "-f", MANIFESTS / "base" / "namespace.yaml", check=True)
    for namespace in manifests.rbac_elsewhere(load_rules().at_admission):
        crds.kubectl("create", "namespace", namespace)  # it may be there
    for part in ("ours", "ours/scan"):
        crds.kubectl("apply", "-k", checkout / part, check=True)
    policy = ("create", "configmap", "virt-admit-policy", "-n", "virt-admit", f"--from-file={checkout / 'policy.yaml'}")
    crds.kubectl(*policy, check=True)
    yield checkout
    crds.kubectl("delete", CONFIGURATIONS, "virt-admit", "--ignore-not-found", check=True)
    for part in ("ours/scan", "ours"):
        built = yaml.safe_load_all(crds.kubectl("kustomize", checkout / part, check=True).stdout)
        rest = yaml.safe_dump_all(obj for obj in built if obj["kind"] != "Namespace")
        crds.kubectl("delete", "--ignore-not-found", "-f", "-", input=rest, check=True)
    crds.kubectl("delete", "configmap", "virt-admit-policy", "-n", "virt-admit", "--ignore-not-found", check=True)


def run(plane: ControlPlane, folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of a page in a shell, with the kubectl of the control plane."""
    path = f"{Path(plane.binaries.kubectl).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "PATH": path}
    shell = ["bash", "-o", "pipefail", "-c", command]
    return subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_pages_that_restore_an_installation_have_commands() -> None:
    assert {
        "README.md",
        "install.md",
        "policy.md",
        "troubleshooting.md",
        "VirtAdmitBundleNotInjected.md",
    } <= COMMANDS.keys()
    assert {"VirtAdmitCertificateCheckStale.md", "VirtAdmitCertificateExpiresSoon.md"} <= COMMANDS.keys()


@pytest.mark.parametrize("page", COMMANDS)
def test_a_command_keeps_image_replicas_labels_and_policy(crds: ControlPlane, folder: Path, page: str) -> None:
    crds.kubectl("apply", "-k", folder / "ours/webhooks", check=True)
    for command in COMMANDS[page]:
        if "monitoring" in command:
            continue  # the kinds of the Prometheus operator are installed by test_manifests alone
        done = run(crds, folder, command)
        assert done.returncode == 0, (command, done.stderr)
        deployment = json.loads(
            run(crds, folder, "kubectl -n virt-admit get deployment virt-admit-webhook -o json").stdout
        )
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert (container["image"], deployment["spec"]["replicas"]) == (IMAGE, 4), command
        assert deployment["metadata"]["labels"]["team"] == "virtualization", command
        policy = json.loads(run(crds, folder, "kubectl -n virt-admit get configmap virt-admit-policy -o json").stdout)
        assert policy["data"] == {"policy.yaml": POLICY}, command


def test_enforce_after_the_bundle_changes_the_failure_policy_alone(crds: ControlPlane, folder: Path) -> None:
    """The order of the pages: Ignore, the bundle, then Fail. Applying Fail keeps the bundle."""
    crds.kubectl("delete", CONFIGURATIONS, "virt-admit", "--ignore-not-found", check=True)
    assert run(crds, folder, "kubectl apply -k ours/webhooks").returncode == 0

    def entries() -> list[dict[str, object]]:
        found = crds.kubectl("get", CONFIGURATIONS, "-o", "json", check=True)
        return [each for obj in json.loads(found.stdout)["items"] for each in obj.get("webhooks", ())]

    assert {each["failurePolicy"] for each in entries()} == {"Ignore"}
    for kind in CONFIGURATIONS.split(","):
        webhooks = json.loads(crds.kubectl("get", kind, "virt-admit", "-o", "json", check=True).stdout)["webhooks"]
        patch = [
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": CA}
            for index in range(len(webhooks))
        ]
        flags = ("--type=json", "--field-manager=virt-admit-certs", "-p", json.dumps(patch))
        crds.kubectl("patch", kind, "virt-admit", *flags, check=True)
    before = entries()
    file = folder / "ours/webhooks/kustomization.yaml"
    text = file.read_text()
    file.write_text(
        kustomization("../../manifests/webhooks", components=["../../manifests/components/enforce/webhooks"])
    )
    try:
        assert run(crds, folder, "kubectl apply -k ours/webhooks").returncode == 0
        after = entries()
    finally:
        file.write_text(text)
        crds.kubectl("delete", CONFIGURATIONS, "virt-admit", check=True)
    failing = [each["name"] for each in after if each["failurePolicy"] == "Fail"]
    assert failing == ["virtual-machines.validate.virt-admit.io"]
    for each in after:
        each["failurePolicy"] = "Ignore"
    assert after == before  # each caBundle is still there
    assert all(each["clientConfig"]["caBundle"] == CA for each in after)  # type: ignore[index]
