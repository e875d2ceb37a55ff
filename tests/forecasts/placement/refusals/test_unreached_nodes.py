"""Nodes that a VM selects and tolerates, but to which no virt-handler goes."""

import pytest

from tests import builders
from tests.builders import manifest
from tests.forecasts.drain import vm_motion
from tests.forecasts.drain.test_target_pods import warning
from virt_admit.forecasts.drain.control import component_states
from virt_admit.forecasts.placement import candidates, no_target
from virt_admit.forecasts.placement.refusals import unreached_nodes, unserved_nodes
from virt_admit.forecasts.placement.refusals.busy_nodes import not_ready_now
from virt_admit.model.kubevirt.launcher.launcher_pod import UNSERVED

TAINT = {"key": "only", "value": "vms", "effect": "NoSchedule"}
ANY = {"effect": "NoSchedule"}
TOLERATION = {"key": "only", "operator": "Exists"}
WHY = "DaemonSet kubevirt/virt-handler does not tolerate taint only=vms:NoSchedule"


def big(name="big", taint=TAINT, **labels):
    """Return a node on which virt-handler has never run."""
    found = builders.node(name, allocatable={**vm_motion.ROOM, "memory": "900Gi"})
    found.data["metadata"]["labels"] = {"size": "big", "kubernetes.io/os": "linux", **labels}
    for key in [each for each in found.data["status"]["allocatable"] if "kubevirt.io/" in each]:
        del found.data["status"]["allocatable"][key]
    found.data["spec"] = {"taints": [taint] if taint else []}
    return found


def daemon(*tolerations, **selector):
    spec = {"tolerations": list(tolerations), "nodeSelector": selector}
    return manifest(
        "apps/v1", "DaemonSet", "virt-handler", "kubevirt", spec={"template": {"spec": spec}}
    )


def why(*objects, tolerates=TOLERATION, **spec):
    """Return why no node takes a VM that selects large nodes."""
    spec = {"nodeSelector": {"size": "big"}, "tolerations": [tolerates], **spec}
    vmi = vm_motion.vmi(spec=spec)
    cluster = vm_motion.cluster(vmi, *objects)
    target = candidates.target(vmi, cluster, moves=False)
    return no_target.reason(target, cluster, moves=False, starts=True)


def test_the_nodes_that_it_selects_are_named_and_not_the_labels_of_others():
    found = why(big(), big("big-2"), daemon())
    assert found.reason == (
        f"no other node can take it: big, big-2 could, but no virt-handler runs there: {WHY}"
    )
    assert found.remedy.startswith(
        "let DaemonSet kubevirt/virt-handler tolerate it by spec.workloads.nodePlacement of "
        "KubeVirt: kubectl patch kubevirt"
    )
    assert '{"key":"only","operator":"Equal","value":"vms","effect":"NoSchedule"}' in found.remedy
    assert "take the taint off" not in found.remedy


def test_hyperconverged_takes_the_toleration():
    hco = manifest("hco.kubevirt.io/v1beta1", "HyperConverged", "hco", "kubevirt")
    found = why(big(), daemon(), hco)
    assert "spec.workloads.nodePlacement of HyperConverged: kubectl patch hyper" in found.remedy


def test_a_label_that_virt_handler_demands():
    found = why(big(taint=None), daemon(role="vms"))
    assert "DaemonSet kubevirt/virt-handler demands label role=vms" in found.reason
    assert "by spec.workloads.nodePlacement of KubeVirt: kubectl edit kubevirt" in found.remedy
    assert found.remedy.endswith("; or label the node")


@pytest.mark.parametrize(
    "objects",
    [
        [big(), daemon(TOLERATION)],
        [big(taint={"key": "node-role.kubernetes.io/control-plane", **ANY}), daemon()],
        [big(taint={"key": "node.kubernetes.io/disk-pressure", **ANY}), daemon()],
        [big()],  # its DaemonSet is not known
    ],
)
def test_virt_handler_is_not_blamed(objects):
    assert "virt-handler" not in why(*objects, tolerates={"operator": "Exists"}).reason


def test_room_of_nodes_that_it_may_use_is_said_as_well():
    large = {"domain": {"devices": {}, "memory": {"guest": "800Gi"}}, "nodeSelector": {}}
    found = why(big(), daemon(), **large)
    assert f"{WHY}; the other nodes that it may use: " in found.reason
    assert "missing" in found.reason


def test_a_toleration_of_everything_does_not_ask_for_the_node():
    large = {"domain": {"devices": {}, "memory": {"guest": "800Gi"}}, "nodeSelector": {}}
    found = why(big(), daemon(), tolerates={"operator": "Exists"}, **large)
    assert "virt-handler" not in found.reason
    assert found.remedy.startswith("add a node with at least 800.3Gi of memory (b, ")


def test_a_node_of_another_operating_system_is_left_alone():
    node = big(taint=None, **{"kubernetes.io/os": "windows"})
    found = why(node, daemon(**{"kubernetes.io/os": "linux"}))
    assert "virt-handler" not in found.reason


def test_where_it_may_use_others_the_placement_of_kubevirt_is_right():
    large = {"domain": {"devices": {}, "memory": {"guest": "800Gi"}}, "nodeSelector": {}}
    assert "virt-handler" not in why(big(taint=None), daemon(role="vms"), **large).reason


def test_explain_says_it_of_each_node():
    cluster = vm_motion.cluster(big(), daemon())
    told = unserved_nodes.told("big", f"{UNSERVED}; devices.kubevirt.io/kvm: 1 missing", cluster)
    assert unserved_nodes.without_effects(told) == f"KubeVirt does not run there: {WHY}"


def test_a_node_that_virt_handler_has_served_before_the_taint():
    cluster = vm_motion.cluster(big(**{"kubevirt.io/schedulable": "false"}), daemon())
    found = not_ready_now({"big": UNSERVED}, cluster)
    assert found.reason == f"no virt-handler runs on big: {WHY}"
    assert "spec.workloads.nodePlacement of KubeVirt" in found.remedy


@pytest.mark.parametrize(("waits", "said"), [(True, 1), (False, 0)])
def test_a_drain_says_it_of_a_node_that_a_vm_waits_for_alone(waits, said):
    node, spec = big(), {"nodeSelector": {"size": "big"}, "tolerations": [TOLERATION]}
    vmi = vm_motion.vmi(on="", spec=spec, phase="Scheduling")
    cluster = vm_motion.cluster(node, daemon(), *([vmi] if waits else []))
    notes = list(component_states.leaving(node, cluster))
    assert len(notes) == said
    assert all("for which VM" in each and WHY in each for each in notes)


def test_many_vms_that_wait_for_the_same_nodes_ask_once(monkeypatch):
    asked = []
    real = unreached_nodes._admitting
    monkeypatch.setattr(
        unreached_nodes, "_admitting", lambda *given: asked.append(1) or real(*given)
    )
    spec = {"nodeSelector": {"size": "big"}, "tolerations": [TOLERATION]}
    vms = [
        vm_motion.vmi(name=f"vm-{number}", on="", spec=spec, phase="Scheduling")
        for number in range(9)
    ]
    nodes = [big(f"big-{number}") for number in range(5)]
    cluster = vm_motion.cluster(*nodes, daemon(), *vms)

    found = [unreached_nodes.finding(node, cluster) for node in nodes]
    assert all("for which VM" in reason and "vm-0 waits" in reason for reason, _ in found)
    assert len(asked) == 1


def test_virt_handler_can_go_to_no_node_at_all():
    vmi = vm_motion.vmi(on="", spec={"tolerations": [TOLERATION]}, phase="Scheduling")
    cluster = vm_motion.cluster(vmi, big(), daemon(), nodes=())
    target = candidates.target(vmi, cluster, moves=False)
    found = no_target.reason(target, cluster, moves=False, starts=True)
    assert found.reason.endswith(f"big could, but no virt-handler runs there: {WHY}")


FORBIDDEN = (
    'Error creating: pods "virt-handler-x" is forbidden: violates PodSecurity "baseline:latest": '
    "host namespaces (hostPID=true)"
)
LABEL = "pod-security.kubernetes.io/enforce"


def forbidding(level="", age=60, then="baseline"):
    """Return a namespace, and virt-handler whose pods Pod Security forbids there."""
    labels = {LABEL: level} if level else {}
    own = daemon()
    said = warning(own, "FailedCreate", FORBIDDEN.replace("baseline", then), age=age)
    return manifest("v1", "Namespace", "kubevirt", metadata={"labels": labels}), own, said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, f"Pod Security forbids: Namespace kubevirt has no label {LABEL} now, so the API"),
        ({}, "server's default is baseline, or the label was removed after that"),
        (
            {"level": "baseline", "then": "restricted"},
            f"Pod Security restricted forbade: label {LABEL} of Namespace kubevirt is baseline by",
        ),
        ({"level": "restricted"}, f"Namespace kubevirt forbids with label {LABEL}=restricted"),
    ],
)
def test_pod_security_forbids_its_pod(given, said):
    found = why(big(taint=None), *forbidding(**given))
    assert "DaemonSet kubevirt/virt-handler cannot create its pod, which " in found.reason
    assert said in found.reason
    assert f"kubectl label namespace kubevirt {LABEL}=privileged --overwrite" in found.remedy


@pytest.mark.parametrize("given", [{"level": "privileged"}, {"age": 7200}])
def test_pod_security_allows_it_by_now(given):
    assert "Pod Security" not in why(big(taint=None), *forbidding(**given)).reason
