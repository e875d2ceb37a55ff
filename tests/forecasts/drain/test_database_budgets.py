"""What becomes of the budgets of databases and queues,
by what their operators' own objects show.
"""

from tests.builders import manifest
from tests.forecasts.drain.operator_clusters import budget, node, pod
from tests.forecasts.drain.test_operator_budgets import (
    TWO,
    blocker,
    drained,
    unknown,
    wait,
    without,
)

CNPG = ("postgresql.cnpg.io/v1", "Cluster", "db")


def postgres(*replicas, instances=1):
    labels = {"cnpg.io/cluster": "db", "cnpg.io/instanceRole": "primary"}
    return [
        *(node(name) for name in TWO),
        pod("db-1", "shop", labels, "a", owner="Cluster"),
        budget("db-primary", "shop", labels, allowed=0, owner=CNPG, minAvailable=1),
        manifest("postgresql.cnpg.io/v1", "Cluster", "db", "shop", spec={"instances": instances}),
        *replicas,
    ]


def standby(on="b", *, ready=True):
    labels = {"cnpg.io/cluster": "db", "cnpg.io/instanceRole": "replica"}
    return pod("db-2", "shop", labels, on, ready=ready, owner="Cluster")


def of_noobaa(objects):
    """Return the objects as OpenShift Data Foundation has them,
    whose build of CloudNativePG has another API group.
    """
    for each in objects:
        if each.kind == "Cluster":
            each.data["apiVersion"] = "postgresql.cnpg.noobaa.io/v1"
        for owner in each.data["metadata"].get("ownerReferences", ()):
            if owner["kind"] == "Cluster":
                owner["apiVersion"] = "postgresql.cnpg.noobaa.io/v1"
    return objects


def test_postgres_of_noobaa():
    assert (
        "CloudNativePG moves the primary"
        in wait(of_noobaa(postgres(standby(), instances=2)))["reason"]
    )
    assert "one instance" in blocker(of_noobaa(postgres()))["reason"]
    plural = "clusters.postgresql.cnpg.noobaa.io"
    assert plural in unknown(without(of_noobaa(postgres()), ("Cluster", "db")), unreadable=[plural])


def test_postgres_that_another_controller_owns():
    objects = postgres()
    (top,) = (each for each in objects if each.kind == "Cluster")
    above = {
        "apiVersion": "documentdb.io/preview",
        "kind": "DocumentDB",
        "name": "orders",
        "controller": True,
    }
    top.data["metadata"]["ownerReferences"] = [above]
    found = blocker(objects)
    assert found["remedy"].startswith(
        "Ask for a second instance in DocumentDB orders, which owns Cluster db"
    )


def test_postgres():
    assert (
        "CloudNativePG moves the primary of Cluster db"
        in wait(postgres(standby(), instances=2))["reason"]
    )
    alone = blocker(postgres())
    assert (alone["now"], "instances: 2" in alone["remedy"]) == (False, True)
    assert blocker(postgres(standby(ready=False), instances=2))["now"] is True
    assert blocker(postgres(standby("a"), instances=2))["now"] is True
    assert "clusters.postgresql.cnpg.io" in unknown(
        without(postgres(), ("Cluster", "db")), unreadable=["clusters.postgresql.cnpg.io"]
    )


def kafka(*more):
    labels, owner = {"strimzi.io/cluster": "log"}, ("kafka.strimzi.io/v1beta2", "Kafka", "log")
    strict = budget(
        "log-kafka", "shop", labels, allowed=0, expected=3, owner=owner, maxUnavailable=0
    )
    return [
        node("a"),
        pod("log-kafka-0", "shop", labels, "a", owner="StrimziPodSet"),
        strict,
        *more,
    ]


def cleaner():
    hook = {
        "name": "strimzi-drain-cleaner.strimzi.io",
        "rules": [{"resources": ["pods/eviction"]}],
        "clientConfig": {
            "service": {"name": "strimzi-drain-cleaner", "namespace": "strimzi-drain-cleaner"}
        },
    }
    kind = "ValidatingWebhookConfiguration"
    return manifest(
        "admissionregistration.k8s.io/v1", kind, "strimzi-drain-cleaner", webhooks=[hook]
    )


def test_kafka():
    assert "Strimzi operator moves the pods of Kafka log" in wait(kafka(cleaner()))["reason"]
    found = blocker(kafka())
    assert (found["now"], "Drain Cleaner" in found["remedy"]) == (False, True)
    resource = "validatingwebhookconfigurations.admissionregistration.k8s.io"
    unread = drained(kafka(), unreadable=[resource])
    assert (unread["drainable"], [resource in what for what in unread["unseen"]]) == (
        None,
        [True, True],
    )


def search(health, *node_sets):
    labels, owner = (
        {"elasticsearch.k8s.elastic.co/cluster-name": "logs"},
        "elasticsearch.k8s.elastic.co/v1",
    )
    strict = budget("logs-es-default", "shop", labels, allowed=0, expected=3, minAvailable=3)
    strict.data["metadata"]["ownerReferences"] = [
        {"apiVersion": owner, "kind": "Elasticsearch", "name": "logs"}
    ]
    spec, status = {"nodeSets": list(node_sets)}, {"health": health}
    found = manifest(owner, "Elasticsearch", "logs", "shop", spec=spec, status=status)
    return [node("a"), pod("logs-es-0", "shop", labels, "a", owner="StatefulSet"), strict, found]


def test_elasticsearch():
    several = {"count": 3}
    masters = {"count": 3, "config": {"node.roles": ["master", "ingest"]}}
    assert "health of Elasticsearch logs is yellow" in blocker(search("yellow", several))["reason"]
    assert blocker(search("green", several))["now"] is True
    found = blocker(
        search("green", masters, {"count": 1, "config": {"node": {"roles": ["data_hot"]}}})
    )
    assert (found["now"], "single data node" in found["reason"]) == (False, True)
    resource = "elasticsearches.elasticsearch.k8s.elastic.co"
    assert resource in unknown(
        without(search("green"), ("Elasticsearch", "logs")), unreadable=[resource]
    )
