"""What a driver publishes for a class of thin volumes, and what may be done about it."""

import pytest

from tests.builders import complete, manifest
from virt_admit.forecasts.drain.starts.storage import thin_pools


def pools(free, size="1907348Mi"):
    groups = [{"name": "vg", "size": size, "free": free}]
    parameters = {"thinProvision": "yes"}
    return complete(
        manifest("storage.k8s.io/v1", "StorageClass", "thin", parameters=parameters),
        manifest("local.openebs.io/v1alpha1", "LVMNode", "a", "openebs", volumeGroups=groups),
    )


@pytest.mark.parametrize(
    ("free", "most", "shown", "smaller"),
    [("0", 0, "0 of 1.82Ti in vg on a", False), ("5Gi", 5 * 2**30, "5Gi of 1.82Ti", True)],
)
def test_a_smaller_claim_helps_only_where_something_is_left(free, most, shown, smaller):
    found = thin_pools.of("thin", {"a": most}, pools(free))

    assert found is not None
    assert shown in found.words
    assert ("smaller claim" in found.remedy("local.csi.openebs.io")) is smaller
