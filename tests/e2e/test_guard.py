"""What a stolen token of the webhook can change in the webhook configurations:
``caBundle`` and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from tests.apiserver.control_plane import ControlPlane
from tests.paths import MANIFESTS
from tests.waiting import PATIENCE, eventually
from virt_admit.install.guard import GUARD
from virt_admit.install.manifests import NAME
from virt_admit.settings import NAMESPACE, SERVICE

KINDS = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration")
REFUSED = f"service accounts of {NAMESPACE} may"
BUNDLE = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "TmV3"}
EVERYTHING = {
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "operations": ["*"],
    "resources": ["*/*"],
    "scope": "*",
}
WIDENED: dict[str, list[dict[str, Any]]] = {
    "rules for everything": [{"op": "replace", "path": "/webhooks/0/rules", "value": [EVERYTHING]}],
    "a rule more": [{"op": "add", "path": "/webhooks/0/rules/-", "value": EVERYTHING}],
    "operations": [{"op": "add", "path": "/webhooks/0/rules/0/operations/-", "value": "DELETE"}],
    "no namespace is left out": [{"op": "remove", "path": "/webhooks/0/namespaceSelector"}],
    "no match condition": [{"op": "remove", "path": "/webhooks/0/matchConditions"}],
    "Fail": [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}],
    "another time limit": [{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30}],
    "another service": [
        {"op": "replace", "path": "/webhooks/0/clientConfig/service/name", "value": "spy"}
    ],
    "a URL": [
        {
            "op": "replace",
            "path": "/webhooks/0/clientConfig",
            "value": {"url": "https://127.0.0.1:1/a"},
        }
    ],
    "another path": [{"op": "remove", "path": "/webhooks/0/clientConfig/service/path"}],
    "an entry less": [{"op": "remove", "path": "/webhooks/0"}],
    "no entry": [{"op": "remove", "path": "/webhooks"}],
    "an entry more": [
        {"op": "copy", "from": "/webhooks/0", "path": "/webhooks/-"},
        {"op": "replace", "path": "/webhooks/0/name", "value": "spy.validate.virt-admit.io"},
    ],
    "another name": [
        {"op": "replace", "path": "/webhooks/0/name", "value": "spy.validate.virt-admit.io"}
    ],
    "labels": [{"op": "remove", "path": "/metadata/labels"}],
    "annotations": [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}],
    "an owner": [
        {
            "op": "add",
            "path": "/metadata/ownerReferences",
            "value": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "1"}],
        }
    ],
    "a finalizer": [{"op": "add", "path": "/metadata/finalizers", "value": ["a.io/b"]}],
    "the bundle and more": [
        BUNDLE,
        {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
    ],
}


class Thief:
    """The holder of a token of the webhook's service account."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self.config = plane, plane.service_account_kubeconfig(NAMESPACE, SERVICE)

    def patch(self, kind: str, changes: list[dict[str, Any]], *flags: str) -> CompletedProcess[str]:
        patch = f"-p={json.dumps(changes)}"
        return self.plane.kubectl(
            "patch", kind, NAME, "--type=json", patch, *flags, kubeconfig=self.config
        )

    def is_refused(self) -> bool:
        """Return whether the policy is in force, without a change.

        One that came through before would be there, and the next one would change nothing, which
        the policy allows.
        """
        return REFUSED in self.patch(KINDS[0], WIDENED["annotations"], "--dry-run=server").stderr


@pytest.fixture(scope="module")
def thief(crds: ControlPlane) -> Iterator[Thief]:
    crds.kubectl("apply", "-f", MANIFESTS / "base" / "namespace.yaml", check=True)
    crds.kubectl("apply", "-k", MANIFESTS / "base", check=True)
    crds.kubectl("apply", "-k", MANIFESTS / "webhooks", check=True)
    found = Thief(crds)
    # an API server learns of policies and roles by watches, and of kinds that are being installed
    # more slowly
    eventually(found.is_refused, 3 * PATIENCE)
    yield found
    crds.kubectl("delete", ",".join(KINDS), NAME, check=True)
    built = yaml.safe_load_all(crds.kubectl("kustomize", MANIFESTS / "base", check=True).stdout)
    # no controller would empty it
    rest = yaml.safe_dump_all(obj for obj in built if obj["kind"] != "Namespace")
    crds.kubectl("delete", "-f", "-", input=rest, check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bundle_can_be_changed(thief: Thief, kind: str) -> None:
    done = thief.patch(kind, [BUNDLE])
    assert (done.returncode, done.stdout) == (
        0,
        f"{kind}.admissionregistration.k8s.io/{NAME} patched\n",
    ), done.stderr
    stored = thief.plane.kubectl(
        "get", kind, NAME, "-o=jsonpath={.webhooks[0].clientConfig.caBundle}", check=True
    )
    assert stored.stdout == "TmV3"


@pytest.mark.parametrize("what", WIDENED)
def test_nothing_else_can_be_changed(thief: Thief, what: str) -> None:
    for kind in KINDS:
        if kind == KINDS[0] or "spy.validate" not in str(WIDENED[what]):
            done = thief.patch(kind, WIDENED[what])
            assert (done.returncode, REFUSED in done.stderr) == (1, True), done.stdout + done.stderr


@pytest.mark.parametrize("what", ["rules for everything", "labels", "Fail"])
def test_administrators_are_not_limited(thief: Thief, what: str) -> None:
    done = thief.plane.kubectl(
        "patch",
        KINDS[0],
        NAME,
        "--type=json",
        f"-p={json.dumps(WIDENED[what])}",
        "--dry-run=server",
    )
    assert done.returncode == 0, done.stderr


def test_the_policy_cannot_be_removed_with_the_token(thief: Thief) -> None:
    for kind in ("validatingadmissionpolicy", "validatingadmissionpolicybinding"):
        done = thief.plane.kubectl("delete", kind, GUARD, kubeconfig=thief.config)
        assert (done.returncode, "cannot delete resource" in done.stderr) == (1, True)
