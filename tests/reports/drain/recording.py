"""A recorded sequence: watch events with times, and what ``--follow`` shows then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.forecasts.drain import vm_motion
from tests.forecasts.drain.vm_motion import NOW
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.drain.follow import DrainFollower
from virt_admit.reports.following import Look


@dataclass(frozen=True)
class Step:
    """What happens at one time."""

    at: int
    """Seconds after ``NOW``."""
    show: tuple[Object, ...] = ()
    """Objects that are created or changed."""
    gone: tuple[str, ...] = ()
    """Names of objects that are deleted."""
    complete: tuple[str, ...] = ("*",)


@dataclass(frozen=True)
class Recording:
    """A sequence that ``--follow`` replays."""

    steps: tuple[Step, ...]
    node: str = "a"
    nodes: tuple[str, ...] = ("a", "b", "c")
    kubevirt: dict[str, Any] = field(default_factory=dict)


def at(seconds: float) -> str:
    """Return the time so many seconds after ``NOW``."""
    return vm_motion.ago(-seconds)


def replay(recording: Recording) -> Iterator[tuple[Step, Snapshot, Look]]:
    """Yield each step with the cluster at its time and with what the follower finds."""
    start = vm_motion.cluster(nodes=recording.nodes, **recording.kubevirt)
    objects = {(obj.kind, obj.namespace, obj.name): obj for obj in start}
    follower, now = DrainFollower(recording.node), clock.instant(NOW)
    assert now is not None
    for step in recording.steps:
        for obj in step.show:
            objects[obj.kind, obj.namespace, obj.name] = obj
            if obj.kind == "VirtualMachineInstance":
                owner = vm_motion.vm(obj.name)
                objects.setdefault((owner.kind, owner.namespace, owner.name), owner)
        known = {key: obj for key, obj in objects.items() if key[2] not in step.gone}
        assert len(objects) - len(known) >= len(step.gone), "only what exists is deleted"
        objects = known
        time = clock.stamp(now + timedelta(seconds=step.at))
        cluster = Snapshot(list(objects.values()), list(step.complete), time=time)
        yield step, cluster, follower.look(cluster)
