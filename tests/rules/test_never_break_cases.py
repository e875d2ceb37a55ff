"""The hazards that every rule can bring: each case of each rule, through the whole engine with
every rule and policy.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.never_break import never_break
from tests.rule_cases import rule_cases
from tests.rules.cases import place
from tests.rules.never_break_world import ALL, DEFAULT, RULES, ask, over, silent
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import NOTHING
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances.migratability import BRIDGE_OPT_IN
from virt_admit.policy.parser import load

STRICT = load("strict", ALL)

BY_RELEASE = ("vm-run-strategy-unknown", "vm-eviction-strategy-unknown")
"""Only a KubeVirt that says it is newer than known softens these;
a release that is not known is the newest known.
"""


@never_break("vm", 5)
@never_break("vm", 12)
@never_break("health", 4)
@never_break("health", 5)
@never_break("health", 8)
@pytest.mark.parametrize("rule_id", [*RULES.by_id])
def test_no_case_of_the_rule_breaks_a_cluster(rule_id: str) -> None:
    for case in rule_cases()[rule_id]:
        if kinds.of(Object(case["object"])):
            for hazard in hazards(rule_id, case):
                pytest.fail(f"{place(ALL.by_id[rule_id], case)}: {hazard}", pytrace=False)


def hazards(rule_id: str, case: dict[str, Any]) -> Iterator[str]:
    """Yield what the webhook must never do and does with the object of this case."""
    obj, cluster = case["object"], over(case)
    creation = "old" not in case and "operation" not in case and rule_id not in BY_RELEASE
    if creation and not ask(obj, over=NOTHING)["allowed"] and ask(obj, over=cluster)["allowed"]:
        yield "the object is denied only while the cluster cannot be read. Let Unseen pass"
    going = {
        **obj,
        "metadata": {**obj.get("metadata", {}), "deletionTimestamp": "2026-01-01T00:00:00Z"},
    }
    if not ask(None, obj, operation="DELETE", over=cluster)["allowed"]:
        yield "the deletion of the object is denied. Deletions lead to warnings at most"
    if not silent(going, going | {"spec": {}}, over=cluster):
        yield "an object that is being deleted cannot be changed"
    for policy in (DEFAULT, STRICT):
        if not ask(edited_elsewhere(obj), obj, over=cluster, policy=policy)["allowed"]:
            yield (
                "an edit of something else is denied. Give the finding the value that was there "
                "before, in value="
            )


def edited_elsewhere(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object paused, labelled and annotated,
    with changes of the spec so that it is judged again.
    """
    new = copy.deepcopy(obj)
    metadata = new.setdefault("metadata", {})
    for key in ("labels", "annotations"):
        metadata[key] = {
            **(metadata.get(key) or {}),
            "cluster.x-k8s.io/paused": "",
            BRIDGE_OPT_IN: "",
        }
    if isinstance(obj.get("spec"), dict):
        new["spec"] |= {
            "updateVolumesStrategy": "Migration",
            "pauseRequests": ["maintenance window"],
        }
    return new
