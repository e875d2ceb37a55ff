"""Time-outs of migrations that never end, as written to switch them off."""

import pytest

from tests.builders import kubevirt
from tests.forecasts.drain.test_vm_states import row
from tests.forecasts.drain.vm_motion import ago, cluster, launcher, migration, vmi

ENDLESS = 2**63 - 1


@pytest.mark.parametrize(
    "settings",
    [
        {"progressTimeout": ENDLESS},
        {"completionTimeoutPerGiB": ENDLESS},
        {"bandwidthPerMigration": "1"},
        {"progressTimeout": ENDLESS, "completionTimeoutPerGiB": ENDLESS},
    ],
)
def test_a_migration_that_runs_is_told_whatever_its_time_outs_are(settings):
    spec = {"domain": {"memory": {"guest": "800Pi"}}}
    state = {"startTimestamp": ago(60), "sourceNode": "a", "migrationUid": "uid-evacuation-1"}
    guest, runs = vmi(on="a", spec=spec, migrationState=state), migration(phase="Running", age=60)
    found = row(cluster(kubevirt(migrations=settings), guest, launcher(on="a"), runs))
    assert "migrati" in found.reason
