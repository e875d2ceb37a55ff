"""Reports for the tests of the formats."""

from __future__ import annotations

from tests.https.reviews import vm
from virt_admit.engine.admission_review import Response
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy import parser
from virt_admit.reports.findings.judging import judge
from virt_admit.reports.findings.report import Report
from virt_admit.rules import load_rules

RULES = load_rules()


RULE = "vm-running-and-run-strategy"


DEPRECATED = "vm-running-deprecated"


def scanned(*objects, text=b"{}"):
    """A report about objects that are not from a file."""
    return judge(
        Snapshot(map(Object, objects), complete=["*"]), (VM,), RULES, parser.parse(text, RULES)
    )


def both_keys(**metadata):
    obj = vm("db", "shop", running=True, runStrategy="Always")
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


def unclear(error=""):
    """A report of a rule without data, or of a rule that crashed."""
    (one,) = scanned(both_keys()).results
    rule = RULES.by_id[RULE]
    said = Response(errors=((rule, error),)) if error else Response(unseen=((rule, "pods a/b"),))
    return Report((one._replace(response=said._replace(evaluated_rules=(rule,))),))
