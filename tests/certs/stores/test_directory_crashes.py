"""A crash between any two file operations, and two processes on one directory."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certs.stores.generations import NEW, NOTES, OLD, by_name
from virt_admit_certs.stores import directory as storing
from virt_admit_certs.stores.directory import Directory


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


def crash_everywhere(
    monkeypatch: pytest.MonkeyPatch, prepare: Callable[[int], Path]
) -> Iterator[tuple[int, Path]]:
    """Save NEW into what ``prepare`` makes, with a crash after 0, 1, 2 … operations,
    until none comes.
    """
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
        assert Directory(path).save(
            NEW | {"tls.crt": b"later"}, NOTES, Directory(path).load().version
        ), number
        assert by_name(path) == Directory(path).load().data == NEW | {"tls.crt": b"later"}, number
        assert len(list(path.glob("..gen-*"))) == 1, number

    assert outcomes == sorted(outcomes)  # old until one moment, new from then on
    assert {False, True} == set(outcomes)


@pytest.mark.slow
def test_two_processes_on_one_directory(root):
    """Each increments a counter under compare-and-swap; readers never see a mixture;
    no increment is lost.
    """
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
        """  # noqa: E501
    )
    directory = Directory(root)
    assert directory.save(dict.fromkeys(("ca.crt", "ca.key", "tls.crt", "tls.key"), b"start"),
                          {"generation": "0"},
                          directory.load().version)  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
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
