"""The problems that a rule finds in a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.policy import parser
from virt_admit.reports.explain import judged_rules
from virt_admit.rules import Rules, listed_rules


def finder(cluster: Cluster) -> Callable[[str], Collection[str] | None]:
    """Return a function from the id of a rule to the ids of the problems that it finds; None:
    there is no such rule.
    """

    def of_rule(rule_id: str) -> Collection[str] | None:
        rule = listed_rules().by_id.get(rule_id)
        if rule is None:
            return None
        rules = Rules((rule,))
        objects = [obj for kind in rule.kinds for obj in cluster.known(kind)]
        judged = judged_rules.judge(objects, rules, cluster, parser.load("audit", listed_rules()))
        return frozenset(found.problem for found in judged if found.problem is not None)

    return of_rule
