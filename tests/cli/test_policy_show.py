"""``virt-admit policy lint`` and ``policy show``."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from tests.fake_api import FakeApi
from virt_admit.cli import main

RULE = "vm-pinned-to-one-node"
POLICY = f"""\
extends: strict
namespaces:
- {{match: "dev-*", rules: {{"vm-*": {{action: audit}}}}}}
exempt:
  namespaces:
  - {{match: "dev-*", rules: ["{RULE}"], reason: "moves in March", until: 2999-03-31}}
  - {{match: "*", rules: ["*"], reason: "is over", until: 2020-03-31}}
"""
CONFIGMAP = "/api/v1/namespaces/virt-admit/configmaps/virt-admit-policy"
DEPLOYMENT = "/apis/apps/v1/namespaces/virt-admit/deployments/virt-admit-webhook"


def policy(*args):
    result = CliRunner().invoke(main.virt_admit, ["policy", *map(str, args)], standalone_mode=False)
    if isinstance(result.exception, click.ClickException):
        return 2, result.exception.message
    assert result.exception is None, result.exception
    return result.return_value, result.stdout


@pytest.fixture
def file(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path / "policy.yaml"


@pytest.fixture
def api(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with FakeApi() as running:
        yield running


def test_a_valid_file_names_its_expired_exemptions(file):
    code, out = policy("lint", file)
    assert code == 0
    assert "exemption for * expired on 2020-03-31: is over" in out
    assert f"{file}: valid" in out


def test_a_file_that_is_not_valid(file):
    file.write_text("extends: strickt\n")
    code, out = policy("lint", file)
    assert (code, out) == (
        2,
        f"{file}:1: extends: must be one of audit, default, strict; did you mean strict?",
    )
    assert policy("lint", file.parent / "none.yaml")[0] == 2


def test_the_layer_that_decides(file):
    rows = {
        line.split()[1]: line.split(None, 2)
        for line in policy("show", "shop", "--policy", file)[1].splitlines()
    }
    assert rows[RULE] == ["deny", RULE, "strict: rules"]
    assert rows["vm-live-migrate-not-migratable"][0] == "deny"
    rows = {
        line.split()[1]: line.split(None, 2)
        for line in policy("show", "dev-a", "--policy", file)[1].splitlines()
    }
    assert rows[RULE][0] == "off"
    assert rows[RULE][2].startswith("exempt: dev-* until 2999-03-31: moves in March (")


def test_every_layer_of_one_rule(file):
    code, out = policy("show", "dev-a", RULE, "--policy", file)
    assert code == 0
    assert out.splitlines()[:7] == [
        f"policy: {file}",
        f"{RULE} in namespace dev-a: off (exempt: dev-* until 2999-03-31: moves in March "
        f"({file}: namespaces[0].rules: audit))",
        "  fix: none",
        "layers, weakest first:",
        '  the rule itself: {"action": "warn"}',
        '  strict: rules: {"action": "deny"}',
        f'  {file}: namespaces[0].rules: {{"action": "audit"}}',
    ]
    assert f"exempt: dev-*: {RULE} until 2999-03-31: at most off: moves in March" in out
    assert "is over" not in out


def test_parameters_and_fix_are_shown():
    out = policy("show", "shop", "vm-eviction-strategy-default", "--policy", "default")[1]
    assert "  fix: on\n  always: False\n" in out


def test_json(file):
    code, out = policy("show", "dev-a", RULE, "--policy", file, "-o", "json")
    data = json.loads(out)
    assert code == 0
    assert (data["policy"], data["namespace"]) == (str(file), "dev-a")
    (found,) = data["rules"]
    assert (found["action"], len(found["layers"])) == ("off", 3)
    assert data["exemptions"][0]["reason"] == "moves in March"


def test_a_rule_that_does_not_exist():
    code, out = policy("show", "shop", "vm-pinned-to-on-node", "--policy", "default")
    assert (code, out) == (2, f"no rule has the id vm-pinned-to-on-node. Did you mean {RULE}?")


class TestOfACluster:
    def show(self, api, tmp_path, *args):
        return policy("show", "dev-a", RULE, "--kubeconfig", api.kubeconfig(tmp_path), *args)

    def test_the_configmap(self, api, tmp_path):
        api.broken[CONFIGMAP] = json.dumps({"data": {"policy.yaml": POLICY}}).encode()
        code, out = self.show(api, tmp_path)
        assert code == 0
        assert out.startswith("policy: ConfigMap virt-admit/virt-admit-policy\n")
        assert f"{RULE} in namespace dev-a: off (exempt: dev-*" in out
        assert "ConfigMap virt-admit/virt-admit-policy: namespaces[0].rules: audit" in out

    def test_the_fallback_of_the_deployment(self, api, tmp_path):
        variable = {
            "name": "VIRT_ADMIT_POLICY_CONFIGMAP",
            "value": "virt-admit/virt-admit-policy,fallback=audit",
        }
        deployment = {"spec": {"template": {"spec": {"containers": [{"env": [variable]}]}}}}
        api.broken[DEPLOYMENT] = json.dumps(deployment).encode()
        out = self.show(api, tmp_path)[1]
        assert out.startswith(
            "policy: audit (ConfigMap virt-admit/virt-admit-policy does not exist)\n"
        )
        assert "in namespace dev-a: audit (audit: rules)" in out

    def test_without_any_right(self, api, tmp_path):
        api.forbidden |= {CONFIGMAP, DEPLOYMENT}
        code, out = self.show(api, tmp_path)
        assert code == 2
        assert "--policy" in out
