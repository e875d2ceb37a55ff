"""The policy is an object of the administrator: no manifest contains it,
and the pods may read it.
"""

from __future__ import annotations

import yaml

from tests.install import test_rights
from tests.install.test_manifests import FILES, one
from tests.install.test_rights import POLICY_RIGHT, granted
from virt_admit.policy.files import PolicyConfigMap


def test_audit_changes_only_the_fallback():
    (patch,) = one("components/audit/kustomization.yaml", "Component")["patches"]
    (container,) = yaml.safe_load(patch["patch"])["spec"]["template"]["spec"]["containers"]
    assert container.keys() == {"name", "env"}
    (variable,) = container["env"]
    audit = PolicyConfigMap.parse(variable["value"])
    assert audit == PolicyConfigMap.parse()._replace(fallback="audit")


def test_nothing_that_is_applied_again_contains_the_policy_of_the_administrator():
    texts = [file.read_text() for file in FILES]
    assert not [text for text in texts if "kind: ConfigMap\n" in text or "policy.yaml" in text]


def test_of_config_maps_only_the_policy_is_read_by_webhook_and_scan():
    (name,) = [
        obj["metadata"]["name"] for obj in test_rights.TestRights.POLICY if obj["kind"] == "Role"
    ]
    assert name == "virt-admit-policy"
    assert granted(test_rights.TestRights.POLICY) == [POLICY_RIGHT]
