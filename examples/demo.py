"""``make demo``: the webhook over HTTPS on loopback, then the forecasts on an example of a cluster.

It needs no cluster.

Uses nothing but the standard library and the command ``virt-admit``: each example goes to
``/mutate`` and, with the patch applied, to ``/validate``, as an API server would send it. The lines
fit a terminal of 80 columns.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from pathlib import Path
from typing import Any

from virt_admit.cli.main import VERBS
from virt_admit.documents import reader
from virt_admit.model.kubernetes import json_patch, kinds
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.objects import Path as FieldPath

HERE = Path(__file__).parent
CLUSTER = HERE / "clusters" / "stuck.json"
PAGE = HERE.parent / ".demo" / "drain.html"
START = 20.0
"""Seconds that the webhook gets to start."""


def main() -> int:
    virt_admit = Path(sys.executable).with_name("virt-admit")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command: list[str | Path] = [virt_admit, "serve", "--bind", f"127.0.0.1:{port}",
                                     "--ops-bind", "off", "--certs", folder,
                   "--cluster", HERE / "cluster.yaml", "--stop-delay", "0", "--log-level",
                   "warning"]  # fmt: skip
        server = subprocess.Popen(command)  # noqa: S603 - our own command
        try:
            show(wait(port, Path(folder) / "ca.crt", server))
        finally:
            server.terminate()
            server.wait(timeout=30)
    forecast(virt_admit)
    return 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(port: int, ca: Path, server: subprocess.Popen[bytes]) -> http.client.HTTPSConnection:
    """A verified connection, as soon as the webhook has its certificate and listens."""
    deadline = time.monotonic() + START
    while time.monotonic() < deadline and server.poll() is None:
        try:
            context = ssl.create_default_context(cafile=ca)
            connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=10)
            connection.connect()
        except OSError:
            time.sleep(0.05)
        else:
            return connection
    raise SystemExit("the webhook did not start")


def show(connection: http.client.HTTPSConnection) -> None:
    """Send every example and print the decisions."""
    rows = []
    for file in sorted(HERE.glob("[0-9]*.yaml")):
        found, errors = reader.read(file.read_bytes(), file.name)
        if errors:
            raise SystemExit(str(errors[0]))
        rows += [
            row
            for each in found
            for row in rows_of(file.stem, Object(each.data), *ask(connection, Object(each.data)))
        ]
    print(
        fitted("The webhook answers over HTTPS, with a certificate of its own that was verified.")
        + "\n"
    )
    print_rows(rows)


def ask(
    connection: http.client.HTTPSConnection, obj: Object
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What an API server would do: mutate, then validate the result. The patch, and the answer."""
    mutated = post(connection, "/mutate", obj)
    steps: list[dict[str, Any]] = (
        json.loads(base64.b64decode(mutated["patch"])) if "patch" in mutated else []
    )
    fixed = json_patch.apply(
        obj, [Patch(step["op"], pointer(step["path"]), step.get("value")) for step in steps]
    )
    return steps, post(connection, "/validate", fixed)


def pointer(text: str) -> FieldPath:
    return FieldPath(*text.replace("~1", "/").replace("~0", "~").split("/")[1:])


def post(connection: http.client.HTTPSConnection, path: str, obj: Object) -> dict[str, Any]:
    kind = kinds.of(obj)
    if kind is None:
        raise SystemExit(f"{obj} is of a kind that no rule is about")
    request = {
        "uid": str(uuid.uuid4()),
        "kind": {"group": obj.group, "version": obj.version, "kind": obj.kind},
        "resource": {"group": kind.group, "version": obj.version, "resource": kind.plural},
        "operation": "CREATE",
        "name": obj.name,
        "namespace": obj.namespace,
        "userInfo": {"username": "demo"},
        "object": obj.data,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    connection.request("POST", path, json.dumps(review), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    response: dict[str, Any] = answer["response"]
    if response["uid"] != request["uid"]:
        raise SystemExit("the answer is to another question")
    return response


Row = tuple[str, str, str, str, str]


def rows_of(
    file: str, obj: Object, steps: list[dict[str, Any]], answer: dict[str, Any]
) -> list[Row]:
    """The rows of one object: one for each thing to change."""
    decision = (
        "denied" if not answer["allowed"] else "warned" if answer.get("warnings") else "allowed"
    )
    causes = answer.get("status", {}).get("details", {}).get("causes", [])
    texts = [f"{cause['field']}: {cause['message']}" for cause in causes] + answer.get(
        "warnings", []
    )
    places = [step["path"].rpartition("/") for step in steps]
    changes = [
        f"{name} = {step['value']} in {parent}"
        for (parent, _, name), step in zip(places, steps, strict=True)
    ]
    rows = []
    for text, change in itertools.zip_longest(texts or [""], changes, fillvalue=""):
        message, _, rule = text.partition(" [virt-admit/")
        rows.append(("", "", rule.rstrip("]"), message, change))
    rows[0] = (f"{obj.kind} {obj.full_name} ({file})", decision, *rows[0][2:])
    return rows


def print_rows(rows: list[Row]) -> None:
    """Print a block for each object: the decision, then what to change."""
    for name, decision, rule, text, change in rows:
        if name:
            print(painted(f"{decision:8}", DECISIONS.get(decision, "")) + fitted(name, " " * 8)[8:])
        for line in (f"{text} [{rule}]" if text else "", f"patch: {change}" if change else ""):
            if line:
                print(fitted(line, " " * 8))


DECISIONS = {"denied": "31", "warned": "33", "allowed": "32"}
"""The color of each decision (ECMA-48)."""


def painted(text: str, color: str) -> str:
    """Return the text in a color, on a terminal that wants colors."""
    wants = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return f"\033[{color}m{text}\033[0m" if wants and color else text


def fitted(line: str, indent: str = "") -> str:
    """Return a line wrapped to the terminal, at most 100 columns;
    what continues it is indented further.
    """
    width = min(shutil.get_terminal_size((80, 24)).columns, 100)
    own = indent + line[: len(line) - len(line.lstrip())]
    words = textwrap.wrap(
        line.strip(),
        width,
        initial_indent=own,
        subsequent_indent=own + "  ",
        break_on_hyphens=False,
        break_long_words=False,  # a command stays one that can be copied
    )
    return "\n".join(words) or own


FORECASTS = {
    "drain": ("Which of my nodes can I drain?", ("drain", "--all", "--summary")),
    "upgrade": ("How long will the upgrade take, and what stops it?", ("upgrade",)),
    "outage": ("Do I survive the failure of a node?", ("outage", "--worst", "1", "--summary")),
    "plan": ("What do I do about it, in which order?", ("plan",)),
}
"""The questions about a cluster, by verb, and the commands that answer them."""


def forecast(virt_admit: Path) -> None:
    """Ask each question about the example of a cluster in which no node can be drained,
    and write a page.
    """
    cluster = os.path.relpath(CLUSTER)
    print(
        "\n" + fitted(f"The same rules and forecasts on a cluster: {cluster}, 7 nodes with 40 VMs.")
    )
    for verb, (question, arguments) in FORECASTS.items():
        if verb not in VERBS:
            continue
        print(f"\n{painted(question, '1')}\n$ virt-admit {' '.join(arguments)} --cluster {cluster}")
        command = [virt_admit, *arguments, "--cluster", CLUSTER]
        # our own command
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode not in (0, 1, 2) or not done.stdout:
            raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
        for line in done.stdout.rstrip().splitlines():
            print(fitted(line))
    PAGE.parent.mkdir(exist_ok=True)
    subprocess.run(  # noqa: S603 - our own command
        [virt_admit, "drain", "--all", "--cluster", CLUSTER, "-o", f"html={PAGE}"],
        capture_output=True,
        check=False,
    )
    print(f"\nThe same as a page to hand on: {os.path.relpath(PAGE)}")
    print("On your own cluster, read-only: virt-admit drain --all")


if __name__ == "__main__":
    sys.exit(main())
