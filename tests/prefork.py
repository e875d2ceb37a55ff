"""``virt-admit`` as programs that import nothing:
each run is a copy of a process that has imported all modules.

To start an interpreter and to import the modules of a verb takes 0.6 s of processor time; most
verbs then need 0.1 s, and the end-to-end tests run hundreds of them. A run still is a process of
its own, with its own arguments, variables, folder, files and exit code. tests/cli/test_main.py,
most of tests/https and tests/release start the real programs.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

PROGRAMS: Final = {
    "virt-admit": "virt_admit.cli.main",
    "kubectl-virt_admit": "virt_admit.cli.main",
    "kubectl_complete-virt_admit": "virt_admit.cli.kubectl_complete",
}
"""The programs of pyproject.toml, and the modules whose ``main`` they run."""
STANDARD: Final = (0, 1, 2)
"""The file descriptors that a run takes over."""

CLIENT: Final = """\
#!{python} -IS
import _signal, _socket, json, os, sys

keeper = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
keeper.connect({address!r})
files = b"".join(number.to_bytes(4, sys.byteorder) for number in {files})
start = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
keeper.sendmsg([start], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
run = int(keeper.recv(32))
for sent in _signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP:
    _signal.signal(sent, lambda sent, _: os.kill(run, sent))
code = int(keeper.recv(32))
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
"""What stands in the place of the program. It passes on signals, and ends as the run does."""


@functools.cache
def folder(python: Path = Path(sys.executable)) -> Path:
    """Return the folder of the programs, for ``PATH``, with what this Python imports.

    Their runs end with this process.
    """
    made = Path(tempfile.mkdtemp(prefix="virt-admit-programs-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(made / "socket"))
        listener.listen(64)
        process = subprocess.Popen(
            [python, "-P", __file__, str(listener.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env={"PATH": os.environ.get("PATH", os.defpath)},
            start_new_session=True,
        )
    atexit.register(process.communicate)
    text = CLIENT.format(python=sys.executable, address=str(made / "socket"), files=STANDARD)
    for name in PROGRAMS:
        (made / name).write_text(text)
        (made / name).chmod(0o755)
    return made


def virt_admit() -> Path:
    """Return the program ``virt-admit``."""
    return folder() / "virt-admit"


def _import_all() -> None:
    for name in ("virt_admit", "virt_admit_certs"):
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    importlib.import_module("kubernetes.config")
    gc.collect()
    gc.freeze()  # a run does not search these objects for garbage


def _next_run(listener: socket.socket) -> Callable[[], Any]:
    """Return in the process of each run, with what it does."""
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:  # the process of the tests is gone
            sys.exit()
        client, _ = listener.accept()
        if os.fork() == 0:
            os.setsid()
            start, files, _, _ = socket.recv_fds(client, 1 << 20, len(STANDARD))
            if (run := os.fork()) == 0:
                return _become(*json.loads(start), files)
            _keep(run, client)
        client.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # keepers of earlier runs
                pass


def _keep(run: int, client: socket.socket) -> None:
    """Tell the client how the run ended.

    End the run where the client was killed, or the process of the tests.
    """
    client.send(str(run).encode())
    process = os.pidfd_open(run)
    ready, _, _ = select.select([process, client, sys.stdin], [], [])
    if process not in ready:
        os.killpg(0, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(run, 0)[1])
    with contextlib.suppress(OSError):
        client.send(str(code).encode())
    os._exit(0)


def _become(
    words: list[str], place: str, variables: dict[str, str], files: list[int]
) -> Callable[[], Any]:
    """Take over what the client was started with; return the ``main`` of its program."""
    for number, file in zip(STANDARD, files, strict=True):
        os.dup2(file, number)
    os.closerange(len(STANDARD), 1024)
    os.chdir(place)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = words
    # kubernetes reads this variable when it is imported
    default = os.environ.get("KUBECONFIG", "~/.kube/config")
    importlib.import_module("kubernetes.config.kube_config").KUBE_CONFIG_DEFAULT_LOCATION = default  # type: ignore[attr-defined]
    found: Callable[[], Any] = importlib.import_module(PROGRAMS[Path(words[0]).name]).main
    return found


def _finish(main: Callable[[], Any]) -> NoReturn:
    """Run a program and end as an interpreter does,
    except that the kernel frees the memory of all modules.
    """
    try:
        code = main()
    except SystemExit as ended:
        code = ended.code
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    _import_all()
    _finish(_next_run(socket.socket(fileno=int(sys.argv[1]))))
