"""Kinds that no rule names are found by discovery, within bounds, and what is missing is said."""

import json
import pickle
import re
import time

import pytest

from tests.fake_api import FakeApi, path_of
from virt_admit.kube import further_kinds
from virt_admit.kube.cache import ClusterCache, KindStore
from virt_admit.kube.client import ApiClient
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.kinds import API_SERVICE, HARVESTER_SETTING, LONGHORN_VOLUME

POOL = kinds.guess("storage.example.com/v1", "Pool")
CSV = kinds.guess("operators.coreos.com/v1alpha1", "ClusterServiceVersion")
ABSENT = kinds.guess("absent.example.com/v1", "Any")


def pool(name="fast", **fields):
    return {
        "apiVersion": POOL.api_version,
        "kind": "Pool",
        "metadata": {"name": name, "namespace": "shop"},
        **fields,
    }


@pytest.fixture
def fake(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with FakeApi() as running:
        running.install(POOL, pool())
        running.kubeconfig(tmp_path)
        yield running


@pytest.fixture
def read(fake, tmp_path):
    """Return the cluster, and what is missing."""

    def run(*stores, namespace=""):
        cluster = ClusterCache(stores)
        client = ApiClient.connect(fake.kubeconfig(tmp_path), connections=4)
        return cluster, further_kinds.read(client, cluster, namespace)

    return run


def test_a_kind_that_the_table_does_not_know(read):
    cluster, missing = read()
    assert missing == ""
    assert [each.name for each in cluster.list(POOL)] == ["fast"]
    assert further_kinds.complete_names(cluster) == {(POOL.group, "Pool"): {"fast"}}


def test_a_kind_without_objects_is_known_to_have_none(fake, read):
    fake.install(LONGHORN_VOLUME)
    cluster, _ = read()
    assert list(cluster.list(LONGHORN_VOLUME)) == list(cluster.list(ABSENT)) == []


def test_code_may_guess_the_plural_and_the_version(fake, read):
    fake.install(kinds.guess("a.example.com/v2", "Policy")._replace(plural="policies"))
    cluster, _ = read()
    assert list(cluster.list(kinds.guess("a.example.com/v1", "Policy"))) == []


def test_the_cluster_can_be_copied(fake, read):
    cluster, _ = read()
    twin = pickle.loads(pickle.dumps(cluster.find_other))
    assert twin(POOL._replace(versions=("v7",))).find("shop", "fast") is not None
    assert twin(ABSENT).complete


def test_what_was_listed_is_not_read_again(fake, read):
    read(KindStore(POOL))
    assert not fake.asked(POOL)


@pytest.mark.parametrize(
    "kind",
    [
        *(
            HARVESTER_SETTING,
            kinds.guess("v1", "Secret"),
            kinds.guess("management.cattle.io/v3", "Token"),
        ),
        *(
            kinds.guess("a.example.com/v1", name)
            for name in ("RKE2Config", "MachineConfig", "HelmRelease", "Grafana")
        ),
        *(
            kinds.guess("b.example.com/v1", name)
            for name in ("SSHKeyPair", "PrivateKey", "BundleDeployment")
        ),
    ],
)
def test_what_may_hold_keys_is_not_asked_for(fake, read, kind):
    fake.install(kind)
    cluster, missing = read()
    assert (fake.asked(kind), missing) == (0, "")
    with pytest.raises(Unseen):
        list(cluster.list(kind))


VAP = kinds.guess("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding")


def test_policies_that_deny_writes_are_read_of_a_built_in_group(fake, read):
    binding = {"apiVersion": VAP.api_version, "kind": VAP.kind, "metadata": {"name": "b"}}
    fake.install(VAP._replace(namespaced=False), binding)
    cluster, missing = read()
    assert ([each.name for each in cluster.known(VAP)], missing) == (["b"], "")


def test_the_values_of_a_selector_are_kept_and_other_values_are_not(fake, read):
    selector = {"key": "team", "operator": "NotIn", "values": ["a"]}
    charts = [{"values": ["s3cret"]}, {"key": "k", "values": "s3cret", "operator": "In"}]
    fake.install(POOL, pool(spec={"matchExpressions": [selector], "charts": charts}))
    cluster, _ = read()
    (found,) = cluster.known(POOL)
    assert found["spec"].value == {
        "matchExpressions": [selector],
        "charts": [{}, {"key": "k", "operator": "In"}],
    }


def test_an_aggregated_api_is_not_asked_for(fake, read):
    served = {
        "metadata": {"name": "v1.storage.example.com"},
        "spec": {"group": POOL.group, "service": {"name": "own"}},
    }
    store = KindStore(API_SERVICE)
    store.upsert(served)
    cluster, _ = read(store)
    assert not fake.asked(POOL)
    with pytest.raises(Unseen):
        list(cluster.list(POOL))


def test_a_kind_that_may_not_be_listed(fake, read):
    fake.forbidden.add(path_of(POOL))
    cluster, missing = read()
    assert missing == "1 kind (pools.storage.example.com) that this account may not list"
    with pytest.raises(Unseen):
        list(cluster.list(POOL))
    cluster, missing = read(namespace="shop")
    assert missing == ""
    assert [each.name for each in cluster.list(POOL, "shop")] == ["fast"]
    with pytest.raises(Unseen):
        list(cluster.list(POOL))


def test_a_role_that_names_its_kinds_is_not_asked_for_each_other_kind(fake, read):
    many = [kinds.guess(f"g{number:03}.example.com/v1", "Thing") for number in range(100)]
    for kind in many:
        fake.install(kind)
        fake.forbidden.add(path_of(kind))
    _, missing = read()
    assert 30 <= sum(map(fake.asked, many)) < 50
    unasked, refused = missing.split(", and ")
    assert re.fullmatch(r"[34]\d kinds \(.*\) that this account may not list", refused)
    assert re.fullmatch(r"\d\d kinds \(.*\) not asked for, as 30 in a row were refused", unasked)
    requests = len(fake.requests)
    fake.forbidden |= {path_of(kind).replace("/things", "/namespaces/shop/things") for kind in many}
    read(namespace="shop")
    assert len(fake.requests) - requests < 200


def test_an_error_is_no_refusal(fake, read):
    fake.failing[path_of(POOL)] = 429
    _, missing = read(namespace="shop")
    assert (
        missing
        == "1 kind (pools.storage.example.com) for which the API server answered with status 429"
    )
    del fake.failing[path_of(POOL)]
    fake.forbidden.add(path_of(POOL))
    fake.failing["/apis/storage.example.com/v1/namespaces/shop/pools"] = 500
    _, missing = read(namespace="shop")
    assert missing.endswith("status 500")
    fake.forbidden.clear()
    fake.broken[path_of(POOL)] = b"<html>"
    _, missing = read()
    assert "with errors: this is not the answer of an API server" in missing


def test_one_bound_of_time_for_discovery_and_all_kinds(fake, read, monkeypatch):
    monkeypatch.setattr(further_kinds, "SECONDS", 0.5)
    fake.slow["/apis/storage.example.com/v1"] = 5.0
    began = time.monotonic()
    cluster, missing = read()
    assert time.monotonic() - began < 3.0
    assert missing == "the kinds of storage.example.com, which did not answer"
    with pytest.raises(Unseen):
        list(cluster.list(POOL))
    fake.slow = {path_of(POOL): 5.0}
    _, missing = read()
    assert missing == "1 kind (pools.storage.example.com) for which no time was left"


def test_fields_that_may_hold_keys_are_left_out(fake, read):
    fake.put(POOL, pool(spec={"values": {"a": "b"}, "nested": [{"password": "c", "size": 1}]}))
    cluster, _ = read()
    assert cluster.get(POOL, "shop", "fast").at("spec").map == {"nested": [{"size": 1}]}


def test_of_a_kind_with_many_objects_the_first_are_known(fake, read):
    fake.install(POOL, *(pool(f"p{number:03}") for number in range(600)))
    cluster, missing = read()
    assert len(cluster.known(POOL)) == 500
    assert missing == "1 kind (pools.storage.example.com) as a whole: there is too much of them"
    with pytest.raises(Unseen):
        cluster.get(POOL, "shop", "p599")


def test_bytes_are_bounded_and_long_texts_left_out(fake, read, monkeypatch):
    monkeypatch.setattr(further_kinds, "_MOST_OF_A_KIND", 10_000)
    monkeypatch.setattr(further_kinds, "_LONGEST", 1_000)
    note = {"spec": {"icon": "x" * 1_001, "note": "y" * 999}}
    fake.install(POOL, *(pool(f"p{number:02}", **note) for number in range(50)))
    cluster, missing = read()
    assert 9 <= len(cluster.known(POOL)) <= 12
    assert missing
    assert all(
        "icon" not in each.at("spec").map for each in cluster.known(POOL) if each.name != "fast"
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("SECONDS", -1.0, "no time was left"), ("MOST_BYTES", 0, "there is too much")],
)
def test_after_a_bound_the_rest_is_left_out(fake, read, monkeypatch, name, value, said):
    monkeypatch.setattr(further_kinds, name, value)
    cluster, missing = read()
    assert said in missing
    with pytest.raises(Unseen):
        list(cluster.list(POOL))


def test_copies_of_operators_are_not_read(fake, read):
    fake.install(CSV)
    cluster, _ = read()
    assert fake.asked(CSV, labelSelector="!olm.copiedFrom") == 1
    with pytest.raises(Unseen):
        cluster.get(CSV, "shop", "a-copy")


def aggregated(**version):
    """The answer of releases since 1.27."""
    one = {
        "resource": "pools",
        "responseKind": {"kind": "Pool"},
        "scope": "Namespaced",
        "verbs": ["get", "list"],
    }
    unknown = {"resource": "odd", "responseKind": None, "scope": "Namespaced", "verbs": ["list"]}
    subresources = [{"subresource": "status", "responseKind": {"kind": "Pool"}, "verbs": ["get"]}]
    versions = [
        {"version": "v1", "resources": [one | {"subresources": subresources}, unknown], **version}
    ]
    groups = [{"metadata": {"name": POOL.group}, "versions": versions}]
    return json.dumps({"kind": "APIGroupDiscoveryList", "items": groups}).encode()


def test_all_kinds_in_one_answer(fake, read):
    fake.broken["/apis"] = aggregated(freshness="Current")
    cluster, missing = read()
    assert missing == ""
    assert [each.name for each in cluster.list(POOL)] == ["fast"]
    assert list(cluster.list(POOL._replace(kind="Other"))) == []


def test_an_api_that_does_not_answer_may_have_other_kinds(fake, read):
    fake.broken["/apis"] = aggregated(freshness="Stale")
    cluster, _ = read()
    with pytest.raises(Unseen):
        list(cluster.list(POOL._replace(kind="Other")))


def test_without_discovery_nothing_is_known(fake, read):
    fake.broken["/apis"] = b"<html>"
    cluster, missing = read()
    assert missing.startswith(
        "the kinds of other operators: this is not the answer of an API server"
    )
    with pytest.raises(Unseen):
        list(cluster.list(ABSENT))
