"""Public incidents of the platform under VMs: each verb says the cause that was found."""

import json

import pytest
from click.testing import CliRunner

from tests.advice import risky
from tests.incidents_platform import (
    cluster_api,
    cluster_updates,
    node_updates,
    openshift,
    standing_orders,
    storage,
    workloads,
)
from virt_admit.cli.main import virt_admit

INCIDENTS = [
    incident
    for group in (openshift, cluster_updates, node_updates, cluster_api, storage, workloads, standing_orders)
    for incident in group.incidents()
]


def named(incident):
    owner, project, _, number = incident.source.rsplit("/", 4)[1:]
    return f"{owner}-{project}-{number}"


PLANNED = storage.volume_limit("plan n1")
"""A cost of the drain that a plan names as well."""


@pytest.mark.parametrize("incident", [*INCIDENTS, PLANNED], ids=named)
def test_incident(incident, tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(incident.snapshot))
    words = [*incident.command.split(), "--cluster", str(path)]
    result = CliRunner().invoke(virt_admit, words, standalone_mode=False)
    flat = " ".join(result.stdout.split())
    assert [part for part in incident.says if part not in flat] == [], flat
    assert [part for part in incident.never if part in flat] == [], flat
    assert result.return_value == incident.code, flat
    assert not risky(result.stdout), risky(result.stdout)


def test_each_incident_is_told_once():
    assert len({incident.source for incident in INCIDENTS}) == len(INCIDENTS) >= 60
