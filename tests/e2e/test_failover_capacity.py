"""A policy that keeps the reserve for one lost node, on a real API server with live informers.

A VM that takes the reserve is refused with the size that fits, the smaller one is accepted.
Restarts, migrations and edits that ask for nothing more pass without a word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.crds import install_crds
from tests.apiserver.webhook import Webhook, register
from tests.e2e.test_many_terms import create
from tests.forecasts.outage import losses
from tests.prefork import virt_admit
from tests.waiting import eventually
from virt_admit.kube.client import ApiClient
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object

RULE = "vm-takes-failover-capacity"
POLICY = f"extends: default\nrules:\n  {RULE}: {{action: deny}}\n"
CONTROLLER = "system:serviceaccount:kubevirt:kubevirt-controller"


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server of our own with three nodes of 64Gi; 40Gi are used on each:
    8Gi can start before one is lost.
    """
    with ControlPlane(control_plane.binaries) as plane:
        install_crds(plane, (kinds.VM, kinds.VMI, kinds.VMIM))
        for namespace in ("shop", "kubevirt"):
            plane.kubectl("create", "namespace", namespace, check=True)
        plane.kubectl(
            "create",
            "clusterrolebinding",
            "virt",
            "--clusterrole=cluster-admin",
            f"--user={CONTROLLER}",
        )
        api = ApiClient.connect(str(plane.kubeconfig), connections=4)
        nodes = [losses.node(f"n{number}") for number in (1, 2, 3)]
        for node in nodes:
            node["status"]["allocatable"]["ephemeral-storage"] = "100Gi"
        objects = [
            *nodes,
            *losses.vm("web", "n1", "40Gi"),
            *(losses.filler(name, "40Gi") for name in ("n2", "n3")),
        ]
        for data in objects:
            obj = Object(data)
            if kinds.of(obj) is kinds.POD:
                write_pod(api, data)
            else:
                create(api, obj)
        yield plane


def write_pod(api: ApiClient, pod: dict[str, Any]) -> None:
    for owner in pod["metadata"]["ownerReferences"]:
        owner.setdefault("apiVersion", "apps/v1")
    for container in pod["spec"]["containers"]:
        container.setdefault("image", "example.com/image")
    pod["spec"].pop("priority")  # the API server computes it
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    api.post(f"/api/v1/namespaces/{namespace}/pods", pod)
    status = {"apiVersion": "v1", "kind": "Pod", "status": pod["status"]}
    api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", "merge-patch+json", status)


@pytest.fixture(scope="module")
def webhook(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    folder: Path = tmp_path_factory.mktemp("webhook")
    (folder / "policy.yaml").write_text(POLICY)
    flags = ("--live", "--kubeconfig", plane.kubeconfig, "--policy", folder / "policy.yaml")
    with Webhook(folder, *flags, program=virt_admit()) as running:
        register(plane, running)
        yield running


def machine(name: str, memory: str) -> dict[str, Any]:
    domain = {"memory": {"guest": memory}, "cpu": {"cores": 1}, "devices": {}}
    template = {"metadata": {}, "spec": {"evictionStrategy": "None", "domain": domain}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"runStrategy": "Always", "template": template},
    }


def apply(plane: ControlPlane, obj: dict[str, Any], *flags: str) -> CompletedProcess[str]:
    return plane.kubectl("apply", *flags, "-f", "-", input=json.dumps(obj))


def test_a_vm_that_takes_the_reserve_is_refused_and_a_smaller_one_is_not(
    plane: ControlPlane, webhook: Webhook
) -> None:
    refused = apply(plane, machine("db", "16Gi"))
    assert refused.returncode != 0
    assert RULE in refused.stderr
    assert "the loss of n" in refused.stderr
    assert "leaves VMs without room" in refused.stderr
    found = re.search(r"Use at most (\d+[GM]i)", refused.stderr)
    assert found, refused.stderr

    accepted = apply(plane, machine("db", found[1]))
    assert (accepted.returncode, RULE in accepted.stderr) == (0, False), accepted.stderr
    plane.kubectl("delete", "virtualmachine", "db", "-n", "shop", check=True)


def test_vms_that_stay_off_or_shrink_are_accepted(plane: ControlPlane, webhook: Webhook) -> None:
    halted = machine("off", "32Gi")
    halted["spec"]["runStrategy"] = "Halted"
    assert apply(plane, halted).returncode == 0
    started = apply(plane, machine("off", "32Gi"))
    assert started.returncode != 0, "it asks for room when it is started"
    assert RULE in started.stderr
    halted["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = "16Gi"
    edited = apply(plane, halted)
    assert (edited.returncode, RULE in edited.stderr) == (0, False), edited.stderr


def test_a_running_vm_is_restarted_and_migrated_without_a_word(
    plane: ControlPlane, webhook: Webhook
) -> None:
    label = plane.kubectl(
        "label", "virtualmachine", "web", "-n", "shop", "edited=yes", "--overwrite"
    )
    migration = apply(
        plane,
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"vmiName": "web"},
        },
    )
    written = json.loads(
        plane.kubectl("get", "vmi", "web", "-n", "shop", "-o", "json", check=True).stdout
    )
    deleted = plane.kubectl(
        "delete", "vmi", "web", "-n", "shop", "--wait=false", f"--as={CONTROLLER}"
    )
    again = {key: written[key] for key in ("apiVersion", "kind", "spec")}
    again["metadata"] = {
        "name": "web",
        "namespace": "shop",
        "labels": written["metadata"].get("labels", {}),
    }
    eventually(lambda: plane.kubectl("get", "vmi", "web", "-n", "shop").returncode != 0)
    created = plane.kubectl("create", "-f", "-", f"--as={CONTROLLER}", input=json.dumps(again))
    for done in (label, migration, deleted, created):
        assert (done.returncode, RULE in done.stderr) == (0, False), done.stderr
