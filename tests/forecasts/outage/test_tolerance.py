"""The fields that the rules on failover capacity declare are those that their forecast reads."""

from virt_admit.forecasts.outage import failover, tolerance


def test_the_written_fields_are_those_of_the_modules():
    written = {kind: set(paths) for kind, paths in tolerance.READS.items()}
    assert written == {kind: set(paths) for kind, paths in failover.READS.items()}
