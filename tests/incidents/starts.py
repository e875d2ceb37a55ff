"""Reports about VMs that do not start: devices, disks that are not filled, pods that are refused,
guests that stay off.
"""

from typing import Any

from tests.healthy.clusters import plain
from tests.healthy.machines import claim, storage_class
from tests.healthy.parts import Object, ago, conditions, namespaces, obj, pod, service, webhook

from .machines import YES, Incident, find, guest, launcher_of

KUBEVIRT = "https://github.com/kubevirt/kubevirt"
GPU = "nvidia.com/GP104GL_QUADRO_P5000"


def starting(name: str, phase: str, **fields: Any) -> list[Object]:
    """Return a VM that has no node yet, an hour after its start;
    its pod exists from the phase Scheduling on.
    """
    items = guest(name, "w1", **fields)
    vm, vmi = find(items, "VirtualMachine", name), find(items, "VirtualMachineInstance", name)
    launcher = launcher_of(items, name)
    stamps = [{"phase": phase, "phaseTransitionTimestamp": ago(hours=1)}]
    vm["status"] |= {"ready": False, "printableStatus": "Starting"}
    vmi["metadata"]["creationTimestamp"] = ago(hours=1)
    vmi["status"] = {
        "phase": phase,
        "conditions": conditions(Ready=False),
        "phaseTransitionTimestamps": stamps,
    }
    if phase == "Pending":
        items.remove(launcher)
        return items
    del launcher["spec"]["nodeName"]
    launcher["metadata"]["creationTimestamp"] = ago(hours=1)
    unschedulable = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/6 nodes",
    }
    launcher["status"] = {"phase": "Pending", "conditions": [unschedulable]}
    vmi["status"]["activePods"] = {launcher["metadata"]["uid"]: ""}
    return items


def gpu(offered: str, *, external: bool) -> list[Object]:
    """Return a cluster whose w1 alone may run a VM with a GPU."""
    items = plain((1, 6))
    here = find(items, "Node", "w1")["status"]
    here["allocatable"] |= {GPU: offered}
    permitted = {
        "pciVendorSelector": "10DE:1BB0",
        "resourceName": GPU,
        "externalResourceProvider": external,
    }
    find(items, "KubeVirt", "kubevirt")["spec"]["configuration"]["permittedHostDevices"] = {
        "pciHostDevices": [permitted]
    }
    return items


def with_gpu() -> Object:
    device = {"hostDevices": [{"name": "gpu", "deviceName": GPU}]}
    where = {"nodeSelector": {"kubernetes.io/hostname": "w1"}}
    return {
        "domain": {"devices": device},
        "spec": where,
        "strategy": "LiveMigrateIfPossible",
        "requests": {GPU: "1"},
    }


def device_plugin_without_devices() -> Incident:
    """The node is back after a power loss, but its device plugin offers no device."""
    items = gpu("0", external=True) + starting("ub22gpu", "Scheduling", **with_gpu())
    items += [
        *namespaces("harvester-system"),
        pod("harvester-pcidevices-controller-8bd17", "harvester-system", "w1", {}, None),
    ]
    facts = (
        rf"w1 offers 0 of {GPU} \(its device plugin offers none\)",
        r"repair or restart the device plugin harvester-pcidevices-controller-8bd17 on w1",
        r"should then offer it, or, in Harvester, stop the VM, take the host device out of it",
        r", disable and enable its passthrough, and add it to the VM again",
        (
            r"no other node can run it \(node selector kubernetes.io/hostname=w1\), and waiting "
            r"does not help"
        ),
    )
    source = "https://github.com/harvester/harvester/issues/5957"
    return Incident(
        "device-plugin-without-devices", source, items, YES, facts, ("explain", "vm/ub22gpu")
    )


def policy_engine(items: list[Object], excluded: bool = False) -> None:
    """Add Kyverno without a ready endpoint; excluded: its webhooks leave its own namespace out."""
    gone = service("kyverno-svc", "kyverno", {"app": "kyverno"}, ["w1"])
    for endpoint in find(gone, "EndpointSlice", "kyverno-svc-abc")["endpoints"]:
        endpoint["conditions"] |= {"ready": False, "serving": False}
    names = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kyverno"]}
    more: Object = {"namespaceSelector": {"matchExpressions": [names]}} if excluded else {}
    target = ("kyverno", "kyverno-svc")
    for kind, word, operations in (
        ("Validating", "validate", ("CREATE", "DELETE")),
        ("Mutating", "mutate", ("CREATE",)),
    ):
        rules = {f"{word}.kyverno.svc-fail": ("", ["pods"], operations)}
        items.append(webhook(kind, f"kyverno-resource-{word}", target, rules, **more))
    items += [*namespaces("kyverno"), *gone]


def refused(items: list[Object], name: str, text: str) -> list[Object]:
    vmi = find(items, "VirtualMachineInstance", name)
    said = f"failed to create virtual machine pod: {text}"
    vmi["status"]["conditions"].append(
        {"type": "Synchronized", "status": "False", "reason": "FailedCreate", "message": said}
    )
    return items


CALLED = (
    'Internal error occurred: failed calling webhook "validate.kyverno.svc-fail": failed to call '
    'webhook: Post "https://kyverno-svc.kyverno.svc:443/validate/fail?timeout=10s": no endpoints '
    'available for service "kyverno-svc"'
)


def webhooks_that_refuse_their_own_pods() -> Incident:
    items = plain((1, 6)) + refused(starting("web", "Pending"), "web", CALLED)
    policy_engine(items)
    both = (
        "ValidatingWebhookConfiguration kyverno-resource-validate and MutatingWebhookConfiguration "
        "kyverno-resource-mutate"
    )
    facts = (
        (
            rf"virt-controller cannot create its pod: {both} refuse it, because Service "
            r"kyverno/kyverno-svc has no ready endpoint"
        ),
        r"The new pods of namespace kyverno are refused, too, so this does not end by itself",
        (
            r"exclude namespace kyverno by the namespaceSelector of these configurations; or "
            r"delete these configurations and let their owner make them again: "
        ),
        r"kubectl delete validatingwebhookconfiguration/kyverno-resource-validate "
        r"mutatingwebhookconfiguration/kyverno-resource-mutate",
    )
    source = "https://github.com/kyverno/kyverno/issues/16177"
    return Incident("webhooks-refuse-own-pods", source, items, YES, facts, ("explain", "vm/web"))


def importing(name: str, phase: str, message: str = "", reason: str = "") -> list[Object]:
    """Return a VM without a VMI whose disk CDI fills since half an hour,
    with the pod that does it.
    """
    items = [
        each
        for each in guest(name, "w1")
        if each["kind"] in ("VirtualMachine", "PersistentVolumeClaim", "PersistentVolume")
    ]
    vm = find(items, "VirtualMachine", name)
    vm["spec"]["template"]["spec"]["volumes"] = [{"name": name, "dataVolume": {"name": name}}]
    vm["status"] = {
        "created": False,
        "ready": False,
        "printableStatus": "Provisioning",
        "conditions": conditions(Ready=False),
    }
    status: Object = {
        "phase": phase,
        "claimName": name,
        "conditions": conditions(Bound=True, Ready=False),
    }
    status["conditions"].append(
        {"type": "Running", "status": "False", "reason": reason, "message": message}
    )
    source = {"source": {"http": {"url": "https://images.example.com/jammy.img"}}}
    disk = obj("DataVolume", "cdi.kubevirt.io/v1beta1", name, "vms", spec=source, status=status)
    disk["metadata"]["creationTimestamp"] = ago(minutes=28)
    importer = pod(f"importer-{name}", "vms", None, {"app": "containerized-data-importer"}, None)
    importer["spec"].pop("nodeName", None)
    importer["spec"]["volumes"] = [
        {"name": f"cdi-{index}", "persistentVolumeClaim": {"claimName": each}}
        for index, each in enumerate((name, f"{name}-scratch"))
    ]
    importer["status"] = {"phase": "Pending", "conditions": conditions(PodScheduled=False)}
    return [*items, disk, importer]


def pending(name: str, storage: str | None) -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
    if storage is not None:
        spec["storageClassName"] = storage
    return obj("PersistentVolumeClaim", "v1", name, "vms", spec=spec, status={"phase": "Pending"})


def scratch_space() -> Incident:
    items = plain((1, 6)) + storage_class("local-storage", "kubernetes.io/no-provisioner")
    items += importing(
        "enc01",
        "ImportScheduled",
        "scratch space required and none found",
        "Scratch space required",
    )
    items += [
        pending("enc01-scratch", "local-storage"),
        obj("CDI", "cdi.kubevirt.io/v1beta1", "cdi", spec={"config": {}}),
    ]
    facts = (
        (
            r"its disk enc01 is not filled \(ImportScheduled\): claim enc01-scratch is Pending: "
            r"class local-storage has no provisioner, and no free volume of 10Gi exists"
        ),
        r"set scratchSpaceStorageClass of CDI to a class that has a provisioner \(block\)",
        r'kubectl patch cdi cdi --type=merge -p .*"scratchSpaceStorageClass":"block"',
        r"create a PersistentVolume of 10Gi of class local-storage",
    )
    source = "https://github.com/kubevirt/containerized-data-importer/issues/3160"
    return Incident("scratch-space", source, items, YES, facts, ("explain", "vm/enc01"))


def guest_that_stays_off() -> Incident:
    items = plain((1, 6)) + guest("batch", "w2", strategy="None", run="RerunOnFailure")
    items.remove(launcher_of(items, "batch"))
    find(items, "VirtualMachine", "batch")["status"] |= {
        "printableStatus": "Stopped",
        "ready": False,
    }
    status = find(items, "VirtualMachineInstance", "batch")["status"]
    status["phase"] = "Succeeded"
    status["phaseTransitionTimestamps"].append(
        {"phase": "Succeeded", "phaseTransitionTimestamp": ago(minutes=45)}
    )
    facts = (
        (
            r"its guest shut down 45 min ago, by itself or by a drain of w2 \(its VMI is "
            r"Succeeded\), and RerunOnFailure does not start it again"
        ),
        r"start it; with runStrategy Always KubeVirt would do that: virtctl start batch -n vms",
    )
    return Incident(
        "guest-that-stays-off",
        f"{KUBEVIRT}/issues/9823",
        items,
        YES,
        facts,
        ("explain", "vm/batch"),
    )


DEDICATED: Object = {"cpu": {"dedicatedCpuPlacement": True}}


def ended_for_memory(
    limit: str = "9Gi", reason: str = "OOMKilled", domain: Object = DEDICATED
) -> list[Object]:
    """Return a VM whose pod was ended 95 minutes ago, and which its run strategy leaves off."""
    items = plain((1, 6)) + guest("db", "w1", run="Manual", domain=domain)
    vmi, launcher = find(items, "VirtualMachineInstance", "db"), launcher_of(items, "db")
    find(items, "VirtualMachine", "db")["status"] |= {"printableStatus": "Stopped", "ready": False}
    vmi["status"]["phase"] = "Failed"
    vmi["status"]["phaseTransitionTimestamps"].append(
        {"phase": "Failed", "phaseTransitionTimestamp": ago(minutes=95)}
    )
    compute = launcher["spec"]["containers"][0] | {"name": "compute"}
    compute["resources"]["limits"] = {"memory": limit} if limit else {}
    launcher["spec"]["containers"] = [compute]
    ended = {"exitCode": 137, "reason": reason, "finishedAt": ago(minutes=95)}
    launcher["status"] |= {
        "phase": "Failed",
        "containerStatuses": [{"name": "compute", "state": {"terminated": ended}}],
    }
    return items


def guest_ended_for_memory() -> Incident:
    facts = (
        (
            r"its VMI has been Failed for 95 min, because container compute of its pod was ended "
            r"for lack of memory \(OOMKilled, exit code 137\), at its own limit of 9Gi, which is "
            r"set because of its dedicated CPUs\. Manual does not start it again"
        ),
        r"raise additionalGuestMemoryOverheadRatio of KubeVirt",
        r"Then start it; with runStrategy Always KubeVirt would do that: virtctl start db -n vms",
    )
    return Incident(
        "memory", f"{KUBEVIRT}/issues/10959", ended_for_memory(), YES, facts, ("explain", "vm/db")
    )


def hotplugged_volume_of_another_node() -> Incident:
    items = plain((1, 6)) + guest("db", "w2", hotplugged=["data"])
    items += claim("data", modes=("ReadWriteOnce",), affinity={"topology.topolvm.io/node": "w1"})
    helper = find(items, "Pod", "hp-volume-db")
    helper["metadata"]["creationTimestamp"] = ago(minutes=51)
    helper["status"] = {"phase": "Pending"}
    status = find(items, "VirtualMachineInstance", "db")["status"]["volumeStatus"][-1]
    status |= {"phase": "AttachedToNode", "target": ""}
    del helper["spec"]["nodeName"]
    facts = (
        (
            r"it is not attached: pod hp-volume-db has been Pending for 51 min, because claim data "
            r"is on node w1 alone"
        ),
        r"This does not end by itself",
        (
            r"\n  give the VM node selector kubernetes.io/hostname=w1, which takes effect after "
            r"its restart"
        ),
    )
    return Incident(
        "hotplug-elsewhere", f"{KUBEVIRT}/issues/16945", items, YES, facts, ("explain", "vm/db")
    )


FAULTED = "pvc-vms-web"


def replica(on: str, failed: int | None = None) -> Object:
    """Return a copy of the volume of the VM web.

    ``failed``: how many minutes ago; None: it is healthy.
    """
    spec = {"volumeName": FAULTED, "nodeID": on, "healthyAt": ago(days=9)}
    spec["failedAt"] = ago(minutes=failed) if failed is not None else ""
    return obj("Replica", "longhorn.io/v1beta2", f"{FAULTED}-r-{on}", "longhorn-system", spec=spec)


def with_longhorn(name: str, *replicas: Object, **status: str) -> list[Object]:
    """Return a VM that starts, whose Longhorn volume is faulted,
    unless ``status`` says something else.
    """
    items = [
        each
        for each in starting(name, "Scheduling")
        if not each["kind"].startswith("PersistentVolume")
    ]
    state = {"robustness": "faulted", "state": "detached"} | status
    volume = obj("Volume", "longhorn.io/v1beta2", FAULTED, "longhorn-system", spec={}, status=state)
    return [
        *items,
        *claim(name, driver="driver.longhorn.io", storage_class="longhorn"),
        volume,
        *replicas,
    ]


def volume_without_copies() -> Incident:
    items = (
        plain((1, 6))
        + namespaces("longhorn-system")
        + storage_class("longhorn", "driver.longhorn.io")
    )
    items += with_longhorn("web", replica("w1", 141), replica("w2", 141))
    facts = (
        r"could start on +no node",
        (
            r"Longhorn volume pvc-vms-web of claim web is faulted: both its copies \(w1, w2\) "
            r"failed 2 h 21 ago"
        ),
        r"This does not end by itself",
        r"then salvage the volume in Longhorn with its newest copy, or restore a backup",
    )
    source = "https://github.com/harvester/harvester/issues/6279"
    return Incident("faulted-volume", source, items, YES, facts, ("explain", "vm/web"))


def incidents() -> list[Incident]:
    return [
        device_plugin_without_devices(),
        webhooks_that_refuse_their_own_pods(),
        scratch_space(),
        guest_that_stays_off(),
        guest_ended_for_memory(),
        hotplugged_volume_of_another_node(),
        volume_without_copies(),
    ]
