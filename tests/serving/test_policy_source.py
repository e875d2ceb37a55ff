"""The policy from a ConfigMap or a file: absent, valid, changed, not valid, unreadable."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import eventually
from virt_admit.policy.files import PolicyConfigMap
from virt_admit.policy.policy import Policy
from virt_admit.rule import Action
from virt_admit.rules import load_rules
from virt_admit.serving.metrics import ProcessMetrics
from virt_admit.serving.policy_source import PolledPolicy, policy_source
from virt_admit.serving.reload import Polled, Reloaded
from virt_admit.serving.settings import Settings
from virt_admit.settings import SettingError
from virt_admit_certs.kube_api import ApiError, ApiResponse

RULES = load_rules()
RULE = RULES.by_id["vm-running-and-run-strategy"]
PLACE = PolicyConfigMap.parse()


class FakeServer:
    """An API server that has the ConfigMap, has none, refuses to show it, or does not answer."""

    def __init__(self, text: str | None = None) -> None:
        self.text = text
        self.status = 200
        self.paths: list[str] = []

    def request_json(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media_type: str = "",
        query: Mapping[str, str] | None = None,
    ) -> ApiResponse:
        self.paths.append(path)
        if self.status == 0:
            raise ApiError(0, "does not answer")
        if path == "/apis":
            return ApiResponse(200, {"kind": "APIGroupList"})
        assert (method, path) == (
            "GET",
            "/api/v1/namespaces/virt-admit/configmaps/virt-admit-policy",
        )
        if self.status != 200:
            return ApiResponse(self.status)
        if self.text is None:
            return ApiResponse(404)
        return ApiResponse(200, {"kind": "ConfigMap", "data": {"policy.yaml": self.text}})


def action(policy: Policy) -> Action:
    return policy.decide(RULE, "shop").action


def source(
    server: FakeServer, place: PolicyConfigMap = PLACE
) -> tuple[PolledPolicy, list[Exception]]:
    errors: list[Exception] = []
    return PolledPolicy(server, place, RULES, errors.append), errors


@pytest.mark.parametrize(
    ("fallback", "expected"), [("default", Action.DENY), ("audit", Action.AUDIT)]
)
def test_the_fallback_holds_while_the_configmap_does_not_exist(
    fallback: str, expected: Action
) -> None:
    server = FakeServer()
    polled, errors = source(
        server, PolicyConfigMap.parse(f"virt-admit/virt-admit-policy,fallback={fallback}")
    )
    assert (action(polled()), polled.error, errors) == (expected, None, [])
    server.text = f"rules: {{{RULE.id}: {{action: warn}}}}"
    polled.refresh()
    # the ConfigMap of the administrator wins over the component audit
    assert action(polled()) is Action.WARN
    server.text = None
    polled.refresh()
    assert action(polled()) is expected


@pytest.mark.parametrize(
    "break_it",
    [
        lambda server: setattr(server, "text", "rules: {vm-runing: {action: deny}}"),
        lambda server: setattr(server, "text", "a: [1"),
        lambda server: setattr(server, "status", 403),
        lambda server: setattr(server, "status", 500),
        lambda server: setattr(server, "status", 0),
    ],
    ids=["unknown rule", "no YAML", "forbidden", "server error", "no answer"],
)
def test_the_last_good_policy_stays(break_it: Any) -> None:
    server = FakeServer(f"rules: {{{RULE.id}: {{action: warn}}}}")
    polled, errors = source(server)
    loaded = polled()
    break_it(server)
    for _ in range(3):
        polled.refresh()
    assert polled() is loaded
    assert len(errors) == 1  # once, not in every round
    assert str(polled.error) == str(errors[0])
    server.text, server.status = f"rules: {{{RULE.id}: {{action: audit}}}}", 200
    polled.refresh()
    assert (action(polled()), polled.error) == (Action.AUDIT, None)


def test_a_process_without_a_previous_policy_rejects_nothing() -> None:
    server = FakeServer("rules: [")
    polled, errors = source(
        server, PolicyConfigMap.parse("virt-admit/virt-admit-policy,fallback=strict")
    )
    assert (action(polled()), polled.loaded_at, len(errors)) == (Action.AUDIT, 0.0, 1)
    server.text = "extends: default"
    polled.refresh()
    assert (action(polled()), polled.error) == (Action.DENY, None)
    assert polled.loaded_at > 0


def test_an_unchanged_configmap_is_not_parsed_again() -> None:
    server = FakeServer("extends: default")
    polled, _ = source(server)
    loaded = polled()
    polled.refresh()
    assert polled() is loaded
    assert len(server.paths) == 2


def test_an_absent_configmap_after_a_restored_one_is_noticed_when_nothing_else_changed() -> None:
    server = FakeServer("a: [")
    polled, _ = source(server)
    server.text = None
    polled.refresh()
    assert (action(polled()), polled.error) == (Action.DENY, None)


@pytest.mark.parametrize(
    "text", ["b", "a/b/c", "a/b,fallback=lax", "a/b,fallback=", "a/b,other=audit", "/b", "a/", ""]
)
def test_a_wrong_flag(text: str) -> None:
    with pytest.raises(SettingError, match="--policy-configmap"):
        PolicyConfigMap.parse(text)


def test_a_changed_file_is_in_force_soon_and_a_broken_one_is_counted_once(tmp_path: Path) -> None:
    file, metrics = tmp_path / "policy.yaml", ProcessMetrics()
    file.write_text("extends: default")
    found = policy_source(Settings(policy=str(file)), RULES, metrics)
    assert action(found()) is Action.DENY

    file.write_text("extends: audit")
    eventually(lambda: action(found()) is Action.AUDIT)
    file.write_text("extends: nonsense")
    eventually(lambda: found.error)
    assert action(found()) is Action.AUDIT
    text = metrics.text().decode()
    assert "virt_admit_policy_reload_errors_total 1.0" in text
    assert "virt_admit_policy_current 0.0" in text
    file.write_text("extends: default")
    eventually(lambda: action(found()) is Action.DENY)
    assert found.error is None


def test_no_caller_waits_while_a_file_is_parsed(tmp_path: Path) -> None:
    file, parsing, end = tmp_path / "file", threading.Event(), threading.Event()

    def parse(path: Path) -> str:
        text = path.read_text()
        if text != "first":
            parsing.set()
            assert end.wait(60)
        return text

    file.write_text("first")
    polled = Polled(Reloaded(parse, file))
    polled.start(0.01)
    file.write_text("the second")
    assert parsing.wait(60)
    assert polled() == "first"
    end.set()
    eventually(lambda: polled() == "the second")
