"""Copies of Longhorn volumes that are not ready for workloads."""

import pytest

from tests.builders import manifest, node
from tests.healthy.parts import ago
from virt_admit.forecasts.placement.components.longhorn import unfinished_clones
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.messages import command_of

ERROR = "rpc error: code = Aborted desc = volume pvc-2 is not ready for workloads"
PV = manifest(
    "v1", "PersistentVolume", "pvc-2", spec={"csi": {"driver": "d", "volumeHandle": "pvc-2"}}
)
CLOSED = manifest(
    *("longhorn.io/v1beta2", "Node", "w3", "longhorn-system"),
    spec={"allowScheduling": False, "disks": {"d": {}}},
)


def volume(state, robustness="degraded"):
    status = {
        "state": "attached",
        "robustness": robustness,
        "currentNodeID": "w1",
        "cloneStatus": {"state": state, "sourceVolume": "pvc-1", "attemptCount": 3},
        "conditions": [{"type": "Scheduled", "status": "False"}],
    }
    return manifest(
        "longhorn.io/v1beta2",
        "Volume",
        "pvc-2",
        "longhorn-system",
        metadata={"creationTimestamp": ago(minutes=24)},
        spec={"numberOfReplicas": 3},
        status=status,
    )


def engine(**said):
    return manifest(
        "longhorn.io/v1beta2",
        "Engine",
        "pvc-2-e-0",
        "longhorn-system",
        spec={"volumeName": "pvc-2"},
        status={"cloneStatus": {"tcp://10.0.0.1": said}},
    )


def found(*objects, error=ERROR):
    cluster = Snapshot([node("w1"), PV, *objects], complete=["*"], time=ago())
    return unfinished_clones.of("pvc-2", error, cluster)


def test_a_copy_that_never_gets_healthy():
    held = found(volume("copy-completed-awaiting-healthy"), CLOSED)
    assert held.words == (
        "it is a copy of pvc-1 that is not done for 24 min (copy-completed-awaiting-healthy, "
        "attempt 3): Longhorn before 1.10.2 holds it on w1 until it is healthy, and no node takes "
        "a further one of its 3 replicas, as w3 takes none (spec.allowScheduling is false)"
    )
    assert command_of(held.remedy).startswith("kubectl patch nodes.longhorn.io w3")


def test_a_copy_that_fails():
    source = manifest("longhorn.io/v1beta2", "Volume", "pvc-1", "longhorn-system")
    held = found(volume("failed"), engine(error="no such snapshot"), CLOSED, source)
    assert held.words.endswith("for 24 min (failed, attempt 3): no such snapshot")
    assert command_of(held.remedy).endswith("volumes.longhorn.io pvc-1 -n longhorn-system")
    assert "allowScheduling" not in held.words


def test_a_copy_that_goes_on():
    held = found(volume("initiated"), engine(progress=40), CLOSED)
    assert not held.lasts
    assert command_of(held.remedy) == "kubectl describe engine pvc-2-e-0 -n longhorn-system"


def setting(value):
    name = "current-longhorn-version"
    return manifest("longhorn.io/v1beta2", "Setting", name, "longhorn-system", value=value)


def test_a_copy_with_all_its_data_is_attached_by_later_releases():
    attacher = manifest("apps/v1", "Deployment", "csi-attacher", "longhorn-system")
    copied = volume("copy-completed-awaiting-healthy")
    held = found(copied, CLOSED, attacher, setting("v1.12.0"))
    assert held.words == (
        "it is a copy of pvc-1 that has all its data now: Longhorn attaches it when the "
        "csi-attacher asks again, by default at most 5 min after it last did"
    )
    restart = "kubectl rollout restart deployment csi-attacher -n longhorn-system"
    assert (command_of(held.remedy), held.lasts) == (restart, False)
    assert "rollout" not in found(copied, setting("v1.10.2")).remedy  # it is not there
    assert "Longhorn before 1.10.2" in found(copied, CLOSED, attacher, setting("v1.10.1")).words
    faulted = volume("copy-completed-awaiting-healthy", "faulted")
    assert found(faulted, setting("v1.12.0")) is None
    assert found(copied, setting("v1.12.1"), error=f"{ERROR}: volume requires restoration") is None


@pytest.mark.parametrize(
    ("objects", "error"),
    [
        ([volume("completed")], ERROR),
        ([volume("")], ERROR),
        ([volume("initiated")], "rpc error: code = Internal desc = timeout"),
    ],
    ids=["done", "no copy", "another error"],
)
def test_other_volumes(objects, error):
    assert found(*objects, error=error) is None
