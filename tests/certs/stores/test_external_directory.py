"""Directories that an external issuer writes: read completely or not at all, and never written."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from tests.certs.stores.generations import OLD, mode
from virt_admit_certs.stores import directory as storing
from virt_admit_certs.stores.directory import ExternalDirectory
from virt_admit_certs.stores.protocol import Loaded


class TestExternal:
    FILES = ("tls.crt", "tls.key", "ca.crt")

    @pytest.fixture
    def mount(self, tmp_path: Path) -> Path:
        self.swap(tmp_path, 0)
        for name in self.FILES:
            (tmp_path / name).symlink_to(f"..data/{name}")
        return tmp_path

    def swap(self, mount: Path, number: int) -> None:
        """As kubelet does it."""
        generation = mount / f"..2026_{number}"
        generation.mkdir()
        for name in self.FILES:
            (generation / name).write_text(f"{name} {number}")
            (generation / name).chmod(0o600)
        (mount / "..data_tmp").symlink_to(generation.name)
        (mount / "..data_tmp").rename(mount / "..data")
        old = mount / f"..2026_{number - 1}"
        for file in old.glob("*"):
            file.unlink()
        if old.exists():
            old.rmdir()

    def test_fifty_swaps_in_a_row(self, mount):
        external = ExternalDirectory(mount)
        version = external.load().version
        for number in range(1, 51):
            self.swap(mount, number)
            assert external.stale(version)
            loaded = external.load()
            version = loaded.version
            assert loaded.data == {name: f"{name} {number}".encode() for name in self.FILES}
            assert not external.stale(version)

    def test_swaps_while_reading_never_give_a_mixture(self, mount):
        external = ExternalDirectory(mount)
        stop = threading.Event()

        def swap_all_the_time() -> None:
            number = 0
            while not stop.wait(0.003):
                number += 1
                self.swap(mount, number)

        swapper = threading.Thread(target=swap_all_the_time)
        swapper.start()
        seen = set()
        try:
            while len(seen) < 30:
                try:
                    data = external.load().data
                except OSError as error:  # on a busy machine; the loop would look again
                    if error.errno != errno.EBUSY:
                        raise
                    continue
                numbers = {content.split()[-1] for content in data.values()}
                assert len(numbers) == 1
                assert set(data) == set(self.FILES)
                seen |= numbers
        finally:
            stop.set()
            swapper.join()

    def test_plain_files_rewritten_in_place(self, tmp_path):
        external = ExternalDirectory(tmp_path)
        for number in range(20):
            for name in self.FILES:
                (tmp_path / name).write_text(f"{name} {number}" + "." * number)
                (tmp_path / name).chmod(0o600)
            loaded = external.load()
            assert loaded.data["tls.key"] == b"tls.key %d" % number + b"." * number
            assert not external.stale(loaded.version)

    def test_files_that_change_all_the_time_are_an_error(self, tmp_path, monkeypatch):
        versions = iter(range(100))
        monkeypatch.setattr(storing, "_version", lambda *_: str(next(versions)))

        with pytest.raises(OSError, match="keep changing while they are read"):
            ExternalDirectory(tmp_path).load()

    def test_missing_files_are_missing_keys(self, tmp_path):
        assert ExternalDirectory(tmp_path).load().data == {}
        assert ExternalDirectory(tmp_path / "none").load() == Loaded()

    def test_is_never_written(self, mount):
        with pytest.raises(NotImplementedError):
            ExternalDirectory(mount).save(OLD, {}, None)

    def test_keys_open_to_everybody_are_warned_of_once_and_left_alone(self, tmp_path, caplog):
        key, external = tmp_path / "tls.key", ExternalDirectory(tmp_path)
        key.write_text("key")
        for permissions in (0o640, 0o644, 0o644):
            key.chmod(permissions)
            external.load()

        assert mode(key) == 0o644
        assert [record.file for record in caplog.records] == [str(key)]

    def test_a_mount_of_kubelet_is_this_pods_alone(self, mount, caplog):
        """Its files can be read by every user in the pod unless a mode is given."""
        (mount / "tls.key").chmod(0o644)

        ExternalDirectory(mount).load()

        assert caplog.records == []
