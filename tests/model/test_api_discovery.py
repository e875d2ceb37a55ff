"""What lets the discovery of an API go on whose Service does not exist."""

import pytest

from tests.builders import manifest
from tests.healthy.parts import api_service
from virt_admit.model import api_discovery
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        (
            ["services", "namespaces"],
            "its product was removed: delete this APIService, or install the product again",
        ),
        (
            ["services"],
            "delete this APIService if its product was removed, else install the product again",
        ),
    ],
)
def test_a_namespace_that_is_not_known_may_exist(listed, words):
    api = Object(api_service("v1beta1", "upload.cdi.kubevirt.io", ("gone", "cdi-api")))
    cluster = Snapshot([api, manifest("v1", "Namespace", "vms")], listed)
    assert api_discovery.remedy(api, cluster).words == words
