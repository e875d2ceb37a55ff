"""One page of each kind, with given names and texts:
for the tests of hostile input and for the browser.
"""

from __future__ import annotations

import dataclasses
import datetime
import json

from tests.forecasts.repair import broken_clusters
from tests.forecasts.repair.test_causes import BRIDGE
from tests.paths import EXAMPLES
from tests.reports.findings.formats.reports import both_keys, scanned
from tests.reports.html.test_pages import node, run, snapshot, vmi
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.outage.outages import Question, outages
from virt_admit.forecasts.repair.planning import repair
from virt_admit.forecasts.repair.repair_plan import Goal
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.reports import watch_page
from virt_admit.reports.drain import html as drain_html
from virt_admit.reports.findings import html as findings_html
from virt_admit.reports.findings.report import Report
from virt_admit.reports.html import clusters, page
from virt_admit.reports.html.owners import Owners, files
from virt_admit.reports.outage import html as outage_html
from virt_admit.reports.plan import html as plan_html
from virt_admit.reports.upgrade import html as upgrade_html

NAMED = ("findings", "drain", "upgrade", "outage", "plan", "clusters", "watch", "index")
"""The pages of ``named``."""


def named(name):
    """Return pages whose objects, nodes, reasons and clusters have this name."""
    report = Report(
        tuple(
            one
            for each in ("a", "b", name)
            for one in scanned(both_keys(name=each, namespace=name)).results
        )
    )
    stuck = [vmi(f"db-{number}", name, "w1", "False") for number in range(5)]
    for one in stuck:
        one["status"]["conditions"][0]["reason"] = name
    cluster = snapshot(node("w1"), node(name), *stuck, vmi(name, name, name))
    drained = plan(cluster)
    findings_page, drain_page = (
        findings_html.page(report, name),
        drain_html.page(drained, drain_html.placed(cluster), [("cluster", name)]),
    )
    at = datetime.datetime(2027, 1, 31, tzinfo=datetime.UTC)
    parts = [
        clusters.ClusterPart(name, drain_page, {"blocked": "1"}),
        clusters.ClusterPart(f"{name}2", error=name),
    ]
    pages = {
        "findings": findings_page,
        "drain": drain_page,
        "upgrade": upgrade_html.page(rehearse(cluster, Options()), None, [("cluster", name)]),
        "outage": outage_html.page(outages(Question(worst=1), cluster), [("cluster", name)]),
        "plan": plan_html.page(planned(name), [("cluster", name)], name),
        "clusters": clusters.combine("Drain", parts),
        "watch": watch_page.outdated(
            watch_page.page(report, drained, drain_page, (name,), at), (name,)
        ),
    }
    index = files(findings_page, {"shop": findings_page, name: findings_page}, Owners())[
        "index.html"
    ]
    return {kind: page.render(one) for kind, one in pages.items()} | {"index": index}


def planned(name):
    """Return a plan with steps whose objects have this name."""
    bridged = broken_clusters.vm(
        name, name, spec=BRIDGE, reason="InterfaceNotLiveMigratable", namespace=name
    )
    unknown = broken_clusters.vm("b", "b", reason=name)
    nodes = (broken_clusters.node(each) for each in (name, "b"))
    return repair(
        snapshot(*(one.data for one in (*nodes, broken_clusters.kubevirt(), *bridged, *unknown))),
        Goal.DRAIN,
    )


def explained(folder, name):
    """Return the page of a health check in a file."""
    check = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineHealthCheck",
        "metadata": {"name": name, "namespace": "openshift-machine-api"},
        "spec": {
            "maxUnhealthy": f"40%{name}",
            "selector": {},
            "unhealthyConditions": [{"type": f"Ready{name}", "status": "False", "timeout": "300s"}],
        },
    }
    (folder / "check.json").write_text(json.dumps(check))
    target = str(folder / "page.html")
    done = run(
        "explain",
        str(folder / "check.json"),
        "--cluster",
        str(EXAMPLES / "cluster.yaml"),
        "-o",
        f"html={target}",
    )
    assert done.exception is None, done.exception
    return (folder / "page.html").read_text()


def many():
    """Return the page of a drain of 200 nodes with 10,000 VMs."""
    drained = plan(
        snapshot(
            node("w1"),
            node("w2"),
            *(vmi(f"db-{number}", migratable="False") for number in range(50)),
        )
    )
    (one,) = [each for each in drained.nodes if each.forecasts]
    nodes = tuple(dataclasses.replace(one, name=f"node-{number:03}") for number in range(200))
    return page.render(drain_html.page(dataclasses.replace(drained, nodes=nodes), None))
