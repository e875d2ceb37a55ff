"""One reading of a live cluster asks for no kind of an operator that is not installed."""

import pytest

from tests.fake_api import FakeApi, path_of
from virt_admit.kube import informers
from virt_admit.kube.cache import KindStore
from virt_admit.kube.client import ApiClient, ApiError
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, KUBEVIRT, NODE, VM


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Return the cluster, and the paths that were asked for."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def run(groups):
        with FakeApi() as fake:
            fake.install(NODE)
            fake.install(VM)
            if groups is None:
                fake.failing["/apis"] = 403
            elif groups:
                fake.broken["/apis"] = groups
            api = ApiClient.connect(fake.kubeconfig(tmp_path), None)
            stores = map(KindStore, (NODE, VM, KUBEVIRT, CAPI_MACHINE))
            return informers.snapshot(api, stores), [path for path, _ in fake.requests]

    return run


def test_a_group_that_is_not_served_is_not_asked_for(read):
    cluster, asked = read(b"")
    assert list(cluster.list(CAPI_MACHINE)) == list(cluster.list(KUBEVIRT)) == []
    assert asked[:3] == ["/version", "/apis", path_of(NODE)]
    assert not any(path.startswith(f"/apis/{CAPI_MACHINE.group}/") for path in asked)
    assert path_of(KUBEVIRT) in asked, "its group has another kind"


def test_each_kind_is_asked_for_where_the_groups_cannot_be_listed(read):
    cluster, asked = read(None)
    assert path_of(CAPI_MACHINE) in asked
    with pytest.raises(Unseen):
        list(cluster.list(CAPI_MACHINE))


@pytest.mark.parametrize("answer", [b"{", b"[]", b'{"kind":"Status"}', b'{"kind":"APIGroupList"}'])
def test_what_is_no_api_server_is_an_error(read, answer, monkeypatch):
    monkeypatch.setattr(informers, "PATIENCE", 0)
    with pytest.raises(ApiError, match="not the answer of an API server"):
        read(answer)
