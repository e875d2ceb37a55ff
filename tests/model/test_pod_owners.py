"""What is scaled so that a pod no longer uses a claim."""

import pytest

from tests.builders import manifest
from virt_admit.model import pod_owners
from virt_admit.model.kubernetes.cluster import Snapshot


def made(kind, name, owner=None, **fields):
    owners = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    version = "v1" if kind == "Pod" else "apps/v1"
    return manifest(version, kind, name, "shop", metadata={"ownerReferences": owners}, **fields)


OF_SET = made("Pod", "db-0", ("StatefulSet", "db"))
OF_DEPLOYMENT = made("Pod", "web-1-a", ("ReplicaSet", "web-1"))
REPLICAS = made("ReplicaSet", "web-1", ("Deployment", "web"))
DEPLOYMENT = made("Deployment", "web", spec={"replicas": 3})
ALL = ("*",)


@pytest.mark.parametrize(
    ("pod", "objects", "complete", "command"),
    [
        (OF_DEPLOYMENT, [REPLICAS, DEPLOYMENT], ALL, "scale deployment web -n shop --replicas=0"),
        (OF_DEPLOYMENT, [REPLICAS], ("pods", "replicasets.apps"), ""),
        (OF_DEPLOYMENT, [REPLICAS], ALL, ""),
        (OF_DEPLOYMENT, [REPLICAS, made("Deployment", "web", ("Export", "web"))], ALL, ""),
        (
            OF_SET,
            [made("StatefulSet", "db", spec={"replicas": 1})],
            ALL,
            "scale statefulset db -n shop --replicas=0",
        ),
        (OF_SET, [made("StatefulSet", "db")], ALL, "scale statefulset db -n shop --replicas=0"),
        (OF_SET, [made("StatefulSet", "db", spec={"replicas": 3})], ALL, ""),
        (OF_SET, [], ("pods",), ""),
    ],
    ids=[
        "Deployment",
        "Deployments unread",
        "the Deployment is gone",
        "an operator owns the Deployment",
        "one member",
        "one member by default",
        "other members have claims of their own",
        "StatefulSets unread",
    ],
)
def test_only_what_the_claim_needs_is_scaled(pod, objects, complete, command):
    found = pod_owners.scaled(pod, Snapshot([pod, *objects], complete))

    assert (found.command.removeprefix("kubectl ") if found is not None else "") == command
