"""The webhook configurations: what is read, and what a patch changes."""

from __future__ import annotations

import base64

import pytest

from tests.certs.world import KINDS, FakeApi, Time
from virt_admit_certs.kube_api import ApiError
from virt_admit_certs.webhook_configurations import (
    WebhookConfiguration,
    WebhookConfigurations,
    WebhookEntry,
    patch,
)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi(Time())


class TestConfigurations:
    def test_none_exists(self, api):
        assert WebhookConfigurations(api).read() == ()

    def test_read(self, api):
        api.register()
        api.overwrite_bundles(b"bundle")

        found = WebhookConfigurations(api).read()

        assert [configuration.kind for configuration in found] == list(KINDS)
        assert found[0].entries == (
            WebhookEntry("0.virt-admit.io", b"bundle"),
            WebhookEntry("1.virt-admit.io", b"bundle"),
        )
        assert found[0].carries(b"bundle")
        assert not found[0].carries(b"another")

    def test_inject_writes_only_what_differs(self, api):
        api.register("MutatingWebhookConfiguration")
        webhooks = api.configurations["MutatingWebhookConfiguration"]["webhooks"]
        webhooks[1]["clientConfig"]["caBundle"] = base64.b64encode(b"bundle").decode()
        configurations = WebhookConfigurations(api)
        [found] = configurations.read()

        operations = patch(found, b"bundle")
        after = configurations.inject(found, b"bundle")

        assert [operation["path"] for operation in operations] == [
            "/metadata/resourceVersion",
            "/webhooks/0/name",
            "/webhooks/0/clientConfig/caBundle",
        ]
        assert after.carries(b"bundle")
        body = api.configurations["MutatingWebhookConfiguration"]
        assert [webhook["x"] for webhook in body["webhooks"]] == [0, 1]
        assert body["webhooks"][0]["clientConfig"]["service"] == {}

    @pytest.mark.parametrize("meanwhile", ["changed", "shortened", "deleted"])
    def test_a_configuration_that_moved_is_left_alone(self, api, meanwhile):
        api.register("ValidatingWebhookConfiguration")
        configurations = WebhookConfigurations(api)
        [found] = configurations.read()
        body = api.configurations["ValidatingWebhookConfiguration"]
        if meanwhile == "changed":
            body["metadata"]["resourceVersion"] = "9999"
        elif meanwhile == "shortened":
            del body["webhooks"][1]
        else:
            api.configurations.clear()

        assert configurations.inject(found, b"bundle") is found
        assert b"bundle" not in api.published

    def test_an_entry_without_client_configuration_does_not_stop_reading(self, api):
        api.register("ValidatingWebhookConfiguration")
        api.configurations["ValidatingWebhookConfiguration"]["webhooks"] = [{"name": "a.b.c"}]

        assert WebhookConfigurations(api).read()[0].entries == (WebhookEntry("a.b.c", b""),)
        del api.configurations["ValidatingWebhookConfiguration"]["webhooks"]
        assert WebhookConfigurations(api).read()[0].carries(b"anything")

    @pytest.mark.parametrize("verb", ["get configuration", "patch configuration"])
    def test_without_the_right_it_says_so(self, api, verb):
        api.register()
        configurations = WebhookConfigurations(api)
        found = configurations.read()[0]
        api.forbidden = {verb}

        with pytest.raises(ApiError, match="ValidatingWebhookConfiguration virt-admit: forbidden"):
            configurations.inject(found, b"x") if verb.startswith(
                "patch"
            ) else configurations.read()

    def test_patches_start_with_the_version(self):
        configuration = WebhookConfiguration("ValidatingWebhookConfiguration", "7", ())

        assert patch(configuration, b"x") == [
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
        ]
