"""What kubectl sends for one object, without its process, which takes a tenth of a second of
processor time each time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import urllib3

from tests.apiserver.control_plane import ControlPlane
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object

METHODS: Final = {
    "create": "POST",
    "replace": "PUT",
    "delete": "DELETE",
    "scale": "PATCH",
    "patch": "PATCH",
}
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"


class KubectlRequests:
    """Requests to an API server as its administrator, or as another one."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self._pool = urllib3.PoolManager(ca_certs=str(plane.folder / "ca.crt"))

    def send(
        self,
        verb: str,
        obj: Mapping[str, Any],
        subresource: str = "",
        *,
        user: str = "",
        groups: tuple[str, ...] = (),
        change: Mapping[str, Any] | None = None,
        **query: str,
    ) -> tuple[bool, str]:
        """Do one thing with an object.

        Return whether the API server did it, and what kubectl prints about it.

        For ``scale``, ``obj`` has the new number of replicas; ``patch`` merges ``change``.
        """
        path = (
            _collection(obj)
            if verb == "create"
            else "/".join(filter(None, (_path(obj), subresource)))
        )
        body: Any = obj
        if verb == "scale":
            path, body = f"{path}/scale", {"spec": {"replicas": obj["spec"].get("replicas", 0)}}
        elif verb == "replace":  # kubectl overwrites what is there
            _, there = self._request("GET", path)
            version = json.loads(there.data).get("metadata", {}).get("resourceVersion")
            body = {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
        elif verb in ("delete", "patch"):
            body = change
        acting = (
            {"Impersonate-User": [user], "Impersonate-Group": ["system:masters", *groups]}
            if user
            else {}
        )
        media = MERGE if METHODS[verb] == "PATCH" else JSON
        manager = {} if verb == "delete" else {"fieldManager": f"kubectl-{verb}"}
        done, answer = self._request(
            METHODS[verb], path, body, {"Content-Type": [media], **acting}, query | manager
        )
        said = [_unquoted(warning) for warning in answer.headers.getlist("Warning")]
        if not done:
            said.append(json.loads(answer.data)["message"])
        return done, "\n".join(said)

    def get(self, obj: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what is stored; None if the API server does not have it."""
        done, answer = self._request("GET", _path(obj))
        assert done or answer.status == HTTPStatus.NOT_FOUND, answer.data
        return dict(json.loads(answer.data)) if done else None

    def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        more: Mapping[str, list[str]] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> tuple[bool, urllib3.BaseHTTPResponse]:
        headers = urllib3.HTTPHeaderDict(
            {"Authorization": f"Bearer {self.plane.token}", "Accept": JSON}
        )
        for name, values in (more or {}).items():
            for value in values:
                headers.add(name, value)
        url = (
            f"{self.plane.url}{path}?"
            f"{'&'.join(f'{key}={value}' for key, value in (query or {}).items())}"
        )
        text = None if body is None else json.dumps(body)
        answer = self._pool.request(
            method, url, body=text, headers=headers, retries=False, timeout=60.0
        )
        return answer.status < 300, answer


def _collection(obj: Mapping[str, Any]) -> str:
    kind = kinds.of(Object(dict(obj)))
    assert kind is not None, obj
    version = obj["apiVersion"]
    place = f"namespaces/{obj['metadata']['namespace']}/" if kind.namespaced else ""
    return f"/{'apis' if '/' in version else 'api'}/{version}/{place}{kind.plural}"


def _path(obj: Mapping[str, Any]) -> str:
    return f"{_collection(obj)}/{obj['metadata']['name']}"


def _unquoted(warning: str) -> str:
    """Return the text of a header: ``299 - "text"``."""
    (text,) = re.findall(r'^299 \S+ "(.*)"$', warning)
    plain = re.sub(r"\\(.)", r"\1", text)
    return f"Warning: {plain}"
