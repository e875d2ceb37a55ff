"""How tests ask about a cluster."""

import copy
import json

import pytest
from click.testing import CliRunner

from tests.healthy.parts import snapshot
from tests.remedies import joined, wrong
from virt_admit.cli.main import virt_admit


@pytest.fixture
def ask(tmp_path):
    """Return a function that runs a command on a cluster and returns what it prints."""

    def run(items, *words, **fields):
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps(snapshot(copy.deepcopy(items), **fields)))
        result = CliRunner().invoke(virt_admit, [*words, "--cluster", str(path)])
        assert result.exit_code in (0, 1, 2), result.output
        assert not wrong(result.stdout), wrong(result.stdout)
        return joined(result.stdout)

    return run
