"""Certificates in a Secret: our own, or one that an external issuer writes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from virt_admit_certs.kube_api import FIELD_MANAGER, ApiResponse, JsonRequests
from virt_admit_certs.state import KEYS
from virt_admit_certs.stores.protocol import Loaded

DOMAIN: Final = "virt-admit.io"

NOTES: Final = (
    "phase",
    "generation",
    "announced-at",
    "promoted-at",
    "rotated-by",
    "rotate",
    "rotate-done",
)
"""The annotations that are read and written, without their domain."""

LABELS: Final = {
    "app.kubernetes.io/name": "virt-admit",
    "app.kubernetes.io/instance": "virt-admit",
    "app.kubernetes.io/component": "webhook",
    "app.kubernetes.io/part-of": "virt-admit",
    "app.kubernetes.io/managed-by": "virt-admit",
}


class SecretStore:
    """A Secret, shared by all replicas. Its version (``uid/resourceVersion``) is the only lock."""

    external: ClassVar[bool] = False

    def __init__(self, api: JsonRequests, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        # the type of an existing Secret is immutable: load keeps it
        self._type = "kubernetes.io/tls"

    def load(self) -> Loaded:
        """Read the Secret. Empty if it does not exist. Raise ApiError if it cannot be read."""
        response = self._api.request_json("GET", self._path)
        if response.status == 404:
            return Loaded(date=response.date)
        if response.status != 200:
            raise response.error(f"cannot read Secret {self._namespace}/{self._name}")
        self._type = response.body.get("type", self._type)
        metadata = response.body["metadata"]
        annotations = metadata.get("annotations") or {}
        return Loaded(
            _decoded(response.body.get("data")),
            {
                note: annotations[f"{DOMAIN}/{note}"]
                for note in NOTES
                if f"{DOMAIN}/{note}" in annotations
            },
            _version_of(metadata),
            response.date,
        )

    def save(
        self, data: Mapping[str, bytes], notes: Mapping[str, str], version: str | None
    ) -> bool:
        """Replace the content if ``version`` is still current; return whether it was replaced."""
        version = version or self._create()
        if version is None:
            return False
        uid, _, resource_version = version.partition("/")
        metadata = {
            "uid": uid,  # without it, an apply would create a Secret that was deleted meanwhile
            "resourceVersion": resource_version,
            "labels": LABELS,
            "annotations": {
                f"{DOMAIN}/{note}": value for note, value in notes.items() if note in NOTES
            },
        }
        content = {"tls.crt": b"", "tls.key": b"", **data}  # required by the type kubernetes.io/tls
        encoded = {key: base64.b64encode(value).decode() for key, value in content.items()}
        return self._apply(
            metadata, encoded, {"fieldManager": FIELD_MANAGER, "force": "true"}
        ).status in (200, 201)

    def stale(self, version: str | None) -> bool:  # noqa: ARG002
        """Return False: only a request can tell, and the reconcile loop makes it."""
        return False

    def _create(self) -> str | None:
        """Create an empty Secret and return its version;
        None if another replica has filled it already.

        Server-side apply does not need the right to create any Secret: the name is in the URL, so
        RBAC can restrict it. Without ``force`` it takes no field from a Secret that has content.
        """
        self._type = "kubernetes.io/tls"
        empty = {"tls.crt": "", "tls.key": ""}
        response = self._apply({"labels": LABELS}, empty, {"fieldManager": f"{FIELD_MANAGER}-init"})
        return _version_of(response.body["metadata"]) if response.status in (200, 201) else None

    def _apply(
        self, metadata: Mapping[str, Any], data: Mapping[str, str], query: Mapping[str, str]
    ) -> ApiResponse:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._name, "namespace": self._namespace, **metadata},
            "type": self._type,
            "data": data,
        }
        response = self._api.request_json(
            "PATCH", self._path, body, media_type="application/apply-patch+yaml", query=query
        )
        if response.status not in (200, 201, 409):  # 409: changed or deleted since it was read
            raise response.error(f"cannot write Secret {self._namespace}/{self._name}")
        return response


class ExternalSecret:
    """A Secret that an external issuer writes.

    A change arrives within one check interval; in a mounted Secret it takes the kubelet a minute.
    """

    external: ClassVar[bool] = True

    def __init__(self, api: JsonRequests, namespace: str, name: str) -> None:
        self._store = SecretStore(api, namespace, name)

    def load(self) -> Loaded:
        """Read the Secret, without annotations. Raise ApiError if it cannot be read."""
        loaded = self._store.load()
        return Loaded(loaded.data, {}, loaded.version, loaded.date)

    def save(
        self, data: Mapping[str, bytes], notes: Mapping[str, str], version: str | None
    ) -> bool:
        """Raise NotImplementedError."""
        raise NotImplementedError("external certificates are never written")

    def stale(self, version: str | None) -> bool:  # noqa: ARG002
        """Return False: only a request can tell, and the reconcile loop makes it."""
        return False


def _version_of(metadata: Mapping[str, Any]) -> str:
    return f"{metadata['uid']}/{metadata['resourceVersion']}"


def _decoded(data: Mapping[str, str] | None) -> dict[str, bytes]:
    return {
        key: base64.b64decode(value) for key, value in (data or {}).items() if key in KEYS and value
    }
