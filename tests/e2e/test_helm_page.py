"""The section about Helm in docs/install.md, walked literally: each command is run,
in the order of the page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests import prefork
from tests.apiserver.control_plane import ControlPlane
from tests.e2e.helm import HTTPS, Cluster, Helm, cluster_with_services, may_listen, walked_by
from tests.install.test_docs import blocks, page
from tests.paths import EXAMPLES, ROOT

POLICY = "extends: default\nrules:\n  vm-running-deprecated: {action: deny}\n"

pytestmark = [
    walked_by("helm3"),
    pytest.mark.skipif(
        not may_listen(), reason=f"listening on port {HTTPS} of loopback needs root"
    ),
]


def section() -> str:
    found = re.search(r"^## Helm\n(.*?)^## ", page("install.md"), re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


COMMANDS = [line for block in blocks(section(), "console") for line in block.splitlines()]


@dataclass(frozen=True)
class Walk:
    """An administrator with a checkout, the commands of the page, and a cluster."""

    helm: Helm
    cluster: Cluster
    folder: Path

    def type(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a shell that finds helm, kubectl and virt-admit."""
        path = os.pathsep.join([str(self.folder / "bin"), self.helm.environment()["PATH"]])
        environment = self.helm.environment() | {"PATH": path}
        shell = ["bash", "-o", "pipefail", "-c", command]
        return subprocess.run(
            shell,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def become_ready(self) -> None:
        """Write what the controllers of Deployments and EndpointSlices would write."""
        replicas = self.cluster.deployment()["replicas"]
        counts = ", ".join(
            f'"{name}": {replicas}'
            for name in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        )
        patch = f'{{"status": {{"observedGeneration": 99, {counts}}}}}'
        place = (
            "deployment",
            "virt-admit-webhook",
            "-n",
            "virt-admit",
            "--subresource=status",
            "--type=merge",
        )
        self.cluster.plane.kubectl("patch", *place, "-p", patch, check=True)
        endpoints = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "virt-admit-webhook",
                "namespace": "virt-admit",
                "labels": {"kubernetes.io/service-name": "virt-admit-webhook"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": 8443}],
        }
        self.cluster.plane.kubectl("apply", "-f", "-", input=json.dumps(endpoints), check=True)


@pytest.fixture
def walk(helm: Helm, control_plane: ControlPlane, tmp_path: Path) -> Iterator[Walk]:
    with cluster_with_services(control_plane) as plane:
        (tmp_path / "bin").mkdir()
        for name, program in {
            "helm": helm.program,
            "kubectl": plane.binaries.kubectl,
            "virt-admit": prefork.virt_admit(),
        }.items():
            (tmp_path / "bin" / name).symlink_to(program)
        shutil.copytree(ROOT / "charts", tmp_path / "charts")
        (tmp_path / "examples").symlink_to(EXAMPLES)
        (values,) = [
            block for block in blocks(section(), "yaml") if block.startswith("# values.yaml\n")
        ]
        (tmp_path / "values.yaml").write_text(values)
        (tmp_path / "policy.yaml").write_text(POLICY)
        yield Walk(replace(helm, kubeconfig=plane.kubeconfig), Cluster(plane), tmp_path)


def test_the_commands_of_the_page(walk: Walk) -> None:
    """A process stands for the pods: it starts after the install."""
    printed: dict[str, str] = {}
    started = time.monotonic()
    kept: dict[str, object] = {}
    with ExitStack() as stack:
        for command in COMMANDS:
            if "rollout status" in command:
                walk.become_ready()
            done = walk.type(command)
            printed[command] = done.stdout + done.stderr
            assert done.returncode == 0, (command, printed[command])
            if command.startswith("helm install"):
                stack.enter_context(walk.cluster.webhook(walk.folder))
            if "--dry-run=server" in command:
                assert "[virt-admit/vm-live-migrate-not-migratable]" in printed[command]
                print(
                    f"from helm install to the first warning: {time.monotonic() - started:.1f} s "
                    "of commands"
                )
            if "--set-file" in command:
                kept = walk.cluster.kept()
                assert kept["policy"] == {"policy.yaml": POLICY}
            if "mode=enforce" in command:
                assert walk.cluster.failing() == ["virtual-machines.validate.virt-admit.io"]
            if kept:
                assert walk.cluster.kept() == kept, command
    assert {command.split()[0] for command in COMMANDS} == {"helm", "kubectl", "virt-admit"}
    assert not walk.cluster.entries()
    assert not walk.cluster.get("deployment", "virt-admit-webhook")
