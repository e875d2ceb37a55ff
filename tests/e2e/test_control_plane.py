"""The API server itself: that it is real, keeps what it is given, and goes away."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.apiserver.control_plane import ControlPlane, StartError
from tests.waiting import eventually
from virt_admit.model.kubernetes import kinds

VM = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: db, namespace: default}
spec:
  runStrategy: Always
  template:
    spec:
      evictionStrategy: LiveMigrate
      domain: {devices: {}}
"""


def test_client_and_server_are_of_the_same_release(control_plane: ControlPlane) -> None:
    versions = json.loads(control_plane.kubectl("version", "--output=json", check=True).stdout)

    assert versions["clientVersion"]["gitVersion"] == versions["serverVersion"]["gitVersion"]


def test_every_kind_is_served(crds: ControlPlane) -> None:
    served = crds.kubectl("api-resources", "--output=name", check=True).stdout.split()

    # apps and others print as plural.group, as our table does
    assert {kind.resource for kind in kinds.ALL} <= set(served)


def test_a_virtual_machine_is_applied_and_kept(crds: ControlPlane) -> None:
    applied = crds.kubectl("apply", "-f", "-", input=VM, check=True)
    strategy = "jsonpath={.spec.template.spec.evictionStrategy}"
    kept = crds.kubectl("get", "virtualmachine", "db", "--output", strategy, check=True)
    crds.kubectl("delete", "virtualmachine", "db", check=True)

    assert applied.stdout == "virtualmachine.kubevirt.io/db created\n"
    assert kept.stdout == "LiveMigrate"


def test_acting_as_somebody_else(control_plane: ControlPlane) -> None:
    controller = "system:serviceaccount:kubevirt:kubevirt-controller"
    token = control_plane.service_account_token("kubevirt", "kubevirt-controller")
    for options in (["--token", token], ["--kubeconfig", control_plane.kubeconfig_for(controller)]):
        whoami = control_plane.kubectl("auth", "whoami", "--output=json", *options, check=True)
        user = json.loads(whoami.stdout)["status"]["userInfo"]
        assert user["username"] == controller
        assert "system:serviceaccounts:kubevirt" in user["groups"]

    kubeconfig = control_plane.kubeconfig_for("jane", ["developers"])
    refused = control_plane.kubectl("get", "secrets", kubeconfig=kubeconfig)
    assert 'User "jane" cannot list resource "secrets"' in refused.stderr


def test_a_webhook_is_called_by_url(control_plane: ControlPlane) -> None:
    """No process listens on that port, and the request fails for that very reason:
    the server did call.
    """
    webhook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "silent"},
        "webhooks": [
            {
                "name": "silent.validate.virt-admit.io",
                "clientConfig": {"url": "https://127.0.0.1:1/validate"},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["configmaps"],
                    }
                ],
                "matchConditions": [
                    {"name": "ours", "expression": "object.metadata.name == 'webhook-by-url'"}
                ],
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
            }
        ],
    }
    control_plane.kubectl("apply", "-f", "-", input=json.dumps(webhook), check=True)
    try:
        create = ("create", "configmap", "webhook-by-url", "--dry-run=server")
        # once it has noticed the webhook
        refusal = eventually(lambda: control_plane.kubectl(*create).stderr)
    finally:
        control_plane.kubectl("delete", "validatingwebhookconfiguration", "silent", check=True)

    assert "failed calling webhook" in refusal
    assert "127.0.0.1:1: connect: connection refused" in refusal


def test_restart_keeps_and_stop_removes(control_plane: ControlPlane) -> None:
    with ControlPlane(control_plane.binaries) as plane:
        folder, url = plane.folder, plane.url
        plane.kubectl("create", "configmap", "kept", check=True)
        before = plane.pids

        plane.stop_apiserver()
        down = plane.kubectl("get", "configmap", "kept")
        plane.start_apiserver()
        up = plane.kubectl("get", "configmap", "kept", "--output=name", check=True)
        pids = {*before, *plane.pids}

    assert "connection refused" in down.stderr
    assert (plane.url, up.stdout) == (url, "configmap/kept\n")
    assert len(pids) == 3  # etcd, and kube-apiserver twice
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not folder.exists()


def test_a_server_that_does_not_start_says_why(control_plane: ControlPlane) -> None:
    plane = ControlPlane(control_plane.binaries, apiserver_flags=["--no-such-flag"])

    with pytest.raises(
        StartError, match=r"(?s)kube-apiserver exited.*unknown flag: --no-such-flag"
    ):
        plane.start()

    assert plane.pids == ()
    assert not Path(plane.folder).exists()
