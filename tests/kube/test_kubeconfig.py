"""Kubeconfigs with which the library prints its own messages: one line says what is wrong, and
nothing else is printed.
"""

import base64
import logging
import os
import pty
import socketserver
import subprocess
import sys
import threading

import pytest

from virt_admit.kube.client import ApiClient
from virt_admit.settings import SettingError
from virt_admit_certs.kube_api import ApiError

CONFIG = """\
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {%s}}]
users: [{name: u, user: {%s}}]
"""
EXEC = "exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: %s}"
SERVER, TOKEN = 'server: "https://127.0.0.1:1"', "token: t"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            CONFIG % (SERVER, EXEC % "/nonexistent/plugin"),
            (
                "the credential plugin of the kubeconfig failed: No such file or directory: "
                "'/nonexistent/plugin'. Fix it, or use another context"
            ),
        ),
        (CONFIG % (SERVER, EXEC % "'false'"),
         "the credential plugin of the kubeconfig failed: exec: process returned 1"),
        (CONFIG % (SERVER, EXEC % "'true'"),
         "the credential plugin of the kubeconfig failed: exec: failed to decode"),
        (
            CONFIG % ('server: "10.0.0.1:6443"', TOKEN),
            "the server 10.0.0.1:6443 has no scheme. Write https://10.0.0.1:6443",
        ),
        (CONFIG % ('server: "ftp://a"', TOKEN), "the server ftp://a is not an https:// URL"),
        (CONFIG % ('server: "https://"', TOKEN), "the server https: is not an https:// URL"),
        (CONFIG % ('server: ""', TOKEN), "the cluster of the kubeconfig has no server"),
        ("apiVersion: v1\nkind: Config\nclusters: 5\ncurrent-context: x\n",
         "kubeconfig is not a valid kubeconfig. Check it"),
        ("\x80 - a", (
            "kubeconfig is not a valid kubeconfig. Check it with: "
            "kubectl config view --kubeconfig "
        )),
    ],
)  # fmt: skip
def test_one_line_says_what_is_wrong(tmp_path, capfd, monkeypatch, content, says):
    file = tmp_path / "kubeconfig"
    file.write_bytes(content.encode("latin-1"))
    handlers = list(logging.getLogger().handlers)
    with pytest.raises(SettingError) as refused:
        ApiClient.connect(str(file))
    text = str(refused.value)
    assert text.startswith("no cluster is configured: ")
    assert says in text
    assert "\n" not in text
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger().handlers == handlers


def test_a_plugin_that_works(tmp_path):
    plugin = tmp_path / "plugin"
    plugin.write_text(
        """#!/bin/sh
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}'
"""  # noqa: E501
    )
    plugin.chmod(0o755)
    (tmp_path / "kubeconfig").write_text(CONFIG % (SERVER, EXEC % plugin))
    assert ApiClient.connect(str(tmp_path / "kubeconfig"))


PROXY = SERVER + ', proxy-url: "%s"'
SECRET = "s3cret"


@pytest.mark.parametrize(
    "proxy",
    [
        "10.0.0.1:3128",
        "ftp://proxy",
        "http://[::1",
        f"user:{SECRET}@proxy",
        f"ftp://user:{SECRET}@proxy",
        "socks5://proxy",
    ],
)
@pytest.mark.parametrize("where", ["proxy-url", "HTTPS_PROXY"])
def test_a_proxy_that_cannot_be_used_is_one_line_without_its_password(
    tmp_path, monkeypatch, proxy, where
):
    no_proxies(monkeypatch)
    if where == "HTTPS_PROXY":
        monkeypatch.setenv(where, proxy)
    (tmp_path / "kubeconfig").write_text(
        CONFIG % (PROXY % proxy if where == "proxy-url" else SERVER, TOKEN)
    )
    with pytest.raises(SettingError) as refused:
        ApiClient.connect(str(tmp_path / "kubeconfig"))
    text = str(refused.value)
    assert text.startswith("no cluster is configured: ")
    assert (
        "PySocks" if proxy.startswith("socks5") else "is not an http:// or https:// URL"
    ) in text
    assert SECRET not in text
    assert "\n" not in text


def no_proxies(monkeypatch):
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class Proxy(socketserver.BaseRequestHandler):
    """Keeps what it is asked, and answers that a password is missing."""

    def handle(self):
        asked = b""
        while b"\r\n\r\n" not in asked and (piece := self.request.recv(4096)):
            asked += piece
        self.server.asked.append(asked.decode())
        self.request.sendall(
            b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
        )


@pytest.mark.parametrize("where", ["proxy-url", "HTTPS_PROXY"])
def test_the_password_of_a_proxy_is_sent_as_kubectl_does(tmp_path, monkeypatch, where):
    no_proxies(monkeypatch)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
        proxy.asked = []
        threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://user:p%40w@127.0.0.1:{proxy.server_address[1]}"
        if where == "HTTPS_PROXY":
            monkeypatch.setenv(where, url)
        (tmp_path / "kubeconfig").write_text(
            CONFIG % (PROXY % url if where == "proxy-url" else SERVER, TOKEN)
        )
        with pytest.raises(ApiError, match="407") as refused:
            ApiClient.connect(str(tmp_path / "kubeconfig")).version()
        proxy.shutdown()
    (asked,) = proxy.asked
    assert asked.startswith("CONNECT 127.0.0.1:1 ")
    assert base64.b64encode(b"user:p@w").decode() in asked
    assert "p@w" not in str(refused.value)


def test_a_plugin_that_fails_on_a_terminal_has_said_why(tmp_path):
    """Its stderr is the terminal then, and the library fails to read it."""
    (tmp_path / "kubeconfig").write_text(CONFIG % (SERVER, EXEC % "'false'"))
    command = (
        sys.executable,
        "-m",
        "virt_admit",
        "drain",
        "--all",
        "--kubeconfig",
        str(tmp_path / "kubeconfig"),
    )
    main, terminal = pty.openpty()
    run = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, text=True
    )
    os.close(terminal)
    _, error = run.communicate(timeout=60)
    os.close(main)
    assert run.returncode == 2
    assert (
        "the credential plugin of the kubeconfig failed: its own message is above. Fix it" in error
    )


def test_what_a_plugin_says_begins_no_line(tmp_path):
    plugin = tmp_path / "plugin"
    plugin.write_text("#!/bin/sh\nprintf '\\033[2Jno\\n::error::pwned\\n##vso[x]' >&2\nexit 3\n")
    plugin.chmod(0o755)
    (tmp_path / "kubeconfig").write_text(CONFIG % (SERVER, EXEC % plugin))
    command = (
        sys.executable,
        "-m",
        "virt_admit",
        "drain",
        "--all",
        "--kubeconfig",
        str(tmp_path / "kubeconfig"),
    )
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 2
    (line,) = run.stderr.splitlines()
    assert "process returned 3. no ::error::pwned" in line
    assert "\x1b" not in line
