"""Cluster configuration as administrators and operators write it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests import definitions
from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.crds import install_crds, wait_until_discovered
from tests.e2e.reach import (
    OLD_HYPERCONVERGED,
    Reach,
    Target,
    must_be_met,
    must_be_refused,
    namespaces,
    reach,
    targets,
)
from tests.https.reviews import vm
from tests.never_break import never_break
from tests.waiting import eventually
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object

HOME = "kubevirt-hyperconverged"
OPERATOR = f"system:serviceaccount:{HOME}:hyperconverged-cluster-operator"
SKIP = "node-labeller.kubevirt.io/skip-node"

OLD = {target: cases for target, cases in targets().items() if target.kind == OLD_HYPERCONVERGED}
OLD_UNREACHABLE = {
    "node-drain-taint-key": "unknown field",
    "cluster-eviction-strategy-invalid": "Unsupported value",
    # since 1.19
    "migration-post-copy-inert": 'unknown field "spec.liveMigrationConfig.allowWorkloadDisruption"',
}
"""What never comes so far, and the words with which the API server refuses or prunes each of its
cases.
"""


@pytest.fixture(scope="module")
def asker(crds: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reach]:
    with reach(crds, tmp_path_factory.mktemp("configuration")) as asker:
        asker.kubectl("apply", namespaces([{"object": kubevirt()}]))
        yield asker


@pytest.fixture(autouse=True)
def nothing_there(asker: Reach) -> None:
    asker.world()
    asker.policy()


def kubevirt(**spec: Any) -> dict[str, Any]:
    names = {"name": "kubevirt", "namespace": HOME}
    return {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": names, "spec": spec}


def migrations(**limits: Any) -> dict[str, Any]:
    return kubevirt(configuration={"migrations": limits})


def hco(version: str = "v1", **spec: Any) -> dict[str, Any]:
    names = {"name": "kubevirt-hyperconverged", "namespace": HOME}
    return {
        "apiVersion": f"hco.kubevirt.io/{version}",
        "kind": "HyperConverged",
        "metadata": names,
        "spec": spec,
    }


def virtualization(**spec: Any) -> dict[str, Any]:
    return hco(virtualization=spec)


def cdi(**server: str) -> dict[str, Any]:
    spec = {"certConfig": {"server": server}}
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "CDI",
        "metadata": {"name": "cdi"},
        "spec": spec,
    }


def policy(**spec: Any) -> dict[str, Any]:
    spec["selectors"] = {"namespaceSelector": {"tier": "slow"}}
    names = {"name": "slow"}
    return {
        "apiVersion": "migrations.kubevirt.io/v1alpha1",
        "kind": "MigrationPolicy",
        "metadata": names,
        "spec": spec,
    }


FROZEN = migrations(parallelMigrationsPerCluster=0)
FAULT = "[virt-admit/migration-parallel-limit-invalid]"


class TestOrder:
    """Whether a rule runs at all."""

    @never_break("order", 1)
    def test_deletes_and_status_are_silent(self, asker: Reach) -> None:
        with asker.stored(FROZEN):
            before = asker.requests("KubeVirt")
            written = asker.kubectl(
                "replace --subresource=status", {**FROZEN, "status": {"phase": "Deployed"}}
            )
            deleted = asker.kubectl("delete", FROZEN)
            assert (written[0], deleted[0]) == (0, 0)
            assert "virt-admit" not in written[1] + deleted[1]
            assert asker.requests("KubeVirt") == before

    @never_break("order", 1)
    def test_the_status_of_a_kind_without_sub_resource_is_silent(self, asker: Reach) -> None:
        faulty = cdi(duration="1s")
        with asker.stored(faulty):
            before = asker.requests("CDI")
            written = asker.kubectl("replace", {**faulty, "status": {"phase": "Deployed"}})
            assert written == (0, "cdi.cdi.kubevirt.io/cdi replaced\n")
            assert asker.requests("CDI") == before

    @never_break("order", 2)
    def test_finalizers_are_removable(self, asker: Reach) -> None:
        held = {**FROZEN, "metadata": {**FROZEN["metadata"], "finalizers": ["example.com/held"]}}
        with asker.stored(held):
            assert asker.kubectl("delete", held, "--wait=false")[0] == 0
            worse = asker.kubectl(
                "patch",
                held,
                "--type=merge",
                '-p={"spec":{"workloadUpdateStrategy":{"batchEvictionSize":0}}}',
            )
            assert (worse[0], "virt-admit" in worse[1]) == (0, False)
            freed = asker.kubectl(
                "patch", held, "--type=merge", '-p={"metadata":{"finalizers":null}}'
            )
            assert (freed[0], "virt-admit" in freed[1]) == (0, False)
        assert "not found" in asker.kubectl("get", held)[1]

    @never_break("order", 3)
    def test_what_leaves_spec_and_annotations_alone_is_silent(self, asker: Reach) -> None:
        with asker.stored(FROZEN):
            labelled = asker.kubectl("label", FROZEN, "owner=finance")
            assert (labelled[0], "virt-admit" in labelled[1]) == (0, False)
            annotated = asker.kubectl("annotate", FROZEN, "owner=finance")
            assert (annotated[0], FAULT in annotated[1]) == (0, True)
            assert asker.kubectl("replace", FROZEN)[0] == 0  # what a storage migration does

    @never_break("order", 4)
    def test_an_old_fault_is_a_warning_a_changed_one_is_refused(self, asker: Reach) -> None:
        with asker.stored(FROZEN):
            edited = asker.kubectl(
                "replace", migrations(parallelMigrationsPerCluster=0, progressTimeout=100)
            )
            assert edited[0] == 0, edited[1]
            assert (
                "Warning: spec.configuration.migrations.parallelMigrationsPerCluster" in edited[1]
            )
            assert FAULT in edited[1]
            changed = asker.kubectl("replace", migrations(parallelMigrationsPerCluster=-1))
            assert (changed[0], FAULT in changed[1]) == (1, True)
            repaired = asker.kubectl("replace", migrations(parallelMigrationsPerCluster=5))
            assert (repaired[0], "virt-admit" in repaired[1]) == (0, False)

    @never_break("order", 4)
    def test_the_value_of_a_relation_is_the_pair(self, asker: Reach) -> None:
        late = cdi(duration="24h", renewBefore="48h")
        rule = "[virt-admit/cert-renew-before-too-long]"
        with asker.stored(late):
            other = asker.kubectl(
                "replace",
                {**late, "spec": {**late["spec"], "priorityClass": "high"}},
                "--dry-run=server",
            )
            assert (other[0], rule in other[1]) == (0, True)
            half = asker.kubectl(
                "replace", cdi(duration="25h", renewBefore="48h"), "--dry-run=server"
            )
            assert (half[0], rule in half[1]) == (1, True)

    @never_break("order", 5)
    @pytest.mark.parametrize(
        ("obj", "rule"),
        [(FROZEN, FAULT), (cdi(duration="soon"), "[virt-admit/cert-duration-invalid]")],
    )
    def test_the_operators_copy_is_warned_of_only(
        self, asker: Reach, obj: dict[str, Any], rule: str
    ) -> None:
        refused = asker.kubectl("create", obj, "--dry-run=server")
        copied = asker.kubectl("create", obj, "--dry-run=server", user=OPERATOR)
        assert (refused[0], rule in refused[1]) == (1, True)
        assert (copied[0], "Warning: " in copied[1], rule in copied[1]) == (0, True, True)

    @never_break("order", 6)
    def test_all_at_once_and_the_warnings_too(self, asker: Reach) -> None:
        refused = asker.kubectl(
            "create",
            kubevirt(
                workloadUpdateStrategy={"workloadUpdateMethods": ["Evict"], "batchEvictionSize": 0},
                configuration={"migrations": {"parallelMigrationsPerCluster": 0}},
            ),
        )
        assert refused[0] == 1
        assert 'The KubeVirt "kubevirt" is invalid' in refused[1]
        assert "* spec.workloadUpdateStrategy.batchEvictionSize: " in refused[1]
        assert "* spec.configuration.migrations.parallelMigrationsPerCluster: " in refused[1]
        assert "Warning: " in refused[1]
        assert "[virt-admit/workload-update-evict-only]" in refused[1]


class TestRegistration:
    """What comes to us."""

    def test_hyperconverged_is_judged_by_the_version_that_was_sent(self, asker: Reach) -> None:
        old = asker.kubectl(
            "create", hco("v1beta1", liveMigrationConfig={"parallelMigrationsPerCluster": 0})
        )
        new = asker.kubectl(
            "create", virtualization(liveMigrationConfig={"parallelMigrationsPerCluster": 0})
        )
        assert "spec.liveMigrationConfig.parallelMigrationsPerCluster" in old[1]
        assert "spec.virtualization.liveMigrationConfig.parallelMigrationsPerCluster" in new[1]
        assert (old[0], FAULT in old[1], new[0], FAULT in new[1]) == (1, True, 1, True)

    def test_a_fresh_hyperconverged_needs_no_eviction_strategy(self, asker: Reach) -> None:
        assert asker.kubectl("create", hco(), "--dry-run=server") == (
            0,
            "hyperconverged.hco.kubevirt.io/kubevirt-hyperconverged created (server dry run)\n",
        )

    def test_the_namespace_of_the_operators_is_left_out_for_machines_alone(
        self, asker: Reach
    ) -> None:
        both = asker.kubectl("create", [vm("db", HOME, running=True), FROZEN], "--dry-run=server")
        assert both[0] == 1
        assert "virtualmachine.kubevirt.io/db created" in both[1]
        assert "[virt-admit/vm-" not in both[1]
        assert FAULT in both[1]

    def test_of_nodes_only_what_somebody_switches_comes(self, asker: Reach) -> None:
        def node(**annotations: str) -> dict[str, Any]:
            return {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "worker-7", "annotations": annotations},
            }

        def seen(verb: str, obj: dict[str, Any]) -> int:
            before = asker.requests("Node")
            code, text = asker.kubectl(verb, obj)
            assert code == 0, text
            return asker.requests("Node") - before

        on, off = {SKIP: "true"}, {SKIP: "false"}
        try:
            assert seen("create", node(**on)) == 1
            assert seen("replace", node(**on, other="1")) == 0
            assert seen("replace", node(**off)) == 1
            assert seen("replace", node(other="2")) == 0
            assert seen("replace", node(**on, other="2")) == 1
            assert (
                seen(
                    "replace --subresource=status", {**node(**off), "status": {"phase": "Running"}}
                )
                == 0
            )
            assert seen("delete", node()) == 0
            assert seen("create", node(other="3")) == 0
        finally:
            asker.kubectl("delete", node(), "--ignore-not-found")

    def test_a_dry_run_of_the_operator_is_answered_in_time_and_leaves_nothing(
        self, asker: Reach
    ) -> None:
        """HyperConverged's own webhook gives 3 s to the dry runs of all its operands."""
        with asker.stored(kubevirt()):
            answer = asker.kubectl(
                "replace", FROZEN, "--dry-run=server", "--request-timeout=3s", user=OPERATOR
            )
            assert (answer[0], FAULT in answer[1]) == (0, True)
            assert "parallelMigrationsPerCluster" not in asker.kubectl("get", FROZEN, "-o=json")[1]


NO_METHODS: dict[str, Any] = {"workloadUpdateMethods": []}
SCHEMA, OURS = "the schema", "virt-admit"
WHO_REFUSES = [
    (
        "a method of no name",
        virtualization(workloadUpdateStrategy={"workloadUpdateMethods": ["Evit"]}),
        OURS,
    ),
    (
        "a method of no name",
        kubevirt(workloadUpdateStrategy={"workloadUpdateMethods": ["Evit"]}),
        OURS,
    ),
    (
        "no eviction",
        virtualization(workloadUpdateStrategy=NO_METHODS | {"batchEvictionSize": 0}),
        OURS,
    ),
    ("no pause", kubevirt(workloadUpdateStrategy={"batchEvictionInterval": "0s"}), OURS),
    (
        "no duration",
        virtualization(workloadUpdateStrategy=NO_METHODS | {"batchEvictionInterval": "1d"}),
        OURS,
    ),
    ("no duration", kubevirt(workloadUpdateStrategy={"batchEvictionInterval": "1d"}), OURS),
    ("no duration", cdi(duration="1d"), OURS),
    (
        "a limit of 0",
        virtualization(liveMigrationConfig={"parallelOutboundMigrationsPerNode": 0}),
        OURS,
    ),
    ("a negative limit", migrations(parallelOutboundMigrationsPerNode=-1), OURS),
    (
        "no bandwidth",
        virtualization(liveMigrationConfig={"bandwidthPerMigration": "64 MiB"}),
        SCHEMA,
    ),
    ("no bandwidth", migrations(bandwidthPerMigration="64 MiB"), SCHEMA),
    ("no bandwidth", policy(bandwidthPerMigration="64 MiB"), SCHEMA),
    ("a negative bandwidth", migrations(bandwidthPerMigration="-64Mi"), OURS),
    ("a negative timeout", policy(completionTimeoutPerGiB=-1), OURS),
    ("a negative timeout", migrations(progressTimeout=-1), OURS),
    ("no eviction strategy", virtualization(evictionStrategy="LiveMigration"), SCHEMA),
    ("no eviction strategy", kubevirt(configuration={"evictionStrategy": "LiveMigration"}), OURS),
    ("an obsolete model twice", virtualization(obsoleteCPUModels=["Westmere", "Westmere"]), SCHEMA),
    ("an obsolete model with a blank", virtualization(obsoleteCPUModels=["Westmere "]), OURS),
]


@pytest.mark.parametrize(
    ("obj", "who"),
    [pytest.param(obj, who, id=f"{obj['kind']}: {what}") for what, obj, who in WHO_REFUSES],
)
def test_who_refuses_what(asker: Reach, obj: dict[str, Any], who: str) -> None:
    """What the schema of each kind lets through is ours to refuse."""
    if who == SCHEMA:
        definitions.needs_real(kinds.of(Object(obj)))
    code, text = asker.kubectl("create", obj, "--dry-run=server")
    assert (code, OURS if "[virt-admit/" in text else SCHEMA) == (1, who)


@pytest.fixture(scope="module")
def old_release(asker: Reach) -> Iterator[Reach]:
    """Release 1.17 of HyperConverged, the last one with v1beta1 alone."""
    name, plane = str(kinds.HCO), asker.plane
    plane.kubectl("delete", "customresourcedefinition", name, check=True)
    try:
        plane.kubectl(
            "create", "-f", "-", input=json.dumps(definitions.older_hyperconverged()), check=True
        )
        eventually(lambda: plane.serves(f"/apis/{kinds.HCO.group}/v1beta1/{kinds.HCO.plural}"))
        wait_until_discovered(plane, {name})
        asker.kubectl("apply", namespaces([case for cases in OLD.values() for case in cases]))
        yield asker
    finally:
        plane.kubectl("delete", "customresourcedefinition", name, check=True)
        install_crds(plane, (kinds.HCO,))


@pytest.mark.parametrize("target", OLD, ids=str)
def test_rules_are_met_in_an_old_release(old_release: Reach, target: Target) -> None:
    words = OLD_UNREACHABLE.get(target.rule.id)
    if words is None:
        must_be_met(old_release, target.rule, OLD[target])
    else:
        must_be_refused(old_release, target.rule, OLD[target], words)
