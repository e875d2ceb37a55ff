"""Clusters and parts of VMs, each with what it means for a migration,
and all their combinations.
"""

from collections.abc import Callable
from itertools import islice, product
from typing import NamedTuple

from tests.builders import claim, hyperconverged, kubevirt, manifest, node
from virt_admit.engine.admission_review import Request
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import NOTHING, Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.instances.migratability import BRIDGE_OPT_IN
from virt_admit.model.kubevirt.instances.tsc import TSC_FREQUENCY
from virt_admit.policy.policy import Policy
from virt_admit.rules import load_rules

RULES = load_rules().at_admission

OUT_OF_THE_BOX = Policy()

YES, NO, UNKNOWN = "yes", "no", "unknown"


class World(NamedTuple):
    """A cluster, and what it means for the parts."""

    name: str
    cluster: Snapshot
    says: str | None = None
    """The eviction strategy that is said."""
    binding: str | None = None
    """How a VM without networks is tied to the pod network; None: unknown."""
    plugin: str = UNKNOWN
    claims: bool = False
    vgpu: bool = False
    clock: str = UNKNOWN
    architecture: bool = False
    one_node: bool = False

    def with_less(self, index):
        """The cluster without one of its objects."""
        objects = list(self.cluster)
        return (
            Snapshot(each for i, each in enumerate(objects) if i != index % len(objects))
            if objects
            else NOTHING
        )


def storage():
    default = {"annotations": {"storageclass.kubevirt.io/is-default-virt-class": "true"}}
    sets = [{"accessModes": ["ReadWriteOnce"]}]
    return [
        claim("shared", "ReadWriteMany"),
        claim("local", "ReadWriteOnce"),
        manifest("storage.k8s.io/v1", "StorageClass", "lvm", metadata=default),
        manifest(
            "cdi.kubevirt.io/v1beta1", "StorageProfile", "lvm", status={"claimPropertySets": sets}
        ),
    ]


GENEROUS = kubevirt(
    evictionStrategy="LiveMigrate",
    network={"defaultNetworkInterface": "masquerade", "binding": {"moving": {"migration": {}}}},
    developerConfiguration={"featureGates": ["VGPULiveMigration"], "minimumClusterTSCFrequency": 1},
    permittedHostDevices={"mediatedDevices": [{"resourceName": "example.com/vgpu"}]},
)

SHOWS_ITS_CLOCK = {TSC_FREQUENCY: "2600000000"}

HCO_V1 = {"virtualization": {"evictionStrategy": "LiveMigrate"}}

WORLDS = [
    World("nothing is seen", Snapshot()),
    World("nothing exists yet", Snapshot(complete=["*"])),
    World("a silent KubeVirt", Snapshot([kubevirt()]), None, "bridge", NO, architecture=True),
    World(
        "a generous KubeVirt",
        Snapshot([GENEROUS, *storage()]),
        "LiveMigrate",
        "masquerade",
        YES,
        claims=True,
        vgpu=True,
        clock=YES,
        architecture=True,
    ),
    World(
        "drains shut down",
        Snapshot([kubevirt(evictionStrategy="None"), *storage()]),
        "None",
        "bridge",
        NO,
        claims=True,
        architecture=True,
    ),
    World(
        "others move it",
        Snapshot([kubevirt(evictionStrategy="External")]),
        "External",
        "bridge",
        NO,
        architecture=True,
    ),
    World(
        "an older HyperConverged",
        Snapshot([hyperconverged({"evictionStrategy": "LiveMigrateIfPossible"}, "v1beta1")]),
        "LiveMigrateIfPossible",
        "masquerade",
    ),
    World(
        "a HyperConverged of two nodes",
        Snapshot([hyperconverged(HCO_V1), node("a"), node("b", SHOWS_ITS_CLOCK), *storage()]),
        "LiveMigrate",
        "masquerade",
        claims=True,
    ),
    World(
        "a HyperConverged of one node",
        Snapshot([hyperconverged(status={"infrastructureHighlyAvailable": False}), node("a")]),
        "None",
        "masquerade",
    ),
    World("one node", Snapshot([node("a")]), one_node=True),
    World(
        "one silent node",
        Snapshot([node("a"), kubevirt()]),
        None,
        "bridge",
        NO,
        clock=NO,
        architecture=True,
        one_node=True,
    ),
]


class Part(NamedTuple):
    """What it adds to the VMI spec, its domain and devices,
    and what that does to a migration in a world.
    """

    does: Callable[[World], str]
    spec: dict = {}  # noqa: RUF012 - never changed
    domain: dict = {}  # noqa: RUF012
    devices: dict = {}  # noqa: RUF012
    annotations: dict = {}  # noqa: RUF012
    templates: tuple = ()


def always(answer):
    return lambda world: answer


def network(does, binding=None, **more):
    """An interface on the pod network."""
    interfaces = {"interfaces": [{"name": "lan", **(binding or {})}]}
    return Part(does, {"networks": [{"name": "lan", "pod": {}}]}, devices=interfaces, **more)


def by_default(world):
    return {"masquerade": YES, "bridge": NO, None: UNKNOWN}[world.binding]


def by_plugin(world):
    return world.plugin


NETWORKS = [
    network(always(YES), {"masquerade": {}}),
    network(always(NO), {"bridge": {}}),
    network(always(YES), {"bridge": {}}, annotations={BRIDGE_OPT_IN: ""}),
    network(by_plugin, {"binding": {"name": "moving"}}),
    network(always(NO), {"sriov": {}}),
    Part(by_default),
    Part(always(YES), devices={"autoattachPodInterface": False}),
    Part(
        always(YES),
        {"networks": [{"name": "lan", "multus": {"networkName": "x"}}]},
        devices={"interfaces": [{"name": "lan", "bridge": {}}]},
    ),
]


def volume(does, templates=(), **source):
    return Part(does, {"volumes": [{"name": "root", **source}]}, templates=templates)


def template(**spec):
    return ({"metadata": {"name": "made"}, "spec": spec},)


def seen(answer):
    return lambda world: answer if world.claims else UNKNOWN


MADE = {"dataVolume": {"name": "made"}}

VOLUMES = [
    Part(always(YES)),
    volume(always(YES), containerDisk={"image": "x"}),
    volume(seen(YES), persistentVolumeClaim={"claimName": "shared"}),
    volume(seen(NO), persistentVolumeClaim={"claimName": "local"}),
    volume(seen(NO), dataVolume={"name": "local"}),
    volume(always(UNKNOWN), dataVolume={"name": "later"}),
    volume(always(YES), template(pvc={"accessModes": ["ReadWriteMany"]}), **MADE),
    volume(always(NO), template(storage={"accessModes": ["ReadWriteOnce"]}), **MADE),
    volume(seen(NO), template(storage={}), **MADE),
    volume(always(NO), hostDisk={"path": "/disk"}),
    volume(always(YES), hostDisk={"path": "/disk", "shared": True}),
]


def by_architecture(world):
    return YES if world.architecture else UNKNOWN


def by_clock(world):
    return world.clock


def by_vgpu(world):
    return YES if world.vgpu else NO


REENLIGHTENMENT = {"features": {"hyperv": {"reenlightenment": {}}}}

DEVICES = [
    Part(always(YES)),
    Part(always(NO), devices={"hostDevices": [{"name": "a"}]}),
    Part(by_vgpu, devices={"gpus": [{"name": "a", "deviceName": "example.com/vgpu"}]}),
    Part(
        always(NO),
        devices={"gpus": [{"name": name, "deviceName": "example.com/vgpu"} for name in "ab"]},
    ),
    Part(always(NO), domain={"launchSecurity": {"snp": {}}}),
    Part(by_architecture, domain={"launchSecurity": {}}),
    Part(always(NO), {"architecture": "s390x"}, domain={"launchSecurity": {}}),
    Part(by_clock, domain=REENLIGHTENMENT),
    Part(
        always(YES),
        domain={**REENLIGHTENMENT, "cpu": {"features": [{"name": "invtsc", "policy": "require"}]}},
    ),
    Part(always(NO), domain={"features": {"hypervPassthrough": {}}}),
]

STRATEGIES = [None, None, "None", "LiveMigrate", "LiveMigrateIfPossible", "External", "Evict"]

MARK = {"virt-admit.io/never-migrate": "true"}

TIES = [({}, {}), ({}, {}), (MARK, {}), ({}, {"nodeSelector": {"kubernetes.io/hostname": "a"}})]


class Machine(NamedTuple):
    """A generated VM in a world."""

    world: World
    obj: Object
    answer: str
    """Whether it can migrate, as its parts say."""
    strategy: str | None
    never: bool
    """Whether it is marked or tied to one host."""


def build(index, world, parts, strategy, tie):
    """A machine of these parts; every kind has its turn."""
    annotations, pinned = tie
    spec: dict = {"evictionStrategy": strategy} if strategy else {}
    domain, devices, marks, templates = {}, {}, {}, ()
    for part in parts:
        spec, domain, devices = spec | part.spec, domain | part.domain, devices | part.devices
        marks, templates = marks | part.annotations, templates + part.templates
    spec = spec | pinned | {"domain": domain | {"devices": devices}}
    answers = {part.does(world) for part in parts}
    answer = NO if NO in answers else UNKNOWN if UNKNOWN in answers else YES
    made = wrap(index, {"metadata": {"annotations": marks}, "spec": spec}, templates, annotations)
    return Machine(world, made, answer, strategy, bool(annotations or pinned))


def wrap(index, template, templates, annotations):
    metadata = {"name": "db", "namespace": "shop", "annotations": annotations}
    vm = {"runStrategy": "Always", "dataVolumeTemplates": list(templates), "template": template}
    # a replica set has no templates of data volumes
    if index % 3 == 0 or (templates and index % 3 == 2):
        return Object(
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachine",
                "metadata": metadata,
                "spec": vm,
            }
        )
    if index % 3 == 1:
        spec = {"virtualMachineTemplate": {"spec": vm}}
        api, kind = "pool.kubevirt.io/v1beta1", "VirtualMachinePool"
    else:
        spec = {"template": template}
        api, kind = "kubevirt.io/v1", "VirtualMachineInstanceReplicaSet"
    return Object({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec})


CHOICES = (WORLDS, NETWORKS, VOLUMES, DEVICES, STRATEGIES, TIES)

STEP = 83
"""Every how many of the 246,400 combinations one is taken."""

CHOSEN = list(islice(product(*map(range, map(len, CHOICES))), 0, None, STEP))

ALL = [
    build(index, world, parts, strategy, tie)
    for index, choice in enumerate(CHOSEN)
    for world, *parts, strategy, tie in [[part[i] for part, i in zip(CHOICES, choice, strict=True)]]
]


def request(obj, operation="CREATE"):
    return Request(operation=operation, kind=kinds.of(obj), obj=obj, namespace=obj.namespace)


def leaf(obj):
    return vms.vmi_spec(obj).path / "evictionStrategy"
