"""OpenShift: pools that do not go on, guard pods, webhooks that fail closed,
taints and members of etcd.
"""

from tests.healthy.clusters import elastic
from tests.healthy.machines import kubevirt, machine
from tests.healthy.node_health import medik8s
from tests.healthy.openshift import CONFIG, MASTER_TAINT, WORKERS, config_notes, pool
from tests.healthy.parts import (
    Object,
    budget,
    conditions,
    deployment,
    namespaces,
    node,
    obj,
    pod,
    service,
    webhook,
)

from .case import NODES, Incident, ago, cluster, dead, only, unready

MASTERS = ("m0", "m1", "m2")


def masters(*cordoned: str) -> list[Object]:
    roles = ("control-plane", "master")
    return [
        node(name, None, roles=roles, taints=MASTER_TAINT, unschedulable=name in cordoned)
        for name in MASTERS
    ]


def workers(*cordoned: str, **notes: dict[str, str]) -> list[Object]:
    at_rest = {name: config_notes("worker") | notes.get(name, {}) for name in NODES}
    return cluster(*cordoned, **at_rest)


def degraded(message: str) -> Object:
    found = pool("worker", NODES, target="2", updated=1, unavailable=1)
    for condition in found["status"]["conditions"]:
        condition["status"] = (
            "True" if condition["type"] in ("Degraded", "NodeDegraded", "Updating") else "False"
        )
        condition["message"] = (
            f'Node n1 is reporting: "{message}"' if condition["type"] == "NodeDegraded" else ""
        )
    found["status"]["degradedMachineCount"] = 1
    return found


def cordoned_by_hand(*, updated: bool = False) -> Incident:
    """A node that was cordoned by hand uses up maxUnavailable; updated:
    the pool says Updating for it alone.
    """
    found = pool(
        "worker", NODES, target="1" if updated else "2", updated=2 if updated else 0, unavailable=1
    )
    for condition in found["status"]["conditions"]:
        condition["status"] = "True" if condition["type"] == "Updating" else "False"
    items = [*workers("n1"), found]
    if updated:
        says = (
            "the next update of MachineConfigPool worker would not begin: n1, cordoned by hand",
            "None is under way",
        )
        source = "https://github.com/openshift/openshift-docs/pull/51545"
        return Incident(source, items, "upgrade", 1, says, ("updates no other node",))
    says = (
        "MachineConfigPool worker updates no other node: n1, cordoned by hand",
        "uses up its maxUnavailable 1",
        "Uncordon n1: kubectl uncordon n1; or raise maxUnavailable",
    )
    source = "https://github.com/openshift/machine-config-operator/pull/2758"
    return Incident(source, items, "upgrade", 1, says, ("None is under way",))


def failed(message: str) -> dict[str, str]:
    return {
        f"{CONFIG}/state": "Degraded",
        f"{CONFIG}/reason": message,
        f"{CONFIG}/desiredConfig": "rendered-worker-2",
    }


def paused_pool() -> Incident:
    stopped = pool("worker", NODES, target="2", updated=0)
    stopped["spec"]["paused"] = True
    says = ("MachineConfigPool worker is paused", "spec.paused")
    return Incident(
        "https://github.com/openshift/machine-config-operator/pull/2009",
        [*workers(), stopped],
        "upgrade",
        1,
        says,
    )


def pool_that_another_operator_paused() -> Incident:
    """The SR-IOV network operator up to 1.2 pauses the pool, annotates the node,
    and hangs at a budget.
    """
    stopped = pool("worker", NODES, target="2", updated=0)
    stopped["spec"]["paused"] = True
    labels = {"app": "license"}
    held = [
        *deployment("license", "tools", ["n1"], labels),
        budget("license", "tools", labels, 1, available=1),
    ]
    drained = workers("n1", n1={"sriovnetwork.openshift.io/state": "Draining_MCP_Paused"})
    items = [*drained, stopped, *namespaces("tools"), *held]
    says = (
        "MachineConfigPool worker is paused by the SR-IOV network operator, which drains n1",
        "after which the operator resumes the pool itself: virt-admit drain n1",
        "stops at n1: PodDisruptionBudget tools/license",
    )
    source = "https://github.com/k8snetworkplumbingwg/sriov-network-operator/issues/429"
    return Incident(source, items, "upgrade", 1, says, ("spec.paused",))


def pool_that_another_operator_marked() -> Incident:
    """Later ones annotate the pool as well. No node is drained: its operator did not resume it."""
    stopped = pool("worker", NODES, target="2", updated=0)
    stopped["spec"]["paused"] = True
    stopped["metadata"]["annotations"] = {"sriovnetwork.openshift.io/state": "Paused"}
    says = ("is paused by the SR-IOV network operator", "Check the SR-IOV network operator")
    source = "https://github.com/k8snetworkplumbingwg/sriov-network-operator/pull/537"
    return Incident(source, [*workers(), stopped], "upgrade", 1, says, ("spec.paused",))


def drain_of_a_pool_failed() -> Incident:
    why = (
        "failed to drain node (5 tries): error when evicting "
        'pods/"elasticsearch-sample-es-default-1"'
    )
    found = elastic("vms")
    for each in found:
        if "nodeName" in each.get("spec", {}):
            each["spec"]["nodeName"] = each["spec"]["nodeName"].replace("w", "n")
    only(found, "Elasticsearch", "logs")["status"]["health"] = "yellow"
    protects = next(each for each in found if each["kind"] == "PodDisruptionBudget")
    protects["spec"]["minAvailable"] = 3
    protects["status"] |= {"desiredHealthy": 3, "disruptionsAllowed": 0}
    items = [*workers("n1", n1=failed(why)), degraded(why), *found]
    says = (
        "Node n1 is reporting",
        "elasticsearch-sample-es-default-1",
        "the health of Elasticsearch logs is yellow",
    )
    return Incident("https://github.com/okd-project/okd/issues/593", items, "upgrade", 1, says)


def drifted_file() -> Incident:
    why = 'unexpected on-disk state: content mismatch for file "/etc/node-sizing-enabled.env"'
    items = [*workers(n1=failed(why)), degraded(why)]
    says = (
        "Node n1 is reporting",
        (
            "Find out what changed /etc/node-sizing-enabled.env on n1, and write it as its "
            "MachineConfig says"
        ),
        "which reboots n1: oc debug node/n1 -- chroot /host touch /run/machine-config-daemon-force",
    )
    source = "https://github.com/openstack-k8s-operators/neutron-operator/pull/332"
    return Incident(source, items, "upgrade", 1, says, ("see its conditions", "Next: n1"))


def guards(component: str, on: tuple[str, ...], healthy: int) -> list[Object]:
    space = f"openshift-{component}"
    labels = {"app": "guard"}
    found = [pod(f"{component}-guard-{name}", space, name, labels, None) for name in on]
    protects = budget(f"{component}-guard-pdb", space, labels, len(on), available=2)
    protects["status"] |= {"currentHealthy": healthy, "disruptionsAllowed": max(healthy - 2, 0)}
    return [*found, protects, *namespaces(space)]


def two_masters_at_once() -> Incident:
    items = masters("m0", "m1") + cluster() + guards("kube-apiserver", ("m0", "m2"), 2)
    says = ("m1 is cordoned and without its guard", "Finish the maintenance of m1 first")
    source = "https://github.com/openshift/machine-api-operator/pull/1066"
    return Incident(source, items, "drain m0", 1, says, ("is not Ready",))


def guards_that_are_not_ready() -> Incident:
    own = guards("kube-apiserver", MASTERS, 1)
    own = [
        unready(each) if each["metadata"]["name"].endswith(("m0", "m1")) else each for each in own
    ]
    says = ("kube-apiserver on m0, m1 is not ready",)
    source = "https://github.com/openshift/library-go/pull/1614"
    return Incident(source, masters("m0") + cluster() + own, "drain m0", 1, says)


def eviction_webhook_without_endpoint() -> Incident:
    name = "pod-protector"
    items = deployment(name, name, ["n2"], {"app": name}) + service(name, name, {"app": name}, [])
    rules = {"evictions.example.com": ("", ["pods/eviction"], ["CREATE"])}
    items += [webhook("Validating", name, (name, name), rules), *namespaces(name)]
    says = ("fails closed", "Service pod-protector/pod-protector has no ready endpoint")
    source = "https://github.com/openshift/runbooks/pull/214"
    return Incident(source, cluster("n1", vms=[("web", "n1")]) + items, "drain n1", 1, says)


def taint_left_by_a_remediator() -> Incident:
    items = cluster()
    back = only(items, "Node", "n1")
    taint = {
        "key": "node.kubernetes.io/out-of-service",
        "value": "nodeshutdown",
        "effect": "NoExecute",
    }
    back["spec"]["taints"] = [taint]
    metadata = {
        "deletionTimestamp": ago(hours=26),
        "finalizers": ["self-node-remediation.medik8s.io/snr-finalizer"],
    }
    version = "self-node-remediation.medik8s.io/v1alpha1"
    items.append(obj("SelfNodeRemediation", version, "n1", "medik8s", metadata=metadata))
    says = ("node.kubernetes.io/out-of-service still ends every pod", "[node-fence-taint-left]")
    return Incident(
        "https://github.com/medik8s/self-node-remediation/issues/258", items, "scan", 0, says
    )


def drain_to_a_node_with_a_left_taint() -> Incident:
    items = [
        each for each in taint_left_by_a_remediator().items if each["metadata"]["name"] != "n3"
    ]
    stale = pod("import-x", "vms", "n1", {"app": "import"}, None)
    stale["metadata"] |= {
        "deletionTimestamp": ago(hours=26),
        "finalizers": ["batch.kubernetes.io/job-tracking"],
    }
    says = (
        "n1 has reported for",
        (
            "and still has taint node.kubernetes.io/out-of-service of its fencing, whose "
            "remediator waits for pod vms/import-x"
        ),
        (
            "let pod vms/import-x end, after which SelfNodeRemediation medik8s/n1, which is being "
            "deleted, removes the taint: kubectl describe pod import-x -n vms"
        ),
    )
    source = "https://github.com/medik8s/self-node-remediation/pull/270"
    return Incident(source, [*items, stale], "drain n2", 1, says, ("shut the guest down",))


def self_remediation(role: str = "control-plane") -> list[Object]:
    """Return a NodeHealthCheck of the nodes with a role, and its template."""
    kind, version, space = (
        "SelfNodeRemediationTemplate",
        "self-node-remediation.medik8s.io/v1alpha1",
        "medik8s",
    )
    selector = {
        "matchExpressions": [{"key": f"node-role.kubernetes.io/{role}", "operator": "Exists"}]
    }
    reference = {"apiVersion": version, "kind": kind, "name": "snr", "namespace": space}
    spec = {"minHealthy": "51%", "selector": selector, "remediationTemplate": reference}
    check = obj("NodeHealthCheck", "remediation.medik8s.io/v1alpha1", "check", spec=spec)
    return [
        check,
        obj(kind, version, "snr", space, spec={"template": {"spec": {}}}),
        *namespaces(space),
    ]


def etcd_down_on_a_ready_node() -> Incident:
    nodes = [node(name, roles=("control-plane", "master", "worker")) for name in MASTERS]
    items = nodes + kubevirt((1, 6), ["m0", "m2"], MASTERS, infra={}) + namespaces("vms")
    items += machine("web", "m1") + guards("etcd", MASTERS, 2) + self_remediation()
    for name in MASTERS:
        member = pod(
            f"etcd-{name}",
            "openshift-etcd",
            name,
            {"app": "etcd", "etcd": "true"},
            only(nodes, "Node", name),
        )
        items.append(unready(member) if name == "m0" else member)
    says = ("1 of 3 control-plane nodes is left (etcd on m0 is not ready for 60 min)",)
    source = "https://github.com/medik8s/node-healthcheck-operator/pull/272"
    return Incident(source, items, "outage m1", 1, says)


def sick_master(*not_ready: str) -> list[Object]:
    """Return OpenShift where the kubelet of m1 says that it is not ready,
    and members of etcd on other nodes fail.
    """
    nodes = [
        node(
            name, None, roles=("control-plane", "master"), ready="False" if name == "m1" else "True"
        )
        for name in MASTERS
    ]
    own = [
        unready(each) if each["metadata"]["name"].endswith(not_ready) else each
        for each in guards("etcd", MASTERS, 2)
    ]
    done = obj(
        "ClusterVersion",
        "config.openshift.io/v1",
        "version",
        status={"conditions": conditions(Progressing=False)},
    )
    return [*nodes, *cluster(), *own, *self_remediation(), done]


def etcd_keeps_a_node_from_its_remediation() -> Incident:
    says = (
        "m1, to keep the quorum of etcd: PodDisruptionBudget etcd-guard-pdb allows no disruption",
    )
    source = "https://github.com/medik8s/node-healthcheck-operator/pull/293"
    return Incident(source, sick_master("m0"), "explain nhc/check", 0, says)


def etcd_lets_a_node_go_that_is_down_already() -> Incident:
    source = "https://github.com/medik8s/node-healthcheck-operator/pull/276"
    return Incident(
        source, sick_master("m1"), "explain nhc/check", 0, ("m1 (Ready=False)",), ("quorum",)
    )


def hook_that_stays() -> Incident:
    hook = {"name": "MigrateImportantApp", "owner": "my-app-migration-controller"}
    own = obj("Machine", "machine.openshift.io/v1beta1", "w-1", "openshift-machine-api")
    own["metadata"] |= {
        "deletionTimestamp": ago(hours=5),
        "finalizers": ["machine.machine.openshift.io"],
    }
    own |= {
        "spec": {"lifecycleHooks": {"preDrain": [hook]}},
        "status": {"nodeRef": {"kind": "Node", "name": "n1"}},
    }
    says = ("the pre-drain hook MigrateImportantApp of my-app-migration-controller is set",)
    source = "https://github.com/openshift/enhancements/pull/862"
    return Incident(
        source, [*cluster(), own, *namespaces("openshift-machine-api")], "drain n1", 0, says
    )


def remediation_that_timed_out() -> Incident:
    items = dead(cluster("n1", vms=[("web", "n1")]), "n1") + self_remediation("worker")
    check = only(items, "NodeHealthCheck", "check")
    template = check["spec"].pop("remediationTemplate")
    check["spec"]["escalatingRemediations"] = [
        {"remediationTemplate": template, "order": 1, "timeout": "30m"}
    ]
    over = {"started": ago(hours=4, minutes=30), "timedOut": ago(hours=4)}
    check["status"] = {"unhealthyNodes": [{"name": "n1", "remediations": [over]}]}
    says = ("never restarts", "all its remediators have timed out, and none is left")
    return Incident(
        "https://github.com/medik8s/self-node-remediation/issues/261", items, "outage n1", 1, says
    )


def api_service_without_endpoint() -> Incident:
    name, space = "metrics-server", "kube-system"
    spec = {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "service": {"name": name, "namespace": space, "port": 443},
    }
    down = obj(
        "APIService",
        "apiregistration.k8s.io/v1",
        "v1beta1.metrics.k8s.io",
        spec=spec,
        status={"conditions": conditions(Available=False)},
    )
    items = [*cluster(), down, *service(name, space, {"k8s-app": name}, [])]
    says = (
        "APIService/v1beta1.metrics.k8s.io",
        "Service kube-system/metrics-server has no ready endpoint",
    )
    return Incident("https://github.com/kubernetes/kubernetes/issues/83332", items, "scan", 0, says)


def descheduler_without_background_evictions() -> Incident:
    spec = {"mode": "Automatic", "profiles": ["LongLifecycle"], "deschedulingIntervalSeconds": 60}
    space = "openshift-kube-descheduler-operator"
    found = obj("KubeDescheduler", "operator.openshift.io/v1", "cluster", space, spec=spec)
    says = ("KubeDescheduler", "evicts more and more VMs", "KubeVirtRelieveAndMigrate")
    return Incident(
        "https://github.com/kubevirt/monitoring/pull/266", [*cluster(), found], "scan", 0, says
    )


def remediations_of_deleted_nodes() -> Incident:
    """Nodes were deleted while they were remediated, and the status of the check keeps them."""
    items = [*cluster(), *medik8s(MASTERS + WORKERS)]
    check = only(items, "NodeHealthCheck", "workers")
    check["status"] |= {
        "phase": "Remediating",
        "inFlightRemediations": {"gone-1": ago(hours=30), "gone-2": ago(hours=40)},
    }
    says = ("still lists remediations of gone-1, gone-2, which do not exist", "Update the operator")
    source = "https://github.com/medik8s/node-healthcheck-operator/issues/266"
    return Incident(source, items, "explain nhc/workers", 0, says)


def remediation_left_by_an_escalation() -> Incident:
    """The Machine of a node was deleted, and the remediation that timed out before is left."""
    items = [*cluster(), *medik8s(MASTERS + WORKERS)]
    check = only(items, "NodeHealthCheck", "workers")
    group = "self-node-remediation.medik8s.io/v1alpha1"
    named = {"apiVersion": group, "kind": "SelfNodeRemediation", "name": "gone-x"}
    begun = {"resource": {**named, "namespace": "ops"}, "started": ago(hours=30)}
    check["status"] |= {"unhealthyNodes": [{"name": "gone", "remediations": [begun]}]}
    left = obj("SelfNodeRemediation", group, "gone-x", "ops")
    left["metadata"] |= {
        "annotations": {"remediation.medik8s.io/node-name": "gone"},
        "finalizers": ["self-node-remediation.medik8s.io/snr-finalizer"],
        "ownerReferences": [{"kind": "NodeHealthCheck", "name": "workers"}],
    }
    says = (
        "node gone does not exist any more, but SelfNodeRemediation ops/gone-x is left",
        "kubectl delete selfnoderemediation gone-x -n ops --wait=false",
        "To do: update Node Health Check Operator to 0.9 and Self Node Remediation to 0.11 or "
        "later, which ends it; or delete SelfNodeRemediation gone-x",
        "if it stays, as a decision, take finalizer self-node-remediation.medik8s.io/snr-finalizer",
        "then take gone out of status.unhealthyNodes, as releases before 0.9 do not (kubectl edit "
        "nodehealthcheck workers --subresource=status)",
    )
    source = "https://github.com/medik8s/node-healthcheck-operator/issues/356"
    return Incident(source, [*items, left], "explain nhc/workers", 0, says)


def incidents() -> list[Incident]:
    return [
        paused_pool(),
        cordoned_by_hand(),
        cordoned_by_hand(updated=True),
        pool_that_another_operator_paused(),
        pool_that_another_operator_marked(),
        drain_of_a_pool_failed(),
        drifted_file(),
        two_masters_at_once(),
        guards_that_are_not_ready(),
        eviction_webhook_without_endpoint(),
        taint_left_by_a_remediator(),
        drain_to_a_node_with_a_left_taint(),
        etcd_down_on_a_ready_node(),
        etcd_keeps_a_node_from_its_remediation(),
        etcd_lets_a_node_go_that_is_down_already(),
        hook_that_stays(),
        remediation_that_timed_out(),
        api_service_without_endpoint(),
        descheduler_without_background_evictions(),
        remediations_of_deleted_nodes(),
        remediation_left_by_an_escalation(),
    ]
