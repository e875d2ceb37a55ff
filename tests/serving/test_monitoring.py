"""Alerts and the dashboard ask for series that exist,
and each alert has a page that says what to do.
"""

from __future__ import annotations

import json
import re
from collections import Counter

import yaml
from prometheus_client import CollectorRegistry

from tests.for_each import for_each
from tests.paths import ROOT
from tools.dashboard import dashboard
from tools.dashboard_panels import SECTIONS
from virt_admit.forecasts.outage.failover_figures import FailoverFigures
from virt_admit.forecasts.upgrade.durations import Range
from virt_admit.install import manifests
from virt_admit.install.manifests import NAME
from virt_admit.kube.informers import Informed
from virt_admit.reports import scan_metrics
from virt_admit.reports.drain.drain_metrics import DrainMetrics, drain_gauges
from virt_admit.reports.findings.report import Report
from virt_admit.reports.outage import failover_metrics
from virt_admit.rules import load_rules
from virt_admit.serving.metrics import Metrics
from virt_admit.settings import DOCS_URL
from virt_admit_certs.rotation_status import RotatorStatus

ENTRIES = [
    entry for each in manifests.webhooks(load_rules().at_admission) for entry in each["webhooks"]
]

API_SERVER = {
    "apiserver_admission_webhook_admission_duration_seconds_bucket",
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_webhook_rejection_count",
    "apiserver_admission_webhook_request_total",
}

KUBE_STATE_METRICS = {"kube_cronjob_status_last_successful_time"}


def series() -> set[str]:
    """The names of all series that the webhook and the scan tell."""
    metrics = Metrics()
    metrics.follow_certificates(RotatorStatus)
    metrics.follow_informers(lambda: [Informed("pods", True, 1)])
    DrainMetrics(metrics.registry)
    found = set()
    drains = drain_gauges((), {}, {})
    failover = CollectorRegistry()
    failover_metrics.add(failover, FailoverFigures({}, {}, {}, {}, {}, {}, None, 0, 0))
    for registry in (
        metrics.registry,
        scan_metrics.gauges(Report(()), {}, 1.0, Range(1, 2)),
        drains,
        failover,
    ):
        for family in registry.collect():
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(
                family.type, [""]
            )
            found |= {family.name + suffix for suffix in suffixes}
    return found


def used(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:virt_admit|apiserver|process|kube)_[a-z_]+", expression))


GROUPS = yaml.safe_load((ROOT / "manifests" / "monitoring" / "alerts.yaml").read_text())["spec"][
    "groups"
]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}


def test_the_alerts_are_there():
    assert ALERTS.keys() >= {
        "VirtAdmitDown",
        "VirtAdmitCertificateExpiresSoon",
        "VirtAdmitSlow",
        "VirtAdmitRuleBroken",
        "VirtAdmitScanStale",
        "VirtAdmitDrainBlocked",
        "VirtAdmitFailingOpen",
    }


@for_each("name", ALERTS)
def test_an_alert_asks_for_series_that_exist_and_says_what_to_do(name):
    alert = ALERTS[name]
    assert used(alert["expr"])
    assert used(alert["expr"]) <= series() | API_SERVER | KUBE_STATE_METRICS
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert alert["labels"]["operator_health_impact"] in {"critical", "warning", "none"}
    assert alert["labels"]["kubernetes_operator_part_of"] == NAME
    assert alert["labels"]["kubernetes_operator_component"] in {"webhook", "scan"}
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"] == f"{DOCS_URL}/runbooks/{name}.md"
    assert (ROOT / "docs" / "runbooks" / f"{name}.md").read_text().startswith(f"# {name}\n")


def test_slow_is_half_of_the_shortest_time_limit():
    limit = min(entry["timeoutSeconds"] for entry in ENTRIES)
    assert ALERTS["VirtAdmitSlow"]["expr"].strip().endswith(f"> {limit // 2}")


def test_a_scan_that_never_succeeded_and_unsynced_informers_have_alerts():
    assert "absent(" in ALERTS["VirtAdmitScanStale"]["expr"]
    assert used(ALERTS["VirtAdmitInformerNotSynced"]["expr"]) == {"virt_admit_informer_synced"}


def test_failing_open_is_about_our_entries_alone():
    pattern = re.search(r'name=~"([^"]+)"', ALERTS["VirtAdmitFailingOpen"]["expr"])
    assert pattern
    names = [entry["name"] for entry in ENTRIES]
    assert all(re.fullmatch(pattern[1], name) for name in names)
    assert not re.fullmatch(pattern[1], "virtualmachine-admitter.kubevirt.io")


def test_the_dashboard_asks_for_series_that_exist_and_for_all_of_ours():
    asked = set()
    for panel in json.loads(dashboard())["panels"]:
        for target in panel.get("targets", ()):
            assert used(target["expr"])
            asked |= used(target["expr"])
    standard = {name for name in series() if name.startswith("process_")}
    shown_otherwise = {
        "virt_admit_request_duration_seconds_sum",
        "virt_admit_request_duration_seconds_count",
        "virt_admit_drain_duration_seconds_sum",
        "virt_admit_certificate_not_before_timestamp_seconds",
    }
    assert asked <= series() | API_SERVER
    assert series() - standard - shown_otherwise <= asked


def test_panels_of_the_dashboard_do_not_overlap():
    panels = json.loads(dashboard())["panels"]
    cells = Counter(
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    )
    assert set(cells.values()) == {1}
    assert max(x for x, _ in cells) == 23
    assert (
        len({panel["id"] for panel in panels})
        == len(panels)
        == 1 + sum(1 + len(each) for _, each in SECTIONS)
    )


def test_every_query_of_the_dashboard_is_about_the_selected_clusters():
    built = json.loads(dashboard())
    (selector,) = [each for each in built["templating"]["list"] if each["name"] == "cluster"]
    assert (selector["multi"], selector["includeAll"]) == (True, True)
    assert re.fullmatch(selector["allValue"], ""), (
        "a series without the label belongs to the only cluster"
    )
    targets = [target for panel in built["panels"] for target in panel.get("targets", ())]
    assert len(targets) > 30
    for target in targets:
        expression = target["expr"].replace("$cluster", "prod-a|prod-b")  # as Grafana writes it
        assert expression.count('cluster=~"prod-a|prod-b"') == len(
            re.findall(r"\b(?:virt_admit|apiserver|process)_", expression)
        )
        groups = re.findall(r"\b(?:sum|max|min|count)\b(?: by \(([^)]*)\))?", expression)
        assert groups
        assert all(group.startswith("cluster") for group in groups), expression
        assert target["legendFormat"].startswith("{{cluster}} ")


def test_the_cost_of_a_fleet_is_that_of_the_shipped_watch():
    """The page computes what 100 clusters request."""
    deployments = yaml.safe_load_all((ROOT / "manifests" / "watch" / "workload.yaml").read_text())
    (watch,) = [each for each in deployments if each["kind"] == "Deployment"]
    requests = watch["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "100m", "memory": "256Mi"}
    page = (ROOT / "docs" / "fleet.md").read_text()
    assert f"| 100m CPU, 256 MiB | {100 * 100 // 1000} CPUs, {100 * 256 // 1024} GiB," in page
    assert "| 370 | 37,000 |" in page
