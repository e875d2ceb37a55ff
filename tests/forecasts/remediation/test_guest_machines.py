"""VMs that are nodes of a tenant cluster, whose MachineHealthCheck replaces them."""

import pytest

from tests.builders import complete, manifest
from virt_admit.forecasts.outage import outages
from virt_admit.forecasts.remediation import outside_checks
from virt_admit.forecasts.remediation.unwatched import guest_machines
from virt_admit.model.kubernetes.objects import Object

CAPI, SPACE = "cluster.x-k8s.io/v1beta1", "tenants"
IN = "cluster.x-k8s.io/cluster-name"
KEY = "capk.cluster.x-k8s.io/kubevirt-machine"


def guest(name, host):
    owner = {"apiVersion": CAPI, "kind": "MachineSet", "name": "md", "controller": True}
    labels = {f"{KEY}-name": name, f"{KEY}-namespace": SPACE}
    of_vm = {"kind": "VirtualMachine", "name": name, "controller": True}
    yield manifest(
        CAPI,
        "Machine",
        f"m-{name}",
        SPACE,
        metadata={"labels": {"pool": "md", IN: "prod"}, "ownerReferences": [owner]},
        spec={
            "clusterName": "prod",
            "infrastructureRef": {"kind": "KubevirtMachine", "name": name},
        },
        status={"nodeRef": {"name": name}},
    )
    yield manifest("kubevirt.io/v1", "VirtualMachine", name, SPACE, spec={"runStrategy": "Always"})
    yield manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        name,
        SPACE,
        metadata={"labels": labels, "ownerReferences": [of_vm]},
        status={"phase": "Running", "nodeName": host},
    )


def tenant(hosts, paused=False, limit="50%", selector="md", healthy=None):
    """Return the VMs of a tenant cluster on these hosts, and what replaces them."""
    made = [each for number, host in enumerate(hosts) for each in guest(f"g{number}", host)]
    check = manifest(
        CAPI,
        "MachineHealthCheck",
        "md",
        SPACE,
        spec={
            "clusterName": "prod",
            "maxUnhealthy": limit,
            "selector": {"matchLabels": {"pool": selector}},
            "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "timeout": "300s"}],
        },
        status={
            "expectedMachines": len(hosts),
            "currentHealthy": len(hosts) if healthy is None else healthy,
        },
    )
    owner = manifest(CAPI, "Cluster", "prod", SPACE, spec={"paused": paused})
    nodes = [manifest("v1", "Node", host) for host in sorted({*hosts})]
    return [*made, check, owner, *nodes]


def replaced(*hosts, **given):
    made = tenant(hosts, **given)
    cluster = complete(*made)
    vmis = [each for each in made if each.kind == "VirtualMachineInstance"]
    by = guest_machines.replaced_by(vmis[0], cluster)
    left = outside_checks.uncovered({hosts[0]: [vmis[0]]}, cluster)
    assert (left == ()) is bool(by)
    return by


def test_the_check_of_the_tenant_replaces_a_vm():
    assert replaced("a", "b", "c") == "MachineHealthCheck tenants/md"


@pytest.mark.parametrize(
    ("hosts", "given"),
    [
        ("abc", {"paused": True}),
        ("abc", {"limit": 0}),
        ("abc", {"selector": "other"}),
        ("abc", {"healthy": 2}),  # another one is unhealthy already
        ("aac", {}),  # the loss of a takes two of three
    ],
)
def test_the_check_does_not_act(hosts, given):
    assert replaced(*hosts, **given) == ""


def test_a_check_is_looked_at_once_for_all_vms(monkeypatch):
    looked = []
    timeline = guest_machines.timeline.timeline
    monkeypatch.setattr(
        guest_machines.timeline, "timeline", lambda *given: looked.append(1) or timeline(*given)
    )
    made = tenant("abcdefgh")
    cluster = complete(*made)
    vmis = [each for each in made if each.kind == "VirtualMachineInstance"]
    assert all(guest_machines.replaced_by(vmi, cluster) for vmi in vmis)
    assert len(looked) == 1


def test_the_replacement_is_told_of_the_vms_of_the_tenant_alone():
    other = [each for each in guest("other", "a") if each.kind != "Machine"]
    found = outages.outage(("a",), complete(*tenant("abc"), *other))
    reasons = {vm.vmi.name: vm.reason for vm in found.vms}
    assert (
        reasons["g0"]
        == f"{reasons['other']}; MachineHealthCheck tenants/md replaces it with another VM"
    )
    assert not any("replaces it" in why for why in found.because)


def test_the_machines_of_a_check_are_named_once_for_all_vms():
    class Counted(Object):
        named = 0

        @property
        def full_name(self):
            Counted.named += 1
            return super().full_name

    made = tenant("abcd" * 5)
    machines = [Counted(each.data, SPACE) for each in made if each.kind == "Machine"]
    cluster = complete(*(each for each in made if each.kind != "Machine"), *machines)

    assert all(guest_machines.may_be_watched(each, cluster) for each in machines)
    assert Counted.named <= 3 * len(machines)
