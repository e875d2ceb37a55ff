"""Kubeconfigs with which the library prints its own messages: one line says what is wrong, and nothing else is printed."""

import logging

import pytest

from virt_admit.kube.client import ApiClient
from virt_admit.settings import SettingError

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
            "the credential plugin of the kubeconfig failed: No such file or directory: '/nonexistent/plugin'. "
            "Fix it, or use another context",
        ),
        (CONFIG % (SERVER, EXEC % "'false'"), "the credential plugin of the kubeconfig failed: exec: process returned 1"),
        (CONFIG % (SERVER, EXEC % "'true'"), "the credential plugin of the kubeconfig failed: exec: failed to decode"),
        (
            CONFIG % ('server: "10.0.0.1:6443"', TOKEN),
            "the server 10.0.0.1:6443 has no scheme. Write https://10.0.0.1:6443",
        ),
        (CONFIG % ('server: ""', TOKEN), "the cluster of the kubeconfig has no server"),
        ("apiVersion: v1\nkind: Config\nclusters: 5\ncurrent-context: x\n", "kubeconfig is not a valid kubeconfig. Check it"),
        ("\x80 - a", "kubeconfig is not a valid kubeconfig. Check it with: kubectl config view --kubeconfig "),
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
"""
    )
    plugin.chmod(0o755)
    (tmp_path / "kubeconfig").write_text(CONFIG % (SERVER, EXEC % plugin))
    assert ApiClient.connect(str(tmp_path / "kubeconfig"))
