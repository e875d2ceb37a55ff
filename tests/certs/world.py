"""A world for certificates: time that is told to pass, an API server with real conflict semantics,
replicas.
"""

from __future__ import annotations

import base64
import copy
import functools
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from virt_admit_certs.certificates import Certificate, certs_pem, issued_by
from virt_admit_certs.kube_api import ApiError, ApiResponse
from virt_admit_certs.rotate import Rotator
from virt_admit_certs.schedule import RotationSettings, parse_settings
from virt_admit_certs.server_clock import ServerClock
from virt_admit_certs.state import CertificateState, parse, parse_bundle, parse_certs
from virt_admit_certs.stores.secret import SecretStore
from virt_admit_certs.webhook_configurations import WebhookConfigurations

START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("virt-admit-webhook.virt-admit.svc", "virt-admit-webhook.virt-admit.svc.cluster.local")
DAILY = parse_settings({}, names=NAMES)
KINDS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


class Time:
    """The true time, which passes when told to."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return (self.now - START).total_seconds()


class FakeApi:
    """One Secret and two webhook configurations behind the semantics that the design relies on.

    Server-side apply with field ownership per data key and annotation, ``resourceVersion`` as a
    precondition, an immutable type, JSON Patch with tests. ``down`` and ``forbidden`` (verbs) make
    it fail; ``before`` is called ahead of each request, to let another client be quicker.
    """

    def __init__(self, time: Time) -> None:
        self.time = time
        self.secret: dict[str, Any] | None = None
        self.owners: dict[tuple[str, str], set[str]] = {}
        self.configurations: dict[str, dict[str, Any]] = {}
        self.down = False
        self.forbidden: set[str] = set()
        self.before: Callable[[str], None] = lambda _verb: None
        self.requests: Counter[str] = Counter()
        self._version = 100

    # What another client does

    def register(self, *kinds: str, entries: int = 2) -> None:
        for kind in kinds or KINDS:
            webhooks = [
                {"name": f"{n}.virt-admit.io", "clientConfig": {"service": {}}, "x": n}
                for n in range(entries)
            ]
            self.configurations[kind] = {
                "metadata": {"name": "virt-admit", "resourceVersion": self._next()},
                "webhooks": webhooks,
            }

    def overwrite_bundles(self, bundle: bytes | None) -> None:
        for body in self.configurations.values():
            body["metadata"]["resourceVersion"] = self._next()
            for webhook in body["webhooks"]:
                webhook["clientConfig"].pop("caBundle", None)
                if bundle is not None:
                    webhook["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()

    def delete_secret(self) -> None:
        self.secret = None
        self.owners = {}

    def edit(
        self, data: Mapping[str, bytes | None] = {}, notes: Mapping[str, str | None] = {}
    ) -> None:
        """As ``kubectl edit`` would; None removes."""
        assert self.secret is not None
        self.secret["metadata"]["resourceVersion"] = self._next()
        for key, value in data.items():
            self.secret["data"].pop(key, None)
            if value is not None:
                self.secret["data"][key] = base64.b64encode(value).decode()
        annotations = self.secret["metadata"].setdefault("annotations", {})
        for note, text in notes.items():
            annotations.pop(f"virt-admit.io/{note}", None)
            if text is not None:
                annotations[f"virt-admit.io/{note}"] = text

    # What can be seen

    @property
    def state(self) -> CertificateState:
        if self.secret is None:
            return CertificateState()
        notes = {
            key.removeprefix("virt-admit.io/"): value
            for key, value in self.secret["metadata"].get("annotations", {}).items()
        }
        return parse(
            {key: base64.b64decode(value) for key, value in self.secret["data"].items()}, notes
        )

    @property
    def published(self) -> list[bytes]:
        """The bundle of each entry."""
        return [
            base64.b64decode(webhook["clientConfig"].get("caBundle", ""))
            for body in self.configurations.values()
            for webhook in body["webhooks"]
        ]

    def trusts(self, chain: tuple[Certificate, ...]) -> bool:
        """Whether a call to a server that shows this chain succeeds, through each entry."""
        return all(trusts(bundle, chain, self.time.now) for bundle in set(self.published))

    # The API

    def request_json(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media_type: str = "",
        query: Mapping[str, str] = {},
    ) -> ApiResponse:
        """Route a request by its path, as a real API server does."""
        *_, namespace, resource, name = path.split("/")
        if resource == "secrets":
            if method == "GET":
                return self.get_secret(namespace, name)
            assert media_type == "application/apply-patch+yaml"
            force = query.get("force") == "true"
            return self.apply_secret(
                namespace, name, body, manager=query["fieldManager"], force=force
            )
        kind = next(kind for kind in KINDS if f"{kind.lower()}s" == resource)
        if method == "GET":
            return self.get_configuration(kind, name)
        assert media_type == "application/json-patch+json"
        return self.patch_configuration(kind, name, body, manager=query["fieldManager"])

    def get_secret(self, namespace: str, name: str) -> ApiResponse:
        if refused := self._arrive("get secret"):
            return refused
        return self._found(self.secret)

    def apply_secret(
        self, namespace: str, name: str, body: Mapping[str, Any], *, manager: str, force: bool
    ) -> ApiResponse:
        if refused := self._arrive("patch secret"):
            return refused
        wanted_version, wanted_uid = (
            body["metadata"].get(key) for key in ("resourceVersion", "uid")
        )
        wanted = {("data", key): value for key, value in body["data"].items()}
        wanted |= {
            ("note", key): value for key, value in body["metadata"].get("annotations", {}).items()
        }
        if self.secret is None:
            # a resourceVersion alone would not keep it from being created
            if wanted_uid is not None:
                return self._answer(409)
            self.owners = {}
            self.secret = {
                "metadata": {"name": name, "namespace": namespace, "uid": f"u{self._next()}"},
                "type": body["type"],
                "data": {},
            }
        elif wanted_uid not in (None, self.secret["metadata"]["uid"]) or wanted_version not in (
            None,
            self.secret["metadata"]["resourceVersion"],
        ):
            return self._answer(409)
        if self.secret["type"] != body["type"]:
            return self._answer(422)
        current = self._fields()
        changed = {field for field, value in wanted.items() if current.get(field) != value}
        if not force and any(
            field in current and self.owners.get(field, set()) - {manager} for field in changed
        ):
            return self._answer(409)
        for field, value in wanted.items():
            owners = self.owners.setdefault(field, set())
            if field in changed:
                owners.clear()
            owners.add(manager)
            self._set(field, value)
        for field in [
            field
            for field, owners in self.owners.items()
            if manager in owners and field not in wanted
        ]:
            self.owners[field].discard(manager)
            if not self.owners[field]:
                del self.owners[field]
                self._set(field, None)
        if self._fields() != current or "resourceVersion" not in self.secret["metadata"]:
            self.secret["metadata"]["resourceVersion"] = self._next()
        return self._found(self.secret)

    def get_configuration(self, kind: str, name: str) -> ApiResponse:
        if refused := self._arrive("get configuration"):
            return refused
        return self._found(self.configurations.get(kind))

    def patch_configuration(
        self, kind: str, name: str, operations: list[dict[str, Any]], *, manager: str
    ) -> ApiResponse:
        if refused := self._arrive("patch configuration"):
            return refused
        if kind not in self.configurations:
            return self._answer(404)
        assert manager == "virt-admit-certs"
        body = copy.deepcopy(self.configurations[kind])
        for operation in operations:
            *parents, last = operation["path"].split("/")[1:]
            target: Any = body
            try:
                for step in parents:
                    target = target[int(step)] if isinstance(target, list) else target[step]
                if operation["op"] == "test" and target[last] != operation["value"]:
                    return self._answer(422)
            except (KeyError, IndexError):
                return self._answer(422)
            if operation["op"] == "add":
                target[last] = operation["value"]
        body["metadata"]["resourceVersion"] = self._next()
        self.configurations[kind] = body
        return self._found(body)

    def _arrive(self, verb: str) -> ApiResponse | None:
        self.before(verb)
        self.requests[verb] += 1
        if self.down:
            raise ApiError(0, "the API server does not answer")
        return self._answer(403) if verb in self.forbidden else None

    def _answer(self, status: int) -> ApiResponse:
        return ApiResponse(status, {}, self.time.now.replace(microsecond=0))

    def _found(self, body: Mapping[str, Any] | None) -> ApiResponse:
        if body is None:
            return self._answer(404)
        # read at once: no copy needed
        return ApiResponse(200, body, self.time.now.replace(microsecond=0))

    def _next(self) -> str:
        self._version += 1
        return str(self._version)

    def _fields(self) -> dict[tuple[str, str], str]:
        assert self.secret is not None
        fields = {("data", key): value for key, value in self.secret["data"].items()}
        annotations = self.secret["metadata"].get("annotations", {})
        return fields | {("note", key): value for key, value in annotations.items()}

    def _set(self, field: tuple[str, str], value: str | None) -> None:
        assert self.secret is not None
        where, key = field
        target = (
            self.secret["data"]
            if where == "data"
            else self.secret["metadata"].setdefault("annotations", {})
        )
        target.pop(key, None)
        if value is not None:
            target[key] = value


class _Line:
    """The network between one replica and the API server."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def __getattr__(self, request: str) -> Any:
        if self._replica.cut:
            raise ApiError(0, "the API server does not answer")
        return getattr(self._replica.api, request)


class Replica:
    """A process with its own clock that serves from the Secret; ``cut`` off,
    it reaches no replica.
    """

    def __init__(
        self,
        api: FakeApi,
        settings: RotationSettings = DAILY,
        *,
        get_settings: Callable[[], RotationSettings] | None = None,
        error: timedelta = timedelta(),
        name: str = "a",
    ) -> None:
        self.api = api
        self.cut = False
        self.error = error
        self.events: Counter[tuple[str, str]] = Counter()
        self.chain: tuple[Certificate, ...] = ()
        self.rotator = Rotator(
            SecretStore(_Line(self), "virt-admit", "virt-admit-certs"),
            settings,
            set_certificate=self._show,
            get_settings=get_settings,
            configurations=WebhookConfigurations(_Line(self)),
            on_event=lambda what, label: self.events.update([(what, label)]),
            clock=ServerClock(lambda: api.time.now + self.error, api.time.monotonic),
            identity=name,
        )

    def _show(self, cert: bytes, key: bytes) -> None:
        self.chain = tuple(parse_certs(cert, [], "tls.crt"))
        assert parse({"tls.crt": cert, "tls.key": key}).serving is not None

    def settle(self) -> None:
        """Rounds until nothing is due, without sleeping."""
        for _ in range(20):
            if not self.rotator.reconcile_once():
                return
        raise AssertionError("the loop does not come to rest")

    def steps(self, name: str) -> int:
        return self.events["step", name]


def trusts(bundle: bytes, chain: tuple[Certificate, ...], now: datetime) -> bool:
    """Whether a verifier with this bundle accepts this chain now, to the second."""
    if not chain:
        return False
    leaf, *between = (
        cert for cert in chain if cert.not_valid_before_utc <= now < cert.not_valid_after_utc
    )
    if leaf != chain[0]:
        return False
    roots = [
        cert
        for cert in _authorities(bundle)
        if cert.not_valid_before_utc <= now < cert.not_valid_after_utc
    ]
    paths = [leaf, *(cross for cross in between if issued_by(leaf, cross))]
    return any(issued_by(cert, root) for cert in paths for root in roots)


_authorities = functools.lru_cache(maxsize=256)(lambda bundle: parse_bundle(bundle, []))


def pem(*certs: Certificate) -> bytes:
    return certs_pem(certs)
