import pytest

from tests.apiserver.webhook import Webhook


@pytest.fixture(scope="package")
def webhook(tmp_path_factory):
    """The webhook over HTTPS on loopback, seeing nothing of a cluster."""
    with Webhook(tmp_path_factory.mktemp("webhook")) as running:
        yield running
