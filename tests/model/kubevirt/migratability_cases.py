"""VMs and expected answers of the migratability tests."""

from tests.builders import manifest
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances.migratability import Migratable, assess

MASQUERADE = {
    "networks": [{"name": "default", "pod": {}}],
    "interfaces": [{"name": "default", "masquerade": {}}],
}


def vm(spec=None, annotations=None, kind="VirtualMachine", metadata=None, **vm_spec):
    """A VM on the pod network with masquerade, unless its spec says otherwise.

    ``spec`` is the VMI spec.
    """
    spec = dict(spec or {})
    devices = dict(spec.pop("devices", {}))
    networks = spec.pop("networks", None)
    if networks is None and "interfaces" not in devices and "autoattachPodInterface" not in devices:
        networks, devices["interfaces"] = MASQUERADE["networks"], MASQUERADE["interfaces"]
    domain = {"devices": devices} | spec.pop("domain", {})
    template = {"metadata": {"annotations": annotations or {}}, "spec": {"domain": domain, **spec}}
    if networks is not None:
        template["spec"]["networks"] = networks
    head = {"apiVersion": "kubevirt.io/v1", "kind": kind}
    meta = {"name": "db", "namespace": "shop"} | (metadata or {})
    return Object(head | {"metadata": meta, "spec": {"template": template, **vm_spec}})


def judged(subject, *objects, complete=()):
    found = assess(subject, Snapshot(objects, complete))
    return found.migratable, [(reason.name, str(reason.path)) for reason in found.reasons]


YES, UNKNOWN = (Migratable.YES, []), (Migratable.UNKNOWN, [])

T = "spec.template.spec."

DEVICES = T + "domain.devices"


def no(name, path):
    return Migratable.NO, [(name, path)]


def pod_interface(**binding):
    other = {"name": "other", "sriov": {}}
    return {
        "networks": [
            {"name": "other", "multus": {"networkName": "x", "default": True}},
            {"name": "lan", "pod": {}},
        ],
        "devices": {"interfaces": [other, {"name": "lan", **binding}]},
    }


STUCK = no("InterfaceNotLiveMigratable", DEVICES + ".interfaces[1]")

NO_INTERFACE = no("InterfaceNotLiveMigratable", DEVICES)


def with_volume(**source):
    return vm({"volumes": [None, {}, {"name": "root", **source}]})


PVC_PATH = T + "volumes[2].persistentVolumeClaim.claimName"


def named(kind, name, spec):
    return manifest("instancetype.kubevirt.io/v1beta1", kind, name, spec=spec)


def windows(spec):
    return named("VirtualMachineClusterPreference", "windows", spec)
