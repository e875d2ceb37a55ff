"""The VMI that KubeVirt will make: instance types, preferences, revisions,
and what cannot be seen of them.
"""

import pytest

from tests.builders import NAMESPACE, instancetype, kubevirt, manifest, partial, vm
from virt_admit.model.kubernetes.cluster import NOTHING, AbsentObject, Snapshot, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.instances.expand import REVISION_OF, expand, strategy

SPEC = {"gpus": [{"name": "card", "deviceName": "example.com/gpu"}]}


def large(kind, spec=SPEC):
    return instancetype(kind, "large", spec)


def revision(name, of="large", data=None):
    labels = {} if of is None else {REVISION_OF: of}
    data = {"spec": {"gpus": [1, 2]}} if data is None else data
    return manifest(
        "apps/v1", "ControllerRevision", name, NAMESPACE, metadata={"labels": labels}, data=data
    )


def preferred(spec, **vm_spec):
    """A VM over a cluster in which its preference says this."""
    template = vm_spec.pop("template", None)
    obj = vm(template, preference={"name": "windows"}, **vm_spec)
    return expand(obj, Snapshot([instancetype("VirtualMachineClusterPreference", "windows", spec)]))


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        (None, "VirtualMachineClusterInstancetype"),
        ("", "VirtualMachineClusterInstancetype"),
        ("VirtualMachineClusterInstancetype", "VirtualMachineClusterInstancetype"),
        ("virtualmachineclusterinstancetypes", "VirtualMachineClusterInstancetype"),
        ("VirtualMachineInstancetype", "VirtualMachineInstancetype"),
        ("virtualMACHINEinstancetypes", "VirtualMachineInstancetype"),
    ],
)
def test_instance_types_are_found_by_kind(word, kind):
    obj = vm(instancetype={"name": "large"} | ({} if word is None else {"kind": word}))
    machine = expand(obj, partial(large(kind)))
    assert machine.unseen == ()
    assert machine.gpus.field.value == SPEC["gpus"]
    assert str(machine.gpus.field.path) == "spec.instancetype"
    assert machine.gpus.source == "instance type 'large'"


@pytest.mark.parametrize(
    ("named", "objects", "complete", "unseen"),
    [
        (
            {"name": "large"},
            [],
            [],
            "virtualmachineclusterinstancetypes.instancetype.kubevirt.io large",
        ),
        (
            {"name": "large"},
            [],
            ["*"],
            (
                "virtualmachineclusterinstancetypes.instancetype.kubevirt.io large, which does not "
                "exist"
            ),
        ),
        (
            {"name": "large", "kind": "VirtualMachineInstancetype"},
            [],
            [],
            "virtualmachineinstancetypes.instancetype.kubevirt.io shop/large",
        ),
        ({"name": "large", "kind": "Flavour"}, [], ["*"], "instance type large"),
        ({"inferFromVolume": "root"}, [], ["*"], "instance type spec.instancetype"),
        (
            {"name": "large", "revisionName": "old"},
            [],
            ["*"],
            "controllerrevisions.apps shop/old, which does not exist",
        ),
        (
            {"name": "large", "revisionName": "old"},
            [revision("old", data={"spec": "?"})],
            [],
            "instance type old",
        ),
        ({}, [], ["*"], "instance type spec.instancetype"),
        ("large", [], ["*"], "instance type spec.instancetype"),
    ],
)
def test_what_cannot_be_seen_of_an_instance_type(named, objects, complete, unseen):
    machine = expand(vm(instancetype=named), Snapshot(objects, complete))
    assert machine.unseen == (unseen,)
    is_read = unseen.endswith(", which does not exist")
    assert all(isinstance(each, AbsentObject) is is_read for each in machine.unseen)
    assert not machine.gpus.field.present


def test_a_named_revision_wins():
    obj = vm(instancetype={"name": "large", "revisionName": "old"})
    machine = expand(
        obj, Snapshot([large("VirtualMachineClusterInstancetype"), revision("old", of="x")])
    )
    assert machine.gpus.field.value == [1, 2]


def used(name):
    return {"instancetypeRef": {"controllerRevisionRef": {"name": name}}}


def test_what_a_started_vm_really_uses_wins_over_what_the_name_means_today():
    obj = vm(instancetype={"name": "large"}, status=used("old"))
    current = large("VirtualMachineClusterInstancetype")
    assert expand(obj, Snapshot([current, revision("old")])).gpus.field.value == [1, 2]
    unlabelled = expand(obj, Snapshot([current, revision("old", of=None)]))
    assert unlabelled.gpus.field.value == SPEC["gpus"]
    assert (
        expand(obj, Snapshot([current, revision("old", of="small")])).gpus.field.value
        == SPEC["gpus"]
    )
    assert expand(obj, Snapshot([current])).unseen == ("controllerrevisions.apps shop/old",)


def test_a_pool_has_no_status_of_a_vm():
    template = {"spec": {"instancetype": {"name": "large"}, "template": {"spec": {}}}}
    pool = Object(
        {
            "apiVersion": "pool.kubevirt.io/v1beta1",
            "kind": "VirtualMachinePool",
            "metadata": {"name": "p", "namespace": "shop"},
            "spec": {"virtualMachineTemplate": template},
            "status": used("old"),
        }
    )
    machine = expand(pool, Snapshot([large("VirtualMachineClusterInstancetype")]))
    assert str(machine.gpus.field.path) == "spec.virtualMachineTemplate.spec.instancetype"


def test_what_the_vm_says_itself_stays():
    own = {
        "architecture": "arm64",
        "nodeSelector": {"a": "b"},
        "domain": {
            "cpu": {"model": "Haswell"},
            "launchSecurity": {},
            "features": {"hyperv": {"reenlightenment": {"enabled": False}}},
            "devices": {"gpus": [{}], "hostDevices": [{}], "autoattachPodInterface": False},
        },
    }
    obj = vm({"spec": own}, instancetype={"name": "large"}, preference={"name": "windows"})
    everything = {
        "gpus": [1, 2],
        "hostDevices": [1],
        "launchSecurity": {"sev": {}},
        "nodeSelector": {"c": "d"},
        "cpu": {"model": "Penryn"},
        "preferredLaunchSecurity": {"tdx": {}},
        "preferredArchitecture": "s390x",
        "devices": {"preferredAutoattachPodInterface": True},
        "features": {"preferredHyperv": {"reenlightenment": {}}},
    }
    machine = expand(
        obj,
        Snapshot(
            [
                large("VirtualMachineClusterInstancetype", spec=everything),
                instancetype("VirtualMachineClusterPreference", "windows", everything),
            ]
        ),
    )
    assert machine.gpus.field.value == [{}]
    assert machine.host_devices.field.value == [{}]
    assert machine.launch_security.field.value == {}
    assert machine.reenlightenment.field.value == {"enabled": False}
    assert machine.cpu_model.field.value == "Haswell"
    assert machine.node_selector.field.value == {"a": "b"}
    assert machine.node_selector.source == ""
    assert machine.architecture == "arm64"
    assert machine.autoattach_pod_interface is False


def test_what_an_instance_type_adds():
    spec = {
        "hostDevices": [1],
        "launchSecurity": {"sev": {}},
        "nodeSelector": {"c": "d"},
        "cpu": {"model": "Penryn"},
        "annotations": {"opt-in": ""},
    }
    machine = expand(
        vm(instancetype={"name": "large"}),
        Snapshot([large("VirtualMachineClusterInstancetype", spec=spec)]),
    )
    for given in (
        machine.host_devices,
        machine.launch_security,
        machine.node_selector,
        machine.cpu_model,
    ):
        assert given.field.present
        assert str(given.field.path) == "spec.instancetype"
    assert machine.node_selector.field.value == {"c": "d"}
    assert machine.annotated("opt-in")
    assert not machine.annotated("other")


def test_what_a_preference_adds():
    machine = preferred(
        {
            "preferredLaunchSecurity": {"tdx": {}},
            "preferredArchitecture": "s390x",
            "devices": {
                "preferredAutoattachPodInterface": False,
                "preferredInterfaceMasquerade": {},
            },
            "features": {"preferredHyperv": {"reenlightenment": {}}},
            "volumes": {"preferredStorageClassName": "fast"},
            "annotations": {"opt-in": "no"},
        }
    )
    for given in (machine.launch_security, machine.reenlightenment):
        assert given.field.is_map
        assert (str(given.field.path), given.source) == ("spec.preference", "preference 'windows'")
    assert machine.architecture == "s390x"
    assert machine.autoattach_pod_interface is False
    assert machine.prefers_masquerade
    assert machine.preferred_storage_class == "fast"
    assert machine.annotated("opt-in")


def test_what_a_silent_preference_leaves_open():
    machine = preferred({})
    assert not machine.launch_security.field.present
    assert not machine.reenlightenment.field.present
    assert machine.architecture is None
    assert machine.autoattach_pod_interface is None
    assert not machine.prefers_masquerade
    assert machine.preferred_storage_class is None


def test_annotations_count_in_the_template_alone():
    assert expand(vm({"metadata": {"annotations": {"opt-in": None}}}), NOTHING).annotated("opt-in")
    obj = vm()
    obj.data["metadata"]["annotations"] = {"opt-in": ""}
    assert not expand(obj, NOTHING).annotated("opt-in")


@pytest.mark.parametrize(
    "junk", [None, 1, "x", [], [None], {"template": 5}, {"template": {"spec": []}}]
)
def test_hostile_specs_read_as_absent(junk):
    machine = expand(
        Object({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "spec": junk}), NOTHING
    )
    assert not machine.gpus.field.present
    assert not machine.annotated("opt-in")


@pytest.mark.parametrize(
    ("own", "cluster", "value", "phrase"),
    [
        ("None", partial(kubevirt(evictionStrategy="LiveMigrate")), "None", "None"),
        ("", partial(kubevirt(evictionStrategy="LiveMigrate")), "", ""),
        (
            None,
            partial(kubevirt(evictionStrategy="LiveMigrate")),
            "LiveMigrate",
            "LiveMigrate from KubeVirt",
        ),
        (None, partial(kubevirt()), "None", "None from KubeVirt's default"),
    ],
)
def test_the_effective_strategy(own, cluster, value, phrase):
    found = strategy(vm({"spec": {"evictionStrategy": own}}), cluster)
    assert (found.value, found.phrase) == (value, phrase)
    assert str(found.path) == "spec.template.spec.evictionStrategy"


def test_an_unknown_strategy():
    with pytest.raises(Unseen, match="eviction strategy of the cluster"):
        strategy(vm(), NOTHING)


def test_a_strategy_of_the_wrong_type_is_not_the_cluster_s():
    assert (
        strategy(
            vm({"spec": {"evictionStrategy": 5}}), partial(kubevirt(evictionStrategy="None"))
        ).value
        == ""
    )


def test_the_namespace_of_what_an_object_names():
    assert vms.namespace_of(vm()) == "shop"
    assert vms.namespace_of(Object({})) == "default"
