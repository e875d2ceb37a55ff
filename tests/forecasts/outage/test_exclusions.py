"""Lost nodes that a NodeHealthCheck does not remediate because of a label,
or although its time has passed.
"""

import pytest

from tests.forecasts.outage.losses import lose, manifest, nhc, node, snapshot, vm

LABEL = "remediation.medik8s.io/exclude-from-remediation"
SKIPPED = "Remediation skipped on node n1: node has Exclude from Remediation label"
QUORUM = (
    "Skipping remediation of n1 for preventing control plane / etcd quorum loss, going to retry in "
    "a minute"
)

LEASE = "Skipped remediation of node: n1, because node lease is already taken"


def lost(since="2026-01-01T11:58:00Z", **labels):
    found = node("n1", ready="Unknown", **labels)
    found["status"]["conditions"][0]["lastTransitionTime"] = since
    clock = node("n3")
    clock["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T12:00:00Z"
    return [found, node("n2"), clock]


def operator(tag):
    containers = [{"name": "manager", "image": f"quay.io/medik8s/node-healthcheck-operator:{tag}"}]
    return manifest(
        "v1", "Pod", "nhc", "medik8s", spec={"containers": containers}, status={"phase": "Running"}
    )


def event(message, at="2026-01-01T11:59:00Z"):
    about = {"kind": "NodeHealthCheck", "name": "workers"}
    fields = {
        "involvedObject": about,
        "reason": "RemediationSkipped",
        "message": message,
        "lastTimestamp": at,
    }
    return manifest("v1", "Event", "skipped", "default", **fields)


@pytest.mark.parametrize(
    ("value", "others", "outcome"),
    [
        ("false", [operator("v0.11.0")], "never restarts"),
        ("false", [operator("v0.12.0")], "restarts"),
        (
            "false",
            [operator("v0.12.0"), operator("v0.10.2") | {"metadata": {"name": "b"}}],
            "never restarts",
        ),
        ("false", [], "unknown"),  # an image that has a digest alone
        ("false", [event(SKIPPED)], "never restarts"),
        ("false", [event(SKIPPED, at="2026-01-01T11:00:00Z")], "unknown"),  # of an earlier loss
        ("true", [operator("v0.12.0")], "never restarts"),
        (None, [operator("v0.10.2"), event(SKIPPED)], "restarts"),  # the label has been removed
    ],
)
def test_the_release_decides_what_the_value_of_the_label_means(value, others, outcome):
    labels = {LABEL: value} if value is not None else {}
    (row,) = lose(snapshot(lost(**labels), vm("db", "n1"), nhc(), *others), "n1").outages[0].vms
    assert row.outcome == outcome
    if outcome == "never restarts":
        assert f"kubectl label node n1 {LABEL}-" in row.remedy


def test_the_label_of_a_maintenance_stays_until_that_ends():
    maintenance = manifest(
        "nodemaintenance.medik8s.io/v1beta1", "NodeMaintenance", "fw", spec={"nodeName": "n1"}
    )
    found = lose(snapshot(lost(**{LABEL: "true"}), vm("db", "n1"), nhc(), maintenance), "n1")
    assert "end NodeMaintenance fw when its work is done" in found.outages[0].vms[0].remedy
    assert "kubectl label" not in found.outages[0].vms[0].remedy


@pytest.mark.parametrize(
    ("started", "survives"), [("2026-01-01T11:57:00Z", True), ("2026-01-01T11:20:00Z", None)]
)
def test_a_remediation_that_has_begun_late_has_its_own_time(started, survives):
    check, template = nhc()
    check["status"] = {"unhealthyNodes": [{"name": "n1", "remediations": [{"started": started}]}]}
    found = lose(
        snapshot(lost("2026-01-01T11:00:00Z"), vm("db", "n1"), check, template, event(QUORUM)), "n1"
    )
    assert found.survives is survives
    assert not any("it has said" in what for what in found.unseen)


@pytest.mark.parametrize(
    ("since", "others", "doubt"),
    [
        ("2026-01-01T11:58:00Z", [], None),
        (
            "2026-01-01T11:00:00Z",
            [],
            "why NodeHealthCheck workers has not freed the pods of n1, which has been lost for",
        ),
        (
            "2026-01-01T11:58:00Z",
            [event(QUORUM)],
            "whether NodeHealthCheck workers remediates n1: it has said 'Skipping",
        ),
        ("2026-01-01T11:58:00Z", [event(QUORUM.replace("n1", "n11"))], None),
        (
            "2026-01-01T11:58:00Z",
            [event(LEASE)],
            "whether NodeHealthCheck workers remediates n1: it has said 'Skipped",
        ),
    ],
)
def test_what_should_have_happened_is_not_promised(since, others, doubt):
    found = lose(snapshot(lost(since), vm("db", "n1"), nhc(), *others), "n1")
    assert found.survives is (None if doubt else True)
    assert doubt is None or any(doubt in what for what in found.unseen)
