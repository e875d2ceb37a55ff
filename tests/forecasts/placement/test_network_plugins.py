"""Addresses of Calico that are in conflict: which of them is wrong decides what is to be done."""

import pytest

from tests.builders import manifest
from tests.healthy.parts import ago
from virt_admit.forecasts.placement.components import network_plugins
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.messages import command_of

TAKEN = (
    "CrashLoopBackOff, it ends with exit code 1 (Calico node '{}' is already using the IPv{} "
    "address {})"
)


def node(name, announced, *own):
    notes = {"annotations": {"projectcalico.org/IPv4Address": announced}}
    addresses = [{"type": "InternalIP", "address": each} for each in own]
    return manifest("v1", "Node", name, metadata=notes, status={"addresses": addresses})


def daemon(owner=None):
    owners = (
        [{"apiVersion": "v1", "kind": owner, "name": "top", "controller": True}] if owner else []
    )
    return manifest(
        "apps/v1", "DaemonSet", "calico-node", "kube-system", metadata={"ownerReferences": owners}
    )


def remedy(why, *objects, complete=("*",), own="10.0.0.2"):
    owners = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "calico-node", "controller": True}
    ]
    metadata = {"labels": {"k8s-app": "calico-node"}, "ownerReferences": owners}
    pod = manifest(
        "v1", "Pod", "calico-b", "kube-system", metadata=metadata, spec={"nodeName": "n2"}
    )
    cluster = Snapshot([pod, node("n2", "192.168.7.2/24", own), *objects], complete, time=ago())
    return network_plugins.repair(BrokenPod(pod, why, "", "as before"), cluster)


@pytest.mark.parametrize(
    ("why", "objects"),
    [
        ("ImagePullBackOff", [daemon()]),
        ("BGP not established with 10.0.0.1", [daemon(), node("n1", "192.168.7.1/24", "10.0.0.1")]),
        (
            TAKEN.format("n1", 4, "192.168.7.2"),
            [daemon(), node("n1", "192.168.7.1/24", "10.0.0.1")],
        ),
    ],
    ids=["another cause", "a second network of all nodes", "a conflict in the second network"],
)
def test_the_address_is_left_alone(why, objects):
    assert remedy(why, *objects) == "as before"


def test_the_address_of_a_bridge_is_the_same_everywhere():
    found = remedy(
        TAKEN.format("n1", 4, "172.18.0.1"), daemon(), node("n1", "172.18.0.1/16", "10.0.0.1")
    )
    assert "kubectl set env daemonset/calico-node" in found
    assert found.endswith(" IP_AUTODETECTION_METHOD=kubernetes-internal-ip")


def test_the_own_address_of_a_node_that_was_renamed():
    said = TAKEN.format("old-name", 4, "10.0.0.2")
    assert "calicoctl delete node old-name" in remedy(said, daemon())
    assert "METHOD" not in remedy(said, daemon())
    for known in (
        remedy(said, daemon(), complete=()),
        remedy(said, daemon(), node("old-name", "10.0.0.2/24")),
    ):
        assert "calicoctl" not in known
        assert command_of(known) == "kubectl get nodes -o wide"


def test_an_address_of_ipv6_has_a_setting_of_its_own():
    said = TAKEN.format("n1", 6, "fd00::2")
    assert remedy(said, daemon(), own="fd00::9").endswith(
        " IP6_AUTODETECTION_METHOD=kubernetes-internal-ip"
    )
    assert "nodeAddressAutodetectionV6 of Installation top" in remedy(
        said, daemon("Installation"), own="fd00::9"
    )


@pytest.mark.parametrize("objects", [[], [daemon("Addon")]], ids=["not read", "another owner"])
def test_a_setting_that_may_be_taken_back_is_only_shown(objects):
    found = remedy(TAKEN.format("n1", 4, "172.18.0.1"), *objects, complete=())
    assert command_of(found) == "kubectl describe daemonset/calico-node -n kube-system"


def test_a_node_without_an_address_of_that_family():
    assert "set env" not in remedy(TAKEN.format("n1", 6, "fd00::2"), daemon())


# --- the agent and the error ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "joins"),
    [
        ("dial unix /run/x.sock: connect: connection refused", "because"),
        ("stat /var/lib/calico/nodename: no such file or directory", "because"),
        ("no block of addresses is left", "and"),
    ],
)
def test_an_error_with_a_cause_of_its_own_does_not_come_from_the_agent(error, joins):
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "calico-node"}
    waiting = {"name": "a", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    agent = manifest(
        *("v1", "Pod", "calico-b", "kube-system"),
        metadata={"ownerReferences": [owner | {"controller": True}]},
        spec={"nodeName": "n2"},
        status={
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [waiting],
        },
    )
    pod = manifest("v1", "Pod", "p", "shop", spec={"nodeName": "n2"})
    said = f'plugin type="calico" failed (add): {error}'
    here = Snapshot([pod, agent], ["*"])
    state = "pod kube-system/calico-b (DaemonSet calico-node) is not ready: CrashLoopBackOff"
    assert network_plugins.with_agent("WHY", said, pod, here) == f"WHY, {joins} {state}"
    ready = manifest("v1", "Pod", "p", "shop", spec={"nodeName": "n2"})
    assert network_plugins.with_agent("WHY", said, ready, Snapshot([ready], ["*"])) == "WHY"
