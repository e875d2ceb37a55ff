"""Times of day: a moment of another day than that of the listing has its date."""

import datetime
import json

import pytest
from click.testing import CliRunner

from tests.healthy.clusters import plain
from tests.healthy.parts import ago, conditions, snapshot
from tests.incidents.machines import find, guest
from virt_admit.cli.main import virt_admit
from virt_admit.forecasts.drain.states.vm_states_times import moment

NOW = datetime.datetime(2026, 11, 25, 3, 0, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("time", "now", "said"),
    [
        (NOW - datetime.timedelta(hours=2), NOW, "01:00 UTC"),
        (NOW - datetime.timedelta(days=10), NOW, "2026-11-15 03:00 UTC"),
        (NOW + datetime.timedelta(days=1), NOW, "2026-11-26 03:00 UTC"),
        (NOW, None, "2026-11-25 03:00 UTC"),
        (NOW, NOW.astimezone(datetime.timezone(datetime.timedelta(hours=-5))), "03:00 UTC"),
        (None, NOW, "an unknown time"),
    ],
)
def test_a_moment(time, now, said):
    assert moment(time, now) == said


@pytest.mark.parametrize("words", [("drain", "w1"), ("explain", "node/w1")])
@pytest.mark.parametrize(
    ("since", "said"), [({"days": 10}, "2026-11-10 12:00 UTC"), ({"hours": 2}, "10:00 UTC")]
)
def test_a_vm_that_is_refused_for_days_says_since_which_day(words, since, said, tmp_path):
    items = plain((1, 6)) + guest("db")
    refused, evicted = conditions(LiveMigratable=False, EvictionRequested=True)
    evicted["lastTransitionTime"] = ago(days=20)
    refused |= {"reason": "InterfaceNotLiveMigratable", "lastTransitionTime": ago(**since)}
    status = find(items, "VirtualMachineInstance", "db")["status"]
    status["conditions"] = [
        each for each in status["conditions"] if each["type"] != "LiveMigratable"
    ] + [refused, evicted]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(snapshot(items)))
    out = CliRunner().invoke(virt_admit, [*words, "--cluster", str(path)]).stdout
    assert f"state: its eviction is refused since {said}\n" in out
