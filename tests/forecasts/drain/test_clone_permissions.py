"""VMs whose disks KubeVirt does not create: the service account may not copy,
or another message.
"""

from tests.healthy.parts import ago
from virt_admit.forecasts.drain.starts import failed_creations
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

DENIED = (
    "Error encountered while creating DataVolumes: not authorized to create DataVolume: User "
    "system:serviceaccount:shop:default has insufficient permissions in clone source namespace "
    "images"
)


def vm(message, minutes=25):
    failed = {"type": "Failure", "status": "True", "reason": "FailedCreate", "message": message}
    disk = {
        "metadata": {"name": "root"},
        "spec": {"source": {"pvc": {"namespace": "images", "name": "base"}}},
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "db", "namespace": "shop"},
        "spec": {"runStrategy": "Always", "dataVolumeTemplates": [disk], "template": {"spec": {}}},
        "status": {"conditions": [failed | {"lastTransitionTime": ago(minutes=minutes)}]},
    }


def role(name, *rules):
    of_rules = [
        {"apiGroups": [group], "resources": [what], "verbs": ["*"]} for group, what in rules
    ]
    api = "rbac.authorization.k8s.io/v1"
    return {"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": name}, "rules": of_rules}


def found(message, *objects, **fields):
    every = [Object(each) for each in (vm(message, **fields), *objects)]
    return failed_creations.problem(every[0], Snapshot(every, ["*"], time=ago()))


def test_a_service_account_may_not_copy():
    cloner = role("cloner", ("cdi.kubevirt.io", "datavolumes/source"))
    stuck = found(DENIED, role("admin", ("*", "*")), cloner)

    assert stuck.reason == (
        "KubeVirt does not create its DataVolume root for 25 min: ServiceAccount shop/default may "
        "not clone from namespace images (create datavolumes/source there), and KubeVirt asks for "
        "the right of the VM's service account, not of its user"
    )
    assert stuck.remedy == (
        "bind ClusterRole cloner to ServiceAccount shop/default in namespace images; KubeVirt then "
        "creates the disk by itself: kubectl create rolebinding clone-shop-default -n images "
        "--clusterrole=cloner --serviceaccount=shop:default"
    )


def test_no_role_is_known_that_permits_copies_alone():
    stuck = found(
        DENIED, role("admin", ("*", "*")), role("edit", ("cdi.kubevirt.io", "datavolumes"))
    )

    made = (
        "kubectl create clusterrole cdi-cloner --verb=create "
        "--resource=datavolumes.cdi.kubevirt.io/source"
    )
    assert f"a ClusterRole with datavolumes/source ({made})" in stuck.remedy
    assert stuck.remedy.endswith("--clusterrole=cdi-cloner --serviceaccount=shop:default")


def test_another_cause_keeps_a_disk_from_being_created():
    stuck = found(
        "Error encountered while creating DataVolumes: the server is currently unable to handle "
        "the request"
    )

    assert stuck.reason.startswith(
        "KubeVirt cannot create its DataVolumes for 25 min: the server is currently unable"
    )
    assert stuck.remedy.startswith(
        "repair what this names; the events of the VM may say more: kubectl describe vm db"
    )


def test_a_message_about_a_field_is_corrected_in_the_vm():
    stuck = found("Failure while starting VMI: spec.domain.cpu.cores must be positive")

    assert stuck.remedy.startswith("correct in the VM what this names")


def test_a_message_that_is_new_says_nothing_yet():
    assert found(DENIED, minutes=1) is None
