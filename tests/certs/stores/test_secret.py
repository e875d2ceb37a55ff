"""The Secret store: races, conflicts and errors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.certs.world import FakeApi, Time
from virt_admit_certs.kube_api import ApiError, ApiResponse
from virt_admit_certs.stores.protocol import Loaded
from virt_admit_certs.stores.secret import ExternalSecret, SecretStore

OLD = {
    "ca.crt": b"old ca",
    "ca.key": b"old key",
    "tls.crt": b"old cert",
    "tls.key": b"old tls",
    "cross.crt": b"x",
}
NEW = {
    "ca.crt": b"new ca",
    "ca.key": b"new key",
    "tls.crt": b"new cert",
    "tls.key": b"new tls",
    "next.crt": b"y",
}


@pytest.fixture
def api() -> FakeApi:
    return FakeApi(Time())


def store(api: Any) -> SecretStore:
    return SecretStore(api, "virt-admit", "virt-admit-certs")


class TestSecret:
    def test_nothing_yet(self, api):
        assert store(api).load() == Loaded(date=api.time.now)
        assert api.secret is None

    def test_what_was_saved_is_loaded(self, api):
        assert store(api).save(OLD, {"generation": "1", "rotated-by": "me", "unknown": "x"}, None)
        loaded = store(api).load()

        assert loaded.data == OLD
        assert loaded.notes == {"generation": "1", "rotated-by": "me"}
        assert loaded.version == "{uid}/{resourceVersion}".format(**api.secret["metadata"])
        assert loaded.date == api.time.now
        assert api.secret["type"] == "kubernetes.io/tls"

    def test_keys_and_notes_left_out_are_removed(self, api):
        store(api).save(OLD, {"promoted-at": "then", "phase": "overlap"}, None)
        store(api).save(NEW, {"phase": "steady"}, store(api).load().version)

        loaded = store(api).load()
        assert (loaded.data, loaded.notes) == (NEW, {"phase": "steady"})

    def test_a_request_that_somebody_else_annotated_is_kept_until_we_drop_it(self, api):
        store(api).save(OLD, {}, None)
        api.edit(notes={"rotate": "signer/1"})
        loaded = store(api).load()
        assert loaded.notes == {"rotate": "signer/1"}

        store(api).save(OLD, {**loaded.notes, "rotate-done": "signer/1"}, loaded.version)

        assert store(api).load().notes == {"rotate": "signer/1", "rotate-done": "signer/1"}

    def test_over_another_version_nothing_is_saved(self, api):
        one, two = store(api), store(api)
        one.save(OLD, {}, None)
        version = two.load().version
        assert one.save(NEW, {}, version)

        assert not two.save(OLD, {}, version)
        assert one.load().data == NEW

    def test_deleted_meanwhile(self, api):
        one = store(api)
        one.save(OLD, {}, None)
        version = one.load().version
        api.delete_secret()

        assert not one.save(NEW, {}, version)
        assert api.secret is None

    def test_of_two_that_begin_at_once_one_wins(self, api):
        """The other comes after the first request, after the second, …: both make the empty Secret,
        one fills it.
        """
        for moment in range(1, 5):
            api.delete_secret()
            one, two = store(api), store(api)
            count = 0
            results = []

            def before(
                verb: str,
                moment: int = moment,
                two: SecretStore = two,
                results: list[bool] = results,
            ) -> None:
                nonlocal count
                count += 1
                if count == moment:
                    results.append(two.save(NEW, {}, None))

            one.load()
            api.before = before
            results.append(one.save(OLD, {}, None))
            api.before = lambda _verb: None
            if moment > 2:  # then the first has finished before the second begins
                assert results == [True]
                assert not two.save(NEW, {}, None)
                results.append(False)

            assert sorted(results) == [False, True]
            assert one.load().data == (OLD if results[-1] or moment > 2 else NEW)

    def test_an_empty_secret_is_filled(self, api):
        api.apply_secret(
            "virt-admit",
            "virt-admit-certs",
            {"metadata": {}, "type": "Opaque", "data": {}},
            manager="kubectl",
            force=False,
        )
        loaded = store(api).load()
        assert loaded.data == {}

        one = store(api)
        assert one.save(OLD, {}, one.load().version)
        assert api.secret["type"] == "Opaque"

    def test_a_type_once_given_is_kept(self, api):
        one = store(api)
        one.save(OLD, {}, None)
        api.secret["type"] = "Opaque"

        assert one.save(NEW, {}, one.load().version)
        assert api.secret["type"] == "Opaque"
        api.delete_secret()
        assert one.save(NEW, {}, one.load().version)
        assert api.secret["type"] == "kubernetes.io/tls"

    def test_the_demanded_keys_are_always_there(self, api):
        store(api).save({"ca.crt": b"a"}, {}, None)

        assert {"tls.crt", "tls.key"} <= set(api.secret["data"])
        assert store(api).load().data == {"ca.crt": b"a"}

    @pytest.mark.parametrize("verb", ["get secret", "patch secret"])
    def test_without_the_right_it_says_so(self, api, verb):
        one = store(api)
        one.save(OLD, {}, None)
        version = one.load().version
        api.forbidden = {verb}

        with pytest.raises(ApiError) as refused:
            one.save(NEW, {}, version) if verb == "patch secret" else one.load()

        assert refused.value.reason == "forbidden"
        assert "virt-admit/virt-admit-certs" in str(refused.value)

    @pytest.mark.parametrize(
        ("status", "reason"),
        [
            (401, "unauthorized"),
            (403, "forbidden"),
            (429, "throttled"),
            (500, "server"),
            (503, "server"),
            (400, "refused"),
        ],
    )
    def test_reasons(self, api, monkeypatch, status, reason):
        monkeypatch.setattr(
            api, "get_secret", lambda *_: ApiResponse(status, {"message": "secret"})
        )

        with pytest.raises(ApiError) as refused:
            store(api).load()

        assert refused.value.reason == reason
        assert "message" not in str(refused.value)

    def test_a_namespace_that_does_not_exist_is_an_error(self, api, monkeypatch):
        monkeypatch.setattr(api, "apply_secret", lambda *_, **__: ApiResponse(404))

        with pytest.raises(ApiError, match="not_found"):
            store(api).save(OLD, {}, None)

    def test_external_is_read_and_never_written(self, api):
        store(api).save(OLD, {"rotate": "signer/1"}, None)
        external = ExternalSecret(api, "virt-admit", "virt-admit-certs")

        loaded = external.load()

        assert (loaded.data, loaded.notes, loaded.date) == (OLD, {}, api.time.now)
        assert not external.stale(loaded.version)
        with pytest.raises(NotImplementedError):
            external.save(NEW, {}, loaded.version)
