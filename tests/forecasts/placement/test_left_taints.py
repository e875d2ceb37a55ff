"""Start-up taints that nothing removes, on many nodes."""

import pytest

from tests import builders
from tests.builders import manifest
from virt_admit.forecasts.drain.control import component_states
from virt_admit.forecasts.placement import start_doubts
from virt_admit.forecasts.placement.components import left_taints
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.scheduler import node_labels

KEY = "node.cilium.io/agent-not-ready"


def node(name, *taints):
    metadata = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return manifest("v1", "Node", name, metadata=metadata, spec={"taints": list(taints)})


def commands(number):
    tainted = [node(f"n{each:02}", {"key": KEY, "effect": "NoSchedule"}) for each in range(number)]
    cluster = Snapshot([*tainted, node("other")], ["*"], time="2026-02-01T00:00:00Z")
    return [found.command for each in tainted for _, found in left_taints.of_node(each, cluster)]


def test_a_command_names_the_node_alone_where_there_are_many():
    assert commands(2) == [f"kubectl taint nodes n00 n01 {KEY}-"] * 2
    assert commands(11)[3] == f"kubectl taint nodes n03 {KEY}-"


def test_a_shared_taint_is_removed_with_its_value_and_effect():
    taints = [{"key": "hold", "value": "x", "effect": "NoSchedule"}]
    own = manifest(
        "v1",
        "Node",
        "a",
        metadata={"labels": {"kubevirt.io/schedulable": "true"}},
        spec={"taints": taints},
    )
    guest = manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        "v",
        "d",
        spec={},
        status={"phase": "Running", "nodeName": "a"},
    )
    cluster = Snapshot([own, guest], ["*"], time="2026-02-01T00:00:00Z")
    ((_, found),) = left_taints.of_node(own, cluster)
    assert found.command == "kubectl taint nodes a hold=x:NoSchedule-"
    unread = Snapshot([own, guest], ["Node", "VirtualMachineInstance"])
    assert not list(left_taints.of_node(own, unread))


def test_no_vm_is_to_tolerate_a_taint_of_podmon():
    cluster = Snapshot([node("n")], ["*"], time="2026-02-01T00:00:00Z")
    key = "vxflexos.podmon.storage.dell.com"
    way = start_doubts.opens(f"on n taint {key}", "", cluster)
    assert way == f"add a node that takes it, or wait until podmon removes taint {key}"
    assert "let n take it" in start_doubts.opens("on n taint hold", "", cluster)


@pytest.mark.parametrize(
    ("taint", "commands"),
    [
        ({"effect": "NoSchedule"}, []),
        ({"key": "", "effect": "NoSchedule"}, []),
        ({"key": 1, "effect": "NoSchedule"}, []),
        ({"key": "hold", "value": ["x"], "effect": "NoSchedule"}, ["hold:NoSchedule-"]),
    ],
)
def test_a_malformed_taint_makes_no_malformed_command(taint, commands):
    own = builders.node("a", taints=[taint])
    guest = builders.vmi(status={"phase": "Running", "nodeName": "a"})
    cluster = Snapshot([own, guest], ["*"], time="2026-02-01T00:00:00Z")
    found = [each.command for _, each in left_taints.of_node(own, cluster)]
    assert found == [f"kubectl taint nodes a {each}" for each in commands]


OFFLINE = "offline.vxflexos.storage.dell.com"
"""Of podmon, while the pod of the driver on the node is not ready."""


def test_a_taint_that_goes_with_the_pod_of_a_driver_is_not_removed_by_hand():
    own = builders.node("a", taints=[{"key": OFFLINE, "effect": "NoSchedule"}])
    guest = builders.vmi(status={"phase": "Running", "nodeName": "a"})
    handler = manifest(
        "v1",
        "Pod",
        "virt-handler-1",
        "kubevirt",
        metadata={
            "labels": {"kubevirt.io": "virt-handler"},
            "ownerReferences": builders.owned_by("DaemonSet", "virt-handler"),
        },
        spec={"nodeName": "a"},
        status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    )
    cluster = Snapshot([own, guest, handler], ["*"], time="2026-02-01T00:00:00Z")
    assert not list(left_taints.of_node(own, cluster))
    assert not component_states.unwanted(own, cluster)
    own.data["spec"]["taints"][0]["key"] = "hold"
    cluster = Snapshot([own, guest, handler], ["*"], time="2026-02-01T00:00:00Z")
    assert list(left_taints.of_node(own, cluster))
    assert node_labels.is_transient({"key": OFFLINE})
    way = start_doubts.opens(f"on n taint {OFFLINE}", "", cluster)
    reported = f"what podmon of Dell CSM Resiliency reports with taint {OFFLINE}"
    assert way == f"add a node that takes it, or repair {reported} on n"
