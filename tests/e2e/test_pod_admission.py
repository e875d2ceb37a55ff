"""Our judgement of LimitRanges and ResourceQuotas against the admission plugins of a real API
server.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.control_plane import ControlPlane
from tests.waiting import eventually
from virt_admit.forecasts.placement import quotas
from virt_admit.forecasts.placement.migration_demand import Demand
from virt_admit.kube.client import ApiClient
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.launcher import limit_ranges
from virt_admit.model.scheduler import pod_size
from virt_admit_certs.kube_api import ApiError

CASES = 100
AMOUNTS = {"cpu": ("100m", "500m", "1", "2", "4"), "memory": ("64Mi", "1Gi", "2Gi", "8Gi", "16Gi")}
RATIOS = ("1", "1.5", "2", "4")
QUOTAS = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "cpu", "memory")

Json = dict[str, Any]


def some(chance: random.Random, likely: float) -> Json:
    """Amounts of some resources."""
    return {
        name: chance.choice(values) for name, values in AMOUNTS.items() if chance.random() < likely
    }


def container(chance: random.Random, name: str) -> Json:
    sides = {"requests": some(chance, 0.7), "limits": some(chance, 0.5)}
    return {
        "name": name,
        "image": "a",
        "resources": {side: values for side, values in sides.items() if values},
    }


def pod(chance: random.Random, namespace: str) -> Json:
    init = [container(chance, f"init{number}") for number in range(chance.choice([0, 0, 1, 2]))]
    for each in init:
        if chance.random() < 0.5:
            each["restartPolicy"] = "Always"
    spec: Json = {
        "containers": [
            container(chance, f"c{number}") for number in range(chance.choice([1, 1, 2]))
        ]
    }
    if init:
        spec["initContainers"] = init
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": namespace},
        "spec": spec,
    }


def limit_range(chance: random.Random, namespace: str) -> Json:
    item: Json = {"type": chance.choice(["Container", "Container", "Pod"])}
    fields = (
        ["min", "max"] if item["type"] == "Pod" else ["min", "max", "default", "defaultRequest"]
    )
    item |= {field: found for field in fields if (found := some(chance, 0.25))}
    if chance.random() < 0.2:
        item["maxLimitRequestRatio"] = {chance.choice(list(AMOUNTS)): chance.choice(RATIOS)}
    metadata = {"name": "bounds", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": metadata,
        "spec": {"limits": [item]},
    }


def quota(chance: random.Random, namespace: str) -> Json:
    """A quota that also allows no Service, by which ``quota_acts`` sees it."""
    names = chance.sample(QUOTAS, chance.choice([0, 1, 1, 2]))
    hard = {name: chance.choice(AMOUNTS[name.rpartition(".")[2]]) for name in names} | {
        "pods": "10",
        "services": "0",
    }
    metadata = {"name": "team", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": hard},
    }


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> ApiClient:
    return ApiClient.connect(str(control_plane.kubeconfig))


@pytest.fixture(scope="module")
def cases(
    control_plane: ControlPlane, api: ApiClient
) -> Iterator[list[tuple[Json, list[Object], Object]]]:
    """Pods, each with what the API server stored of the LimitRange and the quota of its
    namespace.
    """
    chance = random.Random(11)
    names = [f"size-{number}" for number in range(CASES)]
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names
    ]
    control_plane.kubectl("create", "-f", "-", input=json.dumps(as_list(namespaces)), check=True)
    made = []
    for name in names:
        ranges = [limit_range(chance, name)] if chance.random() < 0.8 else []
        try:
            stored = [api.post(path(name, "limitranges"), each) for each in ranges]
        except ApiError as error:
            if error.status != 422:  # a LimitRange that contradicts itself
                raise
            stored = []
        wanted = quota(chance, name)
        api.post(path(name, "resourcequotas"), wanted)
        hard = wanted["spec"]["hard"]
        used = {
            each: "0" if each in ("pods", "services") else chance.choice(["0", "1", hard[each]])
            for each in hard
        }
        status = {"hard": hard, "used": used}
        api.patch(
            f"{path(name, 'resourcequotas')}/team/status", "merge-patch+json", {"status": status}
        )
        made.append(
            (
                pod(chance, name),
                [Object(each) for each in stored],
                Object(wanted | {"status": status}),
            )
        )
    # The admission plugins read from caches. Only the status of a quota can be late: where a cache
    # has no LimitRange or no quota of a namespace, the plugin asks the API server.
    for name in names:
        eventually(lambda name=name: quota_acts(api, name))
    yield made
    control_plane.kubectl("delete", "namespace", "--wait=false", *names, check=True)


def as_list(items: list[Json]) -> Json:
    return {"apiVersion": "v1", "kind": "List", "items": items}


def path(namespace: str, resource: str) -> str:
    return f"/api/v1/namespaces/{namespace}/{resource}"


def quota_acts(api: ApiClient, namespace: str) -> bool:
    """Return whether the API server rejects a Service because of the quota,
    whose status was the last write.
    """
    made = {"metadata": {"name": "probe"}, "spec": {"ports": [{"port": 80}]}}
    try:
        api.post(path(namespace, "services") + "?dryRun=All", made)
    except ApiError as error:
        return "exceeded quota: team" in str(error)
    return False


def refusal_of_server(api: ApiClient, made: Json) -> str:
    """Return who refuses the pod, and how."""
    try:
        api.post(path(made["metadata"]["namespace"], "pods") + "?dryRun=All", made)
    except ApiError as error:
        if error.status not in (403, 422):
            raise
        return f"{'quota' if 'quota: team' in str(error) else 'LimitRange'}: {error}"
    return ""


def our_refusal(made: Json, ranges: list[Object], of_namespace: Object) -> str:
    size = limit_ranges.defaulted(pod_size.read(Object(made)["spec"]), ranges)
    if refused := limit_ranges.refusal(size, ranges):
        return f"LimitRange: {refused}"
    lacking = quotas.missing(quotas.lacks(of_namespace, Demand(size)))
    return f"quota: {lacking}" if lacking else ""


def valid(made: Json) -> bool:
    """Whether no container of the pod asks for more than its own limit:
    the API server refuses such a pod by itself.
    """
    size = pod_size.read(Object(made)["spec"])
    return not any(
        each.requests.get(name, 0) > limit
        for each in size.every
        for name, limit in each.limits.items()
    )


def test_every_pod_is_judged_as_the_api_server_judges_it(
    api: ApiClient, cases: list[tuple[Json, list[Object], Object]]
) -> None:
    judged = [case for case in cases if valid(case[0])]
    differences = []
    refused = 0
    for made, ranges, of_namespace in judged:
        theirs, ours = refusal_of_server(api, made), our_refusal(made, ranges, of_namespace)
        refused += bool(theirs)
        if theirs.partition(":")[0] != ours.partition(":")[0]:
            sizes = [each.data["spec"] for each in (*ranges, of_namespace)]
            differences.append(
                f"theirs: {theirs}\nours: {ours}\n{json.dumps(made['spec'])}\n{json.dumps(sizes)}"
            )
    assert not differences, "\n\n".join(differences)
    assert len(judged) > CASES / 4
    assert 10 < refused < len(judged) - 10
