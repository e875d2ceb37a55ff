"""A text that is a variable in a file is a wrong value in a cluster."""

from virt_admit.engine import review
from virt_admit.engine.admission_review import Request
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy.policy import Policy
from virt_admit.rule import Operation
from virt_admit.rules import load_rules

CHECK = Object(
    {
        "apiVersion": "remediation.medik8s.io/v1alpha1",
        "kind": "NodeHealthCheck",
        "metadata": {"name": "workers"},
        "spec": {"minHealthy": "${MIN}"},
    }
)
RULE = "nhc-threshold-invalid"


def _ask(has_variables: bool) -> tuple[bool, bool]:
    """Whether the rule complains, and whether it lacks the value."""
    request = Request(
        Operation.CREATE, kinds.of(CHECK), CHECK, name="workers", has_variables=has_variables
    )
    response = review.review(request, load_rules(), Snapshot(), Policy())
    return (
        RULE in {verdict.rule.id for verdict in response.verdicts},
        "the value of ${MIN}" in {what for rule, what in response.unseen if rule.id == RULE},
    )


def test_in_a_file_the_value_is_not_known():
    assert _ask(has_variables=True) == (False, True)


def test_in_a_cluster_the_value_is_wrong():
    assert _ask(has_variables=False) == (True, False)
