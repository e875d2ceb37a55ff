"""The Helm chart: the objects of ``manifests/`` and of the rules as templates,
with the values that vary them.

A component of kustomize becomes a condition: what it changes is printed if the value says so. Thus
the chart repeats no object, and ``helm template`` prints what ``kubectl kustomize`` builds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tools.chart.components import Document, Read, apply, documents, pod_templates
from tools.chart.template import Expression, If, Nested, Splice, Template, Tree, print_document
from tools.chart.values import print_schema, print_table, print_values, values
from tools.dashboard import dashboard
from tools.paths import ROOT
from virt_admit import __version__
from virt_admit.install import manifests
from virt_admit.model.kubevirt.settings.trusted_accounts import TRUSTED_NAMESPACES
from virt_admit.rules import load_rules
from virt_admit.settings import DOCS_URL

CHART: Final = ROOT / "charts" / "virt-admit"
FEATURES: Final = {name: f".Values.{name}.enabled" for name in ("scan", "watch", "monitoring")}
"""Kustomizations next to ``base`` and ``webhooks``,
and when their objects are part of the release.
"""
COMPONENTS: Final = {
    "audit": 'eq .Values.mode "audit"',
    "enforce": 'eq .Values.mode "enforce"',
    "external": 'ne .Values.certificates "own"',
    "cert-manager": 'eq .Values.certificates "cert-manager"',
    "cert-manager/webhooks": 'eq .Values.certificates "cert-manager"',
    "enforce/webhooks": 'eq .Values.mode "enforce"',
    "openshift": 'eq .Values.certificates "openshift"',
    "openshift/webhooks": 'eq .Values.certificates "openshift"',
    "medik8s": ".Values.medik8s",
    "scan-reports": "and .Values.scan.enabled .Values.scan.reports",
    "watch-reports": "and .Values.watch.enabled .Values.watch.reports",
}
"""When a component applies."""
TRUSTED: Final = "the-trusted-namespaces"
"""Stands for the trusted namespaces in the expressions of the webhook configurations."""
NOTE: Final = "{{- /* Made from manifests/ by `make manifests`; do not edit. */}}\n"


def files(generated: Mapping[Path, str]) -> dict[Path, str]:
    """Return the generated files of the chart.

    Args:
        generated: the other generated files, which may be stale on disk.
    """
    found = _documents(lambda path: generated.get(path) or path.read_text())
    pods = {document.template: pod for document in found if (pod := _pod(document.object))}
    (schedule,) = [
        document.object["spec"]["schedule"]
        for document in found
        if document.object["kind"] == "CronJob"
    ]
    resources = {
        "webhook" if name == "workload" else name: pod["containers"][0]["resources"]
        for name, pod in pods.items()
    }
    table = values(resources, schedule)
    for document in found:
        _insert_values(document)
    names = dict.fromkeys(document.template for document in found)
    templates = {
        name: NOTE + "".join(print_document(each.tree) for each in found if each.template == name)
        for name in names
    }
    return {
        **{CHART / "templates" / f"{name}.yaml": text for name, text in templates.items()},
        CHART / "templates" / "_trusted.tpl": _trusted(),
        CHART / "files" / "dashboard.json": dashboard() + "\n",
        CHART / "Chart.yaml": _metadata(),
        CHART / "values.yaml": "# Made by `make manifests`; do not edit.\n" + print_values(table),
        CHART / "values.schema.json": print_schema(table),
        CHART / "README.md": README.format(table=print_table(table)),
    }


def _documents(read: Read) -> list[Document]:
    found = list(documents("base", read))
    found += [Document("webhooks", obj) for obj in _webhooks()]
    for name, condition in FEATURES.items():
        found += documents(name, read, condition)
    for name, condition in COMPONENTS.items():
        # The patches in files narrow the trusted namespaces; here a value does.
        apply(name, condition, found, read, skip=name == "openshift/webhooks")
    return found


def _webhooks() -> list[dict[str, Any]]:
    shipped = manifests.webhooks(load_rules().at_admission, trusted=(TRUSTED,))
    return [_replaced(obj, TRUSTED, '{{ include "virt-admit.trusted" . }}') for obj in shipped]


def _replaced(tree: Tree, text: str, expression: str) -> Tree:
    """Return the tree with an expression in place of a text, inside of strings."""
    if isinstance(tree, dict):
        return {key: _replaced(value, text, expression) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_replaced(item, text, expression) for item in tree]
    return (
        Template(tree.replace(text, expression)) if isinstance(tree, str) and text in tree else tree
    )


def _insert_values(document: Document) -> None:
    """Replace what the values vary."""
    obj = document.object
    _replace_labels(obj["metadata"], "virt-admit.labels")
    for template in pod_templates(obj):
        _replace_labels(template["metadata"], "virt-admit.podLabels")
    if pod := _pod(obj):
        _insert_pod_values(pod, "" if document.template == "workload" else f"{document.template}.")
    match obj["kind"], document.template:
        case "Deployment", "workload":
            obj["spec"]["replicas"] = Expression(".Values.replicas")
            container = pod["containers"][0]
            container["args"].append(
                If("ne (int .Values.port) 8443", Template("--bind=0.0.0.0:{{ .Values.port }}"))
            )
            container["ports"][0]["containerPort"] = Expression(".Values.port")
        case "PodDisruptionBudget", _:  # it would stop each drain of a node with the only pod
            document.tree = If("gt (int .Values.replicas) 1", document.tree)
        case "PrometheusRule", _:
            obj["spec"] = _replaced(obj["spec"], DOCS_URL, '{{ include "virt-admit.docsUrl" . }}')
        case "CronJob", _:
            obj["spec"]["schedule"] = Expression(".Values.scan.schedule | quote")
        case "NetworkPolicy", _:
            document.tree = If(".Values.networkPolicy.enabled", document.tree)


def _insert_pod_values(pod: dict[Any, Any], prefix: str) -> None:
    for name in ("imagePullSecrets", "nodeSelector", "tolerations"):
        pod[name] = If(f".Values.{name}", Nested(f"toYaml .Values.{name}"))
    (container,) = pod["containers"]
    container["image"] = Expression('include "virt-admit.image" . | quote')
    container["imagePullPolicy"] = Expression(".Values.image.pullPolicy")
    container["resources"] = Nested(f"toYaml .Values.{prefix}resources")


def _pod(obj: dict[Any, Any]) -> dict[Any, Any]:
    """Return the specification of the pods of a workload; empty for other objects."""
    specs = [template["spec"] for template in pod_templates(obj)]
    return specs[-1] if specs else {}


def _replace_labels(metadata: dict[Any, Any], helper: str) -> None:
    """Let a helper of the chart print our labels; others stay."""
    labels = metadata.get("labels", {})
    component = labels.get("app.kubernetes.io/component")
    assert component, metadata
    ours = manifests.labels(component)
    others = {key: value for key, value in labels.items() if key not in ours}
    metadata["labels"] = {Splice(f'include "{helper}" (list . "{component}")'): None, **others}


def _trusted() -> str:
    usual = "|".join(TRUSTED_NAMESPACES)
    return f"""\
{{{{- /* Made by `make manifests`; do not edit. */}}}}
{{{{- define "virt-admit.trusted" -}}}}
{{{{- if .Values.trustedNamespaces }}}}{{{{ join "|" .Values.trustedNamespaces }}}}
{{{{- else if eq .Values.certificates "openshift" }}}}openshift-cnv
{{{{- else }}}}{usual}
{{{{- end }}}}
{{{{- end }}}}
"""


def _metadata() -> str:
    chart = {
        "apiVersion": "v2",
        "name": "virt-admit",
        "description": (
            "Admission webhook for KubeVirt: nodes can always be drained, remediation never loops"
        ),
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "keywords": ["kubevirt", "openshift-virtualization", "admission-webhook", "live-migration"],
        "annotations": {"artifacthub.io/license": "Apache-2.0"},
    }
    return "# Made by `make manifests`; do not edit.\n" + yaml.safe_dump(
        chart, sort_keys=False, width=120
    )


README: Final = """\
<!-- Made by `make manifests`; do not edit. -->
# The chart virt-admit

It installs the objects of `manifests/base` and `manifests/webhooks`, and by value those of the other folders. The templates
are made from the same source. [docs/install.md](../../docs/install.md#helm) shows how to install, upgrade, roll back and
uninstall.

The release must be in the namespace `virt-admit`, one for each cluster.

{table}"""  # noqa: E501
