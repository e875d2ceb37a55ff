"""What ends a failure that repeats, in the verbs besides the drain,
and what must not be advised for it.
"""

import copy
import json

import pytest

from tests.cli.explain_cases import lines
from tests.health_checks import machine, mhc
from tests.incidents_platform import openshift
from virt_admit.cli.commands.explain import explain
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

from . import component_faults, control_path, fourth_look, starts, target_pods
from .machines import find


def test_a_vm_whose_migrations_fail_is_not_told_to_migrate(ask):
    items = fourth_look.older_devices().items
    said = ask(items, "explain", "vm/web")

    assert "virtctl migrate" not in said
    assert (
        "its launcher is older than KubeVirt; a migration that completes or a restart replaces it"
        in said
    )
    assert said.count("to do: restart the VM") + said.count("\n  restart the VM: its guest") == 1

    items = [each for each in items if each["kind"] != "VirtualMachineInstanceMigration"]
    for key in ("migrationState", "evacuationNodeName"):
        find(items, "VirtualMachineInstance", "web")["status"].pop(key, None)
    assert "a migration replaces it: virtctl migrate web -n vms" in ask(items, "explain", "vm/web")


def test_a_restart_alone_ends_the_failures_of_an_older_launcher(ask):
    (step,) = json.loads(ask(fourth_look.older_devices().items, "plan", "w1", "-o", "json"))[
        "steps"
    ]

    assert step["id"] == "restart:vms/web"
    assert "evictionStrategy" not in step["title"]
    assert "CPU model" not in step["title"]
    assert "set evictionStrategy None" in str(step["alternatives"])


def test_a_migration_that_a_drain_explains_has_the_same_cause(ask):
    items = [each for each in target_pods.limit_range().items if each["kind"] != "Event"]
    said = " ".join(ask(items, "explain", "vm/web").split())

    assert (
        "but LimitRange small: container main: cpu: the default limit 1 is below the request 2"
        in said
    )
    assert "is under way: as for a drain of its node" in said
    assert "the cause cannot be determined" not in said


def test_a_migration_without_a_drain_evicts_no_pod_that_attaches_disks(ask):
    said = " ".join(ask(control_path.detached_disks().items, "explain", "vm/web").split())

    assert (
        "a drain of its node migrates LiveMigrate, and it can migrate, but nothing keeps the pod "
        "that attaches vol001" in said
    )
    assert "a migration now starts to one of w2, w3" in said
    assert "an update of KubeVirt migrated" in said


def test_a_check_that_does_nothing_restarts_no_vms():
    times = [{"type": "Ready", "status": "Unknown", "timeout": "5m"}]
    failed = Object({**machine("m0").data, "status": {"phase": "Failed"}})
    check = mhc(maxUnhealthy=1, unhealthyConditions=times)
    said = lines(explain(check, Snapshot([failed, machine("m1")], complete=["*"])))

    (restart,) = (line for line in said if line.startswith("VMs restart"))
    assert restart.startswith(
        "VMs restart not while the check does nothing; else after 5m50s or later = 50s until "
        "noticed"
    )
    assert "When a node stops reporting, and the check acts again" in said


def test_every_configuration_that_keeps_a_webhook_down_is_named(ask):
    said = ask(starts.webhooks_that_refuse_their_own_pods().items, "drain", "--all")

    both = (
        "Let MutatingWebhookConfiguration kyverno-resource-mutate and "
        "ValidatingWebhookConfiguration kyverno-resource-validate ignore failures"
    )
    assert both in said
    assert "&& kubectl patch validatingwebhookconfiguration kyverno-resource-validate" in said


def test_a_scan_offers_no_eviction_strategy_to_a_vm_that_has_it(ask):
    said = ask(starts.device_plugin_without_devices().items, "scan")

    assert "once it runs: vm-shutdown-on-drain" in said
    assert "kubectl patch vm ub22gpu" not in said


def test_a_webhook_that_selects_no_namespace_refuses_no_pods(ask):
    said = ask(component_faults.refused_changes().items, "scan")

    assert "new pods fail" not in said
    assert "webhooks[0]" not in said


def test_a_vm_that_runs_and_cannot_be_stopped_is_told_so(ask):
    said = ask(component_faults.refused_changes().items, "explain", "vm/web")

    assert (
        "virtctl stop fails, because webhook vms.kubemacpool.io refuses each change of a VM" in said
    )


@pytest.mark.parametrize("cordoned", [True, False])
def test_all_drains_and_the_upgrade_give_one_answer(ask, cordoned):
    items = copy.deepcopy(openshift.cordoned_by_hand(updated=True).items)
    for each in items:
        if each["kind"] == "Node" and not cordoned:
            each["spec"].pop("unschedulable", None)
    drain, upgrade = ask(items, "drain", "--all"), ask(items, "upgrade")
    word = "No: the next update of MachineConfigPool worker would not" if cordoned else "Yes"
    assert f"Can the cluster be upgraded today? {word}" in drain
    assert upgrade.startswith(word[:3])
