"""The Grafana dashboard: what the webhook sees, and what the API servers see of it."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, Final

from tools.dashboard_panels import SECTIONS, Panel

WIDTH, HEIGHT = 8, 7
"""Of a panel, in Grafana's grid of 24 columns."""

BUILD: Final = "count by (version, python_version) (virt_admit_build_info)"


def dashboard() -> str:
    """The dashboard as JSON, for Grafana 10 and later."""
    return json.dumps(
        {
            "title": "virt-admit",
            "uid": "virt-admit",
            "tags": ["virt-admit", "kubevirt"],
            "description": "Reviews, findings, certificates and look-ups of the admission webhook.",
            "schemaVersion": 39,
            "editable": True,
            "refresh": "1m",
            "time": {"from": "now-6h", "to": "now"},
            "templating": {"list": _variables()},
            "panels": _panels(),
        },
        indent=1,
    )


def _panels() -> list[dict[str, Any]]:
    ids = itertools.count(1)
    found: list[dict[str, Any]] = []
    top = 0
    for title, panels in SECTIONS:
        place = {"x": 0, "y": top, "w": 24, "h": 1}
        found.append(
            {
                "id": next(ids),
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": place,
                "panels": [],
            }
        )
        top += 1
        for index, panel in enumerate(panels):
            row, column = divmod(index, 24 // WIDTH)
            place = {"x": column * WIDTH, "y": top + row * HEIGHT, "w": WIDTH, "h": HEIGHT}
            found.append({"id": next(ids), "gridPos": place, **_series(panel)})
        top += -(-len(panels) // (24 // WIDTH)) * HEIGHT
    build = Panel("Versions", "short", ((BUILD, "{{version}}, Python {{python_version}}"),))
    place = {"x": 0, "y": top, "w": WIDTH, "h": 4}
    return [*found, {"id": next(ids), "gridPos": place, **_series(build), "type": "stat"}]


_METRIC: Final = re.compile(r"\b((?:virt_admit|apiserver_admission|process)_\w+)(?:\{([^}]*)\})?")
_SELECTED: Final = 'cluster=~"$cluster"'


def per_cluster(expression: str) -> str:
    """Return a query about the selected clusters, each by itself.

    A fleet gives each Prometheus the external label ``cluster``. Without that label ``.*``, which
    is "All", matches too.
    """
    selected = _METRIC.sub(
        lambda found: f"{found[1]}{{{', '.join(filter(None, (found[2], _SELECTED)))}}}", expression
    )
    grouped = re.sub(r"\b(sum|max|min)\(", r"\1 by (cluster) (", selected)
    return re.sub(r"\bby \((?!cluster\b)", "by (cluster, ", grouped)


def _variables() -> list[dict[str, Any]]:
    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }
    query = "label_values(virt_admit_build_info, cluster)"
    clusters = {
        "name": "cluster",
        "label": "Cluster",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": "cluster"},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }
    return [source, clusters]


def _series(panel: Panel) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": source, "expr": per_cluster(expression)}
            | {"legendFormat": f"{{{{cluster}}}} {legend}"}
            for index, (expression, legend) in enumerate(panel.queries)
        ],
    }
