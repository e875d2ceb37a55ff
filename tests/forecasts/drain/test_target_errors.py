"""What virt-handler of the target says where a migration only tells that the target pod ended."""

import pytest

from tests.builders import manifest, warning
from tests.forecasts.drain.test_vm_states import BLOCKS, LAUNCHER, MIGRATES, UNKNOWN, row
from tests.forecasts.drain.vm_motion import ago, cluster, failed, vmi
from virt_admit.model.kubevirt.instances import migration_failures

ENDED = "target pod shutdown during migration"
LACKS = (
    "failed plugging phase2 at migration-target 'net': open /proc/1/root/var/run/kubevirt-private/"
    "vif-cache-pod1.json: no such file or directory"
)


def said(message, host="b", age=4010, command="SyncMigrationTarget"):
    text = (
        f'server error. command {command} failed: "failed to prepare migration target: {message}"'
    )
    return warning(vmi(), "SyncFailed", text, ago(age), source={"host": host})


def texts(*events, reason=ENDED):
    own = vmi()
    found = migration_failures.in_a_row(own, cluster(own, failed(1, reason), *events))
    return [each.text for each in found]


def test_the_words_of_the_target_follow_those_of_the_migration():
    assert texts(said('no \\"lease\\"')) == [f'{ENDED}: no "lease"']
    assert texts(said("no lease"), reason="") == ["no lease"]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (said("no lease", host="c"), ENDED),
        (said("no lease", age=9000), ENDED),
        (said("no lease", age=10), ENDED),
        (said("no lease", command="SyncVMI"), ENDED),
        (said("no lease"), "connection reset by peer"),
    ],
    ids=["another node", "before it", "after it", "the source", "its own words"],
)
def test_words_of_something_else(event, reason):
    assert texts(event, reason=reason) == [reason]


def attempts(number, message="", targets="bbbbb"):
    ages = [4000 - 500 * each for each in range(number)]
    for each, (age, target) in enumerate(zip(ages, targets, strict=False)):
        yield failed(each, ENDED, target=target, age=age)
        if message:
            yield said(message, age=age + 10, host=target)


@pytest.mark.parametrize(
    ("number", "message", "outcome"),
    [(2, "", MIGRATES), (2, "no lease", UNKNOWN), (2, "connection refused", MIGRATES)],
)
def test_an_end_that_is_explained_is_no_moment(number, message, outcome):
    assert row(cluster(vmi(), LAUNCHER, *attempts(number, message))).outcome == outcome


def test_the_state_that_virt_handler_keeps_and_the_other_nodes():
    found = row(cluster(vmi(), LAUNCHER, *attempts(5, LACKS)))

    assert found.outcome == BLOCKS
    assert "virt-handler on b keeps the network state of an earlier target pod" in found.reason
    assert "(/var/run/kubevirt-private/uid-db)" in found.reason
    assert found.remedy.startswith("cordon b until the VM has left its node (c could take it)")
    assert "kubectl cordon b" in found.remedy
    assert "on b remove the folder /var/run/kubevirt-private/uid-db" in found.remedy
    assert "update KubeVirt" not in found.remedy  # 1.9 has the fix


@pytest.mark.parametrize(
    ("release", "words"),
    [
        ("v1.6.3", "to 1.9 or later, or to a release of 1.6 after 1.6.6"),
        ("v1.5.2", "to 1.9 or later, which"),
        ("v1.6.7", ""),
    ],
)
def test_the_release_that_clears_the_state(release, words):
    status = {"observedKubeVirtVersion": release}
    kubevirt = manifest("kubevirt.io/v1", "KubeVirt", "kubevirt", "kubevirt", status=status)
    found = row(cluster(vmi(), LAUNCHER, kubevirt, *attempts(5, LACKS))).remedy

    assert (words in found) if words else ("update KubeVirt" not in found)


def test_two_nodes_have_no_common_state():
    found = row(cluster(vmi(), LAUNCHER, *attempts(5, LACKS, "bcbcb")))
    assert "keeps the network state" not in found.reason
