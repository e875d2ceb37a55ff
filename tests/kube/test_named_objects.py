"""The single object that is read by name: only where nodes need it,
and never with others of its kind.
"""

import pytest

from tests.fake_api import FakeApi, path_of
from virt_admit.kube import informers, named_objects
from virt_admit.kube.cache import KindStore
from virt_admit.kube.client import ApiClient
from virt_admit.model.kubernetes.kinds import HARVESTER_SETTING, NODE

NAME = "vm-force-reset-policy"
ONE = f"{path_of(HARVESTER_SETTING)}/{NAME}"


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Return the settings that are known, and the requests about settings."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def run(*, managed=True, answer=b'{"metadata":{"name":"vm-force-reset-policy"},"value":"x"}'):
        with FakeApi() as fake:
            fake.install(NODE)
            labels = {"harvesterhci.io/managed": "true"} if managed else {}
            fake.put(NODE, {"metadata": {"name": "n1", "labels": labels}})
            if answer is None:
                fake.forbidden.add(ONE)
            else:
                fake.broken[ONE] = answer
            api = ApiClient.connect(fake.kubeconfig(tmp_path), None)
            cluster = informers.snapshot(api, [KindStore(NODE)])
            named_objects.read(api, cluster)
            return (
                [each["value"].text for each in cluster.known(HARVESTER_SETTING)],
                [path for path, _ in fake.requests if "settings" in path],
            )

    return run


def test_a_node_of_harvester(read):
    assert read() == (["x"], [ONE])


def test_other_nodes_need_nothing(read):
    assert read(managed=False) == ([], [])


@pytest.mark.parametrize(
    "answer", [None, b"{", b"[]", b'{"metadata":1}'], ids=["no right", "cut", "list", "types"]
)
def test_an_answer_that_is_none(read, answer):
    assert read(answer=answer) == ([], [ONE])
