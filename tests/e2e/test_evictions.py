"""Our judgement of pod evictions against the Eviction API of a real API server."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.control_plane import ControlPlane
from virt_admit.forecasts.drain import pod_evictions
from virt_admit.kube.client import ApiClient
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit_certs.kube_api import ApiError

NAMESPACE = "evictions"
NODE = Object({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "judged"}})
SPECS = (
    {"minAvailable": 1},
    {"minAvailable": 3},
    {"minAvailable": "50%"},
    {"minAvailable": "100%"},
    {"maxUnavailable": 0},
    {"maxUnavailable": "0%"},
    {"maxUnavailable": 1},
    {"maxUnavailable": "50%"},
)
POLICIES = (None, "IfHealthyBudget", "AlwaysAllow")
PHASES = (
    ("Running", "True"),
    ("Running", "False"),
    ("Pending", "False"),
    ("Succeeded", "False"),
    ("Failed", "False"),
)


def cases() -> Iterator[dict[str, Any]]:
    """Every combination of phase, policy and form of the budget, each with some status that its
    controller may write.
    """
    chance = random.Random(7)
    for number, (spec, policy, (phase, ready)) in enumerate(
        itertools.product(SPECS, POLICIES, PHASES)
    ):
        desired = chance.choice([0, 1, 2])
        healthy = chance.choice([0, 1, 2, 3])
        never = spec in (
            {"maxUnavailable": 0},
            {"maxUnavailable": "0%"},
            {"minAvailable": 3},
            {"minAvailable": "100%"},
        )
        allowed = 0 if never else max(0, healthy - desired)
        status = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": 3,
            "disruptionsAllowed": allowed,
        }
        policies = {"unhealthyPodEvictionPolicy": policy} if policy else {}
        yield {
            "name": f"c{number}",
            "spec": spec | policies,
            "status": status,
            "phase": phase,
            "ready": ready,
        }


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> Iterator[ApiClient]:
    """A client of the API server, and a namespace with every case in it."""
    control_plane.kubectl("create", "namespace", NAMESPACE, check=True)
    client = ApiClient.connect(str(control_plane.kubeconfig))
    items = [item for case in cases() for item in (pod(case), budget(case))]
    made = {"apiVersion": "v1", "kind": "List", "items": items}
    control_plane.kubectl("create", "-f", "-", input=json.dumps(made), check=True)
    for case in cases():
        conditions = [{"type": "Ready", "status": case["ready"]}]
        status = {"phase": case["phase"], "conditions": conditions}
        client.patch(f"{pods()}/{case['name']}/status", "merge-patch+json", {"status": status})
        observed = case["status"] | {"observedGeneration": 1}
        client.patch(f"{budgets()}/{case['name']}/status", "merge-patch+json", {"status": observed})
    yield client
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false", check=True)


def pods() -> str:
    return f"/api/v1/namespaces/{NAMESPACE}/pods"


def budgets() -> str:
    return f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"


def pod(case: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": case["name"],
            "namespace": NAMESPACE,
            "labels": {"case": case["name"]},
        },
        "spec": {"nodeName": "judged", "containers": [{"name": "a", "image": "a"}]},
    }


def budget(case: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": case["name"], "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"case": case["name"]}}} | case["spec"],
    }


def evicts(api: ApiClient, name: str) -> bool:
    """Whether the API server evicts the pod, asked in a dry run."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "deleteOptions": {"dryRun": ["All"]},
    }
    try:
        api.post(f"{pods()}/{name}/eviction", body)
    except ApiError as error:
        if error.status not in (429, 500):
            raise
        return False
    return True


def test_every_form_of_a_budget_and_every_state_of_a_pod(api: ApiClient) -> None:
    found = [Object(item | {"kind": "Pod", "apiVersion": "v1"}) for item in api.list(pods())]
    own = [
        Object(item | {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1"})
        for item in api.list(budgets())
    ]
    judged = pod_evictions.of_node(Snapshot([NODE, *found, *own], complete=["*"]), "judged")
    blocked = {blocker.name for blocker in judged.blockers}

    disagreements = [
        case for case in cases() if evicts(api, case["name"]) is (case["name"] in blocked)
    ]

    assert disagreements == []
    assert 20 < len(blocked) < len(list(cases())) - 20
