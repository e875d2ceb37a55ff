"""docs/install.md, walked literally: audit, warn, deny, enforce, upgrade, rollback, uninstall,
with the files it shows.

The pods of "the next release" run the same code. Its image, labels and pod template differ.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import ssl
import subprocess
import time
from urllib.parse import urlsplit

import pytest
import yaml

from tests.apiserver.nodes import Cluster
from tests.e2e.installed import CONFIGURATIONS, Installed
from tests.install.commands import section, steps, why_not_run
from tests.load import Load, Poster
from tests.paths import MANIFESTS, ROOT
from tests.waiting import eventually

PAGE = ROOT / "docs" / "install.md"
VALID = ROOT / "examples" / "01-shared-disk.yaml"
BOTH = "kubectl apply --dry-run=server -f examples/03-both-keys.yaml"
TAPE_ROBOT = "kubectl apply --dry-run=server -f examples/05-live-migrate-cannot.yaml"
DENIAL = "[virt-admit/vm-running-and-run-strategy]"
WARNING = "[virt-admit/vm-live-migrate-not-migratable]"
ROLL_OUT = (
    "Install: the order matters",
    "Roll out: audit, warn, deny",
    "Enforce: reject requests while no webhook responds",
    "Upgrade",
    "Roll back",
    "Uninstall: the configurations first",
)
ELSEWHERE = {
    "The image": "needs a container engine",
    "Helm": "tests/e2e/test_helm_page.py runs its commands",
    "KubeVirt in a namespace of its own": "a variant; its command is run below",
}


def creator(walk: Installed, pause: float = 0.03) -> Poster:
    """A user who creates a valid virtual machine again and again, as a dry run."""
    cluster, address = walk.cluster, urlsplit(walk.cluster.url)
    trusting = ssl.create_default_context(cafile=cluster.folder / "ca.crt")

    def connect() -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            address.hostname or "", address.port or 0, context=trusting, timeout=30
        )

    body = json.dumps(yaml.safe_load(VALID.read_text())).encode()
    path = "/apis/kubevirt.io/v1/namespaces/shop/virtualmachines?dryRun=All"
    return Poster(
        connect, path, body, 201, keep=True, pause=pause, Authorization=f"Bearer {cluster.token}"
    )


@pytest.fixture(scope="module")
def walk(nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(nodes, tmp_path_factory.mktemp("walk"))


def do(
    walk: Installed, heading: str, files: bool = True
) -> dict[str, subprocess.CompletedProcess[str]]:
    """Write the files of a section and run its commands, in its order.

    Return what each command printed at last.
    """
    done: dict[str, subprocess.CompletedProcess[str]] = {}
    for step in steps(section(PAGE, heading)):
        if step.file and (files or step.file == "policy.yaml"):
            (walk.folder / step.file).parent.mkdir(parents=True, exist_ok=True)
            (walk.folder / step.file).write_text(step.content)
        elif step.command and not why_not_run(step.command):
            if "doctor" in step.command:
                walk.wait_for_bundles()
            began = time.time()
            result = walk.run(step.command)
            findings = step.command.startswith(("virt-admit scan", "virt-admit policy diff"))
            assert result.returncode in ((0, 1) if findings else (0,)), (
                step.command,
                result.stdout,
                result.stderr,
            )
            if "configmap virt-admit-policy --from-file" in step.command:
                eventually(lambda began=began: min(walk.policies_loaded(), default=0) >= began)
            done[step.command] = result
    return done


def failing(walk: Installed) -> set[str]:
    return {entry["name"] for entry in walk.entries() if entry["failurePolicy"] == "Fail"}


def release(walk: Installed, version: str) -> None:
    """Replace the folder ``manifests`` by that of a release."""
    shutil.rmtree(walk.folder / "manifests")
    shutil.copytree(MANIFESTS, walk.folder / "manifests")
    for file in (walk.folder / "manifests").rglob("*.yaml"):
        file.write_text(
            file.read_text().replace(
                "app.kubernetes.io/version: 0.1.0", f"app.kubernetes.io/version: {version}"
            )
        )


def running_version(walk: Installed) -> tuple[str, str]:
    """The image tag and the release of the Deployment."""
    deployment = walk.get("-n", "virt-admit", "deployment", "virt-admit-webhook")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return container["image"].rpartition(":")[2], deployment["metadata"]["labels"][
        "app.kubernetes.io/version"
    ]


class TestWalk:
    """One installation; each step continues the one before."""

    def test_1_audit(self, walk: Installed) -> None:
        before = walk.run("virt-admit doctor")
        assert (before.returncode, "is not installed" in before.stdout) == (1, True)
        do(walk, "Your own kustomization")
        done = do(walk, ROLL_OUT[0])
        assert done[TAPE_ROBOT].stderr == ""  # nothing is above audit
        assert (
            'code="200"' in next(each for command, each in done.items() if "grep" in command).stdout
        )
        assert walk.run(BOTH).returncode == 0

    def test_2_warn_then_deny(self, walk: Installed) -> None:
        done = do(walk, ROLL_OUT[1])
        assert (done[BOTH].returncode, DENIAL in done[BOTH].stderr) == (0, True)  # a warning
        assert (
            "exempt"
            in next(each for command, each in done.items() if "policy show" in command).stdout
        )
        denied = walk.run(BOTH)
        assert (denied.returncode, DENIAL in denied.stderr) == (1, True)
        touched = walk.run("kubectl -n shop label vm tape-robot touched=yes")
        # exempt by its owner, and listed
        assert (touched.returncode, WARNING in touched.stderr) == (0, False)

    def test_3_the_administrator_changes_what_the_pages_let_them_change(
        self, walk: Installed
    ) -> None:
        walk.customise(["audit"])
        for command in (
            "kubectl apply -k ours",
            "kubectl -n virt-admit rollout status deployment/virt-admit-webhook",
            "kubectl apply -k ours/webhooks",
            "kubectl apply -k ours/scan",
            "kubectl create namespace ignored",
            "kubectl label namespace ignored virt-admit.io/ignore=true",
        ):
            walk.must(command)
        assert walk.customisation()["replicas"] == 3
        assert walk.run(BOTH).returncode == 1  # the policy wins over the component audit

    def test_4_enforce_refuses_no_valid_vm_while_it_is_switched_on(self, walk: Installed) -> None:
        before = walk.customisation()
        bundles = [entry["clientConfig"]["caBundle"] for entry in walk.entries()]
        walk.customise(["enforce"])
        with Load(creator(walk)) as load:
            load.more(20)
            do(walk, ROLL_OUT[2], files=False)
            load.more(50)
        assert load.failures == []
        assert failing(walk) == {"virtual-machines.validate.virt-admit.io"}
        assert [entry["clientConfig"]["caBundle"] for entry in walk.entries()] == bundles
        assert walk.customisation() == before

    def test_5_upgrade_keeps_policy_ca_image_and_exemptions(self, walk: Installed) -> None:
        before = walk.customisation()
        release(walk, "0.2.0")
        walk.customise(["enforce"], tag="0.2.0")
        with Load(creator(walk)) as load:
            do(walk, ROLL_OUT[3], files=False)
            load.more(50)
        assert load.failures == []
        assert running_version(walk) == ("0.2.0", "0.2.0")
        assert walk.customisation() == before
        assert failing(walk) == {"virtual-machines.validate.virt-admit.io"}
        assert walk.run(BOTH).returncode == 1

    def test_6_roll_back_keeps_them_too(self, walk: Installed) -> None:
        before = walk.customisation()
        release(walk, "0.1.0")
        walk.customise(["enforce"], tag="0.1.0")
        with Load(creator(walk)) as load:
            do(walk, ROLL_OUT[4], files=False)
            load.more(50)
        assert load.failures == []
        assert running_version(walk) == ("0.1.0", "0.1.0")
        assert walk.customisation() == before

    def test_7_fail_before_the_bundle_refuses_valid_vms(self, walk: Installed) -> None:
        """What the order of the page prevents."""
        walk.must(f"kubectl delete {CONFIGURATIONS} virt-admit")
        with Load(creator(walk, pause=0)) as load:
            load.more(20)
            for _ in range(5):  # the webhook may write its bundle before the next request comes
                walk.must("kubectl apply -k ours/webhooks")  # with the component enforce
                walk.wait_for_bundles()
                if load.failures:
                    break
                walk.must(f"kubectl delete {CONFIGURATIONS} virt-admit")
        assert load.failures
        assert "tls: failed to verify certif" in load.failures[0]  # the rest of x509: … is cut
        walk.wait_for_bundles()
        eventually(lambda: walk.run(f"kubectl apply --dry-run=server -f {VALID}").returncode == 0)

    def test_8_uninstall_leaves_what_users_wrote(self, walk: Installed) -> None:
        do(walk, ROLL_OUT[5], files=False)
        assert "extends: default" in (walk.folder / "saved-policy.yaml").read_text()
        assert walk.get(CONFIGURATIONS)["items"] == []
        eventually(lambda: walk.run("kubectl get namespace virt-admit").returncode == 1)
        assert walk.run(BOTH).returncode == 0
        vm = walk.get("-n", "shop", "vm", "tape-robot")
        assert (
            "virt-admit.io/exempt.vm-live-migrate-not-migratable" in vm["metadata"]["annotations"]
        )
        assert "virt-admit" not in walk.must(
            "kubectl get clusterroles,clusterrolebindings,validatingadmissionpolicies"
        )


def test_the_command_of_a_variant_names_its_namespace(walk: Installed) -> None:
    (command,) = [
        step.command
        for step in steps(section(PAGE, "KubeVirt in a namespace of its own"))
        if step.command
    ]
    assert re.search(r"serviceaccount:\(?[\w|-]*virtualization", walk.must(command))


def test_every_section_with_commands_is_walked() -> None:
    for heading in re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE):
        commands = [step.command for step in steps(section(PAGE, heading)) if step.command]
        assert not commands or heading in {*ROLL_OUT, *ELSEWHERE, "Your own kustomization"}, (
            heading,
            commands,
        )
