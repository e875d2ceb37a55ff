"""An update of KubeVirt to a release whose target pods have what a network binding needs."""

import pytest

from tests.builders import complete, kubevirt
from tests.forecasts.drain import vm_motion
from tests.forecasts.drain.test_frequency_updates import event_of_update
from tests.forecasts.drain.vm_motion import failed, launcher, vm
from virt_admit.forecasts.drain.workload_updates import Reach

FAILED = "target pod shutdown during migration: no network-info for network net1"
STATUS = {"k8s.v1.cni.cncf.io/network-status": '[{"device-info": {}}]'}
INFO = {"kubevirt.io/network-info": "{}"}


def update(*, taints=(), annotations=STATUS, **status):
    interface = {"name": "net1", "binding": {"name": "vhostuser"}}
    subject = vm_motion.vmi(
        spec={"domain": {"devices": {"interfaces": [interface]}, "memory": {"guest": "4Gi"}}}
    )
    binding = {"vhostuser": {"downwardAPI": "device-info"}}
    operator = kubevirt(
        {"network": {"binding": binding}}, status={"observedKubeVirtVersion": "v1.6.0"} | status
    )
    operator.data["spec"]["workloadUpdateStrategy"] = {"workloadUpdateMethods": ["LiveMigrate"]}
    target = launcher(on="b", suffix="2", job="j", phase="Failed", ready=False)
    target.data["metadata"]["annotations"] = annotations
    other = vm_motion.node("b", taints=list(taints))
    tries = (failed(number, FAILED, age=4000 - 900 * number) for number in (1, 2))
    return event_of_update(
        complete(vm_motion.node("a"), other, operator, subject, vm(), launcher(), target, *tries)
    )


@pytest.mark.parametrize(
    ("changes", "reach"),
    [
        ({}, Reach.MIGRATED),
        ({"targetKubeVirtVersion": "v1.6.3"}, Reach.MIGRATED),
        ({"targetKubeVirtVersion": "v1.6.2"}, Reach.RETRIED),
        ({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, Reach.RETRIED),  # it stays
        ({"annotations": STATUS | INFO}, Reach.UNKNOWN),  # they failed for something else
    ],
)
def test_the_update_that_heals_the_migration_also_makes_it(changes, reach):
    found = update(**changes)

    assert found.outcome == reach
    assert found.reason.startswith("by 1.6.3 or later") is (reach is Reach.MIGRATED)
