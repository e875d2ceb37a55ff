"""helm as administrators run it, against an API server of the tests."""

from __future__ import annotations

import functools
import json
import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import pytest

from tests.apiserver.control_plane import GO, ControlPlane
from tests.apiserver.crds import install_crds
from tests.apiserver.webhook import Webhook
from tests.waiting import eventually
from virt_admit.model.kubernetes import kinds
from virt_admit_certs.kube_api import KubeApi, read_body

VERSIONS: Final = ("helm3", "helm4")
CONFIGURATIONS: Final = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration")
HTTPS: Final = 443
"""The port of the Service."""
DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""All groups with their resources in one answer, since Kubernetes 1.30."""


@dataclass(frozen=True)
class Helm:
    """One version of helm with folders and a kubeconfig of its own."""

    program: Path
    major: int
    home: Path
    kubeconfig: Path

    def environment(self) -> dict[str, str]:
        """Return the environment without settings of the developer's own helm."""
        folders = {
            f"HELM_{name}_HOME": str(self.home / name.lower())
            for name in ("CACHE", "CONFIG", "DATA")
        }
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


def walked_by(version: str) -> pytest.MarkDecorator:
    """Return the mark of tests for which ``make test`` takes this version of helm alone.

    Both versions render each case of the chart, and each goes on where the other stopped.
    ``make verify-helm`` takes both here too.
    """
    versions = VERSIONS if os.environ.get("BOTH_HELMS") else (version,)
    return pytest.mark.parametrize("helm", versions, indirect=True)


def may_listen() -> bool:
    """Return whether this process may listen on the port of the Service."""
    first = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    return os.geteuid() == 0 or (first.exists() and int(first.read_text()) <= HTTPS)


@contextmanager
def cluster_with_services(other: ControlPlane) -> Iterator[ControlPlane]:
    """Run a cluster whose Services are on loopback,
    so that a process can listen on the address of a Service.
    """
    network = f"127.{64 + secrets.randbelow(128)}.{secrets.randbelow(256)}.0/24"
    with ControlPlane(other.binaries, [f"--service-cluster-ip-range={network}"]) as plane:
        install_crds(plane, (kinds.VM,))
        yield plane


@dataclass(frozen=True)
class Cluster:
    """What helm leaves in a cluster."""

    plane: ControlPlane

    @functools.cached_property
    def _api(self) -> KubeApi:
        return KubeApi.connect(str(self.plane.kubeconfig))

    @functools.cached_property
    def _paths(self) -> dict[str, str]:
        """The path of each kind by its names in lower case."""
        found: dict[str, str] = {}
        for root in ("/apis", "/api"):
            for group in json.loads(
                read_body(self._api.request("GET", root, headers={"Accept": DISCOVERY}))
            )["items"]:
                for version in reversed(group["versions"]):  # the preferred one is the first
                    for each in version["resources"]:
                        parts = [root, group["metadata"].get("name", ""), version["version"]]
                        parts += ["namespaces/{}"] if each["scope"] == "Namespaced" else []
                        path = "/".join(filter(None, [*parts, each["resource"]]))
                        names = (
                            each["responseKind"]["kind"],
                            each["singularResource"],
                            *each.get("shortNames", ()),
                        )
                        found |= {name.lower(): path for name in names}
        return found

    def get(self, kind: str, name: str, namespace: str = "virt-admit") -> dict[str, Any]:
        """Return an object; empty if it does not exist.

        It takes a fortieth of the processor time of kubectl.
        """
        answer = self._api.request_json(
            "GET", f"{self._paths[kind.lower()].format(namespace)}/{name}"
        )
        assert answer.status in (HTTPStatus.OK, HTTPStatus.NOT_FOUND), answer
        return dict(answer.body)

    def entries(self) -> dict[str, dict[str, Any]]:
        """Return the entries of both webhook configurations, by name."""
        found = [self.get(kind, "virt-admit") for kind in CONFIGURATIONS]
        return {entry["name"]: entry for obj in found for entry in obj.get("webhooks", ())}

    def bundles(self) -> dict[str, str]:
        """Return the ``caBundle`` of each entry, by name."""
        return {
            name: entry["clientConfig"].get("caBundle", "")
            for name, entry in self.entries().items()
        }

    def failing(self) -> list[str]:
        """Return the entries with ``failurePolicy: Fail``."""
        return [name for name, entry in self.entries().items() if entry["failurePolicy"] == "Fail"]

    def kept(self) -> dict[str, Any]:
        """Return what no command of helm may change."""
        return {
            "secret": self.get("secret", "virt-admit-certs").get("data"),
            "policy": self.get("configmap", "virt-admit-policy").get("data"),
            "exemptions": self.get("vm", "legacy", namespace="shop")
            .get("metadata", {})
            .get("annotations"),
        }

    def deployment(self) -> dict[str, Any]:
        """Return the specification of the Deployment."""
        found = self.get("deployment", "virt-admit-webhook")["spec"]
        assert isinstance(found, dict)
        return found

    @contextmanager
    def webhook(self, folder: Path) -> Iterator[Webhook]:
        """Run the webhook as its pod would: with its account, arguments and environment,
        on the Service's address.
        """
        address = self.get("service", "virt-admit-webhook")["spec"]["clusterIP"]
        config = self.plane.service_account_kubeconfig("virt-admit", "virt-admit-webhook")
        (container,) = self.deployment()["template"]["spec"]["containers"]
        variables: Mapping[str, str] = {each["name"]: each["value"] for each in container["env"]}
        flags = (
            "--certs-secret",
            "virt-admit/virt-admit-certs",
            f"--bind={address}:{HTTPS}",
            "--kubeconfig",
            config,
        )
        with Webhook(folder, *flags, *container["args"][1:], environment=variables) as running:
            eventually(lambda: all(self.bundles().values()))
            yield running
