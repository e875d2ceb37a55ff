"""The rights that the manifests give to the webhook and to the scan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from click.testing import CliRunner

from tests.install.test_manifests import RULES
from virt_admit.cli import main
from virt_admit.install import manifests
from virt_admit.install.manifests import NAME, SCAN, WATCHER
from virt_admit.model.kubernetes.events import EVENT
from virt_admit.rules import load_rules
from virt_admit.settings import CERTS_SECRET, NAMESPACE, SERVICE

READ = ["list", "watch"]


def granted(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for obj in found for rule in obj.get("rules", ())]


POLICY_RIGHT = {
    "apiGroups": [""],
    "resources": ["configmaps"],
    "resourceNames": ["virt-admit-policy"],
    "verbs": ["get"],
}


class TestRights:
    WEBHOOK = manifests.rbac(RULES)
    POLICY = tuple(obj for obj in WEBHOOK if obj["metadata"]["name"] == "virt-admit-policy")
    OWN = tuple(obj for obj in WEBHOOK if obj["metadata"]["name"] != "virt-admit-policy")
    SWEEP = manifests.scan_rbac(load_rules())
    ELSEWHERE = tuple(obj for home in manifests.rbac_elsewhere(RULES).values() for obj in home)

    def test_no_wildcard(self):
        for rule in granted([*self.WEBHOOK, *self.SWEEP, *self.ELSEWHERE]):
            assert not any("*" in value for values in rule.values() for value in values)

    def test_what_is_written_is_ours_and_named(self):
        written = [
            rule
            for rule in granted([*self.WEBHOOK, *self.SWEEP, *self.ELSEWHERE])
            if not set(rule["verbs"]) <= {*READ, "get"}
        ]
        assert written == [
            {
                "apiGroups": ["admissionregistration.k8s.io"],
                "resources": ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
                "resourceNames": [NAME],
                "verbs": ["get", "patch"],
            },
            {
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": [CERTS_SECRET.partition("/")[2]],
                "verbs": ["get", "create", "patch"],
            },
        ]

    def test_the_webhook_reads_what_its_rules_look_up(self):
        read = [rule for rule in granted([*self.WEBHOOK, *self.ELSEWHERE]) if rule["verbs"] == READ]
        wanted = {kind for rule in RULES for kind in rule.reads if not kind.not_at_admission}
        assert self._kinds(read) == {(kind.group, kind.plural) for kind in wanted}

    def test_leases_in_one_namespace_alone(self):
        homes = {
            obj["metadata"]["namespace"]: self._kinds(obj["rules"])
            for obj in self.ELSEWHERE
            if "rules" in obj
        }
        assert homes == {"medik8s-leases": {("coordination.k8s.io", "leases")}}
        everywhere = self._kinds(
            rule for rule in granted([*self.WEBHOOK, *self.SWEEP]) if rule != POLICY_RIGHT
        )
        assert not everywhere & {("coordination.k8s.io", "leases"), ("", "configmaps")}

    def test_the_scan_lists_what_rules_judge_and_look_up_and_what_an_upgrade_depends_on(self):
        listed = [rule for rule in granted(self.SWEEP) if rule["verbs"] == ["list"]]
        judged = (kind for rule in load_rules().in_scan for kind in (*rule.kinds, *rule.reads))
        wanted = {*manifests.FORECAST_READS, *judged, EVENT}
        assert self._kinds([*listed, *granted(self.ELSEWHERE)]) == {
            (kind.group, kind.plural) for kind in wanted
        }

    @pytest.mark.parametrize(
        ("found", "namespaces"),
        [(WEBHOOK, ["medik8s-leases"]), (SWEEP, ["medik8s-leases"])],
        ids=["webhook", "scan"],
    )
    def test_whether_the_namespaces_of_single_look_ups_exist(self, found, namespaces):
        (asked,) = [
            rule
            for rule in granted(found)
            if rule["resources"] == ["namespaces"] and "resourceNames" in rule
        ]
        assert asked["resourceNames"] == namespaces
        assert asked["verbs"] == ["get"]

    def test_the_verb_says_what_it_leaves_out(self):
        told = " ".join(CliRunner().invoke(main.virt_admit, ["manifests", "--help"]).output.split())
        for home in manifests.rbac_elsewhere(RULES):
            assert home in told
        assert "reports and Events" in told

    @staticmethod
    def _kinds(rules: Iterable[dict[str, Any]]) -> set[tuple[str, str]]:
        return {
            (group, plural)
            for rule in rules
            for group in rule["apiGroups"]
            for plural in rule["resources"]
        }

    @pytest.mark.parametrize(
        ("found", "accounts"),
        [
            (OWN, [SERVICE]),
            (SWEEP, [SCAN]),
            *((found, [SERVICE, SCAN, WATCHER]) for found in (ELSEWHERE, POLICY)),
        ],
    )
    def test_each_role_is_bound_to_its_account_alone(self, found, accounts):
        def at(obj: dict[str, Any], name: dict[str, Any]) -> tuple[str, str, str]:
            return obj["metadata"].get("namespace", ""), name["kind"], name["name"]

        bindings = [obj for obj in found if "roleRef" in obj]
        assert {at(obj, obj["roleRef"]) for obj in bindings} == {
            at(obj, {"kind": obj["kind"], **obj["metadata"]}) for obj in found if "rules" in obj
        }
        for each in bindings:
            assert each["subjects"] == [
                {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
                for account in accounts
            ]
