"""``scan`` names the VMs that KubeVirt itself wrote although no user may."""

from __future__ import annotations

from typing import Any

import pytest

from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy import parser
from virt_admit.reports.findings.judging import judge
from virt_admit.rules import load_rules

RULES = load_rules().in_scan
DENIED = "vm-running-and-run-strategy"
ORIGIN = "its requests are not reviewed"


def messages(**annotations: str) -> dict[str, str]:
    """Return the message of each finding on a VM with both ``running`` and ``runStrategy``,
    by rule.
    """
    data: dict[str, Any] = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "db", "namespace": "shop", "annotations": annotations},
        "spec": {
            "running": True,
            "runStrategy": "Always",
            "template": {"spec": {"domain": {"devices": {}}}},
        },
    }
    report = judge(
        Snapshot([Object(data)], complete=["*"]), [VM], RULES, parser.load("default", load_rules())
    )
    return {row.rule: row.message for row in report.rows()}


@pytest.mark.parametrize(
    ("value", "maker"),
    [("tmp-restore-1f2e-3d4c", "VirtualMachineClone"), ("monday-3d4c", "VirtualMachineRestore")],
)
def test_a_denial_says_who_wrote_the_vm(value: str, maker: str) -> None:
    found = messages(**{"restore.kubevirt.io/lastRestoreUID": value})
    assert found[DENIED].endswith(
        f". KubeVirt's controller wrote this VM for a {maker}, and {ORIGIN}"
    )
    assert [rule for rule, message in found.items() if ORIGIN in message] == [DENIED]
    assert len(found) > 1


def test_nothing_is_said_of_other_vms() -> None:
    assert not [message for message in messages(note="x").values() if ORIGIN in message]
