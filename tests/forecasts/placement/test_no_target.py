"""Why no other node takes a VM, and the remedy:
more room helps only where room is what is missing.
"""

from datetime import datetime

import pytest

from tests.builders import claim, kubevirt, manifest
from tests.forecasts.drain.vm_motion import cluster, node, vmi
from virt_admit.forecasts.drain import workload_updates
from virt_admit.forecasts.placement import candidates, no_target
from virt_admit.forecasts.placement.refusals import affinity_partners
from virt_admit.model.problems import ProblemCause

GPU = {
    "domain": {
        "cpu": {"model": "host-model"},
        "devices": {"gpus": [{"name": "g", "deviceName": "nvidia.com/A100"}]},
    }
}
DEVICE = {"name": "g", "deviceName": "bridge.network.kubevirt.io/br1"}
LAN = {"domain": {"cpu": {"model": "host-model"}, "devices": {"hostDevices": [DEVICE]}}}
LARGE = {"domain": {"cpu": {"model": "host-model"}, "devices": {}, "memory": {"guest": "900Gi"}}}
DEDICATED = {
    "domain": {
        "cpu": {"model": "host-model", "cores": 2, "dedicatedCpuPlacement": True},
        "devices": {},
    }
}
TERM = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}
PAIR = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {
            "labelSelector": {"matchLabels": {"group": "pair"}},
            "topologyKey": "kubernetes.io/hostname",
        }
    ]
}
DISK = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def local_disk():
    bound = claim("data", "ReadWriteMany")
    bound.data["spec"] |= {"volumeName": "pv-1", "storageClassName": "local"}
    bound.data["status"] = {"phase": "Bound"}
    spec = {"local": {"path": "/disk"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [TERM]}}}
    return bound, manifest("v1", "PersistentVolume", "pv-1", spec=spec)


@pytest.mark.parametrize(
    ("spec", "remedy"),
    [
        (DISK, "move claim data to storage that the other nodes reach"),
        (
            {"nodeSelector": {"kubernetes.io/hostname": "a"}},
            "remove the node selector for a from the VM",
        ),
        (
            {"nodeSelector": {"zone": "x"}},
            "set the label zone=x on another node, or remove the node selector from",
        ),
        (
            {"affinity": {"nodeAffinity": REQUIRED}},
            "change its node affinity, or the labels of another node",
        ),
        (
            DEDICATED,
            "set cpuManagerPolicy static (with reserved CPUs) in the kubelet of a drained node",
        ),
        (GPU, "add a node that has nvidia.com/A100"),
        (LAN, "make bridge br1 on b or c, or let drains shut the guest down"),
        (
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                ]
            },
            "as a decision, set whenUnsatisfiable: ScheduleAnyway in its constraint over zone",
        ),
        (
            {"affinity": {"podAffinity": PAIR}},
            "as a decision, make its required pod affinity a preferred one",
        ),
    ],
)
def test_what_no_room_repairs_is_never_called_missing_room(spec, remedy):
    found = no_target.nowhere_to_go(vmi(spec=spec), cluster(*local_disk()))
    assert found.remedy.startswith(f"{remedy}"), found
    assert found.cause is not ProblemCause.NO_ROOM
    assert "add a node or free" not in found.remedy


def test_a_tsc_frequency_that_an_update_of_kubevirt_accepts():
    clock = {"cpu-timer.node.kubevirt.io/tsc-frequency": "2893202000"}
    windows = {"hyperv": {"reenlightenment": {"enabled": True}}}
    domain = {"cpu": {"model": "host-passthrough"}, "devices": {}, "features": windows}
    subject = vmi(spec={"domain": domain})
    subject.data["status"]["topologyHints"] = {"tscFrequency": 2893200000}
    others = [node("b", labels=clock), node("c", labels=clock)]
    old = kubevirt(status={"observedKubeVirtVersion": "v0.59.0"})

    found = no_target.nowhere_to_go(subject, cluster(old, *others))
    assert "TSC frequency 2893200000: b has 2893202000, c has 2893202000" in found.reason
    assert found.remedy.startswith("update KubeVirt to 0.59.1 or later")
    assert no_target.frequency_gap(subject, cluster(old, *others)).updates


def test_a_required_pod_affinity_is_named():
    found = no_target.nowhere_to_go(vmi(spec={"affinity": {"podAffinity": PAIR}}), cluster())
    assert (
        "pod affinity demands another pod with group=pair in the same kubernetes.io/hostname"
        in found.reason
    )


def test_room_and_devices_that_are_taken_are_missing_room():
    large = no_target.nowhere_to_go(vmi(spec=LARGE), cluster())
    assert (large.cause, large.remedy.startswith("add a node with at least 900.3Gi")) == (
        ProblemCause.NO_ROOM,
        True,
    )
    taken = [node(name) for name in ("b", "c")]
    for each in taken:
        each.data["status"]["allocatable"]["nvidia.com/A100"] = "1"
    two = {
        "domain": GPU["domain"]
        | {"devices": {"gpus": [{"name": n, "deviceName": "nvidia.com/A100"} for n in "gh"]}}
    }
    found = no_target.nowhere_to_go(vmi(spec=two), cluster(*taken))
    assert (found.cause, found.remedy.startswith("add a node with at least 2 of nvidia")) == (
        ProblemCause.NO_ROOM,
        True,
    )


AGENT = manifest("apps/v1", "DaemonSet", "ebs-csi-node", "kube-system")


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        (
            "drbd.linbit.com/force-io-error",
            "repair what the high-availability controller of LINSTOR reports with that taint",
        ),
        ("drbd.linbit.com/lost-quorum", "give that volume its quorum again"),
        (
            "ebs.csi.aws.com/agent-not-ready",
            "repair what the agent of ebs.csi.aws.com reports with that taint",
        ),
        ("dedicated", "remove the taint from one of the nodes, or let the VM tolerate it"),
    ],
)
def test_a_taint_of_a_controller_is_repaired_where_it_reports_it(key, remedy):
    taints = [{"key": key, "effect": "NoSchedule"}]
    tainted = [node(name, taints=taints) for name in ("b", "c")]
    found = no_target.nowhere_to_go(vmi(), cluster(*tainted, AGENT))
    assert found.remedy.startswith(remedy)
    assert ("shut the guest down" in found.remedy) is (key == "dedicated")


@pytest.mark.parametrize(("tolerated", "says"), [("dedicated", True), ("other", False)])
def test_tolerations_of_kubevirt_are_not_those_of_vms(tolerated, says):
    placement = {"tolerations": [{"key": tolerated, "operator": "Exists"}]}
    kubevirt = manifest(
        "kubevirt.io/v1",
        "KubeVirt",
        "kubevirt",
        "kubevirt",
        spec={"workloads": {"nodePlacement": placement}},
    )
    tainted = node("b", taints=[{"key": "dedicated", "effect": "NoSchedule"}])
    full = node("c")
    full.data["status"]["allocatable"] |= {"memory": "1Gi"}
    found = no_target.nowhere_to_go(vmi(), cluster(tainted, full, kubevirt))

    words = (
        "give the VM tolerations of dedicated of b (spec.template.spec.tolerations), as "
        "workloads.nodePlacement of KubeVirt kubevirt/kubevirt is not for VMs"
    )
    assert found.remedy.startswith(words) is says


UNINITIALIZED = "node.cluster.x-k8s.io/uninitialized"
LESS = {"memory": "1Gi"}
ISTIOD = manifest("v1", "Pod", "istiod-1", "istio-system", status={"phase": "Running"})
STARTUP = "startup-taint.cluster-autoscaler.kubernetes.io"


def controller(ready, name="capi-1", provider="cluster-api"):
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    labels = {"labels": {"cluster.x-k8s.io/provider": provider}}
    return manifest("v1", "Pod", name, "capi-system", metadata=labels, status=status)


OF_CLOUD = "node.cloudprovider.kubernetes.io/uninitialized"


@pytest.mark.parametrize("others", [["b"], []])
def test_a_new_node_on_which_no_virt_handler_starts_before_its_controller_removes_the_taint(others):
    full = [node(name) for name in others]
    new = node("c", runs_vms=False, taints=[{"key": OF_CLOUD, "effect": "NoSchedule"}])
    for each in full:
        each.data["status"]["allocatable"] |= LESS
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    manager = manifest("v1", "Pod", "x-cloud-controller-manager-1", "kube-system", status=status)
    found = no_target.nowhere_to_go(vmi(), cluster(*full, new, manager, nodes=("a",)))
    known = (
        f"the cloud controller manager has not removed taint {OF_CLOUD} from c, because pod "
        "kube-system/x-"
    )
    assert known in found.reason
    assert found.remedy == (
        "repair the cloud controller manager: pod x-cloud-controller-manager-1, and do not stop "
        "the VM before"
    )
    assert found.command == "kubectl describe pod x-cloud-controller-manager-1 -n kube-system"


@pytest.mark.parametrize(
    ("key", "pods", "says", "remedy"),
    [
        (
            UNINITIALIZED,
            [controller("False")],
            ", because pod capi-system/capi-1 is not ready",
            "repair Cluster API",
        ),
        (UNINITIALIZED, [controller("True")], " from c;", "see why Cluster API does not remove it"),
        (
            UNINITIALIZED,
            [controller("False"), controller("True", "capi-2")],
            " from c;",
            "see why Cluster API",
        ),
        (
            UNINITIALIZED,
            [controller("False", provider="bootstrap-kubeadm")],
            " from c;",
            "see why Cluster API",
        ),
        (
            "ebs.csi.aws.com/agent-not-ready",
            [AGENT],
            " from c;",
            "see why the agent of ebs.csi.aws.com does not remove it",
        ),
        ("karpenter.sh/unregistered", [], " from c;", "see why Karpenter does not remove it"),
        (
            "readiness.k8s.io/NetworkReady",
            [],
            " from c;",
            "see why the node readiness controller does not remove it",
        ),
        ("cni.istio.io/not-ready", [ISTIOD], " from c;", "see why Istio does not remove it"),
        (
            f"{STARTUP}/kubeip-not-ready",
            [],
            " from c;",
            "see why the agent that is to run on each node first does not",
        ),
        ("dedicated", [], "", "remove the causes on one of the nodes"),
    ],
)
def test_a_new_node_whose_controller_has_not_removed_its_taint(key, pods, says, remedy):
    full, new = node("b"), node("c", taints=[{"key": key, "effect": "NoSchedule"}])
    full.data["status"]["allocatable"] |= LESS
    found = no_target.nowhere_to_go(vmi(), cluster(full, new, *pods))
    assert says in found.reason
    assert found.remedy.startswith(remedy)
    assert ("has not removed taint" in found.reason) is (key != "dedicated")
    assert ("shut the guest down" in found.remedy) is (key == "dedicated")


def test_a_new_node_that_has_too_little_room_as_well():
    full, new = node("b"), node("c", taints=[{"key": UNINITIALIZED, "effect": "NoSchedule"}])
    full.data["status"]["allocatable"] |= LESS
    new.data["status"]["allocatable"] |= LESS
    found = no_target.nowhere_to_go(vmi(), cluster(full, new, controller("False")))
    assert "has not removed taint" not in found.reason


def closed(name, since="2027-02-27T11:00:00Z"):
    """Return a node that the cluster autoscaler marked at a time, and cordoned."""
    found = node(name)
    value = str(int(datetime.fromisoformat(since).timestamp()))
    mark = {"key": "ToBeDeletedByClusterAutoscaler", "value": value, "effect": "NoSchedule"}
    found.data["spec"] = {"unschedulable": True, "taints": [mark]}
    found.data["status"]["conditions"] = [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": "2027-03-01T11:00:00Z"}
    ]
    return found


def full(name):
    found = node(name)
    found.data["status"]["allocatable"]["memory"] = "1Gi"
    return found


def test_a_node_that_the_autoscaler_has_forgotten_is_opened_first():
    found = no_target.nowhere_to_go(vmi(), cluster(closed("b"), full("c")))
    assert found.reason.startswith(
        "no other node can take it: b could, but is marked for deletion by the cluster autoscaler "
        "for 48 h"
    )
    assert "missing on c" in found.reason
    assert found.remedy.endswith("kubectl taint nodes b ToBeDeletedByClusterAutoscaler-")


def test_each_cause_has_its_node():
    found = no_target.nowhere_to_go(
        vmi(), cluster(closed("b", since="2027-03-01T10:55:00Z"), full("c"))
    )
    assert "cordoned (b), taint ToBeDeletedByClusterAutoscaler (b), memory: " in found.reason
    assert found.reason.endswith("missing on c")
    assert "ToBeDeleted" not in found.remedy


def of_group(name, on="a", **affinity):
    labels = {"labels": {"group": "pair"}}
    return vmi(name, on, metadata=labels, spec={"affinity": {"podAffinity": PAIR, **affinity}})


def test_the_partners_of_a_group_are_named_with_their_node():
    found = no_target.nowhere_to_go(of_group("db"), cluster(of_group("db"), of_group("web")))
    end = ": VM shop/web runs on a alone, which is cordoned, and demands it in turn"
    assert found.reason.endswith(end)
    assert "preferred one, which the running VM gets without a restart" in found.remedy


def test_partners_on_several_nodes_are_not_named():
    apart = cluster(of_group("db"), of_group("web"), of_group("app", "c"))
    found = no_target.nowhere_to_go(of_group("db"), apart)
    assert found is None or "alone" not in found.reason


def test_pods_that_no_affinity_selects_are_not_looked_at(monkeypatch):
    strangers = [vmi(f"other{at}") for at in range(50)]
    known = cluster(of_group("db"), of_group("web"), *strangers)
    asked, of = [], affinity_partners.follows
    monkeypatch.setattr(affinity_partners, "follows", lambda *pods: asked.append(pods) or of(*pods))

    assert "VM shop/web runs on a alone" in no_target.nowhere_to_go(of_group("db"), known).reason
    assert len(asked) < 10


def test_what_nodes_lack_that_the_vm_does_not_select_is_not_why():
    large = {"domain": {"devices": {}, "memory": {"guest": "900Gi"}}, "nodeSelector": {"zone": "x"}}
    own = node("b")
    own.data["metadata"]["labels"]["zone"] = "x"
    there = cluster(own)
    target = candidates.target(vmi(spec=large), there, moves=False)
    found = no_target.reason(target, there, moves=False, starts=True)
    says = "644.3Gi missing on b (its pod asks for memory 900.3Gi); its node selector or affinity"
    assert f"{says} leaves out c" in found.reason
    moved = no_target.reason(target, there, moves=False, starts=False)
    assert "asks for" not in moved.reason
    large["nodeSelector"] = {"zone": "y"}
    other = candidates.target(vmi(spec=large), there, moves=False)
    assert "asks for" not in no_target.reason(other, there, moves=False, starts=True).reason
    assert "missing on c" not in found.reason
    assert found.cause == ProblemCause.NO_ROOM
    assert found.remedy.startswith("add a node with at least 900.3Gi of memory (b, ")


@pytest.mark.parametrize(
    ("pods", "memory", "said", "remedy"),
    [
        ("0", "64Gi", "pods: limit of 0 reached on b, c", "raise max-pods of the kubelets"),
        ("9", "1Mi", "missing on b", "add a node with at least 4.3Gi of memory"),
    ],
)
def test_nodes_with_as_many_pods_as_they_may_have(pods, memory, said, remedy):
    """CPU and memory are free there, and a guest that is shut down may lose its place."""
    others = [smaller(name, memory=memory, pods=pods) for name in ("b", "c")]
    found = no_target.nowhere_to_go(vmi(), cluster(vmi(), node("a"), *others))

    assert found is not None
    assert said in found.reason
    assert found.remedy.startswith(remedy)
    assert ("shut the guest down" in found.remedy) is (pods != "0")


def smaller(name, **room):
    found = node(name)
    found.data["status"]["allocatable"] |= room
    return found


POOL = {"key": "dedicated", "value": "virt", "effect": "NoSchedule"}
TOLERATED = [{"key": "dedicated", "operator": "Exists"}]
PLUGGED = {"name": "data", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}


def attaching(release, *, tolerations=(), volumes=(PLUGGED,), taint=POOL, goes_to=""):
    """Return a VM on a node of a pool, and a cluster whose other nodes have its taint."""
    own = vmi(spec={"tolerations": TOLERATED, "volumes": list(volumes)})
    launcher = manifest("v1", "Pod", "virt-launcher-db", "shop", metadata={"uid": "l"})
    launcher.data["metadata"]["labels"] = {
        "kubevirt.io": "virt-launcher",
        "vm.kubevirt.io/name": "db",
    }
    launcher.data |= {"spec": {"nodeName": "a"}, "status": {"phase": "Running"}}
    helper = manifest("v1", "Pod", "hp-volume-x", "shop", metadata={"uid": "h"})
    helper.data["metadata"] |= {
        "labels": {"kubevirt.io": "hotplug-disk"},
        "ownerReferences": [{"kind": "Pod", "name": "virt-launcher-db", "uid": "l"}],
    }
    helper.data |= {"spec": {"tolerations": list(tolerations)}, "status": {"phase": "Pending"}}
    versions = {"observedKubeVirtVersion": release, "targetKubeVirtVersion": goes_to or release}
    disk = claim("data", "ReadWriteMany")
    disk.data["spec"]["volumeName"] = "pv"
    disk.data["status"] = {"phase": "Bound"}
    volume = manifest("v1", "PersistentVolume", "pv", spec={"accessModes": ["ReadWriteMany"]})
    objects = [own, launcher, helper, kubevirt(status=versions), disk, volume]
    return own, cluster(*objects, *(node(name, taints=[taint]) for name in ("a", "b", "c")))


def test_the_pod_that_attaches_volumes_tolerates_less_than_the_vm():
    own, there = attaching("v1.1.0")
    found = no_target.nowhere_to_go(own, there)

    assert found.reason.endswith(
        "the pod that attaches its hotplugged volumes does not tolerate taint dedicated"
    )
    assert found.remedy.startswith("update KubeVirt to 1.2.0 or later, which gives that pod")
    assert candidates.target(own, there, moves=False).placement.candidates == ("b", "c")
    assert (
        workload_updates.update(own, ["LiveMigrate"], there).reach
        is workload_updates.Reach.MIGRATED
    )


def test_an_update_to_another_release_without_those_tolerations():
    own, there = attaching("v1.1.0", goes_to="v1.1.1")

    assert (
        workload_updates.update(own, ["LiveMigrate"], there).reach is workload_updates.Reach.RETRIED
    )


@pytest.mark.parametrize(
    "healthy",
    [
        {"release": "v1.2.0"},
        {"release": "v1.1.0", "tolerations": TOLERATED},
        {"release": "v1.1.0", "volumes": ()},
        {"release": "v1.1.0", "taint": POOL | {"effect": "PreferNoSchedule"}},
    ],
)
def test_the_pod_that_attaches_volumes_can_follow_the_vm(healthy):
    own, there = attaching(**healthy)

    assert no_target.nowhere_to_go(own, there) is None
    assert candidates.target(own, there, moves=True).placement.candidates == ("b", "c")
