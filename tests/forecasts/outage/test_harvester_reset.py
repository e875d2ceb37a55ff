"""Harvester frees the pods of a node that is lost, if its setting says so."""

import pytest

from tests.forecasts.outage.losses import lose, manifest, node, pod, snapshot, vm
from tests.forecasts.outage.test_health_actors import only_vm, parts
from tests.rule_results import result_of
from virt_admit.forecasts.remediation import harvester_reset
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.lookups import ReviewCache
from virt_admit.rule import Context
from virt_admit.rules.node import node_without_health_check


def harvester(
    value, *own, group="harvesterhci.io", release=None, role=None, ready="True", kubelet=None
):
    """The loss of a node of Harvester, whose setting has this value,
    and whose own pods are on these nodes.
    """
    nodes = [node("n1", ready=ready), node("n2"), node("n3")]
    for each in nodes:
        each["metadata"]["labels"]["harvesterhci.io/managed"] = "true"
    fields = {"value": value, "default": '{"enable":true,"period":300}'}
    setting = manifest(f"{group}/v1beta1", "Setting", "vm-force-reset-policy", **fields)
    place = {"namespace": "harvester-system", "labels": {"app.kubernetes.io/name": "harvester"}}
    pods = [pod(f"harvester-{on}", on, "1Gi", metadata=place) for on in own]
    for each in nodes if kubelet else ():
        each["status"]["nodeInfo"] = {"kubeletVersion": kubelet}
    for each in nodes if role is not None else ():
        each["metadata"]["labels"][f"node-role.kubernetes.io/{role}"] = "true"
    found = snapshot(nodes, vm("db", "n1"), pods, setting if value is not None else [])
    found.server_version = release
    return lose(found, "n1")


@pytest.mark.parametrize(("value", "wait"), [('{"enable":true,"period":90}', 90), ("", 300)])
def test_harvester_frees_the_pods_of_its_nodes(value, wait):
    found = harvester(value, "n1", "n2")
    assert found.survives is True
    assert parts(only_vm(found))["waited"] == (wait, wait)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ('{"enable":false,"period":300}', "it is switched off"),
        ('{"enable":true,"period":0}', "it is not valid"),
        ('{"enable":true,"period":1e999}', "it is not valid"),
        ('{"enable":true,"period":"90"}', "it is not valid"),
        (f'{{"enable":true,"period":1{"0" * 400}}}', "it is not valid"),
        ("[]", "it is not valid"),
        ("yes", "it is not valid"),
    ],
)
def test_harvester_does_nothing_where_its_setting_says_so(value, why):
    found = harvester(value, "n1", "n2")
    row = only_vm(found)
    assert (found.survives, row.outcome) == (False, "never restarts")
    assert f"Harvester's setting vm-force-reset-policy refuses: {why}" in found.because[0]
    assert "kubectl edit settings.harvesterhci.io vm-force-reset-policy" in row.remedy


@pytest.mark.parametrize("ready", ["True", "Unknown"])
def test_a_silent_node_is_off_before_its_vms_are_reset(ready):
    row = only_vm(harvester('{"enable":false,"period":300}', "n1", "n2", ready=ready))
    assert ("make sure that n1 is off, then enable it" in row.remedy) is (ready != "True")


@pytest.mark.parametrize(
    ("release", "role", "taint", "delete"),
    [
        ("v1.26.0+rke2r1", None, True, False),
        ("v1.25.9+rke2r1", None, False, True),
        ("v1.23.4", "control-plane", False, False),
        ("v1.25.9", "etcd", False, False),
    ],
)
def test_the_taint_is_offered_where_the_release_acts_on_it(release, role, taint, delete):
    off = '{"enable":false,"period":300}'
    row = only_vm(harvester(off, "n1", "n2", release=release, role=role))
    assert ("kubectl taint nodes n1" in row.remedy) is taint
    assert ("start n1 again: until then, Kubernetes" in row.remedy) is not taint
    assert ("delete its Node object" in row.remedy) is delete
    assert (row.by_hand is not None) is taint


UNSURE = "taint it out-of-service (the taint has an effect from Kubernetes 1.26 on, and the"


@pytest.mark.parametrize(
    ("kubelet", "sure"), [("v1.31.1+rke2r1", True), ("v1.25.9+rke2r1", False), (None, False)]
)
def test_no_kubelet_is_newer_than_an_api_server_of_a_release_that_is_not_known(kubelet, sure):
    row = only_vm(harvester('{"enable":false,"period":300}', "n1", "n2", kubelet=kubelet))
    assert "kubectl taint nodes n1" in row.remedy
    assert (UNSURE in row.remedy) is not sure
    assert (row.by_hand is not None) is sure


def test_harvester_is_lost_with_its_only_pod():
    found = harvester('{"enable":true,"period":300}', "n1")
    assert found.survives is False
    assert "none of its own pods is left" in found.because[0]


@pytest.mark.parametrize(
    "found",
    [
        harvester(None, "n2"),
        harvester('{"enable":false,"period":300}', "n2", group="longhorn.io"),
        harvester('{"enable":true,"period":300}'),
    ],
    ids=["no setting", "another setting", "no pod of Harvester is known"],
)
def test_what_harvester_does_may_not_be_known(found):
    assert found.survives is None
    assert any("Harvester" in what for what in found.unseen)
    (one,) = found.outages
    assert all("which health check" not in vm.reason for vm in one.vms)


@pytest.mark.parametrize(("ready", "says"), [("True", []), ("Unknown", [harvester_reset.UNREAD])])
def test_the_unread_setting_is_told_only_of_a_node_that_is_lost(ready, says):
    first = node("n1", ready=ready)
    first["metadata"]["labels"][nodes.HARVESTER] = "true"
    first["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    found = snapshot(first, node("n2"), vm("db", "n1"))
    (own,) = (each for each in found.known(NODE) if each.name == "n1")
    rule = node_without_health_check.check
    result = result_of(rule, own, Context(found, rule.params, ReviewCache(found), kind=NODE))
    assert (result.findings, list(result.unseen), result.error) == ((), says, "")
