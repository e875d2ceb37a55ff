"""Guests that run and whose readiness probe does not succeed."""

import pytest

from tests.builders import manifest, warning
from virt_admit.forecasts.drain.guests import failing_probes
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2027-03-01T12:00:00Z"
LONG = "2027-03-01T10:00:00Z"
SAID = "Readiness probe failed: dial tcp 10.52.0.9:80: i/o timeout"


def unready(
    name="web", namespace="shop", network=None, ready="False", since=LONG, reason="", **probe
):
    condition = {
        "type": "Ready",
        "status": ready,
        "reason": reason or "ContainersNotReady",
        "lastTransitionTime": since,
    }
    pod = {"vmNetworkCIDR": network} if network else {}
    spec = {
        "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
        "networks": [{"name": "default", "pod": pod}],
        "readinessProbe": probe or {"httpGet": {"port": 80, "path": "/release.yaml"}},
    }
    status = {"phase": "Running", "nodeName": "a", "conditions": [condition]}
    owners = [{"kind": "VirtualMachine", "name": name, "controller": True}]
    return manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        name,
        namespace,
        metadata={"ownerReferences": owners},
        spec=spec,
        status=status,
    )


def known(vmi, address="10.0.2.12", reports="True", said=SAID):
    status = {
        "addresses": [{"type": "InternalIP", "address": address}],
        "conditions": [{"type": "Ready", "status": reports}],
    }
    labels = {"kubevirt.io": "virt-launcher"}
    owner = {"kind": "VirtualMachineInstance", "name": "web"}
    pod = manifest(
        "v1",
        "Pod",
        "launcher",
        "shop",
        metadata={"labels": labels, "ownerReferences": [owner]},
        spec={"nodeName": "a"},
        status={"phase": "Running"},
    )
    made = {"creationTimestamp": NOW}
    event = warning(pod, "Unhealthy", said, NOW, count=700, metadata=made)
    served = {"labels": {"kubevirt.io/schedulable": "true"}}
    node = manifest("v1", "Node", "a", metadata=served, status=status)
    return Snapshot([vmi, pod, event, node], complete=["*"], time=NOW)


def test_the_address_of_the_node_is_in_the_network_of_the_guest():
    vmi = unready()
    found = failing_probes.problem(vmi, known(vmi))
    assert found.reason == (
        "it runs and is not ready: its readiness probe (port 80, /release.yaml) has not succeeded "
        "for 2 h (700 failures: dial tcp 10.52.0.9:80: i/o timeout). Probably because 10.0.2.12 of "
        "node a, which asks, is in the network of its masquerade interface default (10.0.2.0/24, "
        "the default of KubeVirt), so its guest looks for it on its own link"
    )
    assert found.remedy == (
        "give its pod network a vmNetworkCIDR in which no node has an address: kubectl edit vm web "
        "-n shop; then restart it (virtctl restart web -n shop)"
    )
    (note,) = failing_probes.notes(known(vmi))
    assert str(note).startswith("VirtualMachineInstance shop/web reports: it runs and is not ready")


@pytest.mark.parametrize(
    ("vmi", "address"),
    [
        (unready(network="10.11.12.0/24"), "10.0.2.12"),
        (unready(), "192.168.1.4"),
        (unready(), "fd00::4"),
        (unready(network="no network"), "10.0.2.12"),
        (unready(exec={"command": ["true"]}), "10.0.2.12"),
    ],
    ids=["another network", "another address", "IPv6", "not a network", "asked in the guest"],
)
def test_a_probe_that_fails_for_another_cause(vmi, address):
    found = failing_probes.problem(vmi, known(vmi, address))
    assert "masquerade" not in found.reason
    assert found.remedy.endswith(": virtctl console web -n shop")


@pytest.mark.parametrize(
    ("vmi", "reports"),
    [
        (unready(ready="True"), "True"),
        (unready(since="2027-03-01T11:55:00Z"), "True"),
        (unready(tcpSocket={"port": 80}, initialDelaySeconds=7200), "True"),
        (unready(reason="GuestNotRunning"), "True"),
        (unready(), "Unknown"),
    ],
    ids=["ready", "just started", "not asked yet", "paused", "its node is lost"],
)
def test_guests_that_are_not_accused(vmi, reports):
    assert failing_probes.problem(vmi, known(vmi, reports=reports)) is None


@pytest.mark.parametrize("delay", [-(10**15), 10**15, "soon"])
def test_a_delay_out_of_range_ends_nothing(delay):
    vmi = unready(tcpSocket={"port": 80}, initialDelaySeconds=delay)
    found = failing_probes.problem(vmi, known(vmi))
    assert (found is None) == (delay == 10**15)


@pytest.mark.parametrize(
    ("get", "said", "words"),
    [
        (
            {"port": 80, "path": "/up?token=KEY#KEY"},
            'Get "http://10.52.0.9:80/up?token=KEY\\"KEY": context deadline exceeded',
            'probe (port 80, /up) has not succeeded for 2 h (700 failures: Get "http://10.52.0.9:80'
            '/up": context deadline exceeded)',
        ),
        (
            {"port": "web", "path": '//me:KEY%3F@x/up?a="KEY'},
            'Get "http://me:KEY@10.52.0.9:80/up%3Ftoken=KEY": EOF',
            'probe (port web, //x/up) has not succeeded for 2 h (700 failures: Get "http://10.52.0.9'
            ':80/up": EOF)',
        ),
        (
            {"port": "KEY of more than a name", "path": "/up"},
            "HTTP probe failed: 503",
            "probe has not succeeded for 2 h (700 failures: HTTP probe failed: 503)",
        ),
        ({"port": True}, "EOF", "probe has not succeeded for 2 h (700 failures: EOF)"),
    ],
    ids=["query", "login", "not a port", "not a number"],
)
def test_keys_in_an_address_are_not_quoted(get, said, words):
    vmi = unready(httpGet=get)
    found = failing_probes.problem(vmi, known(vmi, said=f"Readiness probe failed: {said}"))
    assert words in found.reason
    assert "KEY" not in found.reason


@pytest.mark.parametrize("asked", [{"exec": {"command": ["cat", "KEY"]}}, {"guestAgentPing": {}}])
def test_what_a_guest_prints_is_not_quoted(asked):
    vmi = unready(**asked)
    found = failing_probes.problem(vmi, known(vmi, said="Readiness probe failed: KEY"))
    assert found.reason.endswith("its readiness probe has not succeeded for 2 h (700 failures)")
