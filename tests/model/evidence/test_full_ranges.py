"""Ranges of pod addresses that are full: in truth, by what was left, or those of one network."""

import pytest

from tests.builders import manifest
from virt_admit.model.evidence import full_ranges, sandbox_errors
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.messages import command_of

SAID = (
    "Failed to create pod sandbox: failed to allocate for range 0: no IP addresses available in "
    "range set: {}"
)
LISTED = "kubectl get pods -A -o wide --field-selector=spec.nodeName=n2"


def node(**spec):
    return manifest("v1", "Node", "n2", spec=spec)


def pods(number, prefix="10.9.2."):
    return [
        manifest(
            "v1",
            "Pod",
            f"p{prefix.strip('.:').replace(':', '-')}.{each}",
            "shop",
            spec={"nodeName": "n2"},
            status={"podIP": f"{prefix}{each + 1}"},
        )
        for each in range(number)
    ]


FULL = SAID.format("10.9.2.1-10.9.2.14")


def found(*objects, said=FULL, complete=("*",)):
    return full_ranges.of(said, "n2", Snapshot(list(objects), complete))


def test_what_was_left():
    full = found(node(podCIDR="10.9.2.0/28"), *pods(3), *pods(1, "10.9.3."))
    assert full.reason == (
        "n2 has no pod address left in 10.9.2.1-10.9.2.14, although only 3 pods there have one of "
        "these 14: the others were left by pods that are gone"
    )
    assert full.of_node
    assert "sandbox that crictl pods -q does not list" in full.remedy
    assert command_of(full.remedy) == LISTED


def test_it_is_full_in_truth():
    full = found(node(podCIDRs=["fd00::/64", "10.9.2.0/28"]), *pods(13))
    assert full.reason.endswith("left in 10.9.2.1-10.9.2.14: its pods have 13 of these 14")
    assert "/var/lib/cni" not in full.remedy
    assert full.of_node


def test_a_small_range_is_full_without_its_gateway():
    small = {"said": SAID.format("10.9.2.1-10.9.2.6")}
    own = [pod for pod in pods(6) if pod.at("status", "podIP").text != "10.9.2.1"]
    assert "its pods have 5 of these 6" in found(node(podCIDR="10.9.2.0/29"), *own, **small).reason
    assert "only 4 pods" in found(node(podCIDR="10.9.2.0/29"), *own[:4], **small).reason


def test_a_pod_has_an_address_of_each_family():
    own = pods(13, "fd00:2::")
    for each, pod in enumerate(own):
        first = {"ip": pod.data["status"]["podIP"]}
        pod.data["status"]["podIPs"] = [first, {"ip": f"10.9.2.{each + 2}"}]
    dual = node(podCIDR="fd00:2::/64", podCIDRs=["fd00:2::/64", "10.9.2.0/28"])
    assert "its pods have 13 of these 14" in found(dual, *own).reason
    other = found(dual, *own, said=SAID.format("10.9.2.1-10.9.2.200"))
    assert "only 13 pods there have one of these 200" in other.reason


def test_pods_that_are_not_known_may_have_them():
    full = found(node(podCIDR="10.9.2.0/28"), complete=["nodes"])
    assert full.remedy.startswith("if its pods have fewer addresses, on n2, remove")


@pytest.mark.parametrize("objects", [[], [node()], [node(podCIDR="10.8.0.0/16")]])
def test_the_range_of_one_network(objects):
    full = found(*objects)
    assert (full.of_node, full.of_network) == (False, True)
    assert "or widen that range in the configuration of the network" in full.remedy


def test_an_address_of_ipv6():
    full = found(
        node(podCIDRs=["fd00:2::/120"]),
        *pods(2, "fd00:2::"),
        said=SAID.format("fd00:2::1-fd00:2::fe"),
    )
    assert "only 2 pods there have one of these 254" in full.reason


CILIUM = "unable to allocate IP via local cilium agent: [POST /ipam][502] postIpamFailure {}"


def cilium(*, admits="110", own=("10.9.2.1", "10.9.2.14")):
    """Return a node of which Cilium gives pods addresses, and itself two."""
    router, health = own
    spec = {
        "addresses": [{"ip": "192.0.2.7"}, {"ip": router}],
        "health": {"ipv4": health},
        "ipam": {"podCIDRs": ["10.9.2.0/28"]},
    }
    full = node()
    full.data["status"] = {"allocatable": {"pods": admits}}
    return full, manifest("cilium.io/v2", "CiliumNode", "n2", spec=spec)


@pytest.mark.parametrize("said", ["range is full", "all pod CIDR ranges are exhausted"])
def test_the_range_that_cilium_has_of_a_node_is_full(said):
    full = found(*cilium(), *pods(13)[1:], said=CILIUM.format(said))
    assert full.reason == (
        "n2 has no free pod address: its range 10.9.2.0/28 has 14, of which 12 are of its pods and "
        "2 of Cilium, and its kubelet admits 110 pods"
    )
    assert full.of_node
    assert full.remedy.startswith("have fewer pods on n2, scaled down or moved to a node with free")
    assert command_of(full.remedy) == LISTED


def used_up(*objects):
    return full_ranges.used_up("n2", Snapshot(list(objects), ["*"]))


def test_each_address_of_a_node_is_used():
    of_cilium = used_up(*cilium(), *pods(13)[1:])
    assert "10.9.2.0/28 has 14" in of_cilium.reason
    flannel, _ = cilium()
    flannel.data["spec"] = {"podCIDR": "10.9.2.0/28"}
    assert "of which 13 are of its pods, and" in used_up(flannel, *pods(14)[1:]).reason


def ended(number):
    own = pods(number)
    own[-1].data["status"]["phase"] = "Succeeded"
    return own[1:]


@pytest.mark.parametrize(
    "objects",
    [
        (*cilium(), *pods(12)[1:]),
        (*cilium(), *ended(13)),
        (*cilium(admits="12"), *pods(13)[1:]),  # kube-scheduler chooses it no more
        (*cilium(), *pods(13, "192.0.2.")[1:]),
        (cilium()[0], *pods(13)[1:]),
    ],
    ids=["one free", "one given back", "as many pods as addresses", "other pods", "no range known"],
)
def test_an_address_may_be_free(objects):
    assert used_up(*objects) is None


def test_cilium_gives_no_address_although_few_pods_have_one():
    full = found(*cilium(), *pods(3)[1:], said=CILIUM.format("range is full"))
    assert full.reason == (
        "Cilium has no address left on n2, although its pods have only 2 of the 12 of its range "
        "10.9.2.0/28"
    )
    assert "cilium-dbg status --verbose" in full.remedy
    assert found(said=CILIUM.format("range is full")).reason == "Cilium has no address left on n2"


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("No IPs available in pools: [10.0.0.0/26]", "no address left in IP pool 10.0.0.0/26"),
        ("add cmd: failed to assign an IP address to container", "no address left on n2"),
    ],
)
def test_other_plugins(said, what):
    assert what in found(said=said).reason


@pytest.mark.parametrize(
    "said",
    [
        "",
        "no such file",
        SAID.format("10.9-10.9.2.14"),
        SAID.format("10.9.2.14-fd00::1"),
        SAID.format("10.9.2.14-10.9.2.1"),
    ],
)
def test_other_errors(said):
    assert found(said=said) is None


@pytest.mark.parametrize(
    ("said", "way"),
    [
        (
            'failed to find plugin "bridge" in path [/opt/cni/bin]',
            "install network plugin bridge in /opt/cni/bin on n2",
        ),
        ('no runtime for "kata" is configured', "configure kata in the container runtime of n2"),
        ('failed to get sandbox image "r/pause:3.6": no host', "let n2 pull image r/pause:3.6"),
        ("cni plugin not initialized", "repair the pod network on n2"),
        ("something else", "correct on n2 what its container runtime says there"),
    ],
)
def test_the_sandbox_of_a_pod(said, way):
    remedy = sandbox_errors.remedy(f"Failed to create pod sandbox: {said}", "n2")
    assert remedy.startswith(way)
    assert command_of(remedy) == LISTED
    assert sandbox_errors.remedy(said, "n2") == ""


@pytest.mark.parametrize("cidr", ["10.9.9.9/32", "10.9.9.8/31", "fd00::1/128", "0.0.0.0/0"])
def test_a_range_without_addresses_for_pods_is_none(cidr):
    node = manifest(
        "v1", "Node", "n2", spec={"podCIDR": cidr}, status={"allocatable": {"pods": "9"}}
    )
    assert used_up(node) is None
