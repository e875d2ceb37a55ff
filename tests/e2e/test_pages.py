"""Every command of the pages, run on an installation that an administrator customised: the
customisation survives them.

test_walk.py runs the commands of docs/install.md, in the order of that page.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator

import pytest

from tests import definitions
from tests.apiserver.crds import custom, wait_until_discovered
from tests.apiserver.nodes import NODES, Cluster
from tests.e2e.installed import Installed
from tests.e2e.test_manifests import THIRD_PARTY
from tests.install.commands import NOT_RUN, pages_with_commands, steps, why_not_run
from tests.install.test_docs import PAGES
from tests.paths import EXAMPLES

VALUES = {
    r"logs POD": "logs {pod}",
    r"job/NAME": "job/scan-now",
    r"\bNODE\b": NODES[0],
    r"namespace NAME ": "namespace elsewhere ",
    r"policy show NAMESPACE RULE": "policy show shop vm-running-and-run-strategy",
    r"rules (ID|<rule>)": "rules vm-running-deprecated",
    r"--save FILE": "--save saved.json",
    r"lint FILE": "lint policy.yaml",
    r"OBJECT\.yaml": "vm.yaml",
    r"diff OLD NEW --cluster SNAPSHOT": "diff audit default --cluster snapshot.json",
    r"--context prod-a --context prod-b": "--context prod-a --context prod-b --fail-on never",
}
"""What a reader writes instead of a placeholder."""

MAY_FIND = re.compile(
    r"^(virt-admit (check|scan|drain|plan|upgrade|policy diff)|kubectl kustomize)\b"
)
"""Commands that exit with 1 when they find something."""

MAY_FIND_NOTHING = re.compile(r"\| grep [^|]+$")

EFFECTS = {
    r" scale .*--replicas=4": {"replicas": 4},
    r" delete configmap virt-admit-policy": {"policy": None},
}
"""The customisations that a command changes on purpose."""


def commands_to_run() -> dict[str, list[str]]:
    """The commands by page. One that only reads is run once, for the first page that has it."""
    found: dict[str, list[str]] = {}
    known: set[str] = set()
    for page, commands in pages_with_commands().items():
        if page != "docs/install.md":
            found[page] = [
                each for each in commands if not (each.startswith("virt-admit") and each in known)
            ]
            known.update(commands)
    return {page: commands for page, commands in found.items() if commands}


COMMANDS = commands_to_run()


@pytest.fixture(scope="module")
def installed(nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    installed = Installed(nodes, tmp_path_factory.mktemp("pages"))
    installed.customise()
    installed.install()
    further = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [definitions.own(kind) for kind in custom(THIRD_PARTY)],
        }
    )
    nodes.kubectl("apply", "--server-side", "-f", "-", input=further, check=True)
    wait_until_discovered(nodes, {f"{kind.plural}.{kind.group}" for kind in THIRD_PARTY})
    for command in (
        "kubectl create namespace elsewhere",
        "kubectl -n virt-admit create job scan-now --from=cronjob/virt-admit-scan",
        "kubectl -n virt-admit wait --for=condition=complete job/scan-now --timeout=120s",
        "virt-admit scan --save snapshot.json --fail-on never",
    ):
        installed.must(command)
    _further_files(installed)
    return installed


def _further_files(installed: Installed) -> None:
    """Files and contexts that the pages take for granted."""
    folder = installed.folder
    for name in ("cluster.json", "prod-a.json", "prod-b.json"):
        shutil.copy(folder / "snapshot.json", folder / name)
    for name in ("vm.yaml", "tape-robot.yaml"):
        shutil.copy(EXAMPLES / "05-live-migrate-cannot.yaml", folder / name)
    prod = folder / "clusters" / "prod"
    prod.mkdir(parents=True)
    shutil.copy(EXAMPLES / "05-live-migrate-cannot.yaml", prod / "vm.yaml")
    (prod / "kustomization.yaml").write_text("resources: [vm.yaml]\n")
    config = json.loads(installed.cluster.kubeconfig.read_text())
    (context,) = config["contexts"]
    config["contexts"] += [{**context, "name": name} for name in ("prod-a", "prod-b")]
    installed.cluster.kubeconfig.write_text(json.dumps(config))


def filled_in(installed: Installed, command: str) -> str:
    pod = next(each.pod for each in installed.cluster.pods_of_service())
    for pattern, value in VALUES.items():
        command = re.sub(pattern, value.format(pod=pod), command)
    return command


@pytest.mark.parametrize("page", COMMANDS)
def test_the_commands_of_a_page_work_and_keep_what_was_customised(
    installed: Installed, page: str
) -> None:
    expected = installed.customisation()
    for command in COMMANDS[page]:
        if "doctor" in command or "certs" in command:
            installed.wait_for_bundles()
        _run(installed, command)
        changed = next(
            (change for pattern, change in EFFECTS.items() if re.search(pattern, command)), {}
        )
        assert installed.customisation() == {**expected, **changed}, command
        if changed:
            _restore(installed)
    if any("delete validating" in command for command in COMMANDS[page]):
        _restore(installed)


def _run(installed: Installed, command: str) -> None:
    done = installed.run(filled_in(installed, command))
    allowed = {0, 1} if MAY_FIND.search(command) else {0}
    if MAY_FIND_NOTHING.search(command):
        allowed, done.stderr = {0, 1}, re.sub(r"Found \d+ pods, using .*\n", "", done.stderr)
        assert not done.stderr, (command, done.stderr)
    assert done.returncode in allowed, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def _restore(installed: Installed) -> None:
    configmap = (
        "create configmap virt-admit-policy --from-file=policy.yaml --dry-run=client -o yaml"
    )
    for command in (
        "kubectl apply -k ours",
        f"kubectl -n virt-admit {configmap} | kubectl apply -f -",
        "kubectl apply -k ours/webhooks",
    ):
        installed.must(command)


def test_the_table_of_commands_that_are_not_run_is_needed() -> None:
    everything = [
        step.command for page in PAGES for step in steps(page.read_text()) if step.command
    ]
    assert [
        pattern for pattern in NOT_RUN if not any(re.search(pattern, each) for each in everything)
    ] == []
    assert len([each for each in set(everything) if not why_not_run(each)]) > 60


def test_the_pages_that_restore_an_installation_have_commands() -> None:
    assert {"README.md", "docs/policy.md", "docs/troubleshooting.md"} <= COMMANDS.keys()
    assert len([page for page in COMMANDS if "runbooks" in page]) >= 9
