"""Never-break cases of health checks: shipped checks, updates, deletions and the ratchet."""

import pytest

from tests.for_each import for_each
from tests.model.remediation.health_check_reviews import (
    CAPI_V1BETA1,
    CAPI_V1BETA2,
    HANDLER,
    HOSTED,
    INERT,
    MHC,
    NHC,
    changed,
    review,
    verdicts,
)
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Operation

STARTUP, LIMIT = "mhc-node-startup-timeout-invalid", "mhc-max-unhealthy-invalid"
SHIPPED = {"termination handler": HANDLER, "inert check": INERT, "hosted control plane": HOSTED}


def busy_cluster(check):
    """Return a cluster in which an ordinary check has findings: machines, an update,
    NodeHealthChecks.
    """
    group = check["apiVersion"].partition("/")[0]
    labels = {
        "machine.openshift.io/interruptible-instance": "",
        "machine.openshift.io/cluster-api-machine-role": "serving-1",
        "guest-7xk2p-guest": "guest-7xk2p-guest",
        "cluster.x-k8s.io/cluster-name": "guest-7xk2p",
    }
    owner = {"kind": "MachineSet", "name": "set", "controller": True}
    machines = [
        {
            "apiVersion": f"{group}/v1beta1",
            "kind": "Machine",
            "metadata": {
                "name": f"m-{number}",
                "namespace": check["metadata"]["namespace"],
                "labels": labels,
                "ownerReferences": [owner],
            },
        }
        for number in range(2)
    ]
    return Snapshot(map(Object, machines), complete=["*"])


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_checks_have_no_findings(name):
    check = SHIPPED[name]
    assert verdicts(check) == set()
    assert verdicts(check, cluster=Snapshot(complete=["*"])) == set()
    assert verdicts(check, cluster=busy_cluster(check)) == set()
    assert (
        verdicts(changed(check, "metadata.annotations", {"cluster.x-k8s.io/paused": ""}), check)
        == set()
    )


def test_a_termination_handler_only_has_findings_for_invalid_values():
    handler = changed(HANDLER, "spec.unhealthyConditions.0.timeout", ...)
    for path, value in (
        ("spec.selector", {}),
        ("spec.nodeStartupTimeout", "1s"),
        ("spec.maxUnhealthy", 0),
    ):
        handler = changed(handler, path, value)
    handler["metadata"] |= {
        "namespace": "elsewhere",
        "annotations": {"cluster.x-k8s.io/paused": "false"},
    }
    assert verdicts(handler, cluster=Snapshot(complete=["*"])) == set()

    broken = changed(
        changed(handler, "spec.nodeStartupTimeout", "soon"), "spec.maxUnhealthy", "all"
    )
    assert verdicts(broken) == {("deny", STARTUP), ("deny", LIMIT)}


BROKEN = {
    **MHC,
    "spec": {
        "selector": {},
        "unhealthyConditions": [
            {"type": "Ready", "status": "True"},
            {"type": "ready", "status": "no", "timeout": "x"},
        ],
        "maxUnhealthy": -1,
        "nodeStartupTimeout": "-5m",
    },
}


@for_each(
    "path, value",
    [
        ("metadata.annotations", {"cluster.x-k8s.io/paused": ""}),
        ("metadata.annotations", {"cluster.x-k8s.io/paused": "false"}),
        ("metadata.annotations", {"example.com/owner": "us"}),
        ("metadata.labels", {"a": "b"}),
        ("metadata.finalizers", ["example.com/f"]),
        ("metadata.ownerReferences", [{"kind": "X", "name": "y"}]),
        ("status", {"currentHealthy": 1}),
        ("spec.maxUnhealthy", 1),
        ("spec.nodeStartupTimeout", "10m"),
        ("spec.selector", {"matchLabels": {"pool": "blue"}}),
        ("spec.unhealthyConditions.0.timeout", "5m"),
    ],
)
def test_a_broken_check_can_be_paused_annotated_and_half_repaired(path, value):
    assert not review(BROKEN).allowed
    assert review(changed(BROKEN, path, value), BROKEN).allowed


def test_a_new_problem_in_a_broken_check_is_denied():
    worse = changed(BROKEN, "spec.maxUnhealthy", "150%")
    assert ("deny", LIMIT) in verdicts(worse, BROKEN)


@pytest.mark.parametrize("base", [MHC, CAPI_V1BETA1, NHC])
def test_deletion_is_never_denied(base):
    broken = changed(changed(base, "spec.selector", {}), "spec.unhealthyConditions", [])
    assert verdicts(broken, operation=Operation.DELETE) == set()
    going = changed(broken, "metadata.deletionTimestamp", "2026-11-01T00:00:00Z")
    assert verdicts(going, changed(going, "metadata.finalizers", ["example.com/f"])) == set()


def test_deleting_a_machine_warns_at_most():
    machine = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "Machine",
        "metadata": {"name": "m"},
    }
    assert review(machine, operation=Operation.DELETE).allowed
    assert ("warn", "machine-delete-not-replaced") in verdicts(machine, operation=Operation.DELETE)
    going = changed(machine, "metadata.deletionTimestamp", "2026-11-01T00:00:00Z")
    assert verdicts(going, operation=Operation.DELETE) == set()


@pytest.mark.parametrize("subresource", ["status", "finalizers"])
def test_sub_resources_are_not_judged(subresource):
    assert verdicts(BROKEN, MHC, subresource=subresource) == set()


@pytest.mark.parametrize(
    "api_version",
    ["machineremediation.kubevirt.io/v1alpha1", "healthchecking.openshift.io/v1alpha1"],
)
def test_other_groups_with_the_same_kind_are_not_judged(api_version):
    assert verdicts({**BROKEN, "apiVersion": api_version}) == set()


def test_rules_that_need_a_cluster_do_not_deny_without_one():
    assert (
        verdicts(MHC) == verdicts(CAPI_V1BETA1) == verdicts(CAPI_V1BETA2) == verdicts(NHC) == set()
    )


def test_a_dry_run_has_the_same_result():
    assert verdicts(BROKEN, dry_run=True) == verdicts(BROKEN)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec.unhealthyConditions.0.timeout", "6m", {("warn", "mhc-nhc-conflict")}),
        ("spec.maxUnhealthy", 2, set()),
    ],
)
def test_only_a_change_of_the_conditions_repeats_the_conflict(path, value, expected):
    cluster = Snapshot([Object(NHC)], complete=["nodehealthchecks.remediation.medik8s.io"])
    assert verdicts(changed(MHC, path, value), MHC, cluster=cluster) == expected
    assert verdicts(MHC, cluster=cluster) == {("warn", "mhc-nhc-conflict")}


def test_changes_during_a_cluster_update_warn_unless_paused():
    status = {"conditions": [{"type": "Progressing", "status": "True"}]}
    version = {
        "apiVersion": "config.openshift.io/v1",
        "kind": "ClusterVersion",
        "metadata": {"name": "version"},
        "status": status,
    }
    cluster = Snapshot([Object(version)])
    paused = changed(MHC, "metadata.annotations", {health_checks.PAUSED: ""})
    warned = {("warn", "mhc-active-during-upgrade")}
    assert verdicts(MHC, cluster=cluster) == warned
    assert verdicts(changed(MHC, "spec.maxUnhealthy", 2), MHC, cluster=cluster) == warned
    assert verdicts(MHC, paused, cluster=cluster) == warned
    assert verdicts(paused, MHC, cluster=cluster) == set()
    assert verdicts(changed(MHC, "metadata.labels", {"a": "b"}), MHC, cluster=cluster) == set()


@pytest.mark.parametrize(
    "key", ["machine.openshift.io/delete-machine", "machine.openshift.io/exclude-node-draining"]
)
def test_a_machine_annotation_warns_only_when_added(key):
    plain = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "Machine",
        "metadata": {"name": "m"},
        "spec": {},
    }
    marked = changed(plain, "metadata.annotations", {key: "false"})
    assert len(verdicts(marked, plain)) == 1
    assert verdicts(changed(marked, "spec.providerID", "x"), marked) == set()
    assert verdicts(plain, marked) == set()


def test_a_machine_hook_warns_only_when_added():
    hook, etcd = {"name": "A", "owner": "a-team"}, {"name": "Etcd", "owner": "clusteroperator/etcd"}
    metadata = {"name": "m", "namespace": "openshift-machine-api", "labels": {"pool": "blue"}}
    plain = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "Machine",
        "metadata": metadata,
        "spec": {},
    }
    hooked = changed(plain, "spec.lifecycleHooks", {"preDrain": [hook]})
    more = changed(plain, "spec.lifecycleHooks", {"preDrain": [etcd, hook]})
    cluster = Snapshot([Object(MHC)])
    assert verdicts(hooked, plain, cluster=cluster) == {
        ("warn", "machine-pre-drain-hook-blocks-remediation")
    }
    assert verdicts(more, hooked, cluster=cluster) == set()
