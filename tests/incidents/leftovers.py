"""Reports about what an earlier state has left behind: features of a processor, an attachment, a
node without its copy.
"""

from tests.healthy.clusters import plain
from tests.healthy.machines import claim
from tests.healthy.parts import ago, conditions, obj
from tests.healthy.storage import LONGHORN, harvester, longhorn_volume

from .machines import NO, NOT_YES, Incident, draining, event, find, guest, launcher_of


def stale_features() -> Incident:
    """A guest that has migrated keeps the features of the node on which it started,
    one of which no node has any more.
    """
    items = draining((1, 6))
    model = "cpu-model-migration.node.kubevirt.io/Skylake-Server"
    features = {f"cpu-feature.node.kubevirt.io/{each}": "true" for each in ("vmx-ept-wb", "erms")}
    launcher_of(items, "web")["spec"]["nodeSelector"] |= {model: "true"} | features
    vmi = find(items, "VirtualMachineInstance", "web")
    done = {"migrationUid": "uid-old", "sourceNode": "w3", "targetNode": "w1", "completed": True}
    vmi["status"]["migrationState"] = done | {
        "startTimestamp": ago(days=2, seconds=30),
        "endTimestamp": ago(days=2),
    }
    for each in items:
        if each["kind"] == "Node":
            each["metadata"]["labels"] |= {
                model: "true",
                "cpu-feature.node.kubevirt.io/erms": "true",
            }
    facts = (
        r"cpu-feature.node.kubevirt.io/vmx-ept-wb",
        r"to do: restart the VM.*: virtctl restart web -n vms",
    )
    return Incident(
        "stale-features", "https://github.com/kubevirt/kubevirt/pull/17812", items, NO, facts
    )


def attached_to_a_deleted_node() -> Incident:
    """A VM does not start because its volume is attached to a node that does not exist any more."""
    items = plain() + guest("web")
    launcher, vmi = launcher_of(items, "web"), find(items, "VirtualMachineInstance", "web")
    launcher["metadata"]["creationTimestamp"] = ago(minutes=9)
    launcher["status"] = {
        "phase": "Pending",
        "conditions": conditions(PodScheduled=True, Ready=False),
    }
    vmi["status"] |= {"phase": "Scheduling", "conditions": conditions(Ready=False)}
    text = (
        'Multi-Attach error for volume "pvc-04bf" Volume is already exclusively attached to one '
        "node"
    )
    items.append(event(launcher, "FailedAttachVolume", text, "attachdetach-controller"))
    metadata = {"deletionTimestamp": ago(minutes=10), "finalizers": ["external-attacher/csi"]}
    spec = {
        "attacher": "csi.kubevirt.io",
        "nodeName": "w9",
        "source": {"persistentVolumeName": "pvc-04bf"},
    }
    items.append(
        obj("VolumeAttachment", "storage.k8s.io/v1", "csi-6b42", metadata=metadata, spec=spec)
    )
    facts = (
        r"Its pod on w1 has not started for [^:]+: Multi-Attach error",
        r"kubectl describe pod virt-launcher-web-k2x7q -n vms",
    )
    url = "https://github.com/kubermatic/kubermatic/issues/11873"
    return Incident("attached-to-a-deleted-node", url, items, NOT_YES, facts)


def detached_copies() -> Incident:
    """The other node with a copy of a detached volume is gone,
    and Longhorn rebuilds only volumes that are attached.
    """
    items = harvester((1, 4), ("h1", "h2", "h3"), "block-if-contains-last-replica")
    volume = longhorn_volume("db", None, ["h2", "h9"])
    volume[-1]["spec"]["failedAt"] = ago(hours=2)
    items += volume + claim("db", storage_class="harvester-longhorn", driver=LONGHORN)
    facts = (
        r"only healthy copy of Longhorn volume pvc-vms-db is on node h2",
        r"Start the VM that uses it",
    )
    url = "https://github.com/longhorn/longhorn/issues/10833"
    return Incident("detached-copies", url, items, NO, facts, ("drain", "h2"))


def ending_namespace() -> Incident:
    """A namespace stays because something in it is not deleted,
    and nothing new can be created in it.
    """
    items = plain() + guest("web") + guest("batch", strategy="None")
    text = "Some resources are remaining: virtualmachines.kubevirt.io has 2 resource instances"
    remaining = {
        "type": "NamespaceContentRemaining",
        "status": "True",
        "reason": "SomeResourcesRemain",
        "message": text,
    }
    namespace = find(items, "Namespace", "vms")
    namespace["metadata"]["deletionTimestamp"] = ago(hours=5)
    namespace["status"] = {"phase": "Terminating", "conditions": [remaining]}
    facts = (
        (
            r"no migration can be created: namespace vms is being deleted \(Some resources are "
            r"remaining"
        ),
        r"stays stopped +vms/batch .*so that no VM starts in it again",
        r"kubectl get namespace vms -o yaml",
    )
    url = "https://github.com/kubevirt/hyperconverged-cluster-operator/issues/593"
    return Incident("ending-namespace", url, items, NO, facts)


def incidents() -> list[Incident]:
    return [stale_features(), attached_to_a_deleted_node(), detached_copies(), ending_namespace()]
