"""Migrations that fail again and again, or never end."""

from tests.healthy.clusters import plain
from tests.healthy.machines import claim
from tests.healthy.parts import Object, ago, conditions

from .machines import (
    NO,
    NOT_YES,
    Incident,
    cordoned,
    draining,
    failed,
    find,
    guest,
    marked,
    migration,
    target_pod,
)

RELEASE = (1, 8)
KUBEVIRT = "https://github.com/kubevirt/kubevirt"
HARVESTER = "https://github.com/harvester/harvester"


def storage_migration() -> Incident:
    """A volume is copied to another storage class; 150 s a GiB are too few for 80 GB."""
    release = (1, 5)
    items = (
        plain(release)
        + guest("db", "w1", release, disks=["new"])
        + claim("new", size="80Gi")
        + claim("old")
    )
    vmi = find(items, "VirtualMachineInstance", "db")
    ends = [{"claimName": each, "volumeMode": "Block"} for each in ("old", "new")]
    moved = {"volumeName": "new", "sourcePVCInfo": ends[0], "destinationPVCInfo": ends[1]}
    for end in ends:
        end["capacity"] = end["requests"] = {"storage": "80Gi"}
    vmi["status"]["migratedVolumes"] = [moved]
    vmi["status"]["conditions"] += conditions(VolumesChange=True)
    cordoned(items, minutes=10)
    failed(items, "db", "Live migration has been aborted", ("w2", "w3"), lasted=13_800)
    for each in items:
        if each["kind"] == "VirtualMachineInstanceMigration":
            each["metadata"]["annotations"] = {"kubevirt.io/workloadUpdateMigration": ""}
            each["status"]["migrationState"] |= {"abortStatus": "Succeeded"}
            each["status"]["migrationState"]["migrationConfiguration"] = limits(150)
    facts = (r"completionTimeoutPerGiB",)
    return Incident("storage-migration", f"{KUBEVIRT}/issues/14367", items, NOT_YES, facts)


def limits(seconds: int) -> Object:
    return {
        "completionTimeoutPerGiB": seconds,
        "progressTimeout": 150,
        "allowPostCopy": False,
        "allowAutoConverge": False,
        "bandwidthPerMigration": "0",
    }


def busy_memory() -> Incident:
    release = (1, 6)
    items = draining(release, memory="32Gi")
    kubevirt = find(items, "KubeVirt", "kubevirt")
    kubevirt["spec"]["configuration"]["migrations"] = {"completionTimeoutPerGiB": 800}
    state = {"startTimestamp": ago(minutes=65), "mode": "PreCopy", "targetNode": "w2"}
    state |= {"targetPod": "virt-launcher-web-tgt9z", "migrationConfiguration": limits(800)}
    times = {"Pending": 3940, "Scheduling": 3935, "Scheduled": 3920, "PreparingTarget": 3915}
    move = migration("web", times | {"TargetReady": 3905, "Running": 3900}, state=state)
    items.append(move)
    target_pod(items, "web", "w2", move, 3935, ready=True)
    find(items, "VirtualMachineInstance", "web")["status"]["migrationState"] = move["status"][
        "migrationState"
    ]
    facts = (r"65 min|1 h 5", r"cancel", r"post-copy|auto-converge|bandwidth")
    return Incident("busy-memory", f"{KUBEVIRT}/issues/3504", items, NOT_YES, facts)


def hyper_threads() -> Incident:
    items = draining(RELEASE, cores=2)
    find(items, "VirtualMachineInstance", "web")["metadata"]["labels"][
        "kubevirt.io/outdatedLauncherImage"
    ] = ""
    text = (
        "Live migration failed error encountered during MigrateToURI3 libvirt api call: "
        "virError(Code=9, Domain=31, Message='operation failed: guest CPU doesn't match "
        "specification: extra features: ht')"
    )
    failed(items, "web", text, ("w2", "w3"))
    return Incident(
        "extra-feature", f"{HARVESTER}/issues/11615", items, NO, (r"\bht\b", r"[Rr]estart")
    )


def libvirt_versions() -> Incident:
    items = draining((1, 5))
    text = (
        "Live migration failed error encountered during MigrateToURI3 libvirt api call: "
        "virError(Code=74, Domain=0, Message='argument unsupported: parameter "
        "'migrate_disks_detect_zeroes' not supported')"
    )
    failed(items, "web", text, ("w2", "w3", "w2"), lasted=2)
    return Incident(
        "libvirt-parameter",
        f"{HARVESTER}/issues/8471",
        items,
        NO,
        (r"migrate_disks_detect_zeroes",),
    )


def open_migration() -> Incident:
    """virt-controller cannot hand over the claim of the vTPM state:
    the migration stays Running and holds the place.
    """
    items = draining(RELEASE)
    find(items, "KubeVirt", "kubevirt")["spec"]["configuration"]["migrations"] = {
        "parallelOutboundMigrationsPerNode": 1
    }
    options: Object = {"domain": {"devices": {"tpm": {"persistent": True}}}}
    items += guest("db", "w2", RELEASE, **options)
    items += claim(
        "persistent-state-for-db", modes=("ReadWriteOnce",), volume_mode="Filesystem", size="10Mi"
    )
    state = {
        "startTimestamp": ago(hours=3, minutes=2),
        "endTimestamp": ago(hours=3),
        "completed": True,
    }
    state |= {"targetNode": "w2", "mode": "PreCopy", "migrationConfiguration": limits(150)}
    times = {
        "Pending": 10_960,
        "Scheduling": 10_950,
        "Scheduled": 10_940,
        "PreparingTarget": 10_935,
    }
    move = migration("db", times | {"TargetReady": 10_925, "Running": 10_920}, state=state)
    items += [move, migration("web", {"Pending": 590})]
    find(items, "VirtualMachineInstance", "db")["status"]["migrationState"] = move["status"][
        "migrationState"
    ]
    facts = (r"\bdb\b", r"stays open|not ended|still open|never ends|holds")
    return Incident("open-migration", f"{KUBEVIRT}/issues/17203", items, NOT_YES, facts)


def same_node() -> Incident:
    """Another scheduler ignores the anti-affinity of the target pod and chooses the source node."""
    items = plain(RELEASE) + guest("web", "w1", RELEASE, spec={"schedulerName": "batch"})
    find(items, "Pod", "virt-launcher-web-k2x7q")["spec"]["schedulerName"] = "batch"
    cordoned(items, minutes=30)
    marked(items, "web", minutes=30)
    text = "Migration failed because target pod shutdown during migration"
    failed(items, "web", text, ("w1", "w1", "w1"), lasted=310)
    return Incident(
        "same-node",
        f"{KUBEVIRT}/issues/18946",
        items,
        NOT_YES,
        (r"scheduler|same node|source node|own node",),
    )


def incidents() -> list[Incident]:
    return [
        storage_migration(),
        busy_memory(),
        hyper_threads(),
        libvirt_versions(),
        open_migration(),
        same_node(),
    ]
