"""The port of a target pod that Kube-OVN has passed over."""

import pytest

from tests.builders import manifest
from tests.healthy.parts import ago
from virt_admit.forecasts.placement.starts import ovn_ports
from virt_admit.model.kubernetes.cluster import Snapshot

SAID = (
    'Failed to create pod sandbox: plugin type="kube-ovn" failed (add): request ip return 500 '
    "configure nic eth0 failed: ovs interface b831b33e0c05_h is not ready after 30s"
)
ON = "--enable-live-migration-optimize=true"


def told(tag="v1.15.13", args=(ON,), phase="Scheduling", said=SAID, minutes=8, controllers=1):
    created = {"creationTimestamp": ago(minutes=minutes)}
    pod = manifest("v1", "Pod", "t", "shop", metadata=created, spec={"nodeName": "b"})
    pod.data["status"] = {"phase": "Pending"}
    event = manifest(
        "v1",
        "Event",
        "t.1",
        "shop",
        involvedObject={"kind": "Pod", "namespace": "shop", "name": "t"},
        type="Warning",
        reason="FailedCreatePodSandBox",
        message=said,
        lastTimestamp=ago(minutes=0),
    )
    box = {"name": "c", "image": f"docker.io/kubeovn/kube-ovn:{tag}", "args": list(args)}
    own = [
        manifest("v1", "Pod", f"kube-ovn-controller-{number}", "ovn", spec={"containers": [box]})
        for number in range(controllers)
    ]
    vmi = manifest("kubevirt.io/v1", "VirtualMachineInstance", "db", "shop", spec={"volumes": []})
    move = manifest(
        "kubevirt.io/v1", "VirtualMachineInstanceMigration", "m", "shop", status={"phase": phase}
    )
    return ovn_ports.problem(vmi, move, pod, Snapshot([pod, event, *own], time=ago()))


@pytest.mark.parametrize(
    ("tag", "fixed"),
    [
        ("v1.14.21", "1.15.14"),
        ("v1.14.41", "1.15.14"),
        ("v1.15.0", "1.15.14"),
        ("v1.15.13@sha256:1", "1.15.14"),
        ("v1.16.2", "1.16.3"),
    ],
)
@pytest.mark.parametrize("args", [(ON,), ()])
def test_releases_that_look_once(tag, fixed, args):
    found = told(tag, args)
    assert "does not look again, so the port stays with the source node" in found.reason
    assert found.remedy == (
        f"update Kube-OVN to {fixed} or later, or until then start kube-ovn-controller with "
        "--enable-live-migration-optimize=false; then migrate again: kubectl edit deployment "
        "kube-ovn-controller -n ovn"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"tag": "v1.14.20"},
        {"tag": "v1.15.14"},
        {"tag": "v1.16.3"},
        {"tag": "v1.17.0"},
        {"tag": "latest"},
        {"args": ["--enable-live-migration-optimize=false"]},
        {"phase": "Pending"},
        {"phase": "Running"},
        {"said": SAID.replace("ovs interface", "address of")},
        {"minutes": 3},
        {"controllers": 0},
    ],
)
def test_another_cause_of_a_missing_port(other):
    assert told(**other) is None
