"""Longhorn volumes of which a copy is being rebuilt: no migration of the volume begins before.

Longhorn takes back what it has prepared on the other node as long as a replica is write-only, and
starts the migration once none is. The target pod waits for its volume. A volume that is degraded
and does not rebuild migrates. Source:
longhorn/longhorn-manager:controller/volume_controller.go#prepareReplicasAndEngineForMigration, the
same in 1.8 to 1.11.

A rebuilding begins when the engine takes the replica in as write-only, not when the replica was
made: Longhorn uses a failed one again, as after each reboot of its node. Sources:
#replenishReplicas, :controller/engine_controller.go#refresh (replicaTransitionTimeMap).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from virt_admit.model.evidence.reported import ReportedProblem
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import LONGHORN_ENGINE, LONGHORN_VOLUME, PV, PVC, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import csi_of, find
from virt_admit.model.messages import names

READS: Final[Reads] = {
    LONGHORN_ENGINE: (
        *("spec.active", "spec.volumeName", "status.currentState", "status.rebuildStatus"),
        *("status.currentReplicaAddressMap", "status.replicaModeMap"),
        "status.replicaTransitionTimeMap",
    ),
    PVC: ("spec.volumeName",),
    PV: ("spec.csi.driver", "spec.csi.volumeHandle"),
}
_DRIVER: Final = "driver.longhorn.io"
WRITE_ONLY: Final = "WO"
_TELLING: Final = timedelta(minutes=1)
"""Before, the progress tells little of the speed."""
_LONGEST: Final = timedelta(days=1)
"""What would take longer is not reckoned: it may never end."""


def words(vmi: Object, cluster: Cluster) -> str:
    """Return for which volumes a migration of a VMI waits first, to follow ``it can migrate``;
    empty: for none, as far as is known.
    """
    found = list(_rebuilding(vmi, cluster))
    if not found:
        return ""
    return f" once Longhorn has rebuilt a copy of claim{'s' * (len(found) > 1)} {names(found)}"


def notes(cluster: Cluster) -> Iterator[str]:
    """Yield which VMs migrate only after that."""
    every = cluster.known(VMI) if cluster.cached(write_only) else ()
    waiting = sorted(vmi.full_name for vmi in every if any(_rebuilding(vmi, cluster)))
    if waiting:
        yield f"no migration of {names(waiting, 80)} begins before Longhorn has rebuilt its volumes"


def _rebuilding(vmi: Object, cluster: Cluster) -> Iterator[str]:
    """Yield the claims of a VMI whose volume is being rebuilt, as ``data (8% done)``."""
    for claim, engine in _engines(vmi, cluster):
        yield f"{claim}{progress(engine, cluster)}"


def remaining(vmi: Object, cluster: Cluster) -> timedelta:
    """Return for how long a migration of a VMI waits, if its volumes are rebuilt as fast as until
    now; zero: for none, or that is not known."""
    found = (left(engine, cluster) for _, engine in _engines(vmi, cluster))
    return max((each for each in found if each is not None), default=timedelta())


def _engines(vmi: Object, cluster: Cluster) -> Iterator[tuple[str, Object]]:
    """Yield the claims of a VMI whose volume is being rebuilt, with the engine of the volume."""
    engines = cluster.cached(write_only)
    for claim in launcher_pod.all_claims(vmi["spec"]) if engines else ():
        volume = csi_of(find(cluster, PVC, vmi.namespace or "default", claim), cluster)
        name = volume["volumeHandle"].text if volume["driver"].text == _DRIVER else None
        if name and (engine := entry(cluster, write_only, name)) is not None:
            yield claim, engine


def write_only(cluster: Cluster) -> Mapping[str, Object]:
    """Return the engines that run with a replica which is being rebuilt, by volume."""
    return {
        engine.at("spec", "volumeName").text or "": engine
        for engine in cluster.known(LONGHORN_ENGINE)
        if engine.at("spec", "active").boolean is not False
        and engine.at("status", "currentState").text == "running"
        and any(
            mode.text == WRITE_ONLY for _, mode in engine.at("status", "replicaModeMap").entries()
        )
    }


def progress(engine: Object, cluster: Cluster) -> str:
    """Return how far the rebuilding is, in brackets; empty: not known."""
    ends = left(engine, cluster)
    lasts = f"{'over ' if ends == _LONGEST else 'about '}{clock.duration(ends)}" if ends else ""
    return _done(_percent(engine), f", {lasts} left" if lasts else "")


def left(engine: Object, cluster: Cluster) -> timedelta | None:
    """Return how long a rebuilding lasts yet, at most a day, if it goes on as since the engine took
    the replica in; None: that is not known, or it began a moment ago."""
    began = engine.at("status", "replicaTransitionTimeMap")
    modes = engine.at("status", "replicaModeMap").entries()
    written = [name for name, mode in modes if mode.text == WRITE_ONLY]
    ends = [clock.since(began[name].text, cluster) for name in written]
    done = next(iter(_percent(engine)), 0)
    known = [each for each in ends if each is not None and each >= _TELLING]
    if not done or not known or len(known) < len(ends):
        return None
    return min(max(known) * (100 - done) / done, _LONGEST)


def rebuilds(engine: Object) -> Mapping[str, Field]:
    """Return what an engine reports of rebuildings, by the replica that is written."""
    found = {
        url.removeprefix("tcp://"): each
        for url, each in engine.at("status", "rebuildStatus").entries()
    }
    addresses = engine.at("status", "currentReplicaAddressMap").entries()
    return {name: found[at] for name, each in addresses if (at := each.text or "") in found}


def percent(rebuild: Field) -> int | None:
    """Return how many percent of a rebuilding are done; None: it does not go on, or that is not
    known."""
    done = rebuild["progress"].integer if rebuild["isRebuilding"].boolean else None
    return done if done is not None and 0 <= done <= 100 else None


def _percent(engine: Object) -> list[int]:
    """Return how many percent of the slowest rebuilding are done; empty: not known."""
    every = (percent(each) for _, each in engine.at("status", "rebuildStatus").entries())
    return [min(known)] if (known := [each for each in every if each is not None]) else []


def _done(percents: Sequence[int], more: str = "") -> str:
    if not percents:
        return ""
    ends = dict.fromkeys((min(percents), max(percents)))
    return f" ({' to '.join(f'{each}%' for each in ends)} done{more})"


def ending(found: ReportedProblem, cluster: Cluster) -> ReportedProblem:
    """Return what volumes report, with the rebuilding that ends it where they are degraded."""
    if (found.kind, found.text) != (LONGHORN_VOLUME.kind, _DEGRADED):
        return found
    volumes = [found.name, *(each.rpartition("/")[2] for each in found.also)]
    engines = [entry(cluster, write_only, each) for each in volumes]
    rebuilt = [each for each in engines if each is not None]
    if not rebuilt:
        return found
    far = _done([each for engine in rebuilt for each in _percent(engine)])
    if len(rebuilt) == len(volumes):
        of_each = " of each" if found.also else ""
        return replace(found, text=f"{_DEGRADED} until Longhorn has rebuilt a copy{of_each}{far}")
    return replace(found, text=f"{_DEGRADED}; Longhorn rebuilds {len(rebuilt)} of them now{far}")


_DEGRADED: Final = "robustness degraded"
"""What a volume reports that lacks a copy."""
