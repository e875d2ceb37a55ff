"""KubeVirt's and HyperConverged's own accounts are trusted by their namespace,
not by their name alone.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.for_each import for_each
from tests.https.reviews import vm
from tests.rules.never_break_world import ask, cluster, silent
from virt_admit.model.kubernetes.cluster import NOTHING, Snapshot

KUBEVIRT_ACCOUNTS = ("controller", "apiserver", "handler", "operator", "synchronization-controller")
FAULTY = vm(running=True)


def resource(kind: str, namespace: str, created: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    group = {"KubeVirt": "kubevirt.io/v1", "HyperConverged": "hco.kubevirt.io/v1"}[kind]
    metadata = {"name": kind.lower(), "namespace": namespace, "creationTimestamp": created}
    return {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": {}}


def by(account: str, namespace: str) -> dict[str, Any]:
    return {"userInfo": {"username": f"system:serviceaccount:{namespace}:{account}"}}


INSTALLED = cluster(resource("KubeVirt", "virt"), resource("HyperConverged", "virt"))


@for_each("account", KUBEVIRT_ACCOUNTS)
@for_each("namespace", ["shop", "kubevirt", "openshift-cnv"])
def test_a_kubevirt_account_of_another_namespace_is_judged_like_any_user(
    account: str, namespace: str
) -> None:
    theirs = by(f"kubevirt-{account}", namespace)
    assert ask(FAULTY, over=INSTALLED, **theirs) == ask(FAULTY, over=INSTALLED)
    assert not ask(FAULTY, over=INSTALLED, **theirs)["allowed"]
    assert "patch" in ask(vm(), endpoint="mutate", over=INSTALLED, **theirs)


@pytest.mark.parametrize("account", KUBEVIRT_ACCOUNTS)
def test_the_accounts_in_the_namespace_of_kubevirt_are_exempt(account: str) -> None:
    for obj in (FAULTY, vm()):
        assert silent(obj, over=INSTALLED, **by(f"kubevirt-{account}", "virt"))


@pytest.mark.parametrize("over", [NOTHING, Snapshot(complete=["*"])], ids=["unseen", "none exists"])
@pytest.mark.parametrize("namespace", ["kubevirt", "kubevirt-hyperconverged", "openshift-cnv"])
def test_the_usual_namespaces_count_without_a_resource(over: Snapshot, namespace: str) -> None:
    assert silent(FAULTY, over=over, **by("kubevirt-controller", namespace))


def test_while_kubevirt_is_unseen_other_namespaces_are_warned_and_not_fixed() -> None:
    answer = ask(FAULTY, over=NOTHING, **by("kubevirt-controller", "virt"))
    assert answer["allowed"]
    assert any("[virt-admit/vm-running-and-run-strategy]" in each for each in answer["warnings"])
    assert ask(vm(), endpoint="mutate", over=NOTHING, **by("kubevirt-controller", "virt")) == {
        "allowed": True
    }


def test_while_kubevirt_is_unseen_other_accounts_are_denied() -> None:
    for account in ("default", "kubevirt-controller-2", "hyperconverged-cluster-operator"):
        assert not ask(FAULTY, over=NOTHING, **by(account, "virt"))["allowed"]
    for user in (
        "kubevirt-controller",
        "system:serviceaccount:kubevirt",
        "system:serviceaccount:{kubevirt}:a",
    ):
        assert not ask(FAULTY, over=NOTHING, userInfo={"username": user})["allowed"]


def test_only_the_oldest_resource_counts() -> None:
    over = cluster(
        resource("KubeVirt", "virt"), resource("KubeVirt", "shop", "2026-02-01T00:00:00Z")
    )
    assert silent(FAULTY, over=over, **by("kubevirt-controller", "virt"))
    assert not ask(FAULTY, over=over, **by("kubevirt-controller", "shop"))["allowed"]


class TestHyperConverged:
    COPY = resource("KubeVirt", "virt") | {
        "spec": {"configuration": {"migrations": {"parallelMigrationsPerCluster": 0}}}
    }

    @pytest.mark.parametrize(
        ("over", "namespace", "allowed"),
        [
            (INSTALLED, "virt", True),
            (INSTALLED, "shop", False),
            (INSTALLED, "openshift-cnv", False),
            (NOTHING, "openshift-cnv", True),
            (NOTHING, "virt", True),
        ],
    )
    def test_its_copies_are_warned_only_from_its_namespace(
        self, over: Snapshot, namespace: str, allowed: bool
    ) -> None:
        answer = ask(self.COPY, over=over, **by("hyperconverged-cluster-operator", namespace))
        assert answer["allowed"] is allowed
        texts = str(answer["warnings"] if allowed else answer["status"])
        assert "[virt-admit/migration-parallel-limit-invalid]" in texts
