"""A Cluster of Cluster API that is paused is named by the drain of its VMs, by the upgrade and by
its pools."""

import pytest

from tests.healthy.parts import ago
from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.drain.control import held_operators
from virt_admit.forecasts.drain.vmi_evictions import Effect
from virt_admit.forecasts.upgrade import pool_obstacles
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates.operators import paused_clusters

OF_TEAM = {"cluster.x-k8s.io/cluster-name": "team"}
UNPAUSE = (
    "kubectl patch clusters.cluster.x-k8s.io team -n tenant --type=merge -p "
    """'{"spec":{"paused":false}}'"""
)


def owner(*, since, paused=True):
    conditions = [{"type": "Paused", "status": "True", "lastTransitionTime": since}]
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": "team", "namespace": "tenant"},
        "spec": {"paused": paused},
        "status": {"conditions": conditions},
    }


def pool(generation=2):
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDeployment",
        "metadata": {"name": "md", "namespace": "tenant", "generation": generation},
        "spec": {"clusterName": "team"},
        "status": {"observedGeneration": 1},
    }


VMI = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {
        "name": "md-1",
        "namespace": "infra",
        "labels": {
            **OF_TEAM,
            "capk.cluster.x-k8s.io/kubevirt-machine-name": "md-1",
            "capk.cluster.x-k8s.io/kubevirt-machine-namespace": "tenant",
        },
    },
    "spec": {"evictionStrategy": "External"},
    "status": {"phase": "Running", "nodeName": "n1"},
}


def capk(ready="True"):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "capk-controller-manager-1", "namespace": "capk-system"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    }


def world(*items):
    return Snapshot(map(Object, items), ["*"], time=ago())


def reaction(*items):
    return vmi_evictions.reaction(Object(VMI), world(VMI, *items))


def test_a_vm_of_a_paused_cluster():
    found = reaction(owner(since=ago(minutes=200)), capk())

    assert found.effect is Effect.ATTENDED
    assert (
        "has to move it, but Cluster tenant/team is paused for 3 h 20 (spec.paused)" in found.reason
    )
    assert found.remedy == f"make sure that no clusterctl move runs, then unpause it: {UNPAUSE}"


def test_a_controller_that_is_ready_is_not_doubted():
    assert "its pod capk-system/capk-controller-manager-1 is ready" in reaction(capk()).reason
    assert "whether that runs is not known" in reaction(capk(ready="False")).reason
    assert "paused" not in reaction(owner(since=ago(hours=2), paused=False)).reason


def test_an_upgrade_names_it_where_a_change_waits():
    (found,) = held_operators.of_cluster(world(owner(since=ago(hours=2)), pool()))

    assert (
        "so Cluster API does nothing for it: a change of MachineDeployment md waits" in found.reason
    )
    assert found.remedy.endswith(UNPAUSE)


def test_hypershift_pauses_its_own_cluster():
    paused = owner(since=ago(hours=2))
    paused["metadata"]["annotations"] = {"hypershift.openshift.io/cluster": "clusters/team"}
    (found,) = held_operators.of_cluster(world(paused, pool()))

    assert found.remedy == (
        "HyperShift sets it: see spec.pausedUntil of HostedCluster clusters/team: "
        "kubectl get hostedclusters.hypershift.openshift.io team -n clusters -o yaml"
    )


def test_a_move_that_runs_and_one_for_which_nothing_waits():
    assert held_operators.of_cluster(world(owner(since=ago(minutes=9)), pool())) == ()
    assert held_operators.of_cluster(world(owner(since=ago(hours=2)), pool(generation=1))) == ()


def test_no_move_that_may_run_is_disturbed():
    young = reaction(owner(since=ago(minutes=9)))

    assert "Cluster tenant/team is paused for 9 min" in young.reason
    assert young.remedy.startswith("wait, as a clusterctl move may run")
    assert "kubectl" not in young.remedy


def test_what_belongs_to_many_paused_clusters_is_read_once():
    class Counting(Snapshot):
        reads = 0

        def known(self, kind, namespace=None):
            self.reads += 1
            return super().known(kind, namespace)

    teams = [owner(since=ago(hours=2)) for _ in range(30)]
    for number, team in enumerate(teams):
        team["metadata"]["name"] = f"team-{number}"
    sets = [
        {
            **pool(),
            "kind": kind,
            "metadata": {"name": f"{kind}-{number}", "namespace": "tenant"},
            "spec": {"clusterName": f"team-{number}", "replicas": 2},
        }
        for number in range(30)
        for kind in ("MachineSet", "MachineDeployment")
    ]
    counting = Counting(map(Object, [*teams, *sets]), ["*"], time=ago())

    assert len(held_operators.of_cluster(counting)) == 30
    for each in sets:
        assert list(pool_obstacles.paused(Object(each), counting))
    assert counting.reads < len(sets)


def test_the_pool_of_a_paused_cluster():
    paused = world(owner(since=ago(hours=2)), pool())
    (found,) = pool_obstacles.paused(Object(pool()), paused)

    assert found.reason.startswith("Cluster tenant/team is paused for 2 h (spec.paused)")
    assert (
        list(pool_obstacles.paused(Object(pool()), world(owner(since=ago(), paused=False)))) == []
    )
    assert (
        paused_clusters.of_vmi(Object({**VMI, "metadata": {"name": "a", "namespace": "b"}}), paused)
        is None
    )


def test_a_young_pause_leaves_the_upgrade_of_a_pool_open():
    young = world(owner(since=ago(minutes=2)), pool())

    assert list(pool_obstacles.paused(Object(pool()), young)) == []
    (said,) = pool_obstacles.pause_doubts(Object(pool()), young)
    assert said.startswith("whether the pause ends: Cluster tenant/team is paused for 2 min")
    old = world(owner(since=ago(hours=2)), pool())
    assert list(pool_obstacles.pause_doubts(Object(pool()), old)) == []


def test_a_pool_that_is_paused_by_an_annotation():
    marked = pool()
    marked["metadata"]["annotations"] = {"cluster.x-k8s.io/paused": "true"}
    said = {"type": "Paused", "status": "True", "lastTransitionTime": ago(hours=2)}
    marked["status"]["conditions"] = [said]
    (found,) = pool_obstacles.paused(Object(marked), world(marked))

    assert (
        "MachineDeployment tenant/md is paused for 2 h (annotation cluster.x-k8s.io/paused)"
        in found.reason
    )
    assert found.remedy.endswith(
        "kubectl annotate machinedeployments.cluster.x-k8s.io md -n tenant cluster.x-k8s.io/paused-"
    )


def owned(kind, name, by, **spec):
    """Return an object of Cluster API that another one controls."""
    owner, _, own = by.partition("/")
    metadata = {"name": name, "namespace": "tenant"}
    controller = {"kind": owner, "name": own, "controller": True}
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {**metadata, "ownerReferences": [controller]},
        "spec": {"clusterName": "team", **spec},
    }


@pytest.mark.parametrize(("replicas", "has_machine"), [(0, False), (0, True), (1, False)])
def test_a_paused_machine_set_without_machines_holds_no_pool(replicas, has_machine):
    """A MachineDeployment keeps old MachineSets, to go back to one of them."""
    old = owned("MachineSet", "md-old", "MachineDeployment/md", replicas=replicas)
    old["metadata"]["annotations"] = {"cluster.x-k8s.io/paused": ""}
    machines = [owned("Machine", "m", "MachineSet/md-old")] if has_machine else []
    found = list(pool_obstacles.paused(Object(pool()), world(pool(), old, *machines)))

    assert bool(found) is (has_machine or replicas > 0)


def test_a_pause_of_unknown_age_has_no_command():
    (found,) = held_operators.of_cluster(world(owner(since=None), pool()))

    assert "Cluster tenant/team is paused (spec.paused)" in found.reason
    assert found.remedy.startswith("See who has paused it, and since when")
    assert "kubectl" not in found.remedy
    assert "kubectl" not in reaction(owner(since=None)).remedy
