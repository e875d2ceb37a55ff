"""Thousands of VMs, put together from parts of which it is known what each one does to a migration.

The parts say what must come out, the engine says what does; a second opinion to the tables of the other tests.
"""

import copy
from collections.abc import Callable
from itertools import combinations, islice, product
from typing import NamedTuple

import pytest

from tests.builders import claim, hyperconverged, kubevirt, manifest, node
from virt_admit.engine.admission_review import Request
from virt_admit.engine.review import fix, judge, review
from virt_admit.model import json_patch, kinds
from virt_admit.model.cluster import NOTHING, Snapshot
from virt_admit.model.kubevirt import vms
from virt_admit.model.kubevirt.migratability import BRIDGE_OPT_IN, TSC_FREQUENCY, assess
from virt_admit.model.objects import Object
from virt_admit.policy.policy import Policy
from virt_admit.rules import load_rules

RULES = load_rules().at_admission
OUT_OF_THE_BOX = Policy()

YES, NO, UNKNOWN = "yes", "no", "unknown"


# --- clusters ------------------------------------------------------------------------------------------------------


class World(NamedTuple):
    """A cluster, and what it means for the parts."""

    name: str
    cluster: Snapshot
    says: str | None = None
    """The eviction strategy that somebody says."""
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
        return Snapshot(each for i, each in enumerate(objects) if i != index % len(objects)) if objects else NOTHING


def storage():
    default = {"annotations": {"storageclass.kubevirt.io/is-default-virt-class": "true"}}
    sets = [{"accessModes": ["ReadWriteOnce"]}]
    return [
        claim("shared", "ReadWriteMany"),
        claim("local", "ReadWriteOnce"),
        manifest("storage.k8s.io/v1", "StorageClass", "lvm", metadata=default),
        manifest("cdi.kubevirt.io/v1beta1", "StorageProfile", "lvm", status={"claimPropertySets": sets}),
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
        clock=YES,
    ),
    World(
        "a HyperConverged of one node",
        Snapshot([hyperconverged(status={"infrastructureHighlyAvailable": False}), node("a")]),
        "None",
        "masquerade",
        clock=NO,
    ),
    World("one node", Snapshot([node("a")]), clock=NO, one_node=True),
]


# --- parts ---------------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """What it adds to the VMI spec, its domain and devices, and what that does to a migration in a world."""

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
    Part(always(NO), devices={"gpus": [{"name": name, "deviceName": "example.com/vgpu"} for name in "ab"]}),
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
    if index % 3 == 0 or (templates and index % 3 == 2):  # a replica set has no templates of data volumes
        return Object({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": vm})
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


def test_there_are_thousands_and_every_pair_of_parts_occurs():
    assert len(ALL) > 2_500
    assert {machine.answer for machine in ALL} == {YES, NO, UNKNOWN}
    for (a, left), (b, right) in combinations(enumerate(CHOICES), 2):
        assert len({(choice[a], choice[b]) for choice in CHOSEN}) == len(left) * len(right)


def test_the_verdict_is_what_the_parts_say():
    for machine in ALL:
        assert assess(machine.obj, machine.world.cluster).migratable.value == machine.answer, machine


def wanted(machine):
    """What becomes of a machine without a strategy; None: nothing is written."""
    wish = "None" if machine.never else {YES: "LiveMigrate"}.get(machine.answer, "LiveMigrateIfPossible")
    says = machine.world.says
    if says in ("None", "External") or machine.world.one_node:
        return None
    if says == "LiveMigrateIfPossible":
        return wish if wish == "None" else None
    return None if says == wish else wish


def test_the_default_is_that_of_the_table_and_only_one_leaf_is_patched():
    for machine in ALL:
        response = fix(request(machine.obj), RULES, machine.world.cluster, OUT_OF_THE_BOX)
        assert not response.errors
        expected = None if machine.strategy else wanted(machine)
        if expected is None:
            assert response.patch == (), machine
            continue
        (step,) = response.patch
        assert (step.op, step.path, step.value) == ("add", leaf(machine.obj), expected), machine
        fixed = json_patch.apply(machine.obj, response.patch)
        assert json_patch.apply(fixed, [step._replace(op="remove")]).data == machine.obj.data
        assert fix(request(fixed), RULES, machine.world.cluster, OUT_OF_THE_BOX).patch == ()


def test_live_migrate_is_never_the_default_of_what_cannot_migrate():
    for machine in ALL:
        response = judge(request(machine.obj), RULES, machine.world.cluster, OUT_OF_THE_BOX)
        assert not response.errors
        effective = machine.strategy or next((step.value for step in response.patch), machine.world.says)
        blocks = [v for v in response.verdicts if v.rule.id == "vm-live-migrate-not-migratable"]
        assert bool(blocks) == (effective == "LiveMigrate" and machine.answer == NO), machine
        if machine.strategy is None:
            assert not blocks


def test_removing_knowledge_of_the_cluster_never_denies():
    for index, machine in enumerate(ALL):
        subject = request(machine.obj)
        before = review(subject, RULES, machine.world.cluster, OUT_OF_THE_BOX)
        for less in (NOTHING, machine.world.with_less(index)):
            after = review(subject, RULES, less, OUT_OF_THE_BOX)
            assert not after.errors
            assert after.allowed or not before.allowed, machine


def test_a_further_reason_never_makes_it_migratable():
    for index, machine in enumerate(ALL):
        more = VOLUMES[-2] if index % 2 else DEVICES[3]
        worse = add(machine.obj, more)
        assert assess(worse, machine.world.cluster).migratable.value == NO
        before = {reason.name for reason in assess(machine.obj, machine.world.cluster).reasons}
        assert before <= {reason.name for reason in assess(worse, machine.world.cluster).reasons}


def add(obj, part):
    """The object with the part added to its lists."""
    data = copy.deepcopy(obj.data)
    path = vms.vmi_spec(obj).path
    for where, lists in ((path, part.spec), (path / "domain" / "devices", part.devices)):
        place = data
        for step in where:
            place = place.setdefault(step, {})
        for key, items in lists.items():
            place[key] = [*(place.get(key) or []), *items]
    return Object(data)


@pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachinePool", "VirtualMachineInstanceReplicaSet"])
def test_every_kind_is_among_them(kind):
    machines = [machine for machine in ALL if machine.obj.kind == kind]
    assert len(machines) > 500


def test_instances_are_neither_changed_nor_refused():
    for machine in ALL[::7]:
        template = vms.vmi_template(machine.obj)
        metadata = {"name": "db", "namespace": "shop", **template["metadata"].map}
        head = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata}
        instance = Object(head | {"spec": template["spec"].value})
        response = judge(request(instance), RULES, machine.world.cluster, OUT_OF_THE_BOX)
        assert response.allowed
        assert response.patch == ()


def test_on_update_nothing_is_written():
    for machine in ALL[::7]:
        assert fix(request(machine.obj, "UPDATE"), RULES, machine.world.cluster, OUT_OF_THE_BOX).patch == ()
