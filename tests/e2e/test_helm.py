"""The life of a release on a real API server: the webhook answers through its Service, with the
chart's rights alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.webhook import Webhook
from tests.e2e.helm import (
    CONFIGURATIONS,
    HTTPS,
    Cluster,
    Helm,
    cluster_with_services,
    may_listen,
    walked_by,
)
from tests.https.reviews import vm
from tests.paths import EXAMPLES
from tests.waiting import eventually
from tools.chart.chart import CHART
from virt_admit import __version__

FAILING = "virtual-machines.validate.virt-admit.io"
MINE = "# changed by the administrator\nextends: strict\n"
VALUES = {
    "image": {"repository": "registry.example.com/mirror/virt-admit", "tag": "0.1.0-custom"},
    "replicas": 4,
    "policy": "extends: default\n",
    "scan": {"enabled": True},
}
EXEMPT = {"virt-admit.io/exempt.nm-vm-blocks-drain": "drained by hand; by=operations"}

pytestmark = [
    walked_by("helm4"),
    pytest.mark.skipif(
        not may_listen(), reason=f"listening on port {HTTPS} of loopback needs root"
    ),
]


@dataclass(frozen=True)
class Release:
    """The release virt-admit, and the folder with its values."""

    helm: Helm
    cluster: Cluster
    folder: Path

    def run(self, *args: str | Path, fails: bool = False) -> str:
        """Run helm and return what it prints, or the error."""
        done = self.helm.run(*args, "--namespace=virt-admit")
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    def install(self, *flags: str, fails: bool = False) -> str:
        values = f"--values={self.folder}/values.yaml"
        return self.run(
            "install", "virt-admit", CHART, "--create-namespace", values, *flags, fails=fails
        )

    def upgrade(self, *flags: str, chart: Path = CHART, fails: bool = False) -> str:
        return self.run(
            "upgrade",
            "virt-admit",
            chart,
            f"--values={self.folder}/values.yaml",
            *flags,
            fails=fails,
        )

    def image(self) -> str:
        return str(self.cluster.deployment()["template"]["spec"]["containers"][0]["image"])

    def change_policy(self, text: str) -> None:
        """Change the policy as the pages tell the administrator."""
        (self.folder / "policy.yaml").write_text(text)
        make = (
            "create",
            "configmap",
            "virt-admit-policy",
            "-n",
            "virt-admit",
            "--dry-run=client",
            "-o",
            "yaml",
        )
        made = self.cluster.plane.kubectl(
            *make, f"--from-file={self.folder}/policy.yaml", check=True
        )
        self.cluster.plane.kubectl("apply", "-f", "-", input=made.stdout, check=True)


@pytest.fixture(scope="module")
def release(
    helm: Helm, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    """The release before it is installed, with the values of the administrator."""
    folder = tmp_path_factory.mktemp("release")
    (folder / "values.yaml").write_text(yaml.safe_dump(VALUES))
    with cluster_with_services(control_plane) as plane:
        plane.kubectl("create", "namespace", "shop", check=True)
        yield Release(replace(helm, kubeconfig=plane.kubeconfig), Cluster(plane), folder)


@pytest.fixture(scope="module")
def installed(release: Release) -> Release:
    """The release, installed; no pod runs yet."""
    refused = release.install("--set=mode=enforce", fails=True)
    assert "mode enforce is refused at the first install" in refused
    assert "virt-admit doctor" in release.install()
    return release


@pytest.fixture(scope="module")
def webhook(installed: Release) -> Iterator[Webhook]:
    """The webhook, running; then the administrator changes the policy and exempts a virtual
    machine.
    """
    with installed.cluster.webhook(installed.folder) as running:
        installed.change_policy(MINE)
        legacy = vm("legacy", "shop")
        legacy["metadata"]["annotations"] = EXEMPT
        installed.cluster.plane.kubectl("apply", "-f", "-", input=json.dumps(legacy), check=True)
        yield running


@pytest.fixture
def keeps(webhook: Webhook, installed: Release) -> Iterator[None]:
    """CA, policy, exemptions and bundles are the same after the test."""
    cluster = installed.cluster
    kept, bundles = cluster.kept(), cluster.bundles()
    assert kept["policy"] == {"policy.yaml": MINE}
    assert kept["exemptions"].items() >= EXEMPT.items()
    assert kept["secret"]["ca.key"]
    (bundle,) = set(bundles.values())
    yield
    assert cluster.kept() == kept
    eventually(lambda: set(cluster.bundles().values()) == {bundle})


def test_fail_is_refused_before_the_bundle(installed: Release) -> None:
    assert not any(installed.cluster.bundles().values())
    refused = installed.upgrade("--set=mode=enforce", fails=True)
    assert "mode enforce is refused while the webhook configurations have no caBundle" in refused
    assert not installed.cluster.failing()


def test_the_api_server_shows_a_warning(webhook: Webhook, installed: Release) -> None:
    def answer() -> str:
        example = EXAMPLES / "05-live-migrate-cannot.yaml"
        return installed.cluster.plane.kubectl("create", "--dry-run=server", "-f", example).stderr

    eventually(lambda: "[virt-admit/vm-live-migrate-not-migratable]" in answer())


@pytest.mark.usefixtures("keeps")
def test_an_upgrade_without_changes_writes_no_configuration(installed: Release) -> None:
    def generations() -> list[int]:
        return [
            installed.cluster.get(kind, "virt-admit")["metadata"]["generation"]
            for kind in CONFIGURATIONS
        ]

    before, bundles = generations(), installed.cluster.bundles()
    printed = installed.upgrade()
    assert generations() == before
    assert installed.cluster.bundles() == bundles
    assert "The ConfigMap virt-admit-policy already existed and is unchanged" in printed


@pytest.mark.usefixtures("keeps")
def test_enforce_changes_the_failure_policy_and_keeps_the_bundles(installed: Release) -> None:
    bundles = installed.cluster.bundles()
    installed.upgrade("--set=mode=enforce", "--set=image.tag=next", "--set=policy=extends: audit")
    assert installed.cluster.failing() == [FAILING]
    # at once, not when the webhook has written them again
    assert installed.cluster.bundles() == bundles
    assert installed.image() == "registry.example.com/mirror/virt-admit:next"


@pytest.mark.usefixtures("keeps")
def test_the_next_release_changes_adds_and_removes_entries(installed: Release) -> None:
    following = installed.folder / "next"
    shutil.copytree(CHART, following)
    metadata, webhooks = following / "Chart.yaml", following / "templates" / "webhooks.yaml"
    metadata.write_text(metadata.read_text().replace(__version__, "99.0.0"))
    text = webhooks.read_text()
    changed = text.replace("- name: nodes.validate", "- name: hosts.validate").replace(
        "timeoutSeconds: 3", "timeoutSeconds: 4"
    )
    assert changed != text
    webhooks.write_text(changed)
    before = installed.cluster.bundles()
    installed.upgrade("--set=mode=enforce", chart=following)
    after = installed.cluster.bundles()
    assert after.keys() - before.keys() == {"hosts.validate.virt-admit.io"}
    assert before.keys() - after.keys() == {"nodes.validate.virt-admit.io"}
    assert {name: after[name] for name in before.keys() & after.keys()}.items() <= before.items()
    assert (
        installed.cluster.entries()["virtual-machines.mutate.virt-admit.io"]["timeoutSeconds"] == 4
    )


@pytest.mark.usefixtures("keeps")
def test_a_rollback_to_the_first_revision(installed: Release) -> None:
    installed.run("rollback", "virt-admit", "1")
    cluster = installed.cluster
    assert not cluster.failing()
    assert "nodes.validate.virt-admit.io" in cluster.entries()
    assert installed.image() == "registry.example.com/mirror/virt-admit:0.1.0-custom"
    assert cluster.deployment()["replicas"] == 4


def test_an_uninstall_leaves_policy_and_ca_for_the_next_install(
    webhook: Webhook, installed: Release
) -> None:
    kept = installed.cluster.kept()
    ours = installed.run("get", "manifest", "virt-admit")
    webhook.stop()
    for kind in CONFIGURATIONS:
        installed.cluster.plane.kubectl("delete", kind, "virt-admit", check=True)
    installed.run("uninstall", "virt-admit")
    for obj in yaml.load_all(ours, yaml.CSafeLoader):
        place = obj["metadata"].get("namespace", "default")
        assert not installed.cluster.get(obj["kind"], obj["metadata"]["name"], namespace=place), (
            obj["metadata"]
        )
    assert installed.cluster.kept() == kept
    installed.install()
    assert installed.cluster.kept() == kept
