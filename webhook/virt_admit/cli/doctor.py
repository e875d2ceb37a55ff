"""``virt-admit doctor``: is the registration sound?"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import click

from virt_admit import __version__
from virt_admit.install.doctor import Observation, Status, diagnose, exit_code
from virt_admit.install.inspect import Json, Unreadable
from virt_admit.kube.client import Api
from virt_admit.rules import load_rules
from virt_admit.settings import SettingError
from virt_admit_certs.kube_api import ApiError

COLORS = {Status.OK: "green", Status.NOTE: "cyan", Status.WRONG: "red", Status.UNKNOWN: "yellow"}
PATIENCE = 5
"""Seconds for a connection to a webhook that is called by URL."""


@click.command("doctor", short_help="Is the registration sound?")
@click.option("--kubeconfig", metavar="FILE")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(kubeconfig: str | None, context: str | None, output: str) -> int:
    """Look for what keeps API servers from reaching, trusting or rightly asking the webhook. Changes nothing.

    Exit 0: sound, 1: something is wrong, 2: nothing is known to be wrong, but something could not be told.
    """
    try:
        api = Asked(Api.connect(kubeconfig, context))
    except SettingError as error:
        raise click.ClickException(str(error)) from None
    found = diagnose(api, load_rules(), datetime.now(UTC), connect)
    code = exit_code(found)
    click.echo(as_json(found, code) if output == "json" else as_text(found))
    return code


class Asked:
    """The API server, as the diagnosis asks it."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def get(self, path: str, **query: str) -> Json | None:
        try:
            found: Json = json.loads(self._api.body(path, query))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise Unreadable(str(error)) from None
        return found

    def text(self, path: str) -> str:
        try:
            return self._api.body(path, {}).decode(errors="replace")
        except ApiError as error:
            raise Unreadable(str(error)) from None

    def post(self, path: str, body: dict[str, Any]) -> Json:
        try:
            return self._api.post(path, body)
        except ApiError as error:
            raise Unreadable(str(error)) from None


def connect(url: str, bundle: str) -> str:
    """Why a TLS connection to the URL fails, verified with the bundle as an API server would; or nothing."""
    parts = urlsplit(url)
    try:
        trust = ssl.create_default_context(cadata=bundle or None)
        with (
            socket.create_connection((parts.hostname or "", parts.port or 443), PATIENCE) as plain,
            trust.wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return ""
    except (OSError, ValueError) as error:
        return f"{parts.netloc}: {error}"


def as_text(found: Sequence[Observation]) -> str:
    """The observations as lines for people."""
    width = max(len(each.topic) for each in found)
    lines = []
    for each in found:
        health = click.style(f"{each.health:7}", fg=COLORS[each.health], bold=each.health is Status.WRONG)
        lines.append(f"{health}  {each.topic:{width}}  {each.text}")
        if each.remedy:
            lines.append(f"{'':{width + 11}}{each.remedy}")
    return "\n".join(lines)


def as_json(found: Sequence[Observation], code: int) -> str:
    """The observations as JSON; ``sound`` is null if it could not be told."""
    data = {
        "version": 1,
        "tool": {"name": "virt-admit", "version": __version__},
        "sound": {0: True, 1: False}.get(code),
        "observations": [
            {"topic": each.topic, "health": str(each.health), "text": each.text, "remedy": each.remedy or None}
            for each in found
        ],
    }
    return json.dumps(data, indent=2)
