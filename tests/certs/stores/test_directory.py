"""Directories: one generation or the other, never a mixture, whatever happens in between."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from virt_admit_certs.stores import directory as storing
from virt_admit_certs.stores.directory import Directory, ExternalDirectory
from virt_admit_certs.stores.protocol import Loaded

OLD = {"ca.crt": b"old ca", "ca.key": b"old key", "tls.crt": b"old cert", "tls.key": b"old tls", "cross.crt": b"x"}
NEW = {"ca.crt": b"new ca", "ca.key": b"new key", "tls.crt": b"new cert", "tls.key": b"new tls", "next.crt": b"y"}
NOTES = {"generation": "1"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "certs"


@pytest.fixture
def root(path: Path) -> Path:
    """A directory with OLD in it."""
    assert Directory(path).save(OLD, NOTES, None)
    return path


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def by_name(path: Path) -> dict[str, bytes]:
    """What somebody finds who opens the files by their names."""
    return {file.name: file.read_bytes() for file in path.iterdir() if not file.name.startswith(".") and file.exists()}


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
                        dict.fromkeys(OLD, b"%d" % moment), {"n": str(moment)}, storing._version(root, ())
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
    def test_a_directory_that_cannot_be_written_is_an_error_and_stays(self, root, monkeypatch, reason):
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


class Crash(BaseException):
    """The machine stops."""


class CrashingOs:
    """The os module, whose file operations stop the machine at one of them."""

    CHANGES = ("open", "mkdir", "symlink", "rename", "unlink", "fsync", "chmod", "close")

    def __init__(self, survives: int) -> None:
        self.left = survives

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self.CHANGES:
            return real

        def operation(*arguments: Any, **options: Any) -> Any:
            if name != "close":
                if self.left == 0:
                    raise Crash
                self.left -= 1
            return real(*arguments, **options)

        return operation


def crash_everywhere(monkeypatch: pytest.MonkeyPatch, prepare: Callable[[int], Path]) -> Iterator[tuple[int, Path]]:
    """Save NEW into what ``prepare`` makes, with a crash after 0, 1, 2 … operations, until none comes."""
    for survives in range(200):
        path = prepare(survives)
        version = Directory(path).load().version
        with monkeypatch.context() as patched:
            patched.setattr(storing, "os", CrashingOs(survives))
            try:
                assert Directory(path).save(NEW, NOTES, version)
                finished = True
            except Crash:
                finished = False
        yield survives, path
        if finished:
            assert survives > 10
            return
    raise AssertionError("a save has no end")


@pytest.mark.parametrize("plain", [False, True])
def test_a_crash_between_any_two_operations(tmp_path, monkeypatch, plain):
    def prepare(number: int) -> Path:
        path = tmp_path / str(number)
        if plain:
            path.mkdir()
            for name, content in OLD.items():
                (path / name).write_bytes(content)
                (path / name).chmod(0o600)
        else:
            Directory(path).save(OLD, NOTES, None)
        return path

    outcomes = []
    for number, path in crash_everywhere(monkeypatch, prepare):
        data = Directory(path).load().data
        assert data in (OLD, NEW), number
        outcomes.append(data == NEW)
        found = by_name(path)
        assert {name: found[name] for name in set(OLD) & set(NEW)} == {
            name: data[name] for name in set(OLD) & set(NEW)
        }, number
        assert Directory(path).save(NEW | {"tls.crt": b"later"}, NOTES, Directory(path).load().version), number
        assert by_name(path) == Directory(path).load().data == NEW | {"tls.crt": b"later"}, number
        assert len(list(path.glob("..gen-*"))) == 1, number

    assert outcomes == sorted(outcomes)  # old until one moment, new from then on
    assert {False, True} == set(outcomes)


def test_two_processes_on_one_directory(root):
    """Each increments a counter under compare-and-swap; readers never see a mixture; no increment is lost."""
    script = textwrap.dedent(
        """
        import sys
        from virt_admit_certs.stores.directory import Directory
        directory, done, lost = Directory(sys.argv[1]), 0, 0
        loaded = directory.load()
        print("ready", flush=True)
        sys.stdin.readline()
        while done < 60:
            number = int(loaded.notes["generation"])
            assert len(set(loaded.data.values()) - {b"start"}) <= 1, "a mixture"
            data = dict.fromkeys(("ca.crt", "ca.key", "tls.crt", "tls.key"), str(number + 1).encode())
            if directory.save(data, {"generation": str(number + 1)}, loaded.version):
                done += 1
            else:
                lost += 1
            loaded = directory.load()
        print(lost)
        """
    )
    directory = Directory(root)
    assert directory.save(dict.fromkeys(("ca.crt", "ca.key", "tls.crt", "tls.key"), b"start"), {"generation": "0"},
                          directory.load().version)  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60)[0] for process in processes]

    assert [process.returncode for process in processes] == [0, 0]
    lost = [int(text) for text in said]
    assert directory.load().notes == {"generation": "120"}
    assert sum(lost) > 0  # both began with the same version


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
        """Its files can be read by everybody in the pod unless a mode is given."""
        (mount / "tls.key").chmod(0o644)

        ExternalDirectory(mount).load()

        assert caplog.records == []
