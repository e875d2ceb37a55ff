"""Helm takes over what kustomize installed, and one version of Helm what the other installed.

The ``caBundle`` stays.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.helm import program
from tests.e2e.helm import CONFIGURATIONS, Cluster, Helm
from tests.paths import MANIFESTS
from tools.chart.chart import CHART
from virt_admit_certs.certificates import certs_pem, new_signer

CA = base64.b64encode(certs_pem([new_signer(datetime.now(UTC), timedelta(days=1)).cert])).decode()
FAILING = ["virtual-machines.validate.virt-admit.io"]


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[Cluster]:
    with ControlPlane(control_plane.binaries) as plane:
        yield Cluster(plane)


def install(helm: Helm, cluster: Cluster, *flags: str) -> None:
    place = ("install", "virt-admit", CHART, "--namespace=virt-admit")
    done = replace(helm, kubeconfig=cluster.plane.kubeconfig).run(*place, *flags)
    assert done.returncode == 0, done.stderr


def run(helm: Helm, cluster: Cluster, *args: str) -> None:
    """Run helm; afterwards each entry that exists still has its bundle."""
    done = replace(helm, kubeconfig=cluster.plane.kubeconfig).run(*args, "--namespace=virt-admit")
    assert done.returncode == 0, done.stderr
    assert {*cluster.bundles().values()} <= {CA}, args


def write_bundles(cluster: Cluster) -> None:
    """Write what the webhook writes, as it writes it."""
    for kind in CONFIGURATIONS:
        count = len(cluster.get(kind, "virt-admit")["webhooks"])
        paths = [f"/webhooks/{index}/clientConfig/caBundle" for index in range(count)]
        patch = json.dumps([{"op": "add", "path": path, "value": CA} for path in paths])
        flags = ("--type=json", "--field-manager=virt-admit-certs", "-p", patch)
        cluster.plane.kubectl("patch", kind, "virt-admit", *flags, check=True)


def test_a_release_takes_over_what_kustomize_installed(helm: Helm, cluster: Cluster) -> None:
    for part in ("base", "webhooks"):
        cluster.plane.kubectl("apply", "-k", MANIFESTS / part, check=True)
    write_bundles(cluster)
    # kubectl owns the fields that it applied; with server-side apply each later change would be a
    # conflict
    flags = ["--take-ownership", *(["--server-side=false"] if helm.major == 4 else [])]
    install(helm, cluster, *flags)
    assert {*cluster.bundles().values()} == {CA}
    run(helm, cluster, "upgrade", "virt-admit", str(CHART), "--set=mode=enforce")
    assert cluster.failing() == FAILING
    run(helm, cluster, "uninstall", "virt-admit")
    assert not cluster.entries()


def test_another_version_of_helm_goes_on(helm: Helm, cluster: Cluster) -> None:
    other = replace(helm, program=program("helm4" if helm.major == 3 else "helm3"))
    cluster.plane.kubectl("create", "namespace", "virt-admit")  # it may be there
    install(helm, cluster)
    write_bundles(cluster)
    run(
        other,
        cluster,
        "upgrade",
        "virt-admit",
        str(CHART),
        "--set=mode=enforce",
        "--set=replicas=3",
    )
    assert (cluster.failing(), cluster.deployment()["replicas"]) == (FAILING, 3)
    run(other, cluster, "rollback", "virt-admit", "1")
    assert (cluster.failing(), cluster.deployment()["replicas"]) == ([], 2)
    run(helm, cluster, "upgrade", "virt-admit", str(CHART), "--set=mode=enforce")
    assert cluster.failing() == FAILING
    run(helm, cluster, "uninstall", "virt-admit")
    assert not cluster.entries()
