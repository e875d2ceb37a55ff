"""Hazards of a webhook for VMs that need no API server, and the proof that every hazard has a test.

``@never_break`` gives the line of the hazard. The tests against a real API server are in
tests/e2e/never_break and tests/e2e/test_cluster_configuration.py.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml

from tests.https.reviews import patch_of, review, vm
from tests.never_break import LINES, lines_with_a_test, never_break
from tests.paths import ROOT
from tests.rules.never_break_world import (
    EMPTY,
    ENTRIES,
    MUTATE,
    RULES,
    answered,
    ask,
    cases,
    cluster,
    instance,
    over,
    registered,
    said,
    silent,
)
from virt_admit.install import manifests
from virt_admit.install.manifests import KUBEVIRT_NAMESPACES, MAY_FAIL, NAME, SYSTEM_NAMESPACES
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import NOTHING
from virt_admit.model.kubevirt.settings.trusted_accounts import TRUSTED_NAMESPACES

KUBEVIRT_ACCOUNTS = ("controller", "apiserver", "handler", "operator", "synchronization-controller")

VMS = ("pdb", "vm", "vmi")

FAULTS = ("virt-admit/vm-running-and-run-strategy", "virt-admit/vm-eviction-strategy-unknown")


def faulty(**more: Any) -> dict[str, Any]:
    """A VM with two faults that are denied."""
    return vm("db", running=True, template={"evictionStrategy": "livemigrate"}) | more


def pool(**spec: Any) -> dict[str, Any]:
    machine = {"spec": vm("db", **spec)["spec"]}
    names = {"name": "workers", "namespace": "shop"}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"a": "b"}},
        "virtualMachineTemplate": machine,
    }
    return {
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": names,
        "spec": spec,
    }


class TestVirtualMachines:
    """A webhook for virtual machines."""

    @never_break("vm", 1)
    def test_updates_of_vmis_pass(self) -> None:
        hits = {
            (operation, name)
            for _, resource, operation, name in registered()
            if resource == kinds.VMI.plural
        }
        assert hits == {("CREATE", "instances.validate.virt-admit.io")}
        faulty_one = instance(evictionStrategy="livemigrate", domain={})
        assert silent(faulty_one, instance(domain={})), "one that comes all the same"

    @never_break("vm", 1)
    def test_an_instance_is_never_mutated_and_never_denied(self) -> None:
        assert kinds.VMI.never_denied
        answer = ask(instance(evictionStrategy="livemigrate", domain={}))
        assert answer["allowed"]
        assert FAULTS[1] in said(answer)
        assert patch_of({"response": ask(instance(domain={}), endpoint="mutate")}) == []

    @never_break("vm", 2)
    @pytest.mark.parametrize(
        "subresource", ["status", "scale", "start", "addvolume", "portforward/22"]
    )
    def test_status_and_subresources(self, subresource: str) -> None:
        assert silent(faulty(), subResource=subresource)
        assert silent(faulty(), vm("db"), subResource=subresource)

    @never_break("vm", 3)
    def test_finalizers_can_be_removed(self) -> None:
        held = faulty()
        held["metadata"] |= {
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["kubevirt.io/x"],
        }
        freed = copy.deepcopy(held)
        freed["metadata"]["finalizers"] = []
        assert silent(freed, held)
        freed["spec"]["runStrategy"] = "Never"
        assert silent(freed, held)
        assert silent(None, held, operation="DELETE")
        for entry in ENTRIES:
            # its own condition wants a change of the node
            if entry["name"] != "nodes.validate.virt-admit.io":
                assert any(
                    "has(object.metadata.deletionTimestamp)" in each["expression"]
                    for each in entry["matchConditions"]
                )

    @never_break("vm", 4)
    @pytest.mark.parametrize("account", KUBEVIRT_ACCOUNTS)
    @pytest.mark.parametrize("home", ["kubevirt", "openshift-cnv"])
    def test_kubevirts_own_writers(self, account: str, home: str) -> None:
        user = f"system:serviceaccount:{home}:kubevirt-{account}"
        for obj in (faulty(), pool(running=True), instance(evictionStrategy="x"), vm("db")):
            assert silent(obj, userInfo={"username": user})
        (pattern,) = re.findall(
            r"matches\('(.*)'\)", manifests.not_kubevirt(RULES, TRUSTED_NAMESPACES)[1]
        )
        assert re.search(pattern, user)
        assert not re.search(pattern, f"{user}-2")
        assert not re.search(pattern, user.replace(home, "shop"))

    @never_break("vm", 5)
    def test_stored_violations_can_still_be_edited(self) -> None:
        old = faulty()
        assert silent(old, old), "a no-op PUT of a storage-version migration"
        scaled = copy.deepcopy(old)
        scaled["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": 4}
        answer = ask(scaled, old)
        assert answer["allowed"]
        assert all(fault in said(answer) for fault in FAULTS)

    @never_break("vm", 6)
    def test_updates_are_not_mutated(self) -> None:
        assert {operation for _, _, operation, name in registered() if ".mutate." in name} == {
            "CREATE"
        }
        assert ask(vm("db"), vm("db", runStrategy="Halted"), endpoint="mutate") == {"allowed": True}

    @never_break("vm", 7)
    @pytest.mark.parametrize(
        ("obj", "leaf"),
        [
            (vm("db"), "/spec/template/spec/evictionStrategy"),
            (pool(), "/spec/virtualMachineTemplate/spec/template/spec/evictionStrategy"),
        ],
    )
    def test_a_patch_changes_one_field(self, obj: dict[str, Any], leaf: str) -> None:
        response = ask(obj, endpoint="mutate")
        assert patch_of({"response": response}) == [
            {"op": "add", "path": leaf, "value": "LiveMigrate"}
        ]
        fixed = copy.deepcopy(obj)
        *way, last = leaf.strip("/").split("/")
        target = fixed
        for key in way:
            target = target[key]
        target[last] = "LiveMigrate"
        assert ask(fixed, endpoint="mutate") == {"allowed": True}, (
            "asked again after another webhook"
        )
        assert MUTATE["webhooks"][0]["reinvocationPolicy"] == "IfNeeded"
        assert MUTATE["metadata"]["name"] == NAME

    @never_break("vm", 8)
    def test_pools(self) -> None:
        member = vm("workers-0")
        owner = {
            "apiVersion": "pool.kubevirt.io/v1beta1",
            "kind": "VirtualMachinePool",
            "name": "workers",
            "uid": "1",
        }
        member["metadata"]["ownerReferences"] = [owner | {"controller": True}]
        user = {"username": "system:serviceaccount:kubevirt:kubevirt-controller", "groups": []}
        assert silent(member, userInfo=user)

    @never_break("vm", 9)
    def test_server_side_apply(self) -> None:
        """We write as rarely as possible: where a VM inherits the same value,
        and over nothing that a user wrote.
        """
        names = {"name": "kubevirt", "namespace": "kubevirt"}
        kubevirt = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": names}
        for strategy in ("LiveMigrate", "None", "External"):
            world = cluster(kubevirt | {"spec": {"configuration": {"evictionStrategy": strategy}}})
            assert ask(vm("db"), endpoint="mutate", over=world) == {"allowed": True}
        for strategy in ("None", "External", "", "livemigrate"):
            assert "patch" not in ask(
                vm("db", template={"evictionStrategy": strategy}), endpoint="mutate"
            )

    @never_break("vm", 10)
    def test_failure_policy(self) -> None:
        """Under the overlay ``enforce`` requests for VMs, pools and replica sets may fail;
        never for instances.
        """
        assert {entry["failurePolicy"] for entry in ENTRIES} == {"Ignore"}
        assert max(entry["timeoutSeconds"] for entry in ENTRIES) <= 5
        may_fail = {resource for _, resource, _, name in registered() if name in MAY_FAIL}
        assert may_fail == {kind.plural for kind in (kinds.VM, kinds.POOL, kinds.VMIRS)}

    @never_break("vm", 11)
    def test_pods_and_evictions_are_not_registered(self) -> None:
        assert not [
            resource for group, resource, _, _ in registered() if not group and resource != "nodes"
        ]
        assert not [resource for group, resource, _, _ in registered() if group == "policy"]

    @never_break("vm", 13)
    def test_our_own_absence_during_a_drain(self) -> None:
        documents = list(
            yaml.safe_load_all((ROOT / "manifests" / "base" / "workload.yaml").read_text())
        )
        deployment, budget = (
            next(each["spec"] for each in documents if each["kind"] == kind)
            for kind in ("Deployment", "PodDisruptionBudget")
        )
        pod = deployment["template"]["spec"]
        assert deployment["replicas"] - budget["minAvailable"] == 1
        assert "podAntiAffinity" in pod["affinity"]
        assert not [
            volume
            for volume in pod["volumes"]
            if {"hostPath", "persistentVolumeClaim"} & set(volume)
        ]

    @never_break("vm", 14)
    def test_own_namespace_and_system_namespaces(self) -> None:
        for entry in ENTRIES:
            names, label = entry["namespaceSelector"]["matchExpressions"]
            assert set(SYSTEM_NAMESPACES) <= set(names["values"])
            assert label == {"key": "virt-admit.io/ignore", "operator": "NotIn", "values": ["true"]}
            if {"virtualmachines", "virtualmachineinstances"} & set(entry["rules"][0]["resources"]):
                assert set(KUBEVIRT_NAMESPACES) <= set(names["values"])

    @never_break("vm", 15)
    def test_cordons(self) -> None:
        """During a drain every check of nodes gives the answer that it gave before."""
        seen = 0
        for rule, case in cases(*VMS):
            nodes = [each for each in case.get("cluster", ()) if each["kind"] == "Node"]
            if not nodes:
                continue
            seen += 1
            drained = {**case, "cluster": [_drained(each) for each in case["cluster"]]}
            for endpoint in ("mutate", "validate"):
                before, during = (
                    ask(case["object"], case.get("old"), endpoint=endpoint, over=over(each))
                    for each in (case, drained)
                )
                assert before == during, (rule, case["name"])
        assert seen > 20

    @never_break("vm", 16)
    def test_disaster_recovery(self) -> None:
        """What a VM refers to does not exist yet: claims, volumes to import, instance type,
        preference, KubeVirt.
        """
        volumes = [
            {"name": "root", "dataVolume": {"name": "not-imported"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "not-restored"}},
            {"name": "net", "cloudInitNoCloud": {"networkDataSecretRef": {"name": "not-there"}}},
        ]
        networks = [
            {"name": "default", "pod": {}},
            {"name": "lan", "multus": {"networkName": "not/there"}},
        ]
        restored = vm("db", template={"volumes": volumes, "networks": networks})
        restored["spec"] |= {"instancetype": {"name": "u1.large"}, "preference": {"name": "fedora"}}
        for world in (EMPTY, NOTHING):
            fixed = ask(restored, endpoint="mutate", over=world)
            assert [step["value"] for step in patch_of({"response": fixed})] == [
                "LiveMigrateIfPossible"
            ]
            assert ask(restored, over=world) == {"allowed": True}
            explicit = vm(
                "db",
                template={
                    "volumes": volumes,
                    "networks": networks,
                    "evictionStrategy": "LiveMigrate",
                },
            )
            assert ask(explicit, over=world) == {"allowed": True}

    @never_break("vm", 17)
    def test_newer_kubevirt(self) -> None:
        names = {"name": "kubevirt", "namespace": "kubevirt"}
        kubevirt = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "KubeVirt",
            "metadata": names,
            "spec": {},
        }
        new = vm("db", runStrategy="Sometimes", template={"evictionStrategy": "Teleport"})
        for version, allowed in (("v1.10.0", False), ("v9.0.0", True)):
            answer = ask(
                new, over=cluster(kubevirt | {"status": {"observedKubeVirtVersion": version}})
            )
            assert answer["allowed"] == allowed
            assert "vm-run-strategy-unknown" in said(answer)
            assert "vm-eviction-strategy-unknown" in said(answer)

    @never_break("vm", 18)
    @pytest.mark.parametrize(
        ("obj", "version"),
        [(faulty(), "kubevirt.io/v1alpha3"), (pool(running=True), "pool.kubevirt.io/v1alpha1")],
    )
    def test_versions(self, obj: dict[str, Any], version: str) -> None:
        answer = ask(obj | {"apiVersion": version})
        assert not answer["allowed"]
        assert said(answer) == said(ask(obj))

    @never_break("vm", 19)
    @pytest.mark.parametrize(
        ("metadata", "start"),
        [
            ({}, "VirtualMachine:"),
            ({"generateName": "db-"}, "VirtualMachine db-"),
            ({"name": "db"}, "VirtualMachine db:"),
        ],
    )
    def test_generate_name_and_no_namespace(self, metadata: dict[str, str], start: str) -> None:
        answer = ask({**faulty(), "metadata": metadata}, namespace="")
        assert not answer["allowed"]
        assert answer["status"]["message"].startswith(start)

    @never_break("vm", 19)
    @pytest.mark.parametrize(
        "odd", [None, "", "text", 7, True, [], ["a"], [None], {}, {"": None}], ids=repr
    )
    def test_odd_types(self, odd: Any) -> None:
        """Where there is no VMI spec there is nothing to judge, and nothing to write."""
        places = [odd, {"runStrategy": "no", "template": odd}]
        if not isinstance(odd, dict):
            places.append({"runStrategy": "no", "template": {"spec": odd}})
        for spec in places:
            for kind in ("VirtualMachine", "VirtualMachineInstanceReplicaSet"):
                for metadata in (odd, {"name": "db"}):
                    body = review({"apiVersion": "kubevirt.io/v1", "kind": kind}, namespace="shop")
                    body["request"]["object"] |= {"metadata": metadata, "spec": spec}
                    assert (
                        answered(body, "mutate") == answered(body, "validate") == {"allowed": True}
                    ), spec

    @never_break("vm", 20)
    def test_warnings_as_noise(self) -> None:
        noisy = vm("db", runStrategy=None, running=True, template={"evictionStrategy": "External"})
        first = ask(noisy)["warnings"]
        rules = [each.rpartition("[virt-admit/")[2] for each in first]
        assert len(rules) == len(set(rules)) >= 2
        edited = copy.deepcopy(noisy)
        edited["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 60
        assert silent(edited, noisy)
        fixed = ask(vm("db"), endpoint="mutate")
        assert len(fixed["warnings"]) == len(patch_of({"response": fixed})) == 1

    @never_break("vm", 21)
    def test_cluster_api_and_hypershift(self) -> None:
        attended = vm("node-0", template={"evictionStrategy": "External"})
        attended["metadata"]["labels"] = {"capk.cluster.x-k8s.io/kubevirt-machine-name": "node-0"}
        assert silent(attended)

    @never_break("vm", 22)
    def test_kubevirt_not_installed(self) -> None:
        """An absent definition is a kind of which there is nothing."""
        answer = ask(vm("db"), endpoint="mutate", over=EMPTY)
        assert [step["value"] for step in patch_of({"response": answer})] == ["LiveMigrate"]

    @never_break("vm", 23)
    def test_chained_dry_runs(self) -> None:
        assert {entry["sideEffects"] for entry in ENTRIES} == {"None"}
        for endpoint in ("mutate", "validate"):
            assert ask(faulty(), endpoint=endpoint, dryRun=True) == ask(faulty(), endpoint=endpoint)

    @never_break("vm", 24)
    def test_certificates(self) -> None:
        alerts = (ROOT / "manifests" / "monitoring" / "alerts.yaml").read_text()
        assert "VirtAdmitCertificateExpiresSoon" in alerts


def test_every_line_has_a_test() -> None:
    assert lines_with_a_test() == {area: set(range(1, last + 1)) for area, last in LINES.items()}


def _drained(obj: dict[str, Any]) -> dict[str, Any]:
    """A node as it is during a drain, a maintenance and a fencing; other objects as they are."""
    if obj["kind"] != "Node":
        return obj
    transient = (
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/not-ready",
        "kubevirt.io/drain",
        "medik8s.io/drain",
    )
    spec = obj.get("spec") or {}
    taints = [*spec.get("taints", ()), *({"key": key, "effect": "NoSchedule"} for key in transient)]
    return {**obj, "spec": {**spec, "unschedulable": True, "taints": taints}}
