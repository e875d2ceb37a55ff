"""The level of Pod Security that forbade a pod, and that of its namespace now."""

import pytest

from tests.builders import manifest
from virt_admit.model.evidence import forbidden_pods
from virt_admit.model.evidence.forbidden_pods import ForbiddenPod
from virt_admit.model.kubernetes.cluster import Snapshot


@pytest.mark.parametrize(
    ("now", "said", "lower"),
    [
        ("privileged", "restricted", True),
        ("privileged", "baseline", True),
        ("baseline", "restricted", True),
        ("baseline", "baseline", False),
        ("restricted", "baseline", False),
    ],
)
def test_a_level_that_is_lower_now_forbids_nothing(now, said, lower):
    labels = {"pod-security.kubernetes.io/enforce": now}
    cluster = Snapshot([manifest("v1", "Namespace", "x", metadata={"labels": labels})], ["*"])
    found = forbidden_pods.level("x", ForbiddenPod("p", f"{said}:latest", ""), cluster)
    assert found.startswith(f"Pod Security {said} forbade") is lower
