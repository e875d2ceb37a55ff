"""Which pod of a Deployment is not ready, and what it demands that no node has."""

import pytest

from tests.builders import manifest, warning
from virt_admit.model.evidence import lost_pins, unready_pods
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

NOW = "2026-11-26T12:00:00Z"
HOST = "kubernetes.io/hostname"


def owned(kind, name):
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}
    return {"ownerReferences": [owner], "creationTimestamp": "2026-11-26T10:00:00Z"}


def node(name, **labels):
    meta = {"name": name, "labels": {HOST: name, **labels}}
    return Object({"apiVersion": "v1", "kind": "Node", "metadata": meta})


def pod(ready="False", **spec):
    found = manifest("v1", "Pod", "db-1", "shop", spec=spec)
    found.data["metadata"] |= owned("ReplicaSet", "db")
    found.data["status"] = {"phase": "Pending", "conditions": [{"type": "Ready", "status": ready}]}
    return found


def said(own, *others):
    deployment = manifest("apps/v1", "Deployment", "db", "shop", spec={"replicas": 1})
    made = manifest("apps/v1", "ReplicaSet", "db", "shop")
    made.data["metadata"] |= owned("Deployment", "db")
    items = [deployment, made, own, *others]
    return unready_pods.words(deployment, Snapshot(items, ["*"], time=NOW))


def failed(reason, message):
    return warning(pod(), reason, message, NOW)


def test_the_pod_that_is_not_ready_is_named_with_its_event():
    words = said(pod(nodeName="a"), failed("FailedMount", "mount failed"), node("a"))

    assert words == "0 of 1 ready, pod db-1, made 2 h ago, reports FailedMount: mount failed"


@pytest.mark.parametrize("reason", ["Unhealthy", "FailedMount"])
def test_no_key_of_an_address_is_quoted(reason):
    told = said(pod(nodeName="a"), failed(reason, 'Get "http://10.0.0.1/ok?key=hidden": EOF'))

    assert told.endswith(f'reports {reason}: Get "http://10.0.0.1/ok": EOF')


def test_a_pod_that_is_ready_is_not_named():
    assert said(pod("True", nodeName="a"), node("a")) == ""


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"nodeSelector": {HOST: "gone"}}, f"is pinned to node gone (nodeSelector {HOST})"),
        ({"nodeSelector": {"role": "db"}}, "demands label role=db (nodeSelector)"),
        ({"nodeSelector": {HOST: "a"}}, ""),
        ({"nodeSelector": {"zone": "z"}}, ""),
        ({}, ""),
        ({"nodeSelector": {HOST: "gone"}, "nodeName": "a"}, ""),
    ],
)
def test_what_a_pod_demands_that_no_node_has(spec, words):
    found = lost_pins.of_pod(pod(**spec), Snapshot([node("a", zone="z")], ["*"]))

    assert (found.words if found else "").startswith(words)
    assert bool(found) is bool(words)


@pytest.mark.parametrize(
    ("key", "values", "words"),
    [
        (HOST, ["x", "y"], f"is pinned to nodes x, y (node affinity {HOST}), none of which exists"),
        ("role", ["db"], "demands role=db (node affinity), which no node has"),
        (HOST, ["x", "a"], ""),
    ],
)
def test_the_affinity_of_a_pod_that_no_node_has(key, values, words):
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    own = pod(affinity={"nodeAffinity": required})
    found = lost_pins.of_pod(own, Snapshot([node("a")], ["*"]))

    assert (found.words if found else "") == words
    assert lost_pins.of_pod(own, Snapshot([node("a")], [])) is None  # other nodes may exist


def placed(key, **selector):
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return pod(affinity={"nodeAffinity": required}, nodeSelector=selector)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (
            placed("master", infra="", os="linux"),
            "demands infra= (nodeSelector) and master Exists (node affinity), which no node has "
            "together",
        ),
        (placed("infra", infra="", os="linux"), ""),
        (
            pod(nodeSelector={"infra": "", "master": ""}),
            "demands infra= and master= (nodeSelector), which no node has together",
        ),
        (pod(nodeSelector={"infra": "", "os": "linux"}), ""),
    ],
)
def test_demands_that_each_have_nodes_but_none_together(own, words):
    nodes = [node("a", infra="", os="linux"), node("b", master="", os="linux")]
    found = lost_pins.of_pod(own, Snapshot(nodes, ["*"]))

    assert (found.words if found else "") == words


@pytest.mark.parametrize(
    ("csv", "selector", "is_said"),
    [
        ("op.v2", {"infra": ""}, True),
        ("other.v2", {"infra": ""}, False),
        ("op.v2", {"zone": "z"}, False),
    ],
)
def test_the_subscription_whose_operator_demands_it(csv, selector, is_said):
    own = placed("master", infra="")
    made = manifest("apps/v1", "ReplicaSet", "db", "shop")
    made.data["metadata"] |= owned("Deployment", "db")
    deployment = manifest("apps/v1", "Deployment", "db", "shop")
    release = {"kind": "ClusterServiceVersion", "name": "op.v2", "controller": False}
    deployment.data["metadata"]["ownerReferences"] = [release]
    config, status = {"config": {"nodeSelector": selector}}, {"currentCSV": csv}
    api = "operators.coreos.com/v1alpha1"
    subscription = manifest(api, "Subscription", "op", "shop", spec=config, status=status)
    nodes = [node("a", infra=""), node("b", master="")]
    cluster = Snapshot([made, deployment, subscription, own, *nodes], ["*"])
    pin = lost_pins.of_pod(own, cluster)
    found = lost_pins.subscribed(own, pin, cluster)

    assert (found is not None) is is_said
    if found is not None:
        assert found.words == "spec.config.nodeSelector of Subscription op sets infra"
        assert found.remedy.startswith("set spec.config.affinity.nodeAffinity of Subscription op")
        assert "or take infra out of spec.config.nodeSelector" in found.remedy


@pytest.mark.parametrize(
    ("label", "has"), [("a.example.com", f"has {HOST}=a.example.com"), ("", "lacks")]
)
def test_the_node_exists_with_another_hostname(label, has):
    known = node("a", **{HOST: label})
    own = pod(nodeSelector={HOST: "a"})
    cluster = Snapshot([node("b"), known, own], ["*"])
    found = lost_pins.of_pod(own, cluster)

    assert found is not None
    assert found.gone is False
    assert f"is pinned to {HOST}=a (nodeSelector), but node a {has}" in found.words
    remedy = lost_pins.remedy(own, found, cluster)
    assert remedy.endswith(f"kubectl label node a {HOST}=a --overwrite")


def _selecting(selector, **metadata):
    """Return a Deployment with a nodeSelector, its ReplicaSet, and the way out of its pod."""
    spec = {"template": {"spec": {"nodeSelector": selector}}}
    deployment = manifest("apps/v1", "Deployment", "db", "shop", spec=spec, metadata=metadata)
    made = manifest("apps/v1", "ReplicaSet", "db", "shop")
    made.data["metadata"] |= owned("Deployment", "db")
    own = pod(nodeSelector=selector)
    cluster = Snapshot([made, deployment, own, node("a", zone="z")], ["*"])
    return lost_pins.way(own, lost_pins.of_pod(own, cluster), cluster)


def test_a_label_that_no_node_has_is_dropped_at_the_workload():
    patch = """'{"spec":{"template":{"spec":{"nodeSelector":{"pool":null}}}}}'"""
    assert _selecting({"pool": "spot", "zone": "z"}) == (
        "take pool=spot out of the nodeSelector of Deployment db: kubectl patch deployment db -n "
        f"shop --type=merge -p {patch}; or bring a node with label pool=spot back"
    )
    helm = _selecting({"pool": "spot"}, labels={"app.kubernetes.io/managed-by": "Helm"})
    assert "and in the values of its Helm release, which else writes it again" in helm


def test_a_workload_that_something_else_writes_is_changed_there():
    assert "patch" not in _selecting({"pool": "spot"}, ownerReferences=[{"kind": "Kyverno"}])
    assert "patch" not in _selecting({HOST: "b"})
    operated = _selecting(
        {"pool": "spot"}, labels={"app.kubernetes.io/managed-by": "virt-operator"}
    )
    assert "or change what Deployment db or its operator demands" in operated
    tracked = {"argocd.argoproj.io/tracking-id": "web:apps/Deployment:shop/db"}
    assert "and in Argo CD application web, which else writes it again" in _selecting(
        {"pool": "spot"}, annotations=tracked
    )
