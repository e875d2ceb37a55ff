"""The fields that the rule on VMs that do not start declares are those that its forecast reads."""

from virt_admit.forecasts.drain.states import start_fields, stuck_starts


def test_the_written_fields_are_those_of_the_module():
    written = {kind: set(paths) for kind, paths in start_fields.READS.items()}
    assert written == {kind: set(paths) for kind, paths in stuck_starts.READS.items()}
