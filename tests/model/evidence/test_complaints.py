"""What an object reports as wrong, whatever its kind is."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from virt_admit.model.evidence import complaints
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2026-11-26T12:00:00Z"


def said(obj, *others):
    """The complaints of an object in words."""
    return [each.words for each in complaints.of(obj, Snapshot([obj, *others], ["*"], time=NOW))]


def condition(kind, status, reason="", message=""):
    return {"type": kind, "status": status, "reason": reason, "message": message}


def disk(**fields):
    return manifest("example.com/v1", "Disk", "d-1", "shop", **fields)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (condition("Ready", "False", "NoSpace", "the pool is full"),
         "Ready is False (NoSpace): the pool is full"),
        (condition("ready", "False", "NoSpace", "NoSpace in p-1"),
         "ready is False: NoSpace in p-1"),
        (condition("PoolReady", "False", "", "two\n lines"), "PoolReady is False: two lines"),
        (condition("Degraded", "True", "Sync", "cannot sync"),
         "Degraded is True (Sync): cannot sync"),
    ],
    ids=["positive", "lower case", "composed", "negative"],
)  # fmt: skip
def test_a_condition_that_is_wrong_is_said(given, words):
    assert said(disk(status={"conditions": [given]})) == [words]


def data_volume(*conditions):
    status = {"conditions": list(conditions)}
    return manifest("cdi.kubevirt.io/v1beta1", "DataVolume", "d-1", "shop", status=status)


PENDING = condition("Bound", "False", "Pending", "PVC d-1 Pending")


def test_of_a_data_volume_the_error_of_its_pod_is_said():
    error = condition("Running", "False", "Error", "no space left")
    lost = condition("Bound", "False", "ClaimLost", "Claim Lost")
    assert said(data_volume(PENDING, error)) == ["Running is False (Error): no space left"]
    assert said(data_volume(lost, error))[0] == "Running is False (Error): no space left"
    assert said(data_volume(PENDING, condition("Running", "False", "Pending", "it starts"))) == []


@pytest.mark.parametrize(
    "given",
    [
        condition("Ready", "True", "Fine", "all is well"),
        condition("Ready", "Unknown", "New"),
        condition("Degraded", "False", "Fine", "all is well"),
        condition("CatalogSourcesUnhealthy", "False", "Fine", "all are healthy"),
        condition("Progressing", "True", "Works", "rolls out"),
        condition("Ready", "False", "NotYet"),
        condition("Ready", "False", "InUse", "a pod uses it"),
        condition("Ready", "False", "Not ready"),
        {"type": 3, "status": None},
        "junk",
    ],
)
def test_other_conditions_are_not(given):
    assert said(disk(status={"conditions": [given]})) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"status": {"phase": "Failed", "message": "no host"}}, ["phase Failed: no host"]),
        ({"status": {"state": "faulted"}}, ["state faulted"]),
        ({"status": {"health": {"status": "Degraded"}}}, ["health Degraded"]),
        ({"status": {"phase": "Bound"}}, []),
        ({"status": {"attachError": {"message": "time-out"}}}, ["attachError: time-out"]),
        ({"status": {"lastError": "quota"}}, ["lastError: quota"]),
        ({"status": {"error": ""}}, []),
        (
            {"spec": {"desireState": "running"}, "status": {"currentState": "stopped"}},
            ["is to be running, but is stopped"],
        ),
        ({"spec": {"desireState": "running"}, "status": {"currentState": "running"}}, []),
        ({"status": 7}, []),
    ],
)
def test_states_and_errors(fields, words):
    assert said(disk(**fields)) == words


REFUSED = {"phase": "Create", "reasons": ["the webhook denied it"]}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {
                "parts": [
                    {"name": "a"},
                    {"name": "b", "error": REFUSED, "steps": [{"error": REFUSED}]},
                ]
            },
            "b: Create: the webhook denied it",
        ),
        ({"parts": {"x": {"syncError": "no space"}}}, "no space"),
        ({"errors": ["one", "two"], "parts": [{"error": "three"}]}, "one: two (and 1 other error)"),
        ({"parts": [{"error": ""}, {"errors": 3}], "history": [{"error": "old"}]}, ""),
        ({"parts": [{"lastError": "old", "onError": "skip", "ignoreErrors": "all"}]}, ""),
        ({"lastRun": {"error": "old"}}, ""),
        ({"part": {"last_error": "old", "onfailure": "skip", "LastError": "old"}}, ""),
        ({"ontapBackends": [{"onlineCheckError": "no login"}]}, "no login"),
        ({"parts": [{"errors": ["1", "2", "3", "4"]}]}, "1: 2: 3"),
        (
            {"parts": [{"error": 'Get "https://me:p@ss@host/a?token=x": refused'}]},
            'Get "https://host/a": refused',
        ),
        (
            {"parts": [{"error": "at http://h/a?b=c: refused, why?"}]},
            "at http://h/a: refused, why?",
        ),
    ],
    ids=[
        "list",
        "map",
        "several",
        "none",
        "not-now",
        "former",
        "spelled",
        "whole-words",
        "many",
        "secrets",
        "query",
    ],
)
def test_an_object_that_failed_says_the_error_of_its_part(status, words):
    failed = condition("Failed", "True", "", "It has FAILED.")
    why = f": {words}" if words else "."
    assert said(disk(status={"conditions": [failed], **status}))[0] == (
        f"Failed is True: It has FAILED{why}"
    )
    begin = f": {words}" if words else ""
    if "errors" not in status:
        assert said(disk(status={"phase": "Failed", **status})) == [f"phase Failed{begin}"]
    assert said(disk(status={"phase": "Running", "parts": status.get("parts")})) == []


def test_long_errors_of_parts_are_cut():
    begin, end = "the pool is full " * 40, "after all"
    status = {"phase": "Failed", "parts": [{"errors": [f"{begin}{end}"] * 9}]}
    (words,) = said(disk(status=status))
    assert len(words) < 650
    assert words.endswith(end)


LOG = condition("LogReady", "False", "Disabled", "Upgrade observability is administratively off")


def test_only_a_log_of_harvester_that_is_switched_off_is_usual():
    upgrade = manifest(
        "harvesterhci.io/v1beta1", "Upgrade", "u-1", "shop", status={"conditions": [LOG]}
    )
    assert said(upgrade) == []
    assert said(disk(status={"conditions": [LOG]}))
    assert said(disk(status={"conditions": [condition("Ready", "False", "Disabled", "by policy")]}))


def deleted(at):
    return disk(metadata={"deletionTimestamp": at, "finalizers": ["example.com/keep"]})


def test_a_deletion_that_does_not_end():
    kept = "is being deleted for 60 min, and kept by finalizer example.com/keep"
    assert said(deleted("2026-11-26T11:00:00Z")) == [kept]
    assert said(deleted("2026-11-26T11:58:00Z")) == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("False", "the drain of its node has not ended (Drained is False: could not drain)"),
        ("True", "kept by finalizer machine.machine.openshift.io"),
    ],
)
def test_a_machine_whose_node_is_not_drained(status, words):
    metadata = {
        "deletionTimestamp": "2026-11-26T11:00:00Z",
        "finalizers": ["machine.machine.openshift.io"],
    }
    drained = condition("Drained", status, "DrainError", "could not drain.")
    found = manifest(
        "machine.openshift.io/v1beta1",
        "Machine",
        "m",
        "shop",
        metadata=metadata,
        status={"conditions": [drained]},
    )
    assert f"is being deleted for 60 min, and {words}" in said(found)


def pod(**status):
    return manifest("v1", "Pod", "p-1", "shop", status=status)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
                "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
                "restartCount": 8,
            },
            [
                (
                    "container c: CrashLoopBackOff; it ended last with OOMKilled (exit code 137), "
                    "8 restarts"
                )
            ],
        ),
        (
            {"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}},
            ["container c: ErrImagePull: not found"],
        ),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, []),
        ({"state": {"running": {}}, "restartCount": 0}, []),
        ({"state": {"terminated": {"reason": "Completed", "exitCode": 0}}, "restartCount": 2}, []),
    ],
)
def test_containers(status, words):
    assert said(pod(containerStatuses=[{"name": "c", **status}])) == words


def test_of_a_pod_only_its_placement_is_a_condition_that_counts():
    waits = [condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")]
    follows = [
        condition("Ready", "False", "ContainersNotReady", "containers with unready status: [c]")
    ]
    assert said(pod(conditions=waits)) == [
        "PodScheduled is False (Unschedulable): 0/3 nodes are available"
    ]
    assert said(pod(conditions=follows)) == []
    assert said(pod(phase="Succeeded", conditions=waits)) == []


def event(last, kind="Warning", reason="FailedStarting", about="d-1"):
    involved = {"kind": "Disk", "namespace": "shop", "name": about}
    return manifest(
        "v1", "Event", f"e-{last}-{about}", "shop",
        type=kind, reason=reason, message="engine is not ready", involvedObject=involved,
        lastTimestamp=last,
    )  # fmt: skip


def test_recent_warnings_are_said_once():
    both = event("2026-11-26T11:59:00Z"), event("2026-11-26T11:50:00Z")
    assert said(disk(), *both) == ["FailedStarting: engine is not ready"]


@pytest.mark.parametrize(
    "other",
    [
        event("2026-11-26T08:00:00Z"),
        event("2026-11-26T11:59:00Z", kind="Normal"),
        event("2026-11-26T11:59:00Z", about="d-2"),
    ],
    ids=["old", "normal", "of another object"],
)
def test_other_events_are_not(other):
    assert said(disk(), other) == []


def lasting(obj, *others):
    """What the object has reported for long, in words."""
    return [
        each.words for each in complaints.lasting(obj, Snapshot([obj, *others], ["*"], time=NOW))
    ]


@pytest.mark.parametrize(
    ("since", "said_"), [("2026-11-26T11:30:00Z", True), ("2026-11-26T11:55:00Z", False)]
)
def test_what_lasts_is_no_moment_of_usual_work(since, said_):
    given = condition("Ready", "False", "NoSpace", "the pool is full") | {
        "lastTransitionTime": since
    }
    assert bool(lasting(disk(status={"conditions": [given]}))) is said_


@pytest.mark.parametrize(
    ("times", "first", "said_"),
    [
        (21, "2026-11-26T11:30:00Z", True),
        (2, "2026-11-26T11:30:00Z", False),
        (21, "2026-11-26T11:55:00Z", False),
    ],
    ids=["often and long", "seldom", "new"],
)
def test_a_warning_that_a_controller_repeats(times, first, said_):
    warning = event("2026-11-26T11:59:00Z")
    warning.data |= {"count": times, "firstTimestamp": first}
    expected = ["FailedStarting, 21 times: engine is not ready"] if said_ else []
    assert lasting(disk(), warning) == expected


def test_a_category_that_is_critical():
    given = condition("VMNotSupported", "True", "NoTracking", "vm-34") | {"category": "Critical"}
    assert said(disk(status={"conditions": [given]})) == [
        "VMNotSupported is True (NoTracking): vm-34"
    ]
    assert said(disk(status={"conditions": [given | {"category": "Advisory"}]})) == []


def test_words_in_the_reason():
    given = condition("Ready", "False", "a webhook denied the request")
    assert said(disk(status={"conditions": [given]})) == [
        "Ready is False: a webhook denied the request"
    ]


def test_work_that_is_under_way_is_not_wrong():
    given = condition("Ready", "False", "RollingUpdateInProgress", "rolling 2 replicas")
    assert said(disk(status={"conditions": [given]})) == []


STORAGE = condition("Ready", "False", "", "no virtual machines are ready for storage migration")


def moves(*running):
    """A plan that moves the disks of VMs to other storage."""
    kind, version = "VirtualMachineStorageMigrationPlan", "migrations.kubevirt.io/v1alpha1"
    status = {"conditions": [STORAGE], "inProgressMigrations": [{"name": each} for each in running]}
    return manifest(version, kind, "fin-to-ceph", "fin", status=status)


def test_a_plan_that_has_begun_with_none_of_its_vms():
    assert said(moves()) == [f"Ready is False: {STORAGE['message']}"]


@pytest.mark.parametrize(
    "obj",
    [
        moves("erp-db"),
        disk(
            status={
                "conditions": [
                    condition("ClusterTransferAvailable", "False", "NoClusterTransfer", "none")
                ]
            }
        ),
        disk(
            status={
                "conditions": [condition("UpdateComplete", "False", "NotYetOccurred", "not yet")]
            }
        ),
        disk(
            status={
                "conditions": [
                    condition("StoragePublicAccessBlocked", "True", "Success", "it is blocked")
                ]
            }
        ),
        disk(
            status={
                "conditions": [condition("PoolDeletionIsBlocked", "True", "Holds", "images exist")]
            }
        ),
        disk(
            status={
                "conditions": [condition("Unavailable", "True", "", "backup target URL is empty")]
            }
        ),
        disk(status={"conditions": [condition("DNSNotReady", "False", "Ready", "DNS works")]}),
        disk(
            status={
                "conditions": [condition("FailureDomainsReady", "True", "Fine", "three domains")]
            }
        ),
        disk(
            status={"conditions": [condition("NoProblems", "True", "Fine", "no problem is known")]}
        ),
        disk(status={"conditions": [condition("ErrorFree", "True", "Fine", "no error is known")]}),
        disk(
            spec={"enabled": False},
            status={"conditions": [condition("Completed", "False", "Off", "disabled")]},
        ),
        disk(spec={"suspend": True}, status={"phase": "Failed"}),
    ],
)
def test_what_healthy_clusters_report_is_not_wrong(obj):
    assert said(obj) == []


@pytest.mark.parametrize(
    ("finished", "said_"), [("2026-11-26T11:00:00Z", True), ("2026-05-01T00:00:00Z", False)]
)
def test_a_restart_of_long_ago_is_not_said(finished, said_):
    ended = {"terminated": {"reason": "Error", "exitCode": 255, "finishedAt": finished}}
    status = {"name": "c", "state": {"running": {}}, "lastState": ended, "restartCount": 1}
    expected = ["container c: Error (exit code 255), 1 restart"] if said_ else []
    assert said(pod(containerStatuses=[status])) == expected


def test_a_deployment_says_how_many_pods_are_ready():
    few = condition(
        "Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum"
    )
    status = {"readyReplicas": 1, "conditions": [few]}
    own = manifest("apps/v1", "Deployment", "web", "shop", spec={"replicas": 2}, status=status)

    assert said(own) == ["Available is False: 1 of 2 pods are ready"]
