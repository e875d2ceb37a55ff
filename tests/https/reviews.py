"""AdmissionReviews for tests."""

from __future__ import annotations

import base64
import json
from typing import Any

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object


def review(
    obj: Any, old: Any = None, *, operation: str = "", uid: str = "42", **more: Any
) -> dict[str, Any]:
    """A review of an object as an API server sends it."""
    subject = Object(obj or old)
    kind = kinds.of(subject)
    assert kind is not None
    request = {
        "uid": uid,
        "kind": {"group": subject.group, "version": subject.version, "kind": subject.kind},
        "resource": {"group": kind.group, "version": subject.version, "resource": kind.plural},
        "operation": operation or ("UPDATE" if old else "CREATE"),
        "name": subject.name,
        "namespace": subject.namespace,
        "userInfo": {"username": "tester", "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": old,
        "dryRun": False,
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": request | more,
    }


def vm(
    name: str = "a", namespace: str = "shop", template: Any = None, **spec: Any
) -> dict[str, Any]:
    """A VirtualMachine on the pod network by masquerade, without disks."""
    spec = {"runStrategy": "Always"} | spec
    inner = {
        "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
        "networks": [{"name": "default", "pod": {}}],
    } | (template or {})
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {key: value for key, value in spec.items() if value is not None}
        | {"template": {"spec": inner}},
    }


def patch_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The JSON Patch in an answer; empty if there is none."""
    text = answer["response"].get("patch")
    return json.loads(base64.b64decode(text)) if text else []
