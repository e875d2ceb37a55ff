"""Operators and control planes that do not go on: upgrade and explain name the object that holds
them and what ends it, from one value."""

from tests.healthy.parts import ago
from virt_admit.forecasts.drain.control import held_operators
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates.operators import etcd_leftovers

OLM = "operators.coreos.com/v1alpha1"
PLAN = {
    "apiVersion": OLM,
    "kind": "InstallPlan",
    "metadata": {"name": "install-a", "namespace": "cnv", "creationTimestamp": ago(hours=30)},
    "spec": {"approval": "Automatic", "approved": True, "clusterServiceVersionNames": ["hco.v2"]},
    "status": {"phase": "Installing"},
}
OWNER = {
    "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
    "kind": "KubeadmControlPlane",
    "metadata": {
        "name": "cp",
        "namespace": "team",
        "labels": {"cluster.x-k8s.io/cluster-name": "guest"},
    },
    "spec": {"version": "v1.33.4"},
    "status": {
        "lastRemediation": {"machine": "cp-b", "time": ago(hours=1)},
        "conditions": [
            {"type": "RollingOut", "status": "True", "lastTransitionTime": ago(hours=3)},
            {
                "type": "EtcdClusterHealthy",
                "status": "False",
                "lastTransitionTime": ago(hours=2),
                "message": (
                    "* Etcd member 255 (Name not yet assigned) does not have a corresponding "
                    "Machine"
                ),
            },
        ],
    },
}


def subscription(name, package, approval, **status):
    return {
        "apiVersion": OLM,
        "kind": "Subscription",
        "metadata": {"name": name, "namespace": "cnv"},
        "spec": {"name": package, "installPlanApproval": approval},
        "status": status,
    }


HCO = subscription(
    "hco",
    "kubevirt-hyperconverged",
    "Automatic",
    installedCSV="hco.v1",
    currentCSV="hco.v2",
    installPlanRef={"name": "install-a"},
)


def group(name, age, **labels):
    return {
        "apiVersion": "operators.coreos.com/v1",
        "kind": "OperatorGroup",
        "metadata": {
            "name": name,
            "namespace": "cnv",
            "creationTimestamp": ago(hours=age),
            "labels": labels,
        },
    }


def version(reason, *, installed_before):
    return {
        "apiVersion": OLM,
        "kind": "ClusterServiceVersion",
        "metadata": {"name": "hco.v1", "namespace": "cnv"},
        "status": {
            "phase": "Failed",
            "reason": reason,
            "message": "csv created in namespace with multiple operatorgroups",
            "lastTransitionTime": ago(hours=100),
            "conditions": [
                {"phase": "Succeeded", "lastTransitionTime": ago(hours=installed_before)}
            ],
        },
    }


def machine(name, age, **status):
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": {
            "name": name,
            "namespace": "team",
            "creationTimestamp": ago(hours=age),
            "ownerReferences": [
                {
                    "apiVersion": OWNER["apiVersion"],
                    "kind": OWNER["kind"],
                    "name": "cp",
                    "controller": True,
                }
            ],
        },
        "status": status,
    }


WORKS = machine(
    "cp-a",
    900,
    nodeRef={"name": "cp-a"},
    conditions=[{"type": "EtcdMemberHealthy", "status": "True"}],
)
WAITS = machine("cp-c", 0.8)
VMI = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {
        "name": "cp-c",
        "namespace": "team",
        "labels": {"cluster.x-k8s.io/cluster-name": "guest"},
    },
}


def snapshot(*objects):
    return Snapshot(map(Object, objects), ["*"], time=ago())


def held(*objects):
    return held_operators.of_cluster(snapshot(*objects))


def test_an_approval_that_another_subscription_asks_for():
    plan = {
        **PLAN,
        "spec": {**PLAN["spec"], "approval": "Manual", "approved": False},
        "status": {"phase": "RequiresApproval"},
    }
    manual = subscription("nmo", "node-maintenance-operator", "Manual")
    (found,) = held(HCO, manual, plan)
    assert "from v1 to v2 waits for approval for 30 h: InstallPlan cnv/install-a" in found.reason
    assert "Subscription nmo of the namespace is Manual" in found.reason
    assert found.remedy.endswith(
        'kubectl patch installplan install-a -n cnv --type=merge -p \'{"spec":{"approved":true}}\''
    )
    assert not held({**HCO, "spec": {**HCO["spec"], "installPlanApproval": "Manual"}}, plan)


def test_an_approval_that_would_update_a_held_operator():
    plan = {
        **PLAN,
        "spec": {
            "approval": "Manual",
            "approved": False,
            "clusterServiceVersionNames": ["hco.v2", "nmo.v3"],
        },
        "status": {"phase": "RequiresApproval"},
    }
    manual = subscription("nmo", "node-maintenance-operator", "Manual")
    manual["status"] = {**manual["status"], "installedCSV": "nmo.v2", "currentCSV": "nmo.v3"}
    (found,) = held(HCO, manual, plan)
    assert "also installs nmo.v3 of Subscription nmo, which is Manual on purpose" in found.remedy
    assert found.remedy.endswith(": kubectl describe installplan install-a -n cnv")


def test_more_groups_than_fit_into_a_command():
    csv = version("TooManyOperatorGroups", installed_before=500)
    late = [group(f"g{number}", 100) for number in range(30)]
    (found,) = held(HCO, csv, group("a", 900), *late)
    assert found.remedy.endswith(": kubectl get operatorgroups -n cnv -o yaml")
    assert len(found.reason) < 800


def test_several_groups_the_update_is_younger_than_the_failure():
    csv = version("TooManyOperatorGroups", installed_before=500)
    late = group("b", 100, **{"kustomize.toolkit.fluxcd.io/name": "infra"})
    plan = {
        **PLAN,
        "status": {
            "phase": "Installing",
            "conditions": [
                {
                    "type": "Installed",
                    "status": "False",
                    "message": "more than one operator group(s) are managing this namespace",
                }
            ],
        },
    }
    (found,) = held(HCO, plan, csv, group("a", 900), late)
    assert "is stuck for 30 h: InstallPlan cnv/install-a does not go on" in found.reason
    assert "hco.v1 failed 4 days 4 h ago (TooManyOperatorGroups)" in found.reason
    assert "take b out of Flux Kustomization infra; then delete it" in found.remedy
    assert "(kubectl delete operatorgroup b -n cnv)" in found.remedy
    (unsure,) = held(HCO, plan, csv, group("a", 900), group("b", 600))
    assert "kubectl delete" not in unsure.remedy


def test_no_update_is_said_to_last_where_none_has_begun():
    csv = version("TooManyOperatorGroups", installed_before=500)
    newest = {**HCO, "status": {"installedCSV": "hco.v1", "currentCSV": "hco.v1"}}
    (found,) = held(newest, csv, group("a", 900), group("b", 100))
    assert "would not go on: ClusterServiceVersion hco.v1 failed 4 days 4 h ago" in found.reason


def test_an_unstarted_member_of_etcd():
    (found,) = held(OWNER, WORKS, WAITS)
    assert "does not end its roll-out to v1.33.4, which lasts for 3 h" in found.reason
    assert "(255) for 2 h" in found.reason
    assert "Machine cp-c has no Node" in found.reason
    assert "etcdctl member remove ff" in found.remedy
    assert "exec -n kube-system etcd-cp-a -- etcdctl" in found.remedy
    of_vm = etcd_leftovers.of_vmi(Object(VMI), snapshot(OWNER, WORKS, WAITS))
    assert of_vm is not None
    assert of_vm.reason == found.reason


def test_a_member_that_may_be_of_the_machine_that_joins():
    hostile = {"lastRemediation": {"machine": "m" * 5000, "time": ago(hours=1)}}
    status = {**OWNER["status"], **hostile}
    (bounded,) = held({**OWNER, "spec": {"version": "v" * 5000}, "status": status}, WORKS)
    assert len(bounded.reason) < 600
    assert not held(OWNER, WORKS, machine("cp-c", 0.1))
    assert not held(OWNER, WORKS, machine("cp-c", 2.5))
    early = {"machine": "cp-z", "time": ago(hours=300)}
    (other,) = held({**OWNER, "status": {**OWNER["status"], "lastRemediation": early}}, WORKS)
    assert "etcdctl" not in other.remedy  # the member may hold data


def test_a_failed_plan_of_an_operator_on_which_no_vm_depends():
    plan = {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "InstallPlan",
        "metadata": {"name": "install-f", "namespace": "cnv"},
        "status": {"phase": "Failed", "message": "no space left"},
    }
    which = subscription("flows", "flows", "Automatic", installPlanRef={"name": "install-f"})
    (found,) = held(which, plan)
    assert found.holds is False
    assert found.reason.endswith(
        "InstallPlan cnv/install-f failed: no space left. The update of the nodes does not wait "
        "for it"
    )
    assert "kubectl delete installplan install-f -n cnv" in found.remedy
    assert not list(held_operators.briefly(snapshot(which, plan)))
    plan["status"]["phase"] = "Complete"
    assert not held(which, plan)
