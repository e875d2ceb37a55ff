"""Certificates under a real API server: two replicas, one Secret, the rights that we ship,
``failurePolicy: Fail``.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import http.client
import json
import os
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
from click.testing import CliRunner

from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.kubectl_requests import KubectlRequests
from tests.apiserver.webhook import Webhook
from tests.https.reviews import vm
from tests.load import Load, Poster
from tests.paths import MANIFESTS
from tests.prefork import virt_admit
from tests.waiting import eventually
from virt_admit.cli import main
from virt_admit.install import manifests
from virt_admit.install.manifests import NAME
from virt_admit.rules import load_rules
from virt_admit.settings import CERTS_SECRET, NAMESPACE, SERVICE
from virt_admit_certs.certificates import certs_pem
from virt_admit_certs.commands import request_rotation, rotation_done
from virt_admit_certs.kube_api import KubeApi
from virt_admit_certs.state import CertificateState, parse
from virt_admit_certs.stores.secret import SecretStore

RBAC = MANIFESTS / "base" / "rbac.yaml"
SHOP = "shop-of-certs"
TURNS = int(os.environ.get("ROTATION_TURNS", "2"))
"""Rotations of the serving cert in the test under load, each with four of the CA after it.
`make verify-rotations`: 10.
"""
MORE = 50 * TURNS
"""Requests that must pass once a fault is repaired."""
KINDS = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration")
SECRET = CERTS_SECRET.partition("/")[2]
ROTATIONS = "virt_admit_certificate_rotations_total"
QUICK = {"UNSAFE_INTERVALS": "1", "CHECK_INTERVAL": "300ms", "PROPAGATION": "1s"}
SHORT = {
    "SERVING_DURATION": "12s",
    "SERVING_RENEW_BEFORE": "6s",
    "SIGNER_DURATION": "24s",
    "SIGNER_RENEW_BEFORE": "12s",
}


class Cluster:
    """An API server that asks two replicas about each virtual machine, and refuses it if one of
    them cannot be asked.
    """

    def __init__(self, plane: ControlPlane, replicas: list[Webhook]) -> None:
        self.plane = plane
        self.replicas = replicas

    # Registration

    def configurations(self) -> list[dict[str, Any]]:
        """As we ship them, but by URL, an entry for each replica, for one namespace,
        and with ``Fail``.
        """
        (mutating, validating) = manifests.webhooks(load_rules().at_admission)
        for configuration in (mutating, validating):
            [shipped] = [
                each
                for each in configuration["webhooks"]
                if each["name"].startswith("virtual-machines.")
            ]
            configuration["webhooks"] = [
                self._entry(shipped, number, replica.url)
                for number, replica in enumerate(self.replicas)
            ]
        return [mutating, validating]

    @staticmethod
    def _entry(shipped: dict[str, Any], number: int, url: str) -> dict[str, Any]:
        entry = copy.deepcopy(shipped)
        entry["name"] = f"replica-{number}.{entry['name']}"
        entry["clientConfig"] = {"url": url + entry["clientConfig"]["service"]["path"]}
        entry["failurePolicy"] = "Fail"
        entry["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": SHOP}}
        return entry

    def apply(self, configurations: list[dict[str, Any]], *verb: str) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": configurations}
        self.plane.kubectl(
            *(verb or ("apply", "--server-side")), "-f", "-", input=json.dumps(items), check=True
        )

    def bundles(self) -> list[bytes]:
        """What the API server trusts, entry by entry."""
        found = [
            self._read(f"/apis/admissionregistration.k8s.io/v1/{kind}s/{NAME}") for kind in KINDS
        ]
        return [
            base64.b64decode(entry["clientConfig"].get("caBundle", ""))
            for configuration in found
            for entry in configuration.get("webhooks", ())
        ]

    def state(self) -> CertificateState:
        """What the Secret holds."""
        secret = self._read(f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}")
        return parse(
            {key: base64.b64decode(value) for key, value in secret.get("data", {}).items()}
        )

    def is_published(self) -> bool:
        """Whether every entry carries what the Secret holds."""
        return set(self.bundles()) == {certs_pem(self.state().bundle)}

    def _read(self, path: str) -> Mapping[str, Any]:
        """Return an object; an empty one if it does not exist."""
        return KubeApi.connect(str(self.plane.kubeconfig)).request_json("GET", path).body

    # Calls

    def create(self) -> str:
        """Why a virtual machine is refused; empty if it is not."""
        done, said = KubectlRequests(self.plane).send("create", vm("db", SHOP), dryRun="All")
        return "" if done else said

    def works(self) -> bool:
        return not self.create()

    def posters(self, number: int, pause: float = 0.01) -> list[Poster]:
        """Clients that create virtual machines, without storing one."""
        address, folder = urlsplit(self.plane.url), self.plane.folder
        trusting = ssl.create_default_context(cafile=folder / "ca.crt")

        def connect() -> http.client.HTTPSConnection:
            return http.client.HTTPSConnection(
                address.hostname or "", address.port or 0, context=trusting, timeout=30
            )

        path = f"/apis/kubevirt.io/v1/namespaces/{SHOP}/virtualmachines?dryRun=All"
        body = json.dumps(vm("db", SHOP)).encode()
        token = {"Authorization": f"Bearer {self.plane.token}"}
        return [
            Poster(connect, path, body, 201, keep=True, pause=pause, **token) for _ in range(number)
        ]

    def certs(self, verb: str, *args: str) -> tuple[int, str]:
        """``virt-admit certs`` as an administrator: exit code, and all that it says."""
        command = ["certs", verb, *args, "--kubeconfig", str(self.plane.kubeconfig)]
        result = CliRunner().invoke(main.virt_admit, command, standalone_mode=False)
        if isinstance(result.exception, click.ClickException):
            return 2, result.stdout + result.exception.format_message()
        assert result.exception is None, result.exception
        return result.return_value, result.stdout

    def metric(self, name: str, labels: str = "") -> float:
        """The sum of a metric's samples with these labels over both replicas."""
        texts = [replica.ops("/metrics")[1] for replica in self.replicas]
        samples = [
            found
            for text in texts
            for found in re.findall(rf"^{name}(?:{{(.*)}})? (.*)$", text, re.MULTILINE)
        ]
        return sum(float(value) for found, value in samples if labels in found)


class Kubectl:
    """What people do: ``kubectl apply --dry-run=server``, every two seconds at most."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.runs = 0

    def send(self) -> None:
        done = self._cluster.plane.kubectl(
            "apply", "--dry-run=server", "-f", "-", input=json.dumps(vm("by-kubectl", SHOP))
        )
        self.runs += 1
        assert done.returncode == 0, done.stderr
        time.sleep(2)

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def plane(crds: ControlPlane) -> ControlPlane:
    """The API server with our rights as they are shipped, and a namespace for virtual machines."""
    crds.service_account_token(NAMESPACE, SERVICE)  # and its namespace
    crds.kubectl("apply", "-f", RBAC, check=True)
    crds.kubectl("create", "namespace", SHOP, check=True)
    return crds


@pytest.fixture(scope="module")
def kubeconfig(plane: ControlPlane) -> Path:
    """A kubeconfig of the webhook's service account, and of no other account."""
    return plane.service_account_kubeconfig(NAMESPACE, SERVICE)


@contextlib.contextmanager
def serving(
    plane: ControlPlane, kubeconfig: Path, folder: Path, settings: dict[str, str]
) -> Iterator[Cluster]:
    """Both replicas at once on an empty Secret; when they are ready the configurations come, as
    docs/install.md says.
    """
    environment = {f"VIRT_ADMIT_CERTS_{name}": value for name, value in settings.items()}
    flags = ("--certs-secret", CERTS_SECRET, "--kubeconfig", kubeconfig, "--cert-name", "127.0.0.1")
    with contextlib.ExitStack() as stack:
        replicas = []
        for number in "12":
            (folder / number).mkdir()
            replicas.append(
                stack.enter_context(
                    Webhook(folder / number, *flags, environment=environment, program=virt_admit())
                )
            )
        cluster = Cluster(plane, replicas)
        cluster.apply(cluster.configurations())
        try:
            eventually(cluster.works)
            yield cluster
        finally:
            plane.kubectl("delete", ",".join(KINDS), NAME, "--ignore-not-found", check=True)
            plane.kubectl(
                "delete", "secret", SECRET, "-n", NAMESPACE, "--ignore-not-found", check=True
            )


@pytest.mark.slow
def test_rotations_of_certificate_and_ca_fail_no_request(plane, kubeconfig, tmp_path):
    with serving(plane, kubeconfig, tmp_path, QUICK | SHORT) as cluster:
        # 15 in a second, while each rotation lasts
        kubectl, posters = Kubectl(cluster), cluster.posters(2, pause=0.1)
        store = SecretStore(KubeApi.connect(str(plane.kubeconfig)), NAMESPACE, SECRET)
        with Load(kubectl, *posters) as load:
            for number in range(5 * TURNS):
                request = request_rotation(store, "signer" if number % 5 else "serving")
                eventually(lambda request=request: rotation_done(store, request))
                load.more(30)
            eventually(lambda: cluster.metric(ROTATIONS, "retire"))
            load.more(max(200 * TURNS - load.requests, 50))
        steps = {
            name: cluster.metric(ROTATIONS, name)
            for name in ("announce", "promote", "renew", "retire")
        }
        reviews = cluster.metric("virt_admit_requests_total")
        conflicts = cluster.metric("virt_admit_certificate_conflicts_total")

    print(
        f"{load.requests} requests ({kubectl.runs} of kubectl), {len(load.failures)} failed; "
        f"{reviews:.0f} reviews;"
    )
    print(f"{steps}, {conflicts:.0f} lost saves")
    assert load.failures == []
    assert load.requests >= 200 * TURNS
    assert kubectl.runs >= 4 * TURNS
    assert reviews >= 4 * load.requests  # two entries to mutate, two to validate
    assert steps["promote"] >= 4 * TURNS  # each with a new serving cert
    assert steps["renew"] >= TURNS
    assert steps["retire"] >= 1


@pytest.fixture(scope="module")
def cluster(
    plane: ControlPlane, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """The daily schedule, only quicker to look and to promote; signers bound to the names."""
    with serving(
        plane, kubeconfig, tmp_path_factory.mktemp("faults"), QUICK | {"NAME_CONSTRAINTS": "on"}
    ) as cluster:
        yield cluster


class TestFaults:
    """What goes wrong in clusters."""

    @pytest.fixture(autouse=True)
    def all_is_well(self, cluster):
        """Before and after each fault, and no person needs to help."""
        yield
        eventually(cluster.works)
        eventually(lambda: cluster.certs("status")[0] == 0)
        for replica in cluster.replicas:
            code, said = cluster.certs("verify", replica.url)
            assert code == 0, said
            assert replica.ops("/readyz")[0] == 200

    def test_the_secret_is_deleted(self, cluster):
        before = cluster.state().signer.cert
        with Load(*cluster.posters(2)) as load:
            load.more(50)
            cluster.plane.kubectl("delete", "secret", SECRET, "-n", NAMESPACE, check=True)
            eventually(lambda: (state := cluster.state()).signer and state.signer.cert != before)
            load.more(MORE)

        assert load.failures == []
        # what leaked is replaced, what is served stays trusted
        assert before in cluster.state().bundle

    @pytest.mark.parametrize(
        "keys", [("ca.key",), ("tls.crt",), ("ca.crt", "ca.key", "tls.crt", "tls.key")], ids=str
    )
    def test_the_secret_is_corrupted(self, cluster, keys):
        garbage = {"data": {key: base64.b64encode(b"garbage").decode() for key in keys}}
        with Load(*cluster.posters(2)) as load:
            cluster.plane.kubectl(
                "patch",
                "secret",
                SECRET,
                "-n",
                NAMESPACE,
                "--type=merge",
                "-p",
                json.dumps(garbage),
                check=True,
            )
            eventually(lambda: cluster.state().signer and cluster.state().serving)
            load.more(MORE)

        assert load.failures == []

    def test_a_pipeline_replaces_the_configurations(self, cluster):
        cluster.apply(cluster.configurations(), "replace")

        eventually(cluster.is_published)

    def test_pipelines_that_apply_leave_our_field_alone(self, cluster):
        """Without a key there is nothing to fight for,
        and an entry that goes or is renamed does not stay behind.
        """
        before, shipped = cluster.bundles(), cluster.configurations()

        cluster.apply(shipped)
        assert cluster.bundles() == before
        for configuration in shipped:
            configuration["webhooks"][0]["name"] = f"renamed-{configuration['webhooks'][0]['name']}"
            del configuration["webhooks"][1]
        cluster.apply(shipped)
        assert len(cluster.bundles()) == 2
        eventually(cluster.is_published)
        cluster.apply(cluster.configurations())
        eventually(cluster.is_published)
        assert len(cluster.bundles()) == 4

    def test_the_configurations_are_deleted_and_made_again(self, cluster):
        cluster.plane.kubectl("delete", ",".join(KINDS), NAME, check=True)
        eventually(lambda: cluster.metric("virt_admit_certificate_bundle_injected") == 0)
        assert cluster.works()

        cluster.apply(cluster.configurations())

        eventually(cluster.is_published)

    def test_the_right_to_patch_is_taken_away_and_given_back(self, cluster):
        """Nothing is hidden meanwhile: not from status, not from verify, not from the metrics."""
        plane = cluster.plane
        less = '[{"op": "replace", "path": "/rules/0/verbs", "value": ["get"]}]'
        plane.kubectl(
            "patch", "clusterrole", f"{NAME}-configurations", "--type=json", "-p", less, check=True
        )
        ours = ("patch", f"{KINDS[0]}/{NAME}", f"--as=system:serviceaccount:{NAMESPACE}:{SERVICE}")
        eventually(lambda: plane.kubectl("auth", "can-i", *ours).returncode)
        forbidden = cluster.metric("virt_admit_certificate_errors_total", "forbidden")
        cluster.apply(cluster.configurations(), "replace")
        eventually(
            lambda: (
                cluster.metric("virt_admit_certificate_errors_total", "forbidden") > forbidden + 2
            )
        )

        eventually(lambda: "x509: certificate signed by unknown authority" in cluster.create())
        code, said = cluster.certs("status")
        assert (code, said.count("does not carry the bundle\n")) == (1, 4)
        code, said = cluster.certs("verify", cluster.replicas[0].url)
        assert (code, said.count("fails      ")) == (1, 2)
        assert "the caBundle is empty" in said
        assert cluster.metric("virt_admit_certificate_bundle_injected") == 0
        assert [replica.ops("/readyz")[0] for replica in cluster.replicas] == [200, 200]

        plane.kubectl("apply", "-f", RBAC, check=True)
        eventually(cluster.is_published)

    def test_the_api_server_is_restarted_in_the_middle_of_a_rotation(self, cluster):
        before = cluster.state().signer.cert
        code, said = cluster.certs("rotate", "--signer")
        assert code == 0, said
        cluster.plane.stop_apiserver()
        try:
            eventually(
                lambda: cluster.metric("virt_admit_certificate_errors_total", "unreachable") >= 4
            )
            for replica in cluster.replicas:
                assert replica.ops("/readyz")[0] == 200
        finally:
            cluster.plane.start_apiserver()

        eventually(lambda: (state := cluster.state()).signer.cert != before and not state.announced)
        with Load(*cluster.posters(2)) as load:
            load.more(MORE)
        assert load.failures == []

    def test_everything_is_down_and_the_secret_lost(self, cluster):
        for replica in cluster.replicas:
            replica.stop()
        cluster.plane.kubectl("delete", "secret", SECRET, "-n", NAMESPACE, check=True)
        assert "failed calling webhook" in cluster.create()

        for replica in cluster.replicas:
            replica.start()

        eventually(cluster.works)

    def test_a_revoked_signer_is_trusted_by_nobody(self, cluster):
        before = cluster.state().signer.cert

        code, said = cluster.certs("rotate", "--revoke", "--yes", "--wait")

        assert (code, said) == (0, "revoke is done\n")
        assert before not in cluster.state().bundle
        assert not any(certs_pem([before]) in bundle for bundle in cluster.bundles())
        # the replicas want name constraints, which this command was not told of: they announce a
        # signer that has them at once, and publish it a moment later
        eventually(cluster.is_published)

    def test_our_token_opens_no_other_secret(self, cluster, kubeconfig):
        plane = cluster.plane
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "other", "namespace": NAMESPACE},
        }
        ours = secret | {"metadata": {"name": SECRET, "namespace": NAMESPACE}}

        def refused(*args: str, input: str | None = None) -> bool:
            return (
                "(Forbidden)"
                in plane.kubectl(*args, "-n", NAMESPACE, input=input, kubeconfig=kubeconfig).stderr
            )

        assert refused("create", "-f", "-", input=json.dumps(secret))
        assert refused("apply", "--server-side", "-f", "-", input=json.dumps(secret))
        assert refused("create", "-f", "-", input=json.dumps(ours))
        assert refused("get", "secrets")
        assert refused("get", "secret", "other")
        assert refused("delete", "secret", SECRET)
        assert not refused("get", "secret", SECRET)
