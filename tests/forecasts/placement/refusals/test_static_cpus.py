"""Nodes without the static CPU manager: the KubeletConfig that does not reach them."""

import pytest

from tests.builders import complete, kubevirt, manifest
from virt_admit.forecasts.placement.refusals import static_cpus
from virt_admit.model.kubernetes.cluster import Snapshot

CPUS = "dedicated CPUs (dedicatedCpuPlacement needs node label cpumanager=true)"
REFUSED = {"a": CPUS, "b": CPUS}
API = "machineconfiguration.openshift.io/v1"
BEGIN = ": KubeletConfig pinned sets cpuManagerPolicy static for "
RESTARTS = "whose nodes are then drained and restarted in turn"


def pool(name, labels=(), **fields):
    role = f"node-role.kubernetes.io/{name}"
    spec = {"nodeSelector": {"matchLabels": {role: ""}}, **fields}
    return manifest(API, "MachineConfigPool", name, metadata={"labels": dict(labels)}, spec=spec)


def node(name, *roles):
    labels = {f"node-role.kubernetes.io/{role}": "" for role in roles}
    return manifest("v1", "Node", name, metadata={"labels": labels})


def config(name="pinned", policy="static", owner=(), **labels):
    spec = {
        "kubeletConfig": {"cpuManagerPolicy": policy},
        "machineConfigPoolSelector": {"matchLabels": labels},
    }
    owners = [{"apiVersion": "performance.openshift.io/v2", "controller": True, **dict(owner)}]
    metadata = {"ownerReferences": owners} if owner else {}
    return manifest(API, "KubeletConfig", name, metadata=metadata, spec=spec)


def told(*objects, pools=None, refusals=REFUSED, release="v1.7.0", read=True):
    shipped = [pool("master"), pool("worker", {"pool": "worker"})] if pools is None else pools
    version = kubevirt({}, status={"observedKubeVirtVersion": release})
    if not read:
        return static_cpus.of(refusals, Snapshot([version, *shipped, *objects], ["nodes"]))
    return static_cpus.of(refusals, complete(version, *shipped, *objects))


WORKERS = [node("a", "worker"), node("b", "worker")]
MASTERS = [node("a", "master", "pinned"), node("b", "master", "pinned")]
PINNED = pool("pinned", {"kubelet": "pinned"})


def test_masters_stay_in_their_pool():
    found = told(*MASTERS, PINNED, config(kubelet="pinned"))

    assert found.reason == (
        f"{BEGIN}MachineConfigPool pinned, which has no node: a, b have its label, but stay in "
        "pool master, as masters always do"
    )
    assert found.remedy.startswith(
        "let the selector of KubeletConfig pinned select MachineConfigPool master"
    )
    assert found.remedy.endswith(f", {RESTARTS}; or remove dedicatedCpuPlacement from the VM")
    assert found.command == "kubectl edit kubeletconfig pinned"


def test_the_label_of_the_pool_itself_is_named():
    label = "pools.operator.machineconfiguration.openshift.io/master"
    found = told(*MASTERS, PINNED, config(kubelet="pinned"), pools=[pool("master", {label: ""})])

    assert f"select MachineConfigPool master by its label {label}, {RESTARTS}" in found.remedy


def test_a_pool_that_has_a_kubelet_config_keeps_that_one():
    other = config("limits", policy="none", of="masters")
    pools = [pool("master", {"of": "masters"})]
    found = told(*MASTERS, PINNED, config(kubelet="pinned"), other, pools=pools)

    assert "in KubeletConfig limits, which MachineConfigPool master has already" in found.remedy
    assert found.command == "kubectl edit kubeletconfig limits"


def test_a_kubelet_config_that_an_operator_writes_is_not_edited():
    owner = {"kind": "PerformanceProfile", "name": "pinned"}
    found = told(*MASTERS, PINNED, config(kubelet="pinned", owner=owner))

    assert "the selector of PerformanceProfile pinned select MachineConfigPool" in found.remedy
    assert found.command.startswith("kubectl describe performanceprofile")


def test_no_pool_has_the_labels():
    found = told(*WORKERS, config(kubelet="pinned"))

    assert found.reason.startswith(f"{BEGIN}no MachineConfigPool: none has the labels")
    assert found.command == "kubectl edit kubeletconfig pinned"


def test_a_worker_joins_the_pool_that_has_it():
    found = told(*WORKERS, node("c", "worker", "pinned"), PINNED, config(kubelet="pinned"))

    assert found.reason == f"{BEGIN}MachineConfigPool pinned, which has c alone"
    assert found.command == "kubectl label node a node-role.kubernetes.io/pinned="


@pytest.mark.parametrize(
    ("spec", "words"), [({}, ""), ({"paused": True}, ", which is paused")], ids=["there", "paused"]
)
def test_the_pool_of_the_nodes_has_the_setting(spec, words):
    pools = [pool("worker", {"pool": "worker"}, **spec)]
    found = told(*WORKERS, config(pool="worker"), pools=pools)

    assert found.reason == f"{BEGIN}MachineConfigPool worker{words}"


def test_no_setting_is_there():
    found = told(*WORKERS)

    assert found.reason == ": no KubeletConfig sets cpuManagerPolicy static"
    assert found.remedy.startswith(
        "set cpuManagerPolicy static and reservedSystemCPUs in a KubeletConfig for "
        f"MachineConfigPool worker, {RESTARTS}"
    )


@pytest.mark.parametrize(
    ("release", "label"), [("v1.7.0", "cpumanager"), ("v1.8.0", "kubevirt.io/cpumanager")]
)
def test_the_label_is_that_of_the_release(release, label):
    found = told(*WORKERS, pools=[], release=release)

    assert not found.reason
    assert found.remedy.startswith(
        "set cpuManagerPolicy static (with reserved CPUs) in the kubelet"
    )
    assert found.command == f"kubectl get nodes -L {label}"


def test_what_was_not_read_is_not_denied():
    assert not told(*WORKERS, read=False).reason
    assert not told(*MASTERS, PINNED, config(kubelet="pinned"), read=False).reason


def test_another_cause_is_left_alone():
    assert told(*WORKERS, refusals={"a": CPUS, "b": "cordoned"}) is None


def test_a_config_without_a_selector_has_none():
    spec = {"kubeletConfig": {"cpuManagerPolicy": "static"}}
    bare = manifest(API, "KubeletConfig", "pinned", spec=spec)
    assert told(*WORKERS, bare).reason == (
        f"{BEGIN}no MachineConfigPool: it has no machineConfigPoolSelector"
    )


def test_a_config_that_is_not_seen_may_exist():
    remedy = told(*WORKERS, read=False).remedy
    assert (
        "in the KubeletConfig of MachineConfigPool worker, or in a new one if it has none,"
        in remedy
    )


@pytest.mark.parametrize("read", [True, False])
def test_no_kubelet_is_edited_by_hand_where_pools_are_not_seen(read):
    remedy = told(*WORKERS, pools=(), read=read).remedy
    assert ("on OpenShift by a KubeletConfig" in remedy) is not read


def test_nodes_are_given_to_their_pools_once_for_all_vms(monkeypatch):
    given = []
    members = static_cpus.machine_pools.members
    monkeypatch.setattr(
        static_cpus.machine_pools, "members", lambda *all_: given.append(1) or members(*all_)
    )
    cluster = complete(kubevirt({}), pool("worker"), *WORKERS)
    assert all(static_cpus.of(REFUSED, cluster) for _ in range(3))
    assert len(given) == 1


@pytest.mark.parametrize(
    ("labels", "way"),
    [
        ({"harvesterhci.io/managed": "true"}, "enable the CPU Manager of a host in Harvester 1.4"),
        (
            {"harvesterhci.io/managed": "false"},
            "set cpuManagerPolicy static (with reserved CPUs) in the kubelet of a drained node",
        ),
        ({}, "set cpuManagerPolicy static (with reserved CPUs) in the kubelet of a drained node"),
    ],
)
def test_harvester_has_its_own_way(labels, way):
    nodes = [manifest("v1", "Node", name, metadata={"labels": labels}) for name in REFUSED]
    found = told(*nodes, pools=[])

    assert found.remedy.startswith(way)
    assert found.remedy.endswith(
        "virt-handler labels it; or remove dedicatedCpuPlacement from the VM"
    )
