"""Nodes that do not report, and VMs whose virt-launcher pods are gone."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain.test_control_path import (
    NODES,
    OFF,
    VMS,
    at,
    component,
    drained,
    guest,
    machine,
    outcomes,
)
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.model.kubernetes.cluster import Snapshot


@pytest.mark.parametrize("dead", [at("a", status="Unknown"), at("a", "2026-01-01T11:45:00Z")])
def test_a_node_that_does_not_report_keeps_every_vm(dead):
    budget = manifest(
        "policy/v1",
        "PodDisruptionBudget",
        "web",
        "shop",
        spec={"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    )
    web = manifest(
        "v1",
        "Pod",
        "web",
        "shop",
        metadata={"labels": {"app": "web"}},
        spec={"nodeName": "a"},
        status={"phase": "Running"},
    )

    found = drained(*VMS, *OFF, budget, web, nodes=(dead, at("b"), at("c")))

    assert set(outcomes(found).values()) == {VmOutcome.BLOCKS}
    assert {row.reason for row in found.forecasts} == {
        "its node does not report: it cannot migrate"
    }
    assert {item.kind for item in found.pods.blockers} == {"Node", "PodDisruptionBudget"}
    assert found.drainable is False


def self_remediation(assumed):
    return manifest(
        "self-node-remediation.medik8s.io/v1alpha1",
        "SelfNodeRemediation",
        "a",
        "medik8s",
        status={"timeAssumedRebooted": assumed},
    )


@pytest.mark.parametrize(
    ("made", "left"),
    [
        (self_remediation("2026-01-01T12:01:30Z"), " and assumes its reboot in 90 s "),
        (self_remediation("2026-01-01T11:59:00Z"), ""),
    ],
    ids=["later", "passed"],
)
def test_the_time_that_a_remediation_still_takes(made, left):
    resource = {"kind": made.kind, "namespace": made.namespace, "name": made.name}
    begun = {"started": "2026-01-01T11:58:00Z", "resource": resource}
    status = {"unhealthyNodes": [{"name": "a", "remediations": [begun]}]}
    check = manifest("remediation.medik8s.io/v1alpha1", "NodeHealthCheck", "workers", status=status)
    found = drained(*VMS, check, made, nodes=(at("a", status="Unknown"), at("b")))
    who = f"{left}(SelfNodeRemediation a)" if left else ""
    words = f"wait for NodeHealthCheck workers, which has been remediating it for 2 min{who};"
    assert all(row.remedy.startswith(words) for row in found.forecasts)


def test_what_is_about_to_bring_a_node_back_is_awaited():
    begun = {"name": "a", "remediations": [{"started": "2026-01-01T11:58:00Z"}]}
    check = manifest(
        "remediation.medik8s.io/v1alpha1",
        "NodeHealthCheck",
        "workers",
        status={"unhealthyNodes": [begun]},
    )
    found = drained(*VMS, check, nodes=(at("a", status="Unknown"), at("b")))
    by = "NodeHealthCheck workers, which has been remediating it for 2 min"
    assert found.forecasts
    assert all(f"wait for {by}" in row.remedy for row in found.forecasts)
    assert {row.reason for row in found.forecasts} == {
        f"its node does not report, and waits for {by}"
    }
    assert set(outcomes(found).values()) == {VmOutcome.UNKNOWN}
    (wait,) = found.pods.waits
    assert by in wait.reason
    # what ends it acts already, but may fail
    assert (found.pods.blockers, found.drainable) == ((), None)


def test_a_node_that_is_not_ready():
    starting = at(
        "a", status="False", reason="KubeletNotReady", message="cni plugin not initialized"
    )
    broken = at("a", status="False", reason="KubeletNotReady", message="container runtime is down")

    assert drained(*VMS, nodes=(starting, at("b"))).drainable is None
    assert drained(*VMS, nodes=(broken, at("b"))).drainable is False
    assert drained(*VMS, nodes=(at("a", "2026-01-01T11:55:10Z"), at("b"))).drainable is True


@pytest.mark.parametrize(
    ("strategy", "outcome"),
    [
        ("Always", VmOutcome.RESTARTS),
        ("RerunOnFailure", VmOutcome.RESTARTS),
        ("Manual", VmOutcome.STOPS),
    ],
)
def test_a_vmi_whose_pods_no_longer_exist_is_judged_as_after_a_crash(strategy, outcome):
    lost = guest("db", activePods={"1234": "a"})
    (row,) = drained(lost, machine("db", strategy)).forecasts

    assert row.outcome is outcome
    assert row.reason.startswith("its virt-launcher pod is gone, so the guest does not run")


def test_a_guest_whose_pod_was_deleted_by_force_may_run_on_a_node_that_does_not_report():
    lost = guest("db", activePods={"1234": "a"})
    (row,) = drained(lost, machine("db"), nodes=(at("a", status="Unknown"), at("b"))).forecasts
    assert row.outcome is VmOutcome.BLOCKS
    assert "its node does not report" in row.reason


def test_pods_of_other_vms_without_a_uid_do_not_hide_a_lost_one():
    owner = {"kind": "VirtualMachineInstance", "name": "web", "controller": True}
    metadata = {"labels": {"kubevirt.io": "virt-launcher"}, "ownerReferences": [owner]}
    other = manifest(
        "v1",
        "Pod",
        "x",
        "shop",
        metadata=metadata,
        spec={"nodeName": "a"},
        status={"phase": "Running"},
    )
    lost = guest("db", activePods={"1234": "a"})
    assert outcomes(drained(lost, machine("db"), other)) == {"db": VmOutcome.RESTARTS}


def test_a_pod_that_exists_or_may_exist_is_not_lost():
    lost, pod = (
        guest("db", activePods={"1234": "a"}),
        component("virt-launcher", "a", namespace="shop"),
    )
    pod = manifest(
        "v1",
        "Pod",
        "x",
        "shop",
        metadata={**pod.data["metadata"], "uid": "1234"},
        spec={"nodeName": "a"},
        status={"phase": "Running"},
    )

    assert outcomes(drained(lost, machine("db"), pod)) == {"db": VmOutcome.MIGRATES}
    unseen = plan(Snapshot([*NODES, lost, machine("db")], ["*"], ["pods"]), "a").nodes[0]
    assert outcomes(unseen)["db"] is not VmOutcome.RESTARTS
