"""The CustomResourceDefinitions of the product's world in a real API server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from tests import definitions
from tests.apiserver.control_plane import ControlPlane
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import Kind

SERVED_SECONDS = 60.0


def custom(wanted: Iterable[Kind]) -> list[Kind]:
    """Return the kinds that are not built in."""
    return [kind for kind in wanted if kind.group not in kinds.BUILT_IN_GROUPS]


def definitions_of(wanted: Iterable[Kind] | None = None) -> list[dict[str, Any]]:
    """Return the definitions of these kinds, of all by default."""
    return [definitions.of(kind) for kind in custom(kinds.ALL if wanted is None else wanted)]


def install_crds(plane: ControlPlane, wanted: Iterable[Kind] | None = None) -> None:
    """Install the definitions of these kinds, of all by default; return when kubectl can use them.

    Raises CalledProcessError if the server refuses one, TimeoutError if one is not served within a
    minute.
    """
    found = definitions_of(wanted)
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": found})
    plane.kubectl("apply", "--server-side", "-f", "-", input=items, check=True)
    wait_until_discovered(plane, {definition["metadata"]["name"] for definition in found})


def wait_until_discovered(plane: ControlPlane, names: set[str]) -> None:
    """Discovery, from which kubectl learns the kinds,
    lists a definition only once it is Established.
    """
    deadline = time.monotonic() + SERVED_SECONDS
    while missing := names - set(plane.kubectl("api-resources", "--output=name").stdout.split()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not served: {', '.join(sorted(missing))}")
        time.sleep(0.2)
