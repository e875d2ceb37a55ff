"""Any mixture of marks, migrations and pods has one state for each VM,
whatever the order of its objects.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forecasts.drain.vm_motion import NOW, ago, attachment, cluster, launcher, migration, vmi
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.drain.report import report
from virt_admit.reports.values import as_data

PHASES = (
    "",
    "Pending",
    "Scheduling",
    "Scheduled",
    "PreparingTarget",
    "TargetReady",
    "Running",
    "Succeeded",
    "Failed",
)
AGES = st.sampled_from([1, 30, 90, 400, 4000, 80_000])


@st.composite
def movements(draw, name):
    """Return the objects of one VM on node a."""
    uid, other = f"uid-m-{name}", draw(st.booleans())
    state = {
        "migrationUid": draw(st.sampled_from([uid, "old"])),
        "sourceNode": "a",
        "targetNode": draw(st.sampled_from(["b", "c"])),
        "startTimestamp": ago(draw(AGES)),
        "completed": draw(st.booleans()),
        "mode": draw(st.sampled_from(["", "PreCopy", "PostCopy", "Paused"])),
        "abortStatus": draw(st.sampled_from(["", "Aborting", "Failed"])),
        "failureReason": draw(
            st.sampled_from(["", "Live migration has been aborted", "missing features: x"])
        ),
    }
    marks = {"evacuationNodeName": mark} if (mark := draw(st.sampled_from(["", "a", "c"]))) else {}
    moved = {"migrationState": state} if draw(st.booleans()) else {}
    objects = [
        vmi(name, draw(st.sampled_from(["a", "b"])), reported=draw(st.booleans()), **marks, **moved)
    ]
    objects.append(launcher(name, phase=draw(st.sampled_from(["Running", "Succeeded", "Failed"]))))
    if draw(st.booleans()):
        phase = draw(st.sampled_from(PHASES))
        objects.append(
            migration(f"m-{name}", phase, of=name, age=draw(AGES), drain=draw(st.booleans()))
        )
        if other:
            target = launcher(name, "b", "2", job=uid, age=draw(AGES), ready=draw(st.booleans()))
            objects += [
                target,
                *([attachment(target, ready=draw(st.booleans()))] if name == "db" else []),
            ]
    return objects


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_each_vm_has_one_state_in_any_order(data):
    groups = [data.draw(movements(name)) for name in ("db", "web", "wiki")]
    limits = {"parallelOutboundMigrationsPerNode": data.draw(st.integers(0, 3))}
    time = data.draw(st.sampled_from([NOW, None]))
    objects = list(cluster(*(each for group in groups for each in group), time=time, **limits))

    reports = [
        as_data(
            report(plan(Snapshot(data.draw(st.permutations(objects)), ["*"], time=time), "a", "b"))
        )
        for _ in range(2)
    ]

    assert reports[0] == reports[1]
    for node in reports[0]["nodes"]:
        for found in node["vms"]:
            assert found["state"] in set(State)
            assert time is not None or found["until"] is None
            assert found["state"] != "still" or found["flags"] != ["arriving"]
