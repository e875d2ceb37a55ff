"""Longhorn starts no migration of a volume of which it rebuilds a copy."""

import pytest

from tests.builders import complete, manifest, vmi
from virt_admit.forecasts.drain.targets import rebuilt_volumes
from virt_admit.forecasts.upgrade import simulated_world
from virt_admit.model.evidence.reported import ReportedProblem
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import LONGHORN_ENGINE, PV, PVC, VMI

NOON = "2026-01-01T12:00:00Z"
KINDS = (VMI, PVC, PV, LONGHORN_ENGINE)
CLAIM = {"name": "root", "persistentVolumeClaim": {"claimName": "data"}}


def engine(*modes, active=True, state="running", rebuilds=None, volume="v-1", began=""):
    status = {
        "currentState": state,
        "replicaModeMap": {f"r-{number}": mode for number, mode in enumerate(modes)},
        "replicaTransitionTimeMap": {"r-0": began} if began else {},
        "rebuildStatus": rebuilds or {},
    }
    spec = {"volumeName": volume, "active": active}
    own = "longhorn.io/v1beta2", "Engine", f"{volume}-e-0", "lh"
    return manifest(*own, spec=spec, status=status)


def cluster(*objects, driver="driver.longhorn.io"):
    own = vmi(volumes=[CLAIM])
    pv = {"csi": {"driver": driver, "volumeHandle": "v-1"}}
    claim = {"volumeName": "pv-1"}
    return own, complete(
        own,
        manifest("v1", "PersistentVolumeClaim", "data", own.namespace, spec=claim),
        manifest("v1", "PersistentVolume", "pv-1", spec=pv),
        *objects,
    )


@pytest.mark.parametrize(
    ("own", "waits"),
    [
        (engine("RW", "WO", "RW"), True),
        (engine("RW", "RW"), False),  # degraded
        (engine("RW", "ERR"), False),
        (engine("RW", "WO", active=False), False),
        (engine("RW", "WO", state="stopped"), False),
        (engine("RW", "WO", volume="v-2"), False),
    ],
    ids=["rebuilds", "degraded", "failed", "of-migration", "stopped", "other"],
)
def test_a_migration_waits_for_a_copy_that_is_rebuilt(own, waits):
    vm, found = cluster(own)
    said = rebuilt_volumes.words(vm, found)
    assert said == (" once Longhorn has rebuilt a copy of claim data" if waits else "")
    assert len(list(rebuilt_volumes.notes(found))) == waits


def test_how_far_it_is():
    status = {
        "tcp://a:1": {"isRebuilding": True, "progress": 31},
        "tcp://b:1": {"isRebuilding": True, "progress": 8},
        "tcp://c:1": {"isRebuilding": False, "progress": 0},
    }
    vm, found = cluster(engine("WO", "WO", "RW", rebuilds=status))
    assert rebuilt_volumes.words(vm, found).endswith("claim data (8% done)")


@pytest.mark.parametrize(
    ("began", "progress", "seconds", "says"),
    [
        ("2026-01-01T11:58:00Z", 25, 360, "(25% done, about 6 min left)"),
        ("2026-01-01T11:59:30Z", 25, 0, "(25% done)"),
        ("2026-01-01T11:58:00Z", 0, 0, "(0% done)"),
        ("2026-01-01T11:58:00Z", 100, 0, "(100% done)"),
        ("", 25, 0, "(25% done)"),
        ("2025-03-01T00:00:00Z", 1, 86400, "(1% done, over 24 h left)"),
        ("2026-01-01T11:58:00Z", 10**15, 0, "claim data"),
        ("2026-01-01T11:58:00Z", -1, 0, "claim data"),
    ],
    ids=[
        *("as fast as until now", "a moment ago", "nothing is done", "all is done", "not known"),
        *("it may never end", "no percentage", "a negative one"),
    ],
)
def test_how_long_a_migration_waits(began, progress, seconds, says):
    rebuilds = {"a": {"isRebuilding": True, "progress": progress}}
    vm, found = cluster(engine("WO", "RW", rebuilds=rebuilds, began=began))
    timed = Snapshot([each for kind in KINDS for each in found.known(kind)], ["*"], time=NOON)
    assert rebuilt_volumes.remaining(vm, timed).total_seconds() == seconds
    assert rebuilt_volumes.words(vm, timed).endswith(says)
    bounds = [simulated_world.rebuilt_in(vm, each, timed) for each in ("low", "high")]
    assert bounds == [seconds, 2 * seconds]


def test_another_driver_is_not_longhorn():
    vm, found = cluster(engine("WO"), driver="other.io")
    assert not rebuilt_volumes.words(vm, found)


def reports(*others, text="robustness degraded"):
    return ReportedProblem("Volume", "longhorn-system", "v-1", text, None, also=others)


@pytest.mark.parametrize(
    ("engines", "found", "says"),
    [
        ([engine("WO", "RW")], reports(), "degraded until Longhorn has rebuilt a copy"),
        (
            [
                engine("WO", "RW", rebuilds={"a": {"isRebuilding": True, "progress": 12}}),
                engine(
                    "WO", "RW", volume="v-2", rebuilds={"a": {"isRebuilding": True, "progress": 81}}
                ),
            ],
            reports("longhorn-system/v-2"),
            "degraded until Longhorn has rebuilt a copy of each (12% to 81% done)",
        ),
        (
            [engine("WO", "RW")],
            reports("longhorn-system/v-2"),
            "degraded; Longhorn rebuilds 1 of them now",
        ),
        ([engine("RW", "RW")], reports(), "robustness degraded"),
        ([engine("WO", "RW")], reports(text="state faulted"), "state faulted"),
    ],
    ids=["one", "each", "some", "none", "another state"],
)
def test_scan_names_the_rebuilding_that_ends_a_degraded_volume(engines, found, says):
    told = rebuilt_volumes.ending(found, cluster(*engines)[1])
    assert told.text.removeprefix("robustness ") == says.removeprefix("robustness ")
