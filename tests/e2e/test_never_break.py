"""How an admission webhook hurts a cluster, and that we do not: what a real API server has a part in.

What can go wrong is numbered, by whom it hurts, and a test is named after its number. What can be said without an
API server is in tests/rules/test_never_break.py.
"""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.crds import install_crds
from tests.apiserver.webhook import Webhook, register
from tests.e2e.reach import BEFORE, REQUIRED, Reach, reach
from tests.https.reviews import vm
from tests.never_break import never_break
from tests.waiting import eventually
from virt_admit.install import manifests
from virt_admit.install.manifests import IGNORE_LABEL, KUBEVIRT_NAMESPACES, SYSTEM_NAMESPACES
from virt_admit.model import kinds
from virt_admit.model.kinds import Kind

SHOP, MACHINES, KUBEVIRT = "shop", "openshift-machine-api", "kubevirt"
MIGRATOR = "system:serviceaccount:kube-system:storage-version-migrator"
CONTROLLER = f"system:serviceaccount:{KUBEVIRT}:kubevirt-controller"
ROLL_OUTS = (
    "system:serviceaccount:openshift-machine-config-operator:machine-config-controller",
    f"system:serviceaccount:{MACHINES}:machine-api-controllers",
)
HELD = '-p={"metadata":{"finalizers":["example.com/held"]}}'
FREED = '-p={"metadata":{"finalizers":null}}'
REMEDIATIONS = tuple(
    Kind(f"{name}.medik8s.io", ("v1alpha1",), f"{kind.lower()}s", kind)
    for name, kind in (
        ("self-node-remediation", "SelfNodeRemediation"),
        ("fence-agents-remediation", "FenceAgentsRemediation"),
        ("machine-deletion-remediation", "MachineDeletionRemediation"),
    )
)
"""What operators write to each other while a node is being remedied."""
KUBELET: dict[str, Any] = {"user": "system:node:n1", "groups": ("system:nodes",)}


def obj(kind: Kind, name: str, namespace: str = "", /, **fields: Any) -> dict[str, Any]:
    metadata = (
        {"name": name} | ({"namespace": namespace or SHOP} if kind.namespaced else {}) | fields.pop("metadata", {})
    )
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}


def instance(name: str, **spec: Any) -> dict[str, Any]:
    return obj(kinds.VMI, name, spec={"domain": {"devices": {}}, **spec})


def replica_set(name: str, **template: Any) -> dict[str, Any]:
    spec = {"domain": {"devices": {}}, **template}
    return obj(kinds.VMIRS, name, spec={"selector": {}, "template": {"spec": spec}})


def pool(name: str, **spec: Any) -> dict[str, Any]:
    return obj(kinds.POOL, name, spec={"selector": {}, "virtualMachineTemplate": {"spec": vm(name, **spec)["spec"]}})


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
    health_check("ancient", selector={}, unhealthyConditions=[{"type": "Ready", "status": "False"}]),
    obj(kinds.CAPI_MHC, "ancient", spec={"clusterName": "a", "selector": {}}),
    obj(kinds.NHC, "ancient", spec={"selector": {}}),
    obj(kinds.MACHINE_SET, "ancient", MACHINES, spec={"selector": {"matchLabels": {"a": "b"}}, "template": {}}),
    obj(kinds.NM, "ancient", spec={"nodeName": "scrapped"}),
    obj(kinds.NM_KUBEVIRT, "ancient", spec={"nodeName": "scrapped"}),
    obj(kinds.SNR_CONFIG, "ancient", spec={}),
    obj(kinds.FAR_TEMPLATE, "ancient", spec={"template": {"spec": {"agent": "fence_ipmilan", "retrycount": -1}}}),
]
FAULTY_CONFIGURATION = [
    obj(kinds.HCO, "kubevirt-hyperconverged", spec={"virtualization": LIMIT}),
    obj(kinds.KUBEVIRT, "ancient", spec={"configuration": {"migrations": LIMIT["liveMigrationConfig"]}}),
    obj(kinds.CDI, "ancient", spec={"certConfig": {"server": {"duration": "1s"}}}),
    obj(
        kinds.MIGRATION_POLICY,
        "ancient",
        spec={"selectors": {"namespaceSelector": {"a": "b"}}, "completionTimeoutPerGiB": -1},
    ),
]
FAULTY = [*FAULTY_MACHINES, *FAULTY_HEALTH, *FAULTY_CONFIGURATION]
"""One object of each kind that is denied, with a fault for which it is."""


@pytest.fixture(scope="module")
def asker(crds: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reach]:
    with reach(crds, tmp_path_factory.mktemp("never-break")) as asker:
        homes = (SHOP, MACHINES, *SYSTEM_NAMESPACES, *KUBEVIRT_NAMESPACES)
        asker.kubectl("apply", [namespace(name) for name in homes])
        yield asker


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


@pytest.fixture(autouse=True)
def nothing_there(asker: Reach) -> Iterator[None]:
    """A cluster without anything in it, before and after."""
    asker.world()
    asker.policy()
    yield
    asker.kubectl(
        "delete", [*FAULTY, vm("db"), instance("db"), node("n1")], "--ignore-not-found", "--wait=false", user=BEFORE
    )


def quiet(answer: tuple[int, str]) -> bool:
    """Whether kubectl was content and nobody said a word."""
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


def stored(asker: Reach, what: dict[str, Any], *flags: str) -> Any:
    (found,) = objects(asker.kubectl("get", what, "-o=json", *flags))
    return found


def everything(asker: Reach) -> int:
    """How many requests have reached the webhook."""
    return asker.requests('[^"]*')


class TestVirtualMachines:
    """A webhook for virtual machines."""

    @never_break("vm", 1)
    def test_updates_of_vmis_pass(self, asker: Reach) -> None:
        """virt-handler and virt-controller write the status with the object."""
        faulty = instance("db", evictionStrategy="livemigrate")
        made = asker.kubectl("create", faulty)
        assert made[0] == 0
        assert "[virt-admit/vm-eviction-strategy-unknown]" in made[1]
        before = asker.requests("VirtualMachineInstance")
        for phase in ("Scheduling", "Scheduled", "Running"):
            assert quiet(asker.kubectl("replace", faulty | {"status": {"phase": phase}}))
        assert quiet(asker.kubectl("label", faulty, "kubevirt.io/nodeName=n1"))
        assert stored(asker, faulty)["status"] == {"phase": "Running"}
        assert asker.requests("VirtualMachineInstance") == before

    @never_break("vm", 1)
    def test_an_instance_is_never_mutated(self, asker: Reach) -> None:
        assert quiet(asker.kubectl("create", instance("db")))
        assert "evictionStrategy" not in stored(asker, instance("db"))["spec"]

    @never_break("vm", 2)
    def test_status_and_subresources(self, asker: Reach) -> None:
        asker.kubectl("create", FAULTY_MACHINES, user=BEFORE)
        before = everything(asker)
        written = [each | {"status": {"ready": True, "readyReplicas": 1}} for each in FAULTY_MACHINES]
        assert asker.kubectl("replace --subresource=status", written, "--validate=ignore")[0] == 0
        assert quiet(asker.kubectl("scale", FAULTY_MACHINES[1:], "--replicas=3"))
        assert everything(asker) == before

    @never_break("vm", 3)
    def test_finalizers_can_be_removed(self, asker: Reach) -> None:
        must_be_deletable(asker, FAULTY_MACHINES)

    @never_break("vm", 4)
    @pytest.mark.parametrize(
        "account", ["controller", "apiserver", "handler", "operator", "synchronization-controller"]
    )
    def test_kubevirts_own_writers(self, asker: Reach, account: str) -> None:
        """With the token of the service account: they may do anything, and we are not even asked."""
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"system:serviceaccounts:{KUBEVIRT}"}
        binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
        asker.kubectl("apply", binding | {"metadata": {"name": "kubevirt"}, "roleRef": role, "subjects": [group]})
        token = asker.plane.service_account_token(KUBEVIRT, f"kubevirt-{account}")
        before = everything(asker)
        theirs = [*FAULTY_MACHINES, vm("plain"), instance("db", evictionStrategy="livemigrate")]
        create = partial(asker.kubectl, "create", theirs, f"--token={token}", "--dry-run=server")
        eventually(lambda: quiet(create()))  # the API server learns of the binding by a watch
        assert everything(asker) == before

    @never_break("vm", 5)
    def test_stored_violations_can_still_be_edited(self, asker: Reach) -> None:
        must_be_editable(asker, FAULTY_MACHINES)

    @never_break("vm", 6)
    def test_updates_are_not_mutated(self, asker: Reach) -> None:
        assert "spec.template.spec.evictionStrategy was set to LiveMigrate" in asker.kubectl("create", vm("db"))[1]
        assert quiet(asker.kubectl("replace", vm("db")))
        assert leaf(stored(asker, vm("db"))) is None

    @never_break("vm", 7)
    def test_a_patch_changes_one_field(self, asker: Reach) -> None:
        """What is stored is what was sent, and one leaf."""
        plain = [vm("db"), pool("workers"), replica_set("web")]
        ours, theirs = (
            objects(asker.kubectl("create", plain, "--dry-run=server", "-o=json", user=user)) for user in ("", BEFORE)
        )
        for with_leaf, without in zip(ours, theirs, strict=True):
            machine = with_leaf["spec"].get("virtualMachineTemplate", with_leaf)
            assert machine["spec"]["template"]["spec"].pop("evictionStrategy").startswith("LiveMigrate")
            assert with_leaf["spec"] == without["spec"]

    @never_break("vm", 8)
    def test_pools(self, asker: Reach) -> None:
        """The template is mutated when somebody makes the pool, its members never."""
        owner = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "workers", "uid": "1"}
        member = vm("db")
        member["metadata"]["ownerReferences"] = [owner | {"controller": True}]
        assert "evictionStrategy to LiveMigrate" in asker.kubectl("create", pool("workers"))[1]
        assert quiet(asker.kubectl("create", member, user=CONTROLLER))
        assert leaf(stored(asker, member)) is None

    @never_break("vm", 9)
    def test_server_side_apply(self, asker: Reach) -> None:
        """Our field belongs to nobody: it stays when a manager applies again, and any manager may take it."""
        ours, theirs = "--field-manager=gitops", "--field-manager=console"
        plain = vm("db")
        assert "evictionStrategy to LiveMigrate" in asker.kubectl("apply --server-side", plain, ours)[1]
        managed = stored(asker, plain, "--show-managed-fields")["metadata"]["managedFields"]
        assert [each["manager"] for each in managed] == ["gitops"]
        assert "f:evictionStrategy" not in json.dumps(managed)

        labelled = {**plain, "metadata": {**plain["metadata"], "labels": {"tier": "1"}}}
        assert quiet(asker.kubectl("apply --server-side", labelled, ours))
        assert quiet(asker.kubectl("apply --server-side", plain, ours))
        assert leaf(stored(asker, plain)) == "LiveMigrate"

        partly = {key: plain[key] for key in ("apiVersion", "kind", "metadata")}
        taken = partly | {"spec": {"template": {"spec": {"evictionStrategy": "None"}}}}
        assert quiet(asker.kubectl("apply --server-side", taken, theirs, "--validate=ignore"))
        assert quiet(asker.kubectl("apply --server-side", plain, ours))
        assert leaf(stored(asker, plain)) == "None"

    @never_break("vm", 9)
    def test_client_side_apply(self, asker: Reach) -> None:
        assert "evictionStrategy to LiveMigrate" in asker.kubectl("apply", vm("db"))[1]
        assert quiet(asker.kubectl("apply", vm("db", runStrategy="Halted")))
        assert leaf(stored(asker, vm("db"))) == "LiveMigrate"

    @never_break("vm", 10)
    def test_failure_policy(self, asker: Reach) -> None:
        must_pass_while_we_are_down(asker, FAULTY_MACHINES)

    @never_break("vm", 11)
    def test_pods_and_evictions_are_not_registered(self, asker: Reach) -> None:
        pod = obj(kinds.POD, "virt-launcher", spec={"containers": [{"name": "compute", "image": "compute"}]})
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": pod["metadata"]}
        before = everything(asker)
        assert quiet(asker.kubectl("create", pod))
        path = f"/api/v1/namespaces/{SHOP}/pods/virt-launcher/eviction"
        assert quiet(asker.kubectl(f"create --raw={path}", eviction))
        assert everything(asker) == before

    @never_break("vm", 14)
    def test_own_namespace_and_system_namespaces(self, asker: Reach) -> None:
        asker.kubectl("apply", namespace("opted-out", **{IGNORE_LABEL: "true"}))
        before = everything(asker)
        homes = (*SYSTEM_NAMESPACES, *KUBEVIRT_NAMESPACES, "opted-out")
        assert quiet(asker.kubectl("create", [vm("db", home, running=True) for home in homes], "--dry-run=server"))
        assert everything(asker) == before

    @never_break("vm", 18)
    def test_versions(self, asker: Reach) -> None:
        """The deprecated versions arrive converted, are judged, and get the default."""
        old = [
            each | {"apiVersion": f"{each['apiVersion'].split('/')[0]}/{version}"}
            for each, version in zip(
                [vm("db"), pool("workers"), replica_set("web")], ("v1alpha3", "v1alpha1", "v1alpha3"), strict=True
            )
        ]
        made = asker.kubectl("create", old, "--dry-run=server")
        assert made[0] == 0
        assert made[1].count("evictionStrategy to LiveMigrate") == len(old)
        faulty = [each | {"apiVersion": made["apiVersion"]} for each, made in zip(FAULTY_MACHINES, old, strict=True)]
        refused = asker.kubectl("create", faulty, "--dry-run=server")
        assert refused[0] == 1
        assert refused[1].count("denied the request") + refused[1].count("is invalid") >= 3

    @never_break("vm", 19)
    def test_generate_name_and_no_namespace(self, asker: Reach) -> None:
        faulty = vm("db", running=True)
        faulty["metadata"] = {"generateName": "db-"}
        refused = asker.kubectl("create", faulty)
        assert refused[0] == 1
        assert "[virt-admit/vm-running-and-run-strategy]" in refused[1]

    @never_break("vm", 19)
    def test_odd_types(self, asker: Reach) -> None:
        """We are asked before the schema is: it refuses them, and we get in nobody's way."""
        odds: list[Any] = [None, "text", 7, [None], {}]
        spec = vm("db")["spec"]
        with failing(asker):
            for odd in odds:
                for broken in (odd, {**spec, "template": odd}, {**spec, "template": {"spec": odd}}):
                    odd_vm = vm("db") | {"spec": broken}
                    answer = asker.kubectl("create", odd_vm, "--validate=ignore", "--dry-run=server")
                    assert "webhook" not in answer[1]
                    assert answer[0] == 0 or "is invalid" in answer[1]

    @never_break("vm", 20)
    def test_warnings_as_noise(self, asker: Reach) -> None:
        noisy = vm("db", runStrategy=None, running=True, template={"evictionStrategy": "External"})
        made = asker.kubectl("create", noisy)
        assert made[0] == 0
        assert made[1].count("Warning: ") == len(set(re.findall(r"\[virt-admit/\S+\]", made[1]))) >= 2
        assert quiet(asker.kubectl("label", noisy, "tier=1"))
        assert quiet(asker.kubectl("annotate", noisy, "note=1"))

    @never_break("vm", 22)
    def test_kubevirt_not_installed(self, asker: Reach, tmp_path: Path) -> None:
        """No definition of the product's world is there: we are ready, and judge what comes later."""
        with (
            ControlPlane(asker.plane.binaries) as bare,
            Webhook(tmp_path, "--live", "--kubeconfig", bare.kubeconfig) as webhook,
        ):
            install_crds(bare, [kinds.VM])
            register(bare, webhook)
            bare.kubectl("delete", "customresourcedefinition", str(kinds.VM), check=True)
            assert webhook.ops("/readyz")[0] == 200

    @never_break("vm", 23)
    def test_chained_dry_runs(self, asker: Reach) -> None:
        for _ in "12":
            tried = asker.kubectl("create", vm("db"), "--dry-run=server", "-o=json")
            assert tried[0] == 0
        assert "not found" in asker.kubectl("get", vm("db"))[1]
        counted = re.findall(
            r'requests_total{dry_run="(\w+)"[^}]*kind="VirtualMachine"', asker.webhook.ops("/metrics")[1]
        )
        assert "true" in counted

    @never_break("vm", 24)
    def test_certificates(self, asker: Reach) -> None:
        ends = re.findall(
            r"^virt_admit_certificate_expiry_timestamp_seconds{.*} (\S+)$",
            asker.webhook.ops("/metrics")[1],
            re.MULTILINE,
        )
        assert len(ends) >= 2  # ours and the CA's
        assert all(float(end) > time.time() + 3600 for end in ends)
        assert "[+] certificate ok" in asker.webhook.ops("/readyz?verbose")[1]


class TestHealth:
    """A webhook for health checks, nodes and machines."""

    @never_break("health", 1)
    def test_no_failure_policy_is_fail(self, asker: Reach) -> None:
        must_pass_while_we_are_down(asker, [*FAULTY_HEALTH, *FAULTY_CONFIGURATION])

    @never_break("health", 2)
    def test_heartbeats_and_remediation_requests(self, asker: Reach) -> None:
        asker.kubectl("create", node("n1"))
        asker.kubectl("create", FAULTY_HEALTH, user=BEFORE)
        before = everything(asker)
        beat = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}
        assert quiet(asker.kubectl("patch --subresource=status", node("n1"), f"-p={json.dumps(beat)}", **KUBELET))
        lease = obj(kinds.LEASE, "n1", spec={"holderIdentity": "n1"})
        for verb in ("create", "replace"):
            assert quiet(asker.kubectl(verb, lease, **KUBELET))
        status = [each | {"status": {"conditions": []}} for each in FAULTY_HEALTH]
        assert asker.kubectl("replace --subresource=status", status, "--validate=ignore")[0] == 0
        install_crds(asker.plane, REMEDIATIONS)
        requests = [obj(kind, "n1", spec={"agent": "fence_ipmilan"}) for kind in REMEDIATIONS]
        assert asker.kubectl("create", requests, "--validate=ignore")[0] == 0
        assert quiet(asker.kubectl("delete", [*requests, lease]))
        assert everything(asker) == before

    @never_break("health", 3)
    def test_nodes_only_by_match_conditions(self, asker: Reach) -> None:
        """A cordon by hand is looked at and never refused; kubelets and all other writes do not come."""
        asker.world([node("n1", status=READY), node("n2", status=READY), BLOCKER])
        asker.kubectl("create", node("n1"))
        cordon, uncordon = ({"spec": {"unschedulable": value}} for value in (True, None))
        before = asker.requests("Node")
        for patch in ({"metadata": {"labels": {"feature": "x"}}}, cordon, uncordon):
            assert quiet(asker.kubectl("patch", node("n1"), f"-p={json.dumps(patch)}", **KUBELET))
        assert quiet(asker.kubectl("label", node("n1"), "feature=y", "--overwrite"))
        assert asker.requests("Node") == before
        by_hand = asker.kubectl("patch", node("n1"), f"-p={json.dumps(cordon)}")
        assert by_hand[0] == 0
        assert "[virt-admit/node-cordon-blocked-by-vms]" in by_hand[1]
        assert quiet(asker.kubectl("patch", node("n1"), f"-p={json.dumps(uncordon)}"))
        assert asker.requests("Node") == before + 1

    @never_break("health", 4)
    def test_deletes_and_finalizers(self, asker: Reach) -> None:
        must_be_deletable(asker, [*FAULTY_HEALTH, *FAULTY_CONFIGURATION])

    @never_break("health", 5)
    def test_stored_violations_can_still_be_edited(self, asker: Reach) -> None:
        must_be_editable(asker, [*FAULTY_HEALTH, *FAULTY_CONFIGURATION])

    @never_break("health", 5)
    def test_a_faulty_health_check_can_be_paused(self, asker: Reach) -> None:
        """The emergency brakes."""
        checks = FAULTY_HEALTH[:3]
        asker.kubectl("create", checks, user=BEFORE)
        paused = asker.kubectl("annotate", checks[:2], "cluster.x-k8s.io/paused=")
        stopped = asker.kubectl("patch", checks[2], "--type=merge", '-p={"spec":{"pauseRequests":["storm"]}}')
        repaired = asker.kubectl(
            "patch", checks[0], "--type=merge", '-p={"spec":{"selector":{"matchLabels":{"a":"b"}}}}'
        )
        assert (paused[0], stopped[0], repaired[0]) == (0, 0, 0), paused[1] + stopped[1] + repaired[1]

    @never_break("health", 6)
    def test_what_the_cluster_ships(self, asker: Reach) -> None:
        handler = health_check(
            "machine-api-termination-handler",
            selector={"matchLabels": {"machine.openshift.io/interruptible-instance": ""}},
            maxUnhealthy="100%",
            nodeStartupTimeout="0",
            unhealthyConditions=[{"type": "Terminating", "status": "True", "timeout": "0s"}],
        )
        inert = health_check(
            "inert",
            selector={"matchLabels": {"machine.openshift.io/cluster-api-machine-role": "infra"}},
            unhealthyConditions=[{"type": "NonexistentCondition", "status": "NonexistentStatus", "timeout": "0s"}],
        )
        try:
            assert quiet(asker.kubectl("create", [handler, inert]))
            assert quiet(asker.kubectl("patch", [handler, inert], "--type=merge", HELD))
        finally:
            asker.kubectl("patch", [handler, inert], "--type=merge", FREED)
            asker.kubectl("delete", [handler, inert])

    @never_break("health", 7)
    @pytest.mark.parametrize(("ready", "code"), [("True", 1), ("Unknown", 0)])
    def test_a_broken_node_can_be_maintained(self, asker: Reach, ready: str, code: int) -> None:
        broken = {"conditions": [{"type": "Ready", "status": ready}]}
        asker.world([node("n1", status=broken), node("n2", status=READY), BLOCKER])
        answer = asker.kubectl("create", obj(kinds.NM, "m", spec={"nodeName": "n1"}), "--dry-run=server")
        assert answer[0] == code
        assert "[virt-admit/nm-vm-blocks-drain]" in answer[1]

    @never_break("health", 12)
    @pytest.mark.parametrize("user", ROLL_OUTS)
    def test_upgrade_storms(self, asker: Reach, user: str) -> None:
        asker.world([node("n1", status=READY), node("n2", status=READY), BLOCKER])
        asker.kubectl("create", node("n1"))
        before = everything(asker)
        assert quiet(asker.kubectl("patch", node("n1"), '-p={"spec":{"unschedulable":true}}', user=user))
        assert everything(asker) == before


READY = {"conditions": [{"type": "Ready", "status": "True"}]}
BLOCKER = instance("db", evictionStrategy="LiveMigrate") | {
    "status": {
        "phase": "Running",
        "nodeName": "n1",
        "conditions": [{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}],
    }
}


class TestRegistration:
    """What the configurations that we print do on a server."""

    def test_no_match_condition_fails(self, asker: Reach) -> None:
        """Under ``Fail`` an error in one would refuse the request: every kind, from next to nothing to nothing."""
        registered = [kind for entry in manifests.ENTRIES for kind in entry.kinds]
        barest = [
            obj(kind, ONLY_NAME.get(kind, "bare"), **copy.deepcopy(REQUIRED.get(kind, BARE.get(kind, {}))))
            for kind in registered
        ]
        with failing(asker):
            asker.policy({"*": {"action": "audit"}})
            for verb, flags in (
                ("create", ("--validate=ignore",)),
                ("annotate", ("a=b",)),
                ("label", ("a=b",)),
                ("annotate", ("a-",)),
                ("label", ("a-",)),
                ("patch", ("--type=merge", HELD)),  # nothing that a condition compares: no part of it is true
                ("patch", ("--type=merge", FREED)),
                ("delete", ("--wait=false",)),
            ):
                answer = asker.kubectl(verb, barest, *flags)
                assert answer[0] == 0, answer[1]

    def test_scaling_a_machine_set_is_looked_at(self, asker: Reach) -> None:
        marked = {"machine.openshift.io/delete-machine": "true"}
        green = obj(
            kinds.MACHINE_SET, "green", MACHINES, spec={"replicas": 3, "selector": {"matchLabels": {"set": "green"}}}
        )
        machines = [
            obj(kinds.MACHINE, f"green-{number}", MACHINES, metadata={"labels": {"set": "green"}}) for number in "abc"
        ]
        asker.world([green, *machines])
        with asker.stored(green):
            before = asker.requests("MachineSet")
            chance = asker.kubectl("scale", green, "--replicas=2")
            assert chance[0] == 0
            assert "[virt-admit/machineset-scale-down-unmarked]" in chance[1]
            assert asker.requests("MachineSet") == before + 1
            machines[0]["metadata"]["annotations"] = marked
            asker.world([{**green, "spec": {**green["spec"], "replicas": 2}}, *machines])
            assert quiet(asker.kubectl("scale", green, "--replicas=1"))
            assert quiet(asker.kubectl("scale", green, "--replicas=5"))


ONLY_NAME = {kinds.HCO: "kubevirt-hyperconverged"}
BARE: dict[Kind, dict[str, Any]] = {
    kinds.MIGRATION_POLICY: {"spec": {"selectors": {}}},
    kinds.STORAGE_PROFILE: {"spec": {}},
    kinds.VMIM: {"spec": {}},
    kinds.NM: {"spec": {"nodeName": "n"}},
    kinds.NM_KUBEVIRT: {"spec": {"nodeName": "n"}},
}


def leaf(machine: dict[str, Any]) -> Any:
    """The eviction strategy of a VM; None without one."""
    return machine["spec"]["template"]["spec"].get("evictionStrategy")


def must_be_refused_today(asker: Reach, faulty: list[dict[str, Any]]) -> None:
    """Each of them, by one of our rules."""
    refused = asker.kubectl("create", faulty, "--dry-run=server")
    assert refused[0] == 1
    assert "created" not in refused[1]
    assert "[virt-admit/" in refused[1]


def must_be_deletable(asker: Reach, faulty: list[dict[str, Any]]) -> None:
    """Objects that would be refused today can be deleted, and their finalizers can be removed meanwhile."""
    must_be_refused_today(asker, faulty)
    asker.kubectl("create", faulty, user=BEFORE)
    for verb, flags in (
        ("patch", ("--type=merge", HELD)),
        ("delete", ("--wait=false",)),
        ("patch", ("--type=merge", FREED)),
    ):
        answer = asker.kubectl(verb, faulty, *flags)
        assert quiet(answer), answer[1]
    assert asker.kubectl("get", faulty, "--ignore-not-found") == (0, "")


def must_be_editable(asker: Reach, faulty: list[dict[str, Any]]) -> None:
    """Objects that would be refused today can be annotated and labelled, if with a warning, and written as they are."""
    must_be_refused_today(asker, faulty)
    asker.kubectl("create", faulty, user=BEFORE)
    for verb in ("annotate", "label"):
        answer = asker.kubectl(verb, faulty, "owner=finance")
        assert answer[0] == 0, answer[1]
    before = everything(asker)
    there = objects(asker.kubectl("get", faulty, "-o=json"))
    assert quiet(asker.kubectl("replace", there, user=MIGRATOR))  # as a migration of storage versions does
    assert everything(asker) == before


def must_pass_while_we_are_down(asker: Reach, faulty: list[dict[str, Any]]) -> None:
    """Objects that would be refused today are created while nobody answers the API server."""
    must_be_refused_today(asker, faulty)
    asker.webhook.stop()
    try:
        answer = asker.kubectl("create", faulty)
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
    """Register with that failure policy, and see it work: an API server learns of it by its own watch."""
    asker.policy()
    register(asker.plane, asker.webhook, policy)
    asker.webhook.stop()
    try:
        probes = vm("probe"), obj(kinds.KUBEVIRT, "probe", spec={})  # one is mutated first, one is not
        wanted = {1 if policy == "Fail" else 0}
        eventually(lambda: {asker.kubectl("create", probe, "--dry-run=server")[0] for probe in probes} == wanted)
    finally:
        asker.webhook.start()
