"""Networks that only some nodes have: where a VM may go, and what cannot be determined."""

import pytest

from tests.builders import kubevirt, manifest, node
from tests.forecasts.placement.test_preemption_effects import LABELS, NS, ROOM, launcher, vmi
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.model.kubernetes.cluster import Snapshot

HARVESTER = {"network.harvesterhci.io/storage": "true"}
INJECTED = {"uplink": "eno3"}
NETWORK = [{"name": "lan", "multus": {"networkName": "vlan7"}}]


def definition(labels=None, annotations=None):
    metadata = {"labels": labels or {}, "annotations": annotations or {}}
    return manifest(
        "k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "vlan7", "shop", metadata=metadata
    )


OF_HARVESTER = definition(labels={"network.harvesterhci.io/clusternetwork": "storage"})
OF_INJECTOR = definition(annotations={"k8s.v1.cni.cncf.io/nodeSelector": "uplink=eno3"})


def judged(network, *, n1, n2, n3=None, pod=(), unreadable=(), also=(), **spec):
    given = {"n1": n1, "n2": n2} | ({} if n3 is None else {"n3": n3})
    nodes = [node(name, LABELS | labels, allocatable=ROOM) for name, labels in given.items()]
    running = launcher("db", "n1", memory="1Gi", **dict(pod))
    objects = [*nodes, NS, kubevirt(), vmi("db", "n1", networks=NETWORK, **spec), running, *also]
    objects += [network] if network else []
    plan = drain_plan.plan(Snapshot(objects, complete=["*"], unreadable=unreadable), "n1")
    (row,) = plan.nodes[0].forecasts
    return row, plan.nodes[0]


@pytest.mark.parametrize(("network", "label"), [(OF_HARVESTER, HARVESTER), (OF_INJECTOR, INJECTED)])
def test_kube_scheduler_may_choose_a_node_although_none_has_the_network(network, label):
    (key,) = label
    row, found = judged(network, n1=label, n2={})
    assert row.outcome is VmOutcome.UNKNOWN
    assert (
        f"kube-scheduler chooses n2, which is without network vlan7 (label {key}), as is every"
        in row.reason
    )
    assert "in Harvester by a VlanConfig that selects it" in row.remedy
    assert found.drainable is None


@pytest.mark.parametrize(("network", "label"), [(OF_HARVESTER, HARVESTER), (OF_INJECTOR, INJECTED)])
def test_a_node_without_the_network_that_the_pod_demands_is_no_candidate(network, label):
    (key,) = label
    row, found = judged(network, n1=label, n2={}, pod={"nodeSelector": label})
    assert row.outcome is VmOutcome.BLOCKS
    assert f"network vlan7 (label {key})" in row.reason
    assert "set network vlan7 up on another node, in Harvester by a VlanConfig" in row.remedy
    assert found.drainable is False


def vlan_config(selector, network="storage"):
    spec = {"clusterNetwork": network, "nodeSelector": selector, "uplink": {"nics": ["eno3"]}}
    return manifest("network.harvesterhci.io/v1beta1", "VlanConfig", "uplink", spec=spec)


@pytest.mark.parametrize(
    ("config", "told", "way"),
    [
        (
            vlan_config({"rack": "9"}),
            "VlanConfig uplink, which sets up cluster network storage, selects no node: none has "
            "label rack=9",
            "let the nodeSelector of VlanConfig uplink select nodes that have its uplinks",
        ),
        (
            vlan_config(HARVESTER),
            "selects n1 alone",
            "make a further VlanConfig like uplink that selects another node",
        ),
        (vlan_config({}), "", ""),
        (vlan_config({"rack": "9"}, "other"), "", ""),
    ],
    ids=["no node", "its own node", "all nodes", "another network"],
)
def test_the_setting_of_a_network_that_reaches_no_other_node(config, told, way):
    row, _ = judged(
        OF_HARVESTER, n1=HARVESTER, n2={}, pod={"nodeSelector": HARVESTER}, also=[config]
    )
    assert row.outcome is VmOutcome.BLOCKS
    assert told in row.reason
    assert ("VlanConfig uplink" in row.remedy or "VlanConfig like uplink" in row.remedy) is bool(
        told
    )
    assert way in row.remedy
    assert "label the node" not in row.remedy


def test_a_node_that_the_vm_does_not_fit_on_is_refused_for_that():
    row, found = judged(OF_HARVESTER, n1=HARVESTER, n2={}, nodeSelector={"zone": "a"})
    assert row.outcome is VmOutcome.BLOCKS
    assert found.drainable is False


@pytest.mark.parametrize(("network", "label"), [(OF_HARVESTER, HARVESTER), (OF_INJECTOR, INJECTED)])
def test_a_node_with_the_network_is_a_candidate(network, label):
    row, found = judged(network, n1=label, n2=label)
    assert (row.outcome, row.target.placement.candidates) == (VmOutcome.MIGRATES, ("n2",))
    assert found.drainable is True


def test_kube_scheduler_may_choose_a_node_without_the_network():
    row, found = judged(OF_HARVESTER, n1=HARVESTER, n2=HARVESTER, n3={})
    assert row.outcome is VmOutcome.UNKNOWN
    assert (
        "whether kube-scheduler chooses a node with network vlan7 (label "
        "network.harvesterhci.io/storage), or n3 without"
    ) in row.reason
    assert found.drainable is None


def test_a_node_selector_in_the_pod_is_obeyed():
    row, _ = judged(OF_INJECTOR, n1=INJECTED, n2=INJECTED, n3={}, pod={"nodeSelector": INJECTED})
    assert (row.outcome, row.target.placement.candidates) == (VmOutcome.MIGRATES, ("n2",))


def test_the_node_affinity_that_harvester_writes_is_obeyed():
    expressions = [{"key": "network.harvesterhci.io/storage", "operator": "In", "values": ["true"]}]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    row, _ = judged(OF_HARVESTER, n1=HARVESTER, n2=HARVESTER, n3={}, affinity=affinity)
    assert (row.outcome, row.target.placement.candidates) == (VmOutcome.MIGRATES, ("n2",))


def test_labels_that_the_own_node_lacks_say_nothing():
    assert judged(OF_HARVESTER, n1={}, n2={})[0].outcome is VmOutcome.MIGRATES


def test_a_selector_with_several_labels_says_nothing():
    several = definition(annotations={"k8s.v1.cni.cncf.io/nodeSelector": "uplink=eno3,rack=1"})
    assert judged(several, n1=INJECTED | {"rack": "1"}, n2={})[0].outcome is VmOutcome.MIGRATES


def test_a_definition_that_cannot_be_read_leaves_it_open():
    row, found = judged(
        None, n1={}, n2={}, unreadable=["network-attachment-definitions.k8s.cni.cncf.io"]
    )
    assert row.outcome is VmOutcome.UNKNOWN
    assert "network-attachment-definitions" in row.reason
    assert found.drainable is None


def test_no_target_pod_can_be_made_without_the_network():
    row, found = judged(None, n1={}, n2={})
    assert row.outcome is VmOutcome.BLOCKS
    assert (
        "no target pod of it can be made: its network, NetworkAttachmentDefinition shop/vlan7, "
        "does not exist"
    ) in row.reason
    assert "create NetworkAttachmentDefinition shop/vlan7 again" in row.remedy
    assert found.drainable is False
