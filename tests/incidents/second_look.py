"""More reports: devices, settings, strategies,
and configurations that were accused without a fault.
"""

from tests.healthy.clusters import plain
from tests.healthy.machines import claim, unmigratable
from tests.healthy.parts import Object, ago, conditions, node, obj

from .machines import (
    NO,
    NOT_YES,
    YES,
    Incident,
    draining,
    event,
    failed,
    find,
    guest,
    migration,
    target_pod,
)

KUBEVIRT = "https://github.com/kubevirt/kubevirt"
HCO = "https://github.com/kubevirt/hyperconverged-cluster-operator"


def restart_required() -> Incident:
    release = (1, 5)
    items = plain(release)
    state: Object = {"domain": {"devices": {"tpm": {"persistent": True}}}}
    items += guest("win", "w1", release, **state) + claim("win-new")
    items += claim(
        "persistent-state-for-win-x1",
        modes=("ReadWriteOnce",),
        volume_mode="Filesystem",
        size="10Mi",
    )
    vm = find(items, "VirtualMachine", "win")
    vm["spec"]["updateVolumesStrategy"] = "Migration"
    vm["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "win-new"
    text = (
        "cannot migrate the VM. The volume persistent-state-for-win-x1 is RWO and not included in "
        "the migration volumes"
    )
    waits = {
        "type": "RestartRequired",
        "status": "True",
        "message": text,
        "lastTransitionTime": ago(hours=1),
    }
    vm["status"]["conditions"].append(waits)
    ask = ("explain", "vm/win", "-n", "vms")
    facts = (
        r"[Rr]estart",
        r"persistent-state-for-win-x1' with its persistent TPM state is ReadWriteOnce, and not",
    )
    return Incident("restart-required", f"{KUBEVIRT}/issues/13582", items, YES, facts, ask)


def skipped_release() -> Incident:
    release = (1, 3)
    items = plain(release) + guest("web", "w1", release)
    ask = ("scan", "--target", "kubevirt=1.6")
    return Incident(
        "skipped-release", f"{KUBEVIRT}/issues/13783", items, YES, (r"1\.4|one minor|skip",), ask
    )


def external() -> Incident:
    release = (1, 6)
    items = plain(release) + guest("worker-1", "w1", release, strategy="External")
    source = "https://github.com/kubermatic/kubermatic/issues/14449"
    return Incident("external", source, items, NOT_YES, (r"External",))


def pod_network() -> Incident:
    items = draining((1, 8), hotplugged=["data"]) + claim("data")
    move = migration("web", {"Pending": 300})
    items.append(move)
    pod = target_pod(
        items,
        "web",
        "w2",
        move,
        290,
        ready=False,
        waiting={"waiting": {"reason": "ContainerCreating"}},
    )
    text = (
        'Failed to create pod sandbox: plugin type="kube-ovn" failed (add): ovs interface 1a2b_h '
        "is not ready after 30s"
    )
    items.append(event(pod, "FailedCreatePodSandBox", text, "kubelet"))
    source = "https://github.com/kubeovn/kube-ovn/issues/7416"
    return Incident("pod-network", source, items, NOT_YES, (r"not ready after 30s",))


def own_state() -> Incident:
    """The report was withdrawn: KubeVirt copies the state to a second claim."""
    release = (1, 8)
    efi = {"firmware": {"bootloader": {"efi": {"persistent": True, "secureBoot": True}}}}
    name = "persistent-state-for-win-8fd2k"
    status = {
        "volumeStatus": [
            {"name": "win", "target": "vda"},
            {
                "name": "persistent-state-for-win",
                "persistentVolumeClaimInfo": {"claimName": name, "accessModes": ["ReadWriteOnce"]},
            },
        ]
    }
    items = plain(release) + guest("win", "w1", release, domain=efi, status=status)
    items += claim(name, modes=("ReadWriteOnce",), volume_mode="Filesystem", size="10Mi")
    source = "https://github.com/cozystack/cozystack/pull/3154"
    return Incident("own-state", source, items, YES, (r"migrates  vms/win",))


def missing_bridge() -> Incident:
    release = (1, 6)
    resource = "bridge.network.kubevirt.io/br0"
    items = plain(release)
    find(items, "Node", "w1")["status"]["allocatable"][resource] = "1k"
    note = {"annotations": {"k8s.v1.cni.cncf.io/resourceName": resource}}
    spec = {"config": '{"name":"br0","type":"cnv-bridge","bridge":"br0"}'}
    items.append(
        obj(
            "NetworkAttachmentDefinition",
            "k8s.cni.cncf.io/v1",
            "br0",
            "vms",
            metadata=note,
            spec=spec,
        )
    )
    cards = [{"name": "default", "masquerade": {}}, {"name": "lan", "bridge": {}}]
    networks = [{"name": "default", "pod": {}}, {"name": "lan", "multus": {"networkName": "br0"}}]
    options: Object = {"domain": {"devices": {"interfaces": cards}}, "spec": {"networks": networks}}
    items += guest("master", "w1", release, requests={resource: "1"}, **options)
    return Incident(
        "missing-bridge", f"{HCO}/issues/2150", items, NO, (r"to do: make bridge br0 on w2 or w3",)
    )


def dedicated() -> Incident:
    release = (1, 7)
    items = plain(release)
    for name in ("w2", "w3"):
        find(items, "Node", name)["metadata"]["labels"]["cpumanager"] = "false"
    cpu = {
        "cores": 2,
        "sockets": 1,
        "threads": 1,
        "model": "host-model",
        "dedicatedCpuPlacement": True,
    }
    options: Object = {
        "domain": {"cpu": cpu},
        "selector": {"cpumanager": "true"},
        "requests": {"cpu": "2"},
    }
    items += guest("pinned", "w1", release, **options)
    return Incident(
        "dedicated", f"{KUBEVIRT}/pull/6821", items, NO, (r"CPU manager|cpumanager|dedicated",)
    )


def hot_plugged_processor() -> Incident:
    release = (1, 6)
    items = plain(release) + guest("vm101", "w1", release)
    find(items, "KubeVirt", "kubevirt")["spec"]["workloadUpdateStrategy"] = {}
    find(items, "VirtualMachine", "vm101")["spec"]["template"]["spec"]["domain"]["cpu"][
        "sockets"
    ] = 2
    vmi = find(items, "VirtualMachineInstance", "vm101")
    vmi["spec"]["domain"]["cpu"]["sockets"] = 2
    vmi["status"]["conditions"] += conditions(HotVCPUChange=True)
    facts = (r"hotplug", r"workloadUpdate")
    return Incident("hot-plug", f"{KUBEVIRT}/issues/10260", items, YES, facts, ("scan",))


def storage_flags() -> Incident:
    items = draining((1, 5))
    text = (
        "Live migration failed error encountered during MigrateToURI3 libvirt api call: "
        "virError(Code=84, Domain=10, Message='Operation not supported: use of "
        "'VIR_MIGRATE_PARAM_MIGRATE_DISKS' requires use of 'VIR_MIGRATE_NON_SHARED_DISK' or "
        "'VIR_MIGRATE_NON_SHARED_INC' flag')"
    )
    failed(items, "web", text, ("w2", "w3", "w2"), lasted=2)
    return Incident(
        "storage-flags",
        f"{KUBEVIRT}/issues/12811",
        items,
        NOT_YES,
        (r"VIR_MIGRATE_PARAM_MIGRATE_DISKS",),
    )


def no_devices() -> Incident:
    release = (1, 6)
    items = plain(release) + guest("web", "w1", release)
    for name in ("w2", "w3"):
        find(items, "Node", name)["status"]["allocatable"]["devices.kubevirt.io/kvm"] = "0"
    return Incident(
        "no-devices", f"{KUBEVIRT}/issues/4748", items, NO, (r"devices\.kubevirt\.io/kvm",)
    )


def dead_node() -> Incident:
    release = (1, 6)
    items = plain(release) + guest("web", "w1", release)
    items.remove(find(items, "Node", "w1"))
    items.append(node("w1", release, ready="Unknown", heartbeat=ago(minutes=20)))
    find(items, "Node", "w1")["metadata"]["annotations"]["kubevirt.io/heartbeat"] = ago(minutes=20)
    return Incident("dead-node", f"{KUBEVIRT}/issues/10610", items, NO, (r"does not report",))


def other_cluster() -> Incident:
    release = (1, 7)
    items = plain(release) + guest("web", "w1", release)
    send = {"sendTo": {"migrationID": "m1", "connectURL": "10.9.0.4:9185"}}
    items.append(migration("web", {"Pending": 7300, "WaitingForSync": 7200}, notes={}, spec=send))
    return Incident(
        "other-cluster",
        f"{KUBEVIRT}/issues/17317",
        items,
        NOT_YES,
        (r"between clusters|other cluster",),
    )


def hanging_abort() -> Incident:
    items = draining((1, 6))
    move = migration("web", {"Pending": 2600, "Scheduling": 2595})
    move["metadata"] |= {
        "deletionTimestamp": ago(minutes=40),
        "finalizers": ["kubevirt.io/migrationJobFinalize"],
    }
    items.append(move)
    pod = target_pod(items, "web", None, move, 2595, ready=False)
    text = "0/6 nodes are available: 3 Insufficient memory."
    pod["status"]["conditions"][-1] |= {"reason": "Unschedulable", "message": text}
    del pod["status"]["containerStatuses"]
    return Incident(
        "hanging-abort", f"{KUBEVIRT}/pull/7599", items, NOT_YES, (r"cancelled for 40 min",)
    )


def reservation() -> Incident:
    release = (1, 6)
    text = "VMI uses SCSI persitent reservation"
    refusal = unmigratable("PersistentReservationNotLiveMigratable", text)
    disks = [{"name": "web", "lun": {"bus": "scsi", "reservation": True}}]
    items = plain(release) + guest(
        "web", "w1", release, domain={"devices": {"disks": disks}}, migratable=refusal
    )
    return Incident("reservation", f"{KUBEVIRT}/pull/17505", items, NO, (r"[Rr]eservation",))


def narrow_bandwidth() -> Incident:
    """256 GiB at 32 MiB/s are 8192 s, and the limit is 275 GB × 20 s = 5500 s."""
    release = (1, 9)
    items = plain(release, memory="512Gi") + guest("big", "w1", release, memory="256Gi")
    limits = {
        "bandwidthPerMigration": "32Mi",
        "completionTimeoutPerGiB": 20,
        "allowPostCopy": False,
    }
    find(items, "KubeVirt", "kubevirt")["spec"]["configuration"]["migrations"] = limits
    return Incident("narrow-bandwidth", f"{HCO}/pull/2774", items, NOT_YES, (r"bandwidth",))


def incidents() -> list[Incident]:
    return [
        restart_required(),
        skipped_release(),
        external(),
        pod_network(),
        own_state(),
        missing_bridge(),
        dedicated(),
        hot_plugged_processor(),
        storage_flags(),
        no_devices(),
        dead_node(),
        other_cluster(),
        hanging_abort(),
        reservation(),
        narrow_bandwidth(),
    ]
