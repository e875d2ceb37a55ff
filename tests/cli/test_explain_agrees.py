"""The rows of ``virt-admit explain vm/NAME`` agree with each other:
what KubeVirt would allow and what happens.
"""

import pytest

from tests.builders import kubevirt
from tests.cli.explain_vm_cases import WORLD, Explainer
from tests.forecasts.drain import vm_motion as motion
from tests.forecasts.drain.test_control_path import guest, machine
from tests.forecasts.upgrade.test_skipped_drains import POOL, node
from tests.incidents_platform.operators import LOSS, install_plan, subscription
from virt_admit.model.kubernetes.objects import Object

REFUSED = [{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}]


@pytest.mark.parametrize(
    ("world", "migratable", "nodes"),
    [
        (WORLD, "yes", "b"),
        ((WORLD[0], *WORLD[2:]), "not now, as no other node takes it: see below", "no other node"),
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


@pytest.mark.parametrize(
    ("inherited", "origin"), [("LiveMigrate", "KubeVirt"), ("None", "VMI")], ids=["same", "changed"]
)
def test_what_sets_the_eviction_strategy(tmp_path, inherited, origin):
    """The VM sets none, and its VMI keeps what it inherited when it was created."""
    setting = kubevirt({"evictionStrategy": inherited})
    _, text = Explainer(tmp_path)(*WORLD, setting, form="text")
    assert f"  eviction strategy  LiveMigrate, set by {origin}\n" in text


def test_why_an_upgrade_is_not_possible_if_not_because_of_the_vm(tmp_path):
    held = map(Object, (subscription("v2.6.5", "v4.8.0"), install_plan("Failed", LOSS)))
    _, text = Explainer(tmp_path)(*WORLD, *held, form="text")
    (said,) = (line for line in text.splitlines() if line.startswith("  cluster upgrade"))
    assert "not possible, but not because of this VM: The update of operator" in said
    assert "kubevirt-hyperconverged from v2.6.5 to v4.8.0 is stuck" in said


@pytest.mark.parametrize(
    ("strategy", "end"),
    [
        ("Always", "down until its node is back"),
        (
            "RerunOnFailure",
            "down until its node is back, or off if the guest shuts down cleanly before",
        ),
        ("Manual", "shut down, and stays off"),
    ],
)
def test_what_an_upgrade_without_a_drain_does_to_the_vm(tmp_path, strategy, end):
    world = (node("SingleReplica"), POOL, guest("db"), machine("db", strategy))
    _, text = Explainer(tmp_path)(*world, form="text")
    assert f"  cluster upgrade    possible, and the VM is {end}\n" in text
    assert "for the loss of its node: see above" not in text


def test_a_vm_at_rest_has_a_state_in_words(tmp_path):
    _, text = Explainer(tmp_path)(*WORLD, form="text")
    assert "  state              it is not being migrated\n" in text
    _, text = Explainer(tmp_path)(WORLD[0], WORLD[2], form="text")
    assert "  state              does not run\n" in text
    assert "  could start on     a\n" in text
