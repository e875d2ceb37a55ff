"""Durations and rotation settings: what is parsed, and what is refused."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.certs.world import DAILY, HOUR, SECOND
from tests.for_each import for_each
from virt_admit_certs.plan import Observation, plan
from virt_admit_certs.schedule import (
    PROFILES,
    SETTINGS,
    RotationSettings,
    RotationSettingsError,
    parse_duration,
    parse_settings,
    show_duration,
)
from virt_admit_certs.state import CertificateState

MINUTE = timedelta(minutes=1)

INJECTED = Observation(injected=True)


def name(
    state: CertificateState,
    at: datetime,
    seen: Observation = INJECTED,
    settings: RotationSettings = DAILY,
) -> str | None:
    step = plan(state, seen, at, settings)
    return step.name if step else None


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "hours"),
        [
            ("48h", 48),
            ("4h48m", 4.8),
            ("30d", 720),
            ("90s", 0.025),
            ("1d12h", 36),
            ("0s", 0),
            ("33h36m", 33.6),
            ("1s800ms", 0.0005),
        ],
    )
    def test_good(self, text, hours):
        assert parse_duration(text) == timedelta(hours=hours)

    @for_each(
        "text",
        [
            "",
            "48",
            "h",
            "48 h",
            "-1h",
            "1.5h",
            "1w",
            "1h ",
            " 1h",
            "1h30",
            "1H",
            "9" * 30 + "d",
            "٤h",
        ],
    )
    def test_bad(self, text):
        with pytest.raises(ValueError, match=r"duration|too long"):
            parse_duration(text)

    @given(st.integers(0, 10**12).map(lambda milliseconds: timedelta(milliseconds=milliseconds)))
    def test_shown_and_read_back(self, duration):
        assert parse_duration(show_duration(duration)) == duration


class TestSettings:
    def test_defaults_are_the_daily_profile(self):
        assert parse_settings({}) == RotationSettings()
        assert parse_settings({"profile": "daily"}) == RotationSettings()

    def test_names_of_settings(self):
        assert set(SETTINGS) == {
            "serving-duration",
            "serving-renew-before",
            "signer-duration",
            "signer-renew-before",
            "propagation",
            "check-interval",
            "key",
            "name-constraints",
            "profile",
        }

    @pytest.mark.parametrize("profile", PROFILES)
    def test_every_profile_is_accepted(self, profile):
        settings = parse_settings({"profile": profile})

        assert tuple(map(parse_duration, PROFILES[profile])) == (
            settings.serving_duration,
            settings.serving_renew_before,
            settings.signer_duration,
            settings.signer_renew_before,
        )

    def test_single_values_override_the_profile(self):
        settings = parse_settings(
            {"profile": "hco", "serving-duration": "20h", "key": "rsa2048", "propagation": "5m"}
        )

        assert settings.serving_duration == 20 * HOUR
        assert settings.serving_renew_before == 12 * HOUR
        assert (settings.key, settings.propagation) == ("rsa2048", 5 * MINUTE)

    def test_names_are_canonical_and_unique(self):
        assert parse_settings({}, names=("A.Svc", "a.svc", "::0001")).names == ("a.svc", "::1")

    @for_each(
        "values, parts",
        [
            ({"serving-duration": "9m59s"}, ["serving-duration", "9m59s", "10m"]),
            ({"serving-renew-before": "9m"}, ["serving-renew-before", "9m", "10m"]),
            ({"signer-duration": "1s"}, ["signer-duration", "1s"]),
            ({"signer-renew-before": "0s"}, ["signer-renew-before", "0s"]),
            ({"serving-renew-before": "48h"}, ["serving-renew-before", "48h", "serving-duration"]),
            ({"signer-renew-before": "720h"}, ["signer-renew-before", "720h", "signer-duration"]),
            (
                {"signer-duration": "47h", "signer-renew-before": "2h"},
                ["signer-duration", "47h", "serving-duration", "48h"],
            ),
            (
                {"signer-renew-before": "1h1m59s"},
                ["signer-renew-before", "1h1m59s", "propagation", "1m", "1h2m"],
            ),
            ({"propagation": "200h"}, ["signer-renew-before", "360h", "propagation", "200h"]),
            ({"key": "dsa"}, ["key", "dsa", "p256"]),
            ({"name-constraints": "yes"}, ["name-constraints", "yes", "on", "off"]),
            ({"profile": "weekly"}, ["profile", "weekly", "daily"]),
            ({"check-interval": "0s"}, ["check-interval", "0s", "1s"]),
            ({"check-interval": "999ms"}, ["check-interval", "999ms", "1s"]),
            ({"serving-duration": "soon"}, ["serving-duration", "soon"]),
            ({"duration": "1h"}, ["duration", "serving-duration"]),
            ({"signer-duration": "36501d"}, ["signer-duration", "876024h", "876000h"]),
            ({"propagation": "999999999d"}, ["propagation", "876000h"]),
            ({"check-interval": "999999999d"}, ["check-interval", "876000h"]),
        ],
    )
    def test_refused_with_names_and_values(self, values, parts):
        with pytest.raises(RotationSettingsError) as refused:
            parse_settings(values)

        assert all(part in str(refused.value) for part in parts)

    @pytest.mark.parametrize(
        "values",
        [
            {"serving-duration": "10m1s", "serving-renew-before": "10m"},
            {"serving-renew-before": "47h59m59s"},
            {"signer-duration": "48h", "signer-renew-before": "1h2m"},
            {"signer-renew-before": "719h59m59s"},
            {"propagation": "0s", "signer-renew-before": "1h"},
            {"check-interval": "1s"},
            {"signer-duration": "36500d", "check-interval": "36500d"},
        ],
    )
    def test_accepted_at_the_very_limit(self, values):
        parse_settings(values)

    def test_a_name_that_cannot_be_is_refused(self):
        with pytest.raises(RotationSettingsError, match=r"cert-name.*a b"):
            parse_settings({}, names=("a b",))

    def test_unsafe_intervals_lift_the_lower_limits_only(self):
        quick = {
            "serving-duration": "8s",
            "serving-renew-before": "4s",
            "signer-duration": "20s",
            "signer-renew-before": "10s",
            "propagation": "1s",
        }
        settings = parse_settings(quick, unsafe=True)

        assert (settings.minimum_age, settings.retire_after) == (
            timedelta(seconds=0.8),
            12 * SECOND,
        )
        with pytest.raises(RotationSettingsError):
            parse_settings(quick)
        with pytest.raises(RotationSettingsError):
            parse_settings({**quick, "serving-renew-before": "8s"}, unsafe=True)
        with pytest.raises(RotationSettingsError):
            parse_settings({**quick, "serving-duration": "0s"}, unsafe=True)
