"""Orders that stand still: a remediation that has failed, and roll-outs that wait.

And one that only looks like it.
"""

from tests.healthy.parts import Object, ago, budget, deployment, namespaces, obj, pod
from tests.healthy.storage import HARVESTER, harvester, harvester_vm

from .case import Incident, cluster, dead, only, unready
from .openshift import self_remediation, workers

FENCING = "fence-agents-remediation.medik8s.io"


def said(kind: str, status: str, reason: str, message: str, **late: float) -> Object:
    since = ago(**late or {"minutes": 5})
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }


def fencing_that_failed() -> Incident:
    """The power of a node is gone, also that of its management controller,
    so that no fence agent reaches it.
    """
    items = dead(cluster(vms=[("web", "n1")]), "n1") + self_remediation("worker")
    space = "openshift-workload-availability"
    check = only(items, "NodeHealthCheck", "check")
    template = {
        "apiVersion": f"{FENCING}/v1alpha1",
        "kind": "FenceAgentsRemediationTemplate",
        "name": "ipmi",
    }
    check["spec"]["remediationTemplate"] = {**template, "namespace": space}
    spec = {"agent": "fence_ipmilan", "nodeparameters": {"--ip": {"n1": "10.0.0.1"}}}
    items.append(
        obj(
            template["kind"],
            template["apiVersion"],
            "ipmi",
            space,
            spec={"template": {"spec": spec}},
        )
    )
    words = said(
        "Succeeded", "False", "FenceAgentFailed", "Fence agent command has failed", hours=4
    )
    kind = "FenceAgentsRemediation"
    items.append(
        obj(kind, template["apiVersion"], "n1", space, spec=spec, status={"conditions": [words]})
    )
    begun = {
        "resource": {"kind": kind, "name": "n1", "namespace": space},
        "started": ago(hours=4.2),
    }
    check["status"] = {"unhealthyNodes": [{"name": "n1", "remediations": [begun]}]}
    says = (
        (
            "the loss of its node never restarts its node is lost already: NodeHealthCheck check "
            f"can do no more: {kind} {space}/n1 has failed 4 h ago (FenceAgentFailed), and it is "
            "not tried"
        ),
        (
            "see in the log of its operator what fence_ipmilan answered, and correct "
            "FenceAgentsRemediationTemplate ipmi, or what its parameters name"
        ),
        "they are --ip 10.0.0.1; then delete",
        f": kubectl delete fenceagentsremediation n1 -n {space}",
    )
    source = "https://github.com/medik8s/fence-agents-remediation/pull/121"
    return Incident(source, items, "explain vm/web", 0, says, ("runs again after", "acts"))


def budget_of_pods_that_just_start() -> Incident:
    """The router that left the first node starts on another one,
    so its budget allows nothing for a minute.
    """
    labels, space = {"app": "router"}, "openshift-ingress"
    found = deployment("router", space, ["n2", "n3"], labels)
    young = found[-1]
    young |= unready(young, since=ago(seconds=100))
    young["metadata"]["creationTimestamp"] = ago(seconds=100)
    limit = budget("router", space, labels, 2, unavailable=1)
    limit["status"] |= {"currentHealthy": 1, "disruptionsAllowed": 0}
    items = [*workers(), *namespaces(space), *found, limit]
    source = "https://github.com/openshift/machine-config-operator/pull/3689"
    return Incident(source, items, "upgrade", 0, ("Yes:",), ("stops", "router"))


PLANS = "upgrade.cattle.io"


def plan(name: str, on: str, **spec: object) -> Object:
    resolved = {
        "type": "LatestResolved",
        "status": "True",
        "reason": "Version",
        "lastUpdateTime": ago(hours=26),
    }
    status = {"applying": [on], "conditions": [resolved]}
    return obj("Plan", f"{PLANS}/v1", name, "system-upgrade", spec=spec, status=status)


def pod_of_plan(name: str, on: str, **body: object) -> Object:
    labels = {f"{PLANS}/plan": name, f"{PLANS}/node": on}
    tolerated = {
        "key": "node.kubernetes.io/unschedulable",
        "operator": "Exists",
        "effect": "NoSchedule",
    }
    found = pod(
        f"apply-{name}-on-{on}",
        "system-upgrade",
        "",
        labels,
        None,
        spec={"tolerations": [tolerated]},
    )
    found["metadata"]["creationTimestamp"] = ago(minutes=8)
    words = "0/3 nodes are available: 1 node(s) had untolerated taint {CriticalAddonsOnly: true}"
    found["status"] = {
        "phase": "Pending",
        "conditions": [said("PodScheduled", "False", "Unschedulable", words)],
    }
    return found


def taint_without_toleration() -> Incident:
    """The servers of k3s have a taint that their Plan does not tolerate,
    and the Plan of the agents waits for them.
    """
    items = cluster()
    taint = {"key": "CriticalAddonsOnly", "value": "true", "effect": "NoExecute"}
    only(items, "Node", "n1")["spec"]["taints"] = [taint]
    kept = {"key": "example.com/own", "operator": "Exists"}
    plans = [
        plan("server-plan", "n1", tolerations=[kept]),
        plan("agent-plan", "n2", prepare={"args": ["prepare", "server-plan"]}),
    ]
    items += [*namespaces("system-upgrade"), *plans, pod_of_plan("server-plan", "n1")]
    says = (
        "No: the upgrade stops (1 cause)",
        (
            "Plan system-upgrade/server-plan tolerates no taint CriticalAddonsOnly=true:NoExecute "
            "of n1"
        ),
        "agent-plan waits for it in its step prepare",
        "kubectl patch plans.upgrade.cattle.io server-plan -n system-upgrade --type=merge -p "
        '\'{"spec":{"tolerations":[{"key":"example.com/own","operator":"Exists"},'
        '{"key":"CriticalAddonsOnly","operator":"Exists"}]}}\'',
    )
    never = ("Yes", "begins now", "kubectl drain", "taint nodes")
    return Incident(
        "https://github.com/rancher/rancher/issues/32050", items, "upgrade", 1, says, never
    )


def health_check_that_never_passes() -> Incident:
    checked = obj(
        "Dragonfly", "dragonflydb.io/v1alpha1", "cache", "database", status={"phase": "ready"}
    )
    check = {
        "apiVersion": checked["apiVersion"],
        "kind": "Dragonfly",
        "name": "cache",
        "namespace": "database",
    }
    spec = {
        "healthChecks": [check | {"expr": "status.phase == 'ready' && !status.isRollingUpdate"}]
    }
    words = "Waiting for health checks: health checks failed: exceeded maximum timeout of 10m0s"
    status = {
        "phase": "Pending",
        "message": words,
        "startedAt": ago(days=7, hours=5),
        "lastUpdated": ago(minutes=4),
    }
    ordered = obj(
        "TalosUpgrade", "tuppr.home-operations.com/v1alpha1", "talos", spec=spec, status=status
    )
    says = (
        "No: the upgrade stops (1 cause)",
        (
            "TalosUpgrade talos does not begin, because its check of Dragonfly database/cache "
            "never passes, as that has no status.isRollingUpdate"
        ),
        "It is Pending for 7 days 5 h: Waiting for health checks",
        "Ask has(status.isRollingUpdate) before that field",
        "kubectl edit talosupgrade talos",
    )
    items = [*cluster(), checked, ordered, *namespaces("database")]
    never = ("Yes", "begins now")
    return Incident("https://github.com/ionfury/homelab/pull/863", items, "upgrade", 1, says, never)


def update_of_kubevirt_with_a_dead_node() -> Incident:
    """One node has been down for long.

    Its virt-handler is the one that may be unavailable, so no other is replaced.
    """
    items = dead(cluster(), "n3")
    for each in items:
        if each["kind"] == "Pod" and each["spec"]["nodeName"] == "n3":
            each.update(unready(each))
    only(items, "DaemonSet", "virt-handler")["spec"]["updateStrategy"] = {
        "rollingUpdate": {"maxUnavailable": 1}
    }
    own = only(items, "KubeVirt", "kubevirt")["status"]
    own["targetKubeVirtVersion"] = "v1.6.2"
    words = "Transitioning from previous version v1.6.0 to target version v1.6.2"
    own["conditions"] = [
        said(kind, "True", "UpdateInProgress", words, hours=2.5)
        for kind in ("Available", "Progressing", "Degraded")
    ]
    says = (
        (
            "The update of KubeVirt to v1.6.2 has lasted for 2 h 30 and does not end before "
            "virt-handler is replaced on n3, which has not reported for 5 h (0 of 3 are updated; "
            "that pod uses up its maxUnavailable 1). VMs run on. Bring n3 back"
        ),
    )
    source = "https://github.com/kubevirt/kubevirt/pull/6702"
    return Incident(source, items, "explain node/n3", 0, says, ("edit daemonset", "rollout undo"))


def _unapplied_bundle() -> list[Object]:
    """Return the cluster of Rancher that waits for a bundle, and the bundle."""
    waits = {
        "type": "Updated",
        "status": "Unknown",
        "message": "waiting for the bundle",
        "lastUpdateTime": ago(minutes=50),
    }
    cluster_status = {"conditions": [waits]}
    version = "provisioning.cattle.io/v1"
    local = obj("Cluster", version, "local", "fleet-local", spec={}, status=cluster_status)
    unapplied = {
        "type": "Ready",
        "status": "False",
        "lastUpdateTime": ago(minutes=55),
        "message": "WaitApplied(1)",
    }
    bundle_status = {
        "conditions": [unapplied],
        "display": {"readyClusters": "0/1", "state": "WaitApplied"},
    }
    version = "fleet.cattle.io/v1alpha1"
    bundle = obj("Bundle", version, "mcc-suc", "fleet-local", spec={}, status=bundle_status)
    return [local, bundle]


def agent_of_fleet_scaled_down() -> Incident:
    """The charts were changed, and nothing scaled the agent of Fleet up again: Rancher waits for a
    bundle without an end.
    """
    items = harvester((1, 1), HARVESTER, "allow-if-replica-is-stopped") + harvester_vm(
        "web", "h2", (1, 1)
    )
    done = [
        {"type": kind, "status": "True", "lastUpdateTime": ago(hours=1)}
        for kind in ("ImageReady", "RepoReady", "NodesPrepared", "SystemServicesUpgraded")
    ]
    states = {name: {"state": "Images preloaded"} for name in HARVESTER}
    status = {
        "conditions": [*done, {"type": "Completed", "status": "Unknown"}],
        "nodeStatuses": states,
    }
    labels = {"labels": {"harvesterhci.io/latestUpgrade": "true"}}
    upgrade = obj(
        "Upgrade",
        "harvesterhci.io/v1beta1",
        "hvst-x",
        "harvester-system",
        metadata=labels,
        status=status,
    )
    space = "cattle-fleet-local-system"
    agent = obj("Deployment", "apps/v1", "fleet-agent", space, spec={"replicas": 0}, status={})
    items += [upgrade, *_unapplied_bundle(), agent, *namespaces("fleet-local", space)]
    says = (
        "No: the upgrade stops (1 cause)",
        (
            "no node of it has begun, and it has not moved for 55 min: Cluster fleet-local/local "
            "is not updated: waiting for the bundle. Bundle fleet-local/mcc-suc is WaitApplied for "
            "55 min. Nothing applies it, because Deployment cattle-fleet-local-system/fleet-agent "
            "has 0 replicas"
        ),
        f"kubectl scale deployment fleet-agent -n {space} --replicas=1",
    )
    never = ("Yes", "begins now", "kubectl drain")
    return Incident(
        "https://github.com/harvester/harvester/issues/4119", items, "upgrade", 1, says, never
    )


def incidents() -> list[Incident]:
    return [
        agent_of_fleet_scaled_down(),
        fencing_that_failed(),
        budget_of_pods_that_just_start(),
        taint_without_toleration(),
        health_check_that_never_passes(),
        update_of_kubevirt_with_a_dead_node(),
    ]
