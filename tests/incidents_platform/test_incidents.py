"""Public incidents of the platform under VMs: each verb says the cause that was found."""

import json

import pytest
from click.testing import CliRunner

from tests.advice import risky
from tests.healthy.parts import snapshot
from tests.incidents_platform import (
    cluster_api,
    cluster_updates,
    node_updates,
    openshift,
    operators,
    standing_orders,
    storage,
    workloads,
)
from tests.remedies import joined, wrong
from virt_admit.cli.main import virt_admit

INCIDENTS = [
    incident
    for group in (
        openshift,
        cluster_updates,
        node_updates,
        cluster_api,
        storage,
        workloads,
        standing_orders,
        operators,
    )
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
    flat = " ".join(joined(result.stdout).split())
    assert [part for part in incident.says if part not in flat] == [], flat
    assert [part for part in incident.never if part in flat] == [], flat
    assert result.return_value == incident.code, flat
    assert not risky(result.stdout), risky(result.stdout)
    assert not wrong(result.stdout), wrong(result.stdout)


def test_each_incident_is_told_once():
    assert len({incident.source for incident in INCIDENTS}) == len(INCIDENTS) >= 60


@pytest.mark.parametrize("items", operators.at_rest())
def test_an_operator_at_rest_is_not_accused(items, tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(snapshot(items)))
    for verb in ("upgrade", "scan"):
        result = CliRunner().invoke(virt_admit, [verb, "--cluster", str(path)])
        assert not any(
            word in result.stdout for word in ("stuck", "misscheduled", "not available", "Approve")
        ), result.stdout


@pytest.mark.parametrize(
    ("items", "says"),
    [
        (
            operators.tainted(),
            "KubeVirt is not available for 40 min: virt-handler is misscheduled on n3",
        ),
        (
            operators.stored_version().items,
            "the update from v2.6.5 to v4.8.0 is stuck: InstallPlan install-7kq4d",
        ),
    ],
)
def test_scan_names_the_operator(items, says, tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(snapshot(items)))
    assert says in CliRunner().invoke(virt_admit, ["scan", "--cluster", str(path)]).stdout


def test_what_cluster_api_waits_for_comes_before_the_silence_of_the_node(tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(cluster_api.drain_of_a_dead_node().snapshot))
    drain, scan = (
        CliRunner().invoke(virt_admit, [*words, "--cluster", str(path)]).stdout
        for words in (["drain", "n1"], ["scan"])
    )
    assert drain.index("PodDisruptionBudget vms/checkout") < drain.index(
        "its kubelet does not report"
    )
    assert (
        "Machine capi/machine-n1 is being deleted for 5 h and waits: PodDisruptionBudget "
        "vms/checkout"
    ) in scan
