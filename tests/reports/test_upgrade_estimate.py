"""What the estimate of an upgrade rests on."""

from tests.cli.test_upgrade import kubevirt, node, vm
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.upgrade.text import text


def said(*objects):
    return text(rehearse(Snapshot(objects, ["*"]), Options()))


def test_without_an_estimate_it_rests_on_nothing():
    words = said(node("a"), *vm("x", "a"), kubevirt())

    assert words.startswith("No: ")
    assert "The estimate rests on" not in words


def test_limits_of_migrations_do_not_count_where_none_begins():
    words = said(node("a"), kubevirt())

    assert "The estimate rests on: 10 minutes for the update and reboot of a node" in words


def test_the_headline_counts_what_its_list_says():
    off = vm("off", "a", "None", "Manual")
    words = said(node("a"), node("b"), *vm("x", "a"), *off, kubevirt())

    assert "\n2 VMs, migrated or restarted: 1 once, 1 shut down on their nodes\n" in words
    assert "\n  shut down, and stay off: shop/off\n" in words
