"""The fields that the rule on VMs that do not start declares are those that its forecast reads."""

from virt_admit.forecasts.drain.starts import start_fields, start_obstacles


def test_the_written_fields_are_those_of_the_module():
    written = {kind: set(paths) for kind, paths in start_fields.READS.items()}
    assert written == {kind: set(paths) for kind, paths in start_obstacles.READS.items()}
