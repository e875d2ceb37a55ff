"""The port of a target pod that Kube-OVN has passed over."""

from datetime import datetime

import pytest

from tests.builders import manifest
from tests.healthy.parts import ago
from virt_admit.forecasts.placement.components import network_plugins
from virt_admit.forecasts.placement.starts import ovn_ports
from virt_admit.model.kubernetes.cluster import Snapshot

SAID = (
    'Failed to create pod sandbox: plugin type="kube-ovn" failed (add): request ip return 500 '
    "configure nic eth0 failed: ovs interface b831b33e0c05_h is not ready after 30s"
)
ON = "--enable-live-migration-optimize=true"


TARGET = {"kubevirt.io/migrationJobUID": "m"}


def told(
    tag="v1.15.13",
    args=(ON,),
    phase="Scheduling",
    said=SAID,
    minutes=8,
    controllers=1,
    labels=TARGET,
    others=(),
):
    created = {"creationTimestamp": ago(minutes=minutes), "labels": labels}
    pod = manifest("v1", "Pod", "t", "shop", metadata=created, spec={"nodeName": "b"})
    pod.data["status"] = {"phase": "Pending"}
    event = no_sandbox("t", said)
    box = {"name": "c", "image": f"docker.io/kubeovn/kube-ovn:{tag}", "args": list(args)}
    own = [
        manifest("v1", "Pod", f"kube-ovn-controller-{number}", "ovn", spec={"containers": [box]})
        for number in range(controllers)
    ]
    vmi = manifest("kubevirt.io/v1", "VirtualMachineInstance", "db", "shop", spec={"volumes": []})
    move = manifest(
        "kubevirt.io/v1", "VirtualMachineInstanceMigration", "m", "shop", status={"phase": phase}
    )
    return ovn_ports.problem(vmi, move, pod, Snapshot([pod, event, *own, *others], time=ago()))


def no_sandbox(name, said):
    return manifest(
        *("v1", "Event", f"{name}.1", "shop"),
        involvedObject={"kind": "Pod", "namespace": "shop", "name": name},
        type="Warning",
        reason="FailedCreatePodSandBox",
        message=said,
        lastTimestamp=ago(minutes=0),
    )


def beside(name, **metadata):
    """Return a pod that is not ready on the node of the target pod."""
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": ago(minutes=30)}
    status = {"phase": "Pending", "conditions": [ready]}
    metadata |= {"creationTimestamp": ago(minutes=40)}
    return manifest(
        *("v1", "Pod", name, "shop"), metadata=metadata, spec={"nodeName": "b"}, status=status
    )


OVS = {"kind": "DaemonSet", "name": "ovs-ovn", "controller": True}


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
        f"update Kube-OVN to {fixed} or later; or, until then, start kube-ovn-controller with "
        "--enable-live-migration-optimize=false: kubectl edit deployment kube-ovn-controller -n "
        "ovn; then migrate again"
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
        {"labels": {}},
        {"others": (beside("ovs-ovn-x", ownerReferences=[OVS]),)},
        {"others": (beside("app"), no_sandbox("app", SAID))},
    ],
)
def test_another_cause_of_a_missing_port(other):
    assert told(**other) is None


def test_another_migration_may_be_passed_over_too():
    assert told(others=(beside("t2", labels=TARGET), no_sandbox("t2", SAID))) is not None


@pytest.mark.parametrize(("labels", "fails"), [({}, True), (TARGET, False)])
def test_pods_that_migrate_nowhere_show_that_the_plugin_of_a_node_fails(labels, fails):
    events = [no_sandbox(name, SAID) for name in ("a", "b")]
    for event in events:
        event.data["firstTimestamp"] = ago(minutes=20)
    pods = [beside(name, labels=labels) for name in ("a", "b")]
    cluster = Snapshot([*pods, *events], ["*"], time=ago())
    assert (network_plugins.failing(cluster, "b") is not None) is fails


def test_the_agent_that_is_broken_is_repaired_although_it_served_others_before():
    launcher = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "u"}
    served = beside("virt-launcher-web", labels=launcher)
    served.data["status"] = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    pod = beside("t", labels=TARGET)
    pod.data["metadata"]["creationTimestamp"] = ago(minutes=8)
    ovs = beside("ovs-ovn-x", ownerReferences=[OVS])
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    ovs.data["status"]["containerStatuses"] = [{"name": "ovs", "ready": False, "state": waiting}]
    cluster = Snapshot([served, pod, ovs], ["*"], time=ago())
    since = datetime.fromisoformat(ago(minutes=50))
    found = network_plugins.remedy("kube-ovn", pod, since, cluster, SAID)
    assert found.startswith("repair pod ovs-ovn-x")
