"""Certificates of an external issuer: followed, published, never written."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.certs.world import DAY, NAMES, START, FakeApi, Time, pem
from virt_admit_certs import rotate
from virt_admit_certs.certificates import certs_pem, new_serving, new_signer
from virt_admit_certs.keys import key_pem
from virt_admit_certs.rotate import Rotator
from virt_admit_certs.schedule import RotationSettings
from virt_admit_certs.server_clock import ServerClock
from virt_admit_certs.state import ordered
from virt_admit_certs.stores.directory import ExternalDirectory
from virt_admit_certs.stores.secret import ExternalSecret
from virt_admit_certs.webhook_configurations import WebhookConfigurations


@pytest.fixture
def now() -> Time:
    return Time()


@pytest.fixture
def api(now) -> FakeApi:
    api = FakeApi(now)
    api.register()
    return api


class TestExternal:
    """Another issuer issues: look, check, show; never write."""

    def secret(self, api: FakeApi, serving: Any, signer: Any) -> None:
        data = {
            "tls.crt": certs_pem([serving.cert]),
            "tls.key": key_pem(serving.key),
            "ca.crt": certs_pem([signer.cert]),
        }
        api.secret = {
            "metadata": {"uid": "u", "resourceVersion": api._next()},
            "type": "kubernetes.io/tls",
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }

    @pytest.fixture
    def shown(self) -> list[bytes]:
        return []

    def rotator(self, store: Any, shown: list[bytes], now: Time, **options: Any) -> Rotator:
        return Rotator(
            store,
            RotationSettings(names=NAMES[:1]),
            set_certificate=lambda cert, _key: shown.append(cert),
            clock=ServerClock(now, now.monotonic),
            **options,
        )

    def test_a_secret_is_followed_and_never_written(self, api, now, shown):
        signer = new_signer(START, 90 * DAY)
        rotator = self.rotator(ExternalSecret(api, "a", "b"), shown, now)
        assert not rotator.reconcile_once()
        assert not rotator.readiness()[0].ready
        for _ in range(5):
            serving = new_serving(signer, NAMES, now.now, 3 * DAY)
            self.secret(api, serving, signer)
            assert not rotator.reconcile_once()
            assert shown[-1] == certs_pem([serving.cert])
            assert rotator.readiness()[0].ready
            now.now += DAY

        assert len(shown) == 5
        assert api.requests["patch secret"] == api.requests["patch configuration"] == 0
        assert rotator.status.certificates["serving"] == serving.cert

    @pytest.mark.parametrize(
        "damage", ["missing", "mismatch", "half", "expired", "names", "future"]
    )
    def test_what_is_bad_does_not_replace_what_is_good(self, api, now, shown, damage):
        signer = new_signer(START - 10 * DAY, 90 * DAY)
        good, other = (new_serving(signer, NAMES, START, 3 * DAY) for _ in range(2))
        events: list[tuple[str, str]] = []
        rotator = self.rotator(
            ExternalSecret(api, "a", "b"), shown, now, on_event=lambda *event: events.append(event)
        )
        self.secret(api, good, signer)
        rotator.reconcile_once()
        assert events == []

        if damage == "missing":
            api.edit({"tls.key": None})
        elif damage == "mismatch":
            api.edit({"tls.key": key_pem(other.key)})
        elif damage == "half":
            api.edit({"tls.crt": certs_pem([other.cert])[:200]})
        else:
            names = ("other.svc",) if damage == "names" else NAMES
            made = {"expired": START - 5 * DAY, "future": START + 5 * DAY}.get(damage, START)
            self.secret(api, new_serving(signer, names, made, 3 * DAY), signer)
        rotator.reconcile_once()

        assert shown == [certs_pem([good.cert])]
        assert events == [("error", "certificate")]
        assert rotator.readiness()[0].ready

    def test_a_wildcard_does_for_the_service(self, api, now, shown):
        signer = new_signer(START, 90 * DAY)
        rotator = self.rotator(ExternalSecret(api, "a", "b"), shown, now)
        for _ in range(2):
            self.secret(api, new_serving(signer, ["*.virt-admit.svc"], START, DAY), signer)
            rotator.reconcile_once()

        assert len(shown) == 2

    def test_while_nothing_good_is_there_what_is_bad_is_shown_and_not_ready(self, api, now, shown):
        signer = new_signer(START - 10 * DAY, 90 * DAY)
        expired = new_serving(signer, NAMES, START - 5 * DAY, 3 * DAY)
        rotator = self.rotator(ExternalSecret(api, "a", "b"), shown, now)
        self.secret(api, expired, signer)
        rotator.reconcile_once()
        assert shown == [certs_pem([expired.cert])]
        assert not rotator.readiness()[0].ready

        good = new_serving(signer, NAMES, START, 3 * DAY)
        self.secret(api, good, signer)
        rotator.reconcile_once()
        assert shown[-1] == certs_pem([good.cert])
        assert rotator.readiness()[0].ready

    def test_its_authority_is_published_beside_the_one_before_it(self, api, now, shown):
        old, new = new_signer(START, 90 * DAY), new_signer(START + DAY, 90 * DAY)
        rotator = self.rotator(
            ExternalSecret(api, "a", "b"), shown, now, configurations=WebhookConfigurations(api)
        )
        before = new_serving(old, NAMES, START, 30 * DAY)
        self.secret(api, before, old)
        rotator.reconcile_once()
        assert api.published == [pem(old.cert)] * 4
        self.secret(api, new_serving(new, NAMES, START, 30 * DAY), new)
        now.now += DAY
        rotator.reconcile_once()
        assert api.published == [pem(new.cert, old.cert)] * 4
        assert api.trusts((before.cert,))
        requests = api.requests["patch configuration"]
        rotator.reconcile_once()
        assert api.requests["patch configuration"] == requests

        now.now = START + 90 * DAY
        self.secret(api, new_serving(new, NAMES, now.now, DAY), new)
        rotator.reconcile_once()
        assert api.published == [pem(new.cert)] * 4

    def test_without_an_authority_nothing_is_published(self, api, now, shown):
        signer = new_signer(START, 90 * DAY)
        rotator = self.rotator(
            ExternalSecret(api, "a", "b"), shown, now, configurations=WebhookConfigurations(api)
        )
        self.secret(api, new_serving(signer, NAMES, START, DAY), signer)
        api.edit({"ca.crt": None})

        rotator.reconcile_once()

        assert api.published == [b""] * 4
        assert len(shown) == 1

    def test_files_are_looked_at_for_connections_once_a_second(
        self, tmp_path, now, shown, monkeypatch
    ):
        signer = new_signer(START, 90 * DAY)
        clock = [1000.0]
        monkeypatch.setattr(rotate.time, "monotonic", lambda: clock[0])

        def put() -> bytes:
            serving = new_serving(signer, NAMES, START, DAY)
            for name, content in (
                ("tls.crt", certs_pem([serving.cert])),
                ("tls.key", key_pem(serving.key)),
            ):
                (tmp_path / name).write_bytes(content)
                (tmp_path / name).chmod(0o600)
            return certs_pem([serving.cert])

        put()
        rotator = self.rotator(ExternalDirectory(tmp_path), shown, now)
        rotator.reconcile_once()
        second = put()
        clock[0] += 0.9
        rotator.reload_if_changed()
        assert len(shown) == 1
        clock[0] += 0.1
        rotator.reload_if_changed()
        assert shown[-1] == second
        clock[0] += 1
        rotator.reload_if_changed()
        assert len(shown) == 2

    def test_no_connection_waits_for_the_api_server(self, api, tmp_path, now, shown, monkeypatch):
        """What is new is published first, by the loop, which is woken; then it is shown."""
        clock = [1000.0]
        monkeypatch.setattr(rotate.time, "monotonic", lambda: clock[0])
        signers = [new_signer(START, 90 * DAY) for _ in range(2)]

        def put(signer: Any) -> None:
            serving = new_serving(signer, NAMES, START, DAY)
            for name, content in (("tls.crt", serving.cert), ("ca.crt", signer.cert)):
                (tmp_path / name).write_bytes(certs_pem([content]))
            (tmp_path / "tls.key").write_bytes(key_pem(serving.key))
            (tmp_path / "tls.key").chmod(0o600)

        put(signers[0])
        rotator = self.rotator(
            ExternalDirectory(tmp_path), shown, now, configurations=WebhookConfigurations(api)
        )
        rotator.reconcile_once()
        before = api.requests.copy()
        put(signers[1])
        clock[0] += 1
        rotator.reload_if_changed()
        assert (api.requests, len(shown), rotator._requested.is_set()) == (before, 1, True)

        rotator.reconcile_once()

        assert len(shown) == 2
        assert set(api.published) == {certs_pem(ordered([signer.cert for signer in signers]))}

    def test_a_look_that_fails_is_counted(self, tmp_path, now, shown, monkeypatch):
        events: list[tuple[str, str]] = []
        rotator = self.rotator(
            ExternalDirectory(tmp_path), shown, now, on_event=lambda *event: events.append(event)
        )

        def fail(*_: object) -> bool:
            raise OSError(5, "input/output error")

        monkeypatch.setattr(ExternalDirectory, "stale", fail)
        rotator.reload_if_changed()

        assert events == [("error", "storage")]
