"""``--target`` of ``check`` and ``scan``: what an upgrade changes for the objects."""

import json

import pytest
from click.testing import CliRunner

from virt_admit.cli import main
from virt_admit.engine.admission_review import Request
from virt_admit.engine.applicable import applicable_rules
from virt_admit.model import releases
from virt_admit.model.kubernetes.kinds import KUBEVIRT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rules import load_rules

CLUSTER = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
    "spec": {
        "configuration": {"developerConfiguration": {"featureGates": ["HostDsk", "HotplugVolumes"]}}
    },
    "status": {"observedKubeVirtVersion": "v1.8.2"},
}
TYPE = {
    "apiVersion": "instancetype.kubevirt.io/v1alpha2",
    "kind": "VirtualMachineClusterInstancetype",
    "metadata": {"name": "small"},
    "spec": {},
}
ABOUT_TARGETS = {rule.id for rule in load_rules() if rule.target}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a verb on the objects: the exit code, the rules that found something by object,
    and stderr.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "objects.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [CLUSTER, TYPE]})
    )

    def invoke(*args):
        result = CliRunner().invoke(main.virt_admit, args, standalone_mode=False)
        if isinstance(result.exception, main.click.ClickException):
            return 2, set(), result.exception.message
        assert result.exception is None, result.exception
        report = json.loads(result.stdout)
        found = {found["rule"] for found in report["results"] if "rule" in found}
        return result.return_value, found, result.stderr

    return invoke


CHECK = ("check", "objects.json", "-o", "json")
SCAN = ("scan", "--cluster", "objects.json", "-o", "json")


@pytest.mark.parametrize("verb", [CHECK, SCAN])
def test_only_a_target_makes_rules_about_upgrades_speak(run, verb):
    _, without, _ = run(*verb)
    _, found, _ = run(*verb, "--target", "kubevirt=1.9")

    assert "kubevirt-feature-gate-unknown" in without
    assert not without & ABOUT_TARGETS
    assert {
        "kubevirt-feature-gate-changes",
        "kubevirt-default-changes",
        "kubevirt-api-version-removed",
    } <= found


def test_a_kind_that_only_these_rules_judge_is_unknown_without_a_target(run):
    _, _, err = run(*CHECK)
    assert "1 object of 1 kind" in err
    _, _, err = run(*CHECK, "--target", "kubevirt=1.9")
    assert "2 objects of 2 kinds" in err


def test_a_release_that_is_the_same_says_nothing(run):
    _, found, _ = run(*CHECK, "--target", "kubevirt=1.8.3")
    assert "kubevirt-feature-gate-changes" not in found


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("kubevirt=1.99", "Known: 1.5, 1.6, 1.7, 1.8, 1.9"),
        ("kubevirt=new", "'new' of kubevirt is not known"),
        ("kubernetes=1.2", "1.36, 1.37"),
        ("kubvirt=1.9", "did you mean kubevirt"),
        ("1.9", "Components: kubevirt, hyperconverged, kubernetes"),
        ("kubevirt=1.8,kubevirt=1.9", "named twice"),
        ("", "no release is named"),
    ],
)
def test_an_unknown_target_is_a_usage_error(run, target, says):
    code, _, message = run(*CHECK, "--target", target)
    assert code == 2
    assert message.startswith("--target: ")
    assert says in message


def test_selecting_a_rule_about_upgrades_needs_a_target(run):
    code, _, message = run(*CHECK, "--select", "hco-default-changes")
    assert code == 2
    assert "add --target, such as --target hyperconverged=1.19" in message


@pytest.mark.parametrize("option", [("--metrics", "out.prom"), ("--events",)])
def test_a_target_writes_nothing_about_the_present(run, option):
    code, _, message = run("scan", "--target", "kubevirt=1.9", *option)
    assert code == 2
    assert "--target" in message


def test_a_release_of_kubevirt_implies_that_of_hyperconverged():
    assert releases.parse("kubevirt=v1.9.0") == releases.UpgradeTarget("1.9", "1.19")
    assert releases.parse("kubevirt=1.9, hyperconverged=1.18") == releases.UpgradeTarget(
        "1.9", "1.18"
    )


def test_a_request_of_the_api_server_has_no_target():
    request = Request("CREATE", KUBEVIRT, Object(CLUSTER), name="kubevirt", namespace="kubevirt")
    rules = load_rules()

    assert not {rule.id for rule in applicable_rules(request, rules)} & ABOUT_TARGETS
    assert not {rule.id for rule in rules.at_admission} & ABOUT_TARGETS
    assert len(ABOUT_TARGETS) >= 7


def test_rules_names_the_first_release():
    result = CliRunner().invoke(main.virt_admit, ["rules", "hco-default-changes"])
    assert (
        "Target: runs only with `--target`, from hyperconverged 1.19, kubevirt 1.9 on"
        in result.stdout
    )
