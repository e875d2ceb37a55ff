"""The values of the chart: one table, from which values.yaml,
its schema and the table in the README are made.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from virt_admit.settings import DOCS_URL

NAME: Final = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
QUANTITY: Final = {"type": ["string", "number"], "pattern": r"^[0-9]+([.][0-9]+)?(m|[kKMGTP]i?)?$"}
QUANTITIES: Final = {"type": "object", "additionalProperties": QUANTITY}
RESOURCES: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"requests": QUANTITIES, "limits": QUANTITIES},
}
URL: Final = {"type": "string", "pattern": r"^https?://[^\s/?#@]+(/[^\s?#]*)?$"}
"""An address of pages as ``reports/findings/places.py#docs_url`` accepts it."""
BOOLEAN: Final = {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the chart."""

    path: str
    default: Any
    schema: Mapping[str, Any]
    text: str


def values(resources: Mapping[str, Any], schedule: str) -> tuple[Value, ...]:
    """Return the values.

    Args:
        resources: by component, the defaults, which are those of the manifests.
        schedule: when the scan runs by default.
    """
    return (
        *_MODE,
        *_IMAGE,
        Value("replicas", 2, {"type": "integer", "minimum": 1},
              "Webhook pods. `enforce` requires two."),
        _resources("resources", resources["webhook"], "webhook pods"),
        *_PODS,
        *_NETWORK,
        Value("scan.enabled", False, BOOLEAN, "A CronJob scans the whole cluster."),
        Value("scan.schedule", schedule, {"type": "string", "pattern": r"^(@\w+|\S+( \S+){4})$"},
              "When it runs."),
        Value("scan.reports", False, BOOLEAN, "It writes OpenReports and Events."),
        _resources("scan.resources", resources["scan"], "scan's pod"),
        Value("watch.enabled", False, BOOLEAN,
              "A Deployment scans continuously, with metrics and a page."),
        Value("watch.reports", False, BOOLEAN, "It writes OpenReports and Events."),
        _resources("watch.resources", resources["watch"], "watch's pod"),
        Value("monitoring.enabled", False, BOOLEAN,
              "ServiceMonitors, alerts and dashboard, for the Prometheus operator."),
        Value("monitoring.docsUrl", DOCS_URL, URL,
              "The address of the folder docs, for links in alerts."),
    )  # fmt: skip


_MODE: Final = (
    Value(
        "mode",
        "warn",
        {"enum": ["audit", "warn", "enforce"]},
        "`audit`: while no policy exists, findings are counted and nothing is denied, warned or "
        "changed. `warn`: users see warnings and the denials of the policy; requests are admitted "
        "while no webhook responds. `enforce`: virtual machines are rejected while no webhook "
        "responds; not possible at the first install.",
    ),
    Value(
        "policy",
        None,
        {"type": ["string", "object", "null"]},
        "The policy, as text or as a map. The ConfigMap `virt-admit-policy` is created from it if "
        "it does not exist. It is yours from then on: no upgrade, rollback or uninstall changes "
        "it.",
    ),
    Value(
        "certificates",
        "own",
        {"enum": ["own", "cert-manager", "external", "openshift"]},
        "Who issues the serving certificate: the webhook itself, cert-manager, another issuer that "
        "fills the Secret `virt-admit-serving` and the `caBundle`, or OpenShift's service CA (with "
        "the other settings for OpenShift).",
    ),
)
_IMAGE: Final = (
    Value("image.repository", "virt-admit", {"type": "string", "minLength": 1},
          "The image, with its registry."),
    Value(
        "image.tag",
        "",
        {"type": "string", "pattern": r"^[\w.-]{0,128}$"},
        "The tag. Empty: the version of the chart, if the repository names a registry.",
    ),
    Value(
        "image.digest",
        "",
        {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
        "The digest, such as `sha256:…`. It wins over the tag.",
    ),
    Value("image.pullPolicy", "IfNotPresent", {"enum": ["Always", "IfNotPresent", "Never"]},
          "When to pull the image."),
    Value("imagePullSecrets", [], {"type": "array", "items": {"type": "object"}},
          "Secrets of the registry, by `name`."),
)  # fmt: skip
_PODS: Final = (
    Value(
        "nodeSelector",
        {},
        {"type": "object", "additionalProperties": {"type": "string"}},
        "Nodes of all pods.",
    ),
    Value(
        "tolerations",
        [],
        {"type": "array", "items": {"type": "object"}},
        "Tolerations of all pods.",
    ),
    Value(
        "port",
        8443,
        {"type": "integer", "minimum": 1024, "maximum": 65535},
        "The port of the webhook pods. Set it to one that the control plane reaches, such as 10250 "
        "on private GKE clusters.",
    ),
)
_NETWORK: Final = (
    Value(
        "networkPolicy.enabled",
        True,
        BOOLEAN,
        "NetworkPolicies that admit API servers and the monitoring.",
    ),
    Value(
        "trustedNamespaces",
        [],
        {"type": "array", "items": NAME, "uniqueItems": True},
        "Namespaces in which KubeVirt's own service accounts are not reviewed. Empty: `kubevirt`, "
        "`kubevirt-hyperconverged` and `openshift-cnv`; with `certificates: openshift` the last "
        "one alone.",
    ),
    Value(
        "medik8s",
        False,
        BOOLEAN,
        "The Medik8s operators keep leases in the namespace `medik8s-leases`.",
    ),
)


def _resources(path: str, default: Any, of: str) -> Value:
    return Value(path, default, RESOURCES, f"Requests and limits of the {of}.")


def print_values(table: tuple[Value, ...]) -> str:
    """Return values.yaml."""
    lines: list[str] = []
    parents: tuple[str, ...] = ()
    for value in table:
        *above, key = value.path.split(".")
        if parents != tuple(above):
            lines += [f"{name}:" for name in above]
            parents = tuple(above)
        pad = "  " * len(above)
        lines += [
            f"{pad}# {line}"
            for line in textwrap.wrap(
                value.text.replace("`", ""), 116 - len(pad), break_on_hyphens=False
            )
        ]
        printed = yaml.safe_dump(
            {key: value.default}, sort_keys=False, default_flow_style=not value.default
        )
        lines += [
            pad + line for line in printed.strip().removeprefix("{").removesuffix("}").splitlines()
        ]
    return "\n".join(lines) + "\n"


def print_schema(table: tuple[Value, ...]) -> str:
    """Return values.schema.json."""
    root: dict[str, Any] = {"$schema": "https://json-schema.org/draft-07/schema#", **_object()}
    for value in table:
        node = root
        *above, key = value.path.split(".")
        for name in above:
            node = node["properties"].setdefault(name, _object())
        node["properties"][key] = {"description": value.text, **value.schema}
    root["properties"]["global"] = {
        "description": "Values of a parent chart; not used.",
        "type": "object",
    }
    return json.dumps(root, indent=2, ensure_ascii=False) + "\n"


def _object() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def print_table(table: tuple[Value, ...]) -> str:
    """Return the table of the README."""
    rows = [f"| `{value.path}` | `{json.dumps(value.default)}` | {value.text} |" for value in table]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows, ""])
