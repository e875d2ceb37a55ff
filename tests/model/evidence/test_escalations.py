"""Roles that the API server forbids to write, as its message tells the missing rules."""

from virt_admit.model.evidence.writes import escalations
from virt_admit.model.kubernetes.cluster import NOTHING

SAID = (
    'user "system:serviceaccount:kubevirt:kubevirt-operator" (groups=["x"]) is attempting to grant '
    "RBAC permissions not currently held:\n"
)


def rule(*parts):
    quoted = [" ".join(f'"{each}"' for each in part) for part in parts]
    return "{{APIGroups:[{}], Resources:[{}], Verbs:[{}]}}".format(*quoted)


def test_each_combination_of_a_rule_is_missing():
    found = escalations.of(SAID + rule(["a"], ["vms", "vmis"], ["get", "list"]), NOTHING)
    assert found is not None
    assert found.rules == "get vms, list vms, get vmis, list vmis"


def test_a_rule_with_many_parts_is_not_multiplied():
    many = [f"x{number}" for number in range(150)]
    found = escalations.of(SAID + rule(many, many, many), NOTHING)
    assert found is not None
    assert len(found.missing) <= 200
