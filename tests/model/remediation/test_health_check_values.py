"""Findings for every kind of value in every field of a health check."""

import pytest

from tests.for_each import for_each
from tests.model.remediation.health_check_reviews import (
    CAPI_V1BETA1,
    CAPI_V1BETA2,
    MHC,
    NHC,
    READY,
    changed,
    verdicts,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import health_checks

STARTUP, TOO_SHORT = "mhc-node-startup-timeout-invalid", "mhc-node-startup-timeout-too-short"
TOO_LONG, LIMIT = "mhc-node-startup-timeout-too-long", "mhc-max-unhealthy-invalid"
TIME, INCOMPLETE = "condition-timeout-invalid", "condition-incomplete"
STATUS, TYPE, HEALTHY = (
    "condition-status-unknown-value",
    "condition-type-misspelled",
    "condition-matches-healthy-state",
)
PAIR, EMPTY, SELECTOR = (
    "condition-ready-incomplete-pair",
    "mhc-selector-empty",
    "mhc-selector-invalid",
)
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
        -1, -2147483648, 2147483648, 4294967295, 10**30, "101%", "150%", "-1", "-1%", "+1", "1.5",
        "²%", "٤%", "40%\n",
        " 40%", "40 %", "%", "", "40%%", "33.3%", "1e1", "0x1", "1_0", "abcdef",
        "99999999999999999999", "10" * 2000,
        1.5, True, [], {}, [1], {"a": 1},
    ),
]  # fmt: skip
DIGITS = [
    *rows(set(), "3", "007", "2147483647"),
    *rows({("warn", ZERO)}, "0", "00"),
    *rows({("deny", LIMIT)}, "2147483648"),
]


@for_each("value, expected", [*LIMITS, *DIGITS, ("005%", {("deny", LIMIT)})])
def test_max_unhealthy_of_openshift(value, expected):
    assert verdicts(changed(MHC, "spec.maxUnhealthy", value)) == expected


@for_each(
    "value, expected",
    [*LIMITS, *rows({("deny", LIMIT)}, *(row.values[0] for row in DIGITS)), ("005%", set())],
)
def test_max_unhealthy_of_cluster_api(value, expected):
    assert verdicts(changed(CAPI_V1BETA1, "spec.maxUnhealthy", value)) == expected
    in_v1beta2 = changed(
        CAPI_V1BETA2, "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", value
    )
    # without the null, triggerIf has no field
    empty = {("deny", "capi-mhc-field-empty")} if value is None else set()
    assert verdicts(in_v1beta2) == expected | empty


STARTUPS = [
    *rows(set(), "5m", "300s", "10m0s", "0.5h", "1h30m", "600000ms", "2h", "5m0.000000001s", "+10m",
          None),
    *rows(set(), "0", "0s", "-0s", "0h0m"),
    *rows({("warn", TOO_SHORT)}, "30s", "4m59.999s", "1m1m", "30000ms"),
    *rows({("deny", TOO_SHORT)}, "29s", "29.999999999s", "1ns", "500ms", "1us", "1µs"),
    *rows({("warn", TOO_LONG)}, "2h1ns", "24h", "2562047h47m16.854775807s"),
    *rows(
        {("deny", STARTUP)},
        "-5m", "-0.5h", "abc5m", "0abc", "00", "9999999h", "2562047h47m16.854775808s", "1d", "5",
        "", "5m\n", "5m ",
        " 5m", "5 m", "5M", "5min", "5sec", "٥m", "²m", "1e3s", "1_0m", "0x5m", "five minutes",
        "1:30", "∞", "nan",
        "5m" * 100_000, 0, 300, -5, 10**30, 5.0, True, [], {}, ["5m"],
    ),
]  # fmt: skip


@for_each("value, expected", STARTUPS)
def test_startup_of_openshift_and_of_cluster_api(value, expected):
    assert verdicts(changed(MHC, "spec.nodeStartupTimeout", value)) == expected
    assert verdicts(changed(CAPI_V1BETA1, "spec.nodeStartupTimeout", value)) == expected


@for_each(
    "value, expected",
    [
        *rows(set(), 0, 300, 7200, None),
        *rows({("warn", TOO_SHORT)}, 30, 299),
        *rows({("deny", TOO_SHORT)}, 1, 29),
        *rows({("warn", TOO_LONG)}, 7201, 2147483647),
        *rows(
            {("deny", STARTUP)}, -1, -60, 2147483648, 10**30, "10m", "600", "", 600.5, True, [], {}
        ),
    ],
)
def test_startup_in_seconds(value, expected):
    assert (
        verdicts(changed(CAPI_V1BETA2, "spec.checks.nodeStartupTimeoutSeconds", value)) == expected
    )


SHORT, LONG = "condition-timeout-too-short", "condition-timeout-too-long"
TIMES = [
    *rows(set(), "60s", "1m", "5m", "1h", "300s", "3600s", "0.1h", "1m0.5s", "60000ms"),
    *rows({("warn", SHORT)}, "10s", "59.9s", "10000ms"),
    *rows({("deny", SHORT)}, "0s", "9.999s", "1ns", "0h"),
    *rows({("warn", LONG)}, "1h1ns", "61m", "24h"),
    *rows(
        {("deny", TIME)},
        "-5m", "abc5m", "0abc", "00", "9999999h", "1d", "5", "", "5m\n", "5 m", "٥m", "²m", "1e3s",
        "1:30", "5m" * 100_000,
        300, 300.0, 0, -5, True, [], {},
    ),
    *rows({("deny", INCOMPLETE)}, None),
]  # fmt: skip


@for_each("value, expected", [*TIMES, *rows({("deny", TIME)}, "0", "+5m", ".1h")])
def test_times_of_openshift_and_of_node_health_checks(value, expected):
    assert verdicts(changed(MHC, "spec.unhealthyConditions.0.timeout", value)) == expected
    ready = [
        {"type": "Ready", "status": entry["status"], "duration": entry["timeout"]}
        for entry in READY
    ]
    nhc = changed(NHC, "spec.unhealthyConditions", ready)
    assert verdicts(changed(nhc, "spec.unhealthyConditions.1.duration", value)) == expected


@for_each("value, expected", [*TIMES, *rows({("deny", SHORT)}, "0"), *rows(set(), "+5m", ".1h")])
def test_times_of_cluster_api(value, expected):
    assert verdicts(changed(CAPI_V1BETA1, "spec.unhealthyConditions.0.timeout", value)) == expected


@for_each(
    "value, expected",
    [
        *rows(set(), 60, 300, 3600),
        *rows({("warn", LONG)}, 3601, 2147483647),
        *rows({("warn", SHORT)}, 10, 59),
        *rows({("deny", SHORT)}, 0, 9),
        *rows({("deny", TIME)}, -1, 2147483648, "300", "300s", "", 300.5, True, [], {}),
    ],
)
def test_times_in_seconds(value, expected):
    assert (
        verdicts(
            changed(CAPI_V1BETA2, "spec.checks.unhealthyNodeConditions.0.timeoutSeconds", value)
        )
        == expected
    )


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
    assert verdicts(changed(base, f"{path}.status", value)) == {
        ("deny", INCOMPLETE),
        ("warn", PAIR),
    }


@for_each(
    "entry, expected",
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
        (
            {"type": "memorypressure", "status": "true", "timeout": "5m"},
            {("deny", TYPE), ("warn", STATUS)},
        ),
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
        (
            {"type": "Ready", "status": "False", "timeout": "6m", "extra": 1},
            {("warn", "condition-duplicate")},
        ),
    ],
)
def test_an_additional_entry(entry, expected):
    assert verdicts(changed(MHC, "spec.unhealthyConditions", [*READY, entry])) == set(expected)


@pytest.mark.parametrize("value", [None, ..., [], {}, "Ready", 5, True])
def test_values_that_are_not_lists(value):
    assert verdicts(changed(MHC, "spec.unhealthyConditions", value)) == {
        ("deny", "condition-list-missing")
    }
    # the schema of Cluster API allows an empty list
    wrong = value is not ... and value not in (None, [])
    capi = verdicts(changed(CAPI_V1BETA1, "spec.unhealthyConditions", value))
    assert capi == ({("deny", "condition-incomplete")} if wrong else set())
    nhc = changed(NHC, "spec.unhealthyConditions", None if value is ... else value)
    assert verdicts(nhc) == (
        {("deny", "condition-list-missing")} if value not in (None, ...) else set()
    )


@for_each(
    "selector, expected",
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
        (
            {"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]},
            {("deny", SELECTOR)},
        ),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, {("deny", SELECTOR)}),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]},
            {("deny", SELECTOR)},
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            {("deny", SELECTOR)},
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
            {("deny", SELECTOR)},
        ),
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


@for_each("value, expected", [
        *rows(set(), "[1-2]", "[1-4294967295]", None),
        *rows({("warn", "capi-mhc-unhealthy-range-never")}, "[0-0]"),
        *rows(
            {("deny", RANGE)},
            "[2-1]", "[1-4294967296]", "1-2", "[1-2", "[1 - 2]", "[-1-2]", "[1-]", "[1-2]\n",
            "[١-٢]", "", "[1-2-3]",
            5, True, [1, 2], {},
        ),
    ])  # fmt: skip
def test_ranges_of_cluster_api(value, expected):
    assert verdicts(changed(CAPI_V1BETA1, "spec.unhealthyRange", value)) == set(expected)
    assert verdicts(
        changed(CAPI_V1BETA2, "spec.remediation.triggerIf.unhealthyInRange", value)
    ) == set(expected)


@pytest.mark.parametrize(
    ("old", "expected"), [("a", set()), ("b", {("deny", NAME)}), (None, {("deny", NAME)})]
)
def test_cluster_name_is_immutable(old, expected):
    after = changed(CAPI_V1BETA2, "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", 2)
    assert verdicts(after, changed(CAPI_V1BETA2, "spec.clusterName", old)) == expected


def test_fields_of_the_older_version_are_not_read_in_the_newer():
    """The API server drops them, so the check only watches the start-up."""
    spec = {key: value for key, value in CAPI_V1BETA1["spec"].items() if key != "maxUnhealthy"}
    older = {**CAPI_V1BETA2, "spec": {**spec, "nodeStartupTimeout": "1s", "maxUnhealthy": "no"}}
    assert verdicts(older) == {("warn", UNLIMITED), ("warn", "capi-mhc-field-wrong-version")}
