"""Agents of nodes as their DaemonSets, or the own kinds of their operators, make them."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from tests.healthy.parts import Object, ago, deployment, namespaces, obj, owner

from .case import NODES, cluster, only, unready

CNI = ("/etc/cni/net.d", "/opt/cni/bin")
REGISTRY = "/var/lib/kubelet/plugins_registry"
PLUGINS = ("/var/lib/kubelet/device-plugins",)
CONTAINERS = "containerStatuses"


def waits(reason: str, message: str = "", restarts: int = 0, last: str = "") -> Object:
    """Return the status of a container that waits; last: what it wrote as it ended."""
    found: Object = {"state": {"waiting": {"reason": reason, "message": message}}}
    if last:
        ended = {"exitCode": 1, "reason": "Error", "message": last, "finishedAt": ago(minutes=3)}
        found["lastState"] = {"terminated": ended}
    return found | {"restartCount": restarts}


def crash(last: str, back_off: str = "5m0s") -> Object:
    return waits("CrashLoopBackOff", f"back-off {back_off} restarting failed container", 20, last)


IMAGE = waits("ImagePullBackOff", 'Back-off pulling image "quay.io/agent:2": not found')
CREATING = waits("ContainerCreating")
RUNS: Object = {"state": {"running": {"startedAt": ago(hours=2)}}, "restartCount": 0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agent:
    """A workload with a pod on each node, of which those of ``new`` nodes have the new template.

    Attributes:
        paths: what it mounts of its host.
        state: the container of the pod on n1; None: it is ready.
        late: how long ago that pod was made, and has not been ready.
        event: the reason and the message of an event about that pod.
        kind: what makes its pods.
        status: fields of its status.
    """

    name: str
    namespace: str
    paths: Iterable[str] = ()
    state: Object | None = None
    late: Mapping[str, float] = dataclasses.field(default_factory=lambda: {"hours": 2})
    new: Iterable[str] = ("n1",)
    event: tuple[str, str] | None = None
    kind: str = "DaemonSet"
    on: Iterable[str] = NODES
    spec: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    marks: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    status: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    strategy: str = "RollingUpdate"

    def objects(self) -> list[Object]:
        volumes = [
            {"name": f"v{i}", "hostPath": {"path": path}} for i, path in enumerate(self.paths)
        ]
        labels = {"app": self.name, **self.labels}
        top, *pods = deployment(
            self.name,
            self.namespace,
            self.on,
            labels,
            kind="DaemonSet",
            spec={"volumes": volumes, **self.spec},
        )
        top["kind"], top["metadata"]["generation"] = self.kind, 4
        top["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "3"}
        top["metadata"] |= self.marks
        top["spec"]["updateStrategy"] = {"type": self.strategy}
        count, new = len(pods), set(self.new)
        counts = {"updatedNumberScheduled": len(new), "currentNumberScheduled": count}
        top["status"] |= {"observedGeneration": 4, **counts, **self.status}
        found = [*namespaces(self.namespace), top]
        for each in pods:
            found += self._pod(each, top, new)
        return found

    def _pod(self, found: Object, top: Object, new: set[str]) -> list[Object]:
        meta, spec, on = found["metadata"], found["spec"], found["spec"]["nodeName"]
        meta["ownerReferences"] = owner(top)
        meta["labels"]["controller-revision-hash"] = "new" if on in new else "old"
        if self.kind == "DaemonSet":
            meta["labels"]["pod-template-generation"] = "3" if on in new else "2"
        if on in new:
            meta["creationTimestamp"] = ago(**self.late)
        if on != "n1" or self.state is None:
            return [found]
        found = unready(found, since=ago(**self.late))
        own = {"name": spec["containers"][0]["name"], "ready": False, **self.state}
        found["status"][CONTAINERS] = [own]
        found["status"]["phase"] = "Running" if "running" in own["state"] else "Pending"
        return [found, *([told(found, *self.event)] if self.event else [])]


def told(about: Object, reason: str, message: str) -> Object:
    """Return a warning that is repeated since two hours."""
    meta = about["metadata"]
    involved = {key: meta[key] for key in ("name", "namespace", "uid")} | {"kind": about["kind"]}
    return obj(
        "Event",
        "v1",
        f"{meta['name']}.{reason.lower()}",
        meta["namespace"],
        involvedObject=involved,
        type="Warning",
        reason=reason,
        message=message,
        count=40,
        firstTimestamp=ago(hours=2),
        lastTimestamp=ago(minutes=2),
    )


def privileged(**spec: Any) -> Object:
    box = {"name": "main", "image": "quay.io/agent:2", "securityContext": {"privileged": True}}
    return {"containers": [box], **spec}


HOST = privileged(hostNetwork=True, priorityClassName="system-node-critical")


def driver(name: str) -> tuple[str, ...]:
    return (REGISTRY, f"/var/lib/kubelet/plugins/{name}/")


def of(
    *agents: Agent,
    disks: str = "rook-ceph.rbd.csi.ceph.com",
    cordoned: Iterable[str] = (),
    servers: Iterable[str] = (),
) -> list[Object]:
    """Return a cluster with these agents.

    Args:
        agents: the agents.
        disks: the driver of its VMs.
        cordoned: the nodes that are cordoned.
        servers: the nodes of the control plane.
    """
    items = cluster(*cordoned, vms=(("web", "n2"), ("db", "n1")))
    for name in servers:
        only(items, "Node", name)["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = (
            ""
        )
    for each in items:
        if each["kind"] == "PersistentVolume":
            each["spec"]["csi"]["driver"] = disks
    return items + [part for agent in agents for part in agent.objects()]


def with_devices(items: list[Object], devices: Object) -> list[Object]:
    """Return the cluster whose VM web has such devices."""
    live = only(items, "VirtualMachineInstance", "web")
    live["spec"]["domain"]["devices"] |= devices
    return items


GPU = {"gpus": [{"name": "gpu", "deviceName": "nvidia.com/GA102"}]}
FUNCTION = {"interfaces": [{"name": "default", "sriov": {}}]}


def without_node(pod: Object, why: str) -> None:
    """Let a pod of n1 wait for its node, as a DaemonSet demands it."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    del pod["spec"]["nodeName"], pod["status"][CONTAINERS]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    pod["spec"]["affinity"] = {"nodeAffinity": {required: {"nodeSelectorTerms": [term]}}}
    said = {"reason": "Unschedulable", "message": f"0/3 nodes are available: {why}"}
    since = {"lastTransitionTime": ago(hours=2)}
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", **said, **since}]


def ready_before(items: list[Object], **late: float) -> list[Object]:
    """Return the cluster whose Cilium on n1 was ready until then."""
    pod = only(items, "Pod", "cilium-x0")
    items[items.index(pod)] = unready(pod, since=ago(**late))
    return items
