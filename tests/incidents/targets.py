"""Reports about VMs whose next migration has no target, or repeats what went wrong before."""

import copy

from tests.healthy.clusters import plain
from tests.healthy.parts import ago, conditions, obj

from .machines import (
    NO,
    NOT_YES,
    YES,
    Incident,
    cordoned,
    draining,
    failed,
    find,
    guest,
    launcher_of,
    marked,
    migration,
)

HARVESTER = "https://github.com/harvester/harvester"
KUBEVIRT = "https://github.com/kubevirt/kubevirt"


def evacuation_after_uncordon() -> Incident:
    """The drain was given up and the node uncordoned, but the VM is still asked to leave."""
    release = (1, 3)
    items = plain(release) + guest("web", "w1", release)
    marked(items, "web", hours=3)
    items.append(migration("web", {"Pending": 200}))
    facts = (r"evacuationNodeName|asked to leave|eviction", r"w1")
    return Incident(
        "evacuation-after-uncordon", f"{KUBEVIRT}/issues/9585", items, YES, facts, ("scan",)
    )


def anti_affinity_everywhere() -> Incident:
    """Every other node runs a VM of the same application, and the rule is required."""
    release = (1, 3)
    term = {
        "labelSelector": {"matchLabels": {"app": "db"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    rule = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }
    items = plain(release)
    for index in (1, 2, 3):
        items += guest(f"db{index}", f"w{index}", release, labels={"app": "db"}, spec=rule)
        launcher_of(items, f"db{index}")["spec"] |= copy.deepcopy(rule)
    return Incident(
        "anti-affinity", f"{KUBEVIRT}/issues/7780", items, NO, (r"anti-affinity", r"vms/db1")
    )


def newest_processor() -> Incident:
    """The node of the VM has a newer processor than the others."""
    release = (1, 2)
    items = plain(release) + guest("upgrade-repo", "w1", release)
    labels = find(items, "Node", "w1")["metadata"]["labels"]
    for prefix in ("host-model-cpu", "cpu-model-migration"):
        del labels[f"{prefix}.node.kubevirt.io/Skylake-Server"]
        labels[f"{prefix}.node.kubevirt.io/Icelake-Server"] = "true"
    facts = (r"Icelake-Server", r"vms/upgrade-repo")
    return Incident("newest-processor", f"{HARVESTER}/issues/7096", items, NO, facts)


def no_free_function() -> Incident:
    """All virtual functions of the other nodes are in use."""
    release = (1, 7)
    resource = "intel.com/sriov_net"
    items = plain(release, extra={resource: "1"})
    for index in (1, 2, 3):
        items += guest(f"nf{index}", f"w{index}", release, requests={resource: "1"})
    return Incident(
        "no-free-function",
        f"{KUBEVIRT}/issues/17222",
        items,
        NO,
        (r"intel\.com/sriov_net", r"vms/nf1"),
    )


def features_that_no_node_has() -> Incident:
    """A migration gave the VM features of its former node;
    since a microcode update no node has them.
    """
    release = (1, 5)
    items = plain(release) + guest("web", "w1", release)
    label = "cpu-feature.node.kubevirt.io/hle"
    launcher_of(items, "web")["spec"]["nodeSelector"] |= {
        label: "true",
        "cpu-model-migration.node.kubevirt.io/Skylake-Server": "true",
    }
    facts = (r"hle", r"[Rr]estart", r"vms/web")
    return Incident("features-of-a-former-node", f"{KUBEVIRT}/issues/15623", items, NO, facts)


def quota_scaled_down() -> Incident:
    """Two VMs leave a node; the namespace's quota has been scaled back after the first."""
    items = draining((1, 3), "ns1-web")
    move = migration("ns1-web", {"Pending": 400})
    rejected = {
        "type": "migrationRejectedByResourceQuota",
        "status": "True",
        "lastTransitionTime": ago(minutes=6),
    }
    move["status"]["conditions"] = [
        rejected | {"reason": "ResourceQuotaExceeded", "message": "exceeded quota"}
    ]
    limits = {"requests.memory": "54242646Ki"}
    used = {"requests.memory": "54000000Ki"}
    items += [
        move,
        obj("ResourceQuota", "v1", "default-4tmmk", "vms", spec={"hard": limits}, status={}),
    ]
    items[-1]["status"] = {"hard": limits, "used": used}
    return Incident(
        "quota-scaled-down",
        f"{HARVESTER}/issues/7161",
        items,
        NO,
        (r"default-4tmmk", r"quota", r"memory"),
    )


def two_running_pods() -> Incident:
    """virt-handler was replaced while the VM moved: the migration failed,
    and both pods still run.
    """
    release = (1, 8)
    items = plain(release) + guest("web", "w1", release)
    other = copy.deepcopy(launcher_of(items, "web"))
    other["metadata"] |= {
        "name": "virt-launcher-web-orph1",
        "uid": "uid-orph",
        "creationTimestamp": ago(minutes=30),
    }
    other["spec"]["nodeName"] = "w2"
    other["status"] = {"phase": "Running", "conditions": conditions(Ready=True, PodScheduled=True)}
    items.append(other)
    find(items, "VirtualMachineInstance", "web")["status"]["activePods"]["uid-orph"] = "w2"
    state = {
        "targetNode": "w2",
        "targetPod": "virt-launcher-web-orph1",
        "completed": True,
        "failed": True,
    }
    state |= {"startTimestamp": ago(minutes=29), "endTimestamp": ago(minutes=27)}
    items.append(
        migration("web", {"Running": 1740, "Failed": 1620}, name="update", state=state, notes={})
    )
    find(items, "VirtualMachineInstance", "web")["status"]["migrationState"] = items[-1]["status"][
        "migrationState"
    ]
    cordoned(items, minutes=5)
    marked(items, "web", minutes=5)
    items.append(migration("web", {"Pending": 290}))
    facts = (r"virt-launcher-web-orph1|two|2 pods", r"vms/web")
    return Incident("two-running-pods", f"{KUBEVIRT}/issues/18670", items, NOT_YES, facts)


def smaller_destination() -> Incident:
    """Volume migration: the new claim is smaller than the disk,
    so each migration of the VM fails.
    """
    items = draining((1, 8))
    text = (
        "Live migration failed error encountered during MigrateToURI3 libvirt api call: Volume "
        "migration cannot be performed because the destination volume is smaller than the source "
        "volume: virError(Code=1, Domain=10)"
    )
    failed(items, "web", text, ("w2", "w3", "w2"), lasted=3)
    claims = [
        {
            "volumeName": "web",
            "sourcePVCInfo": {"claimName": "web"},
            "destinationPVCInfo": {"claimName": "new"},
        }
    ]
    find(items, "VirtualMachineInstance", "web")["status"]["migratedVolumes"] = claims
    facts = (
        r"destination volume is smaller than the source volume",
        r"destination claims of at least",
        r"vms/web",
    )
    return Incident("smaller-destination", f"{KUBEVIRT}/issues/17791", items, NOT_YES, facts)


def manual_recovery() -> Incident:
    """A volume migration was under way when the VM was shut down:
    KubeVirt refuses to start the VM.
    """
    release = (1, 6)
    items = plain(release) + guest("web", "w1", release)
    gone = [
        each
        for each in items
        if each["kind"] == "VirtualMachineInstance" or each is launcher_of(items, "web")
    ]
    items = [each for each in items if each not in gone]
    text = (
        "VM recovery is required: the volume set contains destination volumes of an incomplete "
        "volume migration"
    )
    required = {
        "type": "ManualRecoveryRequired",
        "status": "True",
        "reason": "VolumesUpdateError",
        "message": text,
    }
    vm = find(items, "VirtualMachine", "web")
    vm["status"] = {"created": False, "ready": False, "printableStatus": "Stopped"}
    vm["status"]["conditions"] = [
        *conditions(Ready=False),
        required | {"lastTransitionTime": ago(hours=2)},
    ]
    facts = (r"ManualRecoveryRequired|recovery", r"web")
    source = "https://github.com/kubevirt/user-guide/pull/840"
    return Incident(
        "manual-recovery", source, items, YES, facts, ("explain", "vm/web", "-n", "vms")
    )


def tainted_targets() -> Incident:
    items = plain((1, 7)) + guest("vm01", "w1", (1, 7))
    for name in ("w2", "w3"):
        taint = {"key": "test", "value": "nomigrate", "effect": "NoSchedule"}
        find(items, "Node", name)["spec"]["taints"] = [taint]
    return Incident(
        "tainted-targets", f"{HARVESTER}/pull/11606", items, NO, (r"taint test", r"vms/vm01")
    )


def every_node_cordoned() -> Incident:
    """Maintenance was asked for on all nodes."""
    items = plain((1, 1)) + guest("web", "w1", (1, 1))
    for name in ("w1", "w2", "w3"):
        cordoned(items, name, hours=5)
    return Incident(
        "every-node-cordoned",
        f"{HARVESTER}/issues/5598",
        items,
        NO,
        (r"cordoned|unschedulable", r"web"),
    )


def cordon_without_the_drain_taint() -> Incident:
    """Healthy: only a taint moves VMs here; the node is cordoned,
    and a drain evicts them as ever.
    """
    items = plain((1, 6)) + guest("web")
    taint = {"nodeDrainTaintKey": "kubevirt.io/drain"}
    find(items, "KubeVirt", "kubevirt")["spec"]["configuration"]["migrations"] = taint
    cordoned(items, minutes=10)
    return Incident(
        "cordon-without-taint", f"{HARVESTER}/issues/9595", items, YES, (r"migrates  vms/web",)
    )


def features_that_others_have() -> Incident:
    """Healthy: the VM keeps the features of a former node, and another node has them too."""
    items = plain((1, 5)) + guest("web", "w1", (1, 5))
    kept = {
        "cpu-feature.node.kubevirt.io/avx2": "true",
        "cpu-model-migration.node.kubevirt.io/Skylake-Server": "true",
    }
    launcher_of(items, "web")["spec"]["nodeSelector"] |= kept
    return Incident(
        "features-others-have", f"{KUBEVIRT}/pull/5623", items, YES, (r"migrates  vms/web",)
    )


def incidents() -> list[Incident]:
    return [
        evacuation_after_uncordon(),
        anti_affinity_everywhere(),
        newest_processor(),
        no_free_function(),
        features_that_no_node_has(),
        quota_scaled_down(),
        two_running_pods(),
        smaller_destination(),
        manual_recovery(),
        tainted_targets(),
        every_node_cordoned(),
        cordon_without_the_drain_taint(),
        features_that_others_have(),
    ]
