"""The hazards of an admission webhook that need no API server: engine, rules and manifests.

``@never_break`` gives the line of the hazard. The tests against a real API server are in tests/e2e/never_break and
tests/e2e/test_cluster_configuration.py.
"""

from __future__ import annotations

import copy
import json
import re
import time
from typing import Any, ClassVar

import pytest
import yaml

from tests.https.reviews import patch_of, review, vm
from tests.never_break import LINES, lines_with_a_test, never_break
from tests.paths import ROOT
from tests.rule_cases import rule_cases
from virt_admit.engine import review as engine
from virt_admit.install import manifests
from virt_admit.install.manifests import KUBEVIRT_NAMESPACES, MAY_FAIL, NAME, SYSTEM_NAMESPACES
from virt_admit.model import kinds
from virt_admit.model.cluster import NOTHING, Cluster, Snapshot
from virt_admit.model.kubevirt.migratability import BRIDGE_OPT_IN
from virt_admit.model.objects import Object
from virt_admit.policy.parser import load
from virt_admit.policy.policy import Policy
from virt_admit.rules import load_rules

ALL = load_rules()
RULES = ALL.at_admission
DEFAULT = load("default", ALL)
MUTATE, VALIDATE = manifests.webhooks(RULES)
ENTRIES = [*MUTATE["webhooks"], *VALIDATE["webhooks"]]
EMPTY = Snapshot(complete=["*"])
"""A cluster of which everything can be seen, and there is nothing."""

KUBEVIRT_ACCOUNTS = ("controller", "apiserver", "handler", "operator", "synchronization-controller")
VMS = ("pdb", "vm", "vmi")
HEALTH = ("capi", "condition", "far", "machine", "machineset", "mhc", "nhc", "nm", "node", "remediation", "snrc")
BY_RELEASE = ("vm-run-strategy-unknown", "vm-eviction-strategy-unknown")
"""Only a KubeVirt that says it is newer than known softens these; a release that is not known is the newest known."""
FAULTS = ("virt-admit/vm-running-and-run-strategy", "virt-admit/vm-eviction-strategy-unknown")


def faulty(**more: Any) -> dict[str, Any]:
    """A VM with two faults that are denied."""
    return vm("db", running=True, template={"evictionStrategy": "livemigrate"}) | more


def instance(**spec: Any) -> dict[str, Any]:
    names = {"name": "db", "namespace": "shop"}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": names, "spec": spec}


def pool(**spec: Any) -> dict[str, Any]:
    machine = {"spec": vm("db", **spec)["spec"]}
    names = {"name": "workers", "namespace": "shop"}
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "virtualMachineTemplate": machine}
    return {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "metadata": names, "spec": spec}


def node(name: str, ready: str = "True", **spec: Any) -> dict[str, Any]:
    labels = {"kubevirt.io/schedulable": "true", "kubernetes.io/hostname": name}
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": status,
    }


def maintenance(name: str) -> dict[str, Any]:
    group = "nodemaintenance.medik8s.io/v1beta1"
    return {"apiVersion": group, "kind": "NodeMaintenance", "metadata": {"name": "m"}, "spec": {"nodeName": name}}


def running(name: str, where: str, **spec: Any) -> dict[str, Any]:
    """An instance on that node that cannot migrate."""
    status = {
        "phase": "Running",
        "nodeName": where,
        "conditions": [{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}],
    }
    obj = instance(**{"evictionStrategy": "LiveMigrate", **spec}) | {"status": status}
    obj["metadata"] = {"name": name, "namespace": "shop", "labels": {"kubevirt.io/nodeName": where}}
    return obj


def cluster(*objects: dict[str, Any], complete: tuple[str, ...] = ("*",)) -> Snapshot:
    return Snapshot([Object(each) for each in objects], complete=complete)


def ask(
    obj: Any,
    old: Any = None,
    *,
    endpoint: str = "validate",
    over: Cluster = EMPTY,
    policy: Policy = DEFAULT,
    **more: Any,
) -> dict[str, Any]:
    """What the webhook answers about an object: ``allowed``, and ``status``, ``warnings``, ``patch`` where there are."""
    return answered(review(obj, old, **more), endpoint, over, policy)


def answered(body: dict[str, Any], endpoint: str, over: Cluster = EMPTY, policy: Policy = DEFAULT) -> dict[str, Any]:
    """The answer to a review. Nothing may have gone wrong inside."""
    decide = engine.fix if endpoint == "mutate" else engine.review
    answer = engine.answer(json.dumps(body).encode(), decide, RULES, over, policy)
    assert answer.response.errors == ()
    response: dict[str, Any] = json.loads(answer.body)["response"]
    return {key: value for key, value in response.items() if key not in ("uid", "auditAnnotations")}


def silent(obj: Any, old: Any = None, **more: Any) -> bool:
    """Whether both endpoints allow it without a word and without a patch."""
    return all(ask(obj, old, endpoint=each, **more) == {"allowed": True} for each in ("mutate", "validate"))


def said(response: dict[str, Any]) -> str:
    """All texts of an answer."""
    return "\n".join([*response.get("warnings", ()), json.dumps(response.get("status", ""))])


def cases(*families: str) -> list[tuple[str, dict[str, Any]]]:
    """Return every case of the rules whose ids start with one of these words, with the rule's id."""
    assert {rule_id.split("-")[0] for rule_id in rule_cases()} >= set(families)
    return [
        (rule_id, case)
        for rule_id, found in rule_cases().items()
        if rule_id.split("-")[0] in families and rule_id in RULES.by_id
        for case in found
        if kinds.of(Object(case["object"]))
    ]


def registered() -> set[tuple[str, str, str, str]]:
    """Group, resource, operation and webhook of everything that the API server asks us about."""
    return {
        (group, resource, operation, entry["name"])
        for entry in ENTRIES
        for rule in entry["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }


class TestVirtualMachines:
    """A webhook for virtual machines."""

    @never_break("vm", 1)
    def test_updates_of_vmis_pass(self) -> None:
        hits = {(operation, name) for _, resource, operation, name in registered() if resource == kinds.VMI.plural}
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
    @pytest.mark.parametrize("subresource", ["status", "scale", "start", "addvolume", "portforward/22"])
    def test_status_and_subresources(self, subresource: str) -> None:
        assert silent(faulty(), subResource=subresource)
        assert silent(faulty(), vm("db"), subResource=subresource)

    @never_break("vm", 3)
    def test_finalizers_can_be_removed(self) -> None:
        held = faulty()
        held["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubevirt.io/x"]}
        freed = copy.deepcopy(held)
        freed["metadata"]["finalizers"] = []
        assert silent(freed, held)
        freed["spec"]["runStrategy"] = "Never"
        assert silent(freed, held)
        assert silent(None, held, operation="DELETE")
        for entry in ENTRIES:
            if entry["name"] != "nodes.validate.virt-admit.io":  # its own condition wants a change of the node
                assert any(
                    "has(object.metadata.deletionTimestamp)" in each["expression"] for each in entry["matchConditions"]
                )

    @never_break("vm", 4)
    @pytest.mark.parametrize("account", KUBEVIRT_ACCOUNTS)
    @pytest.mark.parametrize("home", ["kubevirt", "openshift-cnv"])
    def test_kubevirts_own_writers(self, account: str, home: str) -> None:
        user = f"system:serviceaccount:{home}:kubevirt-{account}"
        for obj in (faulty(), pool(running=True), instance(evictionStrategy="x"), vm("db")):
            assert silent(obj, userInfo={"username": user})
        assert re.search(manifests.KUBEVIRT_ACCOUNTS, user)
        assert not re.search(manifests.KUBEVIRT_ACCOUNTS, f"{user}-2")

    @never_break("vm", 5)
    def test_stored_violations_can_still_be_edited(self) -> None:
        old = faulty()
        assert silent(old, old), "a no-op PUT of a storage-version migration"
        scaled = copy.deepcopy(old)
        scaled["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": 4}
        answer = ask(scaled, old)
        assert answer["allowed"]
        assert all(fault in said(answer) for fault in FAULTS)

    @never_break("vm", 5)
    def test_other_changes_of_what_a_strict_policy_would_refuse(self) -> None:
        strict = load("strict", ALL)
        for rule, case in cases(*VMS):
            old, new = case["object"], copy.deepcopy(case["object"])
            new["metadata"]["annotations"] = {**(new["metadata"].get("annotations") or {}), BRIDGE_OPT_IN: ""}
            if isinstance(old.get("spec"), dict):
                new["spec"]["updateVolumesStrategy"] = "Migration"  # so that the object is judged again
            assert ask(new, old, over=over(case), policy=strict)["allowed"], (rule, case["name"])

    @never_break("vm", 6)
    def test_updates_are_not_mutated(self) -> None:
        assert {operation for _, _, operation, name in registered() if ".mutate." in name} == {"CREATE"}
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
        assert patch_of({"response": response}) == [{"op": "add", "path": leaf, "value": "LiveMigrate"}]
        fixed = copy.deepcopy(obj)
        *way, last = leaf.strip("/").split("/")
        target = fixed
        for key in way:
            target = target[key]
        target[last] = "LiveMigrate"
        assert ask(fixed, endpoint="mutate") == {"allowed": True}, "asked again after another webhook"
        assert MUTATE["webhooks"][0]["reinvocationPolicy"] == "IfNeeded"
        assert MUTATE["metadata"]["name"] == NAME

    @never_break("vm", 8)
    def test_pools(self) -> None:
        member = vm("workers-0")
        owner = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "workers", "uid": "1"}
        member["metadata"]["ownerReferences"] = [owner | {"controller": True}]
        user = {"username": "system:serviceaccount:kubevirt:kubevirt-controller", "groups": []}
        assert silent(member, userInfo=user)

    @never_break("vm", 9)
    def test_server_side_apply(self) -> None:
        """We write as rarely as possible: where a VM inherits the same value, and over nothing that somebody wrote."""
        names = {"name": "kubevirt", "namespace": "kubevirt"}
        kubevirt = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": names}
        for strategy in ("LiveMigrate", "None", "External"):
            world = cluster(kubevirt | {"spec": {"configuration": {"evictionStrategy": strategy}}})
            assert ask(vm("db"), endpoint="mutate", over=world) == {"allowed": True}
        for strategy in ("None", "External", "", "livemigrate"):
            assert "patch" not in ask(vm("db", template={"evictionStrategy": strategy}), endpoint="mutate")

    @never_break("vm", 10)
    def test_failure_policy(self) -> None:
        """Under the overlay ``enforce`` requests for VMs, pools and replica sets may fail; never for instances."""
        assert {entry["failurePolicy"] for entry in ENTRIES} == {"Ignore"}
        assert max(entry["timeoutSeconds"] for entry in ENTRIES) <= 5
        may_fail = {resource for _, resource, _, name in registered() if name in MAY_FAIL}
        assert may_fail == {kind.plural for kind in (kinds.VM, kinds.POOL, kinds.VMIRS)}

    @never_break("vm", 11)
    def test_pods_and_evictions_are_not_registered(self) -> None:
        assert not [resource for group, resource, _, _ in registered() if not group and resource != "nodes"]
        assert not [resource for group, resource, _, _ in registered() if group == "policy"]

    @never_break("vm", 12)
    def test_reads_inside_a_request(self) -> None:
        """A look-up reads memory or raises Unseen, which never denies: with nothing known only the object decides."""
        for rule, case in cases(*VMS):
            if rule not in BY_RELEASE:
                assert_that_blindness_never_denies(rule, case)

    @never_break("vm", 13)
    def test_our_own_absence_during_a_drain(self) -> None:
        documents = list(yaml.safe_load_all((ROOT / "manifests" / "base" / "workload.yaml").read_text()))
        deployment, budget = (
            next(each["spec"] for each in documents if each["kind"] == kind)
            for kind in ("Deployment", "PodDisruptionBudget")
        )
        pod = deployment["template"]["spec"]
        assert deployment["replicas"] - budget["minAvailable"] == 1
        assert "podAntiAffinity" in pod["affinity"]
        assert not [volume for volume in pod["volumes"] if {"hostPath", "persistentVolumeClaim"} & set(volume)]

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
                    ask(case["object"], case.get("old"), endpoint=endpoint, over=over(each)) for each in (case, drained)
                )
                assert before == during, (rule, case["name"])
        assert seen > 20

    @never_break("vm", 16)
    def test_disaster_recovery(self) -> None:
        """What a VM refers to does not exist yet: claims, volumes to import, instance type, preference, KubeVirt."""
        volumes = [
            {"name": "root", "dataVolume": {"name": "not-imported"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "not-restored"}},
            {"name": "net", "cloudInitNoCloud": {"networkDataSecretRef": {"name": "not-there"}}},
        ]
        networks = [{"name": "default", "pod": {}}, {"name": "lan", "multus": {"networkName": "not/there"}}]
        restored = vm("db", template={"volumes": volumes, "networks": networks})
        restored["spec"] |= {"instancetype": {"name": "u1.large"}, "preference": {"name": "fedora"}}
        for world in (EMPTY, NOTHING):
            fixed = ask(restored, endpoint="mutate", over=world)
            assert [step["value"] for step in patch_of({"response": fixed})] == ["LiveMigrateIfPossible"]
            assert ask(restored, over=world) == {"allowed": True}
            explicit = vm("db", template={"volumes": volumes, "networks": networks, "evictionStrategy": "LiveMigrate"})
            assert ask(explicit, over=world) == {"allowed": True}

    @never_break("vm", 17)
    def test_newer_kubevirt(self) -> None:
        names = {"name": "kubevirt", "namespace": "kubevirt"}
        kubevirt = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": names, "spec": {}}
        new = vm("db", runStrategy="Sometimes", template={"evictionStrategy": "Teleport"})
        for version, allowed in (("v1.10.0", False), ("v9.0.0", True)):
            answer = ask(new, over=cluster(kubevirt | {"status": {"observedKubeVirtVersion": version}}))
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
            ({}, "VirtualMachine: "),
            ({"generateName": "db-"}, "VirtualMachine db-"),
            ({"name": "db"}, "VirtualMachine db: "),
        ],
    )
    def test_generate_name_and_no_namespace(self, metadata: dict[str, str], start: str) -> None:
        answer = ask({**faulty(), "metadata": metadata}, namespace="")
        assert not answer["allowed"]
        assert answer["status"]["message"].startswith(start)

    @never_break("vm", 19)
    @pytest.mark.parametrize("odd", [None, "", "text", 7, True, [], ["a"], [None], {}, {"": None}], ids=repr)
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
                    assert answered(body, "mutate") == answered(body, "validate") == {"allowed": True}, spec

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


class TestHealth:
    """A webhook for health checks, nodes and machines."""

    @never_break("health", 1)
    def test_no_failure_policy_is_fail(self) -> None:
        assert {entry["failurePolicy"] for entry in ENTRIES} == {"Ignore"}
        may_fail = {group for group, _, _, name in registered() if name in MAY_FAIL}
        assert may_fail == {"kubevirt.io", "pool.kubevirt.io"}

    @never_break("health", 2)
    def test_heartbeats_and_leases_are_never_registered(self) -> None:
        resources = {(group, resource) for group, resource, _, _ in registered()}
        assert {resource.partition("/")[2] for _, resource in resources} == {"", "scale"}
        remediations = {
            "selfnoderemediations",
            "fenceagentsremediations",
            "machinedeletionremediations",
            "metal3remediations",
        }
        assert not {resource for _, resource in resources} & (remediations | {"leases", "pods"})

    @never_break("health", 3)
    def test_nodes_only_by_match_conditions_and_warned_of(self) -> None:
        (entry,) = [each for each in ENTRIES if each["name"] == "nodes.validate.virt-admit.io"]
        assert entry["timeoutSeconds"] <= 2
        assert any("system:nodes" in each["expression"] for each in entry["matchConditions"])
        assert kinds.NODE.never_denied
        assert RULES.by_kind[kinds.NODE]

    @never_break("health", 4)
    def test_deletes_and_objects_that_are_being_deleted(self) -> None:
        for rule, case in cases(*HEALTH):
            obj = case["object"]
            assert ask(None, obj, operation="DELETE", over=over(case))["allowed"], (rule, case["name"])
            going = {**obj, "metadata": {**obj.get("metadata", {}), "deletionTimestamp": "2026-01-01T00:00:00Z"}}
            assert silent(going, going | {"spec": {}}, over=over(case)), (rule, case["name"])

    @never_break("health", 5)
    def test_stored_violations_can_still_be_edited(self) -> None:
        """Pausing, annotating and labelling a broken object works, be it as broken as it may."""
        for rule, case in cases(*HEALTH):
            old, new = case["object"], copy.deepcopy(case["object"])
            metadata = new.setdefault("metadata", {})
            for key in ("labels", "annotations"):
                metadata[key] = {**(metadata.get(key) or {}), "cluster.x-k8s.io/paused": ""}
            if isinstance(old.get("spec"), dict):
                new["spec"]["pauseRequests"] = ["maintenance window"]  # so that the object is judged again
            assert ask(new, old, over=over(case))["allowed"], (rule, case["name"])

    TERMINATING: ClassVar = {
        "selector": {"matchLabels": {"machine.openshift.io/interruptible-instance": ""}},
        "maxUnhealthy": "100%",
        "nodeStartupTimeout": "0",
        "unhealthyConditions": [{"type": "Terminating", "status": "True", "timeout": "0s"}],
    }
    INERT: ClassVar = {
        "selector": {"matchLabels": {"machine.openshift.io/cluster-api-machine-role": "infra"}},
        "unhealthyConditions": [{"type": "NonexistentCondition", "status": "NonexistentStatus", "timeout": "0s"}],
    }
    HOSTED: ClassVar = {
        "clusterName": "guest-7xk2p",
        "selector": {"matchLabels": {"guest-7xk2p-guest-pool": "guest-7xk2p-guest-pool"}},
        "maxUnhealthy": 2,
        "nodeStartupTimeout": "20m0s",
        "unhealthyConditions": [
            {"type": "Ready", "status": "False", "timeout": "8m0s"},
            {"type": "Ready", "status": "Unknown", "timeout": "8m0s"},
        ],
    }

    @never_break("health", 6)
    @pytest.mark.parametrize(
        ("name", "group", "spec"),
        [
            ("openshift-machine-api/machine-api-termination-handler", "machine.openshift.io", TERMINATING),
            ("openshift-machine-api/inert", "machine.openshift.io", INERT),
            ("clusters-guest/guest", "cluster.x-k8s.io", HOSTED),
        ],
    )
    def test_what_the_cluster_ships(self, name: str, group: str, spec: dict[str, Any]) -> None:
        namespace, _, name = name.partition("/")
        names: dict[str, Any] = {"name": name, "namespace": namespace}
        shipped = {"apiVersion": f"{group}/v1beta1", "kind": "MachineHealthCheck", "metadata": names, "spec": spec}
        for world in (EMPTY, NOTHING):
            assert silent(shipped, over=world)
        owner = {"apiVersion": "v1", "kind": "X", "name": "y", "uid": "z"}
        owned = shipped | {"metadata": {**names, "finalizers": ["example.com/x"], "ownerReferences": [owner]}}
        assert silent(owned, shipped)

    @never_break("health", 7)
    @pytest.mark.parametrize(("ready", "allowed"), [("True", False), ("Unknown", True), ("False", True)])
    def test_a_broken_node_can_be_maintained(self, ready: str, allowed: bool) -> None:
        world = cluster(node("n1", ready), node("n2"), running("db", "n1"))
        answer = ask(maintenance("n1"), over=world)
        assert answer["allowed"] == allowed
        assert "nm-vm-blocks-drain" in said(answer)

    @never_break("health", 8)
    def test_cluster_reads_never_decide(self) -> None:
        """What is denied with nothing in sight is denied by the object alone."""
        for rule, case in cases(*HEALTH):
            assert_that_blindness_never_denies(rule, case)
        assert ask(maintenance("n1"), over=NOTHING)["allowed"]

    @never_break("health", 9)
    def test_no_secrets(self) -> None:
        granted = [rule for role in manifests.rbac(RULES) for rule in role.get("rules", ())]
        for rule in granted:
            if "secrets" in rule["resources"]:
                assert rule["resourceNames"] == [f"{NAME}-certs"]
            elif rule["apiGroups"] != ["admissionregistration.k8s.io"]:
                assert set(rule["verbs"]) <= {"get", "list", "watch"}

    @never_break("health", 10)
    def test_namespaces(self) -> None:
        """By rule, not by selector: MachineHealthChecks live in openshift-machine-api."""
        for entry in VALIDATE["webhooks"]:
            left_out = entry["namespaceSelector"]["matchExpressions"][0]["values"]
            assert {"kube-system", "virt-admit"} <= set(left_out)
            assert not [name for name in left_out if name.startswith("openshift-") and name != "openshift-cnv"]

    @never_break("health", 11)
    def test_bounded_work(self) -> None:
        """A maintenance among 5,000 machines: the first look costs, the next ones look at one node only."""
        nodes = [node(f"n{number}") for number in range(100)]
        machines = [running(f"db-{number}", f"n{number % 100}") for number in range(5000)]
        world = cluster(*nodes, *machines)
        costs = []
        for number in range(6):
            start = time.process_time()
            assert "and 45 more" in said(ask(maintenance(f"n{number}"), over=world))
            costs.append(time.process_time() - start)
        first, *others = costs
        assert min(others) < first / 3

    @never_break("health", 12)
    @pytest.mark.parametrize(
        ("user", "speaks"),
        [
            ("jane", True),
            ("system:serviceaccount:openshift-machine-config-operator:machine-config-controller", False),
            ("system:serviceaccount:openshift-machine-api:machine-api-controllers", False),
        ],
    )
    def test_upgrade_storms(self, user: str, speaks: bool) -> None:
        world = cluster(node("n1"), node("n2"), running("db", "n1"))
        cordoned = node("n1", unschedulable=True)
        answer = ask(cordoned, node("n1"), over=world, userInfo={"username": user, "groups": []})
        assert answer["allowed"]
        assert ("node-cordon-blocked-by-vms" in said(answer)) == speaks


def test_every_line_has_a_test() -> None:
    assert lines_with_a_test() == {area: set(range(1, last + 1)) for area, last in LINES.items()}


def over(case: dict[str, Any]) -> Snapshot:
    """The cluster that a case describes."""
    items = [Object(data) for data in case.get("cluster", ())]
    return Snapshot(items, case.get("complete", ["*"]), server_version=case.get("serverVersion"))


def assert_that_blindness_never_denies(rule: str, case: dict[str, Any]) -> None:
    """What is denied with nothing in sight is denied by the object alone."""
    if "old" not in case and "operation" not in case:
        blind = ask(case["object"], over=NOTHING)
        assert blind["allowed"] or not ask(case["object"], over=over(case))["allowed"], (rule, case["name"])


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
