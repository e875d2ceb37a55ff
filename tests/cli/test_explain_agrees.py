"""The rows of ``virt-admit explain vm/NAME`` agree with each other:
what KubeVirt would allow and what happens.
"""

import pytest

from tests.cli.explain_vm_cases import WORLD, Explainer
from tests.forecasts.drain import vm_motion as motion

REFUSED = [{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}]


@pytest.mark.parametrize(
    ("world", "migratable", "nodes"),
    [
        (WORLD, "yes", "b"),
        ((WORLD[0], *WORLD[2:]), "in principle, but not now: see below", "no other node"),
        (
            (*WORLD[:3], motion.vmi(reported=False, conditions=REFUSED), WORLD[4]),
            "no",
            "no other node, as it cannot migrate",
        ),
    ],
    ids=["healthy", "alone", "refused"],
)
def test_what_may_migrate_and_where_it_could_go(tmp_path, world, migratable, nodes):
    _, text = Explainer(tmp_path)(*world, form="text")
    assert f"  can migrate        {migratable}\n" in text
    assert f"  could go to        {nodes}\n" in text
    assert "but not because of this VM" not in text


def test_a_vm_at_rest_has_a_state_in_words(tmp_path):
    _, text = Explainer(tmp_path)(*WORLD, form="text")
    assert "  state              it is not being migrated\n" in text
    _, text = Explainer(tmp_path)(WORLD[0], WORLD[2], form="text")
    assert "  state              does not run\n" in text
    assert "  could start on     a\n" in text
