"""What refuses a migration besides the nodes: limits of KubeVirt, quotas, hotplugged volumes,
state, hostPath volumes.
"""

import pytest

from tests.builders import complete, kubevirt, manifest, node, vmi
from tests.forecasts.drain.test_capacity import (
    CLAIM,
    DISK,
    FULL,
    HOSTS,
    LAUNCHER,
    MIGRATABLE,
    NS,
    QUOTA,
    VOLUME,
)
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.placement import migration_demand, quotas
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import VMIM
from virt_admit.model.kubernetes.objects import Object

HOT = {"name": "data", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}
STATE = [
    {
        "name": "persistent-state-for-db",
        "persistentVolumeClaimInfo": {"accessModes": ["ReadWriteOnce"]},
    }
]
SHARED_STATE = [
    {
        "name": "persistent-state-for-db",
        "persistentVolumeClaimInfo": {"accessModes": ["ReadWriteMany"]},
    }
]
TPM = {"tpm": {"persistent": True}}


def running(*more, devices=None, status=None, **spec):
    return vmi(
        metadata={"uid": "u1"},
        status=MIGRATABLE | (status or {}),
        evictionStrategy=spec.pop("evictionStrategy", "LiveMigrate"),
        architecture="amd64",
        domain={"cpu": {"model": "host-passthrough"}, "devices": devices or {}},
        volumes=[CLAIM, *more],
        **spec,
    )


def row(subject, *objects, without=()):
    given = [LAUNCHER, DISK, VOLUME, NS, *objects]
    given += [] if any(obj.kind == "KubeVirt" for obj in given) else [kubevirt()]
    given += [] if any(obj.kind == "Node" for obj in given) else HOSTS
    plan = drain_plan.plan(Snapshot([subject, *given], complete=["*"], unreadable=without), "n2")
    (found,) = plan.nodes[0].forecasts
    return found, plan


def quota(hard, used=None, **spec):
    return manifest(
        "v1",
        "ResourceQuota",
        "team",
        "shop",
        spec={"hard": hard, **spec},
        status={"hard": hard, "used": used},
    )


def bound(name="data", **spec):
    claim = Object({**DISK.data, "metadata": {"name": name, "namespace": "shop"}})
    claim = Object({**claim.data, "spec": {**DISK.data["spec"], "volumeName": f"pv-{name}"}})
    return claim, manifest("v1", "PersistentVolume", f"pv-{name}", spec=spec)


def only_on(*nodes):
    terms = [
        {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
            ]
        }
    ]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


def named(name):
    return node(
        name, {"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name}, allocatable=ROOMY
    )


ROOMY = {"cpu": "64", "memory": "512Gi", "pods": "250"}
THREE = [named("n2"), named("n3"), named("n4")]


def test_nothing_refuses_it():
    assert row(running())[0].outcome is VmOutcome.MIGRATES
    assert (
        row(running(HOT, devices=TPM, status={"volumeStatus": STATE}), *bound())[0].outcome
        is VmOutcome.MIGRATES
    )


@pytest.mark.parametrize(
    "limit", ["parallelMigrationsPerCluster", "parallelOutboundMigrationsPerNode"]
)
def test_a_limit_of_0_starts_no_migration(limit):
    found, plan = row(running(), kubevirt(migrations={limit: 0}))

    assert (found.outcome, plan.drainable) == (VmOutcome.BLOCKS, False)
    assert f"{limit} is 0" in found.reason
    assert row(running(), kubevirt(migrations={limit: 1}))[0].outcome is VmOutcome.MIGRATES


@pytest.mark.parametrize(
    ("subject", "hard", "used", "lack"),
    [
        (running(), {"pods": "2"}, {"pods": "1"}, ""),
        (running(HOT), {"pods": "3"}, {"pods": "2"}, "pods: 1 missing"),
        (running(HOT), {"limits.memory": "80M"}, {}, "limits.memory"),
        (
            running(devices=TPM, status={"volumeStatus": STATE}),
            {"persistentvolumeclaims": "2"},
            {"persistentvolumeclaims": "1"},
            "",
        ),
        (
            running(devices=TPM, status={"volumeStatus": STATE}),
            {"persistentvolumeclaims": "2"},
            {"persistentvolumeclaims": "2"},
            "copy of its vTPM and EFI state: persistentvolumeclaims: 1 missing",
        ),
        (
            running(devices=TPM, status={"volumeStatus": STATE}),
            {"requests.storage": "40Gi"},
            {"requests.storage": "40Gi"},
            "requests.storage: 10Mi missing",
        ),
        (
            running(devices=TPM, status={"volumeStatus": SHARED_STATE}),
            {"persistentvolumeclaims": "2"},
            {"persistentvolumeclaims": "2"},
            "",
        ),
    ],
)
def test_a_quota_counts_all_that_a_migration_creates(subject, hard, used, lack):
    found, _ = row(subject, quota(hard, used), *bound())

    assert (found.outcome is VmOutcome.BLOCKS) == bool(lack)
    assert lack in found.reason


@pytest.mark.parametrize("used", [None, {}, {"pods": None}, {"pods": "some"}, {"cpu": "1"}])
def test_a_quota_that_does_not_say_what_it_counted_is_unread(used):
    found, whole = row(running(), quota({"pods": "9"}, used))

    assert found.outcome is VmOutcome.UNKNOWN
    assert "how much pods ResourceQuota shop/team has counted" in found.reason
    assert whole.nodes[0].drainable is None


def test_a_quota_that_refuses_counts_more_than_one_that_does_not_say_what_it_counted():
    uncounted = Object(
        {**quota({"pods": "9"}).data, "metadata": {"name": "a-new-one", "namespace": "shop"}}
    )
    found, _ = row(running(), uncounted, quota({"pods": "1"}, {"pods": "1"}))

    assert found.outcome is VmOutcome.BLOCKS
    assert "ResourceQuota team" in found.reason


def test_an_upgrade_with_a_quota_that_does_not_say_what_it_counted():
    given = [running(), *FULL, LAUNCHER, DISK, VOLUME, NS, kubevirt(), quota({"pods": "9"})]

    assert rehearse(Snapshot(given, ["*"]), Options(None)).possible is not True


@pytest.mark.parametrize(
    ("operator", "values", "priority", "counts"),
    [
        ("In", ["high"], "high", True),
        ("In", ["high"], None, False),
        ("NotIn", ["low"], None, True),
        ("NotIn", ["low"], "low", False),
        ("Exists", [], "high", True),
        ("Exists", [], None, False),
        ("DoesNotExist", [], None, True),
        ("DoesNotExist", [], "high", False),
    ],
)
def test_a_quota_for_priority_classes(operator, values, priority, counts):
    expression = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    full = quota({"pods": "1"}, {"pods": "1"}, scopeSelector={"matchExpressions": [expression]})

    found, _ = row(running(priorityClassName=priority), full)

    assert (found.outcome is VmOutcome.BLOCKS) == counts


def test_the_pod_that_attaches_volumes_has_no_priority_class():
    def outcome(operator, free):
        expression = {
            "scopeName": "PriorityClass",
            "operator": operator,
            "values": ["high"] * (operator == "In"),
        }
        selector = {"matchExpressions": [expression]}
        limited = quota({"pods": "2"}, {"pods": str(2 - free)}, scopeSelector=selector)
        return row(running(HOT, priorityClassName="high"), limited, *bound())[0].outcome

    assert outcome("In", free=1) is VmOutcome.MIGRATES
    assert outcome("In", free=0) is VmOutcome.BLOCKS
    assert outcome("DoesNotExist", free=0) is VmOutcome.BLOCKS


@pytest.mark.parametrize("volume", [{"name": "data", "memoryDump": {"claimName": "data"}}, None])
def test_what_is_attached_for_a_while_needs_a_pod_too(volume):
    utility = {} if volume else {"utilityVolumes": [{"name": "data", "claimName": "data"}]}
    subject = running(*[volume] if volume else [], **utility)
    assert (
        migration_demand.demand(subject, complete(subject, LAUNCHER, kubevirt())).attachment
        is not None
    )


@pytest.mark.parametrize(
    ("scopes", "priority", "counts"),
    [
        (["PriorityClass"], "high", True),
        (["PriorityClass"], None, False),
        (["NotTerminating"], None, True),
        (["Terminating"], None, False),
    ],
)
def test_a_quota_with_scopes(scopes, priority, counts):
    found, _ = row(
        running(priorityClassName=priority), quota({"pods": "1"}, {"pods": "1"}, scopes=scopes)
    )
    assert (found.outcome is VmOutcome.BLOCKS) == counts


def test_a_limit_range_refuses_the_pod_that_attaches_volumes():
    ratio = {"type": "Container", "maxLimitRequestRatio": {"memory": "2"}}
    limits = manifest("v1", "LimitRange", "ratio", "shop", spec={"limits": [ratio]})
    small = {"type": "Container", "min": {"memory": "16Mi"}}
    least = manifest("v1", "LimitRange", "least", "shop", spec={"limits": [small]})
    sized = Object({**LAUNCHER.data, "spec": {**LAUNCHER.data["spec"], "containers": [SIZED]}})

    for refusing in (limits, least):
        assert (
            "attaches its volumes is refused"
            in row(running(HOT), sized, refusing, *bound())[0].reason
        )
        assert row(running(), sized, refusing)[0].outcome is VmOutcome.MIGRATES


@pytest.mark.parametrize("managed", [True, False])
def test_hyperconverged_has_no_field_for_the_pods_that_attach_volumes(managed):
    own = kubevirt()
    own.data["status"] = {"observedKubeVirtVersion": "v1.8.0"}
    own.data["metadata"]["labels"] = {
        "app.kubernetes.io/managed-by": "hco-operator" if managed else "flux"
    }

    found = quotas.attachment_remedy(complete(own))
    assert "in supportContainerResources of KubeVirt" in found
    assert (
        found.endswith("by HyperConverged's annotation kubevirt.kubevirt.io/jsonpatch") is managed
    )


SIZED = {
    "name": "compute",
    "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}},
}


def test_the_pod_that_attaches_volumes_can_be_sized():
    own = {
        "type": "hotplug-disk",
        "resources": {"requests": {"memory": "20M"}, "limits": {"cpu": "1"}},
    }
    cluster = complete(running(HOT), LAUNCHER, kubevirt(supportContainerResources=[own]))

    (attaching,) = migration_demand.demand(running(HOT), cluster).attachment.containers

    assert attaching.requests == {"cpu": 10, "memory": 20_000_000}
    assert attaching.limits == {"cpu": 1000, "memory": 80_000_000}


@pytest.mark.parametrize(
    ("version", "requests"),
    [("v1.0.1", (100, 80_000_000)), ("v1.1.1", (100, 80_000_000)), ("v1.2.0", (10, 2_000_000))],
)
def test_what_the_pod_that_attaches_volumes_requests_by_release(version, requests):
    release = kubevirt()
    release.data["status"] = {"observedKubeVirtVersion": version}
    (attaching,) = migration_demand.demand(
        running(HOT), complete(running(HOT), LAUNCHER, release)
    ).attachment.containers
    assert (attaching.requests["cpu"], attaching.requests["memory"]) == requests


@pytest.mark.parametrize("strategy", ["LiveMigrate", "None"])
def test_hotplugged_volumes_bind_the_vm_to_nodes_that_reach_them(strategy):
    """kube-scheduler places the launcher pod without them;
    the pod that attaches them has to follow.
    """
    outcome = VmOutcome.MIGRATES if strategy == "LiveMigrate" else VmOutcome.RESTARTS
    vm = manifest("kubevirt.io/v1", "VirtualMachine", "db", "shop", spec={"runStrategy": "Always"})
    owned = {"ownerReferences": [{"kind": "VirtualMachine", "name": "db"}]}
    subject = running(HOT, evictionStrategy=strategy)
    subject = Object({**subject.data, "metadata": subject.data["metadata"] | owned})

    found, plan = row(subject, vm, *THREE, *bound(**only_on("n2", "n3", "n4")))
    assert (found.outcome, plan.drainable) == (outcome, True)

    found, plan = row(subject, vm, *THREE, *bound(**only_on("n2")))
    assert plan.drainable is (strategy == "None")
    assert found.outcome is (VmOutcome.AWAITS_NODE if strategy == "None" else VmOutcome.BLOCKS)
    assert "volume of claim data is on node n2 alone" in found.reason

    found, plan = row(subject, vm, *THREE, *bound(**only_on("n2", "n3")))
    assert plan.drainable is (True if strategy == "None" else None)
    said = "whether kube-scheduler chooses a node with the hotplugged volumes, or n4 without"
    assert said in plan.unseen


@pytest.mark.parametrize(
    ("objects", "remedy"),
    [
        (
            [DISK, VOLUME, *FULL],
            "add a node with at least 200Gi of memory (n3, the largest of these, has 8Gi), or make "
            "the VM smaller, or make it a VirtualMachine",
        ),
        ([VOLUME], "repair claim disk, and do not stop the VM before"),
        (
            [Object({**DISK.data, "status": {"phase": "Lost"}})],
            "repair claim disk, and do not stop the VM before",
        ),
    ],
)
def test_the_remedy_fits_the_cause(objects, remedy):
    """A VM that is restarted while its claim is gone stays off."""
    nodes = [] if FULL[0] in objects else HOSTS
    plan = drain_plan.plan(complete(running(), LAUNCHER, NS, kubevirt(), *nodes, *objects), "n2")
    (found,) = plan.nodes[0].forecasts

    words, _, command = found.remedy.partition(": ")
    words = words.partition(", which takes effect")[0]
    assert (found.outcome, words) == (VmOutcome.BLOCKS, remedy)
    assert command.startswith("kubectl ")


def test_whether_other_nodes_have_the_data_of_a_host_path_is_unknown():
    found, plan = row(running(HOT), *bound(hostPath={"path": "/disks"}))

    assert (found.outcome, plan.drainable) == (VmOutcome.UNKNOWN, None)
    assert "claim data is a hostPath volume" in found.reason
    assert plan.unseen == (f"shop/db: {found.reason.partition(', but ')[2]}",)


def test_a_silent_virt_handler_may_not_send_the_memory():
    silent = node("n2", {"kubevirt.io/schedulable": "false"}, allocatable=ROOMY)
    found, plan = row(running(), silent, HOSTS[1])

    assert (found.outcome, plan.drainable) == (VmOutcome.UNKNOWN, None)
    assert "virt-handler on n2 is not ready" in found.reason


def test_migrations_that_cannot_be_read_may_all_have_failed():
    _, plan = row(running(), without=[VMIM.resource])
    assert (plan.drainable, plan.unseen) == (None, (VMIM.resource,))


def test_migrations_of_an_earlier_vmi_do_not_count():
    failed = [
        manifest(
            "kubevirt.io/v1",
            "VirtualMachineInstanceMigration",
            f"m{number}",
            "shop",
            metadata={
                "creationTimestamp": f"2026-01-0{number}T00:00:00Z",
                "annotations": {"kubevirt.io/evacuationMigration": "n2"},
            },
            spec={"vmiName": "db"},
            status={"phase": "Failed"},
        )
        for number in (1, 2, 3)
    ]

    def born(day):
        subject = running()
        metadata = subject.data["metadata"] | {"creationTimestamp": f"2026-01-{day}T00:00:00Z"}
        return row(Object({**subject.data, "metadata": metadata}), *failed)[0].outcome

    assert born("01") is VmOutcome.BLOCKS
    assert born("02") is VmOutcome.MIGRATES


@pytest.mark.parametrize(
    ("deleted", "grace", "outcome"),
    [
        ("2026-01-01T11:59:00Z", None, VmOutcome.STOPS),
        ("2026-01-01T11:00:00Z", None, VmOutcome.BLOCKS),
        ("2026-01-01T11:00:00Z", 3600, VmOutcome.STOPS),
    ],
)
def test_a_vmi_that_does_not_end(deleted, grace, outcome):
    heard = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T12:00:00Z"}]
    here = Object({**HOSTS[0].data, "status": HOSTS[0].data["status"] | {"conditions": heard}})
    subject = running(terminationGracePeriodSeconds=grace)
    subject = Object(
        {**subject.data, "metadata": subject.data["metadata"] | {"deletionTimestamp": deleted}}
    )

    assert row(subject, here, HOSTS[1])[0].outcome is outcome


def test_two_budgets_refuse_every_eviction():
    budgets = [
        manifest(
            "policy/v1",
            "PodDisruptionBudget",
            name,
            "shop",
            spec={"selector": {}, "minAvailable": 0},
            status={"disruptionsAllowed": 1},
        )
        for name in "ab"
    ]
    assert row(running(evictionStrategy="None"), budgets[0])[0].outcome is not VmOutcome.BLOCKS
    found, _ = row(running(evictionStrategy="None"), *budgets)
    assert found.outcome is VmOutcome.BLOCKS
    assert "PodDisruptionBudgets a, b select its pod" in found.reason


def test_the_old_quota_still_refuses():
    found, _ = row(running(), QUOTA)
    assert "requests.memory: 100Gi missing" in found.reason


# --- limits that KubeVirt sets --------------------------------------------------------------------

GATED = {"developerConfiguration": {"featureGates": ["AutoResourceLimitsGate"]}}


@pytest.mark.parametrize(
    ("release", "settings", "hard", "says"),
    [
        ("v1.5.2", {}, "900Gi", ""),
        ("v1.4.0", GATED, "900Gi", ""),
        ("v1.5.2", {}, "100Mi", "Mi missing"),
        ("v1.4.0", {}, "900Gi", "a limit of each container is missing"),
        ("v1.0.0", GATED, "900Gi", "a limit of each container is missing"),
    ],
)
def test_a_pod_that_is_older_than_a_quota_on_limits(release, settings, hard, says):
    """KubeVirt gives the target pod the limits that the running one was made without."""
    installed = kubevirt(settings, status={"observedKubeVirtVersion": release})
    limited = quota({"limits.memory": hard}, {"limits.memory": "0"})
    found, _ = row(running(), limited, installed)

    assert (found.outcome is VmOutcome.MIGRATES) is (not says)
    assert says in found.reason
    unset = "container" in says
    assert ("add a LimitRange to shop with default limits" in found.remedy) is unset
    gated = "enable feature gate AutoResourceLimitsGate of KubeVirt" in found.remedy
    assert gated is (unset and release == "v1.4.0")
    assert ("raise" in found.remedy) is (says == "Mi missing")
