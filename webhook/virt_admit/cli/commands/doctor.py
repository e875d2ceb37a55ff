"""``virt-admit doctor``: check the installation of the webhook in a cluster."""

from __future__ import annotations

import json
import secrets
import socket
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import click

from virt_admit import __version__
from virt_admit.cli.options import output_option
from virt_admit.install.doctor import diagnose, exit_code
from virt_admit.install.inspect import Json, Unreadable
from virt_admit.install.observations import CheckObservation, Status
from virt_admit.install.probe import DryRunAnswer, Probe
from virt_admit.kube.client import ApiClient, error_message, malformed_as_error
from virt_admit.model.sanitize import cell
from virt_admit.rules import load_rules
from virt_admit.settings import SettingError
from virt_admit_certs.errors import error_text
from virt_admit_certs.kube_api import ApiError, read_body

COLORS = {Status.OK: "green", Status.NOTE: "cyan", Status.WRONG: "red", Status.UNKNOWN: "yellow"}
CONNECT_TIMEOUT = 5
"""Timeout in seconds of a connection to a webhook with a URL."""


@click.command("doctor", short_help="Check the installation of the webhook in a cluster.")
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Kubeconfig of the cluster. In a pod, default: its cluster.",
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--probe",
    is_flag=True,
    help="Also send one dry-run create of a VirtualMachine, and expect the webhook's answer.",
)
@click.option(
    "--probe-namespace",
    metavar="NAME",
    help="Namespace of the probe; implies --probe.  [default: default]",
)
@output_option
def command(
    kubeconfig: str | None,
    context: str | None,
    probe: bool,
    probe_namespace: str | None,
    output: str,
) -> int:
    """Check whether API servers reach and trust the webhook and call it for the right objects.
    Changes nothing.

    With --probe exit 1 unless the webhook answers: require it before failurePolicy Fail. Exit 0 no
    problem, 1 a problem was found, 2 no problem was found, but a check could not be completed.
    """
    try:
        api = InspectedApi(ApiClient.connect(kubeconfig, context))
    except SettingError as error:
        raise click.ClickException(str(error)) from None
    wanted = probe or probe_namespace is not None
    where = probe_namespace or "default"
    sent = Probe(where, secrets.token_hex(8), api.create_dry_run) if wanted else None
    found = diagnose(api, load_rules(), datetime.now(UTC), connect, sent)
    code = exit_code(found)
    click.echo(as_json(found, code) if output == "json" else as_text(found))
    return code


class InspectedApi:
    """The API server with the requests and errors that the checks expect."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def get(self, path: str, **query: str) -> Json | None:
        try:
            body = self._api.body(path, query)
            with malformed_as_error():
                return _object(json.loads(body))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise Unreadable(str(error)) from None

    def text(self, path: str) -> str:
        try:
            return self._api.body(path, {}).decode(errors="replace")
        except ApiError as error:
            raise Unreadable(str(error)) from None

    def post(self, path: str, body: dict[str, Any]) -> Json:
        try:
            found = self._api.post(path, body)
            with malformed_as_error():
                return _object(found)
        except ApiError as error:
            raise Unreadable(str(error)) from None

    def create_dry_run(self, path: str, body: Json) -> DryRunAnswer:
        """Send an object that the API server admits or rejects, and never stores."""
        try:
            response = self._api.request("POST", f"{path}?dryRun=All", json=body)
            text = read_body(response)
        except ApiError as error:
            return DryRunAnswer(0, str(error))
        admitted = response.status in (HTTPStatus.OK, HTTPStatus.CREATED)
        message = "" if admitted else error_message(text) or f"HTTP status {response.status}"
        return DryRunAnswer(response.status, message, tuple(response.headers.getlist("Warning")))


def _object(found: Any) -> Json:
    if not isinstance(found, dict):
        raise TypeError("not a JSON object")
    return found


def connect(url: str, bundle: str) -> str:
    """Connect with TLS, verified with the bundle as by an API server.

    Return the error, empty if it succeeds.
    """
    parts = urlsplit(url)
    try:
        tls_context = ssl.create_default_context(cadata=bundle or None)
        with (
            socket.create_connection(
                (parts.hostname or "", parts.port or 443), CONNECT_TIMEOUT
            ) as connection,
            tls_context.wrap_socket(connection, server_hostname=parts.hostname),
        ):
            return ""
    except (OSError, ValueError) as error:
        return f"{parts.netloc}: {error_text(error)}"


def as_text(observations: Sequence[CheckObservation]) -> str:
    """Return the observations as text."""
    width = max(len(observation.topic) for observation in observations)
    lines = []
    for observation in observations:
        status = observation.status
        word = click.style(f"{status:7}", fg=COLORS[status], bold=status is Status.WRONG)
        lines.append(f"{word}  {observation.topic:{width}}  {cell(observation.text)}")
        if observation.remedy:
            lines.append(f"{'':{width + 11}}{cell(observation.remedy)}")
    return "\n".join(lines)


def as_json(observations: Sequence[CheckObservation], code: int) -> str:
    """Return the observations as JSON. ``sound`` is null if a check could not be completed."""
    data = {
        "version": 1,
        "tool": {"name": "virt-admit", "version": __version__},
        "sound": {0: True, 1: False}.get(code),
        "observations": [
            {
                "topic": found.topic,
                "health": str(found.status),
                "text": found.text,
                "remedy": found.remedy or None,
            }
            for found in observations
        ],
    }
    return json.dumps(data, indent=2)
