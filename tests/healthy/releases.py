"""KubeVirt 1.3 to 1.9 as upstream deploys it, on three control-plane nodes and three workers."""

from .case import Healthy, all_yes
from .machines import claim, kubevirt, machine, storage_class
from .parts import namespaces, node, snapshot

MASTERS = ("cp1", "cp2", "cp3")
WORKERS = ("w1", "w2", "w3")
TAINT = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]


def release(number: tuple[int, int]) -> Healthy:
    items = namespaces("vms", "kubevirt") + storage_class("block", "rook-ceph.rbd.csi.ceph.com")
    # virt-handler does not tolerate the control plane's taint: these nodes have none of its labels.
    items += [node(name, None, roles=("control-plane",), taints=TAINT) for name in MASTERS]
    items += [node(name, number, cpu_manager=True) for name in WORKERS]
    items += kubevirt(number, MASTERS, WORKERS)
    pinned = {
        "cpu": {
            "cores": 2,
            "sockets": 1,
            "threads": 1,
            "model": "host-model",
            "dedicatedCpuPlacement": True,
        }
    }
    key = "kubevirt.io/cpumanager" if number >= (1, 8) else "cpumanager"
    items += machine("web", "w1", number, strategy="LiveMigrate", disks=["web"]) + claim("web")
    items += machine(
        "pinned",
        "w2",
        number,
        strategy="LiveMigrate",
        domain=pinned,
        selector={key: "true"},
        requests={"cpu": "2"},
        disks=["pinned"],
    )
    items += claim("pinned")
    named = {"cpu": {"cores": 2, "sockets": 1, "threads": 1, "model": "Haswell"}}
    chosen = {"cpu-model.node.kubevirt.io/Haswell": "true"}
    items += machine(
        "haswell",
        "w3",
        number,
        strategy="LiveMigrateIfPossible",
        domain=named,
        selector=chosen,
        disks=["haswell"],
    ) + claim("haswell")
    source = (
        "kubevirt/kubevirt:pkg/virt-operator/resource/generate/components/"
        "deployments.go#NewPodDisruptionBudgetForDeployment"
    )
    labels = "pkg/virt-controller/services/nodeselectorrenderer.go#Render"
    outcomes = dict.fromkeys(("web", "pinned", "haswell"), "migrates")
    nodes = all_yes(MASTERS + WORKERS)
    return Healthy(
        f"kubevirt-{number[0]}.{number[1]}", f"{source}; {labels}", snapshot(items), nodes, outcomes
    )


def releases() -> list[Healthy]:
    return [release((1, minor)) for minor in range(3, 10)]
