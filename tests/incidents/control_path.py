"""Components of KubeVirt, its webhooks and its settings."""

import base64
import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.healthy.clusters import plain
from tests.healthy.machines import claim, kubevirt, machine, storage_class, unmigratable
from tests.healthy.parts import TIME, ago, conditions, namespaces, node, obj

from .machines import NO, NOT_YES, YES, Incident, event, find, guest, launcher_of

KUBEVIRT = "https://github.com/kubevirt/kubevirt"


def bridge() -> Incident:
    release = (1, 6)
    text = (
        "cannot migrate VMI which does not use masquerade, bridge with "
        "kubevirt.io/allow-pod-bridge-network-live-migration VM annotation or a migratable plugin "
        "to connect to the pod network"
    )
    domain = {"devices": {"interfaces": [{"name": "default", "bridge": {}}]}}
    refusal = unmigratable("InterfaceNotLiveMigratable", text)
    items = plain(release) + guest("web", "w1", release, domain=domain, migratable=refusal)
    find(items, "KubeVirt", "kubevirt")["spec"]["configuration"]["migrations"] = {
        "network": "migration-network"
    }
    facts = (
        r"use masquerade, or annotate its template with kubevirt.io/allow-pod-bridge-network-live",
        r"pod network",
    )
    spec = {"config": '{"cniVersion":"0.3.1","type":"macvlan","master":"vlan300","mode":"bridge"}'}
    network = obj(
        "NetworkAttachmentDefinition",
        "k8s.cni.cncf.io/v1",
        "migration-network",
        "kubevirt",
        spec=spec,
    )
    return Incident("bridge", f"{KUBEVIRT}/issues/9440", [*items, network], NO, facts)


def detached_disks() -> Incident:
    release = (1, 3)
    items = plain(release) + guest("web", "w1", release, hotplugged=["vol001"])
    items += claim("vol001", driver="driver.longhorn.io")
    facts = (
        r"pod that attaches vol001: its eviction may detach",
        r"I/O error",
        r"virtctl migrate web",
    )
    return Incident("detached-disks", f"{KUBEVIRT}/issues/13523", items, YES, facts)


def single_replica() -> Incident:
    release = (1, 8)
    items = namespaces("vms", "kubevirt") + storage_class("block", "rook-ceph.rbd.csi.ceph.com")
    items += [node(name, release, roles=("control-plane", "worker")) for name in ("w1", "w2")]
    items += kubevirt(release, ["w1"], ["w1", "w2"], managed=True) + guest("web", "w1", release)
    for each in items:
        if each["kind"] == "EndpointSlice":
            service = each["metadata"]["labels"]["kubernetes.io/service-name"]
            for index, endpoint in enumerate(each["endpoints"]):
                endpoint["targetRef"] = {
                    "kind": "Pod",
                    "namespace": "kubevirt",
                    "name": f"{service}-5d8f-x{index}",
                }
    source = "https://github.com/kubevirt/hyperconverged-cluster-operator/pull/4516"
    return Incident("single-replica", source, items, NOT_YES, (r"virt-api",))


def expired_bundle() -> Incident:
    release = (1, 5)
    items = plain(release) + guest("web", "w1", release)
    bundle = base64.b64encode(expired_ca()).decode()
    for each in items:
        if each["kind"].endswith("WebhookConfiguration") and each["metadata"]["name"].startswith(
            "virt-api"
        ):
            for entry in each["webhooks"]:
                entry["clientConfig"]["caBundle"] = bundle
    return Incident(
        "expired-bundle", f"{KUBEVIRT}/issues/15210", items, NO, (r"expired", r"virt-api")
    )


def expired_ca() -> bytes:
    """Return a CA certificate that expired a day before the snapshot."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubevirt.io")])
    ends = TIME - datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    )
    made = (
        made.serial_number(1)
        .not_valid_before(ends - datetime.timedelta(days=7))
        .not_valid_after(ends)
    )
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def pod_gone() -> Incident:
    release = (1, 6)
    items = plain(release) + guest("web", "w1", release)
    items.remove(launcher_of(items, "web"))
    ask = ("explain", "vm/web", "-n", "vms")
    return Incident(
        "pod-gone",
        f"{KUBEVIRT}/issues/6685",
        items,
        YES,
        (r"pod is gone|no longer exist|does not run",),
        ask,
    )


def migration_network() -> Incident:
    """The network of the migrations does not exist: virt-handler does not start on any node."""
    release = (1, 7)
    items = plain(release) + guest("web", "w1", release)
    find(items, "KubeVirt", "kubevirt")["spec"]["configuration"]["migrations"] = {
        "network": "migration-network"
    }
    text = (
        'Failed to create pod sandbox: plugin type="multus" failed (add): error adding pod '
        "kubevirt_virt-handler to CNI network: cannot find a network-attachment-definition "
        "(migration-network) in namespace (kubevirt)"
    )
    for each in list(items):
        name = each["metadata"]["name"]
        if each["kind"] == "Pod" and name.startswith("virt-handler"):
            each["status"] = {
                "phase": "Pending",
                "conditions": conditions(PodScheduled=True, Ready=False),
            }
            waiting = {
                "name": "virt-handler",
                "ready": False,
                "state": {"waiting": {"reason": "ContainerCreating"}},
            }
            each["status"]["containerStatuses"] = [waiting | {"restartCount": 0}]
            each["metadata"]["creationTimestamp"] = ago(minutes=12)
            items.append(event(each, "FailedCreatePodSandBox", text, "kubelet"))
        if each["kind"] == "Node" and name.startswith("w"):
            each["metadata"]["annotations"]["kubevirt.io/heartbeat"] = ago(minutes=12)
            each["metadata"]["labels"]["kubevirt.io/schedulable"] = "false"
        if each["kind"] == "DaemonSet" and name == "virt-handler":
            each["status"] |= {"numberReady": 0, "numberAvailable": 0}
    facts = (r"virt-handler", r"migration-network")
    return Incident("migration-network", f"{KUBEVIRT}/pull/16940", items, NOT_YES, facts)


def outdated() -> Incident:
    release = (1, 8)
    items = plain(release)
    for name, place in (("web", "w1"), ("db", "w2")):
        made = machine(name, place, release, strategy="LiveMigrate", disks=[name])
        made[1]["metadata"]["labels"]["kubevirt.io/outdatedLauncherImage"] = ""
        items += made + claim(name)
    found = find(items, "KubeVirt", "kubevirt")
    found["spec"]["workloadUpdateStrategy"] = {}
    found["status"]["outdatedVirtualMachineInstanceWorkloads"] = 2
    source = "https://github.com/kubevirt/monitoring/pull/8"
    return Incident("outdated", source, items, YES, (r"outdated|workloadUpdate",), ("scan",))


def incidents() -> list[Incident]:
    return [
        bridge(),
        detached_disks(),
        single_replica(),
        expired_bundle(),
        pod_gone(),
        migration_network(),
        outdated(),
    ]
