"""How far the TSC frequencies of nodes are from the one that a pod demands."""

import pytest

from tests.builders import complete, kubevirt
from virt_admit.model.kubevirt.instances import tsc

REFUSED = {"b": f"{tsc.DEMANDED}2893200000", "c": "cordoned"}


def gap(release, frequency="2893202000", scalable="false", refused=REFUSED):
    labels = {tsc.TSC_FREQUENCY: frequency, tsc.SCALABLE: scalable}
    cluster = complete(kubevirt(status={"observedKubeVirtVersion": release}))
    return tsc.gap(refused, {"b": labels, "c": labels}, cluster)


@pytest.mark.parametrize("release", ["v0.57.1", "v0.58.1", "v0.59.0"])
def test_an_update_takes_nodes_that_differ_by_some_khz(release):
    found = gap(release)

    assert found.updates
    assert found.words == (
        f"b has 2893202000, not scalable, and KubeVirt {release[1:]} wants them equal (label "
        "scheduling.node.kubevirt.io/tsc-frequency-2893200000, for Hyper-V reenlightenment or "
        "invtsc)"
    )
    assert found.remedy == (
        "update KubeVirt to 0.59.1 or later, which accepts a difference of 250 ppm"
    )


@pytest.mark.parametrize("release", ["v0.58.2", "v0.59.1", "v1.9.0", ""])
def test_a_release_with_the_tolerance_needs_no_update(release):
    assert (gap(release).updates, gap(release).remedy) == (False, "")


@pytest.mark.parametrize("release", ["v0.59.0", "v1.9.0"])
def test_no_update_takes_nodes_of_another_processor(release):
    found = gap(release, "2095078000")

    assert not found.updates
    assert found.remedy == (
        "add a node with TSC frequency 2893200000, or a scalable one with a higher frequency"
    )


def test_a_frequency_that_is_not_known_is_not_compared():
    assert gap("v0.59.0", "") is None
    assert gap("v0.59.0", refused={"c": "cordoned"}) is None
    assert gap("v0.59.0", refused={"b": f"{tsc.DEMANDED}2893200000; cordoned"}) is None
