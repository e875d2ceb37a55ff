"""What a cluster has and an API server alone has not: nodes that run the webhook's pods, and a
network to reach them.

The controllers are Kubernetes' own. Each container is a process of this machine with the arguments
and variables of its pod. The API server reaches Services and kubelets through a proxy
(``EgressSelectorConfiguration``), so webhook configurations are used as they are shipped: with a
Service, not with a URL.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import signal
import socket
import socketserver
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.apiserver.binaries import Binaries, controller_manager
from tests.apiserver.control_plane import ControlPlane, Server, free_port
from tests.prefork import virt_admit
from virt_admit_certs.kube_api import ApiError, KubeApi

NODES: Final = ("worker-1", "worker-2")
KUBELET: Final = 10250
CONTROLLERS: Final = (
    "deployment-controller", "replicaset-controller", "namespace-controller",
    "endpointslice-controller",
    "garbage-collector-controller", "cronjob-controller", "job-controller", "disruption-controller",
)  # fmt: skip
MERGE: Final = "application/merge-patch+json"
PODS: Final = "/api/v1/pods?resourceVersion=0"
"""From the memory of the API server: it would ask etcd otherwise, five times a second."""
PROBE_PERIOD: Final = 1.0
"""Seconds between two readiness probes of a pod that is ready."""
Json = dict[str, Any]


@dataclass
class Container:
    """One pod of ours: a process, its log and its ports."""

    namespace: str
    pod: str
    log: Path
    serves: bool
    port: int = field(default_factory=free_port)
    ops_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    ready: bool = False
    probed: float = 0.0
    ending: bool = False

    def start(self, container: Json, kubeconfig: Path, home: Path) -> None:
        """Run ``virt-admit`` with the arguments and variables of the container, on loopback."""
        environment = {
            each["name"]: each["value"] for each in container.get("env", ()) if "value" in each
        }
        arguments = [*container["args"], "--kubeconfig", str(kubeconfig)]
        if self.serves:
            arguments += [f"--bind=127.0.0.1:{self.port}", f"--ops-bind=127.0.0.1:{self.ops_port}"]
            # the default where a kubelet runs the pod
            arguments += ["--certs-secret", "virt-admit/virt-admit-certs"]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [virt_admit(), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"HOME": str(home), "PATH": os.environ["PATH"], **environment},
            )

    def probe(self) -> bool:
        """Return whether its readiness probe succeeds;
        what the last one said if it said yes a moment ago.
        """
        if self.ready and time.monotonic() < self.probed + PROBE_PERIOD:
            return True
        self.probed = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.ops_port, timeout=2)
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            contextlib.closing(connection),
        ):
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        return False

    def metric(self, name: str) -> float:
        """Return the value of a metric without labels."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.ops_port}/metrics", timeout=10
        ) as response:
            lines = [line.rpartition(" ") for line in response.read().decode().splitlines()]
        (value,) = [value for found, _, value in lines if found == name]
        return float(value)

    def terminate(self) -> bool:
        """Ask the process to end, as a kubelet does. Return whether it has ended."""
        if self.process is None or self.process.poll() is not None:
            return True
        if not self.ending:
            self.ready, self.ending = False, True
            self.process.send_signal(signal.SIGTERM)
        return False

    def kill(self) -> None:
        """End the process now; a second call does nothing."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)  # gunicorn's workers end with their master
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Cluster(ControlPlane):
    """A control plane with Kubernetes' controllers, two nodes,
    and a network from the API server to their pods.
    """

    def __init__(self, found: Binaries | None = None) -> None:
        super().__init__(found, ["--egress-selector-config-file=egress.yaml"])
        self.containers: dict[str, Container] = {}
        """By the UID of the pod."""
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listeners: list[socketserver.BaseServer] = []

    def start(self) -> None:
        super().start()
        try:
            self._start_kubelet()
            self._start_controllers()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(30)
        for container in self.containers.values():
            container.terminate()
        for container in self.containers.values():
            container.kill()
        for listener in self._listeners:
            listener.shutdown()
            listener.server_close()
        self._threads, self._listeners = [], []
        self._kill("kube-controller-manager")
        super().stop()

    def start_apiserver(self) -> None:
        if not self._listeners:
            self._start_network()
        super().start_apiserver()

    def pods_of_service(self) -> Sequence[Container]:
        """The ready pods behind the webhook's Service."""
        return [each for each in self.containers.values() if each.serves and each.ready]

    # The network

    def _start_network(self) -> None:
        """Route what the API server sends into the cluster: pods by the Service,
        kubelets by the node.
        """
        egress = self.folder / "egress.sock"
        selection = {
            "name": "cluster",
            "connection": {
                "proxyProtocol": "HTTPConnect",
                "transport": {"uds": {"udsName": str(egress)}},
            },
        }
        kind = {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration"}
        (self.folder / "egress.yaml").write_text(
            json.dumps({**kind, "egressSelections": [selection]})
        )
        self._kubelet_port = free_port()
        proxy = _Proxy(str(egress), self)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "tls.crt", self.folder / "tls.key")
        kubelet = _Kubelet(("127.0.0.1", self._kubelet_port), self)
        kubelet.socket = context.wrap_socket(kubelet.socket, server_side=True)
        for listener in (proxy, kubelet):
            threading.Thread(target=listener.serve_forever, daemon=True).start()
            self._listeners.append(listener)

    def route(self, port: int) -> int | None:
        """Return the loopback port for a connection to that port of a Service or node;
        None if nothing listens.
        """
        if port == KUBELET:
            return self._kubelet_port
        found = self.pods_of_service()
        return found[time.monotonic_ns() % len(found)].port if found else None

    # Controllers and kubelets

    def _start_controllers(self) -> None:
        port = free_port()
        self._servers["kube-controller-manager"] = Server(
            [
                controller_manager(),
                f"--kubeconfig={self.kubeconfig}",
                f"--controllers={','.join(CONTROLLERS)}",
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                "--tls-cert-file=tls.crt",
                "--tls-private-key-file=tls.key",
                "--namespace-sync-period=10s",
            ],
            self.folder / "kube-controller-manager.log",
        )
        self._wait_for("/healthz", port)

    def _start_kubelet(self) -> None:
        self._api = KubeApi.connect(str(self.kubeconfig))
        for number, name in enumerate(NODES, 1):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            status = {
                "addresses": [{"type": "InternalIP", "address": f"10.244.{number}.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET}},
                "conditions": [{"type": "Ready", "status": "True"}],
                "capacity": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            }
            self._send("POST", "/api/v1/nodes", node)
            self._send("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
        thread = threading.Thread(target=self._run_pods, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _send(self, method: str, path: str, body: Json | None = None) -> Json:
        media = MERGE if method == "PATCH" else "application/json"
        return dict(self._api.request_json(method, path, body, media_type=media).body)

    def _run_pods(self) -> None:
        while not self._ended.wait(0.2):
            with contextlib.suppress(ApiError):  # the API server restarts
                for number, pod in enumerate(self._send("GET", PODS).get("items", ())):
                    self._run_pod(pod, NODES[number % len(NODES)])

    def _run_pod(self, pod: Json, node: str) -> None:
        """Bring one pod a step further: bound, started, ready, ended, gone."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        running = self.containers.get(metadata["uid"])
        if "deletionTimestamp" in metadata:
            if running is None or running.terminate():
                self._send("DELETE", path, {"gracePeriodSeconds": 0})
        elif not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            name = {"name": metadata["name"]}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": name, "target": target}
            self._send("POST", f"{path}/binding", binding)
        elif running is None:
            self.containers[metadata["uid"]] = self._start_container(pod)
        elif pod["status"].get("phase") not in ("Succeeded", "Failed"):
            self._report(path, pod, running)

    def _start_container(self, pod: Json) -> Container:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        serves = container["args"][0] == "serve"
        started = Container(namespace, name, self.folder / f"{name}.log", serves)
        account = self._account(namespace, pod["spec"]["serviceAccountName"])
        started.start(container, account, self.folder)
        return started

    def _account(self, namespace: str, name: str) -> Path:
        """Return a kubeconfig of the pod's service account."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        token = self._send("POST", path, request)["status"]["token"]
        return self._write_kubeconfig(f"kubeconfig-{namespace}-{name}", {"token": token})

    def _report(self, path: str, pod: Json, running: Container) -> None:
        """Write the status of a pod if it changed."""
        assert running.process is not None
        code = running.process.poll()
        running.ready = code is None and running.serves and running.probe()
        phase = "Running" if code is None else "Failed" if code else "Succeeded"
        ready = "True" if running.ready else "False"
        state: Json = {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}}
        if code is not None:
            state = {
                "terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
            }
        (container,) = pod["spec"]["containers"]
        image = {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "restartCount": 0,
        }
        address = f"10.244.0.{running.port % 250 + 2}"
        status = {
            "phase": phase,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [
                {"type": kind, "status": ready} for kind in ("Ready", "ContainersReady")
            ],
            "containerStatuses": [
                {**image, "ready": running.ready, "started": True, "state": state}
            ],
        }
        now = pod["status"]
        shown = {each["type"]: each["status"] for each in now.get("conditions", ())}.get("Ready")
        if (now.get("phase"), shown) != (phase, ready):
            self._send("PATCH", f"{path}/status", {"status": status})


class _Proxy(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """The HTTP CONNECT proxy of the API server's egress."""

    daemon_threads = True

    def __init__(self, path: str, cluster: Cluster) -> None:
        self.cluster = cluster
        super().__init__(path, _Connect)


class _Connect(socketserver.StreamRequestHandler):
    """One connection of the API server into the cluster."""

    server: _Proxy

    def handle(self) -> None:
        target = self.rfile.readline().split()[1].decode()
        while self.rfile.readline().strip():
            pass
        port = self.server.cluster.route(int(target.rpartition(":")[2]))
        try:
            far = socket.create_connection(("127.0.0.1", port or 0), timeout=5)
        except OSError:
            self.wfile.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            return
        far.settimeout(None)
        self.wfile.write(b"HTTP/1.1 200 Connection Established\r\n\r\n")
        back = threading.Thread(target=_copy, args=(far, self.connection), daemon=True)
        back.start()
        _copy(self.connection, far)
        back.join()
        far.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


class _Kubelet(http.server.ThreadingHTTPServer):
    """The part of a kubelet that ``kubectl logs`` uses."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], cluster: Cluster) -> None:
        self.cluster = cluster
        super().__init__(address, _Logs)


class _Logs(http.server.BaseHTTPRequestHandler):
    """GET /containerLogs/NAMESPACE/POD/CONTAINER."""

    server: _Kubelet

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        _, verb, namespace, pod, _ = url.path.split("/")
        found = [
            each
            for each in self.server.cluster.containers.values()
            if (each.namespace, each.pod) == (namespace, pod) and verb == "containerLogs"
        ]
        previous = parse_qs(url.query).get("previous") == ["true"]
        body = (
            found[0].log.read_bytes()
            if found and not previous
            else b"previous terminated container not found"
        )
        self.send_response(400 if previous or not found else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
