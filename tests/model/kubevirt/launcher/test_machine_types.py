"""Whether the pods of a cluster demand a machine type."""

import pytest

from tests.builders import KUBEVIRT, manifest
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubevirt.launcher import machine_types

LABELLED = {f"{machine_types.LABEL}pc-q35-rhel9.6.0": "true"}
PLAIN = {"kubernetes.io/arch": "amd64"}


def cluster(release, labels, selector):
    launcher = {"labels": {"kubevirt.io": "virt-launcher"}}
    return Snapshot(
        (
            manifest(
                KUBEVIRT, "KubeVirt", "kubevirt", "kubevirt",
                status={"observedKubeVirtVersion": release},
            ),
            manifest("v1", "Node", "n1", metadata={"labels": labels}),
            manifest("v1", "Pod", "p", "shop", metadata=launcher, spec={"nodeSelector": selector}),
        ),
        ["*"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("release", "labels", "selector", "demanded"),
    [
        ("v1.8.2", LABELLED, PLAIN, True),
        ("v1.8.2", PLAIN, LABELLED, True),
        ("v1.8.2", PLAIN, None, True),  # no pod shows it
        ("v1.8.2", PLAIN, PLAIN, False),
        ("v1.5.0", LABELLED, LABELLED, False),
    ],
)
def test_a_build_shows_whether_it_demands_them(release, labels, selector, demanded):
    assert machine_types.are_demanded(cluster(release, labels, selector)) is demanded
