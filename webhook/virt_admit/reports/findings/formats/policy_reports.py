"""The report formats OpenReports and PolicyReport (its predecessor),
which other cluster tools read.

One report for each object, named by its uid and owned by it, so that the garbage collector deletes
it with the object.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import cut
from virt_admit.model.sanitize import line
from virt_admit.reports.findings.report import ObjectResult, Report, ReportRow, identity, rows_of
from virt_admit.rule import Action

SOURCE: Final = "virt-admit"
MANAGED: Final = {"app.kubernetes.io/managed-by": SOURCE}
"""The labels of the reports that virt-admit writes."""

OUTCOMES: Final = ("fail", "warn", "error", "skip", "pass")
"""Worst first, the order of results in a report."""
MAX_RESULTS: Final = 500
"""Maximum number of results in one report. The summary counts all results."""
MAX_SIZE: Final = 1_200_000
"""Bytes of the results in one report, because etcd limits objects to 1.5 MiB."""
_FEW: Final = 100
"""Results that fit, whatever their texts are: three of ``MAX_MESSAGE`` characters,
with 4 bytes each.
"""
MAX_MESSAGE: Final = 1024
"""Maximum length of a message in characters."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Format:
    """The kinds of report about namespaced and about cluster-scoped objects."""

    namespaced: Kind
    cluster: Kind

    def kind(self, namespaced: bool) -> Kind:
        return self.namespaced if namespaced else self.cluster


OPENREPORTS: Final = Format(
    Kind("openreports.io", ("v1alpha1",), "reports", "Report"),
    Kind("openreports.io", ("v1alpha1",), "clusterreports", "ClusterReport", namespaced=False),
)
POLICYREPORT: Final = Format(
    Kind("wgpolicyk8s.io", ("v1alpha2",), "policyreports", "PolicyReport"),
    Kind(
        "wgpolicyk8s.io",
        ("v1alpha2",),
        "clusterpolicyreports",
        "ClusterPolicyReport",
        namespaced=False,
    ),
)
WRITTEN: Final = {"openreports": OPENREPORTS, "policyreport": POLICYREPORT}


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """The result of one rule for one field."""

    outcome: str
    """One of ``OUTCOMES``."""
    rule: str
    severity: str
    """high, medium or low."""
    message: str = ""
    path: str = ""
    fix: str = ""
    """The remedy in words."""

    @property
    def order(self) -> tuple[Any, ...]:
        return OUTCOMES.index(self.outcome), self.rule, self.path, self.message


@dataclass(frozen=True, slots=True)
class Subject:
    """One object with its results. It has no report if no rule ran."""

    obj: Object
    namespaced: bool
    results: Sequence[PolicyResult]


def render(form: Format, run: Report) -> str:
    """Return the reports as one List in JSON, for ``kubectl apply -f -``.

    Equal findings give equal bytes.
    """
    subjects = map(subject, run.results)
    items = sorted((report(form, about) for about in subjects if about.results), key=_order)
    data = {"apiVersion": "v1", "kind": "List", "items": items}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def subject(result: ObjectResult) -> Subject:
    """Return the content of the report about one object; what is being deleted has none,
    as it goes with its object.
    """
    kind = result.request.kind
    if result.obj.deleted:
        return Subject(result.obj, kind is None or kind.namespaced, ())
    defaults = {rule.id: rule.action for rule in result.response.evaluated_rules}
    found = [_policy_result(row, defaults) for row in rows_of(result)]
    with_rows = {each.rule for each in found}
    without_rows = (rule for rule in result.response.evaluated_rules if rule.id not in with_rows)
    passed = [PolicyResult("pass", rule.id, _SEVERITY[rule.action]) for rule in without_rows]
    return Subject(result.obj, kind is None or kind.namespaced, (*found, *passed))


_SEVERITY: Final = {
    Action.DENY: "high",
    Action.WARN: "medium",
    Action.AUDIT: "low",
    Action.OFF: "low",
}
"""The values that older definitions of PolicyReport accept."""
_OUTCOME: Final = {
    Action.DENY: "fail",
    Action.WARN: "warn",
    Action.AUDIT: "warn",
    Action.OFF: "skip",
}


def _policy_result(row: ReportRow, defaults: Mapping[str, Action]) -> PolicyResult:
    """Return the result for a row. ``defaults``: the action of each rule without a policy."""
    if row.error:
        outcome = "error"
    elif row.unseen or row.exempted or row.action is None:
        outcome = "skip"
    else:
        outcome = "pass" if row.fixed else _OUTCOME[row.action]
    severity = _SEVERITY[row.action or defaults.get(row.rule, Action.OFF)]
    return PolicyResult(outcome, row.rule, severity, row.display_message, str(row.path), row.remedy)


def _order(item: dict[str, Any]) -> tuple[str, ...]:
    scope = item["scope"]
    place = scope["kind"], scope.get("namespace", ""), scope["name"]
    return *place, scope["apiVersion"], item["metadata"]["name"]


def report(form: Format, subject: Subject, seconds: int | None = None) -> dict[str, Any]:
    """Return the report about one object, with a timestamp if ``seconds`` since 1970 are given."""
    obj = subject.obj
    counts = Counter(result.outcome for result in subject.results)
    results = sorted(subject.results, key=lambda result: result.order)[:MAX_RESULTS]
    kind = form.kind(subject.namespaced)
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": _metadata(obj),
        "scope": reference(obj),
        "summary": {outcome: counts[outcome] for outcome in OUTCOMES},
        "results": list(_that_fit([_result_data(result, seconds) for result in results])),
    }


def _that_fit(results: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the first results, as many as etcd stores."""
    size = 0
    for number, result in enumerate(results):
        if len(results) > _FEW:
            size += len(json.dumps(result, ensure_ascii=False).encode())
        if size > MAX_SIZE and number >= _FEW:
            return
        yield result


def _metadata(obj: Object) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name(obj), "labels": dict(MANAGED)}
    if obj.namespace:
        metadata["namespace"] = line(obj.namespace)
    if uid(obj):
        owner = {key: value for key, value in reference(obj).items() if key != "namespace"}
        metadata["ownerReferences"] = [owner]
    return metadata


def name(obj: Object) -> str:
    """Return the name of the report about an object: its uid, or in files a digest of group, kind,
    namespace and name.
    """
    key = "/".join((obj.group, obj.kind, obj.namespace, obj.name))
    return uid(obj) or hashlib.sha256(key.encode(errors="replace")).hexdigest()[:32]


def uid(obj: Object) -> str:
    """Return the uid that the API server gave an object. Empty in files."""
    text = obj.metadata["uid"].text or ""
    return text if _NAME.fullmatch(text) else ""


def reference(obj: Object) -> dict[str, str]:
    """Return an ObjectReference, without empty fields."""
    fields = {**identity(obj), "uid": uid(obj)}
    needed = ("apiVersion", "kind", "name")
    return {key: line(value) for key, value in fields.items() if value or key in needed}


def _result_data(result: PolicyResult, seconds: int | None) -> dict[str, Any]:
    properties = {"path": result.path, "fix": result.fix}
    data: dict[str, Any] = {
        "source": SOURCE,
        "policy": result.rule,
        "result": result.outcome,
        "severity": result.severity,
        "message": cut(line(result.message), MAX_MESSAGE),
        "properties": {
            key: cut(line(value), MAX_MESSAGE) for key, value in properties.items() if value
        },
        "timestamp": None if seconds is None else {"seconds": seconds, "nanos": 0},
    }
    return {key: value for key, value in data.items() if value}
