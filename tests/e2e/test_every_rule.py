"""Every rule that the webhook asks is met by a user who uses kubectl, kind by kind,
or it is said why it cannot be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests import definitions
from tests.apiserver.control_plane import ControlPlane
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
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Rule
from virt_admit.rules import load_rules

TARGETS = {
    target: cases for target, cases in targets().items() if target.kind != OLD_HYPERCONVERGED
}

UNREACHABLE = {
    "capi-mhc-machine-condition-forbidden machinehealthchecks.cluster.x-k8s.io/v1beta1": "Conditions[0].type",  # noqa: E501
    "capi-mhc-machine-condition-forbidden machinehealthchecks.cluster.x-k8s.io/v1beta2": "Conditions[0].type",  # noqa: E501
    "capi-mhc-field-empty machinehealthchecks.cluster.x-k8s.io/v1beta1": (
        "in body should have at least 1"
    ),
    "capi-mhc-field-empty machinehealthchecks.cluster.x-k8s.io/v1beta2": (
        "in body should have at least 1"
    ),
    "cluster-eviction-strategy-invalid hyperconvergeds.hco.kubevirt.io/v1": "Unsupported value",
    "condition-duplicate nodehealthchecks.remediation.medik8s.io": "Duplicate value",
    "condition-incomplete machinehealthchecks.cluster.x-k8s.io/v1beta1": "Required value",
    "condition-incomplete machinehealthchecks.cluster.x-k8s.io/v1beta2": "Required value",
    "condition-incomplete nodehealthchecks.remediation.medik8s.io": "Required value",
    "condition-timeout-invalid machinehealthchecks.cluster.x-k8s.io/v1beta2": "must be of type integer",  # noqa: E501
    "far-parameter-type fenceagentsremediationtemplates.fence-agents-remediation.medik8s.io": "in body must be of type",  # noqa: E501
    (
        "far-status-sample-invalid "
        "fenceagentsremediationtemplates.fence-agents-remediation.medik8s.io"
    ): "Invalid value",
    "mhc-node-startup-timeout-invalid machinehealthchecks.cluster.x-k8s.io/v1beta2": "Invalid value",  # noqa: E501
    # the null is pruned
    "mhc-selector-invalid machinehealthchecks.cluster.x-k8s.io/v1beta2": "mhc-selector-empty",
    (
        "remediation-template-shape "
        "machinedeletionremediationtemplates.machine-deletion-remediation.medik8s.io"
    ): "Required value",
    "remediation-template-shape selfnoderemediationtemplates.self-node-remediation.medik8s.io": "spec.template",  # noqa: E501
    "snrc-field-invalid selfnoderemediationconfigs.self-node-remediation.medik8s.io": " in body ",
}
"""What never comes so far, and the words with which the API server refuses or prunes each of its
cases.
"""

RECENT = {
    "migration-gated-field kubevirts.kubevirt.io": "spec.configuration.migrations.maxDowntimeMs",
    "migration-gated-field migrationpolicies.migrations.kubevirt.io": "spec.experimental",
    "migration-policy-experimental-invalid migrationpolicies.migrations.kubevirt.io": "spec.experimental",  # noqa: E501
}
"""Rules about a field that the definition at hand may not have:
that of an older release prunes it.
"""


@pytest.fixture(scope="module")
def asker(crds: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reach]:
    with reach(crds, tmp_path_factory.mktemp("reach")) as asker:
        asker.kubectl("apply", namespaces([case for cases in TARGETS.values() for case in cases]))
        yield asker


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_it_is_met(asker: Reach, target: Target) -> None:
    words = UNREACHABLE.get(str(target)) or _pruned(target)
    if words is None:
        must_be_met(asker, target.rule, TARGETS[target])
    else:
        must_be_refused(asker, target.rule, TARGETS[target], words)


def _pruned(target: Target) -> str | None:
    """Return how the API server names the field of the rule if the definition at hand does not have
    it.
    """
    field, kind = RECENT.get(str(target)), kinds.of(Object(TARGETS[target][0]["object"]))
    if (
        field is None
        or kind is None
        or definitions.has_field(definitions.of(kind), *field.split("."))
    ):
        return None
    return f'unknown field "{field}"'


def test_none_is_left_out() -> None:
    assert {target.rule for target in targets()} == set(load_rules().at_admission)
    assert {*UNREACHABLE, *RECENT} <= {str(target) for target in TARGETS}


@pytest.mark.parametrize(
    "rule", dict.fromkeys(target.rule for target in TARGETS), ids=lambda rule: rule.id
)
def test_a_rule_that_only_check_can_meet_says_so(rule: Rule) -> None:
    """And no other does."""
    met = [str(target) not in UNREACHABLE for target in TARGETS if target.rule is rule]
    says_so = re.search("[Oo]nly ``(virt-admit )?check``", " ".join((rule.doc or "").split()))
    assert bool(says_so) != any(met)
