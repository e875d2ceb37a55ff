"""Hazards of a webhook for VMs, against a real API server."""

from __future__ import annotations

import json
import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.crds import install_crds
from tests.apiserver.webhook import Webhook, register
from tests.e2e.never_break.world import (
    FAULTY_MACHINES,
    KUBEVIRT,
    SHOP,
    everything,
    failing,
    instance,
    must_be_deletable,
    must_be_editable,
    must_pass_while_we_are_down,
    namespace,
    obj,
    objects,
    pool,
    quiet,
    replica_set,
)
from tests.e2e.reach import BEFORE, Reach
from tests.https.reviews import vm
from tests.never_break import never_break
from tests.prefork import virt_admit
from tests.waiting import eventually
from virt_admit.install.manifests import IGNORE_LABEL, KUBEVIRT_NAMESPACES, SYSTEM_NAMESPACES
from virt_admit.model.kubernetes import kinds

CONTROLLER = f"system:serviceaccount:{KUBEVIRT}:kubevirt-controller"


def stored(asker: Reach, what: dict[str, Any]) -> dict[str, Any]:
    found = asker.there(what)
    assert found is not None
    return found


class TestVirtualMachines:
    """A webhook for virtual machines."""

    @never_break("vm", 1)
    def test_updates_of_vmis_pass(self, asker: Reach) -> None:
        """virt-handler and virt-controller write the status with the object."""
        faulty = instance("db", evictionStrategy="livemigrate")
        made = asker.send("create", faulty)
        assert made[0] == 0
        assert "[virt-admit/vm-eviction-strategy-unknown]" in made[1]
        before = asker.requests("VirtualMachineInstance")
        for phase in ("Scheduling", "Scheduled", "Running"):
            assert quiet(asker.send("replace", faulty | {"status": {"phase": phase}}))
        assert quiet(asker.kubectl("label", faulty, "kubevirt.io/nodeName=n1"))
        assert stored(asker, faulty)["status"] == {"phase": "Running"}
        assert asker.requests("VirtualMachineInstance") == before

    @never_break("vm", 1)
    def test_an_instance_is_never_mutated(self, asker: Reach) -> None:
        assert quiet(asker.send("create", instance("db")))
        assert "evictionStrategy" not in stored(asker, instance("db"))["spec"]

    @never_break("vm", 2)
    def test_status_and_subresources(self, asker: Reach) -> None:
        asker.send("create", FAULTY_MACHINES, user=BEFORE)
        before = everything(asker)
        written = [
            each | {"status": {"ready": True, "readyReplicas": 1}} for each in FAULTY_MACHINES
        ]
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
        """With the token of the service account: they may do anything,
        and we are not even asked.
        """
        role = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        }
        group = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Group",
            "name": f"system:serviceaccounts:{KUBEVIRT}",
        }
        binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
        asker.kubectl(
            "apply",
            binding | {"metadata": {"name": "kubevirt"}, "roleRef": role, "subjects": [group]},
        )
        token = asker.plane.service_account_token(KUBEVIRT, f"kubevirt-{account}")
        before = everything(asker)
        theirs = [*FAULTY_MACHINES, vm("plain"), instance("db", evictionStrategy="livemigrate")]
        create = partial(asker.kubectl, "create", theirs, f"--token={token}", "--dry-run=server")
        eventually(lambda: quiet(create()))  # the API server learns of the binding by a watch
        assert everything(asker) == before

    @never_break("vm", 4)
    def test_the_name_of_an_account_is_not_enough(self, asker: Reach) -> None:
        """Every namespace can have a service account kubevirt-controller:
        it is judged like any user.
        """
        kubevirt = obj(kinds.KUBEVIRT, "kubevirt", KUBEVIRT)
        stranger = f"system:serviceaccount:{SHOP}:kubevirt-controller"
        create = partial(asker.kubectl, "create", FAULTY_MACHINES[0], "--dry-run=server")
        asker.world([kubevirt])
        code, text = create(user=stranger)
        assert (code, "is invalid" in text, "[virt-admit/" in text) == (1, True, True)
        assert quiet(create(user=CONTROLLER))
        asker.world(complete=())  # KubeVirt is unseen
        code, text = create(user=stranger)
        assert (code, "Warning: " in text, "[virt-admit/" in text) == (0, True, True)
        assert create()[0] == 1

    @never_break("vm", 5)
    def test_stored_violations_can_still_be_edited(self, asker: Reach) -> None:
        must_be_editable(asker, FAULTY_MACHINES)

    @never_break("vm", 6)
    def test_updates_are_not_mutated(self, asker: Reach) -> None:
        assert (
            "spec.template.spec.evictionStrategy was set to LiveMigrate"
            in asker.send("create", vm("db"))[1]
        )
        assert quiet(asker.send("replace", vm("db")))
        assert leaf(stored(asker, vm("db"))) is None

    @never_break("vm", 7)
    def test_a_patch_changes_one_field(self, asker: Reach) -> None:
        """What is stored is what was sent, and one leaf."""
        plain = [vm("db"), pool("workers"), replica_set("web")]
        ours, theirs = (
            objects(asker.kubectl("create", plain, "--dry-run=server", "-o=json", user=user))
            for user in ("", BEFORE)
        )
        for with_leaf, without in zip(ours, theirs, strict=True):
            machine = with_leaf["spec"].get("virtualMachineTemplate", with_leaf)
            assert (
                machine["spec"]["template"]["spec"]
                .pop("evictionStrategy")
                .startswith("LiveMigrate")
            )
            assert with_leaf["spec"] == without["spec"]

    @never_break("vm", 8)
    def test_pools(self, asker: Reach) -> None:
        """The template is mutated when a user makes the pool, its members never."""
        owner = {
            "apiVersion": "pool.kubevirt.io/v1beta1",
            "kind": "VirtualMachinePool",
            "name": "workers",
            "uid": "1",
        }
        member = vm("db")
        member["metadata"]["ownerReferences"] = [owner | {"controller": True}]
        assert "evictionStrategy was set to LiveMigrate" in asker.send("create", pool("workers"))[1]
        assert quiet(asker.send("create", member, user=CONTROLLER))
        assert leaf(stored(asker, member)) is None

    @never_break("vm", 9)
    def test_server_side_apply(self, asker: Reach) -> None:
        """Our field has no field manager: it stays when a manager applies again,
        and any manager may take it.
        """
        ours, theirs = "--field-manager=gitops", "--field-manager=console"
        plain = vm("db")
        assert (
            "evictionStrategy was set to LiveMigrate"
            in asker.kubectl("apply --server-side", plain, ours)[1]
        )
        managed = stored(asker, plain)["metadata"]["managedFields"]
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
        assert "evictionStrategy was set to LiveMigrate" in asker.kubectl("apply", vm("db"))[1]
        assert quiet(asker.kubectl("apply", vm("db", runStrategy="Halted")))
        assert leaf(stored(asker, vm("db"))) == "LiveMigrate"

    @never_break("vm", 10)
    def test_failure_policy(self, asker: Reach) -> None:
        must_pass_while_we_are_down(asker, FAULTY_MACHINES)

    @never_break("vm", 11)
    def test_pods_and_evictions_are_not_registered(self, asker: Reach) -> None:
        pod = obj(
            kinds.POD,
            "virt-launcher",
            spec={"containers": [{"name": "compute", "image": "compute"}]},
        )
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": pod["metadata"]}
        before = everything(asker)
        assert quiet(asker.send("create", pod))
        path = f"/api/v1/namespaces/{SHOP}/pods/virt-launcher/eviction"
        assert quiet(asker.kubectl(f"create --raw={path}", eviction))
        assert everything(asker) == before

    @never_break("vm", 14)
    def test_own_namespace_and_system_namespaces(self, asker: Reach) -> None:
        asker.kubectl("apply", namespace("opted-out", **{IGNORE_LABEL: "true"}))
        before = everything(asker)
        homes = (*SYSTEM_NAMESPACES, *KUBEVIRT_NAMESPACES, "opted-out")
        assert quiet(
            asker.send("create", [vm("db", home, running=True) for home in homes], dryRun="All")
        )
        assert everything(asker) == before

    @never_break("vm", 18)
    def test_versions(self, asker: Reach) -> None:
        """The deprecated versions arrive converted, are judged, and get the default."""
        old = [
            each | {"apiVersion": f"{each['apiVersion'].split('/')[0]}/{version}"}
            for each, version in zip(
                [vm("db"), pool("workers"), replica_set("web")],
                ("v1alpha3", "v1alpha1", "v1alpha3"),
                strict=True,
            )
        ]
        made = asker.send("create", old, dryRun="All")
        assert made[0] == 0
        assert made[1].count("evictionStrategy was set to LiveMigrate") == len(old)
        faulty = [
            each | {"apiVersion": made["apiVersion"]}
            for each, made in zip(FAULTY_MACHINES, old, strict=True)
        ]
        refused = asker.send("create", faulty, dryRun="All")
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
        """We are asked before the schema is: it refuses them,
        and we are in no other client's way.
        """
        odds: list[Any] = [None, "text", 7, [None], {}]
        spec = vm("db")["spec"]
        with failing(asker):
            for odd in odds:
                for broken in (odd, {**spec, "template": odd}, {**spec, "template": {"spec": odd}}):
                    odd_vm = vm("db") | {"spec": broken}
                    answer = asker.send("create", odd_vm, fieldValidation="Ignore", dryRun="All")
                    assert "webhook" not in answer[1]
                    assert answer[0] == 0 or "is invalid" in answer[1]

    @never_break("vm", 20)
    def test_warnings_as_noise(self, asker: Reach) -> None:
        noisy = vm("db", runStrategy=None, running=True, template={"evictionStrategy": "External"})
        made = asker.send("create", noisy)
        assert made[0] == 0
        assert (
            made[1].count("Warning: ") == len(set(re.findall(r"\[virt-admit/\S+\]", made[1]))) >= 2
        )
        assert quiet(asker.kubectl("label", noisy, "tier=1"))
        assert quiet(asker.kubectl("annotate", noisy, "note=1"))

    @never_break("vm", 22)
    def test_kubevirt_not_installed(self, asker: Reach, tmp_path: Path) -> None:
        """No definition of the product's world is there: we are ready,
        and judge what comes later.
        """
        with (
            ControlPlane(asker.plane.binaries) as bare,
            Webhook(
                tmp_path, "--live", "--kubeconfig", bare.kubeconfig, program=virt_admit()
            ) as webhook,
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
        assert asker.there(vm("db")) is None
        counted = re.findall(
            r'requests_total{dry_run="(\w+)"[^}]*kind="VirtualMachine"',
            asker.webhook.ops("/metrics")[1],
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


def leaf(machine: dict[str, Any]) -> Any:
    """The eviction strategy of a VM; None without one."""
    return machine["spec"]["template"]["spec"].get("evictionStrategy")
