"""Cluster API: Machines that are deleted forever, and health checks that refuse or loop."""

from typing import Any

from tests.healthy.parts import Object, ago, budget, conditions, deployment, namespaces, obj, pod

from .case import NODES, Incident, cluster, dead, ending, only, unready

CAPI = "cluster.x-k8s.io/v1beta1"
LABELS = {"cluster.x-k8s.io/deployment-name": "workers", "cluster.x-k8s.io/cluster-name": "prod"}


def machine(name: str, on: str | None, **deletion: Any) -> Object:
    owner = {
        "apiVersion": CAPI,
        "kind": "MachineSet",
        "name": "workers-x",
        "uid": "uid-set",
        "controller": True,
    }
    status: Object = {
        "phase": "Deleting" if deletion else "Running",
        "conditions": deletion.get("conditions", []),
    }
    if on:
        status["nodeRef"] = {"kind": "Node", "name": on}
    metadata: Object = {"labels": LABELS, "ownerReferences": [owner]}
    if deletion:
        metadata |= {"deletionTimestamp": ago(hours=5), "finalizers": ["machine.cluster.x-k8s.io"]}
    return obj(
        "Machine",
        CAPI,
        name,
        "capi",
        metadata=metadata,
        spec={"clusterName": "prod"},
        status=status,
    )


def management(limit: int | str = "100%", **spec: Any) -> list[Object]:
    check = {"clusterName": "prod", "selector": {"matchLabels": LABELS}, "maxUnhealthy": limit}
    check["unhealthyConditions"] = [{"type": "Ready", "status": "Unknown", "timeout": "8m0s"}]
    ready = conditions(
        Ready=True, InfrastructureReady=True, ControlPlaneReady=True, ControlPlaneInitialized=True
    )
    status = {"phase": "Provisioned", "conditions": ready}
    return [
        obj(
            "MachineHealthCheck",
            CAPI,
            "workers",
            "capi",
            spec=check | spec,
            status={"expectedMachines": 3},
        ),
        obj("Cluster", CAPI, "prod", "capi", spec={}, status=status),
        *namespaces("capi"),
    ]


def drain_of_a_dead_node() -> Incident:
    items = dead(cluster("n1", vms=[("web", "n1")]), "n1")
    labels = {"app": "checkout"}
    (own,) = deployment("checkout", "vms", ["n1"], labels)[2:]
    own["spec"]["tolerations"] = [
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    ]
    protects = budget("checkout", "vms", labels, 1, available=1)
    protects["status"] |= {"currentHealthy": 0}
    draining = {"type": "DrainingSucceeded", "status": "False", "reason": "Draining"}
    items += [
        unready(own),
        protects,
        machine("machine-n1", "n1", conditions=[draining]),
        *management(),
    ]
    says = (
        "pod checkout-5d8f-x0 cannot become ready there, as its node does not report to do:",
        (
            "It waits for a pod of this silent node that is being deleted until its grace period "
            "is over, before Cluster API 1.7.4 for 5 min more. A nodeDrainTimeout would end its "
            "wait."
        ),
        "loss of n1: not every VM runs again; 1 VM: 1 never restarts",
        "is being deleted for 5 h, and its drain waits without a limit for pod vms/checkout-",
        "machine.cluster.x-k8s.io/exclude-node-draining=",
    )
    source = "https://github.com/kubernetes-sigs/cluster-api/issues/13508"
    return Incident(source, items, "explain node/n1", 0, says, ("MachineHealthCheck workers acts",))


def volumes_of_a_dead_node() -> Incident:
    items = dead(cluster("n1", vms=[("web", "n1")]), "n1")
    launcher = only(items, "Pod", "virt-launcher-web-k2x7q")
    items[items.index(launcher)] = ending(launcher, "Running", hours=4)
    waiting = {
        "type": "VolumeDetachSucceeded",
        "status": "False",
        "reason": "WaitingForVolumeDetach",
    }
    waiting["lastTransitionTime"] = ago(hours=4)
    items += [machine("machine-n1", "n1", conditions=[waiting]), *management()]
    items += [machine(f"machine-{name}", name) for name in NODES[1:]]
    says = (
        "never restarts",
        "has waited 240 min for volumes to be detached",
        "set nodeVolumeDetachTimeout of MachineDeployment workers",
    )
    never = ("change MachineHealthCheck",)
    return Incident(
        "https://github.com/kubernetes-sigs/cluster-api/issues/10661",
        items,
        "outage n1",
        1,
        says,
        never,
    )


def single_instance() -> Incident:
    items = cluster("n1", vms=[("web", "n1")])
    status = {"instances": 1, "readyInstances": 1, "currentPrimary": "pg-1"}
    top = obj("Cluster", "postgresql.cnpg.io/v1", "pg", "vms", spec={"instances": 1}, status=status)
    labels = {"cnpg.io/cluster": "pg", "cnpg.io/instanceRole": "primary"}
    items += [
        top,
        pod("pg-1", "vms", "n1", labels, top),
        budget("pg-primary", "vms", labels, 1, available=1, of=top),
    ]
    says = ("Cluster pg has one instance, which CloudNativePG cannot move", "instances: 2")
    return Incident("https://github.com/tuist/once/pull/221", items, "drain n1", 1, says)


def too_many_unhealthy() -> Incident:
    items = cluster() + management("50%", nodeStartupTimeout="10m")
    items += [machine("m-1", None), machine("m-2", None), machine("m-3", "n1")]
    says = (
        "acts while no more than 1 of 3 are unhealthy",
        "m-1 (has no node), m-2 (has no node)",
        "does nothing",
    )
    source = "https://github.com/cozystack/cozystack/issues/3513"
    return Incident(source, items, "explain mhc/capi/workers", 0, says)


def provisioning_loop() -> Incident:
    items = cluster() + management()
    check = only(items, "MachineHealthCheck", "workers")
    conditions_ = [{"type": "InfrastructureReady", "status": "False", "timeoutSeconds": 0}]
    check["apiVersion"] = "cluster.x-k8s.io/v1beta2"
    check["spec"] = {
        "clusterName": "prod",
        "selector": {"matchLabels": LABELS},
        "checks": {"nodeStartupTimeoutSeconds": 900, "unhealthyMachineConditions": conditions_},
    }
    says = ("after 0s the check deletes each new machine, in a loop",)
    return Incident("https://github.com/projectbeskar/beskar7/pull/191", items, "scan", 0, says)


def waiting_for_a_hook() -> Incident:
    waits = {"type": "Deleting", "status": "True", "reason": "WaitingForPreDrainHook"}
    own = machine("machine-n1", "n1", conditions=[waits])
    own["metadata"]["annotations"] = {
        "pre-drain.delete.hook.machine.cluster.x-k8s.io/move-storage": "storage-team"
    }
    rest = machine("machine-n2", "n2")  # the hook of a Machine that stays says nothing
    rest["metadata"]["annotations"] = {
        "pre-drain.delete.hook.machine.cluster.x-k8s.io/at-rest": "storage-team"
    }
    says = (
        "Machine capi/machine-n1 is being deleted, but its controller does not drain the node",
        "the pre-drain hook move-storage of storage-team is set",
    )
    items = [*cluster(vms=[("web", "n1")]), own, rest, *management()]
    source = "https://github.com/kubernetes-sigs/cluster-api/pull/11590"
    return Incident(source, items, "drain n1 n2", 0, says, ("at-rest",))


def volume_of_a_pod_that_stays() -> Incident:
    drained = {"type": "DrainingSucceeded", "status": "True"}
    waits = {"type": "VolumeDetachSucceeded", "status": "False", "reason": "WaitingForVolumeDetach"}
    own = machine(
        "machine-n1", "n1", conditions=[drained, waits | {"lastTransitionTime": ago(hours=4)}]
    )
    kept = {
        "attacher": "csi.example.com",
        "nodeName": "n1",
        "source": {"persistentVolumeName": "pvc-buffer"},
    }
    attached = obj(
        "VolumeAttachment", "storage.k8s.io/v1", "csi-1", spec=kept, status={"attached": True}
    )
    says = (
        (
            "it waits for 4 h until volumes pvc-buffer are detached, without a limit, as "
            "nodeVolumeDetachTimeout is not"
        ),
        "Pod vms/collector-x0, which no drain ends, keeps them attached, so this does not end",
        "kubectl annotate machines.cluster.x-k8s.io machine-n1 -n capi "
        "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach=",
    )
    disk = {"name": "buffer", "persistentVolumeClaim": {"claimName": "buffer"}}
    holder = deployment(
        "collector", "vms", ["n1"], {"app": "c"}, spec={"volumes": [disk]}, kind="DaemonSet"
    )
    owned = obj("PersistentVolumeClaim", "v1", "buffer", "vms", spec={"volumeName": "pvc-buffer"})
    items = [*cluster("n1"), own, attached, owned, *holder, *management()]
    never = ("Cluster API drains the node",)
    return Incident(
        "https://github.com/kubernetes-sigs/cluster-api/issues/6285",
        items,
        "drain n1",
        0,
        says,
        never,
    )


def hook_after_the_drain() -> Incident:
    steps = {
        "DrainingSucceeded": "True",
        "VolumeDetachSucceeded": "True",
        "PreTerminateDeleteHookSucceeded": "False",
    }
    states = [
        {"type": step, "status": status, "lastTransitionTime": ago(hours=3)}
        for step, status in steps.items()
    ]
    own = machine("machine-n1", "n1", conditions=states)
    own["metadata"]["annotations"] = {
        "pre-terminate.delete.hook.machine.cluster.x-k8s.io/control-plane": ""
    }
    says = (
        (
            "its node was drained, and it stays for 3 h while the pre-terminate hook control-plane "
            "is set"
        ),
    )
    items = [*cluster("n1"), own, *management()]
    never = ("Cluster API drains the node", "kubectl drain n1")
    return Incident(
        "https://github.com/k3s-io/cluster-api-k3s/pull/125",
        items,
        "explain node/n1",
        0,
        says,
        never,
    )


def rolling(surge: int, missing: int) -> list[Object]:
    """Return a roll-out with three old Machines that are Nodes."""
    strategy = {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": missing}}
    spec = {"clusterName": "prod", "replicas": 3, "strategy": strategy}
    status = {"replicas": 4, "updatedReplicas": 1}
    found = [obj("MachineDeployment", CAPI, "workers", "capi", spec=spec, status=status)]
    for name, revision in (("workers-x", "1"), ("workers-y", "2")):
        notes = {"machinedeployment.clusters.x-k8s.io/revision": revision}
        found.append(
            obj("MachineSet", CAPI, name, "capi", metadata={"labels": LABELS, "annotations": notes})
        )
    return found + [machine(f"machine-{name}", name) for name in NODES]


def no_host_for_the_new_machine() -> Incident:
    new = machine("machine-new", None)
    new["metadata"] |= {"creationTimestamp": ago(hours=3)}
    new["metadata"]["ownerReferences"][0]["name"] = "workers-y"
    words = {"reason": "AssociateBMHFailed", "message": "No available host found. Requeuing."}
    new["status"]["conditions"] = [{"type": "InfrastructureReady", "status": "False"} | words]
    says = (
        (
            "Machine capi/machine-new has no node for 3 h: InfrastructureReady is False: "
            "AssociateBMHFailed"
        ),
        "deletes no old Machine before that one is available",
        "set maxSurge 0 and maxUnavailable 1",
    )
    items = [*cluster(), *rolling(1, 0), new, *management()]
    return Incident(
        "https://github.com/rancher/cluster-api-provider-rke2/issues/166", items, "upgrade", 1, says
    )


def failed_machines_of_ready_nodes() -> Incident:
    items = [*cluster(vms=[("web", "n1")]), *management("40%"), machine("machine-n1", "n1")]
    for name in NODES[1:]:
        failed = machine(f"machine-{name}", name)
        failed["status"] |= {
            "failureReason": "CreateError",
            "failureMessage": "Failed to get a BaremetalHost",
        }
        items.append(failed)
    says = (
        "allows 1 of 3 to be unhealthy, and 3 are",
        "clear failureReason and failureMessage",
        "would delete them",
    )
    never = ("set maxUnhealthy", "more than 3 nodes")
    source = "https://github.com/metal3-io/cluster-api-provider-metal3/issues/2055"
    return Incident(source, items, "outage n1", 1, says, never)


def control_plane_that_does_not_remediate() -> Incident:
    why = "KCP can't remediate this machine because this could result in etcd loosing quorum"
    owned = {
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta1",
        "kind": "KubeadmControlPlane",
        "name": "prod-cp",
    }
    masters = [machine("cp-0", "n1"), machine("cp-1", "n2"), machine("cp-2", None)]
    for each in masters:
        each["metadata"]["ownerReferences"] = [owned | {"uid": "uid-cp", "controller": True}]
    left = {
        "type": "OwnerRemediated",
        "status": "False",
        "reason": "WaitingForRemediation",
        "message": why,
    }
    masters[2]["status"]["conditions"] = [left | {"lastTransitionTime": ago(hours=4, minutes=40)}]
    says = (
        f"to cp-2: KubeadmControlPlane prod-cp has not remediated it for 4 h 40: {why}",
        "delete it by hand, so that KubeadmControlPlane prod-cp creates another one",
    )
    items = [*cluster(), *masters, *management()]
    source = "https://github.com/kubernetes-sigs/cluster-api/issues/4472"
    return Incident(source, items, "explain mhc/capi/workers", 0, says)


def start_up_time_of_virtual_machines() -> Incident:
    items = [*cluster(), *management(nodeStartupTimeout="10m")]
    for name in NODES:
        one = machine(f"machine-{name}", name)
        one["metadata"]["creationTimestamp"] = ago(days=30, minutes=24)
        items.append(one)
    says = ("take up to 24m here", "deleted and created in a loop", "Use at least 30m")
    return Incident("https://github.com/Azure/ARO-RP/pull/2647", items, "scan", 0, says)


def completed_pod_for_which_it_waits() -> Incident:
    """No VM and no budget is left: the pod has ended,
    and no release lets the drain go on before it is deleted.
    """
    words = (
        "Drain not completed yet (started at 2026-11-20T07:00:00Z):\n"
        "* Pod vms/report-x: waiting for completion"
    )
    waits = {"type": "Deleting", "status": "True", "reason": "DrainingNode", "message": words}
    own = machine("machine-n1", "n1", conditions=[waits | {"lastTransitionTime": ago(hours=5)}])
    job = obj("Job", "batch/v1", "report", "vms")
    done = unready(
        pod("report-x", "vms", "n1", {"cluster.x-k8s.io/drain": "wait-completed"}, job),
        since=ago(hours=4),
    )
    done["status"]["phase"] = "Succeeded"
    new = [machine(f"machine-{name}", name) for name in NODES[1:]]
    items = [*cluster("n1"), own, *new, done, rolling(1, 0)[0], *management()]
    says = (
        "No: the upgrade stops (1 cause)",
        (
            "stops at n1: Pod vms/report-x: it has ended 4 h ago (Succeeded), but Cluster API, "
            "which does not evict it"
        ),
        "waits until it is deleted, and no nodeDrainTimeout of Machine capi/machine-n1 ends that",
        ": kubectl delete pod report-x -n vms; or delete its Job report then",
        "kubectl delete pod report-x -n vms",
    )
    source = "https://github.com/kubernetes-sigs/cluster-api/issues/12920"
    return Incident(source, items, "upgrade", 1, says, ("begins now, ends",))


def roll_out_that_a_health_check_undoes() -> Incident:
    items = [*cluster(), *rolling(1, 0), *management(nodeStartupTimeout="10m")]
    for each in items:
        if each["kind"] == "Machine":
            each["spec"]["infrastructureRef"] = {
                "kind": "Metal3Machine",
                "name": each["metadata"]["name"],
            }
    says = (
        "Unknown:",
        (
            "whether MachineHealthCheck capi/workers deletes each new Machine of MachineDeployment "
            "capi/workers in a loop: 10m is too short for bare metal (Metal3Machine) to become a "
            "node. Set its start-up time-out to 20m or more: kubectl edit"
        ),
    )
    source = "https://github.com/azimuth-cloud/capi-helm-charts/pull/230"
    return Incident(source, items, "upgrade", 2, says, ("Yes",))


def incidents() -> list[Incident]:
    return [
        completed_pod_for_which_it_waits(),
        roll_out_that_a_health_check_undoes(),
        no_host_for_the_new_machine(),
        failed_machines_of_ready_nodes(),
        control_plane_that_does_not_remediate(),
        start_up_time_of_virtual_machines(),
        drain_of_a_dead_node(),
        volumes_of_a_dead_node(),
        single_instance(),
        too_many_unhealthy(),
        provisioning_loop(),
        waiting_for_a_hook(),
        volume_of_a_pod_that_stays(),
        hook_after_the_drain(),
    ]
