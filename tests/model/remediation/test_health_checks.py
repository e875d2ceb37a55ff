"""Health checks: the common view, invalid values of every field, and the never-break cases."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from virt_admit.engine import review as engine
from virt_admit.engine.admission_review import Request
from virt_admit.model import kinds
from virt_admit.model.cluster import NOTHING, Snapshot
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.model.units import HOUR, MINUTE, SECOND, IntOrPercent, LimitKind
from virt_admit.policy.policy import Policy
from virt_admit.rule import Operation
from virt_admit.rules import load_rules

READY = [{"type": "Ready", "status": "False", "timeout": "5m"}, {"type": "Ready", "status": "Unknown", "timeout": "5m"}]
READY_SECONDS = [
    {"type": "Ready", "status": "False", "timeoutSeconds": 300},
    {"type": "Ready", "status": "Unknown", "timeoutSeconds": 300},
]
MHC = {
    "apiVersion": "machine.openshift.io/v1beta1",
    "kind": "MachineHealthCheck",
    "metadata": {"name": "workers", "namespace": "openshift-machine-api"},
    "spec": {
        "selector": {"matchLabels": {"pool": "blue"}},
        "unhealthyConditions": READY,
        "maxUnhealthy": 1,
        "nodeStartupTimeout": "10m",
    },
}
CAPI_V1BETA1 = {
    "apiVersion": "cluster.x-k8s.io/v1beta1",
    "kind": "MachineHealthCheck",
    "metadata": {"name": "md-0", "namespace": "tenants"},
    "spec": {
        "clusterName": "a",
        "selector": {"matchLabels": {"pool": "blue"}},
        "unhealthyConditions": READY,
        "maxUnhealthy": 1,
        "nodeStartupTimeout": "10m",
    },
}
CAPI_V1BETA2 = {
    "apiVersion": "cluster.x-k8s.io/v1beta2",
    "kind": "MachineHealthCheck",
    "metadata": {"name": "md-0", "namespace": "tenants"},
    "spec": {
        "clusterName": "a",
        "selector": {"matchLabels": {"pool": "blue"}},
        "checks": {"unhealthyNodeConditions": READY_SECONDS, "nodeStartupTimeoutSeconds": 600},
        "remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": 1}},
    },
}
NHC = {
    "apiVersion": "remediation.medik8s.io/v1alpha1",
    "kind": "NodeHealthCheck",
    "metadata": {"name": "workers"},
    "spec": {
        "selector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
        "minHealthy": "51%",
        "remediationTemplate": {
            "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
            "kind": "SelfNodeRemediationTemplate",
            "name": "auto",
            "namespace": "medik8s",
        },
    },
}
HANDLER = {
    "apiVersion": "machine.openshift.io/v1beta1",
    "kind": "MachineHealthCheck",
    "metadata": {"name": "machine-api-termination-handler", "namespace": "openshift-machine-api"},
    "spec": {
        "selector": {"matchLabels": {"machine.openshift.io/interruptible-instance": ""}},
        "maxUnhealthy": "100%",
        "nodeStartupTimeout": "0",
        "unhealthyConditions": [{"type": "Terminating", "status": "True", "timeout": "0s"}],
    },
}
INERT = {
    "apiVersion": "machine.openshift.io/v1beta1",
    "kind": "MachineHealthCheck",
    "metadata": {"name": "srep-management-cluster-node-recovery", "namespace": "openshift-machine-api"},
    "spec": {
        "selector": {
            "matchExpressions": [
                {"key": "machine.openshift.io/cluster-api-machine-role", "operator": "In", "values": ["serving-1"]}
            ]
        },
        "unhealthyConditions": [{"type": "NonexistentCondition", "status": "NonexistentStatus", "timeout": "0s"}],
        "maxUnhealthy": "100%",
        "nodeStartupTimeout": "25m",
    },
}
HOSTED = {
    "apiVersion": "cluster.x-k8s.io/v1beta1",
    "kind": "MachineHealthCheck",
    "metadata": {"name": "guest", "namespace": "clusters-guest"},
    "spec": {
        "clusterName": "guest-7xk2p",
        "selector": {"matchLabels": {"guest-7xk2p-guest": "guest-7xk2p-guest"}},
        "unhealthyConditions": [
            {"type": "Ready", "status": "False", "timeout": "8m0s"},
            {"type": "Ready", "status": "Unknown", "timeout": "8m0s"},
        ],
        "maxUnhealthy": 2,
        "nodeStartupTimeout": "20m0s",
    },
}


def changed(base, path, value):
    """Return the object with another value at a dotted path; ``...`` removes the field."""
    obj = copy.deepcopy(base)
    *parents, last = path.split(".")
    at = obj
    for step in parents:
        at = at[int(step)] if step.isdigit() else at.setdefault(step, {})
    if value is ...:
        del at[last]
    else:
        at[int(last) if last.isdigit() else last] = value
    return obj


def review(data, old=None, cluster=NOTHING, **more):
    obj, before = Object(data), Object(old) if old else None
    operation = more.pop("operation", Operation.UPDATE if old else Operation.CREATE)
    if operation == Operation.DELETE:
        obj, before = None, obj
    kind = more.pop("kind", None) or kinds.of(obj or before)
    request = Request(operation, kind, obj, before, namespace=(obj or before).namespace, **more)
    response = engine.review(request, load_rules(), cluster, Policy())
    assert not response.errors
    return response


def verdicts(data, *args, **more):
    return {(str(verdict.action), verdict.rule.id) for verdict in review(data, *args, **more).verdicts}


# --- the view ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "conditions", "time", "startup", "limit", "limit_of"),
    [
        (MHC, "spec.unhealthyConditions", "timeout", "spec.nodeStartupTimeout", "spec.maxUnhealthy", LimitKind.MACHINE_API),
        (CAPI_V1BETA1, "spec.unhealthyConditions", "timeout", "spec.nodeStartupTimeout", "spec.maxUnhealthy",
         LimitKind.CLUSTER_API),
        (CAPI_V1BETA2, "spec.checks.unhealthyNodeConditions", "timeoutSeconds",
         "spec.checks.nodeStartupTimeoutSeconds", "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo",
         LimitKind.CLUSTER_API),
        (NHC, "spec.unhealthyConditions", "duration", "", "spec.minHealthy", LimitKind.NODE_MIN_HEALTHY),
    ],
)  # fmt: skip
def test_layout_of_each_kind(base, conditions, time, startup, limit, limit_of):
    view = health_checks.view(Object(base))
    assert str(view.conditions.path) == conditions
    assert view.time_key == time
    assert str(view.startup.path) == startup
    assert str(view.limit.path) == limit
    assert view.limit_of is limit_of
    assert view.known_limit() is not None


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1alpha3", "spec.unhealthyConditions"),
        ("v1alpha4", "spec.unhealthyConditions"),
        ("v1beta1", "spec.unhealthyConditions"),
        ("v1beta2", "spec.checks.unhealthyNodeConditions"),
        ("v1", "spec.checks.unhealthyNodeConditions"),
    ],
)
def test_cluster_api_layout_follows_the_version(version, expected):
    obj = Object({"apiVersion": f"cluster.x-k8s.io/{version}", "kind": "MachineHealthCheck"})
    assert str(health_checks.view(obj).conditions.path) == expected


def test_times_are_nanoseconds_in_every_unit():
    assert [entry.nanoseconds() for entry in health_checks.view(Object(MHC)).entries] == [5 * MINUTE, 5 * MINUTE]
    assert [entry.nanoseconds() for entry in health_checks.view(Object(CAPI_V1BETA2)).entries] == [
        300 * SECOND,
        300 * SECOND,
    ]
    assert health_checks.view(Object(CAPI_V1BETA2)).startup_time() == 10 * MINUTE
    assert health_checks.view(Object(changed(MHC, "spec.nodeStartupTimeout", "1.5h"))).startup_time() == 3 * HOUR // 2


@pytest.mark.parametrize("base", [MHC, CAPI_V1BETA1, CAPI_V1BETA2])
def test_defaults_that_files_lack(base):
    view = health_checks.view(Object({**base, "spec": {}}))
    assert view.startup_time() == 10 * MINUTE
    assert view.read_limit() == IntOrPercent(100, percent=True)


def test_limit_of_a_node_health_check():
    both = changed(NHC, "spec.maxUnhealthy", 2)
    assert health_checks.view(Object(both)).limit_of is LimitKind.NODE_MAX_UNHEALTHY
    assert health_checks.view(Object(both)).read_limit() == IntOrPercent(2)
    assert health_checks.view(Object(NHC)).read_limit() == IntOrPercent(51, percent=True)


@pytest.mark.parametrize(
    ("base", "handler", "deliberate"),
    [
        (MHC, False, False),
        (HANDLER, True, True),
        (INERT, False, True),
        (HOSTED, False, True),
        (changed(MHC, "spec.unhealthyConditions", []), False, False),
        (
            changed(HANDLER, "spec.unhealthyConditions", [*HANDLER["spec"]["unhealthyConditions"], READY[0]]),
            False,
            False,
        ),
        (changed(INERT, "spec.unhealthyConditions", [*INERT["spec"]["unhealthyConditions"], READY[0]]), False, False),
        (changed(NHC, "spec.unhealthyConditions", [{"type": "Terminating"}]), False, False),
        (changed(HOSTED, "spec.selector.matchLabels", {"pool": "guest"}), False, False),
        (changed(HOSTED, "spec.selector.matchLabels", {"test": "test"}), False, False),
        (changed(HOSTED, "spec.clusterName", ...), False, False),
        ({**HOSTED, "apiVersion": "machine.openshift.io/v1beta1"}, False, False),
    ],
)
def test_checks_of_the_platform(base, handler, deliberate):
    view = health_checks.view(Object(base))
    assert (view.handler, view.deliberate) == (handler, deliberate)


@pytest.mark.parametrize("value", ["false", "False", "0", "no", "NO", "off", " off "])
def test_falsy_texts(value):
    assert health_checks.is_falsy_text(value)


@pytest.mark.parametrize("value", ["", "true", "yes", "1", "on", "n", "00", "nope"])
def test_other_texts(value):
    assert not health_checks.is_falsy_text(value)


# --- every kind of value -------------------------------------------------------------------------------------------

STARTUP, TOO_SHORT = "mhc-node-startup-timeout-invalid", "mhc-node-startup-timeout-too-short"
TOO_LONG, LIMIT = "mhc-node-startup-timeout-too-long", "mhc-max-unhealthy-invalid"
TIME, INCOMPLETE = "condition-timeout-invalid", "condition-incomplete"
STATUS, TYPE, HEALTHY = "condition-status-unknown-value", "condition-type-misspelled", "condition-matches-healthy-state"
PAIR, EMPTY, SELECTOR = "condition-ready-incomplete-pair", "mhc-selector-empty", "mhc-selector-invalid"
UNLIMITED, ZERO = "mhc-max-unhealthy-unlimited", "mhc-max-unhealthy-zero"
RANGE, NAME = "capi-mhc-unhealthy-range-invalid", "capi-mhc-cluster-name"


def rows(expected, *values):
    """Return one table row per value, all with the same expectation."""
    return [pytest.param(value, expected, id=str(value)[:30]) for value in values]


LIMITS = [
    *rows(set(), 1, 3, 2147483647, "40%", "1%", "09%", "99%"),
    *rows({("warn", ZERO)}, 0, "0%", "00%"),
    *rows({("warn", UNLIMITED)}, "100%", None),
    *rows(
        {("deny", LIMIT)},
        -1, -2147483648, 2147483648, 4294967295, 10**30, "101%", "150%", "-1", "-1%", "+1", "1.5", "²%", "٤%", "40%\n",
        " 40%", "40 %", "%", "", "40%%", "33.3%", "1e1", "0x1", "1_0", "abcdef", "99999999999999999999", "10" * 2000,
        1.5, True, [], {}, [1], {"a": 1},
    ),
]  # fmt: skip
DIGITS = [
    *rows(set(), "3", "007", "2147483647"),
    *rows({("warn", ZERO)}, "0", "00"),
    *rows({("deny", LIMIT)}, "2147483648"),
]


@pytest.mark.parametrize(("value", "expected"), [*LIMITS, *DIGITS, ("005%", {("deny", LIMIT)})])
def test_max_unhealthy_of_openshift(value, expected):
    assert verdicts(changed(MHC, "spec.maxUnhealthy", value)) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [*LIMITS, *rows({("deny", LIMIT)}, *(row.values[0] for row in DIGITS)), ("005%", set())]
)
def test_max_unhealthy_of_cluster_api(value, expected):
    assert verdicts(changed(CAPI_V1BETA1, "spec.maxUnhealthy", value)) == expected
    in_v1beta2 = changed(CAPI_V1BETA2, "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", value)
    assert verdicts(in_v1beta2) == expected


STARTUPS = [
    *rows(set(), "5m", "300s", "10m0s", "0.5h", "1h30m", "600000ms", "2h", "5m0.000000001s", "+10m", None),
    *rows(set(), "0", "0s", "-0s", "0h0m"),
    *rows({("warn", TOO_SHORT)}, "30s", "4m59.999s", "1m1m", "30000ms"),
    *rows({("deny", TOO_SHORT)}, "29s", "29.999999999s", "1ns", "500ms", "1us", "1µs"),
    *rows({("warn", TOO_LONG)}, "2h1ns", "24h", "2562047h47m16.854775807s"),
    *rows(
        {("deny", STARTUP)},
        "-5m", "-0.5h", "abc5m", "0abc", "00", "9999999h", "2562047h47m16.854775808s", "1d", "5", "", "5m\n", "5m ",
        " 5m", "5 m", "5M", "5min", "5sec", "٥m", "²m", "1e3s", "1_0m", "0x5m", "five minutes", "1:30", "∞", "nan",
        "5m" * 100_000, 0, 300, -5, 10**30, 5.0, True, [], {}, ["5m"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), STARTUPS)
def test_startup_of_openshift_and_of_cluster_api(value, expected):
    assert verdicts(changed(MHC, "spec.nodeStartupTimeout", value)) == expected
    assert verdicts(changed(CAPI_V1BETA1, "spec.nodeStartupTimeout", value)) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *rows(set(), 0, 300, 7200, None),
        *rows({("warn", TOO_SHORT)}, 30, 299),
        *rows({("deny", TOO_SHORT)}, 1, 29),
        *rows({("warn", TOO_LONG)}, 7201, 2147483647),
        *rows({("deny", STARTUP)}, -1, -60, 2147483648, 10**30, "10m", "600", "", 600.5, True, [], {}),
    ],
)
def test_startup_in_seconds(value, expected):
    assert verdicts(changed(CAPI_V1BETA2, "spec.checks.nodeStartupTimeoutSeconds", value)) == expected


SHORT, LONG = "condition-timeout-too-short", "condition-timeout-too-long"
TIMES = [
    *rows(set(), "60s", "1m", "5m", "1h", "300s", "3600s", "0.1h", "1m0.5s", "60000ms"),
    *rows({("warn", SHORT)}, "10s", "59.9s", "10000ms"),
    *rows({("deny", SHORT)}, "0s", "9.999s", "1ns", "0h"),
    *rows({("warn", LONG)}, "1h1ns", "61m", "24h"),
    *rows(
        {("deny", TIME)},
        "-5m", "abc5m", "0abc", "00", "9999999h", "1d", "5", "", "5m\n", "5 m", "٥m", "²m", "1e3s", "1:30", "5m" * 100_000,
        300, 300.0, 0, -5, True, [], {},
    ),
    *rows({("deny", INCOMPLETE)}, None),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), [*TIMES, *rows({("deny", TIME)}, "0", "+5m", ".1h")])
def test_times_of_openshift_and_of_node_health_checks(value, expected):
    assert verdicts(changed(MHC, "spec.unhealthyConditions.0.timeout", value)) == expected
    ready = [{"type": "Ready", "status": entry["status"], "duration": entry["timeout"]} for entry in READY]
    nhc = changed(NHC, "spec.unhealthyConditions", ready)
    assert verdicts(changed(nhc, "spec.unhealthyConditions.1.duration", value)) == expected


@pytest.mark.parametrize(("value", "expected"), [*TIMES, *rows({("deny", SHORT)}, "0"), *rows(set(), "+5m", ".1h")])
def test_times_of_cluster_api(value, expected):
    assert verdicts(changed(CAPI_V1BETA1, "spec.unhealthyConditions.0.timeout", value)) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *rows(set(), 60, 300, 3600),
        *rows({("warn", LONG)}, 3601, 2147483647),
        *rows({("warn", SHORT)}, 10, 59),
        *rows({("deny", SHORT)}, 0, 9),
        *rows({("deny", TIME)}, -1, 2147483648, "300", "300s", "", 300.5, True, [], {}),
    ],
)
def test_times_in_seconds(value, expected):
    assert verdicts(changed(CAPI_V1BETA2, "spec.checks.unhealthyNodeConditions.0.timeoutSeconds", value)) == expected


@pytest.mark.parametrize("value", [None, ...])
@pytest.mark.parametrize(
    ("base", "path"),
    [(MHC, "spec.unhealthyConditions.0"), (CAPI_V1BETA1, "spec.unhealthyConditions.0"),
     (CAPI_V1BETA2, "spec.checks.unhealthyNodeConditions.0")],
)  # fmt: skip
def test_incomplete_entries(base, path, value):
    time = health_checks.view(Object(base)).time_key
    assert verdicts(changed(base, f"{path}.{time}", value)) == {("deny", INCOMPLETE)}
    assert verdicts(changed(base, f"{path}.type", value)) == {("deny", INCOMPLETE), ("warn", PAIR)}
    assert verdicts(changed(base, f"{path}.status", value)) == {("deny", INCOMPLETE), ("warn", PAIR)}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"type": "Ready", "status": "True", "timeout": "5m"}, {("deny", HEALTHY)}),
        ({"type": "DiskPressure", "status": "False", "timeout": "5m"}, {("deny", HEALTHY)}),
        ({"type": "NetworkUnavailable", "status": "False", "timeout": "5m"}, {("deny", HEALTHY)}),
        ({"type": "NetworkUnavailable", "status": "True", "timeout": "0s"}, {}),
        ({"type": "Ready", "status": "false", "timeout": "5m"}, {("deny", STATUS)}),
        ({"type": "Ready", "status": "False ", "timeout": "5m"}, {("deny", STATUS)}),
        ({"type": "MemoryPressure", "status": "yes", "timeout": "5m"}, {("deny", STATUS)}),
        ({"type": "Custom", "status": "yes", "timeout": "5m"}, {("warn", STATUS)}),
        ({"type": "Custom", "status": "False", "timeout": "0s"}, {}),
        ({"type": "NonexistentCondition", "status": "NonexistentStatus", "timeout": "0s"}, {}),
        ({"type": "ready", "status": "False", "timeout": "5m"}, {("deny", TYPE)}),
        ({"type": "READY", "status": "False", "timeout": "5m"}, {("deny", TYPE)}),
        ({"type": "NotReady", "status": "True", "timeout": "5m"}, {("deny", TYPE)}),
        ({"type": "memorypressure", "status": "true", "timeout": "5m"}, {("deny", TYPE), ("warn", STATUS)}),
        ({"type": "Ready", "status": False, "timeout": "5m"}, {("deny", INCOMPLETE)}),
        ({"type": "Ready", "status": "", "timeout": "5m"}, {("deny", INCOMPLETE)}),
        ({"type": "", "status": "False", "timeout": "5m"}, {("deny", INCOMPLETE)}),
        ({"type": ["Ready"], "status": {"a": 1}, "timeout": "5m"}, {("deny", INCOMPLETE)}),
        ({}, {("deny", INCOMPLETE)}),
        (None, {("deny", INCOMPLETE)}),
        ("Ready=False", {("deny", INCOMPLETE)}),
        ([], {("deny", INCOMPLETE)}),
        (7, {("deny", INCOMPLETE)}),
        ({"type": "Ready", "status": "False", "timeout": "6m"}, {("warn", "condition-duplicate")}),
        ({"type": "Ready", "status": "False", "timeout": "6m", "extra": 1}, {("warn", "condition-duplicate")}),
    ],
)
def test_an_additional_entry(entry, expected):
    assert verdicts(changed(MHC, "spec.unhealthyConditions", [*READY, entry])) == set(expected)


@pytest.mark.parametrize("value", [None, ..., [], {}, "Ready", 5, True])
def test_values_that_are_not_lists(value):
    assert verdicts(changed(MHC, "spec.unhealthyConditions", value)) == {("deny", "condition-list-missing")}
    assert verdicts(changed(CAPI_V1BETA1, "spec.unhealthyConditions", value)) == set()
    nhc = changed(NHC, "spec.unhealthyConditions", None if value is ... else value)
    assert verdicts(nhc) == ({("deny", "condition-list-missing")} if value not in (None, ...) else set())


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, {("deny", EMPTY)}),
        ({}, {("deny", EMPTY)}),
        ({"matchLabels": {}}, {("deny", EMPTY)}),
        ({"matchExpressions": []}, {("deny", EMPTY)}),
        ({"matchlabels": {"a": "b"}}, {("deny", EMPTY)}),
        ([], {("deny", SELECTOR)}),
        ("pool=blue", {("deny", SELECTOR)}),
        (5, {("deny", SELECTOR)}),
        ({"matchLabels": ["a"]}, {("deny", SELECTOR)}),
        ({"matchLabels": {"-123-foo": "bar"}}, {("deny", SELECTOR)}),
        ({"matchLabels": {"a/b/c": "d"}}, {("deny", SELECTOR)}),
        ({"matchLabels": {"": "d"}}, {("deny", SELECTOR)}),
        ({"matchLabels": {"a": "<role>"}}, {("deny", SELECTOR)}),
        ({"matchLabels": {"a": 5}}, {("deny", SELECTOR)}),
        ({"matchLabels": {"a": "b\n"}}, {("deny", SELECTOR)}),
        ({"matchLabels": {"a": "x" * 64}}, {("deny", SELECTOR)}),
        ({"matchLabels": {"x" * 64: "a"}}, {("deny", SELECTOR)}),
        ({"matchLabels": {"x" * 254 + "/a": "a"}}, {("deny", SELECTOR)}),
        ({"matchLabels": {"Example.com/a": "a"}}, {("deny", SELECTOR)}),
        ({"matchLabels": {"a": "x" * 63, "example.com/a": ""}}, {}),
        ({"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]}, {("deny", SELECTOR)}),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, {("deny", SELECTOR)}),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}, {("deny", SELECTOR)}),
        ({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}, {("deny", SELECTOR)}),
        ({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}, {("deny", SELECTOR)}),
        ({"matchExpressions": [None]}, {("deny", SELECTOR)}),
        ({"matchExpressions": [{"operator": "Exists"}]}, {("deny", SELECTOR)}),
        ({"matchExpressions": [{"key": "a", "operator": "Exists", "values": []}]}, {}),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist", "values": None}]}, {}),
    ],
)
def test_selectors(selector, expected):
    assert verdicts(changed(MHC, "spec.selector", selector)) == set(expected)
    assert verdicts(changed(CAPI_V1BETA1, "spec.selector", selector)) == set(expected)
    assert verdicts(changed(CAPI_V1BETA2, "spec.selector", selector)) == set(expected)


@pytest.mark.parametrize("spec", [None, [], "", 5, True, {}])
def test_values_that_are_not_a_spec(spec):
    assert verdicts({**MHC, "spec": spec}) == {
        ("deny", EMPTY), ("deny", "condition-list-missing"), ("warn", UNLIMITED),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *rows(set(), "[1-2]", "[0-0]", "[1-4294967295]", None),
        *rows(
            {("deny", RANGE)},
            "[2-1]", "[1-4294967296]", "1-2", "[1-2", "[1 - 2]", "[-1-2]", "[1-]", "[1-2]\n", "[١-٢]", "", "[1-2-3]",
            5, True, [1, 2], {},
        ),
    ],
)  # fmt: skip
def test_ranges_of_cluster_api(value, expected):
    assert verdicts(changed(CAPI_V1BETA1, "spec.unhealthyRange", value)) == set(expected)
    assert verdicts(changed(CAPI_V1BETA2, "spec.remediation.triggerIf.unhealthyInRange", value)) == set(expected)


@pytest.mark.parametrize(("old", "expected"), [("a", set()), ("b", {("deny", NAME)}), (None, {("deny", NAME)})])
def test_cluster_name_is_immutable(old, expected):
    after = changed(CAPI_V1BETA2, "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", 2)
    assert verdicts(after, changed(CAPI_V1BETA2, "spec.clusterName", old)) == expected


def test_fields_of_the_older_version_are_not_read_in_the_newer():
    """The API server drops them, so the check only watches the start-up."""
    spec = {key: value for key, value in CAPI_V1BETA1["spec"].items() if key != "maxUnhealthy"}
    older = {**CAPI_V1BETA2, "spec": {**spec, "nodeStartupTimeout": "1s", "maxUnhealthy": "no"}}
    assert verdicts(older) == {("warn", UNLIMITED), ("warn", "capi-mhc-field-wrong-version")}


# --- what must never be broken --------------------------------------------------------------------------------------

SHIPPED = {"termination handler": HANDLER, "inert check": INERT, "hosted control plane": HOSTED}


def busy_cluster(check):
    """Return a cluster in which an ordinary check has findings: machines, an update, NodeHealthChecks."""
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
    assert verdicts(changed(check, "metadata.annotations", {"cluster.x-k8s.io/paused": ""}), check) == set()


def test_a_termination_handler_only_has_findings_for_invalid_values():
    handler = changed(HANDLER, "spec.unhealthyConditions.0.timeout", ...)
    for path, value in (("spec.selector", {}), ("spec.nodeStartupTimeout", "1s"), ("spec.maxUnhealthy", 0)):
        handler = changed(handler, path, value)
    handler["metadata"] |= {"namespace": "elsewhere", "annotations": {"cluster.x-k8s.io/paused": "false"}}
    assert verdicts(handler, cluster=Snapshot(complete=["*"])) == set()

    broken = changed(changed(handler, "spec.nodeStartupTimeout", "soon"), "spec.maxUnhealthy", "all")
    assert verdicts(broken) == {("deny", STARTUP), ("deny", LIMIT)}


BROKEN = {
    **MHC,
    "spec": {
        "selector": {},
        "unhealthyConditions": [{"type": "Ready", "status": "True"}, {"type": "ready", "status": "no", "timeout": "x"}],
        "maxUnhealthy": -1,
        "nodeStartupTimeout": "-5m",
    },
}


@pytest.mark.parametrize(
    ("path", "value"),
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
    machine = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "metadata": {"name": "m"}}
    assert review(machine, operation=Operation.DELETE).allowed
    assert ("warn", "machine-delete-not-replaced") in verdicts(machine, operation=Operation.DELETE)
    going = changed(machine, "metadata.deletionTimestamp", "2026-11-01T00:00:00Z")
    assert verdicts(going, operation=Operation.DELETE) == set()


@pytest.mark.parametrize("subresource", ["status", "finalizers"])
def test_sub_resources_are_not_judged(subresource):
    assert verdicts(BROKEN, MHC, subresource=subresource) == set()


@pytest.mark.parametrize(
    "api_version", ["machineremediation.kubevirt.io/v1alpha1", "healthchecking.openshift.io/v1alpha1"]
)
def test_other_groups_with_the_same_kind_are_not_judged(api_version):
    assert verdicts({**BROKEN, "apiVersion": api_version}) == set()


def test_rules_that_need_a_cluster_do_not_deny_without_one():
    assert verdicts(MHC) == verdicts(CAPI_V1BETA1) == verdicts(CAPI_V1BETA2) == verdicts(NHC) == set()


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


@pytest.mark.parametrize("key", ["machine.openshift.io/delete-machine", "machine.openshift.io/exclude-node-draining"])
def test_a_machine_annotation_warns_only_when_added(key):
    plain = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "metadata": {"name": "m"}, "spec": {}}
    marked = changed(plain, "metadata.annotations", {key: "false"})
    assert len(verdicts(marked, plain)) == 1
    assert verdicts(changed(marked, "spec.providerID", "x"), marked) == set()
    assert verdicts(plain, marked) == set()


def test_a_machine_hook_warns_only_when_added():
    hook, etcd = {"name": "A", "owner": "a-team"}, {"name": "Etcd", "owner": "clusteroperator/etcd"}
    metadata = {"name": "m", "namespace": "openshift-machine-api", "labels": {"pool": "blue"}}
    plain = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "metadata": metadata, "spec": {}}
    hooked = changed(plain, "spec.lifecycleHooks", {"preDrain": [hook]})
    more = changed(plain, "spec.lifecycleHooks", {"preDrain": [etcd, hook]})
    cluster = Snapshot([Object(MHC)])
    assert verdicts(hooked, plain, cluster=cluster) == {("warn", "machine-pre-drain-hook-blocks-remediation")}
    assert verdicts(more, hooked, cluster=cluster) == set()


# --- no rule raises ----------------------------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
MACHINE = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "metadata": {"name": "m"}, "spec": {}}
MACHINE_SET = {**MACHINE, "kind": "MachineSet", "spec": {"replicas": 3}}
TEMPLATE = {
    "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
    "kind": "SelfNodeRemediationTemplate",
    "metadata": {"name": "auto"},
    "spec": {"template": {"spec": {}}},
}
PATHS = [
    *(
        (base, path)
        for base in (MHC, CAPI_V1BETA1, CAPI_V1BETA2, NHC)
        for path in ("metadata", "metadata.annotations", "spec", "spec.selector", "spec.selector.matchLabels",
                     "spec.selector.matchExpressions", "spec.unhealthyConditions", "spec.maxUnhealthy", "spec.checks",
                     "spec.checks.unhealthyMachineConditions", "spec.remediation", "spec.remediation.triggerIf",
                     "spec.nodeStartupTimeout", "spec.remediationTemplate", "spec.escalatingRemediations",
                     "spec.clusterName", "spec.minHealthy")
    ),
    *((MACHINE, path) for path in ("metadata", "metadata.annotations", "metadata.ownerReferences", "spec.lifecycleHooks",
                                   "spec.lifecycleHooks.preDrain", "status", "status.nodeRef")),
    *((MACHINE_SET, path) for path in ("metadata", "spec", "spec.replicas", "spec.selector", "spec.template",
                                       "spec.template.metadata.labels", "spec.deletePolicy")),
    *((TEMPLATE, path) for path in ("spec", "spec.template.spec", "spec.template.spec.remediationStrategy")),
]  # fmt: skip
RICH = Snapshot(
    [Object(data) for data in (MHC, CAPI_V1BETA1, NHC, HANDLER)]
    + [
        Object(
            {
                "apiVersion": group,
                "kind": "Machine",
                "metadata": {"name": "m", "namespace": namespace, "labels": {"pool": "blue"}},
            }
        )
        for group, namespace in (
            ("machine.openshift.io/v1beta1", "openshift-machine-api"),
            ("cluster.x-k8s.io/v1beta1", "tenants"),
        )
    ]
)


@settings(max_examples=300)
@given(st.sampled_from(PATHS), JSON, st.sampled_from([NOTHING, RICH]))
def test_no_rule_raises(location, value, cluster):
    base, path = location
    data = changed(base, path, value)
    review(data, cluster=cluster, kind=kinds.of(Object(base)))
    review(base, data, cluster=cluster)
    review(data, base, cluster=cluster, kind=kinds.of(Object(base)))
