"""Pods that a kubelet rejects: at each start of a VM, or when the kubelet restarts."""

from typing import Any

from tests.healthy.clusters import plain
from tests.healthy.parts import Object, ago

from .machines import YES, Incident, event, find, guest, launcher_of
from .starts import KUBEVIRT, ended_for_memory


def rejected(reason: str, message: str, host: str | None, **fields: Any) -> list[Object]:
    """Return a VM whose pods were rejected three times: kubelet's events are left.

    ``host``: the node that they name.
    """
    items = guest("dpdk", "w2", **fields)
    vm = find(items, "VirtualMachine", "dpdk")
    failed = {"consecutiveFailCount": 3, "retryAfterTimestamp": ago(minutes=-3)}
    vm["status"] = {
        "printableStatus": "CrashLoopBackOff",
        "created": False,
        "ready": False,
        "startFailure": failed,
    }
    launcher = launcher_of(items, "dpdk")
    gone = {"VirtualMachineInstance", "Pod"}
    found = [each for each in items if each["kind"] not in gone]
    for index, suffix in enumerate(("c0849", "35483", "2948f")):
        pod = launcher | {
            "metadata": launcher["metadata"] | {"name": f"virt-launcher-dpdk-{suffix}"}
        }
        made = event(pod, reason, message, "kubelet", count=1, late=120 + 300 * index)
        made["source"] |= {"host": host} if host else {}
        found.append(made)
    return found


def pods_of_a_part_of_a_core() -> Incident:
    cpu = {
        "cores": 8,
        "sockets": 1,
        "threads": 1,
        "dedicatedCpuPlacement": True,
        "isolateEmulatorThread": True,
    }
    said = "SMT Alignment Error: requested 9 cpus not multiple cpus per core = 2"
    where = {"nodeSelector": {"kubernetes.io/hostname": "w2"}}
    items = plain() + rejected("SMTAlignmentError", said, None, domain={"cpu": cpu}, spec=where)
    facts = (
        (
            r"rejects each new pod of it at once \(3 times, last 2 min ago\): SMTAlignmentError: "
            r"its pod asks for 9 CPUs \(8 for the guest and 1 for its emulator thread\), and the "
            r"kubelet gives whole cores of 2 CPUs"
        ),
        r"It does not end by itself",
        r"could start on +no node\n",
        r"give it 7 or 9 cores: kubectl edit .*; or do without isolateEmulatorThread; .*AlignCPUs",
    )
    source = "https://github.com/openshift/openshift-docs/pull/68241"
    return Incident("part-of-a-core", source, items, YES, facts, ("explain", "vm/dpdk"))


def pods_that_one_kubelet_rejects() -> Incident:
    said = "Resources cannot be allocated with Topology locality"
    items = plain() + rejected("TopologyAffinityError", said, "w2")
    facts = (
        r"the kubelet of w2 rejects each new pod",
        r"could start on +w1, w3, after the steps to do below",
        r"free CPUs, memory and devices of one NUMA",
    )
    return Incident(
        "rejected-by-one",
        "kubernetes/kubernetes:pkg/kubelet/kubelet.go#rejectPod",
        items,
        YES,
        facts,
        ("explain", "vm/dpdk"),
    )


def pods_that_some_kubelet_rejects() -> Incident:
    items = plain() + rejected(
        "UnexpectedAdmissionError", "Allocate failed due to no healthy devices", None
    )
    facts = (
        r"could start on +cannot be determined\n",
        r"Allocate failed due to no healthy devices",
    )
    return Incident(
        "rejected-by-some",
        "kubernetes/kubernetes:pkg/kubelet/kubelet.go#rejectPod",
        items,
        YES,
        facts,
        ("explain", "vm/dpdk"),
    )


def running_pod_that_its_kubelet_rejects() -> Incident:
    items = ended_for_memory()
    launcher = launcher_of(items, "db")
    launcher["status"] = {
        "phase": "Failed",
        "reason": "NodeAffinity",
        "message": "Pod was rejected: NodeAffinity failed",
    }
    facts = (
        (
            r"it is not running: the kubelet of w1 rejected its running pod 95 min ago, as it may "
            r"when it restarts: NodeAffinity, as the labels of the node did not match at that "
            r"moment .* Its VMI is Failed, and Manual does not start it again"
        ),
        (
            r"To do\n +start it; .*: virtctl start db -n vms; drain a node before its kubelet is "
            r"restarted"
        ),
        r"(?s)\A(?!.*KubeVirt starts it again)(?!.*each new pod)(?!.*has been Failed)",
    )
    return Incident(
        "rejected-running", f"{KUBEVIRT}/issues/12290", items, YES, facts, ("explain", "vm/db")
    )


def node_whose_kubelet_rejects_running_pods() -> Incident:
    items, facts = (
        running_pod_that_its_kubelet_rejects().items,
        (r"note: The kubelet of this node .*: vms/db is down\. Drain a",),
    )
    return Incident(
        "rejected-running-node",
        f"{KUBEVIRT}/issues/12290",
        items,
        YES,
        facts,
        ("explain", "node/w1"),
    )


def incidents() -> list[Incident]:
    return [
        running_pod_that_its_kubelet_rejects(),
        node_whose_kubelet_rejects_running_pods(),
        pods_of_a_part_of_a_core(),
        pods_that_one_kubelet_rejects(),
        pods_that_some_kubelet_rejects(),
    ]
