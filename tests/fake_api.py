"""An API server that can list, watch and misbehave; in this process,
over plain HTTP on loopback.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.apiserver.control_plane import free_port
from virt_admit.model.kubernetes.kinds import BUILT_IN_GROUPS, Kind

Json = dict[str, Any]


_ALWAYS = {
    *("/api/v1/events", "/api/v1/services"),
    *("/apis/discovery.k8s.io/v1/endpointslices", "/apis/apps/v1/deployments"),
}
"""The lists that every API server has; most tests have nothing in them."""


class FakeApi:
    """Kinds that are installed, their objects and what happened to them,
    and the faults that a test switches on.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = "v1.36.3"
        self.token = "secret"
        """Requests with another one are answered with 401."""
        self.revision = 100
        self.objects: dict[str, dict[tuple[str, str], Json]] = {}
        """By path of the list."""
        self.kinds: dict[str, Kind] = {}
        self.history: dict[str, list[tuple[int, str, Any]]] = {}
        self.oldest = 0
        """A watch from an earlier revision is answered with 410."""
        self.forbidden: set[str] = set()
        """Paths that are answered with 403."""
        self.broken: dict[str, bytes] = {}
        """Paths that are answered with just these bytes."""
        self.failing: dict[str, int] = {}
        """Paths that are answered with this status."""
        self.slow: dict[str, float] = {}
        """Paths that are answered after this many seconds."""
        self.namespaces: set[str] = set()
        """Those that can be asked for by name."""
        self.silent = False
        """Watches are accepted, but nothing is ever sent."""
        self.hangs_up = False
        """Watches end at once."""
        self.epoch = 0
        """Watches of an earlier epoch break off."""
        self.time: datetime | None = None
        """The time in the header ``Date``. None: the time of this machine."""
        self.requests: list[tuple[str, dict[str, str]]] = []
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- what an administrator does

    def start(self) -> None:
        """Listen, on the same port as before."""
        handler = type("Handler", (_Handler,), {"fake": self})
        # that no other process is given while this one is stopped
        self.port = self.port or free_port()
        self._server = _Server(("127.0.0.1", self.port), handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening and break off every watch."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self.break_off()

    def kubeconfig(self, folder: Path) -> str:
        """A file that leads here."""
        path = folder / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {"name": "fake", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
                    ],
                    "users": [{"name": "fake", "user": {"token": "secret"}}],
                    "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
                    "current-context": "fake",
                }
            )
        )
        return str(path)

    def install(self, kind: Kind, *objects: Json, version: str = "") -> None:
        """Serve a kind, in one version."""
        with self.changed:
            self.kinds[path_of(kind, version)] = kind
            self.objects.setdefault(path_of(kind, version), {})
            self.history.setdefault(path_of(kind, version), [])
        for obj in objects:
            self.put(kind, obj, version=version)

    def uninstall(self, kind: Kind) -> None:
        """Serve a kind no longer: its watches end, and there is no such path."""
        with self.changed:
            del self.objects[path_of(kind)]
        self.break_off()

    def put(self, kind: Kind, obj: Json, version: str = "") -> None:
        """Create or replace an object."""
        metadata = obj["metadata"]
        path, key = path_of(kind, version), (metadata.get("namespace", ""), metadata["name"])
        with self.changed:
            self.revision += 1
            event = "MODIFIED" if key in self.objects[path] else "ADDED"
            stored = {**obj, "metadata": {**metadata, "resourceVersion": str(self.revision)}}
            self.objects[path][key] = stored
            self.history[path].append((self.revision, event, stored))
            self.changed.notify_all()

    def delete(self, kind: Kind, name: str, namespace: str = "") -> None:
        """Delete an object."""
        path = path_of(kind)
        with self.changed:
            self.revision += 1
            gone = self.objects[path].pop((namespace, name))
            gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.revision)}}
            self.history[path].append((self.revision, "DELETED", gone))
            self.changed.notify_all()

    def bookmark(self, kind: Kind) -> None:
        """Tell the watches of a kind how far they are."""
        with self.changed:
            self.revision += 1
            mark = {"kind": kind.kind, "metadata": {"resourceVersion": str(self.revision)}}
            self.history[path_of(kind)].append((self.revision, "BOOKMARK", mark))
            self.changed.notify_all()

    def say(self, kind: Kind, event: str, obj: Any) -> None:
        """Send any event to the watches of a kind, or any bytes,
        without anything having happened.
        """
        with self.changed:
            self.revision += 1
            self.history[path_of(kind)].append((self.revision, event, obj))
            self.changed.notify_all()

    def compact(self) -> None:
        """Forget what happened."""
        with self.changed:
            self.revision += 1
            self.oldest = self.revision

    def break_off(self) -> None:
        """End every watch in the middle."""
        with self.changed:
            self.epoch += 1
            self.changed.notify_all()

    def asked(self, kind: Kind, **query: str) -> int:
        """How many requests for a kind had these parameters."""
        path = path_of(kind)
        return sum(seen == path and query.items() <= given.items() for seen, given in self.requests)

    # --- what it answers

    def groups(self) -> Json:
        """The discovery document, as that of releases before 1.27."""
        versions: dict[str, list[Json]] = {}
        for _, _, group, version, *_ in (
            path.split("/") for path in self.objects if path.startswith("/apis/")
        ):
            if {"version": version} not in versions.setdefault(group, []):
                versions[group].append({"version": version})
        names = dict.fromkeys((*sorted(BUILT_IN_GROUPS - {""}), *versions))
        return {
            "kind": "APIGroupList",
            "groups": [{"name": name, "versions": versions.get(name)} for name in names],
        }

    def resources(self, path: str) -> Json:
        """The kinds of a group in a version."""
        found = [kind for each, kind in self.kinds.items() if each.rpartition("/")[0] == path]
        named = [
            {"name": kind.plural, "kind": kind.kind, "namespaced": kind.namespaced}
            for kind in found
        ]
        below = [{"name": f"{kind.plural}/status", "verbs": ["get"]} for kind in found]
        return {
            "kind": "APIResourceList",
            "resources": [*({**each, "verbs": ["list"]} for each in named), *below],
        }

    def page(self, path: str, limit: int, start: int, selector: str = "") -> Json:
        """One page of a list."""
        with self.changed:
            home, listed = self._listed(path)
            objects = [
                obj
                for (namespace, _), obj in listed.items()
                if home in ("", namespace) and _selected(obj, selector)
            ]
            more = (
                {"continue": str(start + limit)} if limit and start + limit < len(objects) else {}
            )
            metadata = {"resourceVersion": str(self.revision), **more}
            return {
                "metadata": metadata,
                "items": objects[start : start + limit] if limit else objects,
            }

    def named(self, path: str) -> Json | None:
        """The object that has this path."""
        lists, _, name = path.rpartition("/")
        home, listed = self._listed(lists)
        return listed.get((home, name))

    def serves(self, path: str) -> bool:
        return self._base(path)[1] in self.objects.keys() | _ALWAYS

    def _base(self, path: str) -> tuple[str, str]:
        """The namespace that a path is restricted to, and the path without it."""
        before, slash, after = path.partition("/namespaces/")
        home, _, plural = after.partition("/")
        return (home, f"{before}/{plural}") if slash and plural else ("", path)

    def _listed(self, path: str) -> tuple[str, dict[tuple[str, str], Json]]:
        home, base = self._base(path)
        return home, self.objects.get(base, {})

    def events(self, path: str, since: int, seconds: float, epoch: int) -> Iterator[bytes]:
        """The events of a watch that began in this epoch, until it ends."""
        home, base = self._base(path)
        deadline = time.monotonic() + seconds
        while True:
            with self.changed:
                news = [each for each in self.history.get(base, []) if each[0] > since]
                if not news or self.silent:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return
                    self.changed.wait(min(left, 0.05))
                if self.epoch != epoch:
                    raise ConnectionAbortedError
            for revision, event, obj in () if self.silent else news:
                since = revision
                if isinstance(obj, bytes):
                    yield obj
                elif home in ("", obj.get("metadata", {}).get("namespace", home)):
                    yield json.dumps({"type": event, "object": obj}).encode()


def _selected(event: Json, selector: str) -> bool:
    """Whether a field selector selects an event."""
    source = event.get("source", {}).get("component") or event.get("reportingComponent", "")
    fields = {
        f"involvedObject.{key}": value for key, value in event.get("involvedObject", {}).items()
    }
    fields |= {"reason": event.get("reason"), "type": event.get("type"), "source": source}
    for each in filter(None, selector.split(",")):
        key, _, value = each.partition("=")
        if (fields.get(key.removesuffix("!")) == value) == key.endswith("!"):
            return False
    return True


def path_of(kind: Kind, version: str = "") -> str:
    """Where a kind is listed in all namespaces."""
    version = version or kind.versions[0]
    return (
        f"/apis/{kind.group}/{version}/{kind.plural}"
        if kind.group
        else f"/api/{version}/{kind.plural}"
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Clients go away as they like."""


class _Handler(BaseHTTPRequestHandler):
    fake: FakeApi
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one write an answer

    def date_time_string(self, timestamp: float | None = None) -> str:
        time = self.fake.time
        return super().date_time_string(time.timestamp() if time is not None else timestamp)

    def log_message(self, *_: object) -> None:
        """It is not read."""

    def do_GET(self) -> None:
        fake = self.fake
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        fake.requests.append((url.path, query))
        time.sleep(fake.slow.get(url.path, 0.0))
        if self.headers["Authorization"] != f"Bearer {fake.token}":
            self._status(401, "Unauthorized")
        elif url.path in fake.failing:
            self._status(fake.failing[url.path], "slow down")
        elif url.path in fake.broken:
            self._send(200, fake.broken[url.path])
        elif url.path == "/version":
            self._send(200, {"gitVersion": fake.version})
        elif url.path == "/apis":
            self._send(200, fake.groups())
        elif url.path.removeprefix("/api/v1/namespaces/") in fake.namespaces:
            self._send(200, {"kind": "Namespace"})
        elif url.path in fake.forbidden:
            self._status(403, f"{url.path} is forbidden")
        elif url.path.count("/") == 3 and url.path.startswith("/apis/"):
            self._send(200, fake.resources(url.path))
        elif (found := fake.named(url.path)) is not None:
            self._send(200, found)
        elif not fake.serves(url.path):
            self._send(404, b"404 page not found\n")
        elif "watch" in query:
            self._watch(url.path, query)
        else:
            page = int(query.get("limit", 0)), int(query.get("continue") or 0)
            self._send(200, fake.page(url.path, *page, query.get("fieldSelector", "")))

    def _watch(self, path: str, query: dict[str, str]) -> None:
        fake, epoch, since = self.fake, self.fake.epoch, int(query["resourceVersion"])
        if since < fake.oldest:
            self._status(410, "too old resource version")
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        try:
            seconds = 0.0 if fake.hangs_up else float(query["timeoutSeconds"])
            for event in fake.events(path, since, seconds, epoch):
                line = event + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
        except ConnectionAbortedError:
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    def _status(self, code: int, message: str) -> None:
        self._send(code, {"kind": "Status", "code": code, "message": message})

    def _send(self, code: int, body: Json | bytes) -> None:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
