"""The sums over nodes that threads read while another one changes the ledger."""

from __future__ import annotations

import random
import sys
import threading

from virt_admit.model.scheduler.ledger import Ledger, LedgerNode, Role, Shape
from virt_admit.model.scheduler.room_totals import RoomSums, RoomTotals, RoomView

VIEW = RoomView()
NODES = [f"n{index}" for index in range(8)]
SHAPES = [
    Shape(role, (("memory", size),), 0)
    for role in (Role.RETURNS, Role.CONTROLLED)
    for size in (1, 3, 7)
]


def totals(ledger: Ledger) -> RoomTotals:
    return ledger.derive(VIEW, lambda: RoomSums(VIEW), lambda sums: sums.totals)


def changing(ledger: Ledger, rng: random.Random, changes: int) -> None:
    held: list[tuple[str, Shape]] = []
    for _ in range(changes):
        if held and rng.random() < 0.5:
            ledger.add(*held.pop(rng.randrange(len(held))), -1)
        else:
            held.append((rng.choice(NODES), rng.choice(SHAPES)))
            ledger.add(*held[-1])
        if rng.random() < 0.5:
            ledger.keep_up()


def cluster() -> Ledger:
    ledger = Ledger()
    for name in NODES:
        ledger.set_node(
            name,
            LedgerNode(
                {"memory": 100, "pods": 50}, hosts_vms=True, can_be_lost=True, is_closed=False
            ),
        )
    return ledger


def test_readers_while_the_ledger_changes():
    ledger, ended, failures = cluster(), threading.Event(), []

    def reading() -> None:
        try:
            while not ended.is_set():
                assert totals(ledger).number == len(NODES)
                assert totals(ledger.copy()).number == len(NODES)
        except Exception as error:
            failures.append(error)

    before, readers = sys.getswitchinterval(), [threading.Thread(target=reading) for _ in range(3)]
    sys.setswitchinterval(1e-6)
    try:
        for each in readers:
            each.start()
        changing(ledger, random.Random(1), 3_000)
    finally:
        ended.set()
        for each in readers:
            each.join()
        sys.setswitchinterval(before)
    assert not failures
    fresh = RoomSums(VIEW)
    fresh.follow(ledger, ("", *NODES))
    kept = totals(ledger)
    assert kept._replace(heaviest={}) == fresh.totals._replace(heaviest={})
    assert all(kept.heaviest[resource] >= most for resource, most in fresh.totals.heaviest.items())


def test_a_copy_changes_alone():
    ledger = cluster()
    changing(ledger, random.Random(2), 100)
    before = totals(ledger)
    other = ledger.copy()
    changing(other, random.Random(4), 100)
    assert totals(other) != before
    assert totals(ledger) == before


class Counted:
    """Counts how often it follows changes."""

    followed = 0

    def follow(self, _ledger: Ledger, _changed: object) -> None:
        self.followed += 1

    def copy(self) -> Counted:
        return self


def test_what_is_read_follows_before_the_next_reader():
    ledger = cluster()

    def followed() -> int:
        return ledger.derive("count", Counted, lambda value: value.followed)

    assert followed() == 1
    ledger.add("n0", SHAPES[0])
    ledger.keep_up()
    assert followed() == 2
    assert followed() == 2
    for _ in range(2_000):  # it is not read any more, so it does not follow each change
        ledger.add("n0", SHAPES[0])
        ledger.keep_up()
    assert followed() < 1_500
