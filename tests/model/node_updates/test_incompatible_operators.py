"""Which operators keep OpenShift in its minor release, and what updates them."""

from tests.builders import manifest
from tests.work import measured
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.node_updates import incompatible_operators

GROUP = "operators.coreos.com/v1alpha1"
WORDS = "- maximum supported OCP version for {}/{} is 4.19"
ODF = WORDS.format("storage", "odf-operator.v4.18.11-rhodf")
OLDER = (
    "ClusterServiceVersions blocking cluster upgrade: storage/odf-operator.v4.18.11-rhodf is "
    "incompatible with OpenShift minor versions greater than 4.19,logs/loki.v5 is incompatible "
    "with OpenShift minor versions greater than 4.19"
)


def subscription(
    channel="stable-4.18", approval="Automatic", installed="odf-operator.v4.18.11-rhodf"
):
    spec, status = (
        {"channel": channel, "installPlanApproval": approval},
        {"installedCSV": installed},
    )
    return manifest(GROUP, "Subscription", "odf", "storage", spec=spec, status=status)


def install_plan(*names, phase="RequiresApproval"):
    spec = {"approved": False, "clusterServiceVersionNames": list(names)}
    return manifest(
        GROUP, "InstallPlan", "install-1", "storage", spec=spec, status={"phase": phase}
    )


def said(*objects, words=ODF):
    return incompatible_operators.remedy(words, Snapshot(list(objects), complete=["*"]))


def test_a_long_text_is_read_in_no_time():
    with measured() as work:
        assert said(words="a-" * 30_000) == said(words="a/" + "b." * 30_000) == ""
    assert work.seconds < 1


def test_a_newer_channel():
    words = said(subscription())
    assert words.startswith(
        "Set the channel of Subscription storage/odf, now stable-4.18, to a newer one such as "
        "stable-4.19."
    )
    assert "InstallPlan" not in words
    assert words.endswith(": kubectl edit subscriptions.operators.coreos.com odf -n storage")
    assert "now stable, to a newer one. The" in said(subscription("stable"))


def test_a_channel_without_a_newer_release():
    def own(channel):
        status = {"installedCSV": "odf-operator.v4.18.11-rhodf", "state": "AtLatestKnown"}
        spec = {"channel": channel, "name": "odf-operator"}
        return manifest(GROUP, "Subscription", "odf", "storage", spec=spec, status=status)

    def other(name, channel):
        return manifest(GROUP, "Subscription", name, "storage", spec={"channel": channel})

    words = said(own("stable-4.18"), other("mcg", "stable-4.18"), other("rmn", "stable-4.17"))
    assert "now stable-4.18, whose latest release is odf-operator.v4.18.11-rhodf, to a" in words
    assert "stable-4.19, and then see to those with the same channel: mcg. The" in words
    assert "; its channels: kubectl get packagemanifests" in words
    assert "mcg" not in said(own("stable"), other("mcg", "stable"))  # the name says no release


def test_an_install_plan_that_waits():
    newer = install_plan("odf-operator.v4.19.0-rhodf")
    assert said(subscription(), newer).startswith(
        "Approve InstallPlan storage/install-1, which updates odf-operator"
    )
    for other in (
        install_plan("odf-operator.v4.18.11-rhodf"),
        install_plan("x.v2"),
        install_plan("odf-operator.v5", phase="Complete"),
    ):
        assert "InstallPlan" not in said(subscription(), other)


def test_an_operator_whose_subscription_is_not_known():
    assert said(subscription(installed="x.v1")).endswith(
        ": kubectl get subscriptions.operators.coreos.com -n storage"
    )


def test_several_operators():
    words = f"{ODF} {WORDS.format('logs', 'loki.v5')}"
    assert "(and likewise for loki.v5 of logs)" in said(subscription(), words=words)


def test_the_words_of_older_releases():
    words = said(subscription(), words=OLDER)
    assert words.startswith("Set the channel of Subscription storage/odf, now stable-4.18,")
    assert "(and likewise for loki.v5 of logs)" in words


def test_other_words():
    assert said(words="AdminAckRequired") == ""


def test_a_channel_with_a_number_that_no_release_has():
    assert "to a newer one. The" in said(subscription(f"stable-4.{'9' * 5000}"))
