"""Guests that were told to shut down and still run."""

import pytest

from tests.builders import manifest, owned_by, vm, vmi
from tests.for_each import for_each
from tests.forecasts.drain import vm_motion
from virt_admit.forecasts.drain import drain_plan, vm_outcomes
from virt_admit.forecasts.drain.guests import ending_guests
from virt_admit.forecasts.outage import outages
from virt_admit.forecasts.outage.restarts import fates
from virt_admit.forecasts.upgrade import vm_interruptions
from virt_admit.model.evidence import complaints
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.reports.drain import report, text
from virt_admit.reports.outage import text as outage_text

NOW = "2027-03-01T12:00:00Z"
ASKED = "2027-03-01T11:36:00Z"
FORCED = "virtctl stop db -n shop --force --grace-period=0"


def stopping(asked=ASKED, grace=3600, agent=False, phase="Running", **spec):
    conditions = [{"type": "AgentConnected", "status": "True"}] if agent else []
    metadata = {
        "deletionTimestamp": asked,
        "finalizers": [ending_guests.VMI.kind],
        "ownerReferences": owned_by("VirtualMachine"),
    }
    status = {"phase": phase, "nodeName": "a", "conditions": conditions}
    return vmi(metadata=metadata, status=status, terminationGracePeriodSeconds=grace, **spec)


def known(subject, strategy="Halted", reports="True", **status):
    ready = {"type": "Ready", "status": reports, "lastHeartbeatTime": NOW}
    node = manifest("v1", "Node", "a", status={"conditions": [ready]})
    of = vm(runStrategy=strategy, status=status)
    return Snapshot([subject, node, of], complete=["*"], time=NOW)


def found(subject, strategy="Halted", **more):
    return ending_guests.problem(subject, known(subject, strategy, **more))


def test_a_guest_that_ignores_its_power_button():
    problem = found(stopping())

    assert problem.reason == (
        "its guest was told to shut down 24 min ago and still runs (no guest agent is connected, "
        "so it has only the power button of ACPI). KubeVirt kills it only at 2027-03-01T12:36:00Z, "
        "in 36 min, as terminationGracePeriodSeconds is 3600"
    )
    assert problem.remedy.startswith("shut it down from inside: virtctl console")
    assert (
        f"as a power cut would, which loses what the guest has not written to its disks ({FORCED})"
        in problem.remedy
    )
    assert "set a shorter terminationGracePeriodSeconds in the template of VM db" in problem.remedy


@pytest.mark.parametrize(
    ("metadata", "system", "tool"),
    [
        ({}, {}, "console"),
        ({}, {"id": "mswindows"}, "vnc"),
        ({"labels": {"harvesterhci.io/os": "windows"}}, {}, "vnc"),
        ({"annotations": {"vm.kubevirt.io/os": "windows2k22"}}, {}, "vnc"),
        ({"annotations": {"kubevirt.io/cluster-preference-name": "windows.11"}}, {}, "vnc"),
        ({"annotations": {"kubevirt.io/cluster-preference-name": "fedora"}}, {}, "console"),
        ({"labels": {"harvesterhci.io/os": "windows"}}, {"id": "fedora"}, "console"),
    ],
)
def test_a_guest_without_a_serial_console_is_looked_at_on_its_screen(metadata, system, tool):
    subject = stopping(agent=True)
    subject.data["metadata"] |= metadata
    subject.data["status"]["guestOSInfo"] = system

    assert found(subject).remedy.startswith(
        f"see what its guest still does: virtctl {tool} db -n shop"
    )


@for_each(
    "subject, words",
    [
        (stopping(agent=True), "still runs. KubeVirt kills it"),
        (stopping(domain={"features": {"acpi": {"enabled": False}}}), "has no ACPI"),
    ],
)
def test_why_a_guest_may_not_notice(subject, words):
    assert words in found(subject).reason


@for_each(
    "strategy, status, forced",
    [
        ("Halted", {}, True),
        ("RerunOnFailure", {}, True),
        ("Always", {}, False),
        ("Once", {}, False),
        ("Manual", {"stateChangeRequests": [{"action": "Start"}]}, False),
    ],
)
def test_a_forced_stop_changes_no_run_strategy_and_cancels_no_restart(strategy, status, forced):
    assert (FORCED in found(stopping(), strategy, **status).remedy) is forced


@pytest.mark.parametrize(
    ("subject", "reports"),
    [
        (stopping("2027-03-01T11:57:00Z"), "True"),  # it has just been asked
        (stopping(grace=180), "True"),  # its time is over
        (stopping(phase="Succeeded"), "True"),
        (stopping(), "Unknown"),  # what would stop it does not report
        (vmi(status={"phase": "Running", "nodeName": "a"}), "True"),
    ],
)
def test_guests_of_which_nothing_is_said(subject, reports):
    assert found(subject, reports=reports) is None
    assert list(ending_guests.notes(known(subject, reports=reports))) == []


@pytest.mark.parametrize(
    ("asked", "agent", "late"),
    [
        ("2027-03-01T11:36:00Z", True, False),  # 24 of 60 minutes, as for updates of Windows
        ("2027-03-01T11:25:00Z", True, True),  # more than half of its time
        ("2027-03-01T11:52:00Z", False, False),  # 8 minutes
        ("2027-03-01T11:48:00Z", False, True),  # it may not notice the request
    ],
)
def test_a_guest_that_may_still_need_its_time_is_left_alone(asked, agent, late):
    subject = stopping(asked, agent=agent)

    assert bool(list(ending_guests.notes(known(subject)))) is late
    assert (FORCED in found(subject).remedy) is late
    assert ": virtctl console" in found(subject).remedy


@pytest.mark.parametrize(
    ("strategy", "requested", "costs"),
    [("Halted", False, False), ("Halted", True, True), ("RerunOnFailure", False, True)],
)
def test_what_its_owner_stops_is_no_cost_of_a_drain(strategy, requested, costs):
    requests = {"harvesterhci.io/drain-requested": "true"} if requested else {}
    node = manifest("v1", "Node", "a", metadata={"annotations": requests})
    items = [stopping(), node, vm(runStrategy=strategy)]
    plan = drain_plan.plan(Snapshot(items, complete=["*"], time=NOW))

    (row,) = plan.having(vm_outcomes.VmOutcome.STOPS)
    assert row.by_owner is not costs
    assert report.verdict(plan).costs is costs
    assert vm_interruptions.shutdowns(row, 0, reached=True) == costs


@pytest.mark.parametrize(
    ("owners", "complete", "why"),
    [
        ([vm(metadata={"deletionTimestamp": ASKED, "finalizers": ["x"]})], "*", "is being deleted"),
        ([], "*", "db is gone"),
        ([vm()], "*", ""),
        ([], "nodes", ""),
    ],
)
def test_a_vm_that_is_being_deleted_stays_not_stopped(owners, complete, why):
    node = manifest("v1", "Node", "a")
    items = [stopping(asked="2027-03-01T11:59:00Z"), node, *owners]
    plan = drain_plan.plan(Snapshot(items, complete=[complete], time=NOW))
    (row,) = plan.nodes[0].forecasts

    assert row.reason.startswith(f"it is being stopped already; its VM {why}") is bool(why)
    assert (row.removed, row.by_owner) == (bool(why), bool(why))
    lines = text.text(plan)
    assert ("1 is being deleted" in lines) is bool(why)
    assert "stays stopped" not in lines


@pytest.mark.parametrize(
    ("strategy", "failure", "outcome"),
    [
        ("Halted", "", vm_outcomes.VmOutcome.STOPS),
        ("Halted", "False", vm_outcomes.VmOutcome.STOPS),
        ("Halted", "True", vm_outcomes.VmOutcome.MIGRATES),  # such as a webhook that denies it
        ("Always", "", vm_outcomes.VmOutcome.MIGRATES),
        ("Manual", "", vm_outcomes.VmOutcome.MIGRATES),
    ],
)
def test_a_guest_whose_vm_is_halted_is_stopped_by_kubevirt_and_not_migrated(
    strategy, failure, outcome
):
    subject = vm_motion.vmi()
    owner = vm_motion.vm()
    owner.data["spec"]["runStrategy"] = strategy
    if failure:
        failed = {"type": "Failure", "status": failure, "reason": "FailedDelete"}
        owner.data["status"] = {"conditions": [failed]}
    whole = vm_motion.cluster(vm_motion.launcher())
    found = vm_outcomes.forecast(
        subject, Snapshot([*whole.list(NODE), subject, owner], ["*"], time=NOW)
    )

    assert found.outcome is outcome
    stops = outcome is vm_outcomes.VmOutcome.STOPS
    assert found.by_owner is stops
    assert found.reason.startswith("its VM is Halted, so KubeVirt stops it") is stops


def test_no_verb_tells_to_run_what_was_stopped():
    cluster = known(stopping())
    drained, lost = vm_outcomes.forecast(stopping(), cluster), fates.fate(stopping(), cluster)

    assert drained.reason.startswith("it is being stopped already: its guest was told to shut down")
    assert FORCED in drained.remedy
    assert (lost.comes, lost.remedy) == (False, "")
    assert "Always" not in drained.remedy
    (note,) = ending_guests.notes(cluster)
    assert (note.namespace, note.name) == ("shop", "db")
    assert FORCED in note.text


@pytest.mark.parametrize(
    ("vm_deleted", "owned", "removed"),
    [(True, True, True), (False, False, True), (False, True, False)],
    ids=["its VM is deleted", "no VM owns it", "it is only stopped"],
)
def test_a_loss_takes_nothing_from_a_vm_that_is_being_deleted(vm_deleted, owned, removed):
    subject, owner = stopping(), vm(runStrategy="Always")
    if not owned:
        del subject.data["metadata"]["ownerReferences"]
    if vm_deleted:
        owner.data["metadata"]["deletionTimestamp"] = ASKED
    node = manifest("v1", "Node", "a", status={"conditions": [{"type": "Ready"}]})
    there = Snapshot([subject, node, *([owner] if owned else [])], complete=["*"], time=NOW)
    loss = outages.outage(("a",), there)
    (lost,) = loss.vms

    assert lost.removed is removed
    assert (loss.survives is False) is not removed
    head = "\n".join(outage_text.of_loss(loss))
    assert ("1 VM: 1 is being deleted" in head) is removed


@pytest.mark.parametrize(
    ("annotations", "strategy", "start"),
    [
        ({"harvesterhci.io/drain-requested": "true"}, "Halted", True),
        ({"harvesterhci.io/drain-requested": "true"}, "Always", False),
        ({}, "Halted", False),
    ],
)
def test_a_start_is_advised_where_harvester_may_have_stopped_it(annotations, strategy, start):
    node = manifest("v1", "Node", "a", metadata={"annotations": annotations})
    items = [stopping("2027-03-01T11:59:00Z"), node, vm(runStrategy=strategy)]
    found = ending_guests.of_stopped(items[0], Snapshot(items, complete=["*"], time=NOW))

    assert (found.remedy.endswith(": virtctl start db -n shop"), bool(found.remedy)) == (
        start,
        start,
    )


@pytest.mark.parametrize(("grace", "said"), [(3600, False), (30, True)])
def test_the_finalizers_of_a_vmi_say_nothing_before_its_time_is_over(grace, said):
    subject = stopping(grace=grace)

    assert any("finalizer" in each.words for each in complaints.of(subject, known(subject))) is said


@pytest.mark.parametrize(
    ("finalizer", "outcome", "removed", "remedy"),
    [
        ("kubevirt.io/virtualMachineControllerFinalize", fates.LossOutcome.OFF, True, ""),
        ("foregroundDeletion", fates.LossOutcome.OFF, True, ""),
        ("orphan", fates.LossOutcome.LOST, False, "make it a VirtualMachine"),
    ],
)
def test_the_vmi_of_a_deleted_vm_is_not_marked_yet(finalizer, outcome, removed, remedy):
    """KubeVirt deletes it with its VM, unless dependents are to stay."""
    subject, owner = stopping(), vm(runStrategy="Always")
    del subject.data["metadata"]["deletionTimestamp"]
    owner.data["metadata"] |= {"deletionTimestamp": ASKED, "finalizers": [finalizer]}
    found = fates.fate(subject, Snapshot([subject, owner], complete=["*"], time=NOW))

    assert (found.comes, found.outcome, found.removed) == (False, outcome, removed)
    assert found.reason.startswith("its VM is being deleted")
    assert found.remedy == remedy


def evicted(end="2027-03-01T12:36:30Z", seconds=3630, strategy="Always", node="a", **spec):
    """Return a cluster in which an eviction deletes the pod of a VMI, but not the VMI."""
    running = {"phase": "Running", "nodeName": "a"}
    running["conditions"] = [{"type": "LiveMigratable", "status": "True"}]
    owners = {"ownerReferences": owned_by("VirtualMachine")}
    subject = vmi(metadata=owners, status=running, terminationGracePeriodSeconds=3600, **spec)
    metadata = {
        "namespace": "shop",
        "labels": {"kubevirt.io": "virt-launcher"},
        "ownerReferences": owned_by("VirtualMachineInstance"),
        "deletionTimestamp": end,
        "deletionGracePeriodSeconds": seconds,
    }
    pod = manifest("v1", "Pod", "launcher", metadata=metadata, spec={"nodeName": node})
    cluster = known(subject, strategy)
    return subject, Snapshot([*cluster, pod], complete=["*"], time=NOW)


def test_an_evicted_guest_that_ignores_its_power_button():
    subject, cluster = evicted(evictionStrategy="None")
    problem = ending_guests.problem(subject, cluster)
    row = vm_outcomes.forecast(subject, cluster)

    assert "told to shut down 24 min ago by the deletion of its pod launcher" in problem.reason
    assert "kills it only at 2027-03-01T12:36:00Z" in problem.reason
    assert f"({FORCED}) and, as that sets the VM to Halted, start it then" in problem.remedy
    assert "with evictionStrategy LiveMigrate there, a drain migrates" in problem.remedy
    assert row.outcome is vm_outcomes.VmOutcome.RESTARTS
    assert problem.reason in row.reason


def test_a_pod_that_is_deleted_with_a_shorter_grace_period_is_killed_by_its_kubelet():
    subject, cluster = evicted(end="2027-03-01T12:05:30Z", seconds=1770)
    assert ending_guests.problem(subject, cluster).reason.endswith(
        "Its kubelet kills it only at 2027-03-01T12:05:30Z, in 5 min, as "
        "deletionGracePeriodSeconds of that pod is 1770"
    )


def test_a_guest_whose_namespace_is_being_deleted_is_not_started_again():
    subject, cluster = evicted()
    space = manifest("v1", "Namespace", "shop", metadata={"deletionTimestamp": ASKED})
    ends = Snapshot([*cluster, space], complete=["*"], time=NOW)

    assert "virtctl start" in ending_guests.problem(subject, cluster).remedy
    assert "virtctl start" not in ending_guests.problem(subject, ends).remedy


@for_each(
    "subject, cluster",
    [
        evicted(end="2027-03-01T12:57:30Z"),  # it has just been asked
        evicted(end="2027-03-01T11:59:30Z"),  # its time is over
        evicted(node="b"),  # the pod that the guest has left by a migration
        evicted(seconds=None),
    ],
)
def test_guests_whose_pod_says_nothing(subject, cluster):
    assert ending_guests.problem(subject, cluster) is None
