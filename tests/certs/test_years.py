"""Years of certificates in seconds: outages, restarts, wrong clocks, lost races,
damage and deletion.

At every instant each serving cert that is shown and has not expired is trusted by what the
configurations carry; and one that has expired is shown only by a replica that was cut off for
longer than a renewal has time.
"""

from __future__ import annotations

import functools
import os
import random
from collections import Counter, deque
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.certs.world import HOUR, KINDS, NAMES, SECOND, START, FakeApi, Replica, Time, trusts
from virt_admit_certs.plan import STEPS
from virt_admit_certs.schedule import PROFILES, RotationSettings, parse_settings
from virt_admit_certs.state import KEYS

MINUTE = timedelta(minutes=1)
YEARS = int(os.environ.get("CERTIFICATE_YEARS", "3"))
"""``make verify-years`` takes ten."""


@pytest.fixture(autouse=True)
def keys_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse each PEM key once: the same few are read 78,000 times. Parsed keys do not change."""
    parse = functools.lru_cache(maxsize=64)(serialization.load_pem_private_key)
    monkeypatch.setattr(serialization, "load_pem_private_key", parse)


class Years:
    """Three replicas and what happens to them."""

    def __init__(self, settings: RotationSettings, replicas: int = 3) -> None:
        self.settings = settings
        # as long as an hour is on the daily schedule
        self.hour = settings.serving_renew_before / 24
        self.now = Time()
        self.api = FakeApi(self.now)
        self.api.register(entries=1)
        self.replicas = [Replica(self.api, settings, name=name) for name in "abc"[:replicas]]
        # what was published or stored is damaged, and no replica has had a round since
        self.dirty = False
        self.gone: list[Replica] = []
        self.rounds()

    def rounds(self, first: int = 0) -> None:
        """Every replica that reaches the API server has a round;
        after each of them the world is right.
        """
        for replica in self.replicas[first:] + self.replicas[:first]:
            replica.settle()
            if self.reaches(replica):
                self.dirty = False
                assert self.api.trusts(replica.chain), "healed within one tick"
            self.check()

    def reaches(self, replica: Replica) -> bool:
        return not (self.api.down or replica.cut)

    def check(self) -> None:
        if self.dirty:
            return
        for replica in self.replicas:
            if not replica.chain:
                continue
            leaf = replica.chain[0]
            if leaf.not_valid_after_utc <= self.now.now:
                checked = replica.rotator.status.checked
                assert checked is not None
                assert self.now.now - checked > self.settings.serving_renew_before - self.hour, (
                    "expired though it was connected"
                )
            else:
                assert self.api.trusts(replica.chain), "shown, alive, and not trusted"

    # What happens. Each takes a replica's number and a quantity.

    def passes(self, first: int, hours: int) -> None:
        for _ in range(3):
            if self.api.state.announced:  # what waits for a minute does not wait for hours
                self.a_minute_passes(first, 0)
        self.now.now += hours * self.hour
        self.check()
        self.rounds(first)

    def a_minute_passes(self, first: int, _: int) -> None:
        self.now.now += 61 * SECOND
        self.check()
        self.rounds(first)

    def is_cut_off(self, number: int, _: int) -> None:
        self.replicas[number].cut = not self.replicas[number].cut

    def restarts(self, number: int, _: int) -> None:
        old = self.replicas[number]
        self.gone.append(old)
        self.replicas[number] = Replica(
            self.api, self.settings, error=old.error, name="abc"[number]
        )
        self.replicas[number].cut = old.cut

    def everybody_restarts(self, _number: int, _: int) -> None:
        for number in range(len(self.replicas)):
            self.restarts(number, 0)

    def api_server_stops(self, _number: int, _: int) -> None:
        self.api.down = not self.api.down

    def local_clock_steps(self, number: int, hours: int) -> None:
        self.replicas[number].error = (hours - 10) * 7 * HOUR

    def api_servers_clock_steps(self, _number: int, hours: int) -> None:
        self.now.now += (hours - 10) * 3 * MINUTE

    def loses_a_race(self, number: int, _: int) -> None:
        """The next to write finds that another was quicker."""
        quicker = self.replicas[number]

        def before(verb: str) -> None:
            if verb == "patch secret":
                self.api.before = lambda _verb: None
                quicker.settle()

        self.api.before = before

    def rotation_is_asked_for(self, _number: int, hours: int) -> None:
        if not self.dirty and self.api.secret and len(self.api.state.bundle) < 5:
            self.api.edit(
                notes={
                    "rotate": f"{'signer' if hours % 2 else 'serving'}/{self.now.now.timestamp()}"
                }
            )

    def secret_is_deleted(self, number: int, hours: int) -> None:
        if not self.dirty and len(self.api.state.bundle) < 5:
            self.api.delete_secret()
            self.dirty = True
            if hours % 2:  # a replica still remembers
                self.rounds(number)

    def secret_is_damaged(self, number: int, hours: int) -> None:
        if not self.dirty and self.api.secret and len(self.api.state.bundle) < 5:
            self.api.edit({KEYS[hours % len(KEYS)]: b"garbage"})
            self.dirty = True
            if hours % 3:
                self.rounds(number)

    def notes_are_lost(self, _number: int, _: int) -> None:
        if self.api.secret:
            self.api.edit(
                notes=dict.fromkeys(("announced-at", "promoted-at", "rotate", "generation"))
            )

    def bundle_is_overwritten(self, _number: int, _: int) -> None:
        if not self.dirty:
            self.api.overwrite_bundles(b"")
            self.dirty = True

    def configuration_comes_and_goes(self, number: int, _: int) -> None:
        kind = KINDS[number % 2]
        if self.dirty:
            return
        if self.api.configurations.pop(kind, None) is None:
            self.api.register(kind, entries=1)
            self.dirty = True

    def everybody_is_back(self) -> None:
        self.api.down = False
        for replica in self.replicas:
            replica.cut = False

    def steps(self) -> Counter[str]:
        """How often each step was done, and a race lost."""
        counts = Counter[str]()
        for replica in self.replicas + self.gone:
            counts.update(
                {
                    label or what: count
                    for (what, label), count in replica.events.items()
                    if what != "error"
                }
            )
        return counts

    def heals(self) -> None:
        """Whatever has happened: with all replicas back, one tick repairs all, and some days later
        nothing is left of it.
        """
        self.everybody_is_back()
        self.rounds()
        assert all(self.api.trusts(replica.chain) for replica in self.replicas)
        assert not [fault for fault in self.api.state.faults if not fault.startswith("cross.crt")]
        repaired, state = self.now.now, self.api.state
        fading = set(state.bundle) - {pair.cert for pair in (state.signer, state.next) if pair}
        while fading & set(self.api.state.bundle):
            self.passes(0, 5)
            assert (
                self.now.now - repaired < self.settings.signer_duration + self.settings.retire_after
            )
        assert len({replica.chain for replica in self.replicas}) == 1


HAPPENINGS = (
    *(Years.passes,) * 8,
    Years.a_minute_passes,
    Years.is_cut_off,
    Years.restarts,
    Years.everybody_restarts,
    Years.api_server_stops,
    Years.local_clock_steps,
    Years.api_servers_clock_steps,
    Years.loses_a_race,
    Years.rotation_is_asked_for,
    Years.secret_is_deleted,
    Years.secret_is_damaged,
    Years.notes_are_lost,
    Years.bundle_is_overwritten,
    Years.configuration_comes_and_goes,
)


@pytest.mark.slow
def test_whatever_happens() -> None:
    lived = Counter[str]()

    @settings(
        max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(
        st.sampled_from(list(PROFILES)),
        st.lists(
            st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 2), st.integers(1, 20)),
            min_size=20,
            max_size=50,
        ),
    )
    def live(profile: str, happenings: list[Any]) -> None:
        years = Years(parse_settings({"profile": profile}, names=NAMES[:1]))
        for happening, number, quantity in happenings:
            happening(years, number, quantity)
            lived[happening.__name__] += 1
        years.heals()
        lived.update(years.steps())

    live()

    assert set(lived) >= {happening.__name__ for happening in HAPPENINGS} | set(STEPS) | {
        "conflict"
    }


@pytest.mark.slow
def test_years_of_daily_certificates() -> None:
    """The default schedule; something goes wrong about every third day."""
    chance = random.Random(11)
    years = Years(parse_settings({}, names=NAMES[:1]), replicas=2)
    happened = 0
    while years.now.now < START + YEARS * timedelta(days=365):
        years.passes(chance.randrange(2), chance.randint(16, 22))
        if chance.random() < 0.2:
            chance.choice(HAPPENINGS)(years, chance.randrange(2), chance.randint(1, 20))
            happened += 1
        if chance.random() < 0.3:
            years.everybody_is_back()
    years.heals()

    assert happened > 80 * YEARS
    assert years.steps()["renew"] > 150 * YEARS
    assert years.steps()["promote"] > 20 * YEARS


def test_api_servers_that_learn_of_a_bundle_ninety_seconds_late() -> None:
    """Longer than the wait before a promotion:
    the cross certificate convinces those who know the old signer only.
    """
    years = Years(parse_settings({"profile": "hco"}, names=NAMES[:1]))
    late: deque[set[bytes]] = deque(maxlen=9)
    crossed = 0
    for _ in range(16 * 3600 // 10):
        if years.api.state.notes.get("rotate") is None:
            years.rotation_is_asked_for(0, 1)
        late.append(set(years.api.published))
        for replica in years.replicas:
            replica.rotator.reconcile_once()
            crossed += len(replica.chain) > 1
            assert all(
                trusts(bundle, replica.chain, years.now.now) for bundle in late[0] | late[-1]
            )
        years.now.now += 10 * SECOND
        if years.steps()["promote"] and crossed > 100:
            break

    assert years.steps()["promote"] == 1
    assert crossed > 100
