"""Health checks that are about to act on a silent node, and those that only seem to be."""

import pytest

from tests.forecasts.outage import losses
from virt_admit.forecasts.remediation import awaited_checks, awaited_return
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

NOW = "2026-01-01T10:00:00Z"
REFERENCE = {
    "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
    "kind": "SelfNodeRemediationTemplate",
}
TEMPLATE = REFERENCE | {
    "metadata": {"name": "t", "namespace": "x"},
    "spec": {"template": {"spec": {}}},
}


def check(healthy="51%", duration="300s"):
    entries = [
        {"type": "Ready", "status": status, "duration": duration} for status in ("Unknown", "False")
    ]
    spec = {
        "selector": {},
        "minHealthy": healthy,
        "unhealthyConditions": entries,
        "remediationTemplate": REFERENCE | {"name": "t", "namespace": "x"},
    }
    kind = {"apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck"}
    return kind | {"metadata": {"name": "h"}, "spec": spec}


def node(name, ready="True", since="2026-01-01T09:58:00Z", make=losses.node, **labels):
    made = make(name)
    made["metadata"]["labels"] |= labels
    seen = since if ready == "Unknown" else NOW
    made["status"]["conditions"] = [
        {"type": "Ready", "status": ready, "lastTransitionTime": since, "lastHeartbeatTime": seen}
    ]
    return made


def advice(*objects):
    return awaited_checks.advice(
        "a", Snapshot([Object(each) for each in (TEMPLATE, *objects)], ["*"], time=NOW)
    )


@pytest.mark.parametrize("since", ["2026-01-01T09:58:00Z", "2026-01-01T11:58:00+02:00"])
def test_it_acts_in_utc(since):
    said = advice(check(), node("a", "Unknown", since), node("b"), node("c"))

    assert said == "wait for NodeHealthCheck h, which acts on it at 10:03:00 UTC if it stays silent"


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param(
            (check(duration="2000000h"), node("a", "Unknown", "9998-12-31T00:00:00Z"), node("b")),
            id="no-time",
        ),
        pytest.param(
            (check(), node("a", "Unknown"), node("b", "False"), node("c")),
            id="too-many-with-ready-false",
        ),
        pytest.param(
            (
                check("0%"),
                node("a", "Unknown", make=losses.master),
                node("b", "Unknown", make=losses.master),
                node("c"),
            ),
            id="one-control-plane-node-at-a-time",
        ),
    ],
)
def test_nothing_is_promised(objects):
    assert not advice(*objects)


def version(progressing="False"):
    status = {"conditions": [{"type": "Progressing", "status": progressing}]}
    return {
        "apiVersion": "config.openshift.io/v1",
        "kind": "ClusterVersion",
        "metadata": {"name": "version"},
        "status": status,
    }


def updated(name, **fields):
    made = node(name, **fields)
    group = "machineconfiguration.openshift.io"
    made["metadata"]["annotations"] = {
        f"{group}/currentConfig": "old",
        f"{group}/desiredConfig": "new",
    }
    return made


def etcd(allowed):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "etcd-guard-pdb", "namespace": "openshift-etcd"},
        "spec": {"selector": {"matchLabels": {"app": "guard"}}},
        "status": {"disruptionsAllowed": allowed},
    }


GUARD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "etcd-guard-a", "namespace": "openshift-etcd", "labels": {"app": "guard"}},
    "spec": {"nodeName": "a"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}
STORM = {"type": "StormActive", "status": "True"}


def in_storm():
    made = check()
    made["spec"]["stormCooldownDuration"] = "20m"
    return made | {"status": {"conditions": [STORM]}}


@pytest.mark.parametrize(
    ("objects", "acts"),
    [
        ((check(), version(), node("a", "Unknown")), True),
        ((check(), version("True"), node("a", "Unknown")), False),
        ((check(), version(), updated("a", ready="Unknown")), False),
        ((check(), version(), etcd(0), GUARD, node("a", "Unknown", make=losses.master)), False),
        ((check(), version(), etcd(1), GUARD, node("a", "Unknown", make=losses.master)), True),
        ((check(), version(), etcd(0), GUARD, node("a", "Unknown")), True),
        ((in_storm(), node("a", "Unknown")), False),
    ],
)
def test_what_postpones_a_remediation_is_asked(objects, acts):
    assert bool(advice(*objects, node("b"), node("c"))) is acts


def harvester(value='{"enable":true,"period":300}', on="b", ready="Unknown"):
    managed = {"harvesterhci.io/managed": "true"}
    setting = losses.manifest(
        "harvesterhci.io/v1beta1", "Setting", "vm-force-reset-policy", value=value
    )
    place = {"namespace": "harvester-system", "labels": {"app.kubernetes.io/name": "harvester"}}
    own = losses.pod("harvester-1", on, "1Gi", metadata=place)
    return advice(setting, own, node("a", ready, **managed), node("b", **managed))


def test_harvester_itself_is_about_to_act():
    assert harvester() == (
        "wait for Harvester's setting vm-force-reset-policy, which acts on it at 10:03:00 UTC if "
        "it stays silent"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"value": '{"enable":false,"period":300}'},
        {"value": '{"enable":true,"period":60}'},
        {"on": "a"},
    ],
    ids=["switched off", "its time is over", "it was on that node alone"],
)
def test_harvester_that_is_not_about_to_act(change):
    assert harvester(**change) == ""


def test_the_same_is_the_advice_of_all_reports():
    cluster = Snapshot(
        [Object(each) for each in (TEMPLATE, check(), node("a", "Unknown"), node("b"), node("c"))],
        ["*"],
        time=NOW,
    )
    assert awaited_return.advice("a", cluster).startswith(
        "wait for NodeHealthCheck h, which acts on it at"
    )
