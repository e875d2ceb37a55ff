"""Drains of VMs that kube-scheduler would make room for by preemption: neither yes nor no,
and the reason says so.
"""

import pytest

from tests import builders
from tests.builders import kubevirt, manifest, node, owned_by, vm
from tests.kube.lookups import in_webhook
from virt_admit.forecasts.drain import capacity, drain_plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.placement import preemption_effects
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.model.kubernetes.cluster import Snapshot

LABELS = {"kubernetes.io/arch": "amd64"}
DEVICES = {f"devices.kubevirt.io/{name}": "1k" for name in ("kvm", "tun", "vhost-net")}
ROOM = {"cpu": "64", "memory": "16Gi", "pods": "250", "ephemeral-storage": "9Gi"} | DEVICES
NODES = [node(name, LABELS, allocatable=ROOM) for name in ("n1", "n2")]
NS = manifest("v1", "Namespace", "shop")


def vmi(name, on, strategy="LiveMigrate", **spec):
    status = {
        "phase": "Running",
        "nodeName": on,
        "conditions": [{"type": "LiveMigratable", "status": "True"}],
    }
    given = {"evictionStrategy": strategy, "architecture": "amd64"}
    given |= {"domain": {"cpu": {"model": "host-passthrough"}, "devices": {}}} | spec
    metadata = {"uid": f"u-{name}", "ownerReferences": owned_by("VirtualMachine", name)}
    return manifest(
        builders.KUBEVIRT,
        "VirtualMachineInstance",
        name,
        "shop",
        metadata=metadata,
        spec=given,
        status=status,
    )


def launcher(name, on, memory="10Gi", **spec):
    labels = {
        "kubevirt.io": "virt-launcher",
        "kubevirt.io/created-by": f"u-{name}",
        "vm.kubevirt.io/name": name,
    }
    owner = {"kind": "VirtualMachineInstance", "name": name, "uid": f"u-{name}", "controller": True}
    return manifest(
        "v1",
        "Pod",
        f"virt-launcher-{name}-x",
        "shop",
        metadata={"labels": labels, "ownerReferences": [owner]},
        spec={
            "nodeName": on,
            "containers": [{"name": "c", "resources": {"requests": {"memory": memory}}}],
        }
        | spec,
        status={"phase": "Running"},
    )


BATCH = [
    manifest(
        "v1",
        "Pod",
        "job",
        "shop",
        spec=launcher("job", "n2").data["spec"],
        status={"phase": "Running"},
    )
]
LOW = [vmi("low", "n2"), launcher("low", "n2")]
HIGH = launcher("high", "n1", priority=1000)
NAMED = {"priorityClassName": "gold"}


def cluster(*objects):
    return builders.complete(*NODES, NS, kubevirt(), *objects)


def judged(*objects):
    plan = drain_plan.plan(cluster(*objects), "n1")
    (row,) = plan.nodes[0].forecasts
    return plan, row


def test_a_vm_that_preempts_is_unknown_and_its_victims_are_named():
    plan, row = judged(vmi("high", "n1"), HIGH, *LOW)

    assert row.outcome is VmOutcome.UNKNOWN
    assert "preempt pods of lower priority, such as on node n2" in row.reason
    assert row.reason.endswith("VMs among them would be shut down: shop/low")
    assert row.remedy
    assert plan.drainable is None
    assert plan.nodes[0].packing.fits is None
    assert plan.unseen == (preemption_effects.UNSEEN,)


@pytest.mark.parametrize(
    "running",
    [
        launcher("high", "n1"),
        launcher("high", "n1", priority=0),
        launcher("high", "n1", priority=1000, preemptionPolicy="Never"),
        launcher("high", "n1", memory="20Gi", priority=1000),
    ],
)
def test_without_preemption_it_blocks(running):
    plan, row = judged(vmi("high", "n1"), running, *LOW)

    assert row.outcome is VmOutcome.BLOCKS
    assert "missing on n2" in row.reason
    assert plan.drainable is False


def test_a_vm_that_restarts_says_what_its_start_depends_on():
    plan, row = judged(vm(name="high", runStrategy="Always"), vmi("high", "n1", "None"), HIGH, *LOW)

    assert row.outcome is VmOutcome.RESTARTS
    assert "preempt" in row.reason
    assert plan.drainable is True


@pytest.mark.parametrize(
    ("spec", "pods", "outcome"),
    [
        (NAMED, [], VmOutcome.UNKNOWN),  # requests are computed, and no pod has a priority
        ({}, [], VmOutcome.BLOCKS),
        (NAMED, [launcher("high", "n1")], VmOutcome.UNKNOWN),  # a snapshot without priorities
        (NAMED, [launcher("high", "n1", priority=0)], VmOutcome.BLOCKS),
    ],
)
def test_the_value_of_a_class_is_not_read(spec, pods, outcome):
    guest = {"cpu": {"model": "host-passthrough"}, "devices": {}, "memory": {"guest": "10Gi"}}
    plan, row = judged(vmi("high", "n1", domain=guest, **spec), *pods, *LOW)

    assert row.outcome is outcome
    assert plan.drainable is (None if outcome is VmOutcome.UNKNOWN else False)
    assert "may preempt" in row.reason or outcome is VmOutcome.BLOCKS


def test_a_victim_of_an_unknown_class_may_have_the_lowest_priority():
    guest = {"cpu": {"model": "host-passthrough"}, "devices": {}, "memory": {"guest": "10Gi"}}
    unknown = vmi("low", "n2", domain=guest, **NAMED)
    assert (
        judged(vmi("high", "n1"), launcher("high", "n1"), unknown)[1].outcome is VmOutcome.UNKNOWN
    )


TWO = [
    vmi("x", "n1"),
    vmi("y", "n1"),
    *(launcher(name, "n1", memory="6Gi", priority=5) for name in "xy"),
]


@pytest.mark.parametrize(("priority", "fits"), [(0, None), (5, False)])
def test_all_vms_of_a_node_may_fit_only_after_preemption(priority, fits):
    plan = drain_plan.plan(
        cluster(*TWO, vmi("z", "n2"), launcher("z", "n2", memory="5Gi", priority=priority)), "n1"
    )

    assert {row.outcome for row in plan.nodes[0].forecasts} == {VmOutcome.MIGRATES}
    assert plan.nodes[0].packing.fits is fits
    assert plan.unseen == ((preemption_effects.UNSEEN,) if fits is None else ())


# --- rules at admission, and the rehearsal --------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"priority": 1000}, False),
        ({"priority": 1000, "preemptionPolicy": "Never"}, True),
        ({"priority": 0}, True),
    ],
)
def test_rules_at_admission_are_silent_where_preemption_may_make_room(spec, says):
    objects = [*NODES, NS, kubevirt(), vmi("high", "n1"), launcher("high", "n1", **spec), *LOW]

    for seen in (Snapshot(objects, complete=["*"]), in_webhook(objects)):
        assert bool(capacity.shortage(seen, "n1")) is says


@pytest.mark.parametrize(("priority", "possible"), [(5, None), (0, False)])
def test_an_upgrade_that_ends_for_lack_of_room_may_go_on_by_preemption(priority, possible):
    """Nodes n1 and n2 can be drained, but not both: each VM can go to n3 alone,
    and it has room for one of them.
    """
    groups = {"n1": {"x": ""}, "n2": {"y": ""}, "n3": {"x": "", "y": ""}}
    nodes = [node(name, LABELS | labels, allocatable=ROOM) for name, labels in groups.items()]
    vms = [vmi(name, on, nodeSelector={name: ""}) for name, on in (("x", "n1"), ("y", "n2"))]
    pods = [launcher("x", "n1"), launcher("y", "n2", priority=priority)]
    found = builders.complete(*nodes, NS, kubevirt(), *vms, *pods)
    result = rehearsal.rehearse(found, rehearsal.Options(), forecast_only=True)

    assert drain_plan.plan(found).drainable is True
    assert [stop.node for stop in result.stops] == ["n2"]
    assert result.possible is possible
    assert (preemption_effects.UNSEEN in result.unseen) is (possible is None)


def test_the_rehearsal_does_not_know_what_a_drain_does_not_know():
    result = rehearsal.rehearse(cluster(vmi("high", "n1"), HIGH), rehearsal.Options())
    unknown = rehearsal.rehearse(cluster(vmi("high", "n1"), HIGH, *BATCH), rehearsal.Options())

    assert result.possible is True
    assert unknown.possible is None
    assert any("preempt" in what for what in unknown.unseen)


def test_a_single_vm_that_preemption_cannot_help_fits_nowhere():
    """The spread is violated by pods that nothing preempts."""
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/arch",
            "whenUnsatisfiable": "DoNotSchedule",
            "minDomains": 3,
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
    peers = [
        manifest(
            "v1",
            "Pod",
            name,
            "shop",
            metadata={"labels": {"app": "web"}},
            spec=launcher(name, "n2", memory="1Gi", priority=1000).data["spec"],
            status={"phase": "Running"},
        )
        for name in ("web-1", "web-2")
    ]
    subject = vmi("high", "n1", "None", topologySpreadConstraints=spread, **NAMED)

    plan, row = judged(subject, HIGH, *peers, vm(name="high", runStrategy="Always"))

    assert row.placement.preempting == ""
    assert row.placement.certain == ()
    # it restarts, but only later
    assert (plan.nodes[0].packing.fits, plan.drainable) == (False, True)
