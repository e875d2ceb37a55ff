"""Nodes that something cordoned or empties without an order of an administrator: by what, and whether it ends."""

from tests.healthy.clusters import plain
from tests.healthy.machines import NON_SHARED
from tests.healthy.parts import obj

from .machines import NO, YES, Incident, draining, event, guest, launcher_of, marked, migration

NVIDIA = "https://github.com/NVIDIA/gpu-operator"
SRIOV = "https://github.com/k8snetworkplumbingwg/sriov-network-operator"


def refused_since_the_cordon() -> Incident:
    """KubeVirt has known for two days that the VM cannot migrate; its eviction is refused since the node is drained."""
    items = draining((1, 6), disks=["web"], migratable=NON_SHARED | {"message": NON_SHARED["message"].format("web")})
    return Incident("refused-since", f"{SRIOV}/issues/306", items, NO, (r"state: refused since 11:50 UTC",))


def descheduler(*profiles: str) -> list[dict]:
    """Return a cluster whose descheduler has evicted both VMs of w1."""
    items = plain((1, 6)) + guest("web", "w1") + guest("db", "w1")
    for name in ("web", "db"):
        marked(items, name, minutes=1)
        items.append(migration(name, {"Pending": 50}))
        text = "pod eviction from w1 node by sigs.k8s.io/descheduler"
        evicted = event(launcher_of(items, name), "LowNodeUtilization", text, "sigs.k8s.io/descheduler", count=1)
        items.append(evicted | {"type": "Normal"})
    spec = {"mode": "Automatic", "deschedulingIntervalSeconds": 300, "profiles": list(profiles)}
    return [*items, obj("KubeDescheduler", "operator.openshift.io/v1", "cluster", "descheduler", spec=spec)]


def eviction_storm(*ask: str) -> Incident:
    facts = (
        r"(?s)\A(?!.*if it is to stay)(?!.*uncordoning)",
        r"descheduler.*\(LowNodeUtilization\)",
        r"does not stop by itself: it begins again every 300 s",
        r"kubectl patch kubedescheduler cluster -n descheduler .*devEnableEvictionsInBackground",
    )
    source = "https://github.com/kubevirt/monitoring/pull/266"
    return Incident("-".join(("eviction-storm", *ask)), source, descheduler("LongLifecycle"), YES, facts, ask)


def descheduler_in_the_background() -> Incident:
    """The profile for VMs evicts in the background: what it does is no storm."""
    facts = (r"(?s)\A(?!.*begins again)", r"evicted by a descheduler \(LowNodeUtilization\)")
    source = "https://github.com/openshift/runbooks/pull/360"
    return Incident("background", source, descheduler("KubeVirtRelieveAndMigrate"), YES, facts)


def incidents() -> list[Incident]:
    return [
        refused_since_the_cordon(),
        eviction_storm("drain", "w1"),
        eviction_storm("explain", "node/w1"),
        eviction_storm("explain", "vm/web"),
        descheduler_in_the_background(),
    ]
