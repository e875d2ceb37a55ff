"""``doctor --probe``: only our own warning counts,
and each way in which it is lost has its own remedy.
"""

from __future__ import annotations

import pytest

from tests.install.installation import NOW, RULES, VALIDATING, Cluster
from virt_admit.engine import probe as engine_probe
from virt_admit.install.doctor import diagnose, exit_code
from virt_admit.install.inspect import Unreadable
from virt_admit.install.observations import Status
from virt_admit.install.probe import DryRunAnswer, Probe

SHOP = "/api/v1/namespaces/shop"


class Sent:
    """The requests of a probe, and the answer that each gets."""

    def __init__(self, *answer):
        self.answer, self.requests = DryRunAnswer(*answer), []

    def __call__(self, path, body):
        self.requests.append((path, body))
        return self.answer


def probed(sent, cluster=None, namespace="shop"):
    found = diagnose(cluster or Cluster(), RULES, NOW, None, Probe(namespace, "n0nce", sent))
    return exit_code(found), found[-1]


def test_our_warning_proves_that_the_webhook_is_reached():
    sent = Sent(201, "", ('299 - "[virt-admit/probe] n0nce"', '299 - "something else"'))
    code, found = probed(sent)
    assert (code, found.topic, found.status) == (0, "probe", Status.OK)
    ((path, body),) = sent.requests
    assert path == "/apis/kubevirt.io/v1/namespaces/shop/virtualmachines"
    assert body["metadata"]["annotations"] == {engine_probe.ANNOTATION: "n0nce"}
    assert body["metadata"]["name"] == "virt-admit-probe"


def test_the_warning_counts_even_if_another_webhook_rejects_the_probe():
    assert probed(Sent(422, "no", ('299 - "[virt-admit/probe] n0nce"',)))[0] == 0


LOST = {
    "admitted without a review": (
        (201, ""),
        "admitted without a review",
        "keep failurePolicy Ignore",
    ),
    "the warning of an older probe": (
        (201, "", ('299 - "[virt-admit/probe] other"',)),
        "no answer of the webhook",
        "keep failurePolicy Ignore",
    ),
    "failed closed": (
        (500, "failed calling webhook: context deadline exceeded"),
        "rejected: failed calling webhook",
        "keep failurePolicy Ignore",
    ),
    "forbidden": (
        (403, "user x cannot create"),
        "may not send",
        "kubectl auth can-i create virtualmachines",
    ),
    "no such namespace": ((404, "not found"), "no namespace shop", "--probe-namespace"),
    "no answer": ((0, "connection refused"), "did not answer", "run the command again"),
}


@pytest.mark.parametrize("name", LOST)
def test_without_the_warning_the_installation_is_wrong(name):
    answer, text, remedy = LOST[name]
    code, found = probed(Sent(*answer))
    assert (code, found.status) == (1, Status.WRONG)
    assert text in found.text
    assert remedy in found.remedy


def test_an_excluded_namespace_is_named_as_the_cause():
    cluster = Cluster()
    cluster.objects[SHOP] = {"metadata": {"labels": {"virt-admit.io/ignore": "true"}}}
    code, found = probed(Sent(201, ""), cluster)
    assert code == 1
    assert found.text.startswith("the webhook configurations exclude namespace shop")


def test_the_probe_is_wrong_where_nothing_is_installed_or_can_be_read():
    cluster = Cluster()
    cluster.objects = {"/version": {"gitVersion": "v1.36.3"}}
    assert probed(Sent(201, ""), cluster)[0] == 1
    unreadable = Cluster()
    unreadable.objects[VALIDATING] = Unreadable("forbidden")
    assert probed(Sent(201, ""), unreadable)[0] == 1


def test_without_the_flag_nothing_is_sent():
    assert "probe" not in {each.topic for each in Cluster().diagnose()}
