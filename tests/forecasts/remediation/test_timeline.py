"""The time line from a node failure to the restart of its VMs."""

import pytest

from tests.for_each import for_each
from tests.health_checks import (
    CAPI,
    FAR,
    FENCES,
    SNR,
    capi,
    ladder,
    machine,
    make,
    mhc,
    nhc,
    node,
    template,
)
from virt_admit.forecasts.outage import check_restarts
from virt_admit.forecasts.remediation import timeline
from virt_admit.forecasts.remediation.timeline import Event
from virt_admit.model.kubernetes.cluster import NOTHING, Snapshot, Unseen
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.model.remediation import health_checks

MDR = "machine-deletion-remediation.medik8s.io/v1alpha1"


def profile(name):
    spec = {"workerLatencyProfile": name} if name else {}
    return make("config.openshift.io/v1", "Node", "cluster", spec=spec)


def seconds(span):
    return span.least // SECOND, None if span.most is None else span.most // SECOND


def course(check, *objects):
    found = timeline.timeline(
        health_checks.view(check), Snapshot([node("n0"), machine("m0"), *objects], complete=["*"])
    )
    return [(*seconds(moment.at), moment.event) for moment in found.moments], found.restart


UNKNOWN = [
    {"type": "Ready", "status": "Unknown", "duration": "2m"},
    {"type": "Ready", "status": "False", "duration": "4m"},
]


def test_escalation_of_the_examples():
    steps = [(5, "6m", SNR), (15, "15m", FAR)]
    check = ladder(*steps)
    check.data["spec"]["unhealthyConditions"] = UNKNOWN
    fence = make(
        FAR, "FenceAgentsRemediationTemplate", "auto", "wa", spec={"template": {"spec": FENCES}}
    )

    moments, restart = course(check, fence)

    assert moments == [
        (0, 0, Event.SILENT),
        (50, 50, Event.NOTICED),
        (170, 170, Event.ACTS),
        (170, 170, Event.STEP),
        (350, 350, Event.DOWN),
        (530, 530, Event.STEP),
        (530, 850, Event.DOWN),
        (1430, 1430, Event.EXHAUSTED),
    ]
    assert seconds(restart.at) == (350, 350)
    assert (restart.grace, restart.patience, restart.wasted) == (50 * SECOND, 120 * SECOND, 0)


def test_a_step_without_enough_time_delays_the_restart():
    moments, restart = course(ladder((1, "1m", SNR), (2, "5m", SNR)))
    assert moments[3:] == [
        (350, 350, Event.STEP),
        (410, 410, Event.CANCELLED),
        (410, 410, Event.STEP),
        (590, 590, Event.DOWN),
        (710, 710, Event.EXHAUSTED),
    ]
    assert restart.wasted == 60 * SECOND
    assert seconds(restart.at) == (590, 590)


def test_no_step_has_enough_time():
    moments, restart = course(ladder((1, "1m", SNR)))
    assert moments[-1] == (410, 410, Event.EXHAUSTED)
    assert restart is None


@pytest.mark.parametrize(
    ("name", "grace"),
    [
        ("", 50),
        ("Default", 50),
        ("MediumUpdateAverageReaction", 120),
        ("LowUpdateSlowReaction", 300),
    ],
)
def test_grace_period_of_each_latency_profile(name, grace):
    moments, _ = course(nhc(remediationTemplate=template()), profile(name))
    assert moments[1] == (grace, grace, Event.NOTICED)
    assert moments[2] == (grace + 300, grace + 300, Event.ACTS)


def test_unseen_latency_profile():
    found = timeline.timeline(health_checks.view(nhc(remediationTemplate=template())), NOTHING)
    assert found.moments[1].at.least == 50 * SECOND
    assert found.unseen == ("nodes.config.openshift.io cluster",)


def test_a_check_without_ready_unknown():
    conditions = [{"type": "Ready", "status": "False", "duration": "5m"}]
    moments, restart = course(nhc(unhealthyConditions=conditions, remediationTemplate=template()))
    assert [event for *_, event in moments] == [Event.SILENT, Event.NOTICED]
    assert restart is None


def test_the_shortest_time_applies():
    conditions = [*UNKNOWN, {"type": "Ready", "status": "Unknown", "duration": "90s"}]
    moments, _ = course(nhc(unhealthyConditions=conditions, remediationTemplate=template()))
    assert moments[2] == (140, 140, Event.ACTS)


CONDITIONS = [{"type": "Ready", "status": "Unknown", "timeout": "300s"}]


@pytest.mark.parametrize(
    ("more", "annotations", "part"),
    [
        ({}, {}, "the Machine is deleted"),
        ({}, {"machine.openshift.io/remediation-strategy": "external-baremetal"}, "power-cycles"),
        ({"remediationTemplate": {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
                                  "name": "reboot",
                                  "kind": "Metal3RemediationTemplate"}}, {},
                                  "Metal3Remediation openshift-machine-api/reboot"),
    ],
)  # fmt: skip
def test_stages_of_a_machine_health_check(more, annotations, part):
    check = mhc(unhealthyConditions=CONDITIONS, **more)
    check.data["metadata"]["annotations"] = annotations
    (stage,) = timeline.stages(health_checks.view(check), Snapshot(complete=["*"]))
    assert part in stage.name
    moments, restart = course(check)
    assert moments[-1] == (350, None, Event.DOWN)
    assert seconds(restart.at) == (350, None)


def test_deleting_a_machine_deletes_its_node():
    reference = {
        "apiVersion": MDR,
        "kind": "MachineDeletionRemediationTemplate",
        "name": "replace",
        "namespace": "wa",
    }
    (stage,) = timeline.stages(
        health_checks.view(nhc(remediationTemplate=reference)), Snapshot(complete=["*"])
    )
    assert "deleted" in stage.done


def test_unseen_fence_agent_template():
    found = list(
        timeline.stages(health_checks.view(nhc(remediationTemplate=template(FAR))), NOTHING)
    )
    assert isinstance(found[0], Unseen)
    assert found[1].takes == (0, None)


@for_each("check, objects, never", [
        (mhc(maxUnhealthy="40%", unhealthyConditions=CONDITIONS), [machine("m0"), machine("m1")],
         "maxUnhealthy 40% allows 0 of 2 to be unhealthy"),
        (mhc(maxUnhealthy=0, unhealthyConditions=CONDITIONS), [machine("m0")],
         "maxUnhealthy 0 allows 0 of 1 to be unhealthy"),
        (capi(maxUnhealthy="40%", unhealthyConditions=CONDITIONS), [machine("m0", CAPI, "c")],
         "maxUnhealthy 40% allows 0 of 1 to be unhealthy"),
        (capi(unhealthyRange="[0-0]", unhealthyConditions=CONDITIONS), [machine("m0", CAPI, "c")],
         "unhealthyRange [0-0] allows 0 of 1 to be unhealthy"),
        (capi(unhealthyRange="[2-4]", unhealthyConditions=CONDITIONS), [machine("m0", CAPI, "c")],
         "unhealthyRange [2-4] requires 2 unhealthy, but selects only 1"),
        (nhc(minHealthy="51%", remediationTemplate=template()), [node("n0")],
         "minHealthy 51% allows 0 of 1 to be unhealthy"),
        (nhc(maxUnhealthy=3, remediationTemplate=template()), [node("n0")],
         "maxUnhealthy 3 allows 0 of 1 to be unhealthy"),
        (nhc(remediationTemplate=template()), [], "nothing is selected"),
        (mhc(unhealthyConditions=CONDITIONS), [], "nothing is selected"),
        (nhc(selector={"matchLabels": {"-": "a"}}, remediationTemplate=template()), [node("n0")],
         "the selector is malformed"),
        (mhc(), [machine("m0")], "no condition Ready=Unknown with a valid time is listed"),
        (nhc(), [node("n0")], "no remediator is set"),
        (ladder((1, "1m", SNR)), [node("n0")], "no step has enough time"),
    ])  # fmt: skip
def test_a_check_that_never_acts(check, objects, never):
    found = timeline.timeline(health_checks.view(check), Snapshot(objects, complete=["*"]))
    assert (found.restart, found.never) == (None, never)
    assert Event.DOWN not in [moment.event for moment in found.moments]


def test_a_limit_of_zero_is_conclusive_without_a_cluster():
    check = mhc(maxUnhealthy="0%", unhealthyConditions=CONDITIONS)
    assert (
        timeline.timeline(health_checks.view(check), NOTHING).never
        == "maxUnhealthy 0% allows none to be unhealthy"
    )


@pytest.mark.parametrize("limit", ["40%", 1, "100%"])
def test_unseen_objects_do_not_rule_out_remediation(limit):
    check = mhc(maxUnhealthy=limit, unhealthyConditions=CONDITIONS)
    found = timeline.timeline(health_checks.view(check), NOTHING)
    assert (seconds(found.restart.at), found.never) == ((350, None), "")


# --- the VMs --------------------------------------------------------------------------------------


def vmi(name, owner="", node="n0", phase="Running"):
    owners = (
        [{"kind": owner, "name": name, "controller": True, "apiVersion": "kubevirt.io/v1"}]
        if owner
        else []
    )
    made = make(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        name,
        "shop",
        status={"nodeName": node, "phase": phase},
    )
    made.data["metadata"]["ownerReferences"] = owners
    return made


@pytest.mark.parametrize(
    ("owner", "strategy", "complete", "comes"),
    [
        ("VirtualMachine", "Always", ["*"], True),
        ("VirtualMachine", "RerunOnFailure", ["*"], True),
        ("VirtualMachine", "Manual", ["*"], False),
        ("VirtualMachine", "Sometimes", ["*"], None),
        ("VirtualMachine", "", ["*"], False),
        ("VirtualMachine", "", ["virtualmachineinstances.kubevirt.io"], None),
        ("VirtualMachineInstanceReplicaSet", "", ["*"], True),
        ("", "", ["*"], False),
        ("Something", "", ["*"], None),
    ],
)
def test_outcome_of_a_vm(owner, strategy, complete, comes):
    vm = make("kubevirt.io/v1", "VirtualMachine", "db", "shop", spec={"runStrategy": strategy})
    (found,) = check_restarts.fates(
        ["n0"], Snapshot([vmi("db", owner), *([vm] if strategy else [])], complete=complete)
    )
    assert found.comes is comes
    assert found.why


def test_vms_of_other_nodes_and_stopped_vms_are_excluded():
    cluster = Snapshot([vmi("a", node="n1"), vmi("b", phase="Succeeded")], complete=["*"])
    assert list(check_restarts.fates(["n0"], cluster)) == []


def test_unseen_vms():
    first, second = check_restarts.fates(["n0"], Snapshot([vmi("a")]))
    assert first.vmi.name == "a"
    assert isinstance(second, Unseen)
