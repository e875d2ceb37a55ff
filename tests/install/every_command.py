"""One run of every command in a process of its own,
against a cluster wherever the command can use one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.fake_api import FakeApi
from tests.paths import ROOT
from virt_admit.model.kubernetes.kinds import NODE, VM
from virt_admit.rules import load_rules


class Run(NamedTuple):
    """Arguments, and what must come of them. ``{folder}`` is the one that ``inputs`` filled."""

    arguments: str
    exit_code: int
    says: str

    def words(self, folder: str) -> list[str]:
        return [word.format(folder=folder) for word in self.arguments.split()]


LIVE = "--kubeconfig {folder}/kubeconfig"
RUNS = (
    Run("check {folder}/03-both-keys.yaml", 1, "[vm-running-and-run-strategy]"),
    Run(
        f"check {{folder}}/03-both-keys.yaml {LIVE} --policy strict -o html",
        1,
        "vm-running-and-run-strategy",
    ),
    Run(f"scan {LIVE} --policy default --all-lines", 1, "[vm-running-and-run-strategy]"),
    Run(f"drain --all {LIVE}", 0, "w1"),
    Run(f"upgrade {LIVE}", 0, "w1"),
    Run(f"outage --worst 1 {LIVE}", 0, "survive"),
    Run(f"plan {LIVE}", 0, "Nothing to do"),
    Run(f"explain {{folder}}/07-health-check.yaml {LIVE}", 0, "MachineHealthCheck"),
    Run(f"explain node/w1 {LIVE} --policy default", 0, "node w1"),
    Run(f"explain vm/db -n shop {LIVE} --policy default -o html", 0, "VM db"),
    Run("rules vm-running-and-run-strategy", 0, "runStrategy"),
    Run("manifests", 0, "ValidatingWebhookConfiguration"),
    Run(f"doctor {LIVE}", 1, "virt-admit is not installed"),
    Run("policy lint {folder}/policy.yaml", 0, "policy.yaml"),
    Run(
        f"policy show shop {LIVE} --policy {{folder}}/policy.yaml", 0, "vm-running-and-run-strategy"
    ),
    Run("policy diff default strict --cluster {folder}/cluster.yaml", 0, ""),
    Run("certs issue {folder}/certs", 0, "bootstrap"),
    Run("certs status --certs {folder}/certs", 0, "next"),
    Run("certs bundle --certs {folder}/certs", 0, "BEGIN CERTIFICATE"),
    Run("certs rotate --certs {folder}/certs", 0, "is done"),
    Run("certs verify https://127.0.0.1:1 --ca-file {folder}/certs/ca.crt", 2, "127.0.0.1:1"),
)
SERVERS = ("serve", "watch")
"""Commands that run until a signal stops them."""


@contextmanager
def inputs(folder: Path) -> Iterator[FakeApi]:
    """Run an API server on loopback, and fill the folder with what the runs read."""
    with FakeApi() as api:
        for kind in {*load_rules().kinds, *(kind for rule in load_rules() for kind in rule.reads)}:
            api.install(kind)
        node: dict[str, Any] = {
            "metadata": {"name": "w1"},
            "status": {"allocatable": {"cpu": "8", "memory": "32Gi"}},
        }
        api.put(NODE, node)
        both = {
            "running": True,
            "runStrategy": "Always",
            "template": {"spec": {"domain": {"devices": {}}}},
        }
        api.put(VM, {"metadata": {"name": "db", "namespace": "shop"}, "spec": both})
        api.kubeconfig(folder)
        (folder / "policy.yaml").write_text(
            "apiVersion: virt-admit.io/v1alpha1\nkind: Policy\nextends: default\n"
        )
        for name in ("03-both-keys.yaml", "07-health-check.yaml", "cluster.yaml"):
            shutil.copy(ROOT / "examples" / name, folder)
        yield api
