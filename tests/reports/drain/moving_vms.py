"""Recorded sequences: VMs that wait, copy, fail and arrive while their node is drained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.builders import claim, manifest
from tests.forecasts.drain.vm_motion import attachment, failed, launcher, migration, node, vmi
from tests.reports.drain.recording import Recording, Step, at
from virt_admit.model.kubernetes.objects import Object


def marked(name: str = "db", **fields: Any) -> Object:
    return vmi(name, evacuationNodeName="a", **fields)


def moving(name: str = "db", run: str = "", start: float = 0, **state: Any) -> Object:
    """Return a VMI whose migration copies since ``start``."""
    run = run or f"uid-m-{name}"
    own = {"migrationUid": run, "sourceNode": "a", "targetNode": "b", "startTimestamp": at(start)}
    return marked(name, migrationState=own | state)


def target(name: str = "db", start: float = 0, on: str = "b", **fields: Any) -> Object:
    """Return the target pod of the migration ``m-NAME``."""
    return launcher(name, on, "2", job=f"uid-m-{name}", age=-start, **fields)


def run(phase: str = "Pending", name: str = "db", start: float = 0, **fields: Any) -> Object:
    """Return the migration ``m-NAME`` that was created at ``start``."""
    return migration(f"m-{name}", phase, of=name, age=-start, **fields)


def copying(name: str, start: float) -> tuple[Object, ...]:
    since = {"Pending": -start + 10, "Running": -start}
    return (
        run("Running", name, start - 10, since=since),
        target(name, start - 8),
        moving(name, start=start),
    )


def left(name: str, end: float) -> tuple[Object, ...]:
    """Return the VM on its target node after the migration that ended at ``end``."""
    done = {"completed": True, "startTimestamp": at(end - 60), "endTimestamp": at(end)}
    state = {"migrationUid": f"uid-m-{name}", "sourceNode": "a", "targetNode": "b"} | done
    ended = run(
        "Succeeded",
        name,
        end - 70,
        since={"Running": -end + 60, "Succeeded": -end},
        **done,
        sourceNode="a",
    )
    return ended, vmi(name, on="b", migrationState=state)


def old_pod(name: str) -> str:
    return f"virt-launcher-{name}-1"


THREE = ("vm1", "vm2", "vm3")
UNSCHEDULABLE = [
    {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 cpu",
    }
]

LIMIT_OF_ONE = Recording(
    kubevirt={"parallelOutboundMigrationsPerNode": 1},
    steps=(
        Step(0, tuple(obj for name in THREE for obj in (marked(name), launcher(name)))),
        Step(
            5,
            (
                *(run(name=name, start=4) for name in THREE),
                target("vm1", 5, phase="Pending", conditions=[]),
            ),
        ),
        Step(20, copying("vm1", 15)),
        Step(90, left("vm1", 85)),
        Step(95, (target("vm2", 92, phase="Pending", conditions=[]),), gone=(old_pod("vm1"),)),
        Step(105, copying("vm2", 100)),
        Step(170, (*left("vm2", 165), *copying("vm3", 168)), gone=(old_pod("vm2"),)),
        Step(240, left("vm3", 238), gone=(old_pod("vm3"),)),
    ),
)

FULL = tuple(node(name, unschedulable=True) for name in ("b", "c"))


def attempts() -> tuple[Step, ...]:
    """Return six attempts without a node: each is given up after 300 s, the next waits 20 s,
    40 s and so on.
    """
    steps, begin = [Step(0, (marked(), launcher(), *FULL))], 5
    failures: list[str] = []
    for number, wait in enumerate((20, 40, 80, 160, 320, 320), 1):
        name = f"evacuation-{number}"
        pod = launcher(
            on="",
            suffix=f"t{number}",
            job=f"uid-{name}",
            age=-begin,
            phase="Pending",
            conditions=UNSCHEDULABLE,
        )
        steps.append(Step(begin + 60, (migration(name, age=-begin), pod)))
        end = begin + 300
        lost = migration(name, "Failed", age=-begin, since={"Pending": -begin, "Failed": -end})
        again = migration(f"evacuation-{number + 1}", age=-end - 1)
        failures.append(name)
        old = (failures.pop(0),) if len(failures) > 5 else ()
        steps.append(Step(end + 2, (lost, again), gone=(f"virt-launcher-db-t{number}", *old)))
        begin = end + wait
    return tuple(steps)


UNSCHEDULABLE_TARGET = Recording(attempts())

FEATURES = (
    "Live migration failed error encountered during MigrateToURI3 libvirt api call: "
    "virError(Code=9, Domain=10, Message='operation failed: guest CPU doesn't match specification: "
    "missing features: vmx-vmfunc')"
)

CPU_FEATURES = Recording(
    (
        Step(0, (marked(), launcher())),
        Step(60, (failed(1, FEATURES, age=-55, lasted=5), migration("next", age=-56))),
        Step(
            140,
            (failed(2, FEATURES, target="c", age=-130, lasted=5), migration("next2", age=-131)),
            gone=("next",),
        ),
    )
)

ABORTED = "Live migration has been aborted"
TIMED_OUT = Recording(
    (
        Step(0, (marked(), launcher())),
        Step(10, copying("db", 5)),
        Step(400),
        Step(
            760,
            (failed(1, ABORTED, age=-756, lasted=751), migration("next", age=-757), marked()),
            gone=("m-db", "virt-launcher-db-2"),
        ),
        Step(
            1540,
            (failed(2, ABORTED, age=-1536, lasted=751), migration("next2", age=-1537)),
            gone=("next",),
        ),
    )
)

POST_COPY = Recording(
    kubevirt={"allowPostCopy": True},
    steps=(
        Step(0, (marked(), launcher())),
        Step(10, copying("db", 5)),
        Step(700),
        Step(760, (moving(start=5, mode="PostCopy"),)),
        Step(900, left("db", 890)),
        Step(905, gone=(old_pod("db"),)),
    ),
)

PAUSED = Recording(
    kubevirt={"allowWorkloadDisruption": True},
    steps=(
        Step(0, (marked(), launcher())),
        Step(10, copying("db", 5)),
        Step(760, (moving(start=5, mode="Paused"),)),
        Step(800, left("db", 790), gone=(old_pod("db"),)),
    ),
)


def bound(name: str, mode: str, **spec: Any) -> tuple[Object, ...]:
    """Return a claim and its volume; keywords are fields of the volume."""
    found = claim(name, mode)
    data = {
        **found.data,
        "spec": {**found.data["spec"], "volumeName": f"pv-{name}"},
        "status": {"phase": "Bound"},
    }
    return Object(data), manifest("v1", "PersistentVolume", f"pv-{name}", spec=spec)


HOTPLUG = {
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}
    ]
}
ATTACHMENT = Recording(
    (
        Step(0, (marked(spec=HOTPLUG), launcher(), *bound("data", "ReadWriteMany"))),
        Step(20, (run(start=5), target(start=8), attachment(target(start=8), ready=False))),
        Step(200),
        Step(
            310,
            (failed(1, "Target pod is down", age=-300, lasted=5), migration("next", age=-301)),
            gone=("m-db", "virt-launcher-db-2", "hp-volume-db"),
        ),
    )
)

HANDLER_DIES = Recording(
    (
        Step(0, (marked(), launcher())),
        Step(
            20,
            (
                run("PreparingTarget", start=5, since={"Pending": -5, "PreparingTarget": -12}),
                target(start=8),
            ),
        ),
        Step(200),
        Step(
            330,
            (failed(1, "Target pod is down", age=-320, lasted=5), migration("next", age=-321)),
            gone=("m-db", "virt-launcher-db-2"),
        ),
    )
)

QUOTA = Recording(
    (
        Step(0, (marked(), launcher())),
        Step(10, (run(start=5, conditions=("migrationRejectedByResourceQuota",)),)),
        Step(1900),
        Step(2000, (run(start=5), target(start=1995, phase="Pending", conditions=[]))),
        Step(2020, copying("db", 2015)),
        Step(2090, left("db", 2080), gone=(old_pod("db"),)),
    )
)

GIVEN_UP = Recording(
    (
        Step(0, (marked(), launcher())),
        Step(10, copying("db", 5)),
        Step(60, (node("a"),)),
        Step(
            120,
            (
                marked(),
                failed(1, "connection reset by peer", age=-110, lasted=60),
                migration("next", age=-111),
            ),
            gone=("m-db", "virt-launcher-db-2"),
        ),
    )
)

STALE_MARK = Recording(
    (Step(0, (vmi(evacuationNodeName="c"), launcher())), Step(600), Step(700, (vmi(), launcher())))
)


def from_b(start: float) -> tuple[Object, ...]:
    state = {
        "migrationUid": "uid-m-web",
        "sourceNode": "b",
        "targetNode": "a",
        "startTimestamp": at(start),
    }
    return (
        vmi("web", on="b", migrationState=state),
        launcher("web", "b"),
        launcher("web", "a", "2", job="uid-m-web", age=-start + 5),
        run("Running", "web", start - 10, drain=False),
    )


ARRIVING = Recording(
    (
        Step(0, from_b(-5)),
        Step(
            60,
            (run("Succeeded", "web", -15, drain=False), vmi("web", on="a", evacuationNodeName="a")),
            gone=("virt-launcher-web-1",),
        ),
        Step(70, (migration("evacuation-web", of="web", age=-65),)),
        Step(
            140,
            (
                vmi("web", on="c"),
                launcher("web", "c", "3", age=-70),
                migration("evacuation-web", "Succeeded", of="web", age=-65),
            ),
            gone=("virt-launcher-web-2",),
        ),
    )
)

OPEN_MIGRATION = Recording(
    kubevirt={"parallelOutboundMigrationsPerNode": 1},
    steps=(
        Step(
            0,
            (
                marked("web"),
                launcher("web"),
                run(name="web", start=-60),
                *copying("db", -50),
                launcher(),
            ),
        ),
        Step(
            60,
            (
                moving(start=-50, completed=True, endTimestamp=at(50)),
                vmi(
                    on="a",
                    conditions=[{"type": "HotVCPUChange", "status": "True"}],
                    migrationState={
                        "migrationUid": "uid-m-db",
                        "sourceNode": "a",
                        "targetNode": "b",
                        "completed": True,
                        "startTimestamp": at(-50),
                        "endTimestamp": at(50),
                    },
                ),
            ),
        ),
        Step(1200),
    ),
)

TWO_DRAINS = Recording(
    kubevirt={"parallelMigrationsPerCluster": 1},
    steps=(
        Step(
            0,
            (
                node("c", unschedulable=True),
                marked(),
                launcher(),
                run(start=-20),
                vmi("web", on="c", evacuationNodeName="c"),
                launcher("web", "c"),
            ),
        ),
        Step(
            10,
            (
                vmi(
                    "web",
                    on="c",
                    evacuationNodeName="c",
                    migrationState={
                        "migrationUid": "uid-m-web",
                        "sourceNode": "c",
                        "targetNode": "b",
                        "startTimestamp": at(5),
                    },
                ),
                run("Running", "web", 0, since={"Running": -5}),
                launcher("web", "b", "2", job="uid-m-web", age=-2),
            ),
        ),
        Step(
            90,
            (
                vmi("web", on="b"),
                run("Succeeded", "web", 0, since={"Succeeded": -85}),
                target(start=88, phase="Pending", conditions=[]),
            ),
            gone=(old_pod("web"),),
        ),
        Step(100, copying("db", 95)),
        Step(170, left("db", 165), gone=(old_pod("db"),)),
    ),
)

OTHER_OF_TWO = replace(TWO_DRAINS, node="c", steps=TWO_DRAINS.steps[:3])
"""The same, seen from the other node."""

RECORDINGS = {
    "three VMs behind a limit of one": LIMIT_OF_ONE,
    "unschedulable, with growing pauses": UNSCHEDULABLE_TARGET,
    "CPU features, all nodes tried": CPU_FEATURES,
    "time-out at the deadline, repeated": TIMED_OUT,
    "post-copy": POST_COPY,
    "paused": PAUSED,
    "attachment pod never ready": ATTACHMENT,
    "virt-handler of the target dies": HANDLER_DIES,
    "quota, then raised": QUOTA,
    "drain given up, mark left": GIVEN_UP,
    "stale mark": STALE_MARK,
    "an arriving VM": ARRIVING,
    "a migration that stays open and holds the place": OPEN_MIGRATION,
    "two drains at once": TWO_DRAINS,
    "two drains at once, the other node": OTHER_OF_TWO,
}
