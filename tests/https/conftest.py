import pytest

from tests.apiserver.webhook import Webhook
from tests.https.reviews import review, vm


@pytest.fixture(scope="package")
def webhook(tmp_path_factory):
    """The webhook over HTTPS on loopback, seeing nothing of a cluster."""
    with Webhook(tmp_path_factory.mktemp("webhook")) as running:
        yield running


@pytest.fixture
def own_webhook(tmp_path_factory):
    """A webhook that no other test uses, because the peak memory of a process never falls."""
    with Webhook(tmp_path_factory.mktemp("own")) as running:
        yield running


@pytest.fixture
def unharmed(webhook):
    """After the test, the same workers run, the next request is answered,
    and the log has no new traceback.
    """
    workers, logged = webhook.workers, webhook.log.stat().st_size
    yield
    assert webhook.post("/validate", review(vm()))[0] == 200
    assert webhook.workers == workers
    assert "Traceback" not in webhook.log.read_text()[logged:]
