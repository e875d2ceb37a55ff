"""Read the webhook configurations, and patch their ``caBundle``."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from virt_admit_certs.kube_api import FIELD_MANAGER, JsonRequests

KINDS: Final = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")


@dataclass(frozen=True, slots=True)
class WebhookEntry:
    """One webhook of a configuration."""

    name: str
    bundle: bytes
    """Its ``caBundle``: the CA certificates with which API servers verify the webhook."""
    server_name: str = ""
    """The name that API servers verify."""


@dataclass(frozen=True, slots=True)
class WebhookConfiguration:
    """A webhook configuration that exists."""

    kind: str
    version: str
    entries: tuple[WebhookEntry, ...]

    def carries(self, bundle: bytes) -> bool:
        """Return whether every entry has exactly this bundle."""
        return all(entry.bundle == bundle for entry in self.entries)


class WebhookConfigurations:
    """The webhook configurations of one name: at most one of each kind."""

    def __init__(self, api: JsonRequests, name: str = "virt-admit") -> None:
        self._api = api
        self._name = name

    def read(self) -> tuple[WebhookConfiguration, ...]:
        """Return the configurations that exist. Raise ApiError if they cannot be read."""
        found = []
        for kind in KINDS:
            response = self._api.request_json("GET", self._path(kind))
            if response.status == 200:
                found.append(_configuration(kind, response.body))
            elif response.status != 404:
                raise response.error(f"cannot read {kind} {self._name}")
        return tuple(found)

    def inject(self, configuration: WebhookConfiguration, bundle: bytes) -> WebhookConfiguration:
        """Give every entry the bundle; return the result,
        or the argument if the configuration changed meanwhile.

        A JSON Patch, not an apply: an applier would co-own the list entries, and an entry that a
        later release removes or renames would remain with nothing but its name.
        """
        response = self._api.request_json(
            "PATCH",
            self._path(configuration.kind),
            patch(configuration, bundle),
            media_type="application/json-patch+json",
            query={"fieldManager": FIELD_MANAGER},
        )
        if response.status == 200:
            return _configuration(configuration.kind, response.body)
        if response.status in (404, 409, 422):  # deleted, changed, or a test of the patch failed
            return configuration
        raise response.error(f"cannot patch {configuration.kind} {self._name}")

    def _path(self, kind: str) -> str:
        return f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s/{self._name}"


def patch(configuration: WebhookConfiguration, bundle: bytes) -> list[dict[str, Any]]:
    """Return the JSON Patch that gives ``bundle`` to each entry without it,
    and fails if anything changed meanwhile.
    """
    value = base64.b64encode(bundle).decode()
    operations = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": configuration.version}
    ]
    for index, entry in enumerate(configuration.entries):
        if entry.bundle != bundle:
            operations += [
                {"op": "test", "path": f"/webhooks/{index}/name", "value": entry.name},
                {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": value},
            ]
    return operations


def _configuration(kind: str, body: Mapping[str, Any]) -> WebhookConfiguration:
    entries = []
    for entry in body.get("webhooks") or []:
        client = entry.get("clientConfig", {})
        bundle = base64.b64decode(client.get("caBundle") or "")
        entries.append(WebhookEntry(entry["name"], bundle, _server_name(client)))
    return WebhookConfiguration(kind, body["metadata"]["resourceVersion"], tuple(entries))


def _server_name(client: Mapping[str, Any]) -> str:
    if service := client.get("service"):
        return f"{service['name']}.{service['namespace']}.svc"
    return urlsplit(client.get("url") or "").hostname or ""
