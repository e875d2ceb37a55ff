"""An installation on a cluster, as the pages describe it, that its administrator customised in
every way they name.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests import definitions, prefork
from tests.apiserver.control_plane import GO
from tests.apiserver.crds import custom, wait_until_discovered
from tests.apiserver.nodes import Cluster
from tests.paths import EXAMPLES, MANIFESTS
from tests.waiting import eventually
from virt_admit.model.kubernetes import kinds
from virt_admit_certs.kube_api import KubeApi

IMAGE: Final = "registry.example.com/mirror/virt-admit"
POLICY: Final = 'extends: default\nrules: {"vm-live-migrate-not-migratable": {action: warn}}\n'
CONFIGURATIONS: Final = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
REGISTERED: Final = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
    for kind in ("validating", "mutating")
)
OURS: Final = "namespaces/virt-admit"
EXEMPT: Final = "virt-admit.io/exempt.vm-live-migrate-not-migratable"
VM_KINDS: Final = (kinds.VM, kinds.VMI, kinds.VMIRS, kinds.POOL, kinds.KUBEVIRT, kinds.VMIM)
BUNDLED: Final = 60.0
"""Seconds until the rotation has written each caBundle; it looks every 10 seconds."""
SCHEDULE: Final = f"{(time.gmtime().tm_min + 40) % 60} * * * *"
"""Not during the tests: of two finished Jobs of a CronJob the older one is deleted."""


class Installed:
    """A checkout with ``ours`` next to ``manifests``, and a shell in it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self._api = KubeApi.connect(str(cluster.kubeconfig))
        shutil.copytree(MANIFESTS, folder / "manifests")
        shutil.copytree(EXAMPLES, folder / "examples")
        (folder / "policy.yaml").write_text(POLICY)
        crds = json.dumps(
            {
                "apiVersion": "v1",
                "kind": "List",
                "items": [definitions.own(kind) for kind in custom(VM_KINDS)],
            }
        )
        cluster.kubectl("apply", "--server-side", "-f", "-", input=crds, check=True)
        wait_until_discovered(cluster, {f"{kind.plural}.{kind.group}" for kind in VM_KINDS})

    def run(self, command: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """Run a command of a page as its reader does."""
        programs = (Path(self.cluster.binaries.kubectl).parent, prefork.folder())
        environment = {
            "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
            "HOME": str(self.folder),
            **self.cluster.kubectl_settings(),
            **GO,
        }
        shell = ["bash", "-o", "pipefail", "-c", command]
        return subprocess.run(
            shell,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def must(self, command: str) -> str:
        """Run a command that succeeds; return what it printed."""
        done = self.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def get(self, *what: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.cluster.kubectl("get", *what, "-o", "json", check=True).stdout
        )
        return found

    def read(self, path: str) -> dict[str, Any]:
        """Return what the API server has at a path.

        It takes a fortieth of the processor time of kubectl.
        """
        return dict(self._api.request_json("GET", path).body)

    def entries(self) -> list[dict[str, Any]]:
        """The webhooks of both configurations."""
        found = [obj for path in REGISTERED for obj in self.read(path)["items"]]
        return [entry for obj in found for entry in obj.get("webhooks", ())]

    def trusted(self) -> bool:
        """Whether every entry has its caBundle."""
        found = self.entries()
        return bool(found) and all("caBundle" in entry["clientConfig"] for entry in found)

    def wait_for_bundles(self) -> None:
        eventually(self.trusted, BUNDLED)

    def policies_loaded(self) -> list[float]:
        """When each replica loaded its policy, in seconds since the epoch."""
        replicas = self.cluster.pods_of_service()
        return [each.metric("virt_admit_policy_loaded_timestamp_seconds") for each in replicas]

    def customise(self, components: Sequence[str] = (), tag: str = "0.1.0") -> None:
        """Write ``ours`` with everything changed that the pages let an administrator change."""
        images = [{"name": "virt-admit", "newName": IMAGE, "newTag": tag}]
        mine = {"labels": [{"pairs": {"team": "virtualization"}}]}
        webhooks = [f"{name}/webhooks" for name in components if name == "enforce"]
        memory = [
            {
                "op": "replace",
                "path": "/spec/template/spec/containers/0/resources/limits/memory",
                "value": "1Gi",
            }
        ]
        schedule = [{"op": "replace", "path": "/spec/schedule", "value": SCHEDULE}]
        self._write("ours", "../manifests/base", components, images=images, **mine,
                    **_patch("Deployment", memory),
                    replicas=[{"name": "virt-admit-webhook", "count": 3}])  # fmt: skip
        self._write("ours/webhooks", "../../manifests/webhooks", webhooks, **mine)
        self._write(
            "ours/scan",
            "../../manifests/scan",
            (),
            images=images,
            **mine,
            **_patch("CronJob", schedule),
        )

    def _write(self, place: str, resource: str, components: Sequence[str], **more: Any) -> None:
        folder = self.folder / place
        folder.mkdir(parents=True, exist_ok=True)
        top = resource.rpartition("/")[0]
        kind = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [resource],
        }
        used = (
            {"components": [f"{top}/components/{name}" for name in components]}
            if components
            else {}
        )
        (folder / "kustomization.yaml").write_text(yaml.safe_dump({**kind, **used, **more}))

    def install(self) -> None:
        """Install ``ours`` in the order of the pages, with a policy,
        an exempt VM and an ignored namespace.
        """
        for command in (
            "kubectl apply -k ours",
            "kubectl -n virt-admit rollout status deployment/virt-admit-webhook",
            "kubectl apply -k ours/webhooks",
            "kubectl apply -k ours/scan",
            "kubectl -n virt-admit create configmap virt-admit-policy --from-file=policy.yaml",
            "kubectl create namespace shop",
            "kubectl create namespace ignored",
            "kubectl label namespace ignored virt-admit.io/ignore=true",
            "kubectl apply -f examples/05-live-migrate-cannot.yaml",
            f"kubectl -n shop annotate vm tape-robot '{EXEMPT}=drained by hand; until=2027-01-31'",
        ):
            self.must(command)
        self.wait_for_bundles()

    def customisation(self) -> dict[str, Any]:
        """What an administrator changed, as the API server has it now."""
        deployment = self.read(f"/apis/apps/v1/{OURS}/deployments/virt-admit-webhook")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        vm = self.read("/apis/kubevirt.io/v1/namespaces/shop/virtualmachines/tape-robot")
        policies = {
            each["metadata"]["name"]: each
            for each in self.read(f"/api/v1/{OURS}/configmaps")["items"]
        }
        return {
            "image": container["image"].rpartition(":")[0],
            "memory": container["resources"]["limits"]["memory"],
            "replicas": deployment["spec"]["replicas"],
            "label": deployment["metadata"]["labels"]["team"],
            "policy": policies.get("virt-admit-policy", {}).get("data"),
            "signer": self.read(f"/api/v1/{OURS}/secrets/virt-admit-certs")["data"]["ca.crt"],
            "schedule": self.read(f"/apis/batch/v1/{OURS}/cronjobs/virt-admit-scan")["spec"][
                "schedule"
            ],
            "exemption": vm["metadata"]["annotations"][EXEMPT],
            "ignored": self.read("/api/v1/namespaces/ignored")["metadata"]["labels"][
                "virt-admit.io/ignore"
            ],
        }


def _patch(kind: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
    return {"patches": [{"target": {"kind": kind}, "patch": yaml.safe_dump(operations)}]}
