"""Multus is not called for new pods: other VMs with secondary networks may not start elsewhere
either.
"""

import pytest

from tests.builders import kubevirt, manifest, node
from tests.forecasts.placement.test_preemption_effects import LABELS, NS, ROOM, launcher, vmi
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

NETWORK = [{"name": "lan", "multus": {"networkName": "vlan7"}}]
ASKED = {"k8s.v1.cni.cncf.io/networks": '[{"name": "vlan7"}]'}
GIVEN = ASKED | {"k8s.v1.cni.cncf.io/network-status": "[]"}
EXCLUSIVE = manifest(
    "v1", "ConfigMap", "cilium-config", "kube-system", data={"cni-exclusive": "true"}
)
CILIUM = manifest(
    "v1", "Pod", "cilium-x", "kube-system", metadata={"labels": {"k8s-app": "cilium"}}
)


def with_pod(name, on, created, annotations, **changes):
    pod = launcher(name, on, memory="1Gi").data
    metadata = pod["metadata"] | {"annotations": annotations, "creationTimestamp": created}
    return Object(pod | {"metadata": metadata, "status": pod["status"] | {"podIP": "10.0.0.1"}})


def starting(name, on):
    found = vmi(name, on, networks=NETWORK).data
    said = {
        "type": "Synchronized",
        "status": "False",
        "reason": "Synchronizing",
        "message": "Link not found",
    }
    status = {"phase": "Scheduled", "conditions": [*found["status"]["conditions"], said]}
    return Object(found | {"status": found["status"] | status})


def outcome(*more, networks=NETWORK):
    nodes = [node(name, LABELS, allocatable=ROOM) for name in ("n1", "n2")]
    network = manifest("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "vlan7", "shop")
    old = vmi("db", "n1", networks=networks), with_pod("db", "n1", "2026-08-01T08:00:00Z", GIVEN)
    plan = drain_plan.plan(
        Snapshot([*nodes, NS, kubevirt(), network, *old, *more], complete=["*"]), "n1"
    )
    return next(row for row in plan.nodes[0].forecasts if row.vmi.name == "db")


FAILED = starting("new", "n2"), with_pod("new", "n2", "2026-08-01T10:00:00Z", ASKED)


def test_a_pod_without_its_networks_leaves_it_open_whether_others_get_theirs():
    row = outcome(*FAILED)

    assert row.outcome is VmOutcome.UNKNOWN
    assert "as pod shop/virt-launcher-new-x on n2: Multus was not called for it" in row.reason
    assert "see why the CNI configuration of Multus is not the first one" in row.remedy


def test_cilium_that_allows_no_other_configuration_is_named():
    row = outcome(*FAILED, CILIUM, EXCLUSIVE)

    assert 'cni-exclusive is "true" in ConfigMap kube-system/cilium-config' in row.reason
    assert "set cni.exclusive=false" in row.remedy


def test_cilium_whose_configuration_is_not_known_is_to_be_looked_at():
    row = outcome(*FAILED, CILIUM)

    assert "cni-exclusive" not in row.reason
    assert "see whether cni-exclusive of Cilium is true" in row.remedy


@pytest.mark.parametrize(
    "more",
    [
        (),
        (EXCLUSIVE, CILIUM),  # Multus may be chained
        (
            *FAILED,
            vmi("later", "n2", networks=NETWORK),
            with_pod("later", "n2", "2026-08-01T11:00:00Z", GIVEN),
        ),
        (starting("new", "n2"), with_pod("new", "n2", "2026-08-01T10:00:00Z", GIVEN)),
    ],
    ids=["no-pod-fails", "setting-alone", "repaired-since", "other-cause"],
)
def test_without_such_a_pod_it_migrates(more):
    assert outcome(*more).outcome is VmOutcome.MIGRATES


def test_a_vm_on_the_pod_network_alone_migrates():
    assert outcome(*FAILED, networks=[{"name": "default", "pod": {}}]).outcome is VmOutcome.MIGRATES
