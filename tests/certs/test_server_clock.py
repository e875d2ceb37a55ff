"""The clock of the API server, estimated from its responses."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.certs.world import DAY, SECOND, START, Time
from virt_admit_certs.server_clock import ServerClock


@pytest.fixture
def now() -> Time:
    return Time()


class TestClock:
    def clock(self, now: Time) -> ServerClock:
        self.error = timedelta()
        return ServerClock(lambda: now.now + self.error, now.monotonic)

    def test_without_an_api_server_local_time_counts(self, now):
        clock = self.clock(now)
        clock.observe_date(None)

        assert (clock.now(), clock.offset) == (START, 0)

    @pytest.mark.parametrize("seconds", [-86400, -20, -2, 2, 20, 86400])
    def test_the_api_servers_time_counts(self, now, seconds):
        clock = self.clock(now)
        self.error = -seconds * SECOND
        clock.observe_date(START)

        assert clock.offset == seconds
        assert clock.now() == START

    @pytest.mark.parametrize("seconds", [-1.9, -1, 0, 1, 1.9])
    def test_less_than_two_seconds_is_the_headers_resolution(self, now, seconds):
        clock = self.clock(now)
        clock.observe_date(START + seconds * SECOND)

        assert clock.offset == 0

    def test_one_answer_that_lay_around_is_forgiven(self, now):
        clock = self.clock(now)
        for late in (0, 0, 0, 300, 0):
            clock.observe_date(now.now - late * SECOND)
            assert clock.offset == 0
            now.now += 10 * SECOND

    @pytest.mark.parametrize("step", [-3 * DAY, -10 * SECOND, 10 * SECOND, 3 * DAY])
    def test_a_step_of_the_local_clock_counts_at_once(self, now, step):
        clock = self.clock(now)
        for _ in range(5):
            clock.observe_date(now.now)
            now.now += 10 * SECOND
        self.error = step
        clock.observe_date(now.now)

        assert clock.now() == now.now
        assert clock.offset == -step.total_seconds()
