"""The remediation plan of a health check: limits, unhealthy objects, obstacles and steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.for_each import for_each
from tests.health_checks import (
    CAPI,
    FAR,
    MHC,
    NHC,
    SNR,
    capi,
    ladder,
    machine,
    make,
    mhc,
    nhc,
    node,
    template,
)
from virt_admit.forecasts.remediation import inactive_reasons, remediation_steps, unhealthy_objects
from virt_admit.forecasts.remediation.remediation_steps import Budget
from virt_admit.model.kubernetes.cluster import NOTHING, Snapshot, Unseen
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.model.remediation import check_scope, health_checks


def of(check, *objects, complete=("*",)):
    cluster = Snapshot(objects, complete=complete)
    view = health_checks.view(check)
    return view, check_scope.selected_by(view, cluster), cluster


def budget(check, *objects, complete=("*",)):
    view, selection, _ = of(check, *objects, complete=complete)
    return remediation_steps.budget(view, selection)


def nodes(count):
    return [node(f"n{number}") for number in range(count)]


def machines(count, api_version=MHC, namespace="openshift-machine-api"):
    return [machine(f"m{number}", api_version, namespace) for number in range(count)]


# --- how many may be unhealthy --------------------------------------------------------------------

TABLE = """
        4          8          9          12         15         20
10%     0/1/3      0/1/7      0/1/8      1/2/10     1/2/13     2/2/18
25%     1/1/3      2/2/6      2/3/6      3/3/9      3/4/11     5/5/15
30%     1/2/2      2/3/5      2/3/6      3/4/8      4/5/10     6/6/14
40%     1/2/2      3/4/4      3/4/5      4/5/7      6/6/9      8/8/12
49%     1/2/2      3/4/4      4/5/4      5/6/6      7/8/7      9/10/10
70%     2/3/1      5/6/2      6/7/2      8/9/3      10/11/4    14/14/6
"""
"""Allowed unhealthy objects: maxUnhealthy of a MachineHealthCheck / of a NodeHealthCheck /
minHealthy of the latter.
"""


def rows():
    header, *lines = TABLE.strip().splitlines()
    for line in lines:
        percent, *cells = line.split()
        for total, cell in zip(header.split(), cells, strict=True):
            yield pytest.param(
                percent, int(total), *map(int, cell.split("/")), id=f"{percent} of {total}"
            )


@for_each("percent, total, floor, ceiling, rest", list(rows()))
def test_rounding_of_each_kind(percent, total, floor, ceiling, rest):
    assert budget(mhc(maxUnhealthy=percent), *machines(total)).most == floor
    assert budget(capi(maxUnhealthy=percent), *machines(total, CAPI, "c")).most == floor
    assert budget(nhc(maxUnhealthy=percent), *nodes(total)).most == ceiling
    assert budget(nhc(minHealthy=percent), *nodes(total)).most == rest


@pytest.mark.parametrize(
    ("check", "objects", "expected"),
    [
        (mhc(maxUnhealthy="3"), machines(5), Budget("maxUnhealthy 3", 5, 3)),
        (mhc(), machines(5), Budget("maxUnhealthy 100%", 5, 5)),
        (mhc(maxUnhealthy=-1), machines(5), Budget("maxUnhealthy -1", 5, None)),
        (capi(maxUnhealthy="3"), machines(5, CAPI, "c"), Budget("maxUnhealthy '3'", 5, None)),
        (
            capi(unhealthyRange="[2-4]", maxUnhealthy=1),
            machines(5, CAPI, "c"),
            Budget("unhealthyRange [2-4]", 5, 4, 2),
        ),
        (
            capi(unhealthyRange="[4-2]"),
            machines(5, CAPI, "c"),
            Budget("unhealthyRange [4-2]", 5, None),
        ),
        (nhc(minHealthy=2), nodes(4), Budget("minHealthy 2", 4, 2)),
        (nhc(maxUnhealthy=5), nodes(4), Budget("maxUnhealthy 5", 4, 0)),
        (nhc(maxUnhealthy="3"), nodes(4), Budget("maxUnhealthy '3'", 4, None)),
    ],
)
def test_budget(check, objects, expected):
    assert budget(check, *objects) == expected


@for_each(
    "check, most, never, everything",
    [
        (mhc(maxUnhealthy=2), 2, False, False),
        (mhc(maxUnhealthy="40%"), None, False, False),
        (mhc(maxUnhealthy="0%"), None, True, False),
        (mhc(maxUnhealthy="all"), None, False, False),
        (mhc(), None, False, True),
        (nhc(maxUnhealthy=2), 2, False, False),
        (nhc(minHealthy=2), None, False, False),
        (nhc(minHealthy="51%"), None, False, False),
        (nhc(minHealthy="100%"), None, True, False),
        (nhc(minHealthy="0%"), None, False, True),
    ],
)
def test_budget_of_an_incomplete_cluster(check, most, never, everything):
    found = budget(check, *machines(3), *nodes(3), complete=())
    assert (found.total, found.most) == (None, most)
    assert (found.never, found.everything) == (never, everything)


@for_each(
    "budget, never, everything",
    [
        (Budget("", 4, 2), False, False),
        (Budget("", 4, 0), True, False),
        (Budget("", 4, 4), False, True),
        (Budget("", 0, 0), False, False),
        (Budget("", None, 0), True, False),
        (Budget("", None, None), False, False),
        (Budget("", 4, 3, 3), False, False),
        (Budget("", 2, 6, 5), True, False),
        (Budget("", 2, 6, 2), False, True),
        (Budget("", None, 6, 5), False, False),
        (Budget("", 4, 0, 0), True, False),
    ],
)
def test_budget_never_and_everything(budget, never, everything):
    assert (budget.never, budget.everything) == (never, everything)


# --- what keeps it from acting --------------------------------------------------------------------

HANDLER = mhc(
    "handler", unhealthyConditions=[{"type": "Terminating", "status": "True", "timeout": "0s"}]
)


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ([], []),
        ([HANDLER], []),
        ([mhc("custom")], ["custom"]),
        ([HANDLER, mhc("custom")], ["custom"]),
        ([HANDLER, make(MHC, "MachineHealthCheck", "second", "elsewhere",
                        spec=HANDLER.data["spec"])],
         ["handler", "second"]),
        ([capi()], []),
    ],
)  # fmt: skip
def test_conflicting_checks(checks, expected):
    found = remediation_steps.conflicting(Snapshot(checks, complete=["*"]))
    assert sorted(check.name for check in found) == sorted(expected)


def test_unseen_conflicting_checks():
    assert remediation_steps.conflicting(Snapshot([mhc("custom")]))
    with pytest.raises(Unseen):
        remediation_steps.conflicting(Snapshot([HANDLER]))


def snr_template():
    return make(SNR, "SelfNodeRemediationTemplate", "auto", "wa", spec={"template": {"spec": {}}})


# --- the steps ------------------------------------------------------------------------------------


def test_steps_are_sorted_by_order():
    check = ladder((20, "10m", FAR), (5, "4m", SNR), (30, "never", "r/v1"))
    assert [step.order.integer for step in remediation_steps.escalation(check)] == [20, 5, 30]
    first, second, third = remediation_steps.steps(health_checks.view(check))
    assert (first.remediator, first.name, first.known_timeout) == (
        "SelfNodeRemediation",
        "wa/auto",
        240 * SECOND,
    )
    assert second.remediator == "FenceAgentsRemediation"
    assert (third.kind, third.known_timeout) == (None, None)
    with pytest.raises(Unseen):
        third.template(Snapshot(complete=["*"]))


def test_every_remediator_that_a_check_mentions():
    both = health_checks.view(
        nhc(
            remediationTemplate=template(),
            escalatingRemediations=[{"remediationTemplate": template(FAR)}, {"order": 5}, None],
        )
    )
    assert [str(step.reference.path) for step in remediation_steps.mentioned(both)] == [
        "spec.remediationTemplate",
        "spec.escalatingRemediations[0].remediationTemplate",
    ]
    assert remediation_steps.mentioned(health_checks.view(mhc())) == ()


def test_templates_of_an_unknown_kind_are_found():
    (step,) = remediation_steps.steps(health_checks.view(nhc(remediationTemplate=template("r/v1"))))
    found = make("r/v1", "RTemplate", "auto", "wa")
    assert step.template(Snapshot([found])) is found
    assert list(step.templates(Snapshot([found], complete=["*"]))) == [found]
    with pytest.raises(Unseen, match="RTemplate wa/auto"):
        step.template(Snapshot(complete=["*"]))
    with pytest.raises(Unseen, match=r"rtemplates\.r"):
        list(step.templates(NOTHING))


def test_a_single_template_is_the_only_step():
    (step,) = remediation_steps.steps(
        health_checks.view(
            nhc(remediationTemplate=template(), escalatingRemediations=[{"order": 1}])
        )
    )
    assert str(step.reference.path) == "spec.remediationTemplate"
    assert step.refers_to(snr_template())
    assert not step.refers_to(make(SNR, "SelfNodeRemediationTemplate", "auto", "elsewhere"))
    assert not step.refers_to(make("other/v1", "SelfNodeRemediationTemplate", "auto", "wa"))


@pytest.mark.parametrize(
    ("kind", "objects", "least", "most"),
    [
        (SNR, [], 180, 180),
        (FAR, [make(FAR, "FenceAgentsRemediationTemplate", "auto", "wa")], 0, 320),
        (FAR, [], 0, None),
        ("r/v1", [], 0, None),
    ],
)
def test_duration_of_a_step(kind, objects, least, most):
    (step,) = remediation_steps.steps(health_checks.view(nhc(remediationTemplate=template(kind))))
    found = remediation_steps.takes(step, Snapshot(objects, complete=["*"]))
    assert found == (least * SECOND, None if most is None else most * SECOND)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    ["selector", "minHealthy", "maxUnhealthy", "unhealthyConditions", "remediationTemplate",
     "escalatingRemediations",
     "pauseRequests", "unhealthyRange", "clusterName", "nodeStartupTimeout"]
)  # fmt: skip


@given(st.dictionaries(FIELDS, JSON), st.sampled_from([NHC, MHC, CAPI]))
def test_malformed_checks_raise_nothing(spec, api_version):
    kind = "NodeHealthCheck" if api_version == NHC else "MachineHealthCheck"
    check = make(api_version, kind, "odd", spec=spec)
    view, selection, cluster = of(check, *nodes(2), *machines(2), check)
    found = remediation_steps.budget(view, selection)
    assert found.most is None or found.most >= 0
    unhealthy = [
        target
        for target in unhealthy_objects.unhealthy(view, selection, cluster)
        if not isinstance(target, Unseen)
    ]
    list(inactive_reasons.obstacles(view, selection, unhealthy, cluster))
    assert {step.known_timeout for step in remediation_steps.steps(view)} <= {None}
