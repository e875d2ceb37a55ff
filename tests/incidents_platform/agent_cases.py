"""Agents of nodes, each of another product, whose roll-out stands, or which stay down; and those
that look alike, in normal motion, or of which no VM needs anything."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tests.healthy.parts import Object, ago, deployment, namespaces

from .agents import (
    CNI,
    CONTAINERS,
    CREATING,
    FUNCTION,
    GPU,
    HOST,
    IMAGE,
    PLUGINS,
    REGISTRY,
    RUNS,
    Agent,
    crash,
    driver,
    of,
    privileged,
    ready_before,
    told,
    waits,
    with_devices,
    without_node,
)
from .case import NODES, dead, only, unready


@dataclasses.dataclass(frozen=True)
class Standing:
    """An agent that stands in the way.

    Attributes:
        says: what every verb says of it.
        effect: what it means for VMs.
        unknown: whether it cannot be determined for it whether an upgrade completes.
        drains: whether a drain of another node says so.
        rule: the rule that tells it.
    """

    name: str
    items: Callable[[], list[Object]]
    says: tuple[str, ...]
    effect: str
    unknown: bool = True
    drains: bool = True
    rule: str = "node-agent-down"


NETWORK = "may get no network"
DEVICE = "A VM that needs a device may not start on n1"
SETS_UP = "The addresses, bridges and routes that it sets up may be missing on n1"
ROLLS = "does not finish its roll-out (1 of 3 pods of its present template)"


def volumes(name: str) -> str:
    return f"may not get its volumes of {name}"


TRIDENT, LINSTOR, PX, OPENEBS = (
    *("csi.trident.netapp.io", "linstor.csi.linbit.com", "pxd.portworx.com"),
    "io.openebs.csi-mayastor",
)


def _cilium(**fields: Any) -> Agent:
    marks = {
        "annotations": {
            "deprecated.daemonset.template.generation": "3",
            "meta.helm.sh/release-name": "cilium",
        }
    }
    own = {"name": "cilium", "namespace": "kube-system", "paths": CNI, "marks": marks}
    return Agent(**(own | fields))


def _trident(**fields: Any) -> Agent:
    of_trident = [
        {
            "apiVersion": "trident.netapp.io/v1",
            "kind": "TridentOrchestrator",
            "name": "trident",
            "uid": "t",
            "controller": True,
        }
    ]
    own = {
        "name": "trident-node-linux",
        "namespace": "trident",
        "paths": driver(TRIDENT),
        "state": crash('level=fatal msg="cannot open /dev/mapper"'),
    }
    marks = {"annotations": {"deprecated.daemonset.template.generation": "3"}}
    return Agent(**(own | {"marks": {**marks, "ownerReferences": of_trident}} | fields))


def _mayastor() -> list[Object]:
    engine = Agent(name="openebs-io-engine", namespace="openebs", spec=privileged(), state=CREATING)
    items = of(
        Agent(
            name="openebs-csi-node",
            namespace="openebs",
            paths=driver("io.openebs.mayastor"),
            new=NODES,
        ),
        engine,
        disks=OPENEBS,
    )
    without_node(only(items, "Pod", "openebs-io-engine-x0"), "1 Insufficient hugepages-2Mi.")
    return items


def _uncreated(said: str, **fields: Any) -> list[Object]:
    own = {"name": "calico-node", "namespace": "calico-system", "paths": CNI, "new": ()}
    agent = Agent(**(own | {"on": ("n2", "n3"), "status": {"desiredNumberScheduled": 3}} | fields))
    items = of(agent)
    return [*items, told(only(items, "DaemonSet", agent.name), "FailedCreate", said)]


STANDING = (
    Standing(
        "cilium: image",
        lambda: of(_cilium(state=IMAGE)),
        (
            "DaemonSet kube-system/cilium (Helm release cilium)",
            ROLLS,
            "pod cilium-x0 on n1",
            "ImagePullBackOff",
            "let Helm release cilium go back to the former template",
        ),
        NETWORK,
    ),
    Standing(
        "antrea: its new template works on another node",
        lambda: of(
            Agent(
                name="antrea-agent",
                namespace="kube-system",
                paths=CNI,
                new=("n1", "n2"),
                state=crash("openvswitch: no such device"),
            )
        ),
        ("does not finish its roll-out (2 of 3 pods of its present template)", "no such device"),
        NETWORK,
        unknown=False,
    ),
    Standing(
        "trident: crash",
        lambda: of(_trident(), disks=TRIDENT),
        (
            "DaemonSet trident/trident-node-linux (TridentOrchestrator trident)",
            ROLLS,
            "cannot open /dev/mapper",
        ),
        volumes(TRIDENT),
    ),
    Standing(
        "istio: it is down on one node without a roll-out",
        lambda: of(
            Agent(
                name="istio-cni-node",
                namespace="istio-system",
                paths=CNI,
                new=NODES,
                state=crash("cannot copy: text file busy"),
            )
        ),
        ("DaemonSet istio-system/istio-cni-node is down on n1", "text file busy"),
        NETWORK,
        unknown=False,
    ),
    Standing(
        "sriov: container cannot be created",
        lambda: with_devices(
            of(
                Agent(
                    name="sriov-device-plugin",
                    namespace="sriov-network-operator",
                    paths=PLUGINS,
                    state=waits(
                        "CreateContainerConfigError", "configmap device-plugin-config not found"
                    ),
                )
            ),
            FUNCTION,
        ),
        (ROLLS, "CreateContainerConfigError"),
        DEVICE,
    ),
    Standing(
        "gpu: device plugin ends",
        lambda: with_devices(
            of(
                Agent(
                    name="nvidia-sandbox-device-plugin",
                    namespace="gpu-operator",
                    paths=PLUGINS,
                    state=crash("failed to discover vfio devices"),
                )
            ),
            GPU,
        ),
        (ROLLS, "failed to discover vfio devices"),
        DEVICE,
    ),
    Standing(
        "gpu: driver beside its device plugin",
        lambda: with_devices(
            of(
                Agent(
                    name="nvidia-sandbox-device-plugin",
                    namespace="gpu-operator",
                    paths=PLUGINS,
                    new=NODES,
                ),
                Agent(
                    name="nvidia-vgpu-manager",
                    namespace="gpu-operator",
                    spec=privileged(),
                    state=crash("no kernel headers of this kernel: cannot build"),
                ),
            ),
            GPU,
        ),
        ("DaemonSet gpu-operator/nvidia-vgpu-manager", ROLLS, "cannot build"),
        DEVICE,
    ),
    Standing(
        "nmstate: readiness probe",
        lambda: of(
            Agent(
                name="nmstate-handler",
                namespace="nmstate",
                spec=HOST,
                state=RUNS,
                event=("Unhealthy", "Readiness probe failed: cannot connect to NetworkManager"),
            )
        ),
        (ROLLS, "cannot connect to NetworkManager"),
        SETS_UP,
        unknown=False,
        drains=False,
    ),
    Standing(
        "kube-vip: crash on a control-plane node",
        lambda: of(
            Agent(
                name="kube-vip-ds",
                namespace="kube-system",
                on=("n1", "n2"),
                spec=HOST | {"priorityClassName": ""},
                state=crash("unable to detect interface eth9"),
            ),
            servers=("n1", "n2"),
        ),
        ("does not finish its roll-out (1 of 2 pods", "interface eth9"),
        SETS_UP,
        unknown=False,
        drains=False,
    ),
    Standing(
        "openebs: no huge pages",
        _mayastor,
        (ROLLS, "pod openebs-io-engine-x0 on n1", "Insufficient hugepages-2Mi"),
        volumes(OPENEBS),
    ),
    Standing(
        "piraeus: a satellite, which has a DaemonSet of its own",
        lambda: of(
            Agent(name="linstor-csi-node", namespace="piraeus", paths=driver(LINSTOR), new=NODES),
            Agent(
                name="linstor-satellite.n1",
                namespace="piraeus",
                on=("n1",),
                spec=privileged(),
                state=crash("modprobe: drbd not found"),
            ),
            disks=LINSTOR,
        ),
        ("DaemonSet piraeus/linstor-satellite.n1 is down on n1", "drbd not found"),
        volumes(LINSTOR),
        unknown=False,
    ),
    Standing(
        "portworx: pods of a kind of its own",
        lambda: of(
            Agent(
                name="px",
                namespace="portworx",
                paths=driver(PX),
                kind="StorageCluster",
                state=crash("cannot get the lock of the cluster"),
            ),
            disks=PX,
        ),
        ("StorageCluster portworx/px", ROLLS, "lock of the cluster"),
        volumes(PX),
        unknown=False,
    ),
    Standing(
        "rook: a Secret is missing",
        lambda: of(
            Agent(
                name="csi-rbdplugin",
                namespace="rook-ceph",
                paths=(REGISTRY,),
                state=CREATING,
                event=(
                    "FailedMount",
                    'MountVolume.SetUp failed for volume "keys" : secret "csi-keys" not found',
                ),
            )
        ),
        (ROLLS, "csi-keys"),
        volumes("rook-ceph.rbd.csi.ceph.com"),
    ),
    Standing(
        "kube-ovn: no sandbox",
        lambda: of(
            Agent(
                name="kube-ovn-cni",
                namespace="kube-system",
                paths=CNI,
                state=CREATING,
                event=(
                    "FailedCreatePodSandBox",
                    "Failed to create pod sandbox: runc did not terminate "
                    "successfully: unknown version",
                ),
            )
        ),
        (ROLLS, "runc did not terminate"),
        NETWORK,
        rule="node-pod-network-down",
    ),
    Standing(
        "calico: a webhook denies its pods",
        lambda: _uncreated('admission webhook "validate.policy" denied the request: no hostPath'),
        ("DaemonSet calico-system/calico-node cannot create its pod on n1", "no hostPath"),
        NETWORK,
        unknown=False,
    ),
    Standing(
        "whereabouts: Pod Security forbids its pods",
        lambda: _uncreated(
            'pods "whereabouts-x" is forbidden: violates PodSecurity "baseline:latest": hostPath '
            'volumes (volume "cni")',
            name="whereabouts",
            namespace="whereabouts",
        ),
        ("cannot create its pod on n1", "et namespace whereabouts enforce Pod Security"),
        NETWORK,
        unknown=False,
    ),
    Standing(
        "spiderpool: a quota is used up",
        lambda: _uncreated(
            'pods "spiderpool-x" is forbidden: exceeded quota: small, requested: cpu=1',
            name="spiderpool-agent",
            namespace="spiderpool",
        ),
        ("cannot create its pod on n1", "exceeded quota: small"),
        NETWORK,
        unknown=False,
    ),
)


def _with_node(items: list[Object], name: str, **fields: Any) -> list[Object]:
    """Return the cluster whose node has come back so long ago."""
    ready = next(
        each
        for each in only(items, "Node", name)["status"]["conditions"]
        if each["type"] == "Ready"
    )
    ready["lastTransitionTime"] = ago(**fields)
    return items


def _without_vms(items: list[Object], name: str) -> list[Object]:
    """Return the cluster where the node runs no VM, and none comes there."""
    labels = only(items, "Node", name)["metadata"]["labels"]
    del labels["kubevirt.io/schedulable"]
    return [
        each for each in items if each["metadata"]["name"] not in ("db", "virt-launcher-db-k2x7q")
    ]


def _replaced_deployment() -> list[Object]:
    """Return a Deployment whose new pod does not start, while the former one serves."""
    items = of()
    made = deployment("cert-manager-webhook", "cert-manager", ["n1", "n2"], {"app": "webhook"})
    made[-1] = unready(made[-1])
    made[-1]["status"][CONTAINERS] = [{"name": "main", "ready": False, **IMAGE}]
    return [*items, *namespaces("cert-manager"), *made]


def _surging() -> list[Object]:
    """Return an agent whose former pod serves on n1 until the new one beside it is ready."""
    items = of(_cilium(state=IMAGE))
    former = copy.deepcopy(only(items, "Pod", "cilium-x2"))
    former["metadata"] |= {"name": "cilium-old", "uid": "uid-cilium-old"}
    former["spec"]["nodeName"] = "n1"
    return [*items, former]


IN_MOTION: Mapping[str, Callable[[], list[Object]]] = {
    "the new pod pulls its image for minutes": lambda: of(
        _cilium(state=IMAGE, late={"minutes": 12})
    ),
    "the new pod is ready, the next one comes": lambda: of(_cilium()),
    "it ends until its peers are back from a reboot": lambda: _with_node(
        of(_cilium(state=crash("no API server"))), "n1", minutes=8
    ),
    "it ends for minutes, as it did in the past": lambda: ready_before(
        of(_cilium(state=crash("no API server", "20s"))), minutes=2
    ),
    "its node is cordoned for its update": lambda: of(
        _cilium(state=IMAGE, late={"minutes": 40}), cordoned=("n1",)
    ),
    "nothing says what it waits for, for less than an hour": lambda: of(
        _cilium(state=CREATING, late={"minutes": 40})
    ),
    "its former pod serves until the new one is ready": _surging,
    "its probe tells of progress": lambda: of(
        _cilium(state=RUNS, event=("Unhealthy", "Readiness probe failed: syncing 40%"))
    ),
    "an operator replaces its pods node by node": lambda: of(_cilium(strategy="OnDelete")),
    "the controller has not seen the new template": lambda: of(
        _cilium(state=IMAGE, status={"observedGeneration": 3})
    ),
    "its node does not report": lambda: dead(of(_cilium(state=IMAGE)), "n1"),
    "it serves a driver that no VM uses": lambda: of(_trident()),
    "it gives out devices that no VM has": lambda: of(
        Agent(name="sriov-device-plugin", namespace="sriov", paths=PLUGINS, state=IMAGE)
    ),
    "the plugin of a thin multus stays when its pod has ended": lambda: of(
        Agent(
            name="kube-multus-ds",
            namespace="kube-system",
            paths=CNI,
            new=NODES,
            state=IMAGE,
            labels={"app": "multus"},
        )
    ),
    "it collects logs": lambda: of(
        Agent(name="fluent-bit", namespace="logging", paths=("/var/log",), state=IMAGE)
    ),
    "it measures nodes": lambda: of(
        Agent(
            name="node-exporter",
            namespace="monitoring",
            state=IMAGE,
            spec={"hostNetwork": True, "priorityClassName": "system-node-critical"},
        )
    ),
    "it observes a storage of VMs": lambda: of(
        Agent(name="csi-rbdplugin", namespace="rook-ceph", paths=(REGISTRY,), new=NODES),
        Agent(name="rook-discover", namespace="rook-ceph", spec=privileged(), state=IMAGE),
    ),
    "no VM runs on its node, or comes there": lambda: _without_vms(of(_cilium(state=IMAGE)), "n1"),
    "a Deployment of which one pod serves": _replaced_deployment,
    "its pod was refused once, and is there now": lambda: _uncreated(
        "etcdserver: request timed out", on=NODES
    ),
}
