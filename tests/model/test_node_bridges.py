"""Bridges that nodes do not have: which resource stands for one,
and the policy that was to make it.
"""

import pytest

from tests.builders import manifest
from tests.healthy.parts import ago
from virt_admit.model import node_bridges
from virt_admit.model.kubernetes.cluster import Snapshot

LONG = (
    "error reconciling NodeNetworkConfigurationPolicy on node w2:\nTraceback\n"
    "NmstateError: InvalidArgument: no port ens4f1"
)


def policy(*bridges, counted=0, selector=None, called="lan", **interface):
    interfaces = [{"name": each, "type": "linux-bridge"} | interface for each in bridges]
    return manifest(
        "nmstate.io/v1",
        "NodeNetworkConfigurationPolicy",
        called,
        metadata={"generation": 2},
        spec={"desiredState": {"interfaces": interfaces}, "nodeSelector": selector or {}},
        status={"unavailableNodeCountMap": {"2": counted}},
    )


def enactment(node, failing="False", message=LONG, of="lan", **changed):
    """An enactment; ``changed``: the conditions that are True, and for how many minutes."""
    labels = {"nmstate.io/node": node, "nmstate.io/policy": of}
    conditions = [
        {"type": "Failing", "status": failing, "message": message},
        *(
            {"type": kind, "status": "True", "lastTransitionTime": ago(minutes=minutes)}
            for kind, minutes in changed.items()
        ),
    ]
    return manifest(
        "nmstate.io/v1beta1",
        "NodeNetworkConfigurationEnactment",
        f"{node}.{of}",
        metadata={"labels": labels},
        status={"conditions": conditions, "policyGeneration": 2},
    )


def node(name, **labels):
    return manifest("v1", "Node", name, metadata={"labels": labels})


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("bridge.network.kubevirt.io/br1", "br1"),
        ("ovs-cni.network.kubevirt.io/br-ex", "br-ex"),
        ("nvidia.com/A100", ""),
        ("devices.kubevirt.io/kvm", ""),
    ],
)
def test_resources_that_stand_for_a_bridge(resource, name):
    assert node_bridges.bridge(resource) == name


NODES = (node("w2", role="b"), node("w3", role="b"))
TWO = "make bridge br1 on w2 or w3"


def remedy(*objects, complete=("*",)):
    cluster = Snapshot([*NODES, *objects], list(complete), time=ago())
    return node_bridges.remedy("br1", ("w3", "w2"), cluster)


@pytest.mark.parametrize(
    "objects",
    [(), (policy("other"), enactment("w2", "True")), (policy("br1", state="absent"),)],
    ids=["no policy", "a policy for another bridge", "a policy that removes it"],
)
def test_a_bridge_that_no_policy_makes(objects):
    assert remedy(*objects) == TWO


def test_a_policy_for_other_nodes():
    assert remedy(policy("br1", selector={"role": "a"})) == (
        f"{TWO} (NodeNetworkConfigurationPolicy lan makes it elsewhere, but its nodeSelector does "
        "not select w2, w3: extend it, or write another policy)"
    )


def test_a_policy_that_failed():
    failed = [enactment("w3", "True", ""), enactment("w2", "True"), enactment("w1", Available=9)]
    assert remedy(policy("bond0", "br1"), *failed) == (
        "correct NodeNetworkConfigurationPolicy lan, which is to make bridge br1 on w2, w3 (it "
        "failed on w2, w3: InvalidArgument: no port ens4f1)"
    )


def state(node, *names, **more):
    own = {name: more.get(name, {}) for name in (*names, *more)}
    cards = [{"name": name, "type": "ethernet"} | own[name] for name in own]
    routes = {"running": [{"destination": "0.0.0.0/0", "next-hop-interface": names[0]}]}
    current = {"interfaces": cards, "routes": routes}
    return manifest(
        "nmstate.io/v1beta1", "NodeNetworkState", node, status={"currentState": current}
    )


def on(*ports):
    return policy("br1", bridge={"port": [{"name": each} for each in ports]})


LACKS = "port eth9 does not exist there (w2 has eth1)"
NO_PORT = "NmstateError: VerificationError: no eth9"
MADE = enactment("w1", Available=9)
BOND = policy("eth9", type="bond", called="bonds")


def test_a_policy_names_a_port_that_a_node_does_not_have():
    objects = (on("eth1", "eth9"), enactment("w2", "True", NO_PORT), state("w2", "eth0", "eth1"))
    alone = remedy(*objects)
    assert alone.startswith("correct NodeNetworkConfigurationPolicy lan")
    assert LACKS in alone
    found = remedy(*objects, enactment("w1", Available=9))
    assert found == (
        "write a second policy for w2, with a nodeSelector and a port that is there (without an "
        "address), and let the nodeSelector of NodeNetworkConfigurationPolicy lan leave w2 "
        "out, as another port in it would break w1 (NodeNetworkConfigurationPolicy lan, which is "
        f"to make bridge br1 on w2, w3, failed on w2: {LACKS})"
    )


@pytest.mark.parametrize("error", ["OVS is not running", "eth99 is down", "eth9.100 is down"])
def test_an_error_that_does_not_name_the_port_is_said_before_it(error):
    said = enactment("w2", "True", f"NmstateError: PluginFailure: {error}")
    found = remedy(on("eth9"), said, enactment("w1", Available=9), state("w2", "eth0", "eth1"))
    assert found == (
        "correct NodeNetworkConfigurationPolicy lan, which is to make bridge br1 on w2, w3 (it "
        f"failed on w2: PluginFailure: {error}; {LACKS})"
    )


@pytest.mark.parametrize("named", [True, False])
def test_a_port_that_another_policy_makes(named):
    error = NO_PORT if named else "NmstateError: PluginFailure: timeout"
    tried = (enactment("w2", "True", error), MADE)
    found = remedy(on("eth9"), BOND, *tried, state("w2", "eth0", "eth1"))
    first = (
        "first let NodeNetworkConfigurationPolicy bonds make eth9 on w2; then set a new descript"
    )
    assert found.startswith(first if named else "correct NodeNetworkConfigurationPolicy lan")
    assert "eth9, which NodeNetworkConfigurationPolicy bonds makes, does not exist there" in found
    assert ("timeout" in found) is not named
    assert "second policy" not in found


@pytest.mark.parametrize(
    ("other", "makes"),
    [
        (policy("eth9", type="bond", called="bonds", selector={"role": "a"}), True),
        (policy("eth9", type=None, called="bonds"), False),
        (policy("eth9", type="ethernet", called="bonds"), False),
    ],
    ids=["on other nodes", "its type is not said", "a card"],
)
def test_a_policy_that_makes_no_port_there(other, makes):
    tried = (enactment("w2", "True", NO_PORT), MADE, state("w2", "eth0", "eth1"))
    found = remedy(on("eth9"), other, *tried)
    assert found.startswith("write a second policy for w2")
    made = "eth9, which NodeNetworkConfigurationPolicy bonds makes on other nodes, does not exist"
    assert (made in found) is makes


def test_a_policy_that_failed_to_make_the_port_there():
    tried = (enactment("w2", "True", NO_PORT), MADE, state("w2", "eth0", "eth1"))
    failed = enactment("w2", "True", "NmstateError: NotSupported: mode 9", of="bonds")
    found = remedy(on("eth9"), BOND, failed, *tried)
    assert found.startswith(
        "first correct NodeNetworkConfigurationPolicy bonds; then set a new description for an "
        "interface of NodeNetworkConfigurationPolicy lan, so that it is tried again ("
    )
    assert "as that policy failed on w2: NotSupported: mode 9" in found


def test_policies_that_need_ports_of_each_other():
    mine = policy("br1", type="vlan", vlan={"base-iface": "eth9"})
    other = policy("eth9", type="vlan", called="bonds", vlan={"base-iface": "br1"})
    failed = enactment("w2", "True", "NmstateError: no br1", of="bonds")
    tried = (enactment("w2", "True", NO_PORT), failed, state("w2", "eth0"))
    assert remedy(mine, other, *tried).startswith(
        "first let NodeNetworkConfigurationPolicy lan make br1 on w2; then set a new description"
    )


@pytest.mark.parametrize(
    ("error", "again"),
    [
        ("InvalidArgument: Controller interface br1 is holding unknown port eth9", True),
        ("InvalidArgument: Ethernet interface eth9 does not exists", True),
        ("InvalidArgument: Controller interface br1 is holding unknown port eth99", False),
        ("PluginFailure: cannot set the MTU of eth9", False),
    ],
)
def test_a_port_that_exists_since(error, again):
    tried = (enactment("w2", "True", f"NmstateError: {error}"), MADE)
    found = remedy(on("eth9"), *tried, state("w2", "eth0", "eth9"))
    assert (found.startswith("set a new description for an interface of NodeNetwork")) is again
    assert ("failed on w2, as port eth9 did not exist there, but it does now" in found) is again
    both = remedy(on("eth9", "eth8"), *tried, state("w2", "eth0", "eth9"))
    assert "port eth8 does not exist there" in both


def test_without_a_free_card_no_second_policy_is_suggested():
    tried = (enactment("w2", "True", NO_PORT), MADE, state("w2", "eth0"))
    assert remedy(on("eth9"), *tried).startswith(
        "add a network card to w2, or let the nodeSelector of NodeNetworkConfigurationPolicy lan "
        "leave w2 out, as another port in it would break w1 ("
    )


@pytest.mark.parametrize(
    ("ip", "free"),
    [("10.9.0.5", False), ("2001:db8::5", False), ("fe80::5", True), ("169.254.3.1", True)],
)
def test_a_card_with_an_address_is_not_free(ip, free):
    tried = (enactment("w2", "True", NO_PORT), MADE)
    address = {"ipv6" if ":" in ip else "ipv4": {"address": [{"ip": ip}]}}
    own = state("w2", "eth0", eth1=address)
    assert ("(w2 has eth1)" in remedy(on("eth9"), *tried, own)) is free
    vlan = {"type": "vlan", "vlan": {"base-iface": "eth1"}} | address
    assert ("(w2 has eth1)" in remedy(on("eth9"), *tried, state("w2", "eth0", "eth1", v=vlan))) is (
        free
    )


def test_cards_that_are_in_use_are_not_suggested():
    cards = {"eth1": {"controller": "bond0"}, "eth2": {}}
    tried = (enactment("w2", "True", NO_PORT), enactment("w1", Available=9))
    bond = state("w2", "bond0", **cards, bond0={"type": "bond"})
    assert "(w2 has eth2)" in remedy(on("eth9"), *tried, bond)
    vlan = state("w2", "v1", **cards, v1={"type": "vlan", "vlan": {"base-iface": "eth2"}})
    assert "(w2 has no free one)" in remedy(on("eth9"), *tried, vlan)


@pytest.mark.parametrize(
    "objects",
    [
        (on("eth1"), state("w2", "eth0", "eth1")),
        (on("eth9"),),
        (on("veth3"), state("w2", "eth0")),
        (on("sriov:eth0:0"), state("w2", "eth0")),
        (on("br1"), state("w2", "eth0")),
        (
            policy("br1", type="ovs-bridge", bridge={"port": [{"name": "internal"}]}),
            state("w2", "eth0"),
        ),
    ],
    ids=[
        "it has the port",
        "its cards are not known",
        "not listed",
        "a virtual function",
        "the policy makes it",
        "an ovs-bridge makes it",
    ],
)
def test_a_policy_whose_ports_are_not_known_to_lack(objects):
    done = (enactment("w2", "True"), enactment("w1", Available=9))
    assert remedy(*objects, *done).startswith("correct NodeNetworkConfigurationPolicy lan")
    assert "InvalidArgument: no port ens4f1" in remedy(*objects, *done)


def test_of_a_state_that_was_not_reached_the_difference_is_said():
    said = (
        "'NmstateError: VerificationError: desired\n=====\n---\nname: br1\ncurrent\n=====\n---\n"
        "name: br1\ndifference\n=====\n--- desired\n+++ current\n- mtu: 9000\n+ mtu: 1500\n'"
    )
    found = remedy(policy("br1"), enactment("w2", "True", said))
    assert "VerificationError: --- desired +++ current - mtu: 9000 + mtu: 1500)" in found


@pytest.mark.parametrize("lost", [True, False])
def test_a_policy_that_takes_the_default_route_from_a_node(lost):
    why = "failed to retrieve default gw at runProbes" if lost else "failed to ping"
    state = "--- interfaces: - name: br1 state: up ipv4: enabled: false " * 9
    said = (
        f"error reconciling the policy: failed probe -> currentState: {state}\n: {why}: timed out"
    )
    stuck = node_bridges.problems(policy("br1"), Snapshot([enactment("w2", "True", said)], ["*"]))[
        0
    ]
    assert f"{why}: timed out" in stuck.reason
    assert ("no default route was left with it" in stuck.reason) is lost
    assert ("needs the address and default route of its port" in stuck.remedy) is lost


def test_nodes_that_are_not_tried_after_a_failure_elsewhere():
    tried = (enactment("w1", "True"), enactment("w2", Aborted=50), enactment("w3", Aborted=50))
    assert remedy(policy("br1"), *tried).endswith(
        "(it failed on w1: InvalidArgument: no port ens4f1; so it is not tried on w2, w3)"
    )


def test_nodes_that_wait_for_a_place_that_no_node_has():
    waits = (
        enactment("w1", Available=90),
        enactment("w2", Pending=120),
        enactment("w3", Pending=120),
    )
    patch = """{"status":{"unavailableNodeCountMap":{"2":0}}}"""
    assert remedy(policy("br1", counted=1), *waits) == (
        "let NodeNetworkConfigurationPolicy lan make bridge br1 on w2, w3 (it has stood still for "
        "90 min: w2, w3 wait (MaxUnavailableLimitReached), as its status counts 1 node as being "
        "changed, while none is): set that count (unavailableNodeCountMap) to 0, as a change of "
        "its spec would be refused (kubectl patch nodenetworkconfigurationpolicy lan "
        f"--subresource=status --type=merge -p '{patch}')"
    )


@pytest.mark.parametrize(
    ("counted", "others"),
    [
        (1, [enactment("w1", Available=1)]),
        (1, [enactment("w1", Progressing=20)]),
        (0, [enactment("w1", Available=90)]),
    ],
    ids=["the node before is done", "another node has the place", "the place is free"],
)
def test_nodes_whose_turn_comes(counted, others):
    waits = (enactment("w2", Pending=120), enactment("w3", Pending=120))
    assert remedy(policy("br1", counted=counted), *waits, *others) == (
        "see how far NodeNetworkConfigurationPolicy lan is, which is to make bridge br1 on w2, w3 "
        "(kubectl get nodenetworkconfigurationenactment -l nmstate.io/policy=lan)"
    )


def test_a_place_that_may_belong_to_a_node_that_was_not_read():
    waits = enactment("w2", Pending=120)
    assert remedy(policy("br1", counted=1), waits, complete=()).startswith("see how far")


def test_a_node_that_is_changed_for_long():
    busy = (enactment("w2", Progressing=120), enactment("w3", Pending=180))
    assert remedy(policy("br1", counted=1), *busy) == (
        "let NodeNetworkConfigurationPolicy lan make bridge br1 on w2, w3 (it has been changing w2 "
        "for 2 h, for which w3 waits): see what nmstate-handler does on w2 (kubectl get pods -A -o "
        "wide --field-selector=spec.nodeName=w2)"
    )


def test_a_node_without_a_handler():
    assert remedy(policy("br1"), enactment("w1", Available=90)) == (
        "see that nmstate-handler works on w2, w3: it has not begun with "
        "NodeNetworkConfigurationPolicy lan, which is to make bridge br1 on w2, w3 (kubectl get "
        "pods -A -o wide --field-selector=spec.nodeName=w2)"
    )


def test_a_bridge_that_its_marker_does_not_offer():
    made = (enactment("w2", Available=90), enactment("w3", Available=90))
    assert remedy(policy("br1"), *made).startswith(
        "see why the marker of bridges does not offer br1 on w2, w3, where "
        "NodeNetworkConfigurationPolicy lan has made it"
    )
