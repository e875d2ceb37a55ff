"""VMs with thousands of affinity terms, through the webhook with live informers:
other requests do not wait for them.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.crds import install_crds
from tests.apiserver.webhook import Webhook, register
from tests.forecasts.drain.test_many_terms import world
from tests.https.reviews import review, vm
from tests.prefork import virt_admit
from virt_admit.kube.client import ApiClient
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import NAMESPACE, NODE, POD, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.serving.worker import REVIEW_SECONDS

OTHERS = 200
TERMS = 3_000


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server of our own, in which most VMs run on one of two nodes."""
    with ControlPlane(control_plane.binaries) as plane:
        install_crds(plane, (VM, VMI))
        api = ApiClient.connect(str(plane.kubeconfig), connections=8)
        objects = list(world(3, TERMS, OTHERS, hosts=2))
        for kind in (NAMESPACE, NODE):
            for obj in objects:
                if kinds.of(obj) is kind:
                    create(api, obj)
        with ThreadPoolExecutor(8) as threads:
            list(
                threads.map(
                    lambda obj: create(api, obj),
                    [obj for obj in objects if kinds.of(obj) in (POD, VMI)],
                )
            )
        yield plane


def create(api: ApiClient, obj: Object) -> None:
    """Write an object and its status."""
    data = json.loads(json.dumps(obj.data))
    folder = "api/v1" if obj.api_version == "v1" else f"apis/{obj.api_version}"
    kind = kinds.of(obj)
    assert kind is not None
    path = (
        f"/{folder}/namespaces/{obj.namespace}/{kind.plural}"
        if kind.namespaced
        else f"/{folder}/{kind.plural}"
    )
    if kind is POD:
        for owner in data["metadata"]["ownerReferences"]:
            owner |= {
                "apiVersion": VMI.api_version,
                "uid": data["metadata"]["labels"]["kubevirt.io/created-by"],
            }
        for container in data["spec"]["containers"]:
            container |= {"name": "compute", "image": "launcher"}
    data["metadata"].pop("uid", None)
    api.post(path, data)
    if "status" in data and kind is not VMI:  # the API server serves its status with the object
        status = {"apiVersion": obj.api_version, "kind": obj.kind, "status": data["status"]}
        api.patch(f"{path}/{obj.name}/status", "merge-patch+json", status)
    if kind is NODE:  # the API server taints a new one (admission plugin TaintNodesByCondition)
        api.patch(f"{path}/{obj.name}", "merge-patch+json", {"spec": {"taints": None}})


def test_while_nodes_are_cordoned_others_wait_a_second_at_most(
    plane: ControlPlane, tmp_path: Path
) -> None:
    with Webhook(
        tmp_path, "--live", "--kubeconfig", plane.kubeconfig, program=virt_admit()
    ) as webhook:
        register(plane, webhook)
        waits: list[float] = []
        body, done = review(vm("db")), threading.Event()

        def ask() -> None:
            while not done.wait(0.05):
                began = time.monotonic()
                status, _ = webhook.post("/validate", body)
                waits.append(time.monotonic() - began)
                assert status == 200

        with ThreadPoolExecutor(1) as threads:
            asking = threads.submit(ask)
            answers = []
            for _ in range(3):
                answers.append(plane.kubectl("cordon", "n0"))
                plane.kubectl("uncordon", "n0", check=True)
            done.set()
            asking.result()
        metrics = webhook.ops("/metrics")[1]
    assert [answer.returncode for answer in answers] == [0, 0, 0]
    assert len(waits) > 3
    assert max(waits) < REVIEW_SECONDS + 0.5
    unseen = re.search(
        r'^virt_admit_rule_unseen_total{rule="node-cordon-blocked-by-vms"} (\S+)$',
        metrics,
        re.MULTILINE,
    )
    assert unseen is not None
    assert float(unseen[1]) == 3
