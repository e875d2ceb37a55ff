"""Certificates change, instances come and go, and no call fails. Everything is real: the process, TLS, files, signals."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import secrets
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

import pytest
import trustme
from cryptography import x509

from tests.apiserver.control_plane import free_port
from tests.apiserver.webhook import Webhook
from tests.https.reviews import review, vm
from tests.load import Load, Poster
from tests.waiting import eventually
from virt_admit.serving.gunicorn_worker import GC_INTERVAL
from virt_admit_certs.certificates import Pair, certs_pem, new_serving, new_signer, sha256
from virt_admit_certs.commands import request_rotation, rotation_done
from virt_admit_certs.keys import key_pem
from virt_admit_certs.stores.directory import Directory

FINE = json.dumps(review(vm())).encode()
NOW = datetime.now(UTC)
NAMES = (
    "localhost",
    "127.0.0.1",
    "virt-admit-webhook.virt-admit.svc",
    "virt-admit-webhook.virt-admit.svc.cluster.local",
)
QUICK = {"VIRT_ADMIT_CERTS_UNSAFE_INTERVALS": "1", "VIRT_ADMIT_CERTS_CHECK_INTERVAL": "50ms"}
"""Look twenty times a second."""
ROTATIONS = "virt_admit_certificate_rotations_total"
WARM_UP = GC_INTERVAL + 2
"""Seconds until memory has found its level."""


def metric(webhook: Webhook, name: str, labels: str = "") -> float:
    """The sum of a metric's samples, of those with these labels."""
    lines = re.findall(rf"^{name}(?:{{(.*)}})? (.*)$", webhook.ops("/metrics")[1], re.MULTILINE)
    return sum(float(value) for found, value in lines if labels in found)


class Client:
    """A client that learns of a new bundle late, as API servers do, and counts the certificates that it is shown."""

    LATE = 0.3  # seconds

    def __init__(self, ca: Path, port: int) -> None:
        self._ca, self._port = ca, port
        self._lock = threading.Lock()
        self._read = -1.0
        self._trust: ssl.SSLContext | None = None
        self.seen: set[bytes] = set()

    def __call__(self) -> http.client.HTTPSConnection:
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._trusting(), timeout=10)
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        self.seen.add(hashlib.sha256(connection.sock.getpeercert(binary_form=True) or b"").digest())
        return connection

    def _trusting(self) -> ssl.SSLContext:
        with self._lock:
            if self._trust is None or time.monotonic() - self._read > self.LATE:
                self._trust, self._read = ssl.create_default_context(cafile=self._ca), time.monotonic()
            return self._trust


@pytest.mark.slow
def test_ten_thousand_requests_over_a_hundred_rotations(tmp_path):
    """A signer announced is promoted before every client has learned of it: then the cross certificate convinces."""
    quick = {"PROPAGATION": "100ms", "SERVING_DURATION": "20s", "SERVING_RENEW_BEFORE": "10s"}
    quick |= {"SIGNER_DURATION": "40s", "SIGNER_RENEW_BEFORE": "20s"}
    with Webhook(tmp_path, environment=QUICK | {f"VIRT_ADMIT_CERTS_{key}": quick[key] for key in quick}) as webhook:
        client, store = Client(webhook.ca, webhook.port), Directory(tmp_path / "certs")

        def rotate(times: int) -> None:
            for number in range(times):
                request = request_rotation(store, "signer" if number % 15 == 5 else "serving")
                eventually(lambda request=request: rotation_done(store, request))
                load.more(50)

        # steady, for closed connections take memory until the next garbage collection
        senders = [Poster(client, "/validate", FINE, keep=False, pause=0.02) for _ in range(2)]
        with Load(*senders, Poster(client, "/validate", FINE, keep=True)) as load:
            started = time.monotonic()
            while time.monotonic() < started + WARM_UP:
                rotate(15)
            before = metric(webhook, "process_resident_memory_bytes")
            while (
                load.requests < 10_000 or metric(webhook, ROTATIONS) < 120 or time.monotonic() < started + 2 * WARM_UP
            ):
                rotate(15)
            after = metric(webhook, "process_resident_memory_bytes")
        steps = {step: metric(webhook, ROTATIONS, step) for step in ("announce", "promote", "retire", "renew")}
        errors = metric(webhook, "virt_admit_certificate_errors_total")

    print(f"{load.requests} requests, {len(load.failures)} failed; {steps}; {len(client.seen)} certificates seen;")
    print(f"resident memory {before / 2**20:.1f} MiB, at the end {after / 2**20:.1f} MiB")
    assert load.failures == []
    assert load.requests >= 10_000
    assert steps["renew"] + steps["promote"] >= 100
    assert steps["promote"] >= 8
    assert len(client.seen) >= 100
    assert errors == 0
    assert after < before + 32 * 2**20


class Mount:
    """A directory as kubelet mounts a Secret: all files change at once, by a symlink."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def put(self, **files: bytes) -> None:
        """What is mounted from now on: ``tls_crt`` is the file ``tls.crt``."""
        generation = self.path / f"..{secrets.token_hex(4)}"
        generation.mkdir()
        for name, content in files.items():
            (generation / name.replace("_", ".")).write_bytes(content)
        before = self.path / os.readlink(self.path / "..data") if (self.path / "..data").is_symlink() else None
        (self.path / "..new").symlink_to(generation.name)
        (self.path / "..new").rename(self.path / "..data")
        for name in ("tls.crt", "tls.key"):
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to(f"..data/{name}")
        if before:
            shutil.rmtree(before)


class Issuer:
    """Somebody else who issues."""

    def __init__(self, folder: Path) -> None:
        self._signer = new_signer(NOW, timedelta(days=1))
        self.ca = folder / "ca.crt"
        self.ca.write_bytes(certs_pem([self._signer.cert]))

    def issue(self, life: timedelta = timedelta(hours=1)) -> Pair:
        return new_serving(self._signer, NAMES, datetime.now(UTC), life)


def files(pair: Pair) -> dict[str, bytes]:
    return {"tls_crt": certs_pem([pair.cert]), "tls_key": key_pem(pair.key)}


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Mount:
    return Mount(tmp_path_factory.mktemp("mount") / "mount")


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def external(tmp_path_factory: pytest.TempPathFactory, mount: Mount, issuer: Issuer) -> Iterator[Webhook]:
    """A webhook that serves a mounted certificate. Every test leaves a valid one behind."""
    mount.put(**files(issuer.issue()))
    with Webhook(tmp_path_factory.mktemp("external"), "--certs-external", mount.path, environment=QUICK) as webhook:
        yield webhook


def shown(webhook: Webhook) -> str:
    """The fingerprint of what a new connection gets, whoever trusts it."""
    pem = ssl.get_server_certificate(("127.0.0.1", webhook.port), timeout=10)
    return sha256(x509.load_pem_x509_certificate(pem.encode()))


def test_every_change_of_a_mount_is_served_without_a_failed_request(external, mount, issuer):
    errors = metric(external, "virt_admit_certificate_errors_total")
    client = Client(issuer.ca, external.port)
    with Load(*(Poster(client, "/validate", FINE, keep=keep) for keep in (False, True))) as load:
        for _ in range(30):
            pair = issuer.issue()
            mount.put(**files(pair))
            eventually(lambda pair=pair: shown(external) == sha256(pair.cert))
        load.more(100)

    assert load.failures == []
    assert len(client.seen) >= 25
    assert metric(external, "virt_admit_certificate_errors_total") == errors


@pytest.mark.parametrize(
    "fault", ["another key", "no key", "empty", "half", "garbage", "nothing at all", "other names"]
)
def test_a_mount_that_is_not_valid_is_not_served(external, mount, issuer, fault):
    before, after = shown(external), issuer.issue()
    errors = metric(external, "virt_admit_certificate_errors_total", "certificate")
    good = files(after)
    stranger = new_serving(new_signer(NOW, timedelta(days=1)), ("other.svc",), NOW, timedelta(hours=1))
    bad = {
        "another key": good | {"tls_key": files(issuer.issue())["tls_key"]},
        "no key": {"tls_crt": good["tls_crt"]},
        "empty": good | {"tls_crt": b""},
        "half": good | {"tls_crt": good["tls_crt"][:300]},
        "garbage": good | {"tls_key": b"\xff" * 100},
        "nothing at all": {},
        "other names": files(stranger),
    }

    mount.put(**bad[fault])
    eventually(lambda: metric(external, "virt_admit_certificate_errors_total", "certificate") > errors)

    assert shown(external) == before
    assert external.ops("/readyz")[0] == 200
    mount.put(**good)
    eventually(lambda: shown(external) == sha256(after.cert))


def test_a_mount_that_vanishes_and_comes_back(external, mount, issuer):
    before, after = shown(external), issuer.issue()
    errors = metric(external, "virt_admit_certificate_errors_total", "certificate")

    shutil.rmtree(mount.path)
    eventually(lambda: metric(external, "virt_admit_certificate_errors_total", "certificate") > errors)

    assert shown(external) == before
    assert external.ops("/readyz")[0] == 200
    mount.path.mkdir()
    mount.put(**files(after))
    eventually(lambda: shown(external) == sha256(after.cert))


def test_an_expired_certificate_is_not_ready_but_still_served(external, mount, issuer):
    """So that other replicas get the traffic, and who comes here all the same learns why it fails."""
    mount.put(**files(issuer.issue(life=timedelta(seconds=6))))
    eventually(lambda: external.ops("/readyz")[0] == 503)

    assert "[-] certificate: the serving cert has expired" in external.ops("/readyz")[1]
    assert external.ops("/livez")[0] == 200
    trusting = ssl.create_default_context(cafile=issuer.ca)
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        send(external, trusting)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    send(external, trusting)
    mount.put(**files(issuer.issue()))
    eventually(lambda: external.ops("/readyz")[0] == 200)


def send(webhook: Webhook, trusting: ssl.SSLContext) -> None:
    """One request over a connection of its own. Raises OSError if it is not let in."""

    def connect() -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", webhook.port, context=trusting, timeout=10)

    Poster(connect, "/validate", FINE, keep=False).send()


@pytest.mark.parametrize(("kind", "bits"), [("rsa2048", 2048), ("p384", 384)])
def test_other_kinds_of_keys_and_long_names(tmp_path, kind, bits):
    name = f"webhook.{'n' * 63}.svc"
    with Webhook(tmp_path, "--cert-name", name, environment={"VIRT_ADMIT_CERTS_KEY": kind}) as webhook:
        pem = ssl.get_server_certificate(("127.0.0.1", webhook.port))
        assert x509.load_pem_x509_certificate(pem.encode()).public_key().key_size == bits
        with (
            socket.create_connection(("127.0.0.1", webhook.port)) as plain,
            webhook.tls().wrap_socket(plain, server_hostname=name),
        ):
            pass
        send(webhook, webhook.tls())


def test_old_versions_of_tls_are_refused(webhook):
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        trusting = webhook.tls()
        trusting.minimum_version = trusting.maximum_version = version
        send(webhook, trusting)
    trusting = webhook.tls()
    with pytest.warns(DeprecationWarning, match="TLS"):
        trusting.minimum_version = trusting.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(OSError):
        send(webhook, trusting)


def test_clients_are_verified_by_the_current_ca(tmp_path):
    ours, theirs, next_one = trustme.CA(), trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(tmp_path / "clients.crt")
    with Webhook(tmp_path, "--client-ca", tmp_path / "clients.crt", "--client-name", "apiserver") as webhook:

        def let_in(ca: trustme.CA | None, name: str = "apiserver") -> bool:
            trusting = webhook.tls()
            if ca:
                ca.issue_cert(name).configure_cert(trusting)
            try:
                send(webhook, trusting)
            except (OSError, http.client.HTTPException):
                return False
            return True

        assert [let_in(ours), let_in(ours, "kubelet"), let_in(theirs), let_in(None)] == [True, False, False, False]
        (tmp_path / "clients.crt").write_text("no certificate")
        assert [let_in(ours), let_in(next_one)] == [True, False]
        next_one.cert_pem.write_to_path(tmp_path / "new.crt")
        (tmp_path / "new.crt").rename(tmp_path / "clients.crt")
        assert [let_in(ours), let_in(next_one)] == [False, True]
        assert webhook.ops("/readyz")[0] == 200


def test_after_sigterm_it_serves_until_the_stop_delay_ends(tmp_path):
    """Not ready at once, so that no more calls come; and who has not noticed yet is answered."""
    with Webhook(tmp_path, "--stop-delay", "5") as webhook:
        client = Client(webhook.ca, webhook.port)
        with Load(*(Poster(client, "/validate", FINE, keep=keep) for keep in (False, True))) as load:
            load.more(50)
            asked = time.monotonic()
            webhook.terminate()
            eventually(lambda: webhook.ops("/readyz")[0] != 200)
            assert "[-] serving: stopping" in webhook.ops("/readyz")[1]
            load.more(100)

        assert load.failures == []
        assert webhook.running
        assert webhook.wait() == 0
        assert time.monotonic() - asked >= 5


class Balancer:
    """TCP in front of several instances: a new connection goes to the next one that is ready, and stays there."""

    def __init__(self, *instances: Webhook) -> None:
        self.instances = instances
        self.port = free_port()
        self.ready: set[int] = set()
        self.connections = [0] * len(instances)
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._probe, self._accept)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        eventually(lambda: len(self.ready) == len(self.instances))
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _probe(self) -> None:
        while not self._ending.wait(0.05):
            for number, instance in enumerate(self.instances):
                (self.ready.add if instance.ops("/readyz")[0] == 200 else self.ready.discard)(number)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed: the end
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        number = min(self.ready, key=lambda each: self.connections[each])
        self.connections[number] += 1
        with client, socket.create_connection(("127.0.0.1", self.instances[number].port)) as server:
            answers = threading.Thread(target=_pump, args=(server, client), daemon=True)
            answers.start()
            _pump(client, server)
            answers.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.mark.slow
def test_a_rolling_restart_loses_no_request(tmp_path):
    shared = tmp_path / "certs"
    with contextlib.ExitStack() as stack:
        instances = []
        for number in "12":
            (tmp_path / number).mkdir()
            flags = ("--certs", shared, "--stop-delay", "3")
            instances.append(stack.enter_context(Webhook(tmp_path / number, *flags)))
        balancer = stack.enter_context(Balancer(*instances))
        client = Client(shared / "ca.crt", balancer.port)
        senders = [Poster(client, "/validate", FINE, keep=keep) for keep in (False, True, True)]
        with Load(*senders) as load:
            for number, instance in [*enumerate(instances)] * 2:
                load.more(100)
                instance.terminate()
                assert instance.wait() == 0
                assert number not in balancer.ready
                instance.start()
                eventually(lambda number=number: number in balancer.ready)
            load.more(200)

    print(f"{load.requests} requests, {len(load.failures)} failed; {balancer.connections} connections")
    assert load.failures == []
    assert load.requests >= 1_000
    assert min(balancer.connections) >= 50
