"""What is said before "add a node": a node that is there and not Ready, or one that is owed."""

import base64

import pytest

from tests.builders import manifest, warning
from tests.forecasts.drain.vm_motion import NOW, cluster, node, vmi
from virt_admit.forecasts.placement import no_target, virt_handlers
from virt_admit.forecasts.placement.absent import owed_nodes
from virt_admit.forecasts.upgrade import assumed_fixes, rollouts
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model.problems import ProblemCause, problem_of

API = "cluster.x-k8s.io/v1beta1"
PAUSED = "cluster.x-k8s.io/paused"
LONG_AGO, OF_LATE = "2027-03-01T07:00:00Z", "2027-03-01T10:57:00Z"
NO_NETWORK = "container runtime network not ready: NetworkReady=false message:cni not initialized"


def full(name):
    found = node(name)
    found.data["status"]["allocatable"]["memory"] = "1Gi"
    return found


def unready(since=LONG_AGO, message=NO_NETWORK, *, runs_vms=False):
    found = node("c", runs_vms=runs_vms)
    found.data["status"]["conditions"] = [
        {
            "type": "Ready",
            "status": "False",
            "lastTransitionTime": since,
            "lastHeartbeatTime": NOW,
            "message": message,
        }
    ]
    return found


def daemon(name, labels, **spec):
    owner = {"kind": "DaemonSet", "name": name, "controller": True}
    condition = {"type": "Ready", "status": "False", "lastTransitionTime": LONG_AGO}
    return manifest(
        "v1",
        "Pod",
        f"{name}-c",
        "system",
        metadata={"labels": labels, "ownerReferences": [owner]},
        spec={"nodeName": "c", "containers": [{"name": name}], **spec},
        status={
            "phase": "Running",
            "conditions": [condition],
            "containerStatuses": [{"name": name, "state": {"waiting": {"reason": "CrashLoop"}}}],
        },
    )


EXPORTER = daemon("node-exporter", {"app": "node-exporter"}, hostNetwork=True)
HANDLER = daemon("virt-handler", {"kubevirt.io": "virt-handler"})
AGENT = daemon("other-cni", {"app": "other-cni"}, hostNetwork=True)


def nowhere(*objects):
    return no_target.nowhere_to_go(vmi(), cluster(full("b"), *objects))


@pytest.mark.parametrize("runs_vms", [False, True])
def test_a_node_that_is_not_ready_is_named_with_its_root(runs_vms):
    found = nowhere(unready(runs_vms=runs_vms), HANDLER, AGENT)
    root = "not Ready for 4 h: its pod network is not up, as pod system/other-cni-c (DaemonSet"
    assert root in found.reason
    assert "add a node or free that much" not in found.remedy
    assert found.command == "kubectl logs other-cni-c -n system --previous"


def test_another_pod_of_the_host_network_is_not_the_root():
    assert "node-exporter" not in nowhere(unready(), HANDLER, EXPORTER).reason
    mount = [{"name": "d", "hostPath": {"path": "/etc/cni/net.d"}}]
    plugin = daemon("ovn-node", {"app": "ovn-node"}, hostNetwork=True, volumes=mount)
    assert "pod system/ovn-node-c" in nowhere(unready(), HANDLER, EXPORTER, plugin).reason


def test_another_root():
    found = nowhere(unready(message="PIDs are used up"), HANDLER)
    assert "c could, but is not Ready for 4 h: PIDs are used up; memory: " in found.reason
    assert found.remedy.endswith("(else add a node or free room on one)")
    assert found.command == "kubectl describe node c"


@pytest.mark.parametrize(
    "others", [(unready(OF_LATE), HANDLER), (unready(),), (full("c"),), (node("d"),)]
)
def test_a_node_that_boots_or_is_not_for_vms_is_not_named(others):
    found = nowhere(*others)
    assert found is None or "not Ready for" not in found.reason


def test_virt_handler_is_not_to_blame_for_its_node():
    world = cluster(unready(), HANDLER, AGENT)
    assert virt_handlers.problem(world, "c").startswith(
        "virt-handler on c waits for the pod network of its node: its pod network is not up"
    )
    assert "other-cni-c" in virt_handlers.remedy(world, "c")
    assert "other-cni-c" in virt_handlers.repair(world, "c")
    lost = cluster(unready(message="PIDs are used up"), HANDLER, AGENT)
    assert virt_handlers.problem(lost, "c").startswith("virt-handler on c is not ready")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (None, "virt-handler serves none of the nodes that could take it: c (virt-handler on c"),
        ("Denverton", "c takes no VM, as virt-handler on c"),
    ],
)
def test_a_node_whose_virt_handler_is_down_is_named_with_the_repair(model, words):
    labels = {"kubevirt.io/schedulable": "false"}
    subject = vmi(spec={"domain": {"cpu": {"model": model}, "devices": {}}} if model else {})
    objects = (full("b"), node("c", runs_vms=False, labels=labels), HANDLER)
    found = no_target.nowhere_to_go(subject, cluster(*objects))
    assert f"{words} is not ready" in found.reason
    assert found.remedy == "repair virt-handler on c: kubectl describe pod virt-handler-c -n system"


# --- nodes that are owed --------------------------------------------------------------------------


def owner(kind, name, by="", *, paused=False, space="fleet", **fields):
    references = {"ownerReferences": [{"kind": by.split()[0], "name": by.split()[1]}]} if by else {}
    for each in references.get("ownerReferences", ()):
        each["controller"] = True
    marks = {"annotations": {PAUSED: ""}} if paused else {}
    metadata = {**references, **marks, "labels": {"cluster.x-k8s.io/deployment-name": "md"}}
    spec = {"clusterName": "edge", "replicas": 3}
    return manifest(API, kind, name, space, metadata=metadata, spec=spec, **fields)


def machines(*nodes, space="fleet", by="MachineSet ms"):
    return [
        owner("Machine", f"m-{on}", by, space=space, status={"nodeRef": {"name": on}})
        for on in nodes
    ]


STATUS = {"replicas": 3, "readyReplicas": 3}
DEPLOYMENT = owner("MachineDeployment", "md", status=STATUS)


def owing(*, paused=True, space="fleet"):
    return owner(
        "MachineSet", "ms", "MachineDeployment md", paused=paused, space=space, status=STATUS
    )


def test_the_machine_set_that_is_paused_is_named_before_a_node_is_added():
    found = nowhere(full("c"), DEPLOYMENT, owing(), *machines("b", "c"))
    assert found.reason.startswith(
        "no other node can take it: the next node is missing (MachineSet fleet/ms is paused "
        "(annotation cluster.x-k8s.io/paused): 2 of 3 Machines exist, although its status says 3)"
    )
    assert found.cause is ProblemCause.NO_ROOM
    assert found.remedy == (
        "see who has paused MachineSet ms, then unpause it (if that node would fit; else add a "
        "node with at least 4.3Gi of memory (b, the largest of these, has 1Gi), or make the VM "
        "smaller, or let drains shut the guest down)"
    )
    assert found.command == (
        "kubectl annotate machinesets.cluster.x-k8s.io ms -n fleet cluster.x-k8s.io/paused-"
    )


def test_one_node_lacks_room_and_another_is_for_others():
    kept = node("c", taints=[{"key": "dedicated", "effect": "NoSchedule"}])
    found = nowhere(kept, DEPLOYMENT, owing(), *machines("b", "c"))
    assert "the next node is missing (MachineSet fleet/ms is paused" in found.reason
    assert found.cause is ProblemCause.NO_TARGET
    others = no_target.nowhere_to_go(vmi(), cluster(kept, owing(), *machines("c"), nodes=("a",)))
    assert "missing" not in others.reason


def test_the_whole_cluster_is_paused():
    whole = manifest(API, "Cluster", "edge", "fleet", spec={"paused": True})
    found = nowhere(full("c"), whole, owing(paused=False), *machines("b", "c"))
    assert "Cluster fleet/edge is paused (spec.paused): 2 of 3 Machines exist" in found.reason
    assert "of MachineSet fleet/ms)" in found.reason
    assert found.command == "kubectl get clusters.cluster.x-k8s.io edge -n fleet -o yaml"


def whole(since):
    paused = {"type": "Paused", "status": "True", "lastTransitionTime": since}
    return manifest(
        API, "Cluster", "edge", "fleet", spec={"paused": True}, status={"conditions": [paused]}
    )


@pytest.mark.parametrize(
    "others",
    [
        (owing(), *machines("a", "b", "c")),
        (whole(OF_LATE), owing(paused=False), *machines("b", "c")),  # a move takes minutes
        (owing(paused=False), *machines("b", "c")),  # it may make one at this moment
        (owing(), *machines("x", "y")),  # of another cluster
        (owing(space="openshift-cluster-api"), *machines("b", "c", space="openshift-cluster-api")),
    ],
)
def test_a_healthy_owner_is_not_accused(others):
    found = nowhere(full("c"), DEPLOYMENT, *others)
    assert found.remedy.startswith("add a node with at least ")
    assert owed_nodes.first_step(cluster(*others)) == ""


def test_a_machine_set_that_says_why_it_makes_none():
    blocked = owing(paused=False)
    blocked.data["status"] |= {
        "conditions": [
            {"type": "MachinesCreated", "status": "False", "message": "template x is not found"}
        ]
    }
    found = nowhere(full("c"), blocked, *machines("b", "c"))
    assert (
        "MachineSet fleet/ms makes none: 2 of 3 Machines exist, although its status says 3: "
        "template x is not found"
    ) in found.reason
    assert found.command == "kubectl describe machinesets.cluster.x-k8s.io ms -n fleet"


def of_openshift(phase, **status):
    metadata = {"creationTimestamp": "2027-03-01T10:30:00Z"}
    return manifest(
        "machine.openshift.io/v1beta1",
        "Machine",
        "w-3",
        "openshift-machine-api",
        metadata=metadata,
        status={"phase": phase, **status},
    )


def test_a_machine_of_openshift_that_has_failed():
    found = nowhere(full("c"), of_openshift("Failed", errorMessage="no host"))
    assert "Machine openshift-machine-api/w-3 has no node for " in found.reason
    assert found.remedy.startswith("provide what that Machine waits for, unless it goes on (if")
    master = of_openshift("Failed", errorMessage="no host")
    master.data["metadata"]["labels"] = {"machine.openshift.io/cluster-api-machine-role": "master"}
    assert "w-3" not in nowhere(full("c"), master).reason
    young = nowhere(full("c"), of_openshift("Provisioning"))
    assert "w-3" not in young.reason


def deleted(name, time):
    words = "has been remediated by requesting to delete Machine object"
    said = warning(
        manifest("machine.openshift.io/v1beta1", "Machine", name, "openshift-machine-api"),
        "MachineDeleted",
        f"Machine openshift-machine-api/workers/{name}/ {words}",
        time,
    )
    said.data["type"] = "Normal"
    return said


@pytest.mark.parametrize(
    ("phase", "second", "is_told"),
    [
        ("Provisioned", "2027-03-01T10:29:00Z", True),
        ("Provisioned", "2027-03-01T10:15:30Z", False),  # it had failed
        ("Running", "2027-03-01T10:29:00Z", False),  # it has joined by now
    ],
)
def test_a_health_check_that_deletes_the_next_node_in_a_loop(phase, second, is_told):
    check = manifest(
        "machine.openshift.io/v1beta1",
        "MachineHealthCheck",
        "workers",
        "openshift-machine-api",
        spec={"selector": {"matchLabels": {"role": "w"}}, "nodeStartupTimeout": "10m"},
    )
    joined = {"nodeRef": {"name": "c"}} if phase == "Running" else {}
    machine = of_openshift(phase, **joined)
    machine.data["metadata"]["labels"] = {"role": "w"}
    events = deleted("w-1", "2027-03-01T10:15:00Z"), deleted("w-2", second)
    found = nowhere(full("c"), check, machine, *events)
    assert ("MachineHealthCheck openshift-machine-api/workers deletes new" in found.reason) is (
        is_told
    )
    remedy = "set spec.nodeStartupTimeout of MachineHealthCheck workers to 30m or more"
    assert found.remedy.startswith(remedy) is is_told


# --- upgrades -------------------------------------------------------------------------------------


def pools(*objects):
    world = cluster(DEPLOYMENT, *objects)
    found = rollouts.pools(Driver.CLUSTER_API, world, None, ())
    every = {problem_of(ProblemCause.POOL_PAUSED, each) for each in objects}
    return found, assumed_fixes.fixed_pools(found, every)


def test_no_fix_of_something_else_lets_a_paused_machine_set_be_replaced():
    stopped = owner("MachineDeployment", "md")
    stopped.data["spec"]["paused"] = True
    for objects in ((owing(),), (owing(), stopped)):
        found, fixed = pools(*objects, *machines("b", "c"))
        for (pool,) in (found, fixed):
            assert pool.obstacle.reason.startswith("MachineSet fleet/ms is paused")
    (free,), _ = pools(owing(paused=False), *machines("a", "b", "c"))
    assert free.obstacle is None


# --- hosts that ask to join -----------------------------------------------------------------------

BOOTSTRAPPER = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"


def asks(name, host, created, user=BOOTSTRAPPER, groups=(), **status):
    """Return a request of a kubelet for its client certificate."""
    subject = f"system:node:{host}".encode()
    text = base64.b64encode(b"\x30\x20\x0c" + bytes([len(subject)]) + subject).decode()
    pem = f"-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n"
    return manifest(
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        name,
        metadata={"creationTimestamp": created},
        spec={
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "username": user,
            "groups": [*groups],
            "request": base64.b64encode(pem.encode()).decode(),
        },
        status=status,
    )


FIRST, NEWEST = asks("csr-1", "w4", LONG_AGO), asks("csr-2", "w4", OF_LATE)
APPROVED = {"conditions": [{"type": "Approved", "status": "True"}]}


def test_a_host_that_asks_to_join_is_the_next_node():
    found = nowhere(full("c"), FIRST, NEWEST, asks("csr-3", "w5", OF_LATE))
    assert "the next node is missing (w4 asks to join for 4 h and has no Node" in found.reason
    assert "cluster-machine-approver needs a Machine without a Node" in found.reason
    check = "if w4 is a host of yours (see kubectl describe csr csr-2), approve the newest request"
    assert found.remedy.startswith(check)
    assert found.command == "kubectl certificate approve csr-2"


@pytest.mark.parametrize(
    "others",
    [
        (asks("csr-1", "w4", OF_LATE),),  # for minutes
        (FIRST,),  # it no longer asks
        (asks("csr-1", "c", LONG_AGO), asks("csr-2", "c", OF_LATE)),  # that node is there
        (asks("csr-1", "w4", LONG_AGO, **APPROVED), asks("csr-2", "w4", OF_LATE, **APPROVED)),
        (asks("csr-1", "w4", LONG_AGO, "alice"), asks("csr-2", "w4", OF_LATE, "alice")),
        (asks("csr-1", "w4 -n x", LONG_AGO), asks("csr-2", "w4 -n x", OF_LATE)),  # no name
    ],
)
def test_no_host_waits_to_join(others):
    found = nowhere(full("c"), *others)
    assert found.remedy.startswith("add a node with at least 4.3Gi")
    assert "to join" not in f"{found.reason}{found.remedy}"


def test_one_command_approves_requests_of_a_few_hosts():
    every = [
        asks(f"csr-{n}-{when}", f"w{n}", time)
        for n in range(4, 9)
        for when, time in (("a", LONG_AGO), ("b", OF_LATE))
    ]
    found, newest = nowhere(full("c"), *every), "csr-4-b csr-5-b csr-6-b"
    assert found.remedy.startswith("if w4, w5, w6 are hosts of yours (see kubectl describe csr ")
    assert f"csr {newest}), approve" in found.remedy
    assert found.command == f"kubectl certificate approve {newest}"


@pytest.mark.parametrize(
    ("user", "groups"),
    [("system:bootstrap:abcdef", ()), ("kubelet-bootstrap", ("system:bootstrappers",))],
)
def test_no_approver_is_named_for_other_accounts(user, groups):
    by = (user, groups)
    found = nowhere(
        full("c"), asks("csr-1", "w4", LONG_AGO, *by), asks("csr-2", "w4", OF_LATE, *by)
    )
    assert "w4 asks to join" in found.reason
    assert "cluster-machine-approver" not in found.reason
