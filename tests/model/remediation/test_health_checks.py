"""The common view of the three kinds of health checks."""

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
    READY,
    changed,
)
from virt_admit.model.kubernetes.int_or_percent import IntOrPercent, LimitKind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import HOUR, MINUTE, SECOND
from virt_admit.model.remediation import health_checks


@pytest.mark.parametrize(
    ("base", "conditions", "time", "startup", "limit", "limit_of"),
    [
        (MHC, "spec.unhealthyConditions", "timeout", "spec.nodeStartupTimeout", "spec.maxUnhealthy",
         LimitKind.MACHINE_API),
        (CAPI_V1BETA1, "spec.unhealthyConditions", "timeout", "spec.nodeStartupTimeout",
         "spec.maxUnhealthy",
         LimitKind.CLUSTER_API),
        (CAPI_V1BETA2, "spec.checks.unhealthyNodeConditions", "timeoutSeconds",
         "spec.checks.nodeStartupTimeoutSeconds",
         "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo",
         LimitKind.CLUSTER_API),
        (NHC, "spec.unhealthyConditions", "duration", "", "spec.minHealthy",
         LimitKind.NODE_MIN_HEALTHY),
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
    assert [entry.nanoseconds() for entry in health_checks.view(Object(MHC)).entries()] == [
        5 * MINUTE,
        5 * MINUTE,
    ]
    assert [
        entry.nanoseconds() for entry in health_checks.view(Object(CAPI_V1BETA2)).entries()
    ] == [300 * SECOND, 300 * SECOND]
    assert health_checks.view(Object(CAPI_V1BETA2)).startup_time() == 10 * MINUTE
    assert (
        health_checks.view(Object(changed(MHC, "spec.nodeStartupTimeout", "1.5h"))).startup_time()
        == 3 * HOUR // 2
    )


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


@for_each(
    "base, handler, deliberate",
    [
        (MHC, False, False),
        (HANDLER, True, True),
        (INERT, False, True),
        (HOSTED, False, True),
        (changed(MHC, "spec.unhealthyConditions", []), False, False),
        (
            changed(
                HANDLER,
                "spec.unhealthyConditions",
                [*HANDLER["spec"]["unhealthyConditions"], READY[0]],
            ),
            False,
            False,
        ),
        (
            changed(
                INERT, "spec.unhealthyConditions", [*INERT["spec"]["unhealthyConditions"], READY[0]]
            ),
            False,
            False,
        ),
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
