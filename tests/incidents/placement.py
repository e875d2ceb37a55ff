"""Virtual machines that no other node can take."""

from tests.healthy.clusters import plain
from tests.healthy.machines import claim, machine, storage_class
from tests.healthy.parts import Object, obj

from .machines import NO, NOT_YES, Incident, find, guest, launcher_of

RELEASE = (1, 7)
KUBEVIRT = "https://github.com/kubevirt/kubevirt"


def pinned() -> Incident:
    where = {"kubernetes.io/hostname": "w1"}
    items = plain(RELEASE) + guest(
        "web", "w1", RELEASE, spec={"nodeSelector": where}, selector=where
    )
    return Incident(
        "node-selector",
        f"{KUBEVIRT}/issues/5565",
        items,
        NO,
        (r"node selector|nodeSelector|hostname",),
    )


def clock_frequency() -> Incident:
    label = "scheduling.node.kubevirt.io/tsc-frequency-2095078000"
    windows = {"features": {"hyperv": {"reenlightenment": {"enabled": True}}}}
    hints = {"topologyHints": {"tscFrequency": 2095078000}}
    items = plain(RELEASE)
    items += guest("win", "w1", RELEASE, domain=windows, status=hints, selector={label: "true"})
    find(items, "Node", "w1")["metadata"]["labels"] |= {
        label: "true",
        "cpu-timer.node.kubevirt.io/tsc-frequency": "2095078000",
        "cpu-timer.node.kubevirt.io/tsc-scalable": "false",
    }
    return Incident("tsc-frequency", f"{KUBEVIRT}/issues/10181", items, NO, (r"tsc-frequency|TSC",))


def machine_type() -> Incident:
    old = {"type": "pc-q35-rhel8.6.0"}
    label = "machine-type.node.kubevirt.io/pc-q35-rhel8.6.0"
    items = plain(RELEASE) + guest(
        "old", "w1", RELEASE, domain={"machine": old}, status={"machine": old}
    )
    chosen = launcher_of(items, "old")["spec"]["nodeSelector"]
    del chosen["machine-type.node.kubevirt.io/pc-q35-rhel9.6.0"]
    chosen[label] = "true"
    find(items, "Node", "w1")["metadata"]["labels"][label] = "true"
    return Incident(
        "machine-type",
        f"{KUBEVIRT}/issues/13664",
        items,
        NO,
        (r"machine.type", r"pc-q35-rhel8\.6\.0"),
    )


def two_vendors() -> Incident:
    items = plain(RELEASE) + guest("web", "w1", RELEASE)
    labels = find(items, "Node", "w1")["metadata"]["labels"]
    for prefix in ("host-model-cpu", "cpu-model-migration"):
        del labels[f"{prefix}.node.kubevirt.io/Skylake-Server"]
        labels[f"{prefix}.node.kubevirt.io/Cascadelake-Server"] = "true"
    for feature in ("arch-capabilities", "hypervisor", "ibrs-all"):
        labels[f"host-model-required-features.node.kubevirt.io/{feature}"] = "true"
        labels[f"cpu-feature.node.kubevirt.io/{feature}"] = "true"
    source = "https://github.com/harvester/harvester/issues/3762"
    return Incident("host-model", source, items, NO, (r"CPU|cpu", r"Cascadelake-Server|ibrs-all"))


def quota() -> Incident:
    items = plain(RELEASE) + guest("web", "w1", RELEASE)
    limits = {"requests.memory": "6Gi"}
    status = {"hard": limits, "used": {"requests.memory": "4Gi"}}
    items.append(obj("ResourceQuota", "v1", "tenant", "vms", spec={"hard": limits}, status=status))
    return Incident("quota", f"{KUBEVIRT}/issues/9238", items, NO, (r"quota", r"tenant", r"memory"))


def shared_by_name() -> Incident:
    driver = "kubevirt.io.hostpath-provisioner"
    items = plain(RELEASE) + storage_class("hostpath-csi", driver)
    for each in items:
        if each["kind"] == "Node":
            each["metadata"]["labels"]["topology.hostpath.csi/node"] = each["metadata"]["name"]
    items += machine("myvm", "w1", RELEASE, strategy="LiveMigrate", disks=["myvm"])
    place = {"topology.hostpath.csi/node": "w1"}
    options: Object = {
        "volume_mode": "Filesystem",
        "storage_class": "hostpath-csi",
        "driver": driver,
    }
    items += claim("myvm", affinity=place, **options)
    return Incident(
        "host-path",
        f"{KUBEVIRT}/issues/8771",
        items,
        NO,
        (r"volume|claim|disk", r"on node w1 alone"),
    )


def handlers_away() -> Incident:
    items = plain(RELEASE) + guest("web", "w1", RELEASE)
    for name in ("w2", "w3"):
        meta = find(items, "Node", name)["metadata"]
        meta["labels"]["kubevirt.io/schedulable"] = "false"
        del meta["annotations"]["kubevirt.io/heartbeat"]
    source = f"{KUBEVIRT}/issues/6825"
    return Incident(
        "not-schedulable", source, items, NOT_YES, (r"kubevirt\.io/schedulable|virt-handler",)
    )


def huge_pages() -> Incident:
    items = plain(RELEASE, extra={"hugepages-1Gi": "48Gi"})
    for name, free in (("w2", "24Gi"), ("w3", "15Gi")):
        find(items, "Node", name)["status"]["allocatable"]["hugepages-1Gi"] = free
    domain = {"memory": {"guest": "16Gi", "hugepages": {"pageSize": "1Gi"}}}
    need = {"hugepages-1Gi": "16Gi", "memory": "400Mi"}
    for name, place in (("prod-1", "w1"), ("prod-2", "w2")):
        items += guest(name, place, RELEASE, memory="16Gi", domain=domain, requests=need)
    source = "https://github.com/ryan4yin/nix-config/pull/280"
    return Incident("huge-pages", source, items, NO, (r"hugepages-1Gi",))


def together() -> Incident:
    label = {"group": "db"}
    rule = {"labelSelector": {"matchLabels": label}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    items = plain(RELEASE)
    for name in ("db-1", "db-2"):
        items += guest(name, "w1", RELEASE, labels=label, spec={"affinity": affinity})
        launcher_of(items, name)["spec"]["affinity"] = affinity
    return Incident("affinity", f"{KUBEVIRT}/pull/18165", items, NO, (r"affinity",))


def no_scale() -> Incident:
    """A budget with maxUnavailable over VMIs: the disruption controller cannot count pods whose
    owner does not scale.
    """
    label = {"role": "etcd"}
    items = plain(RELEASE)
    for index, place in enumerate(("w1", "w2", "w3")):
        items += guest(f"etcd-{index}", place, RELEASE, strategy="None", labels=label)
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": label}}
    text = "virtualmachineinstances.kubevirt.io does not implement the scale subresource"
    reached = {
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "SyncFailed",
        "message": text,
    }
    counts = {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0, "disruptionsAllowed": 0}
    status = counts | {"observedGeneration": 1, "conditions": [reached]}
    metadata = {"generation": 1}
    items.append(
        obj(
            "PodDisruptionBudget",
            "policy/v1",
            "etcd",
            "vms",
            metadata=metadata,
            spec=spec,
            status=status,
        )
    )
    source = "https://github.com/openshift/openshift-docs/pull/114954"
    return Incident("no-scale", source, items, NO, (r"maxUnavailable", r"scale|minAvailable"))


def taint_of_an_agent_that_is_gone() -> Incident:
    items = plain(RELEASE) + guest("web", "w1", RELEASE)
    taint = {"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}
    for name in ("w1", "w2", "w3"):
        find(items, "Node", name)["spec"]["taints"] = [taint]
    facts = (
        (
            r"taint node\.cilium\.io/agent-not-ready: nothing removes that taint, as no DaemonSet "
            r"and no pod of cilium exists"
        ),
        (
            r"remove that taint, and do not stop the VM before: kubectl taint nodes w1 w2 w3 "
            r"node\.cilium\.io/agent-not-ready-"
        ),
        r"(?s)\A(?!.*which it then removes)",
    )
    return Incident("agent-gone", "https://github.com/cilium/cilium/issues/31943", items, NO, facts)


def incidents() -> list[Incident]:
    return [
        pinned(),
        clock_frequency(),
        machine_type(),
        two_vendors(),
        quota(),
        shared_by_name(),
        handlers_away(),
        huge_pages(),
        together(),
        no_scale(),
        taint_of_an_agent_that_is_gone(),
    ]
