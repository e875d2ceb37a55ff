"""Our verdicts on VMs against KubeVirt's own webhooks and virt-handler, for a few random VMs; the
patches and the copies of disks of plans too.

``make verify-upstream COUNT=20000`` compares many.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.programs import required
from tests.forecasts.repair.broken_clusters import claim, cluster, storage_class, vm
from tests.forecasts.repair.test_causes import ALL
from tests.forecasts.repair.test_random_clusters import random_cluster
from tests.upstream import copies, updates
from tests.upstream.admission import verify
from tests.upstream.renderer import ADMISSION, COPIES, ask, cached, program


@pytest.fixture(scope="module")
def webhooks() -> Path:
    """KubeVirt's webhooks as a program."""
    return required(lambda: program(ADMISSION))


def test_our_verdicts_are_those_of_kubevirt(webhooks: Path) -> None:
    report = verify(webhooks, range(200))

    assert report.differ == {}
    assert not report.open, "the cases name everything that decides"
    assert report.admitted > 50


def test_kubevirt_admits_the_patches_of_a_plan_and_restarts_what_the_plan_restarts(
    webhooks: Path,
) -> None:
    clusters = [cluster(*objects) for objects, _ in ALL.values()] + [
        random_cluster(seed) for seed in range(20)
    ]

    report = updates.verify(webhooks, enumerate(clusters))

    assert report.differ == {}
    assert report.admitted > 20


def test_the_fields_that_take_effect_at_once_are_those_of_kubevirt(webhooks: Path) -> None:
    report = updates.verify_table(webhooks, range(500))

    assert report.differ == {}
    assert report.admitted > 250
    assert {restarts for _, restarts in map(updates.random_patch, range(500))} == {True, False}


def test_cdi_makes_the_claims_that_a_plan_counts_with() -> None:
    program_of_cdi = cached(COPIES)
    if not program_of_cdi.is_file():
        pytest.skip("make verify-upstream builds the program copies")
    report = copies.verify(program_of_cdi, range(100))

    assert report.differ == {}
    assert report.admitted > 80


def test_kubevirt_refuses_to_copy_one_disk_of_two(webhooks: Path) -> None:
    """So a plan has all of them in one patch."""
    two = {
        "volumes": [
            {"name": name, "persistentVolumeClaim": {"claimName": name}}
            for name in ("root", "data")
        ]
    }
    objects = (
        vm(spec=two, reason="DisksNotLiveMigratable"),
        claim("root"),
        claim("data"),
        storage_class(),
    )
    (change,) = updates.changes(cluster(*objects))
    both, one = dict(change.given), dict(change.given)
    changed = json.loads(json.dumps(both["subject"]))
    changed["spec"]["template"]["spec"]["volumes"][1] = two["volumes"][1]
    one["subject"] = changed

    accepted, refused = ask(webhooks, [both, one])

    assert "volumes" not in accepted["update"]
    assert "data is RWO and not included" in refused["update"]["volumes"]
