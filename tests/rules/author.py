"""``make rule ID=…`` writes the two files of a rule;
``make try ID=…`` runs the tests of one rule in seconds.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.paths import ROOT, RULE_FOLDER
from tests.rules import cases
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.rule import InvalidRule
from virt_admit.rules import load_rules

LONGEST_ID = 56
"""The annotation that exempts an object from the rule has a name of at most 63 characters."""

TESTS = (
    "rules/test_rules",
    "rules/test_rules_hostile",
    "rules/test_blindness",
    "rules/test_never_break_cases",
    "rules/test_never_break",
    "rules/test_never_break_health",
    "kube/test_field_filter",
    "kube/test_snapshots",
    "contract/test_answers",
)
"""What ``make try`` runs: the parts about the rule,
and the hazards of VMs and nodes with all rules.
"""

RULE = '''"""The bad pattern in one sentence.

**Why.** What it does to the cluster.

**Fix.** What to write instead.
"""

from virt_admit.rule import {name}, Action, Context, Finding, Findings, Object, rule


@rule(kinds=({name},), action=Action.WARN, sources=("owner/repository:path/to/file.go#function",))
def check(obj: Object, _context: Context) -> Findings:
    field = obj.at("spec", "example")
    if field.text == "bad":
        yield Finding(field.path, "example bad does this harm. Use good.")
'''

CASES = """# yaml-language-server: $schema=../../../../docs/case.schema.json
- name: bad
  object: &obj
    apiVersion: {kind.api_version}
    kind: {kind.kind}
    metadata: {{name: a{namespace}}}
    spec: {{example: bad}}
  finds:
  - {{path: spec.example, says: [Use good]}}
- name: good
  object: {{<<: *obj, spec: {{example: good}}}}
  finds: []
"""


def write(rule_id: str, folder: Path = RULE_FOLDER) -> str:
    """Write both files of a new rule and return what to do next.

    Raises:
        InvalidRule: the id is not valid or exists already.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", rule_id):
        raise InvalidRule(
            f"{rule_id!r} is not a valid rule id. Use lower-case words: make rule ID=vm-something"
        )
    if len(rule_id) > LONGEST_ID:
        raise InvalidRule(f"{rule_id} has {len(rule_id)} characters. Use at most {LONGEST_ID}")
    family = rule_id.partition("-")[0]
    python = folder / family / f"{rule_id.replace('-', '_')}.py"
    if rule_id in load_rules().by_id or python.exists():
        raise InvalidRule(f"the rule {rule_id} exists already. Choose another id")
    python.parent.mkdir(exist_ok=True)
    if not (python.parent / "__init__.py").exists():
        (python.parent / "__init__.py").write_text(f'"""Rules about {family}."""\n')
    kind = usual_kind(family)
    name = next(name for name, value in vars(kinds).items() if value is kind)
    python.write_text(RULE.format(name=name))
    python.with_suffix(".yaml").write_text(
        CASES.format(kind=kind, namespace=", namespace: b" if kind.namespaced else "")
    )
    return (
        f"wrote {python} and {python.stem}.yaml. Edit both (CONTRIBUTING.md has examples), then "
        f"run: make try ID={rule_id}"
    )


def usual_kind(family: str) -> Kind:
    """The kind that most rules of a folder judge; VirtualMachine for a new folder."""
    found = Counter(
        kind for rule in load_rules() if rule.id.startswith(f"{family}-") for kind in rule.kinds
    )
    return found.most_common(1)[0][0] if found else kinds.VM


def run(rule_id: str) -> int:
    """Run the cases of one rule, and the tests of fields, hazards, snapshots,
    hostile input and recorded answers.
    """
    rules = load_rules()
    if rule_id not in rules.by_id:
        raise InvalidRule(f"there is no rule {rule_id}. Run: make rule ID={rule_id}")
    for problem in cases.problems(rules):
        raise InvalidRule(problem)
    chosen = f"[{rule_id}] or test_the_answer or test_never_break.py or test_never_break_health.py"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=short",
        *(f"tests/{name}.py" for name in TESTS),
        "-k",
        chosen,
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    verb, rule_id = (*sys.argv[1:], "", "")[:2]
    try:
        if verb == "try":
            return run(rule_id)
        print(write(rule_id))
    except InvalidRule as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
