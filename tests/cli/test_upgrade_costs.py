"""``virt-admit upgrade`` names what a possible upgrade costs, and what it risks, in the words of
``drain``.
"""

import re
from itertools import chain

import pytest

from tests.builders import claim, manifest
from tests.cli.rehearsals import upgrade
from tests.cli.test_upgrade import kubevirt, node, vm
from tests.forecasts.drain import vm_motion as motion
from virt_admit.cli.commands.drain import forecast
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.targets.closed_targets import TITLE
from virt_admit.forecasts.upgrade import vm_interruptions
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE
from virt_admit.reports.html.levels import GOOD, SEVERE
from virt_admit.reports.upgrade import html


def seen(*groups):
    """Return a cluster of two nodes with room, of which everything can be read."""
    return Snapshot([node("a"), node("b"), *chain.from_iterable(groups), kubevirt()], ["*"])


def answers(cluster):
    """Return the words of ``drain --all`` and of ``upgrade`` before the first colon."""
    plan = drain_plan.plan(cluster)
    drained = forecast(plan, cluster).render("text").rpartition("upgraded today? ")[2]
    return drained.partition(":")[0], upgrade(cluster, Options(), "text")[0].partition(":")[0]


OFF = vm("batch", "a", strategy="None", run="Manual")


@pytest.mark.parametrize(
    ("cluster", "word", "level"),
    [
        (seen(vm("x", "a")), "Yes", GOOD),
        (seen(vm("x", "a", strategy="None")), "Yes", GOOD),
        (seen(vm("x", "a"), OFF), "Yes, at a cost", SEVERE),
    ],
)
def test_drain_and_upgrade_say_the_cost_alike(cluster, word, level):
    assert answers(cluster) == (word, word)
    text, page = upgrade(cluster, Options(), "text")[0], html.page(rehearse(cluster, Options()))
    assert (page.verdict.level, page.verdict.word) == (level, word)
    costs = "1 VM would stay stopped." if level == SEVERE else ""
    assert text.splitlines()[0].endswith(costs or " min.")
    assert costs in page.verdict.text


def with_disk(name, on):
    """Return a VM with a hotplugged disk."""
    machine, vmi = vm(name, on)
    vmi.data["spec"]["volumes"] = [
        {
            "name": "data",
            "persistentVolumeClaim": {"claimName": f"data-{name}", "hotpluggable": True},
        }
    ]
    volume = {"claimRef": {"namespace": "shop", "name": f"data-{name}"}, "nfs": {}}
    shared = claim(f"data-{name}", "ReadWriteMany")
    shared.data["spec"] |= {"volumeName": f"pv-{name}"}
    shared.data["status"] = {"phase": "Bound"}
    return [machine, vmi, shared, manifest("v1", "PersistentVolume", f"pv-{name}", spec=volume)]


@pytest.mark.parametrize(("release", "risky"), [("v1.6.0", True), ("v1.6.1", False)])
def test_what_a_drain_may_do_to_hotplugged_disks_is_said_of_the_upgrade_too(release, risky):
    cluster = seen(with_disk("x", "a"), with_disk("y", "b"), vm("z", "a"))
    cluster.get(KUBEVIRT, "kubevirt", "kubevirt").data["status"] = {
        "observedKubeVirtVersion": release
    }
    drained = forecast(drain_plan.plan(cluster, "a"), cluster).render("text")
    told, text = (
        "nothing keeps the pod that attaches data-x",
        upgrade(cluster, Options(), "text")[0],
    )
    page = html.page(rehearse(cluster, Options()))

    assert text.startswith("Yes: ")
    assert (told in drained, f"at risk: shop/x: {told}" in text) == (risky, risky)
    assert ("the same may happen to shop/y\n" in text) is risky
    shown = [
        each.name for cause in page.causes if cause.word == "is at risk" for each in cause.items
    ]
    assert sorted(shown) == ["shop/x", "shop/y"] * risky


@pytest.mark.parametrize(
    ("mode", "attributes", "driver", "risky"),
    [
        ("Block", {}, "rook-ceph.rbd.csi.ceph.com", False),
        ("Block", {"mounter": "rbd", "unmapOptions": "noudev"}, "rbd.csi.ceph.com", False),
        ("Block", {"mounter": "rbd-nbd"}, "rbd.csi.ceph.com", True),
        ("Block", {"tryOtherMounters": "true"}, "rbd.csi.ceph.com", True),
        ("Block", {"unmapOptions": "krbd:force"}, "rbd.csi.ceph.com", True),
        ("Filesystem", {}, "rbd.csi.ceph.com", True),
        ("Block", {}, "driver.longhorn.io", True),
    ],
)
def test_a_disk_that_the_kernel_does_not_unmap_stays(mode, attributes, driver, risky):
    *others, volume = with_disk("x", "a")
    volume.data["spec"] = {"claimRef": volume.data["spec"]["claimRef"], "volumeMode": mode}
    volume.data["spec"]["csi"] = {"driver": driver, "volumeAttributes": attributes}
    cluster = seen([*others, volume], vm("z", "b"))
    cluster.get(KUBEVIRT, "kubevirt", "kubevirt").data["status"] = {
        "observedKubeVirtVersion": "v1.6.0"
    }
    drained = forecast(drain_plan.plan(cluster, "a"), cluster).render("text")
    assert ("nothing keeps the pod that attaches data-x" in drained) is risky


def test_an_upgrade_of_harvester_evicts_no_pod_before_the_vms_have_left():
    cluster = seen(with_disk("x", "a"), with_disk("y", "b"), vm("z", "a"))
    cluster.get(KUBEVIRT, "kubevirt", "kubevirt").data["status"] = {
        "observedKubeVirtVersion": "v1.6.0"
    }
    for each in cluster.list(NODE):
        each.data["metadata"].setdefault("labels", {})["harvesterhci.io/managed"] = "true"
    drained = forecast(drain_plan.plan(cluster, "a"), cluster).render("text")

    assert "pauses at an I/O error (an upgrade of Harvester evicts it only once the VM" in drained
    assert not [each.risk for each in rehearse(cluster, Options()).vms if each.risk]


@pytest.mark.parametrize(
    ("drains", "moved", "risky"),
    [
        (False, {}, True),  # a drain that begins now evicts the pod that attaches the disk
        (True, {}, False),  # its drain has evicted it
        (False, {"targetNodeDomainReadyTimestamp": motion.ago(5), "mode": "PostCopy"}, False),
    ],
)
def test_the_risk_of_a_vm_that_migrates_is_said_alike(drains, moved, risky):
    machine, vmi, *rest = with_disk("x", "a")
    uid = {"migrationUid": "uid-evacuation-1", "sourceNode": "a", "targetNode": "b"}
    since = {"startTimestamp": motion.ago(20)}
    vmi.data["status"]["migrationState"] = uid | since | moved
    move = motion.migration(of="x", phase="Running", drain=drains, since={"Running": 20})
    cluster = seen([machine, vmi, *rest, move])
    cluster.get(KUBEVIRT, "kubevirt", "kubevirt").data["status"] = {
        "observedKubeVirtVersion": "v1.6.0"
    }
    (row,) = drain_plan.plan(cluster, "a").nodes[0].forecasts
    once, often = (vm_interruptions._risk(row, moves, cluster) for moves in (1, 3))
    assert row.state.migration is not None
    assert ("nothing keeps the pod" in row.reason, once is not None) == (risky, risky)
    assert ("once its migration has ended" in row.remedy) is risky
    (later,) = rehearse(cluster, Options()).vms  # a drain of the next node
    assert later.moves > 1
    assert later.risk == often
    assert often.remedy.startswith("migrate the VM before the drain")


TAINT = [{"key": "dedicated", "effect": "NoSchedule"}]
UNSERVED = node("c", {"kubevirt.io/schedulable": "false"})


def closing(*groups, third, complete=("*",)):
    """Return what both verbs say about a third node that takes no VM."""
    objects = [node("a"), node("b"), third, *chain.from_iterable(groups), kubevirt()]
    cluster = Snapshot(objects, complete)
    plan = drain_plan.plan(cluster)
    drained, text = plan.closed, upgrade(cluster, Options(), "text")[0]
    said = _reasons(text)
    assert said == {each.reason for each in drained}
    assert said == _reasons(forecast(plan, cluster).render("text"))
    assert (TITLE in dict(html.page(rehearse(cluster, Options())).notes)) is bool(said)
    return said


def _reasons(text):
    return set(re.findall(r"^No VM can go to c now: (.*)$", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("third", "said"),
    [
        (node("c"), set()),
        (node("c", unschedulable=True), {"cordoned"}),
        (node("c", taints=TAINT), {"taint dedicated"}),
        (node("c", {"node-role.kubernetes.io/control-plane": ""}, taints=TAINT), set()),
        (node("c", unschedulable=True, taints=TAINT), {"cordoned; taint dedicated"}),
        (UNSERVED, {"virt-handler is not serving it"}),
        (node("c", memory="1Gi"), set()),  # it has no room: that may change during the upgrade
    ],
)
def test_a_node_that_takes_no_vm_is_named_although_the_upgrade_completes(third, said):
    assert closing(vm("x", "a"), vm("y", "b"), third=third) == said


def test_a_node_that_is_meant_for_some_vms_is_not_closed():
    tolerant = vm("z", "c")
    tolerant[1].data["spec"]["tolerations"] = [{"operator": "Exists"}]
    tainted, cordoned = node("c", taints=TAINT), node("c", unschedulable=True)
    assert closing(vm("x", "a"), tolerant, third=tainted) == set()
    assert closing(vm("x", "a"), vm("z", "c"), third=cordoned) == {"cordoned"}


def test_where_vms_could_not_be_read_no_node_is_called_closed():
    read = ("nodes", "pods", "virtualmachines.kubevirt.io")
    assert closing(vm("x", "a"), third=node("c", unschedulable=True), complete=read) == set()


def test_a_cordon_is_told_with_its_age_and_what_set_it():
    third = node("c", unschedulable=True)
    owned = {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    third.data["metadata"]["managedFields"] = [owned]
    assert closing(vm("x", "a"), third=third) == {"cordoned by kubectl"}


@pytest.mark.parametrize(("nodes", "hidden"), [(8, 0), (9, 0), (10, 2)])
def test_no_line_hides_a_single_wave(nodes, hidden):
    cluster = Snapshot([node(f"n{number}") for number in range(nodes)], complete=["*"])
    text = upgrade(cluster, Options(), "text")[0]

    assert text.count("ends +") == nodes - hidden
    assert ("… 2 more waves …" in text) is bool(hidden)
