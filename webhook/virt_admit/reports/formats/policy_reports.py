"""What a scan found, as other tools of a cluster read it: OpenReports, and PolicyReport, from which it comes.

One report for each object, named by its uid and owned by it, so that it goes away with it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from virt_admit.engine.admission_review import line
from virt_admit.model.kinds import Kind
from virt_admit.model.messages import cut
from virt_admit.model.objects import Object
from virt_admit.reports.report import ObjectResult, Report, ReportRow, rows_of
from virt_admit.rule import Action

SOURCE: Final = "virt-admit"
MANAGED: Final = {"app.kubernetes.io/managed-by": SOURCE}
"""The labels by which we know our own reports again."""

OUTCOMES: Final = ("fail", "warn", "error", "skip", "pass")
"""Worst first, as they stand in a report."""
MOST: Final = 500
"""Results in one report; etcd takes objects up to 1.5 MiB. The summary counts all."""
LONGEST: Final = 1024
"""Characters of a message."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Format:
    """The kind of report about what has a namespace, and about what has none."""

    home: Kind
    cluster: Kind

    def kind(self, namespaced: bool) -> Kind:
        return self.home if namespaced else self.cluster


OPENREPORTS: Final = Format(
    Kind("openreports.io", ("v1alpha1",), "reports", "Report"),
    Kind("openreports.io", ("v1alpha1",), "clusterreports", "ClusterReport", namespaced=False),
)
POLICYREPORT: Final = Format(
    Kind("wgpolicyk8s.io", ("v1alpha2",), "policyreports", "PolicyReport"),
    Kind("wgpolicyk8s.io", ("v1alpha2",), "clusterpolicyreports", "ClusterPolicyReport", namespaced=False),
)
WRITTEN: Final = {"openreports": OPENREPORTS, "policyreport": POLICYREPORT}


@dataclass(frozen=True, slots=True)
class Result:
    """What one rule says at one place."""

    outcome: str
    """One of ``OUTCOMES``."""
    rule: str
    severity: str
    """high, medium or low."""
    message: str = ""
    path: str = ""
    fix: str = ""
    """What to do, in words."""

    @property
    def order(self) -> tuple[Any, ...]:
        return OUTCOMES.index(self.outcome), self.rule, self.path, self.message


@dataclass(frozen=True, slots=True)
class Subject:
    """One object and everything that was said of it; there is no report where nothing was asked."""

    obj: Object
    namespaced: bool
    results: Sequence[Result]


def render(form: Format, result: Report) -> str:
    """The reports as one List in JSON, for ``kubectl apply -f -``. Equal findings give equal bytes."""
    subjects = map(subject, result.judged)
    items = sorted((report(form, each) for each in subjects if each.results), key=_order)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2, ensure_ascii=False) + "\n"


def subject(judged: ObjectResult) -> Subject:
    """What a report about one object says."""
    own = {rule.id: rule.action for rule in judged.asked}
    found = [_outcome(each, own) for each in rows_of(judged)]
    heard = {each.rule for each in found}
    content = (rule for rule in judged.asked if rule.id not in heard)
    passed = [Result("pass", rule.id, _SEVERITY[rule.action]) for rule in content]
    kind = judged.request.kind
    return Subject(judged.obj, kind is None or kind.namespaced, (*found, *passed))


_SEVERITY: Final = {Action.DENY: "high", Action.WARN: "medium", Action.AUDIT: "low", Action.OFF: "low"}
"""Older definitions of PolicyReport know no other words."""
_OUTCOME: Final = {Action.DENY: "fail", Action.WARN: "warn", Action.AUDIT: "warn", Action.OFF: "skip"}


def _outcome(said: ReportRow, own: Mapping[str, Action]) -> Result:
    """``own``: what each rule leads to out of the box."""
    if said.error:
        outcome = "error"
    elif said.unseen or said.exempted or said.action is None:
        outcome = "skip"
    else:
        outcome = "pass" if said.fixed else _OUTCOME[said.action]
    severity = _SEVERITY[said.action or own.get(said.rule, Action.OFF)]
    return Result(outcome, said.rule, severity, said.said, str(said.path), said.remedy)


def _order(item: dict[str, Any]) -> tuple[str, ...]:
    scope = item["scope"]
    return scope["kind"], scope.get("namespace", ""), scope["name"], scope["apiVersion"], item["metadata"]["name"]


def report(form: Format, subject: Subject, seconds: int | None = None) -> dict[str, Any]:
    """The report about one object; with ``seconds`` since 1970 it also says when."""
    obj = subject.obj
    counts = Counter(each.outcome for each in subject.results)
    results = sorted(subject.results, key=lambda each: each.order)[:MOST]
    kind = form.kind(subject.namespaced)
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": _metadata(obj),
        "scope": reference(obj),
        "summary": {outcome: counts[outcome] for outcome in OUTCOMES},
        "results": [_result(each, seconds) for each in results],
    }


def _metadata(obj: Object) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name(obj), "labels": dict(MANAGED)}
    if obj.namespace:
        metadata["namespace"] = line(obj.namespace)
    if uid(obj):
        owner = {key: value for key, value in reference(obj).items() if key != "namespace"}
        metadata["ownerReferences"] = [owner]
    return metadata


def name(obj: Object) -> str:
    """What the report about an object is called: its uid, or in files a digest of who it is."""
    who = "/".join((obj.group, obj.kind, obj.namespace, obj.name))
    return uid(obj) or hashlib.sha256(who.encode(errors="replace")).hexdigest()[:32]


def uid(obj: Object) -> str:
    """The uid that the API server gave an object; empty in files."""
    text = obj.metadata["uid"].text or ""
    return text if _NAME.fullmatch(text) else ""


def reference(obj: Object) -> dict[str, str]:
    """An ObjectReference, without what is not known."""
    names = {
        "apiVersion": obj.api_version,
        "kind": obj.kind,
        "namespace": obj.namespace,
        "name": obj.name,
        "uid": uid(obj),
    }
    return {key: line(value) for key, value in names.items() if value or key in ("apiVersion", "kind", "name")}


def _result(result: Result, seconds: int | None) -> dict[str, Any]:
    properties = {"path": result.path, "fix": result.fix}
    said: dict[str, Any] = {
        "source": SOURCE,
        "policy": result.rule,
        "result": result.outcome,
        "severity": result.severity,
        "message": cut(line(result.message), LONGEST),
        "properties": {key: cut(line(value), LONGEST) for key, value in properties.items() if value},
        "timestamp": None if seconds is None else {"seconds": seconds, "nanos": 0},
    }
    return {key: value for key, value in said.items() if value}
