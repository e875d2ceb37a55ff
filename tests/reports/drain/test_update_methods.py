"""How the text of ``drain`` tells VMs that no update of KubeVirt reaches."""

import pytest

from tests.cli.test_drain_plan import kubevirt, node, seen, vm, vmi
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.reports.drain.text import text


@pytest.mark.parametrize(
    ("methods", "told"),
    [
        ([], "  not by KubeVirt: shop/oracle (no update method is listed, so its next restart "),
        (["LiveMigrate"], "  never: shop/oracle (it cannot migrate: DisksNotLiveMigratable)"),
    ],
)
def test_without_methods_that_is_not_never(methods, told):
    stays = [vmi("oracle", "a", migratable=False), vm("oracle")]
    said = text(plan(seen([node("a")], stays, [kubevirt(*methods)])))
    assert told in said
    assert ("never" in said) is bool(methods)
