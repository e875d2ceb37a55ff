"""Directories: one generation or the other, never a mixture, whatever happens in between."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path

import pytest

from tests.certs.stores.generations import NEW, NOTES, OLD, by_name, mode
from virt_admit_certs.stores import directory as storing
from virt_admit_certs.stores.directory import Directory
from virt_admit_certs.stores.protocol import Loaded


class TestSaved:
    def test_is_loaded(self, root):
        loaded = Directory(root).load()

        assert (loaded.data, loaded.notes) == (OLD, NOTES)
        assert loaded.version.startswith("..gen-")
        assert loaded.date is None

    def test_nothing_yet(self, path):
        assert Directory(path).load() == Loaded()
        assert not path.exists()

    def test_can_be_read_as_files(self, root):
        assert by_name(root) == OLD

    def test_keys_are_private(self, root):
        generation = root / os.readlink(root / "..data")

        assert (mode(root), mode(generation)) == (0o700, 0o700)
        assert {mode(generation / name) for name in OLD if name.endswith(".key")} == {0o600}
        assert mode(root / ".lock") == 0o600

    def test_keys_are_private_under_any_umask(self, path):
        before = os.umask(0)
        try:
            Directory(path).save(OLD, NOTES, None)
        finally:
            os.umask(before)

        assert {mode(path / name) for name in OLD if name.endswith(".key")} == {0o600}
        assert {mode(directory) for directory in (path, path / "..data")} == {0o700}

    def test_replaces_everything(self, root):
        directory = Directory(root)

        assert directory.save(NEW, {"generation": "2"}, directory.load().version)

        loaded = directory.load()
        assert (loaded.data, loaded.notes) == (NEW, {"generation": "2"})
        assert by_name(root) == NEW
        assert len(list(root.glob("..gen-*"))) == 1
        assert not (root / "cross.crt").is_symlink()

    def test_somebody_elses_files_stay(self, root):
        (root / "notes.txt").write_bytes(b"mine")

        Directory(root).save(NEW, NOTES, Directory(root).load().version)

        assert by_name(root) == NEW | {"notes.txt": b"mine"}

    def test_a_save_over_another_version_is_lost(self, root):
        directory = Directory(root)
        stale = directory.load().version
        assert directory.save(NEW, NOTES, stale)

        for version in (stale, None, "..gen-0000"):
            assert not directory.save(OLD, NOTES, version)
        assert directory.load().data == NEW

    def test_a_save_while_another_is_saving_is_lost(self, root):
        directory = Directory(root)
        version = directory.load().version
        with storing._locked(root / ".lock") as held:
            assert held
            assert not directory.save(NEW, NOTES, version)

        assert directory.save(NEW, NOTES, version)

    def test_stale(self, root):
        directory = Directory(root)
        version = directory.load().version

        assert not directory.stale(version)
        assert directory.stale(None)
        Directory(root).save(NEW, NOTES, version)
        assert directory.stale(version)

    def test_notes_and_files_are_of_one_generation(self, root, monkeypatch):
        """Another process saves between any two files that are read."""
        original = Path.read_bytes
        for moment in range(len(OLD) + 1):
            reads = []

            def read(file: Path, moment: int = moment, reads: list[Path] = reads) -> bytes:
                reads.append(file)
                if len(reads) == moment + 1:
                    other = Directory(root)
                    assert other.save(
                        dict.fromkeys(OLD, b"%d" % moment),
                        {"n": str(moment)},
                        storing._version(root, ()),
                    )
                return original(file)

            with monkeypatch.context() as patched:
                patched.setattr(Path, "read_bytes", read)
                loaded = Directory(root).load()

            assert set(loaded.data.values()) == {b"%d" % moment}
            assert loaded.notes == {"n": str(moment)}

    @pytest.mark.parametrize("notes", [b"", b"{", b"[1]", b"\xff", b"3", None])
    def test_lost_notes_break_nothing(self, root, notes):
        file = root / "..data" / "notes.json"
        file.unlink() if notes is None else file.write_bytes(notes)

        assert Directory(root).load().notes == {}
        assert Directory(root).load().data == OLD

    def test_notes_are_texts(self, root):
        (root / "..data" / "notes.json").write_text(json.dumps({"generation": 7}))

        assert Directory(root).load().notes == {"generation": "7"}

    def test_parents_are_made(self, tmp_path):
        assert Directory(tmp_path / "a" / "b").save(OLD, NOTES, None)
        assert Directory(tmp_path / "a" / "b").load().data == OLD

    @pytest.mark.parametrize("reason", [errno.EROFS, errno.EACCES, errno.ENOSPC])
    def test_a_directory_that_cannot_be_written_is_an_error_and_stays(
        self, root, monkeypatch, reason
    ):
        def refuse(*_: object) -> None:
            raise OSError(reason, os.strerror(reason))

        version = Directory(root).load().version
        with monkeypatch.context() as patched:
            patched.setattr(os, "mkdir" if reason == errno.EROFS else "fsync", refuse)
            with pytest.raises(OSError, match=os.strerror(reason)):
                Directory(root).save(NEW, NOTES, version)

        assert Directory(root).load().data == by_name(root) == OLD
        assert len(list(root.glob("..gen-*"))) == 1  # what was begun takes no room
        assert Directory(root).save(NEW, NOTES, version)
        assert len(list(root.glob("..gen-*"))) == 1


class TestPlainFiles:
    @pytest.fixture
    def plain(self, path: Path) -> Path:
        path.mkdir()
        for name, content in OLD.items():
            (path / name).write_bytes(content)
            (path / name).chmod(0o600)
        return path

    def test_are_loaded(self, plain):
        loaded = Directory(plain).load()

        assert (loaded.data, loaded.notes) == (OLD, {})
        assert loaded.version is not None

    def test_are_adopted_by_the_first_save(self, plain):
        directory = Directory(plain)

        assert directory.save(NEW, NOTES, directory.load().version)

        assert directory.load().data == by_name(plain) == NEW
        assert all((plain / name).is_symlink() for name in NEW)

    def test_somebody_elses_certificate_is_not_overwritten(self, plain):
        (plain / "ca.key").unlink()
        before = by_name(plain)

        with pytest.raises(FileExistsError, match="--certs-external"):
            Directory(plain).save(NEW, NOTES, Directory(plain).load().version)

        assert by_name(plain) == before

    def test_a_save_over_changed_files_is_lost(self, plain):
        directory = Directory(plain)
        version = directory.load().version
        (plain / "tls.crt").write_bytes(b"changed meanwhile")

        assert directory.stale(version)
        assert not directory.save(NEW, NOTES, version)
        assert by_name(plain)["tls.crt"] == b"changed meanwhile"

    def test_key_files_that_others_can_read_are_tightened_with_a_warning(self, plain, caplog):
        (plain / "tls.key").chmod(0o644)
        (plain / "tls.crt").chmod(0o644)

        Directory(plain).load()

        assert (mode(plain / "tls.key"), mode(plain / "tls.crt")) == (0o600, 0o644)
        assert [(record.levelno, record.file) for record in caplog.records] == [
            (logging.WARNING, str(plain / "tls.key"))
        ]
        caplog.clear()
        Directory(plain).load()
        assert not caplog.records
