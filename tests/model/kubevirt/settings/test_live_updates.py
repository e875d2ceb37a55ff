"""Whether KubeVirt applies a change of affinity to a running VMI."""

import pytest

from tests.builders import kubevirt
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubevirt.settings import live_updates


@pytest.mark.parametrize(
    ("release", "strategy", "live"),
    [
        ("v1.8.1", None, True),
        ("v1.6.0", None, True),
        ("v1.5.3", None, False),
        ("v1.8.1", "Stage", False),
        ("v1.5.3", "LiveUpdate", True),
        ("v1.3.0", "LiveUpdate", False),
        (None, None, None),
    ],
)
def test_a_change_of_affinity_reaches_a_running_vmi(release, strategy, live):
    configuration = {"vmRolloutStrategy": strategy} if strategy else {}
    status = {"observedKubeVirtVersion": release} if release else {}
    assert live_updates.is_live(Snapshot([kubevirt(configuration, status=status)], ["*"])) is live


def test_without_a_kubevirt_it_is_not_known():
    assert live_updates.is_live(Snapshot()) is None
    assert live_updates.effect(Snapshot()) == ", and restart the VM if vmRolloutStrategy is Stage"
