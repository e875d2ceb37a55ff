"""Small clusters whose operators write PodDisruptionBudgets, as the operators write them."""

from tests.builders import manifest

READY = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
DOWN = {"conditions": [{"type": "Ready", "status": "False"}], "phase": "Running"}
LONGHORN = "longhorn-system"


def node(name, *, cordoned=False):
    return manifest(
        "v1", "Node", name, spec={"unschedulable": True} if cordoned else {}, status=READY
    )


def pod(name, namespace, labels, on, *, ready=True, owner="ReplicaSet"):
    owners = [{"kind": owner, "name": name, "controller": True}]
    return manifest(
        "v1",
        "Pod",
        name,
        namespace,
        metadata={"labels": labels, "ownerReferences": owners},
        spec={"nodeName": on},
        status=READY if ready else DOWN,
    )


def budget(name, namespace, labels, *, allowed, expected=1, owner=None, own_labels=None, **limit):
    """Build a budget. ``owner``: apiVersion, kind and name of the owner, or None."""
    metadata = {"labels": own_labels or {}}
    if owner:
        metadata["ownerReferences"] = [
            dict(zip(("apiVersion", "kind", "name"), owner, strict=True))
        ]
    desired = limit.get("minAvailable", expected - limit.get("maxUnavailable", 0))
    return manifest(
        "policy/v1",
        "PodDisruptionBudget",
        name,
        namespace,
        metadata=metadata,
        spec={"selector": {"matchLabels": labels}, **limit},
        status={
            "expectedPods": expected,
            "desiredHealthy": desired,
            "currentHealthy": desired + allowed,
            "disruptionsAllowed": allowed,
        },
    )


# --- Longhorn -------------------------------------------------------------------------------------


def instance_manager(on):
    """The pod of a node's instance manager and its budget: no owner reference, no labels."""
    labels = {"longhorn.io/component": "instance-manager", "longhorn.io/node": on}
    return [
        pod(f"instance-manager-{on}", LONGHORN, labels, on, owner="InstanceManager"),
        budget(f"instance-manager-{on}", LONGHORN, labels, allowed=0, minAvailable=1),
    ]


def replica(volume, on, *, healthy=True, failed=False, state="running"):
    return manifest(
        "longhorn.io/v1beta2",
        "Replica",
        f"{volume}-r-{on}",
        LONGHORN,
        spec={
            "volumeName": volume,
            "nodeID": on,
            "desireState": state,
            "healthyAt": "2026-01-01T00:00:00Z" if healthy else "",
            "failedAt": "2026-01-02T00:00:00Z" if failed else "",
        },
        status={"currentState": state},
    )


def volume(name, replicas, on=""):
    return manifest(
        "longhorn.io/v1beta2",
        "Volume",
        name,
        LONGHORN,
        spec={"numberOfReplicas": replicas},
        status={"currentNodeID": on},
    )


def policy(value):
    return manifest("longhorn.io/v1beta2", "Setting", "node-drain-policy", LONGHORN, value=value)


def longhorn(*replicas, nodes=("a", "b", "c")):
    """A cluster with Longhorn on each node, its CSI pods, and these replicas."""
    found = [each for name in nodes for each in (node(name), *instance_manager(name))]
    for name in ("csi-attacher", "csi-provisioner"):
        found += [pod(f"{name}-{on}", LONGHORN, {"app": name}, on) for on in nodes]
        found.append(
            budget(
                name,
                LONGHORN,
                {"app": name},
                allowed=len(nodes) - 1,
                expected=len(nodes),
                minAvailable=1,
            )
        )
    return [*found, *replicas]


# --- Rook-Ceph ------------------------------------------------------------------------------------

DOMAIN = "topology-location-host"


def osd(number, on, namespace="rook-ceph", *, ready=True):
    return pod(
        f"rook-ceph-osd-{number}", namespace, {"app": "rook-ceph-osd", DOMAIN: on}, on, ready=ready
    )


def ceph(health="HEALTH_OK", namespace="rook-ceph", **spec):
    return manifest(
        "ceph.rook.io/v1",
        "CephCluster",
        "ceph",
        namespace,
        spec=spec,
        status={"ceph": {"health": health}},
    )


def ceph_owner():
    return ("ceph.rook.io/v1", "CephCluster", "ceph")


def osd_budget(allowed=1, namespace="rook-ceph"):
    labels = {"app": "rook-ceph-osd"}
    return budget(
        "rook-ceph-osd",
        namespace,
        labels,
        allowed=allowed,
        expected=6,
        owner=ceph_owner(),
        maxUnavailable=1,
    )


def blocking_budget(domain, namespace="rook-ceph"):
    name = f"rook-ceph-osd-host-{domain}"
    return budget(
        name,
        namespace,
        {DOMAIN: domain},
        allowed=0,
        expected=2,
        owner=ceph_owner(),
        maxUnavailable=0,
    )


def monitors(allowed=1, namespace="rook-ceph"):
    labels = {"app": "rook-ceph-mon"}
    pods = [pod(f"rook-ceph-mon-{on}", namespace, labels, on) for on in "abc"]
    most = 1 if allowed else 0
    return [
        *pods,
        budget(
            "rook-ceph-mon-pdb", namespace, labels, allowed=allowed, expected=3, maxUnavailable=most
        ),
    ]


def rook(namespace="rook-ceph"):
    """A healthy cluster with two OSDs on each of three nodes."""
    osds = [osd(number, "abc"[number // 2], namespace) for number in range(6)]
    mgr = {"app": "rook-ceph-mgr"}
    return [
        *(node(name) for name in "abc"),
        *osds,
        osd_budget(namespace=namespace),
        ceph(namespace=namespace),
        *monitors(namespace=namespace),
        *(pod(f"rook-ceph-mgr-{on}", namespace, mgr, on) for on in "ab"),
        budget(
            "rook-ceph-mgr-pdb",
            namespace,
            mgr,
            allowed=1,
            expected=2,
            owner=ceph_owner(),
            maxUnavailable=1,
        ),
    ]


# --- OpenShift ------------------------------------------------------------------------------------


def openshift():
    """A healthy cluster: OpenShift Data Foundation, guards of the control plane,
    the image registry, KubeVirt.
    """
    guards, registry = {"app": "guard"}, {"docker-registry": "default"}
    etcd, space = "openshift-etcd", "openshift-image-registry"
    virt, by = {"kubevirt.io": "virt-api"}, {"app.kubernetes.io/managed-by": "virt-operator"}
    return [
        *rook("openshift-storage"),
        *(pod(f"etcd-guard-{on}", etcd, guards, on, owner="Node") for on in "abc"),
        budget("etcd-guard-pdb", etcd, guards, allowed=1, expected=3, minAvailable=2),
        *(pod(f"image-registry-{on}", space, registry, on) for on in "ab"),
        budget("image-registry", space, registry, allowed=1, expected=2, minAvailable=1),
        *(pod(f"virt-api-{on}", "openshift-cnv", virt, on) for on in "ab"),
        budget(
            "virt-api-pdb",
            "openshift-cnv",
            virt,
            allowed=1,
            expected=2,
            own_labels=by,
            minAvailable=1,
        ),
    ]
