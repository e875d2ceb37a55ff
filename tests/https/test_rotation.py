"""Certificates change and no call fails. Everything is real: the process, TLS, files, signals."""

from __future__ import annotations

import http.client
import os
import secrets
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from tests.apiserver.webhook import Webhook
from tests.https.clients import FINE, NAMES, NOW, QUICK, ROTATIONS, Client, metric, send, shown
from tests.load import Load, Poster
from tests.prefork import virt_admit
from tests.waiting import eventually
from virt_admit.serving.gunicorn_worker import GC_INTERVAL
from virt_admit_certs.certificates import Pair, certs_pem, new_serving, new_signer, sha256
from virt_admit_certs.commands import request_rotation, rotation_done
from virt_admit_certs.keys import key_pem
from virt_admit_certs.stores.directory import Directory

ROTATIONS_SEEN = int(os.environ.get("ROTATIONS_SEEN", "25"))
"""Certificates that a client meets; ``make verify-rotations`` takes 100."""
WARM_UP = GC_INTERVAL + 2
"""Seconds until memory has found its level."""


@pytest.mark.slow
def test_thousands_of_requests_over_many_rotations(tmp_path):
    """A signer announced is promoted before every client has learned of it: then the cross
    certificate convinces.
    """
    quick = {"PROPAGATION": "100ms", "SERVING_DURATION": "20s", "SERVING_RENEW_BEFORE": "10s"}
    quick |= {"SIGNER_DURATION": "40s", "SIGNER_RENEW_BEFORE": "20s"}
    with Webhook(
        tmp_path, environment=QUICK | {f"VIRT_ADMIT_CERTS_{key}": quick[key] for key in quick}
    ) as webhook:
        client, store = Client(webhook.ca, webhook.port), Directory(tmp_path / "certs")

        def rotate(times: int) -> None:
            for number in range(times):
                request = request_rotation(store, "signer" if number % 15 == 5 else "serving")
                eventually(lambda request=request: rotation_done(store, request))
                load.more(50)

        # steady, for closed connections take memory until the next garbage collection
        senders = [Poster(client, "/validate", FINE, keep=False, pause=0.02) for _ in range(2)]
        with Load(*senders, Poster(client, "/validate", FINE, keep=True, pause=0.005)) as load:
            started = time.monotonic()
            while time.monotonic() < started + WARM_UP:
                rotate(15)
            before = metric(webhook, "process_resident_memory_bytes")
            while (
                load.requests < 100 * ROTATIONS_SEEN
                or len(client.seen) < ROTATIONS_SEEN
                or metric(webhook, ROTATIONS) < 1.2 * ROTATIONS_SEEN
                or metric(webhook, ROTATIONS, "promote") < 0.08 * ROTATIONS_SEEN
                or time.monotonic() < started + 2 * WARM_UP
            ):
                rotate(15)
            after = metric(webhook, "process_resident_memory_bytes")
        steps = {
            step: metric(webhook, ROTATIONS, step)
            for step in ("announce", "promote", "retire", "renew")
        }
        errors = metric(webhook, "virt_admit_certificate_errors_total")

    print(
        f"{load.requests} requests, {len(load.failures)} failed; {steps}; {len(client.seen)} "
        "certificates seen;"
    )
    print(f"resident memory {before / 2**20:.1f} MiB, at the end {after / 2**20:.1f} MiB")
    assert load.failures == []
    assert steps["renew"] + steps["promote"] >= ROTATIONS_SEEN
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
        before = (
            self.path / os.readlink(self.path / "..data")
            if (self.path / "..data").is_symlink()
            else None
        )
        (self.path / "..new").symlink_to(generation.name)
        (self.path / "..new").rename(self.path / "..data")
        for name in ("tls.crt", "tls.key"):
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to(f"..data/{name}")
        if before:
            shutil.rmtree(before)


class Issuer:
    """Another issuer."""

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
def external(
    tmp_path_factory: pytest.TempPathFactory, mount: Mount, issuer: Issuer
) -> Iterator[Webhook]:
    """A webhook that serves a mounted certificate. Every test leaves a valid one behind."""
    mount.put(**files(issuer.issue()))
    with Webhook(
        tmp_path_factory.mktemp("external"),
        "--certs-external",
        mount.path,
        environment=QUICK,
        program=virt_admit(),
    ) as webhook:
        yield webhook


def test_every_change_of_a_mount_is_served_without_a_failed_request(external, mount, issuer):
    errors = metric(external, "virt_admit_certificate_errors_total")
    client = Client(issuer.ca, external.port)
    with Load(*(Poster(client, "/validate", FINE, keep=keep) for keep in (False, True))) as load:
        for _ in range(30):
            pair = issuer.issue()
            mount.put(**files(pair))
            eventually(lambda pair=pair: pair.cert.fingerprint(hashes.SHA256()) in client.seen)
        load.more(100)

    assert load.failures == []
    assert metric(external, "virt_admit_certificate_errors_total") == errors


@pytest.mark.parametrize(
    "fault", ["another key", "no key", "empty", "half", "garbage", "nothing at all", "other names"]
)
def test_a_mount_that_is_not_valid_is_not_served(external, mount, issuer, fault):
    before, after = shown(external), issuer.issue()
    errors = metric(external, "virt_admit_certificate_errors_total", "certificate")
    good = files(after)
    stranger = new_serving(
        new_signer(NOW, timedelta(days=1)), ("other.svc",), NOW, timedelta(hours=1)
    )
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
    eventually(
        lambda: metric(external, "virt_admit_certificate_errors_total", "certificate") > errors
    )

    assert shown(external) == before
    assert external.ops("/readyz")[0] == 200
    mount.put(**good)
    eventually(lambda: shown(external) == sha256(after.cert))


def test_a_mount_that_vanishes_and_comes_back(external, mount, issuer):
    before, after = shown(external), issuer.issue()
    errors = metric(external, "virt_admit_certificate_errors_total", "certificate")

    shutil.rmtree(mount.path)
    eventually(
        lambda: metric(external, "virt_admit_certificate_errors_total", "certificate") > errors
    )

    assert shown(external) == before
    assert external.ops("/readyz")[0] == 200
    mount.path.mkdir()
    mount.put(**files(after))
    eventually(lambda: shown(external) == sha256(after.cert))


def test_an_expired_certificate_is_not_ready_but_still_served(external, mount, issuer):
    """So that other replicas get the traffic,
    and who comes here all the same learns why it fails.
    """
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


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "bits"), [("rsa2048", 2048), ("p384", 384)])
def test_other_kinds_of_keys_and_long_names(tmp_path, kind, bits):
    name = f"webhook.{'n' * 63}.svc"
    with Webhook(
        tmp_path,
        "--cert-name",
        name,
        environment={"VIRT_ADMIT_CERTS_KEY": kind},
        program=virt_admit(),
    ) as webhook:
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


@pytest.mark.slow
def test_clients_are_verified_by_the_current_ca(tmp_path):
    ours, theirs, next_one = trustme.CA(), trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(tmp_path / "clients.crt")
    with Webhook(
        tmp_path,
        "--client-ca",
        tmp_path / "clients.crt",
        "--client-name",
        "apiserver",
        program=virt_admit(),
    ) as webhook:

        def let_in(ca: trustme.CA | None, name: str = "apiserver") -> bool:
            trusting = webhook.tls()
            if ca:
                ca.issue_cert(name).configure_cert(trusting)
            try:
                send(webhook, trusting)
            except (OSError, http.client.HTTPException):
                return False
            return True

        assert [let_in(ours), let_in(ours, "kubelet"), let_in(theirs), let_in(None)] == [
            True,
            False,
            False,
            False,
        ]
        (tmp_path / "clients.crt").write_text("no certificate")
        assert [let_in(ours), let_in(next_one)] == [True, False]
        next_one.cert_pem.write_to_path(tmp_path / "new.crt")
        (tmp_path / "new.crt").rename(tmp_path / "clients.crt")
        assert [let_in(ours), let_in(next_one)] == [False, True]
        assert webhook.ops("/readyz")[0] == 200
