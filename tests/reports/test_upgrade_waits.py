"""Guests that are shut down and find no room at first: how long they are down in all."""

from tests.builders import complete
from tests.cli.test_upgrade import kubevirt, node, vm
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.reports.drain import words
from virt_admit.reports.upgrade import text


def test_the_wait_for_room_is_told_as_the_whole_downtime():
    items = [*vm("big", "a", strategy="None", memory="50Gi"), kubevirt()]
    for number in range(4):
        items += vm(f"s{number}", "b", strategy="None", memory="8Gi")
    result = rehearse(complete(node("a"), node("b"), *items), Options())
    found = next(each for each in result.vms if each.name == "big")
    minutes = -(-found.downtime.high // 60)

    assert 0 < found.without_room < found.downtime.high
    assert (
        "shut down, and start once a node has room, their own at the latest: shop/big (down for up "
        f"to {minutes} min)"
    ) in text.text(result)


def test_an_upgrade_that_stops_no_vm_for_good_beside_drains_that_do():
    assert words.cost(0, 0) == ""
    assert words.cost(0, 1) == " A drain of each node would leave 1 VM stopped, an upgrade none."
    assert words.cost(1, 2).endswith("stopped after an upgrade, 2 after a drain of each node.")
