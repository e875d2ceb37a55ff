"""Nodes with VMs that no health check can remediate."""

import pytest

from tests.builders import complete
from tests.model.kubevirt.drain_cases import HERE, THERE, vm, vmi
from virt_admit.forecasts.drain.drain_plan import plan


@pytest.mark.parametrize(("run", "nodes"), [("Always", ("a",)), ("Manual", ())])
def test_a_health_check_helps_only_vms_that_start_again(run, nodes):
    found = plan(complete(vmi("None", True), HERE, THERE, vm(run)))
    assert found.uncovered == nodes
