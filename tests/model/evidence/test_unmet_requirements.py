"""What a ClusterServiceVersion requires and does not find, and what provides it."""

from tests.builders import manifest
from tests.for_each import for_each
from tests.healthy.parts import ago
from virt_admit.model.evidence import complaints, status_errors
from virt_admit.model.evidence.writes import unmet_requirements
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates import operator_updates

OLM = "operators.coreos.com/v1alpha1"
CRD = "CustomResourceDefinition"
MET = {"kind": CRD, "name": "as.example.com", "status": "Present"}
FOUND = {"kind": "APIService", "name": "v1.example.com", "status": "DeploymentFound"}
OWNED = "Service account is owned by another ClusterServiceVersion"


def entry(kind, name, status, message="", **more):
    return {"kind": kind, "name": name, "status": status, "message": message, **more}


def version(*entries, age=1, phase="Pending", reason="RequirementsNotMet", owned="owned.example"):
    return manifest(
        OLM,
        "ClusterServiceVersion",
        "example.v2",
        metadata={"namespace": "tools"},
        spec={"replaces": "example.v1", "customresourcedefinitions": {"owned": [{"name": owned}]}},
        status={
            "phase": phase,
            "reason": reason,
            "message": "one or more requirements couldn't be found",
            "lastTransitionTime": ago(hours=age),
            "requirementStatus": [MET, FOUND, *entries],
        },
    )


def account(name, *owners):
    references = [{"kind": "ClusterServiceVersion", "name": each} for each in owners]
    metadata = {"namespace": "tools", "ownerReferences": references}
    return manifest("v1", "ServiceAccount", name, metadata=metadata)


SUBSCRIPTION = manifest(
    OLM,
    "Subscription",
    "example",
    metadata={"namespace": "tools"},
    spec={"name": "example"},
    status={"installedCSV": "example.v1", "currentCSV": "example.v2"},
)


def seen(*objects):
    return Snapshot([*objects, SUBSCRIPTION], complete=["*"], time=ago())


@for_each(
    "unmet, others, words, remedy",
    [
        (
            entry("ServiceAccount", "default", "PresentNotSatisfied", OWNED),
            [account("default", "example.v1")],
            "its ownerReferences name example.v1",
            "Take the ownerReference of example.v1 out of ServiceAccount default",
        ),
        (
            entry("ServiceAccount", "manager", "PresentNotSatisfied", OWNED),
            [account("manager", "other.v1")],
            "its ownerReferences name other.v1",
            "install one of both in another namespace",
        ),
        (
            entry("ServiceAccount", "manager", "PresentNotSatisfied", OWNED),
            [],
            OWNED,
            "Take the ownerReference of the other release out of ServiceAccount manager",
        ),
        (
            entry("ServiceAccount", "default", "PresentNotSatisfied", "x is not owned by this y"),
            [account("default")],
            "not owned by this",
            "if not, update OLM to 0.18 or later",
        ),
        (
            entry("ServiceAccount", "manager", "NotPresent", "Service account does not exist"),
            [],
            "does not exist",
            "kubectl create serviceaccount manager -n tools",
        ),
        (
            entry(
                "ServiceAccount",
                "manager",
                "PresentNotSatisfied",
                "Policy rule not satisfied for service account",
                dependents=[
                    entry("PolicyRule", None, "Satisfied", "rule a"),
                    entry("PolicyRule", None, "NotSatisfied", "rule b"),
                ],
            ),
            [],
            "Policy rule not satisfied for service account: rule b",
            "kubectl auth can-i --list --as=system:serviceaccount:tools:manager -n tools",
        ),
        (
            entry(CRD, "bs.example.com", "NotPresent", "CRD is not present"),
            [],
            "CustomResourceDefinition bs.example.com is NotPresent (CRD is not present)",
            "Install the operator that provides CustomResourceDefinition bs.example.com",
        ),
        (
            entry(CRD, "owned.example", "NotPresent", "CRD is not present"),
            [],
            "owned.example is NotPresent",
            "Apply CustomResourceDefinition owned.example from the bundle of example.v2",
        ),
        (
            entry(CRD, "owned.example", "NotPresent", "CRD version not served"),
            [],
            "CRD version not served",
            "why the InstallPlan of example.v2 has not written owned.example",
        ),
        (
            entry(CRD, "bs.example.com", "NotAvailable", "CRD is present but"),
            [],
            "NotAvailable",
            "why CustomResourceDefinition bs.example.com is not established",
        ),
        (
            entry("APIService", "v1.metrics", "NotPresent"),
            [],
            "APIService v1.metrics is NotPresent",
            "kubectl describe apiservice v1.metrics",
        ),
        (
            entry("APIService", "v1.own", "DeploymentNotFound"),
            [],
            "DeploymentNotFound",
            "Take a release of the operator",
        ),
        (
            entry("ClusterServiceVersion", "example.v2", "PresentNotSatisfied", "minKubeVersion"),
            [],
            "minKubeVersion",
            "Update Kubernetes first",
        ),
    ],
)
def test_the_requirement_and_what_meets_it(unmet, others, words, remedy):
    csv = version(unmet)
    cluster = seen(csv, *others)
    found = unmet_requirements.of_version(csv, cluster)
    held = operator_updates.held(cluster)[0]

    assert len(found) == 1
    assert words in found[0].words
    assert remedy in found[0].remedy
    assert found[0].words in held.reason
    assert held.remedy == found[0].remedy
    assert any(
        status_errors.unmet_words(next(status_errors.unmet(csv["status"]))) in each.message
        for each in complaints.of(csv, cluster)
    )


@for_each(
    "csv",
    [
        version(entry(CRD, "bs.example.com", "NotPresent"), age=0.2),  # it is being installed
        version(entry(CRD, "bs.example.com", "NotPresent"), phase="Succeeded"),
        version(reason="InstallSucceeded", phase="Installing"),  # another operator may be slow
    ],
)
def test_versions_that_are_not_held_by_a_requirement(csv):
    assert not operator_updates.held(seen(csv))


@for_each("bad", [{"requirementStatus": "x"}, {"requirementStatus": [1, {}, {"status": "No"}]}])
def test_a_status_of_another_shape(bad):
    csv = Object({"kind": "ClusterServiceVersion", "metadata": {}, "spec": 1, "status": bad})

    assert len(unmet_requirements.of_version(csv, seen())) <= 1
