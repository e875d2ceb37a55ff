"""A real Kubernetes API server on loopback, for end-to-end tests and ``make sandbox``."""

from __future__ import annotations

import atexit
import hashlib
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import trustme

from tests.apiserver.binaries import Binaries, binaries

START_SECONDS = 60.0
ADMIN = "virt-admit-admin"
# A socket in the working directory of both servers: no port to collide, readable by no other user.
# Its name has a port because etcd 3.5 wants one.
ETCD = "unix://etcd.sock:1"

GO: Final = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}
"""Programs in Go collect garbage less often, which takes a fifth off the processor time of
kube-apiserver. Each may hold five times its objects, up to the limit from which they collect more
often. With the definitions of all kinds kube-apiserver has 360 MiB of objects.
"""

KUBERC: Final = {
    "apiVersion": "kubectl.config.k8s.io/v1beta1",
    "kind": "Preference",
    "defaults": [{"command": "apply", "options": [{"name": "openapi-patch", "default": "false"}]}],
}
"""Settings for all kubectl of the tests: ``apply`` computes patches of built-in kinds with its own
types instead of the whole OpenAPI document, which has the same. To write that document takes
kube-apiserver 1.4 s after each change of a definition, and to read it takes each kubectl 0.1 s.
"""

# The server becomes the process that we started, so that we can signal and await it; a watcher in
# its process group kills the group as soon as our end of the pipe is gone, which it is even when we
# are killed with -9.
GUARD = 'exec 3<&0; (read -r _ <&3; kill -KILL 0) & exec "$@" 3<&- </dev/null'


class StartError(RuntimeError):
    """A server did not come up; the text has the end of its log."""


class Server:
    """One running server process, which never outlives us."""

    def __init__(self, command: Sequence[str | Path], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", GUARD, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=log.parent,
                env=_environment(log.parent),
                start_new_session=True,  # Ctrl-C is for us; we stop the servers in order
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def terminate(self) -> None:
        """Ask the process to end, as Kubernetes does."""
        self._process.terminate()

    def wait(self, patience: float = 60.0) -> int:
        """The exit code of a process that ends. Raises TimeoutExpired after that many seconds."""
        return self._process.wait(patience)

    def kill(self) -> None:
        """End the process and its watcher, at once: there is no state worth a graceful exit."""
        if self._process.stdin and not self._process.stdin.closed:
            # the group lives on with the watcher, so the id is still ours
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            self._process.stdin.close()


class ControlPlane:
    """etcd and kube-apiserver with RBAC, in a temporary folder, without any controller.

    So no ServiceAccount or token appears by itself, and a namespace or an object with dependents
    that is deleted stays. Webhooks must be registered by URL: nothing routes to Services.

    >>> with ControlPlane() as plane:
    ...     plane.kubectl("get", "namespaces", check=True).stdout
    """

    def __init__(
        self,
        found: Binaries | None = None,
        apiserver_flags: Sequence[str] = (),
        stored: Path | None = None,
    ) -> None:
        self.binaries = found or binaries()
        self.apiserver_flags = tuple(apiserver_flags)
        self.stored = stored
        """The data directory that etcd begins with a copy of (``prepared``)."""
        self.token = secrets.token_hex(16)
        """The bearer token of a member of system:masters."""
        self._servers: dict[str, Server] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start both servers and wait until they serve.

        Raises StartError; nothing is left behind then.
        """
        self.folder = Path(tempfile.mkdtemp(prefix="virt-admit-apiserver-"))
        atexit.register(self.stop)
        try:
            self._port = free_port()
            self.url = f"https://127.0.0.1:{self._port}"
            self._write_credentials()
            self.kubeconfig = self._write_kubeconfig("kubeconfig", {})
            (self.folder / "kuberc").write_text(json.dumps(KUBERC))
            self._start_etcd()
            self.start_apiserver()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill all servers and remove their folder; a second call does nothing."""
        for name in ("kube-scheduler", "kube-apiserver", "etcd"):
            self._kill(name)
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.stop)

    def start_apiserver(self) -> None:
        """Start kube-apiserver where it was before: same port, credentials and stored objects."""
        self._servers["kube-apiserver"] = Server(
            [
                self.binaries.kube_apiserver,
                f"--etcd-servers={ETCD}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={self._port}",
                # loopback is not a valid endpoint of the kubernetes Service
                "--endpoint-reconciler-type=none",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--tls-cert-file=tls.crt",
                "--tls-private-key-file=tls.key",
                "--token-auth-file=tokens.csv",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-account-key-file=tls.key",
                "--service-account-signing-key-file=tls.key",
                # no controller makes the account that pods would need
                "--disable-admission-plugins=ServiceAccount",
                *self.apiserver_flags,
            ],
            self.folder / "kube-apiserver.log",
        )
        # /readyz comes first; the default namespace is made by a hook that /readyz does not wait
        # for
        for path in ("/readyz", "/api/v1/namespaces/default"):
            self._wait_for(path)

    def stop_apiserver(self) -> None:
        """Kill kube-apiserver; etcd and what it stores stay."""
        self._kill("kube-apiserver")

    def restart_apiserver(self) -> None:
        self.stop_apiserver()
        self.start_apiserver()

    def copy_stored(self, folder: Path) -> None:
        """Stop both servers, and copy what etcd has stored."""
        self.stop_apiserver()
        self._kill("etcd")
        _copy(self.folder / "etcd", folder)

    @contextmanager
    def scheduler(self) -> Iterator[Server]:
        """Run kube-scheduler until the block ends; its first use on a machine builds it.

        It binds every Pod without a node that it sees, so a test that shares the API server starts
        it only for its own Pods. Nodes must be Ready and without the taint
        ``node.kubernetes.io/not-ready``: the API server adds that taint to each new Node, and the
        controller that would remove it does not run here.
        """
        port = free_port()
        self._servers["kube-scheduler"] = server = Server(
            [
                self.binaries.kube_scheduler(),
                f"--kubeconfig={self.kubeconfig}",
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                "--tls-cert-file=tls.crt",
                "--tls-private-key-file=tls.key",
            ],
            self.folder / "kube-scheduler.log",
        )
        try:
            self._wait_for("/readyz", port)
            yield server
        finally:
            self._kill("kube-scheduler")

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the servers that run."""
        return tuple(server.pid for server in self._servers.values() if server.running)

    def kubectl(
        self,
        *args: str | Path,
        input: str | None = None,
        check: bool = False,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl, as administrator unless another kubeconfig is given.

        With ``check``, raises CalledProcessError with what kubectl wrote as a note.
        """
        done = subprocess.run(
            [self.binaries.kubectl, *args],
            input=input,
            check=False,
            text=True,
            capture_output=True,
            timeout=120,
            cwd=self.folder,
            env=_environment(self.folder) | self.kubectl_settings(kubeconfig),
        )
        if check and done.returncode:
            error = subprocess.CalledProcessError(
                done.returncode, done.args, done.stdout, done.stderr
            )
            error.add_note(done.stderr)
            raise error
        return done

    def kubectl_settings(self, kubeconfig: Path | None = None) -> dict[str, str]:
        """The variables with which any kubectl finds this server,
        as administrator unless another kubeconfig is given.
        """
        return {
            "KUBECONFIG": str(kubeconfig or self.kubeconfig),
            "KUBERC": str(self.folder / "kuberc"),
        }

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig that acts as that user, by impersonation;
        RBAC and webhooks see only the user.
        """
        name = hashlib.sha256(repr((user, tuple(groups))).encode()).hexdigest()[:16]
        return self._write_kubeconfig(f"kubeconfig-{name}", {"as": user, "as-groups": list(groups)})

    def service_account_token(self, namespace: str, name: str) -> str:
        """A bearer token of that service account (``kubectl --token``);
        account and namespace are made if missing.
        """
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace},
        }
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        both = {"apiVersion": "v1", "kind": "List", "items": [home, account]}
        self.kubectl("apply", "-f", "-", input=json.dumps(both), check=True)
        return self.kubectl(
            "create", "token", name, "--namespace", namespace, check=True
        ).stdout.strip()

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a token of that service account and nothing else;
        made as its token is.
        """
        token = self.service_account_token(namespace, name)
        return self._write_kubeconfig(f"kubeconfig-{namespace}-{name}", {"token": token})

    def serves(self, path: str, port: int | None = None) -> bool:
        """Return whether a GET of that path succeeds now,
        on the port of the API server or of another server.
        """
        trust = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        connection = http.client.HTTPSConnection(
            "127.0.0.1", port or self._port, context=trust, timeout=5
        )
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _start_etcd(self) -> None:
        if self.stored:
            _copy(self.stored, self.folder / "etcd")
        self._servers["etcd"] = Server(
            [
                self.binaries.etcd,
                "--data-dir=etcd",
                f"--listen-client-urls={ETCD}",
                # must be host:port; it is not used
                "--advertise-client-urls=http://127.0.0.1:2379",
                "--listen-peer-urls=http://127.0.0.1:0",
                "--unsafe-no-fsync",  # the data need not survive the machine
                "--log-level=warn",
            ],
            self.folder / "etcd.log",
        )

    def _kill(self, name: str) -> None:
        if server := self._servers.pop(name, None):
            server.kill()

    def _wait_for(self, path: str, port: int | None = None) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self.serves(path, port):
            gone = [name for name, server in self._servers.items() if not server.running]
            if gone or time.monotonic() > deadline:
                why = f"{gone[0]} exited" if gone else f"no {path} after {START_SECONDS:.0f} s"
                logs = "\n".join(
                    f"--- {s.log.name}\n{_tail(s.log)}" for s in self._servers.values()
                )
                raise StartError(f"a server did not start: {why}\n{logs}")
            time.sleep(0.1)

    def _write_credentials(self) -> None:
        ca = trustme.CA()
        serving = ca.issue_cert("127.0.0.1", "localhost")
        ca.cert_pem.write_to_path(self.folder / "ca.crt")
        serving.cert_chain_pems[0].write_to_path(self.folder / "tls.crt")
        serving.private_key_pem.write_to_path(self.folder / "tls.key")
        (self.folder / "tokens.csv").write_text(f"{self.token},{ADMIN},{ADMIN},system:masters\n")

    def _write_kubeconfig(self, name: str, user: dict[str, Any]) -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "sandbox",
                    "cluster": {
                        "server": self.url,
                        "certificate-authority": str(self.folder / "ca.crt"),
                    },
                }
            ],
            "users": [{"name": "user", "user": {"token": self.token, **user}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "user"}}],
            "current-context": "sandbox",
        }
        path = self.folder / name
        path.write_text(json.dumps(config, indent=1))  # JSON is YAML
        return path


def free_port() -> int:
    """A free loopback port outside the range that the kernel hands out,
    and a different one each time.

    So no process is given it by chance between this call and its use, nor while the server on it
    restarts. Nor is any other process that asks here, until this one ends: each port is reserved by
    the name of a socket.
    """
    while True:
        port = 20_000 + secrets.randbelow(10_000)
        with socket.socket() as probe, socket.socket(socket.AF_UNIX) as reservation:
            try:
                probe.bind(("127.0.0.1", port))
                # not a file, and gone with this process
                reservation.bind(f"\0virt-admit-test-port-{port}")
            except OSError:
                continue
            reservation.detach()
        return port


def _copy(source: Path, target: Path) -> None:
    """Copy a data directory of etcd, of which most are zeros."""
    subprocess.run(["cp", "--archive", "--sparse=always", source, target], check=True)


def _environment(home: Path) -> dict[str, str]:
    """A clean environment: no ETCD_*, no proxies, no settings of the developer's own kubectl."""
    return {"HOME": str(home), "PATH": os.environ.get("PATH", os.defpath), **GO}


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-25:])
