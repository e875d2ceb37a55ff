"""Kinds whose objects cannot be converted, and the programs that end as they read them."""

from __future__ import annotations

import pytest

from tests.builders import endpoint_slice, manifest
from tests.work import measured
from virt_admit.model.evidence.writes import silent_conversions
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import DEPLOYMENT

NOW = "2026-07-16T09:22:00Z"
HCO = "hyperconvergeds.hco.kubevirt.io"
CNV = "openshift-cnv"


def owner(kind, name):
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}


def program(name, namespace=CNV, ready=False, ends=1):
    """A Deployment with one pod, which ends again and again."""
    last = {"exitCode": ends, "finishedAt": "2026-07-16T09:19:00Z", "reason": "Error"}
    state = {"name": name, "restartCount": 9, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    waits = [] if ready else [{**state, "lastState": {"terminated": last}}]
    conditions = [{"type": "Ready", "status": str(ready)}]
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": waits}
    made = [
        manifest("apps/v1", "Deployment", name, namespace, spec={"replicas": 1}),
        manifest("apps/v1", "ReplicaSet", f"{name}-1", namespace),
        manifest("v1", "Pod", f"{name}-1-x", namespace, status=status),
    ]
    made[1].data["metadata"]["ownerReferences"] = [owner("Deployment", name)]
    made[2].data["metadata"] |= {
        "ownerReferences": [owner("ReplicaSet", f"{name}-1")],
        "labels": {"name": name},
    }
    return made


def definition(stored=("v1beta1", "v1"), strategy="Webhook", name=HCO, storage=True):
    client = {"service": {"name": "convert", "namespace": CNV}}
    versions = [{"name": "v1", "storage": storage}, {"name": "v1beta1", "storage": False}]
    spec = {
        "group": "hco.kubevirt.io",
        "names": {"kind": "HyperConverged", "plural": "hyperconvergeds"},
        "conversion": {"strategy": strategy, "webhook": {"clientConfig": client}},
        "versions": versions,
    }
    status = {"storedVersions": list(stored)}
    kind = "CustomResourceDefinition"
    return manifest("apiextensions.k8s.io/v1", kind, name, spec=spec, status=status)


def webhook(ready=False, behind="hco-webhook"):
    endpoint = {"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}
    selector = {"selector": {"name": behind}}
    return [
        manifest("v1", "Service", "convert", CNV, spec=selector),
        endpoint_slice("convert", CNV, endpoint),
    ]


MIGRATED = manifest(
    "migration.k8s.io/v1alpha1",
    "StorageVersionMigration",
    "hco",
    spec={"resource": {"group": "hco.kubevirt.io", "resource": "hyperconvergeds", "version": "v1"}},
    status={"conditions": [{"type": "Succeeded", "status": "True"}]},
)
BEHIND = [*program("hco-webhook"), *webhook()]
CIRCLE = [*program("hco-webhook"), *program("hco-operator"), *webhook()]


def found(*parts, of="hco-operator"):
    cluster = Snapshot(list(parts), ["*"], time=NOW)
    (deployment,) = (each for each in cluster.known(DEPLOYMENT) if each.name == of)
    return silent_conversions.of_deployment(deployment, cluster)


@pytest.mark.parametrize("of", ["hco-operator", "hco-webhook"])
def test_who_reads_a_kind_that_only_a_pod_that_ends_converts(of):
    told = found(definition(), *CIRCLE, of=of)

    assert told is not None
    assert told.words.startswith(
        f"HyperConverged cannot be read where it has to be converted: CustomResourceDefinition "
        f"{HCO} (storedVersions v1beta1, v1) calls Service {CNV}/convert, which has no ready "
        "endpoint: Pod hco-webhook-1-x: container hco-webhook: CrashLoopBackOff"
    )
    assert told.remedy.startswith(f"Repair Pod {CNV}/hco-webhook-1-x first")
    assert f"kubectl logs hco-webhook-1-x -n {CNV} --previous" in told.remedy
    assert "until no HyperConverged is stored in v1beta1" in told.remedy


@pytest.mark.parametrize(
    ("parts", "of"),
    [
        ([definition(["v1"]), *CIRCLE], "hco-operator"),
        ([definition(storage=None), *CIRCLE], "hco-operator"),
        ([definition(strategy="None"), *CIRCLE], "hco-operator"),
        ([definition(), MIGRATED, *CIRCLE], "hco-operator"),
        ([definition(), *CIRCLE[:6], *webhook(ready=True)], "hco-operator"),
        ([definition(), *CIRCLE, *program("virt-operator")], "virt-operator"),
        ([definition(), *BEHIND, *program("hco-operator", ready=True)], "hco-operator"),
        ([definition(), *BEHIND, *program("hco-operator", ends=0)], "hco-operator"),
        ([definition(), *program("hco-operator"), *webhook()], "hco-operator"),
    ],
    ids=[
        "stored in one version",
        "storage version not known",
        "no webhook",
        "migrated",
        "answers",
        "reads another kind",
        "is ready",
        "ends without an error",
        "no pod behind it",
    ],
)
def test_a_program_that_ends_because_of_something_else(parts, of):
    assert found(*parts, of=of) is None


def test_the_pods_of_a_service_are_matched_once_for_all_definitions(monkeypatch):
    matched = []
    asked = silent_conversions.complaints.of
    monkeypatch.setattr(
        silent_conversions.complaints,
        "of",
        lambda pod, cluster: matched.append(pod.name) or asked(pod, cluster),
    )
    many = [definition(name=f"{i}.hco.kubevirt.io") for i in range(40)]

    assert found(*many, *CIRCLE, of="hco-webhook") is not None
    assert matched == ["hco-webhook-1-x"]


def test_many_programs_that_end_and_kinds_are_compared_in_time():
    made = [part for each in range(250) for part in program(f"d{each}")]
    for pod in (each for each in made if each.kind == "Pod"):
        pod.data["metadata"]["labels"] = {"name": "hco-webhook"}
    kinds = [definition(name=f"x{each}.hco.kubevirt.io") for each in range(250)]
    elsewhere = [part for each in range(250) for part in program(f"o{each}", namespace="other")]
    cluster = Snapshot([*made, *kinds, *elsewhere, *webhook()], ["*"], time=NOW)
    with measured() as work:
        every = [
            silent_conversions.of_deployment(each, cluster) for each in cluster.known(DEPLOYMENT)
        ]
    assert {each.definition.name for each in every if each is not None} == {"x0.hco.kubevirt.io"}
    assert work.seconds < 1
