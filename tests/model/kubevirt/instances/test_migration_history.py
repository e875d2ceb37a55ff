"""Where the last migrations of a VM went and why they failed, also before they have a state."""

from tests.forecasts.drain.test_target_pods import SCHEDULING, pending, warning
from tests.forecasts.drain.vm_motion import cluster, migration, vmi
from virt_admit.model.kubevirt.instances import migration_history


def last(*objects):
    own = vmi()
    return migration_history.history(own, cluster(own, *objects))[0]


def test_a_migration_goes_to_the_node_of_its_target_pod():
    pod = pending()
    found = last(SCHEDULING, pod)

    assert (found.source, found.target) == ("a", pod.at("spec", "nodeName").text)


def test_a_migration_without_a_target_pod_has_no_target():
    assert last(SCHEDULING).target == ""


def test_the_event_about_a_migration_says_why_it_failed():
    failed = migration(phase="Failed", failed=True)
    said = warning(
        failed, "FailedMigration", "Migration failed because target pod shutdown during migration"
    )

    assert last(failed, said).failure.text == "target pod shutdown during migration"
    assert last(failed).failure.text == ""


def test_a_phase_of_an_ended_migration_does_not_last_until_now():
    since = {"Pending": 1700, "Scheduling": 1699}

    assert last(migration(phase="Failed", age=1700, since=since)).phases == (("Pending", 1),)
    assert last(migration(phase="Scheduling", age=1700, since=since)).phases[-1][1] == 1699
