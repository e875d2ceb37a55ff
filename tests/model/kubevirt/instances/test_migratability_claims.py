"""Whether the storage of a VM can be shared, and the order in which its access modes are found."""

from tests.builders import claim, manifest
from tests.for_each import for_each
from tests.model.kubevirt.migratability_cases import (
    PVC_PATH,
    UNKNOWN,
    YES,
    T,
    judged,
    no,
    windows,
    with_volume,
)
from virt_admit.model.kubernetes.objects import Object

DV_PATH = T + "volumes[2].dataVolume.name"


RWX, RWO = {"accessModes": ["ReadWriteMany"]}, {"accessModes": ["ReadWriteOnce"]}

NOT_SHARED = no("DisksNotLiveMigratable", DV_PATH)


def from_template(spec, preference=None, kind="VirtualMachine"):
    """A VM whose disk ``root`` is made from a template with this DataVolume spec."""
    more = {"preference": {"name": preference}} if preference else {}
    template = [
        None,
        {"metadata": {"name": "other"}, "spec": {"pvc": RWX}},
        {"metadata": {"name": "root"}, "spec": spec},
    ]
    machine = with_volume(dataVolume={"name": "root"}).data["spec"]
    whole = {**machine, "dataVolumeTemplates": template, **more}
    if kind == "VirtualMachinePool":
        metadata = {"name": "p", "namespace": "shop"}
        head = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": kind, "metadata": metadata}
        return Object(head | {"spec": {"virtualMachineTemplate": {"spec": whole}}})
    return vm_of(whole)


def vm_of(spec):
    metadata = {"name": "db", "namespace": "shop"}
    return Object(
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": metadata,
            "spec": spec,
        }
    )


def data_volume(name, spec):
    return manifest("cdi.kubevirt.io/v1beta1", "DataVolume", name, "shop", spec=spec)


def storage_class(name, created="2026-01-01T00:00:00Z", vms=None, everything=None):
    marks = {
        "storageclass.kubevirt.io/is-default-virt-class": vms,
        "storageclass.kubernetes.io/is-default-class": everything,
    }
    annotations = {key: value for key, value in marks.items() if value is not None}
    metadata = {"annotations": annotations, "creationTimestamp": created}
    return manifest("storage.k8s.io/v1", "StorageClass", name, metadata=metadata)


def profile(name, *sets):
    return manifest(
        "cdi.kubevirt.io/v1beta1", "StorageProfile", name, status={"claimPropertySets": list(sets)}
    )


BLOCK_RWO, FILES_RWX = RWO | {"volumeMode": "Block"}, RWX | {"volumeMode": "Filesystem"}

SHARED_PROFILE, LOCAL_PROFILE = profile("shared", RWX), profile("local", RWO)


def test_the_claim_comes_first_then_the_template_then_the_data_volume():
    says_no = from_template({"pvc": RWO})
    assert judged(says_no, claim("root", "ReadWriteMany")) == YES
    assert judged(says_no) == NOT_SHARED
    assert judged(says_no, data_volume("root", {"pvc": RWX})) == NOT_SHARED
    without_template = with_volume(dataVolume={"name": "root"})
    assert judged(without_template, data_volume("root", {"pvc": RWX})) == YES
    assert judged(without_template, data_volume("root", {"pvc": RWO})) == NOT_SHARED
    assert (
        judged(without_template, data_volume("root", {"pvc": RWX}), claim("root", "ReadWriteOnce"))
        == NOT_SHARED
    )
    assert judged(without_template) == UNKNOWN


def test_a_template_may_be_used_as_a_claim():
    machine = from_template({"pvc": RWO}).data["spec"]
    volumes = [None, {}, {"persistentVolumeClaim": {"claimName": "root"}}]
    machine["template"]["spec"]["volumes"] = volumes
    assert judged(vm_of(machine)) == no("DisksNotLiveMigratable", PVC_PATH)


def test_the_members_of_a_pool_get_claims_of_their_own():
    pool = from_template({"pvc": RWX}, kind="VirtualMachinePool")
    assert judged(pool, claim("root", "ReadWriteOnce"), data_volume("root", {"pvc": RWO})) == YES
    pool.data["spec"]["virtualMachineTemplate"]["spec"]["dataVolumeTemplates"] = []
    path = "spec.virtualMachineTemplate." + DV_PATH
    assert judged(Object(pool.data), claim("root", "ReadWriteOnce")) == no(
        "DisksNotLiveMigratable", path
    )


@for_each(
    "spec, objects, answer",
    [
        ({"pvc": RWX}, [], YES),
        ({"pvc": {}}, [SHARED_PROFILE, storage_class("shared", vms="true")], UNKNOWN),
        ({"pvc": {"storageClassName": "shared"}}, [SHARED_PROFILE], UNKNOWN),
        ({"storage": RWX}, [], YES),
        ({"storage": RWO}, [], NOT_SHARED),
        ({}, [], UNKNOWN),
        ({"storage": {"storageClassName": "shared"}}, [SHARED_PROFILE], YES),
        ({"storage": {"storageClassName": "local"}}, [LOCAL_PROFILE], NOT_SHARED),
        ({"storage": {"storageClassName": "local"}}, [], UNKNOWN),
        ({"storage": {"storageClassName": "local"}}, [profile("local")], UNKNOWN),
        ({"storage": {"storageClassName": "local"}}, [profile("local", {})], UNKNOWN),
        ({"storage": {"storageClassName": "x"}}, [profile("x", BLOCK_RWO, FILES_RWX)], NOT_SHARED),
        (
            {"storage": {"storageClassName": "x", "volumeMode": "Filesystem"}},
            [profile("x", BLOCK_RWO, FILES_RWX)],
            YES,
        ),
        (
            {"storage": {"storageClassName": "x", "volumeMode": "Other"}},
            [profile("x", BLOCK_RWO, FILES_RWX)],
            UNKNOWN,
        ),
        ({"storage": {}}, [SHARED_PROFILE], UNKNOWN),
        ({"storage": {}}, [SHARED_PROFILE, storage_class("shared", everything="true")], YES),
        (
            {"storage": {}},
            [
                LOCAL_PROFILE,
                storage_class("local", vms="true"),
                storage_class("shared", everything="true"),
            ],
            NOT_SHARED,
        ),
        (
            {"storage": {}, "contentType": "archive"},
            [
                SHARED_PROFILE,
                storage_class("local", vms="true"),
                storage_class("shared", everything="true"),
            ],
            YES,
        ),
        ({"storage": {}}, [SHARED_PROFILE, storage_class("shared", vms="false")], UNKNOWN),
        (
            {"storage": {}},
            [
                SHARED_PROFILE,
                storage_class("local", vms="true"),
                storage_class("shared", "2026-02-02T00:00:00Z", "true"),
            ],
            YES,
        ),
        (
            {"storage": {}},
            [SHARED_PROFILE, storage_class("z", vms="true"), storage_class("shared", vms="true")],
            YES,
        ),
    ],
)
def test_what_a_template_leads_to(spec, objects, answer):
    assert judged(from_template(spec), *objects) == answer


def test_a_preference_may_name_the_storage_class_of_templates():
    open_spec = {"storage": {}}
    prefers = windows({"volumes": {"preferredStorageClassName": "shared"}})
    defaults = [storage_class("local", vms="true"), LOCAL_PROFILE, SHARED_PROFILE]
    assert judged(from_template(open_spec, "windows"), prefers, *defaults) == YES
    assert judged(from_template(open_spec, "windows"), *defaults) == UNKNOWN
    named_class = {"storage": {"storageClassName": "local"}}
    assert judged(from_template(named_class, "windows"), prefers, *defaults) == NOT_SHARED
    only_volume = with_volume(dataVolume={"name": "root"})
    only_volume.data["spec"]["preference"] = {"name": "windows"}
    volume = data_volume("root", open_spec)
    assert judged(only_volume, volume, prefers, *defaults) == NOT_SHARED
