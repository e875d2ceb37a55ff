"""helm as administrators run it, against an API server of the tests."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.apiserver.control_plane import GO, ControlPlane
from tests.apiserver.crds import install_crds
from tests.apiserver.webhook import Webhook
from tests.waiting import eventually
from virt_admit.model.kubernetes import kinds

CONFIGURATIONS: Final = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration")
HTTPS: Final = 443
"""The port of the Service."""


@dataclass(frozen=True)
class Helm:
    """One version of helm with folders and a kubeconfig of its own."""

    program: Path
    major: int
    home: Path
    kubeconfig: Path

    def environment(self) -> dict[str, str]:
        """Return the environment without settings of the developer's own helm."""
        folders = {f"HELM_{name}_HOME": str(self.home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        return {
            "HOME": str(self.home),
            "PATH": os.environ.get("PATH", os.defpath),
            "KUBECONFIG": str(self.kubeconfig),
            **GO,
            **folders,
        }

    def run(self, *args: str | Path) -> subprocess.CompletedProcess[str]:
        """Run helm and return its result."""
        return subprocess.run(
            [self.program, *args],
            env=self.environment(),
            check=False,
            text=True,
            capture_output=True,
            timeout=120,
        )


def may_listen() -> bool:
    """Return whether this process may listen on the port of the Service."""
    first = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    return os.geteuid() == 0 or (first.exists() and int(first.read_text()) <= HTTPS)


@contextmanager
def cluster_with_services(other: ControlPlane) -> Iterator[ControlPlane]:
    """Run a cluster whose Services are on loopback, so that a process can listen on the address of a Service."""
    network = f"127.{64 + secrets.randbelow(128)}.{secrets.randbelow(256)}.0/24"
    with ControlPlane(other.binaries, [f"--service-cluster-ip-range={network}"]) as plane:
        install_crds(plane, (kinds.VM,))
        yield plane


@dataclass(frozen=True)
class Cluster:
    """What helm leaves in a cluster."""

    plane: ControlPlane

    def get(self, *name: str, namespace: str = "virt-admit") -> dict[str, Any]:
        """Return an object; empty if it does not exist."""
        found = self.plane.kubectl("get", *name, "-n", namespace, "-o", "json", "--ignore-not-found", check=True)
        obj = json.loads(found.stdout or "{}")
        assert isinstance(obj, dict)
        return obj

    def entries(self) -> dict[str, dict[str, Any]]:
        """Return the entries of both webhook configurations, by name."""
        found = [self.get(kind, "virt-admit") for kind in CONFIGURATIONS]
        return {entry["name"]: entry for obj in found for entry in obj.get("webhooks", ())}

    def bundles(self) -> dict[str, str]:
        """Return the ``caBundle`` of each entry, by name."""
        return {name: entry["clientConfig"].get("caBundle", "") for name, entry in self.entries().items()}

    def failing(self) -> list[str]:
        """Return the entries with ``failurePolicy: Fail``."""
        return [name for name, entry in self.entries().items() if entry["failurePolicy"] == "Fail"]

    def kept(self) -> dict[str, Any]:
        """Return what no command of helm may change."""
        return {
            "secret": self.get("secret", "virt-admit-certs").get("data"),
            "policy": self.get("configmap", "virt-admit-policy").get("data"),
            "exemptions": self.get("vm", "legacy", namespace="shop").get("metadata", {}).get("annotations"),
        }

    def deployment(self) -> dict[str, Any]:
        """Return the specification of the Deployment."""
        found = self.get("deployment", "virt-admit-webhook")["spec"]
        assert isinstance(found, dict)
        return found

    @contextmanager
    def webhook(self, folder: Path) -> Iterator[Webhook]:
        """Run the webhook as its pod would: with its account, arguments and environment, on the Service's address."""
        address = self.get("service", "virt-admit-webhook")["spec"]["clusterIP"]
        config = self.plane.service_account_kubeconfig("virt-admit", "virt-admit-webhook")
        (container,) = self.deployment()["template"]["spec"]["containers"]
        variables: Mapping[str, str] = {each["name"]: each["value"] for each in container["env"]}
        flags = ("--certs-secret", "virt-admit/virt-admit-certs", f"--bind={address}:{HTTPS}", "--kubeconfig", config)
        with Webhook(folder, *flags, *container["args"][1:], environment=variables) as running:
            eventually(lambda: all(self.bundles().values()))
            yield running
