"""Objects with faults, and what must hold for all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.apiserver.webhook import register
from tests.e2e.reach import BEFORE, Reach
from tests.https.reviews import vm
from tests.waiting import eventually
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import Kind

SHOP, MACHINES, KUBEVIRT = "shop", "openshift-machine-api", "kubevirt"

MIGRATOR = "system:serviceaccount:kube-system:storage-version-migrator"

HELD: dict[str, Any] = {"change": {"metadata": {"finalizers": ["example.com/held"]}}}

FREED: dict[str, Any] = {"change": {"metadata": {"finalizers": None}}}


def obj(kind: Kind, name: str, namespace: str = "", /, **fields: Any) -> dict[str, Any]:
    metadata = (
        {"name": name}
        | ({"namespace": namespace or SHOP} if kind.namespaced else {})
        | fields.pop("metadata", {})
    )
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}


def instance(name: str, **spec: Any) -> dict[str, Any]:
    return obj(kinds.VMI, name, spec={"domain": {"devices": {}}, **spec})


def replica_set(name: str, **template: Any) -> dict[str, Any]:
    spec = {"domain": {"devices": {}}, **template}
    return obj(kinds.VMIRS, name, spec={"selector": {}, "template": {"spec": spec}})


def pool(name: str, **spec: Any) -> dict[str, Any]:
    return obj(
        kinds.POOL,
        name,
        spec={"selector": {}, "virtualMachineTemplate": {"spec": vm(name, **spec)["spec"]}},
    )


def health_check(name: str, **spec: Any) -> dict[str, Any]:
    return obj(kinds.MHC, name, MACHINES, spec=spec)


def node(name: str, **fields: Any) -> dict[str, Any]:
    return obj(kinds.NODE, name, **fields)


FAULTY_MACHINES = [
    vm("db", running=True),
    pool("workers", running=True),
    replica_set("web", evictionStrategy="livemigrate"),
]

LIMIT = {"liveMigrationConfig": {"parallelMigrationsPerCluster": 0}}

FAULTY_HEALTH = [
    health_check(
        "ancient", selector={}, unhealthyConditions=[{"type": "Ready", "status": "False"}]
    ),
    obj(kinds.CAPI_MHC, "ancient", spec={"clusterName": "a", "selector": {}}),
    obj(kinds.NHC, "ancient", spec={"selector": {}}),
    obj(
        kinds.MACHINE_SET,
        "ancient",
        MACHINES,
        spec={"selector": {"matchLabels": {"a": "b"}}, "template": {}},
    ),
    obj(kinds.NM, "ancient", spec={"nodeName": "scrapped"}),
    obj(kinds.NM_KUBEVIRT, "ancient", spec={"nodeName": "scrapped"}),
    obj(kinds.SNR_CONFIG, "ancient", spec={}),
    obj(
        kinds.FAR_TEMPLATE,
        "ancient",
        spec={"template": {"spec": {"agent": "fence_ipmilan", "retrycount": -1}}},
    ),
]

FAULTY_CONFIGURATION = [
    obj(kinds.HCO, "kubevirt-hyperconverged", spec={"virtualization": LIMIT}),
    obj(
        kinds.KUBEVIRT,
        "ancient",
        spec={"configuration": {"migrations": LIMIT["liveMigrationConfig"]}},
    ),
    obj(kinds.CDI, "ancient", spec={"certConfig": {"server": {"duration": "1s"}}}),
    obj(
        kinds.MIGRATION_POLICY,
        "ancient",
        spec={"selectors": {"namespaceSelector": {"a": "b"}}, "completionTimeoutPerGiB": -1},
    ),
]

FAULTY = [*FAULTY_MACHINES, *FAULTY_HEALTH, *FAULTY_CONFIGURATION]
"""One object of each kind that is denied, with a fault for which it is."""


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def quiet(answer: tuple[int, str]) -> bool:
    """Whether kubectl was content and no warning was printed."""
    return answer[0] == 0 and "Warning" not in answer[1] and "virt-admit" not in answer[1]


def objects(answer: tuple[int, str]) -> list[Any]:
    """What kubectl printed as JSON, before warnings."""
    found: list[Any] = []
    text = answer[1].lstrip()
    while text.startswith("{"):
        data, end = json.JSONDecoder().raw_decode(text)
        found += data["items"] if data["kind"] == "List" else [data]
        text = text[end:].lstrip()
    return found


def everything(asker: Reach) -> int:
    """How many requests have reached the webhook."""
    return asker.requests('[^"]*')


def must_be_refused_today(asker: Reach, faulty: list[dict[str, Any]]) -> None:
    """Each of them, by one of our rules."""
    refused = asker.send("create", faulty, dryRun="All")
    assert refused[0] == 1
    assert "created" not in refused[1]
    assert "[virt-admit/" in refused[1]


def must_be_deletable(asker: Reach, faulty: list[dict[str, Any]]) -> None:
    """Objects that would be refused today can be deleted,
    and their finalizers can be removed meanwhile.
    """
    must_be_refused_today(asker, faulty)
    asker.send("create", faulty, user=BEFORE)
    changes: tuple[tuple[str, dict[str, Any]], ...] = (
        ("patch", HELD),
        ("delete", {}),
        ("patch", FREED),
    )
    for verb, change in changes:
        answer = asker.send(verb, faulty, **change)
        assert quiet(answer), answer[1]
    assert [found for each in faulty if (found := asker.there(each))] == []


def must_be_editable(asker: Reach, faulty: list[dict[str, Any]]) -> None:
    """Objects that would be refused today can be annotated and labelled, if with a warning, and
    written as they are.
    """
    must_be_refused_today(asker, faulty)
    asker.send("create", faulty, user=BEFORE)
    for verb in ("annotate", "label"):
        answer = asker.kubectl(verb, faulty, "owner=finance")
        assert answer[0] == 0, answer[1]
    before = everything(asker)
    there = [asker.there(each) for each in faulty]
    # as a migration of storage versions does
    assert quiet(asker.send("replace", there, user=MIGRATOR))
    assert everything(asker) == before


def must_pass_while_we_are_down(asker: Reach, faulty: list[dict[str, Any]]) -> None:
    """Objects that would be refused today are created while no webhook answers the API server."""
    must_be_refused_today(asker, faulty)
    asker.webhook.stop()
    try:
        answer = asker.send("create", faulty)
        assert quiet(answer), answer[1]
    finally:
        asker.webhook.start()


@contextmanager
def failing(asker: Reach) -> Iterator[None]:
    """Every entry has ``failurePolicy: Fail``."""
    put_in_force(asker, "Fail")
    try:
        yield
    finally:
        put_in_force(asker, "Ignore")


def put_in_force(asker: Reach, policy: str) -> None:
    """Register with that failure policy, and see it work:
    an API server learns of it by its own watch.
    """
    asker.policy()
    register(asker.plane, asker.webhook, policy)
    asker.webhook.stop()
    try:
        # one is mutated first, one is not
        probes = vm("probe"), obj(kinds.KUBEVIRT, "probe", spec={})
        wanted = {1 if policy == "Fail" else 0}
        eventually(
            lambda: {asker.send("create", probe, dryRun="All")[0] for probe in probes} == wanted
        )
    finally:
        asker.webhook.start()
