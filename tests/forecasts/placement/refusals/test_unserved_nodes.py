"""Why virt-handler does not offer a node: it is absent, does not answer, or works and says so."""

import pytest

from tests.builders import manifest
from tests.healthy.parts import ago
from virt_admit.forecasts.placement.refusals import unserved_nodes
from virt_admit.forecasts.placement.refusals.busy_nodes import not_ready_now
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubevirt.launcher.launcher_pod import UNSERVED
from virt_admit.model.messages import command_of

KVM = "devices.kubevirt.io/kvm: 1 missing"
BEGIN = "no node can take it: "


def node(name="n1", schedulable="false", beat="2026-06-04T11:59:00Z", kubelet="v1.25.3"):
    labels = {"kubevirt.io/schedulable": schedulable} if schedulable else {}
    annotations = {"kubevirt.io/heartbeat": beat} if beat else {}
    times = {
        "lastHeartbeatTime": "2026-06-04T12:00:00Z",
        "lastTransitionTime": "2026-06-01T12:00:00Z",
    }
    status = {
        "conditions": [{"type": "Ready", "status": "True", **times}],
        "nodeInfo": {"kubeletVersion": kubelet},
    }
    metadata = {"labels": labels, "annotations": annotations}
    return manifest("v1", "Node", name, metadata=metadata, status=status)


def handler(on="n1", ready="True", since="2026-06-01T12:00:00Z"):
    labels = {"kubevirt.io": "virt-handler"}
    metadata = {"labels": labels, "creationTimestamp": "2026-05-01T12:00:00Z"}
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    status = {"phase": "Running", "conditions": [condition]}
    return manifest(
        "v1",
        "Pod",
        f"virt-handler-{on}",
        "kubevirt",
        metadata=metadata,
        spec={"nodeName": on},
        status=status,
    )


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        ([node(schedulable="", beat="")], "KubeVirt does not run there"),
        ([node()], "no pod of virt-handler runs there"),
        ([node(), handler(ready="False")], "virt-handler there is not ready"),
        (
            [node(beat="2026-06-04T11:10:00Z"), handler()],
            "virt-handler there sent its last heartbeat 50 min ago",
        ),
        (
            [node(), handler()],
            "virt-handler works there, but its device plugins are not registered "
            "(kubevirt.io/schedulable=false)",
        ),
    ],
)
def test_each_state_has_its_words(objects, says):
    cluster = Snapshot(objects, complete=["*"])
    told = unserved_nodes.told("n1", f"{UNSERVED}; {KVM}", cluster)
    assert told == f"{says}; {KVM}"
    assert unserved_nodes.without_effects(told) == says


def test_what_does_not_follow_from_the_plugins_is_said_as_well():
    cluster = Snapshot([node(), handler()])
    told = unserved_nodes.told("n1", f"{UNSERVED}; {KVM}; memory: 2Gi missing", cluster)
    assert unserved_nodes.without_effects(told).endswith("; memory: 2Gi missing")


@pytest.mark.parametrize("cause", ["cordoned", "taint gpu", "memory: 2Gi missing"])
def test_other_causes_stay(cause):
    assert unserved_nodes.told("n1", cause, Snapshot([node(), handler()])) == cause
    assert unserved_nodes.without_effects(cause) == cause


def test_nodes_with_plugins_that_are_not_registered():
    cluster = Snapshot([node(), handler(), node("n2"), handler("n2")])
    refusals = {"n1": f"{UNSERVED}; {KVM}", "n2": f"{UNSERVED}; {KVM}", "n3": "taint gpu"}
    found = unserved_nodes.problem(refusals, BEGIN, cluster)
    assert found is not None
    assert found.reason.startswith(f"{BEGIN}n1, n2 are labelled kubevirt.io/schedulable=false")
    assert "(kubelet v1.25.3); the other nodes: taint gpu" in found.reason
    assert "see in the log of virt-handler" in found.remedy
    assert found.remedy.endswith("kubectl logs virt-handler-n1 -n kubevirt")


@pytest.mark.parametrize(
    ("kubevirt", "kubelet", "old"),
    [
        ("v0.57.1", "v1.25.0", True),
        ("v0.57.1", "v1.24.9", False),
        ("v0.58.0", "v1.25.0", False),
        ("v1.6.0", "v1.33.1", False),
    ],
)
def test_releases_that_do_not_go_together(kubevirt, kubelet, old):
    status = {"observedKubeVirtVersion": kubevirt}
    of_release = manifest("kubevirt.io/v1", "KubeVirt", "kubevirt", "kubevirt", status=status)
    cluster = Snapshot([node(kubelet=kubelet), handler(), of_release])
    assert ("to 0.58 or later" in unserved_nodes.remedy(["n1"], cluster)) == old


def test_only_a_node_that_virt_handler_has_left_is_ready_by_itself():
    refusals = {"n1": UNSERVED}
    assert not_ready_now(refusals, Snapshot([node(), handler()])) is None
    assert not_ready_now(refusals, Snapshot([node(), handler(ready="False")])) is not None


def daemon(name, namespace, *paths):
    """Return a DaemonSet that mounts paths of the host, by the names of its volumes."""
    volumes = [{"name": volume, "hostPath": {"path": path}} for volume, path in paths]
    spec = {"template": {"spec": {"volumes": volumes}}}
    return manifest("apps/v1", "DaemonSet", name, namespace, spec=spec)


def pod_of(name, namespace, ready="True", on="n1"):
    owners = [{"kind": "DaemonSet", "name": name, "controller": True}]
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    return manifest(
        "v1",
        "Pod",
        f"{name}-{on}",
        namespace,
        metadata={"ownerReferences": owners},
        spec={"nodeName": on},
        status=status,
    )


USUAL = ("kubelet", "/var/lib/kubelet")
OTHER = ("registration-dir", "/srv/kubelet/plugins_registry/")
OLD = ("device-plugin", "/var/lib/kubelet/device-plugins")
CSI = [daemon("block-csi-node", "store", OTHER), pod_of("block-csi-node", "store")]


def registered(*drivers, on="n1"):
    spec = {"drivers": [{"name": each} for each in drivers]}
    return manifest("storage.k8s.io/v1", "CSINode", on, spec=spec)


REGISTERED = registered("other.csi.example.com", "block.csi.example.com")
SAME = [
    daemon("other-node", "store", ("r", "/var/lib/kubelet/plugins_registry")),
    pod_of("other-node", "store"),
]


@pytest.mark.parametrize("own", [USUAL, OLD])
def test_the_kubelet_has_another_root_directory_than_virt_handler_mounts(own):
    cluster = Snapshot(
        [node(), handler(), daemon("virt-handler", "kubevirt", own), *CSI, REGISTERED], ["*"]
    )
    found = unserved_nodes.problem({"n1": f"{UNSERVED}; {KVM}"}, BEGIN, cluster)
    assert found is not None
    assert (
        "its device plugins are not registered, as its DaemonSet mounts /var/lib/kubelet while the "
        "kubelet's root seems to be /srv/kubelet (by DaemonSet store/block-csi-node)"
        in found.reason
    )
    assert found.remedy.startswith("bind mount /srv/kubelet on /var/lib/kubelet of these nodes")
    assert not command_of(found.remedy), "the restart is the second step"
    assert "(kubectl delete pod virt-handler-n1 -n kubevirt)" in found.remedy
    assert "rollout" not in found.remedy, "virt-operator takes it back, on all nodes"
    assert "refuse" not in found.remedy
    assert "kubelet v1.25.3" not in found.reason, "a skew is not the cause"


@pytest.mark.parametrize(
    "others",
    [
        [],
        SAME,
        [*CSI, *SAME],  # they do not agree
        [CSI[0]],  # no pod of it is there
        [CSI[0], pod_of("block-csi-node", "store", "False")],  # it may be what is wrong
        [daemon("logs", "store", ("pods", "/var/log/pods")), pod_of("logs", "store")],
    ],
)
def test_the_root_directory_is_not_blamed_without_a_working_daemon_set(others):
    cluster = Snapshot([node(), handler(), daemon("virt-handler", "kubevirt", USUAL), *others])
    assert "kubelet's root" not in unserved_nodes.why(["n1"], cluster)
    assert "see in the log of virt-handler" in unserved_nodes.remedy(["n1"], cluster)


MOUNTS = [daemon("mounts", "store", ("k", "/var/lib/kubelet/")), pod_of("mounts", "store")]


@pytest.mark.parametrize(
    "more",
    [
        [],  # not read
        [registered()],
        [registered("other.csi.example.com")],
        [registered("block.csi.example.com", on="n2")],
        [REGISTERED, *MOUNTS],
    ],
)
def test_a_driver_that_the_kubelet_has_not_registered_may_be_installed_wrongly(more):
    mounting = daemon("virt-handler", "kubevirt", USUAL)
    cluster = Snapshot([node(), handler(), mounting, *CSI, *more], ["*"])
    why, remedy = unserved_nodes.why(["n1"], cluster), unserved_nodes.remedy(["n1"], cluster)
    assert "kubelet's root seems" not in why
    assert "DaemonSet store/block-csi-node registers below /srv/kubelet" in why
    assert remedy.startswith("see the kubelet's --root-dir on the node")
    assert "bind mount" not in remedy
    assert "patch" not in remedy


def test_the_kubelets_of_the_nodes_do_not_have_the_same_root_directory():
    nodes = [node(), handler(), node("n2"), handler("n2"), *CSI, REGISTERED, *SAME[:1]]
    other = pod_of("other-node", "store", on="n2")
    cluster = Snapshot([*nodes, other, daemon("virt-handler", "kubevirt", USUAL)])
    assert "kubelet's root" in unserved_nodes.why(["n1"], cluster)
    assert "kubelet's root" not in unserved_nodes.why(["n1", "n2"], cluster)


def test_hyperconverged_would_take_a_patch_of_kubevirt_back():
    hco = manifest("hco.kubevirt.io/v1beta1", "HyperConverged", "hco", "kubevirt")
    cluster = Snapshot(
        [node(), handler(), daemon("virt-handler", "kubevirt", USUAL), *CSI, REGISTERED, hco]
    )
    assert "customizeComponents" not in unserved_nodes.remedy(["n1"], cluster)


def test_nodes_that_would_take_a_pod_if_virtualization_were_on():
    off = {"devices.kubevirt.io/kvm": "0", "devices.kubevirt.io/tun": "1k"}
    nodes = [node(name, "true") for name in ("n1", "n2")]
    nodes[0]["status"].value["allocatable"] = off
    nodes[0].metadata.value["creationTimestamp"] = ago(days=1)
    kubevirt = manifest("kubevirt.io/v1", "KubeVirt", "kubevirt", "kubevirt")
    cluster = Snapshot([*nodes, handler(), kubevirt], complete=["*"], time=ago())
    causes = f"machine type q35; CPU feature ssbd; {KVM}"
    found = unserved_nodes.problem({"n1": causes, "n2": "cordoned"}, BEGIN, cluster)

    assert found.reason == (
        f"{BEGIN}virtualization is off on n1: the kubelet offers 0 devices.kubevirt.io/kvm there, "
        "and virt-handler has labelled no CPU; the other nodes: cordoned"
    )
    assert "switch on hardware virtualization for n1: in the firmware" in found.remedy
    assert found.remedy.partition(": kubectl")[0].endswith(", and whether the CPU fits")
    assert unserved_nodes.told("n1", causes, cluster).startswith("virtualization is off there")
    assert unserved_nodes.problem({"n1": f"cordoned; {causes}"}, BEGIN, cluster) is None
