"""Informers and the sweep over a real API server: restarts, rights that come and go,
kinds that come and go.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import definitions
from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.crds import wait_until_discovered
from tests.apiserver.webhook import Webhook
from tests.https.reviews import review, vm
from tests.prefork import virt_admit
from tests.waiting import eventually
from virt_admit.install import manifests
from virt_admit.kube.cache import StoreState
from virt_admit.kube.client import ApiClient
from virt_admit.kube.informers import InformerTimeouts, LiveCluster, snapshot
from virt_admit.kube.stores import stores
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import LEASE, MHC, PVC, VM, Kind
from virt_admit.rules import load_rules
from virt_admit.settings import NAMESPACE, SERVICE

RULES = load_rules().at_admission
HOME = "medik8s-leases"
PATIENT = InformerTimeouts()
OFTEN = InformerTimeouts(watch=2, absent=1)
"""As in production, but for what would take minutes: a watch asks more often whether it may, and a
kind that is not installed is looked for more often.
"""


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server of our own, for we stop it and remove kinds from it;
    the shipped roles are applied.
    """
    with ControlPlane(control_plane.binaries, stored=control_plane.stored) as plane:
        for namespace in (NAMESPACE, "shop"):
            plane.kubectl("create", "namespace", namespace, check=True)
        apply(plane, *manifests.rbac(RULES))
        yield plane


def apply(plane: ControlPlane, *objects: dict[str, Any]) -> None:
    plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects), check=True)


def delete(plane: ControlPlane, *objects: dict[str, Any]) -> None:
    plane.kubectl(
        "delete", "--wait=false", "-f", "-", input=yaml.safe_dump_all(objects), check=True
    )


@pytest.fixture(scope="module")
def kubeconfig(plane: ControlPlane) -> str:
    """A kubeconfig of the webhook's service account."""
    return str(plane.service_account_kubeconfig(NAMESPACE, SERVICE))


@pytest.fixture
def follow(kubeconfig: str) -> Iterator[Callable[[InformerTimeouts], LiveCluster]]:
    """Start informers that have listed everything; they are stopped at the end."""
    started: list[LiveCluster] = []

    def start(pace: InformerTimeouts) -> LiveCluster:
        live = LiveCluster(ApiClient.connect(kubeconfig, connections=len(RULES)), RULES, pace)
        started.append(live)
        live.start()
        eventually(lambda: not live.missing)
        return live

    yield start
    for live in started:
        live.stop()


def answer(cluster: Cluster, kind: Kind, name: str, namespace: str = "shop") -> str:
    """What a look-up gives: "there", "none" or "unseen"."""
    try:
        return "none" if cluster.get(kind, namespace, name) is None else "there"
    except Unseen:
        return "unseen"


def claim(name: str, mode: str = "ReadWriteMany") -> dict[str, Any]:
    spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
    names = {"name": name, "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": names, "spec": spec}


def check(name: str) -> dict[str, Any]:
    names = {"name": name, "namespace": "shop"}
    condition = {"type": "Ready", "status": "Unknown", "timeout": "300s"}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "unhealthyConditions": [condition]}
    return {"apiVersion": MHC.api_version, "kind": MHC.kind, "metadata": names, "spec": spec}


def test_everything_that_rules_look_up_is_listed_and_followed(
    plane: ControlPlane, follow: Any
) -> None:
    live = follow(PATIENT)
    assert {store.state for store in live.stores.values()} <= {StoreState.LISTED, StoreState.ABSENT}
    absent = {kind for kind, store in live.stores.items() if store.state is StoreState.ABSENT}
    assert {manifests.lookup_namespace(kind, RULES) for kind in absent} == {HOME}, "it is not there"
    told = json.loads(plane.kubectl("version", "-o", "json").stdout)["serverVersion"]["gitVersion"]
    # A thread of its own asks for the version; the kinds may all be listed before it is answered.
    eventually(lambda: live.server_version == told)

    apply(plane, claim("disk"))
    eventually(lambda: answer(live, PVC, "disk") == "there")
    found = live.get(PVC, "shop", "disk")
    assert found.at("spec", "accessModes").value == ["ReadWriteMany"]
    assert (found.api_version, found.kind) == ("v1", "PersistentVolumeClaim")
    delete(plane, claim("disk"))
    eventually(lambda: answer(live, PVC, "disk") == "none" or live.get(PVC, "shop", "disk").deleted)
    assert answer(live, PVC, "other") == "none"


def test_a_namespace_that_is_made_later(plane: ControlPlane, follow: Any) -> None:
    live = follow(OFTEN)
    (kind, *_) = [each for each in live.stores if manifests.lookup_namespace(each, RULES) == HOME]
    assert answer(live, kind, "x", HOME) == "none"
    plane.kubectl("create", "namespace", HOME, check=True)
    eventually(lambda: answer(live, kind, "x", HOME) == "unseen")
    apply(plane, *manifests.rbac_elsewhere(RULES)[HOME])
    eventually(lambda: live.stores[kind].state is StoreState.LISTED)
    assert answer(live, kind, "x", HOME) == "none"

    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "node-a", "namespace": HOME},
    }
    apply(plane, lease)
    eventually(lambda: answer(live, LEASE, "node-a", HOME) == "there")
    assert answer(live, LEASE, "node-a", "shop") == "unseen"


def reviewed(webhook: Webhook, claim_name: str) -> str:
    """The warnings about a VM that must migrate and uses this claim, one to a line."""
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": claim_name}}]
    template = {"evictionStrategy": "LiveMigrate", "volumes": volumes}
    status, answer = webhook.post("/validate", review(vm("db", "shop", template=template)))
    assert status == 200
    assert answer["response"]["allowed"]
    return "\n".join(answer["response"].get("warnings", ()))


def test_the_api_server_restarts_again_and_again_under_load(
    plane: ControlPlane, kubeconfig: str, tmp_path: Path
) -> None:
    """The webhook answers every review meanwhile, and what it looks up is right again in time.

    ``make soak`` goes on.
    """
    with Webhook(tmp_path, "--live", "--kubeconfig", kubeconfig, program=virt_admit()) as webhook:
        done = threading.Event()
        answers: list[str] = []

        def load() -> None:
            while not done.wait(0.1):
                answers.append(reviewed(webhook, "nowhere"))

        with ThreadPoolExecutor(2) as clients:
            loads = [clients.submit(load) for _ in range(2)]
            try:
                for number in range(3):
                    plane.stop_apiserver()
                    before = len(answers)
                    eventually(lambda before=before: len(answers) > before + 20)
                    plane.start_apiserver()
                    apply(plane, claim(f"new-{number}", mode="ReadWriteOnce"))
                    eventually(
                        lambda name=f"new-{number}": (
                            f"ReadWriteOnce claim '{name}'" in reviewed(webhook, name)
                        )
                    )
                    assert "ReadWriteOnce claim 'new-0'" in reviewed(webhook, "new-0")
            finally:
                done.set()
            for client in loads:
                client.result()  # raises what went wrong in it
    assert set(answers) == {""}, "a claim that does not exist is nothing to speak of"


def test_what_was_deleted_while_nobody_was_watching(
    plane: ControlPlane, follow: Any, kubeconfig: str
) -> None:
    """A watch from long ago is refused, or tells of the deletion; either way the object is gone."""
    apply(plane, check("goes"))
    live = follow(OFTEN)
    assert answer(live, MHC, "goes") == "there"
    delete(plane, check("goes"))
    plane.restart_apiserver()
    eventually(lambda: answer(live, MHC, "goes") == "none")


def test_rights_are_taken_away_and_given_back(plane: ControlPlane, follow: Any) -> None:
    live = follow(OFTEN)
    apply(plane, check("before"))
    eventually(lambda: answer(live, MHC, "before") == "there")
    (binding,) = [
        each
        for each in manifests.rbac(RULES)
        if each["metadata"]["name"] == manifests.READER and "roleRef" in each
    ]

    delete(plane, binding)
    eventually(lambda: answer(live, MHC, "before") == "unseen")
    eventually(lambda: live.stores[PVC].state is StoreState.REFUSED)
    assert answer(live, PVC, "disk") == "unseen"

    apply(plane, check("meanwhile"), binding)
    eventually(lambda: answer(live, MHC, "meanwhile") == "there")
    eventually(lambda: answer(live, PVC, "other") == "none")


def test_a_kind_that_is_installed_later_and_removed_again(plane: ControlPlane, follow: Any) -> None:
    name = f"crd/{VM.resource}"
    before = plane.kubectl("get", name, "-o", "json", check=True).stdout
    plane.kubectl("delete", name, check=True)
    live = follow(OFTEN)
    assert answer(live, VM, "db") == "none"

    machine = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "db", "namespace": "shop"},
    }
    apply(plane, definitions.own(VM))
    wait_until_discovered(plane, {VM.resource})
    apply(plane, machine)
    eventually(lambda: answer(live, VM, "db") == "there")

    plane.kubectl("delete", name, check=True)
    eventually(
        lambda: answer(live, VM, "db") == "none" and live.stores[VM].state is StoreState.ABSENT
    )
    plane.kubectl("apply", "--server-side", "-f", "-", input=_without_status(before), check=True)
    eventually(lambda: live.stores[VM].state is StoreState.LISTED)


def _without_status(text: str) -> str:
    data = json.loads(text)
    kept = ("name", "annotations", "labels")
    return json.dumps(
        {
            "apiVersion": data["apiVersion"],
            "kind": data["kind"],
            "metadata": {key: data["metadata"][key] for key in kept if key in data["metadata"]},
            "spec": data["spec"],
        }
    )


def test_one_sweep(plane: ControlPlane) -> None:
    apply(plane, *(claim(f"many-{number:03}") for number in range(3)), check("swept"))
    every = load_rules()
    cluster = snapshot(ApiClient.connect(str(plane.kubeconfig)), stores(every))
    assert cluster.unreadable == set()
    assert {kind.resource for kind in every.kinds} <= cluster.complete
    assert {"many-000", "many-001", "many-002"} <= {obj.name for obj in cluster.list(PVC, "shop")}
    found = cluster.get(MHC, "shop", "swept")
    assert found is not None
    assert found.at("spec", "selector").value == {"matchLabels": {"a": "b"}}
    assert not found.metadata["managedFields"].present
