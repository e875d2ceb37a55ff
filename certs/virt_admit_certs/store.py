"""Where certificates are kept: a Secret, a directory, or files and Secrets that somebody else fills.

A store gives its whole content with a version, and takes a whole new content only in exchange for the version that it
replaces: who lost a race reads again. Nothing else of this package talks to the API server, so the ``caBundle`` of
the webhook configurations is read and patched here too.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import errno
import fcntl
import hashlib
import json
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol
from urllib.parse import urlsplit

from virt_admit_certs.issue import KEYS, PRIVATE_KEYS

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a store holds."""

    data: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """PEM by the names of :data:`virt_admit_certs.issue.KEYS`; what is not there has no key."""
    notes: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None
    """Give it back to save; None: nothing is stored yet."""
    date: datetime | None = None
    """The clock of the API server that answered."""


class Store(Protocol):
    """The place of a state."""

    external: ClassVar[bool]
    """Somebody else fills it: never save."""

    def load(self) -> Loaded:
        """Read everything, from one version. Raises OSError or ApiError."""

    def save(self, data: Mapping[str, bytes], notes: Mapping[str, str], version: str | None) -> bool:
        """Replace everything, if ``version`` is still what is stored; False if it is not. Raises as load does."""

    def stale(self, version: str | None) -> bool:
        """Whether something else than ``version`` is stored now, as far as that can be told in microseconds."""


# Files

_DATA: Final = "..data"
_GENERATION: Final = "..gen-"
_NOTES: Final = "notes.json"
_FILES: Final = (*KEYS, _NOTES)


class Directory:
    """A directory in the layout of kubelet's mounts.

    The files are in ``..gen-<random>/``, ``..data`` is a symlink to it, and ``ca.crt`` and the others are symlinks
    into ``..data``. A save writes a new generation and renames one symlink: readers see the old or the new, never a
    mixture, wherever a crash falls. Plain files that somebody put there become the first generation, unless there is a
    certificate without its CA.
    """

    external: ClassVar[bool] = False

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)

    def load(self) -> Loaded:
        data, version = _read(self._path, _FILES)
        notes = _notes(data.pop(_NOTES, b""))
        for name in PRIVATE_KEYS:
            _tighten(self._path / name)
        return Loaded(data, notes, version)

    def save(self, data: Mapping[str, bytes], notes: Mapping[str, str], version: str | None) -> bool:
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(self._path / ".lock") as held:
            if not held or self.stale(version):
                return False
            if version and not version.startswith(_GENERATION):
                self._adopt()
            self._switch(data, notes)
        return True

    def stale(self, version: str | None) -> bool:
        return _version(self._path, _FILES) != version

    def _adopt(self) -> None:
        """Make a generation of plain files, so that replacing them loses nothing."""
        found = _read(self._path, KEYS)[0]
        if "tls.key" in found and "ca.key" not in found:  # or whoever confuses the flags would lose a key
            raise FileExistsError(
                errno.EEXIST, "tls.key without ca.key: what somebody else issues is --certs-external", str(self._path)
            )
        self._switch(found, {})

    def _link_names(self, names: Iterable[str]) -> None:
        for name in names:
            if not (self._path / name).is_symlink():
                _link(f"{_DATA}/{name}", self._path / name)
        _sync(self._path)

    def _switch(self, data: Mapping[str, bytes], notes: Mapping[str, str]) -> None:
        generation = self._path / f"{_GENERATION}{secrets.token_hex(8)}"
        try:
            os.mkdir(generation, 0o700)
            for name, content in {**data, _NOTES: json.dumps(dict(notes), indent=1).encode()}.items():
                _write(generation / name, content, 0o600 if name in PRIVATE_KEYS else 0o644)
            _sync(generation)
            if (self._path / _DATA).is_symlink():  # else what is there by name is all there is
                self._link_names(data)
            _link(generation.name, self._path / _DATA)  # from here on the new generation counts
        except OSError:
            shutil.rmtree(generation, ignore_errors=True)  # or each further try would take room on a full disk
            raise
        self._link_names(data)
        for name in set(KEYS) - set(data):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path / name)
        for old in self._path.glob(f"{_GENERATION}*"):
            if old != generation:
                shutil.rmtree(old, ignore_errors=True)


class ExternalDirectory:
    """Files that somebody else issues: a mount of cert-manager or OpenShift, or an administrator's own."""

    external: ClassVar[bool] = True
    _KEYS: Final = ("tls.crt", "tls.key", "ca.crt")

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._warned = False

    def load(self) -> Loaded:
        data, version = _read(self._path, self._KEYS)
        key = self._path / "tls.key"
        if not self._warned and not key.is_symlink() and _open_to(stat.S_IRWXO, key):  # a mount is this pod's alone
            self._warned = True
            log.warning("key file can be read by everybody", extra={"file": str(key)})
        return Loaded(data, {}, version)

    def save(self, data: Mapping[str, bytes], notes: Mapping[str, str], version: str | None) -> bool:
        raise NotImplementedError("external certificates are never written")

    def stale(self, version: str | None) -> bool:
        return _version(self._path, self._KEYS) != version


def _read(path: Path, names: tuple[str, ...]) -> tuple[dict[str, bytes], str | None]:
    """The files of one generation and its version. Raises OSError (EBUSY) if they change all the time."""
    for _ in range(5):
        version = _version(path, names)
        root = _root(path)
        data = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                data[name] = (root / name).read_bytes()
        if _version(path, names) == version:
            return data, version
    raise OSError(errno.EBUSY, "the files change while they are read", str(path))


def _notes(content: bytes) -> dict[str, str]:
    """Notes are for people: losing them breaks nothing."""
    try:
        notes = json.loads(content)
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in notes.items()} if isinstance(notes, dict) else {}


def _root(path: Path) -> Path:
    """The directory with the files: the generation behind ``..data``, resolved once, or the path itself."""
    try:
        return path / os.readlink(path / _DATA)
    except OSError:
        return path


def _version(path: Path, names: tuple[str, ...]) -> str | None:
    """The generation's name; of plain files a digest of inode, mtime and size; None if there are none."""
    with contextlib.suppress(OSError):
        return os.readlink(path / _DATA)
    found = []
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path / name)
            found.append((name, status.st_ino, status.st_mtime_ns, status.st_size))
    return f"files-{hashlib.sha256(repr(found).encode()).hexdigest()[:16]}" if found else None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether this process is the only one to write; it does not wait."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _write(path: Path, content: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _link(target: str, path: Path) -> None:
    """Make ``path`` a symlink in one operation, whatever was there before."""
    temporary = path.with_name(f"..new-{path.name}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    os.symlink(target, temporary)
    os.rename(temporary, path)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _open_to(whom: int, path: Path) -> bool:
    """Whether these (a mask of permissions) may do something with a file."""
    try:
        return bool(path.stat().st_mode & whom)
    except OSError:
        return False


def _tighten(path: Path) -> None:
    """Take a key file away from everybody else."""
    if _open_to(stat.S_IRWXG | stat.S_IRWXO, path):
        log.warning("key file could be read by others; now it cannot", extra={"file": str(path)})
        with contextlib.suppress(OSError):
            os.chmod(path, 0o600)


# The API server

DOMAIN: Final = "virt-admit.io"
MANAGER: Final = "virt-admit-certs"
"""The field manager under which we write."""

NOTES: Final = ("phase", "generation", "announced-at", "promoted-at", "rotated-by", "rotate", "rotate-done")
"""The annotations that we know, without their domain."""

LABELS: Final = {
    "app.kubernetes.io/name": "virt-admit",
    "app.kubernetes.io/instance": "virt-admit",
    "app.kubernetes.io/component": "webhook",
    "app.kubernetes.io/part-of": "virt-admit",
    "app.kubernetes.io/managed-by": "virt-admit",
}

_TIMEOUT: Final = (3.0, 5.0)  # seconds to connect, and between two reads


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server said."""

    status: int
    body: Mapping[str, Any] = field(default_factory=dict, repr=False)
    date: datetime | None = None


class ApiError(Exception):
    """The API server could not be asked, or refused. Never contains what it said, which could be a Secret."""

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.reason = reason
        """unreachable, unauthorized, forbidden, not_found, conflict, invalid, throttled, server or refused."""


class Api(Protocol):
    """The four requests that certificates need. Raises ApiError only if there is no answer at all."""

    def get_secret(self, namespace: str, name: str) -> Answer: ...

    def apply_secret(
        self, namespace: str, name: str, body: Mapping[str, Any], *, manager: str, force: bool
    ) -> Answer: ...

    def get_configuration(self, kind: str, name: str) -> Answer: ...

    def patch_configuration(
        self, kind: str, name: str, operations: list[dict[str, Any]], *, manager: str
    ) -> Answer: ...


class KubernetesApi:
    """The four requests over the kubernetes client."""

    def __init__(self, client: Any) -> None:
        """``client`` is a ``kubernetes.client.ApiClient``."""
        from kubernetes.client import AdmissionregistrationV1Api, CoreV1Api  # noqa: PLC0415 - 0.3 s, 70 MB

        self._core = CoreV1Api(client)
        self._admission = AdmissionregistrationV1Api(client)

    @classmethod
    def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> KubernetesApi:
        """The API server of this pod, or else of the kubeconfig. Raises ApiError if there is neither."""
        from kubernetes.client import ApiClient  # noqa: PLC0415

        try:
            configuration = cluster(kubeconfig, context)
        except LookupError as error:
            raise ApiError("unreachable", str(error)) from None
        configuration.retries = False  # the loop is the retry
        return cls(ApiClient(configuration))

    def get_secret(self, namespace: str, name: str) -> Answer:
        return _answer(self._core.read_namespaced_secret, name, namespace)

    def apply_secret(self, namespace: str, name: str, body: Mapping[str, Any], *, manager: str, force: bool) -> Answer:
        return _answer(
            self._core.patch_namespaced_secret,
            name,
            namespace,
            body,
            field_manager=manager,
            force=force,
            _content_type="application/apply-patch+yaml",
        )

    def get_configuration(self, kind: str, name: str) -> Answer:
        return _answer(getattr(self._admission, f"read_{_SNAKE[kind]}"), name)

    def patch_configuration(self, kind: str, name: str, operations: list[dict[str, Any]], *, manager: str) -> Answer:
        return _answer(
            getattr(self._admission, f"patch_{_SNAKE[kind]}"),
            name,
            operations,
            field_manager=manager,
            _content_type="application/json-patch+json",
        )


def cluster(kubeconfig: str | None = None, context: str | None = None) -> Any:
    """How to reach the API server of this pod, or else of the kubeconfig: a ``kubernetes.client.Configuration``.

    Raises LookupError, and tells why, if there is neither or the kubeconfig is none. It is asked nothing yet.
    """
    from kubernetes import client, config  # noqa: PLC0415

    configuration = client.Configuration()
    try:
        if kubeconfig is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(kubeconfig, context, client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError) as error:
        raise LookupError(f"no cluster is configured: {error}") from None
    except Exception as error:  # whatever the library stumbles over in a file that is no kubeconfig
        raise LookupError(f"no cluster is configured: not a kubeconfig ({type(error).__name__})") from None
    return configuration


def _answer(call: Any, *arguments: Any, **options: Any) -> Answer:
    from kubernetes.client import ApiException  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    try:
        response = call(*arguments, _preload_content=False, _request_timeout=_TIMEOUT, **options)
        return Answer(response.status, json.loads(response.data), _date(response.headers))
    except ApiException as refused:
        return Answer(int(refused.status or 0), {}, _date(refused.headers or {}))
    except (HTTPError, OSError, ValueError) as error:
        raise ApiError("unreachable", f"the API server did not answer ({type(error).__name__})") from None


def _date(headers: Mapping[str, str]) -> datetime | None:
    try:
        date = email.utils.parsedate_to_datetime(headers["Date"])
    except (KeyError, ValueError):
        return None
    return date.replace(tzinfo=date.tzinfo or UTC)  # "-0000" is UTC too


def _refusal(answer: Answer, what: str) -> ApiError:
    reasons = {
        401: "unauthorized",
        403: "forbidden",
        404: "not_found",
        409: "conflict",
        422: "invalid",
        429: "throttled",
    }
    return ApiError(reasons.get(answer.status, "server" if answer.status >= 500 else "refused"), what)


class SecretStore:
    """A Secret, shared by all replicas. Its version (``uid/resourceVersion``) is the only lock."""

    external: ClassVar[bool] = False

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._type = "kubernetes.io/tls"  # immutable: of a Secret that exists, the type that it has

    def load(self) -> Loaded:
        answer = self._api.get_secret(self._namespace, self._name)
        if answer.status == 404:
            return Loaded(date=answer.date)
        if answer.status != 200:
            raise _refusal(answer, f"cannot read Secret {self._namespace}/{self._name}")
        self._type = answer.body.get("type", self._type)
        metadata = answer.body["metadata"]
        annotations = metadata.get("annotations") or {}
        return Loaded(
            _decoded(answer.body.get("data")),
            {note: annotations[f"{DOMAIN}/{note}"] for note in NOTES if f"{DOMAIN}/{note}" in annotations},
            _version_of(metadata),
            answer.date,
        )

    def save(self, data: Mapping[str, bytes], notes: Mapping[str, str], version: str | None) -> bool:
        version = version or self._create()
        if version is None:
            return False
        uid, _, resource_version = version.partition("/")
        metadata = {
            "uid": uid,  # without it, an apply over a deleted Secret would create it
            "resourceVersion": resource_version,
            "labels": LABELS,
            "annotations": {f"{DOMAIN}/{note}": value for note, value in notes.items() if note in NOTES},
        }
        content = {"tls.crt": b"", "tls.key": b"", **data}  # the type demands these two
        encoded = {key: base64.b64encode(value).decode() for key, value in content.items()}
        answer = self._apply(metadata, encoded, manager=MANAGER, force=True)
        return answer.status in (200, 201)

    def stale(self, version: str | None) -> bool:  # noqa: ARG002 - asking costs a request: the loop does
        return False

    def _create(self) -> str | None:
        """Make an empty Secret and return its version; None if somebody else has filled it already.

        Applying it needs no right to create Secrets in general: the name is in the URL, so RBAC can tell. Without
        force it takes nothing from a Secret that has content.
        """
        self._type = "kubernetes.io/tls"
        empty = {"tls.crt": "", "tls.key": ""}
        answer = self._apply({"labels": LABELS}, empty, manager=f"{MANAGER}-init", force=False)
        return _version_of(answer.body["metadata"]) if answer.status in (200, 201) else None

    def _apply(self, metadata: Mapping[str, Any], data: Mapping[str, str], *, manager: str, force: bool) -> Answer:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._name, "namespace": self._namespace, **metadata},
            "type": self._type,
            "data": data,
        }
        answer = self._api.apply_secret(self._namespace, self._name, body, manager=manager, force=force)
        if answer.status not in (200, 201, 409):  # 409: changed or deleted since it was read
            raise _refusal(answer, f"cannot write Secret {self._namespace}/{self._name}")
        return answer


class ExternalSecret:
    """A Secret that somebody else fills, read through the API: seconds instead of the minute of a mount."""

    external: ClassVar[bool] = True

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._store = SecretStore(api, namespace, name)

    def load(self) -> Loaded:
        loaded = self._store.load()
        return Loaded(loaded.data, {}, loaded.version, loaded.date)

    def save(self, data: Mapping[str, bytes], notes: Mapping[str, str], version: str | None) -> bool:
        raise NotImplementedError("external certificates are never written")

    def stale(self, version: str | None) -> bool:  # noqa: ARG002
        return False


def _version_of(metadata: Mapping[str, Any]) -> str:
    return f"{metadata['uid']}/{metadata['resourceVersion']}"


def _decoded(data: Mapping[str, str] | None) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in (data or {}).items() if key in KEYS and value}


# Webhook configurations

_SNAKE: Final = {
    "ValidatingWebhookConfiguration": "validating_webhook_configuration",
    "MutatingWebhookConfiguration": "mutating_webhook_configuration",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a webhook configuration, and the bundle that API servers verify it with."""

    name: str
    bundle: bytes
    server_name: str = ""
    """The name that they verify."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A webhook configuration that exists."""

    kind: str
    version: str
    entries: tuple[Entry, ...]

    def carries(self, bundle: bytes) -> bool:
        """Whether every entry has exactly this bundle."""
        return all(entry.bundle == bundle for entry in self.entries)


class Configurations:
    """The webhook configurations of our name: at most one of each kind."""

    def __init__(self, api: Api, name: str = "virt-admit") -> None:
        self._api = api
        self._name = name

    def read(self) -> tuple[Configuration, ...]:
        """Those that exist. Raises ApiError."""
        found = []
        for kind in _SNAKE:
            answer = self._api.get_configuration(kind, self._name)
            if answer.status == 200:
                found.append(_configuration(kind, answer.body))
            elif answer.status != 404:
                raise _refusal(answer, f"cannot read {kind} {self._name}")
        return tuple(found)

    def inject(self, configuration: Configuration, bundle: bytes) -> Configuration:
        """Give every entry the bundle; what it is afterwards, or as it was if somebody changed it meanwhile.

        A JSON Patch, not an apply: an applier would co-own the list entries, and an entry that a later release
        removes or renames would stay behind with nothing but its name.
        """
        operations = patch(configuration, bundle)
        answer = self._api.patch_configuration(configuration.kind, self._name, operations, manager=MANAGER)
        if answer.status == 200:
            return _configuration(configuration.kind, answer.body)
        if answer.status in (404, 409, 422):  # deleted, changed, or a test of the patch failed
            return configuration
        raise _refusal(answer, f"cannot patch {configuration.kind} {self._name}")


def patch(configuration: Configuration, bundle: bytes) -> list[dict[str, Any]]:
    """JSON Patch that gives ``bundle`` to each entry that has another one; it fails if anything moved meanwhile."""
    value = base64.b64encode(bundle).decode()
    operations = [{"op": "test", "path": "/metadata/resourceVersion", "value": configuration.version}]
    for index, entry in enumerate(configuration.entries):
        if entry.bundle != bundle:
            operations += [
                {"op": "test", "path": f"/webhooks/{index}/name", "value": entry.name},
                {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": value},
            ]
    return operations


def _configuration(kind: str, body: Mapping[str, Any]) -> Configuration:
    entries = []
    for entry in body.get("webhooks") or []:
        client = entry.get("clientConfig", {})
        bundle = base64.b64decode(client.get("caBundle") or "")
        entries.append(Entry(entry["name"], bundle, _server_name(client)))
    return Configuration(kind, body["metadata"]["resourceVersion"], tuple(entries))


def _server_name(client: Mapping[str, Any]) -> str:
    if service := client.get("service"):
        return f"{service['name']}.{service['namespace']}.svc"
    return urlsplit(client.get("url") or "").hostname or ""
