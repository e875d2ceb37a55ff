"""Kinds of virtual machines that are healthy, and moments that pass by themselves."""

import copy

from .case import COVERED, NEVER_UPDATED, NO_CHECK, UNKNOWN, Healthy, all_yes
from .clusters import plain
from .machines import HOST_DEVICE, NON_SHARED, claim, machine, storage_class
from .motion import migrating
from .parts import (
    Object,
    ago,
    conditions,
    deployment,
    namespaces,
    obj,
    owner,
    pod,
    service,
    snapshot,
    webhook,
)
from .releases import MASTERS, WORKERS

POD_NETWORK = {
    "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
    "networks": [{"name": "default", "pod": {}}],
}
NODES = all_yes(MASTERS + WORKERS)
RWO = ("ReadWriteOnce",)


def not_shared(name: str) -> Object:
    return NON_SHARED | {"message": NON_SHARED["message"].format(name)}


def volumes_and_state() -> Healthy:
    items = plain((1, 8)) + storage_class("fs", "rook-ceph.cephfs.csi.ceph.com")
    efi = {
        "firmware": {"bootloader": {"efi": {"persistent": True, "secureBoot": True}}},
        "features": {"smm": {"enabled": True}},
    }
    tpm = {"devices": {"tpm": {"persistent": True}}}
    items += (
        machine("hot", "w1", (1, 8), strategy="LiveMigrate", disks=["hot"], hotplugged=["data"])
        + claim("hot")
        + claim("data")
    )
    for name, place, modes in (
        ("shared-state", "w2", ("ReadWriteMany",)),
        ("own-state", "w3", RWO),
    ):
        state = {
            "volumeStatus": [
                {"name": name, "target": "vda"},
                {
                    "name": "backend",
                    "persistentVolumeClaimInfo": {"claimName": f"persistent-state-for-{name}"},
                },
            ]
        }
        items += machine(
            name,
            place,
            (1, 8),
            strategy="LiveMigrate",
            disks=[name],
            domain=efi | tpm,
            status=state,
        ) + claim(name)
        items += claim(
            f"persistent-state-for-{name}",
            modes=modes,
            volume_mode="Filesystem",
            storage_class="fs",
            size="10Mi",
        )
    source = (
        "kubevirt/kubevirt:pkg/storage/backend-storage/"
        "backend-storage.go#CreateIfNeededAndUpdateVolumeStatus (a second claim for RWO)"
    )
    return Healthy(
        "persistent-state",
        source,
        snapshot(items),
        NODES,
        dict.fromkeys(("hot", "shared-state", "own-state"), "migrates"),
    )


def devices() -> Healthy:
    items = plain(
        (1, 7), extra={"openshift.io/sriov": "4", "nvidia.com/A100": "1", "hugepages-1Gi": "32Gi"}
    )
    note = {"annotations": {"k8s.v1.cni.cncf.io/resourceName": "openshift.io/sriov"}}
    network = obj(
        "NetworkAttachmentDefinition", "k8s.cni.cncf.io/v1", "sriov", "vms", metadata=note
    )
    items.append(network | {"spec": {"config": '{"type":"sriov"}'}})
    fast: Object = {"strategy": "LiveMigrate", "requests": {"openshift.io/sriov": "1"}}
    fast["domain"] = {"devices": {"interfaces": [{"name": "fast", "sriov": {}}]}}
    fast["spec"] = {"networks": [{"name": "fast", "multus": {"networkName": "vms/sriov"}}]}
    card: Object = {
        "strategy": "None",
        "requests": {"nvidia.com/A100": "1"},
        "migratable": HOST_DEVICE,
    }
    card["domain"] = {"devices": {"gpus": [{"name": "gpu", "deviceName": "nvidia.com/A100"}]}}
    huge: Object = {
        "strategy": "LiveMigrate",
        "selector": {"cpumanager": "true"},
        "memory": "8Gi",
        "cores": 4,
    }
    huge["domain"] = {
        "memory": {"guest": "8Gi", "hugepages": {"pageSize": "1Gi"}},
        "cpu": {"cores": 4, "sockets": 1, "threads": 1, "dedicatedCpuPlacement": True},
    }
    huge["requests"] = {"hugepages-1Gi": "8Gi", "memory": "400Mi", "cpu": "4"}
    for (name, options), place in zip(
        {"sriov": fast, "gpu": card, "huge": huge}.items(), WORKERS, strict=True
    ):
        items += machine(name, place, (1, 7), disks=[name], **options) + claim(name)
    source = "kubevirt/kubevirt:pkg/virt-handler/vm.go#calculateLiveMigrationCondition"
    outcomes = {"sriov": "migrates", "gpu": "restarts elsewhere", "huge": "migrates"}
    return Healthy("devices", source, snapshot(items), NODES, outcomes, findings=NO_CHECK)


def shut_down() -> Healthy:
    items = plain() + storage_class("topolvm", "topolvm.io")
    items += machine(
        "plain", "w1", strategy="None", disks=["plain"], migratable=not_shared("plain")
    ) + claim("plain", modes=RWO)
    items += machine(
        "ifpossible",
        "w2",
        strategy="LiveMigrateIfPossible",
        disks=["ifpossible"],
        migratable=not_shared("ifpossible"),
    )
    items += claim("ifpossible", modes=RWO, volume_mode="Filesystem")
    items += machine(
        "local", "w3", strategy="None", disks=["local"], migratable=not_shared("local")
    )
    items += claim(
        "local",
        modes=RWO,
        storage_class="topolvm",
        driver="topolvm.io",
        affinity={"kubernetes.io/hostname": "w3"},
    )
    outcomes = {
        "plain": "restarts elsewhere",
        "ifpossible": "restarts elsewhere",
        "local": "waits for its node",
    }
    source = (
        "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/"
        "pod-eviction-admitter.go#admitLauncherPod"
    )
    return Healthy(
        "shut-down-and-back",
        source,
        snapshot(items),
        NODES,
        outcomes,
        findings=NO_CHECK | NEVER_UPDATED,
    )


def pool() -> list[Object]:
    """Return a pool with two VMs."""
    spec = {
        "runStrategy": "Always",
        "template": {"spec": POD_NETWORK | {"evictionStrategy": "LiveMigrate"}},
    }
    template = {"metadata": {"labels": {"pool": "web"}}, "spec": spec}
    body = {
        "replicas": 2,
        "selector": {"matchLabels": {"pool": "web"}},
        "virtualMachineTemplate": template,
    }
    status = {"replicas": 2, "readyReplicas": 2}
    group = obj(
        "VirtualMachinePool", "pool.kubevirt.io/v1beta1", "web", "vms", spec=body, status=status
    )
    found = [group]
    for name, place in zip(("web-0", "web-1"), WORKERS, strict=False):
        options: Object = {
            "strategy": "LiveMigrate",
            "disks": [name],
            "labels": {"pool": "web"},
            "of": group,
        }
        found += machine(name, place, (1, 7), **options) + claim(name)
    return found


def typed() -> list[Object]:
    """Return a VM whose size comes from an instance type."""
    version = "instancetype.kubevirt.io/v1beta1"
    size = {"cpu": {"guest": 2}, "memory": {"guest": "4Gi"}}
    disks = {"devices": {"preferredDiskBus": "virtio"}}
    chosen = {
        "instancetype": {"kind": "VirtualMachineClusterInstancetype", "name": "u1.medium"},
        "preference": {"kind": "VirtualMachineClusterPreference", "name": "linux"},
    }
    kept = machine("typed", "w3", (1, 7), strategy="LiveMigrate", disks=["typed"], vm_spec=chosen)
    template = copy.deepcopy(kept[0]["spec"]["template"])
    for field in ("cpu", "memory", "resources"):
        del template["spec"]["domain"][field]
    kept[0]["spec"]["template"] = template
    types = obj("VirtualMachineClusterInstancetype", version, "u1.medium", spec=size)
    return [
        types,
        obj("VirtualMachineClusterPreference", version, "linux", spec=disks),
        *kept,
        *claim("typed"),
    ]


def groups() -> Healthy:
    items = plain((1, 7)) + pool() + typed()
    paused = {
        "type": "Paused",
        "status": "True",
        "reason": "PausedByUser",
        "lastTransitionTime": ago(hours=2),
    }
    options: Object = {"strategy": "LiveMigrate", "disks": ["paused"], "extra_conditions": [paused]}
    items += machine("paused", "w3", (1, 7), **options) + claim("paused")
    source = (
        "kubevirt/kubevirt:pkg/virt-handler/vm.go#calculateLiveMigrationCondition (a paused guest "
        "migrates); pkg/virt-controller/watch/pool"
    )
    outcomes = dict.fromkeys(("web-0", "web-1", "typed", "paused"), "migrates")
    return Healthy("pools-and-types", source, snapshot(items), NODES, outcomes)


def begun(name: str, on: str, phase: str, **fields: object) -> list[Object]:
    """Return a VM that started 20 seconds ago. KubeVirt writes its node from Scheduled on."""
    vm, vmi, launcher = machine(name, on, disks=[name], migratable=None, age=0, **fields)
    status = vmi["status"]
    status |= {"phase": phase, "conditions": conditions(Ready=False)}
    known = {"Pending", "Scheduling", phase}
    status["phaseTransitionTimestamps"] = [
        each for each in status["phaseTransitionTimestamps"] if each["phase"] in known
    ]
    vm["status"] = {
        "created": True,
        "printableStatus": "Starting",
        "conditions": conditions(Ready=False),
    }
    launcher["metadata"]["creationTimestamp"] = ago(seconds=58)
    if phase == "Scheduling":
        del status["nodeName"]
        launcher["status"] |= {"phase": "Pending", "conditions": conditions(Ready=False)}
    return [vm, vmi, launcher]


def starting() -> Healthy:
    items = plain()
    items += begun("fresh", "w1", "Scheduled", strategy="LiveMigrateIfPossible")
    items += begun("soon", "w1", "Scheduling", strategy="LiveMigrate")
    items += begun("next", "w2", "Scheduled", strategy="LiveMigrate")
    items += machine("web", "w2", strategy="LiveMigrate", disks=["web"])
    items += [each for name in ("fresh", "soon", "next", "web") for each in claim(name)]
    source = (
        "kubevirt/kubevirt:…/pod-eviction-admitter.go#admitLauncherPod (LiveMigrateIfPossible "
        "passes until the condition is True, LiveMigrate is refused until then)"
    )
    outcomes = {"fresh": "restarts elsewhere", "soon": "migrates", "next": "migrates"}
    return Healthy("just-starting", source, snapshot(items), NODES, outcomes | {"web": "migrates"})


def importing() -> Healthy:
    items = plain() + data_importer("w2") + namespaces("cdi")
    image = {"source": {"http": {"url": "https://images.example.com/disk.qcow2"}}}
    status = {
        "phase": "ImportInProgress",
        "conditions": conditions(Bound=True, Running=True, Ready=False),
    }
    top = obj("DataVolume", "cdi.kubevirt.io/v1beta1", "new", "vms", spec=image, status=status)
    body: Object = {**POD_NETWORK, "evictionStrategy": "LiveMigrate"}
    body["volumes"] = [{"name": "new", "dataVolume": {"name": "new"}}]
    waiting = {"printableStatus": "Provisioning", "conditions": conditions(Ready=False)}
    spec = {"runStrategy": "Always", "template": {"spec": body}}
    items += [top, obj("VirtualMachine", "kubevirt.io/v1", "new", "vms", spec=spec, status=waiting)]
    disk = claim("new")
    disk[0]["metadata"]["ownerReferences"] = owner(top)
    labels = {"app": "containerized-data-importer", "cdi.kubevirt.io": "importer"}
    items += [
        *disk,
        pod("importer-prime-1", "vms", "w1", labels, disk[0], spec={"restartPolicy": "OnFailure"}),
    ]
    items += machine("web", "w2", strategy="LiveMigrate", disks=["web"]) + claim("web")
    source = (
        "kubevirt/containerized-data-importer:pkg/operator/controller/callbacks.go "
        "(applyStorageProfile)"
    )
    return Healthy("cdi-import", source, snapshot(items), NODES, {"web": "migrates"})


def data_importer(place: str) -> list[Object]:
    """Return CDI on one node, with the webhook that changes claims with a label of its own
    alone.
    """
    found = [obj("CDI", "cdi.kubevirt.io/v1beta1", "cdi", spec={}, status={"phase": "Deployed"})]
    for name in ("cdi-apiserver", "cdi-deployment", "cdi-uploadproxy", "cdi-operator"):
        found += deployment(name, "cdi", [place], {"cdi.kubevirt.io": name})
    found += service("cdi-api", "cdi", {"cdi.kubevirt.io": "cdi-apiserver"}, [place])
    rules = {
        "datavolume-validate.cdi.kubevirt.io": (
            "cdi.kubevirt.io",
            ["datavolumes"],
            ["CREATE", "UPDATE"],
        )
    }
    found.append(webhook("Validating", "cdi-api-datavolume-validate", ("cdi", "cdi-api"), rules))
    profile = {"objectSelector": {"matchLabels": {"cdi.kubevirt.io/applyStorageProfile": "true"}}}
    render = {"pvc-mutate.cdi.kubevirt.io": ("", ["persistentvolumeclaims"], ["CREATE"])}
    return [
        *found,
        webhook("Mutating", "cdi-api-pvc-mutate", ("cdi", "cdi-api"), render, **profile),
    ]


def one_migration() -> Healthy:
    items = plain((1, 9))
    for name, place in (("web", "w1"), ("db", "w2")):
        items += machine(name, place, (1, 9), strategy="LiveMigrate", disks=[name]) + claim(name)
    items = migrating(items, "web", "w1", "w3", evacuation=False)
    source = (
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#processMigrationPhase"
    )
    return Healthy(
        "one-migration", source, snapshot(items), NODES, {"web": "migrates", "db": "migrates"}
    )


def read_only_role() -> Healthy:
    items = [each for each in plain() if each["kind"] in ("Node", "Namespace")]
    items += [
        each
        for each in machine("web", "w1", strategy="LiveMigrate", disks=["web"])
        if each["kind"] != "Pod"
    ]
    kinds = [
        "nodes",
        "namespaces",
        "virtualmachines.kubevirt.io",
        "virtualmachineinstances.kubevirt.io",
    ]
    hidden = [
        "pods",
        "poddisruptionbudgets.policy",
        "kubevirts.kubevirt.io",
        "persistentvolumeclaims",
        "virtualmachineinstancemigrations.kubevirt.io",
    ]
    role = snapshot(items, complete=kinds, unreadable=hidden)
    nodes = dict.fromkeys(MASTERS + WORKERS, UNKNOWN)
    return Healthy(
        "read-only-role",
        "contract: what was not read is unseen, not absent",
        role,
        nodes,
        {"web": "unknown"},
        upgrade=UNKNOWN,
        findings=COVERED,
    )


def guests() -> list[Healthy]:
    return [
        volumes_and_state(),
        devices(),
        shut_down(),
        groups(),
        starting(),
        importing(),
        one_migration(),
        read_only_role(),
    ]
