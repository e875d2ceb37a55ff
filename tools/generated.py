"""Files that are made from code: ``make docs`` writes them,
``make check`` fails if one is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from tools import example_cluster, field_tables, schemas
from tools.chart import chart
from tools.dashboard import dashboard
from tools.paths import ROOT
from virt_admit.cli.commands.rules import page
from virt_admit.install import manifests, policies
from virt_admit.install.guard import guard
from virt_admit.policy.parser import load
from virt_admit.rule import InvalidRule, Rule
from virt_admit.rules import INDEX, index, load_rules

NOTE = "# Made from the rules by `make manifests`; do not edit.\n"


COMPONENTS = {"medik8s-leases": "medik8s"}
"""Namespaces that only some clusters have, and the component for those."""


def files() -> dict[Path, str]:
    """Every generated file and its content."""
    rules = load_rules()
    admission = rules.at_admission
    folder = ROOT / "manifests"
    found = {
        folder / "base" / "rbac.yaml": NOTE + _yaml([*manifests.rbac(admission), *guard()]),
        **{
            folder / "components" / COMPONENTS[home] / "rbac.yaml": NOTE + _yaml(granted)
            for home, granted in manifests.rbac_elsewhere(admission).items()
        },
        folder / "components" / "scan-reports" / "rbac.yaml": NOTE
        + _yaml(manifests.reports_rbac()),
        folder / "components" / "watch-reports" / "rbac.yaml": NOTE
        + _yaml(manifests.reports_rbac(manifests.WATCHER)),
        folder / "watch" / "rbac.yaml": NOTE + _yaml(manifests.scan_rbac(rules, manifests.WATCHER)),
        folder / "scan" / "rbac.yaml": NOTE + _yaml(manifests.scan_rbac(rules)),
        folder / "webhooks" / "webhooks.yaml": NOTE + _yaml(manifests.webhooks(admission)),
        **{
            folder / "components" / "openshift" / "webhooks" / f"{patch['kind'].lower()}.yaml": NOTE
            + _yaml([patch])
            for patch in manifests.trusting_only(admission, ("openshift-cnv",))
        },
        folder / "floor" / "policies.yaml": NOTE
        + _yaml(policies.policies(rules, load("default", rules))),
        folder / "monitoring" / "dashboard.json": dashboard() + "\n",
        INDEX: index(rules),
        ROOT / "docs" / "rules.md": _rules_page(),
        **field_tables.files(),
        **example_cluster.files(),
        **schemas.files(),
    }
    return {**found, **chart.files(found)}


def _yaml(objects: list[dict[str, object]]) -> str:
    return str(yaml.safe_dump_all(objects, sort_keys=False, width=120))


def _rules_page() -> str:
    rules = load_rules()
    lines = [
        "# Rules",
        "",
        "Made from the rules by `make docs`; do not edit. `virt-admit rules ID` prints the same.",
        "",
        "| rule | action | kinds | what |",
        "|---|---|---|---|",
    ]
    for rule in rules:
        names = ", ".join(dict.fromkeys(kind.kind for kind in rule.kinds))
        action = str(rule.action) + _scope(rule)
        lines.append(
            f"| [{rule.id}](#{rule.id}) | {action} | {names} | "
            f"{rule.title.replace('|', chr(92) + '|')} |"
        )
    for rule in rules:
        lines += ["", _with_breaks(page(rule).replace("# ", "## ", 1))]
    return "\n".join(lines) + "\n"


def _with_breaks(text: str) -> str:
    """Return a page whose closing lines stay lines of their own in Markdown."""
    body, kinds, closing = text.rpartition("\nKinds: ")
    return body + kinds + closing.replace("\n", "  \n")


def _scope(rule: Rule) -> str:
    """Return the commands that ask the rule, for rules that the webhook does not ask."""
    if rule.at_admission:
        return ""
    return " (check, scan)" if rule.in_scan else " (check)"


def main() -> int:
    try:
        wanted = files()
    except InvalidRule as error:
        print(error, file=sys.stderr)
        return 2
    if "--check" not in sys.argv:
        for path, content in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return 0
    stale = [
        path for path, content in wanted.items() if not path.exists() or path.read_text() != content
    ]
    if missing := field_tables.not_compared():
        print(missing, file=sys.stderr)
    for path in stale:
        print(f"{path.relative_to(ROOT)} is stale: run make docs manifests", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
