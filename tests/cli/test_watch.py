"""``virt-admit watch`` over an API server: changes, lost rights, restarts, hostile names."""

from __future__ import annotations

import contextlib
import re
import time
import urllib.error

import pytest
import yaml
from click.testing import CliRunner

from tests.fake_api import FakeApi, path_of
from tests.forecasts.drain import test_many_terms
from tests.paths import MANIFESTS
from tests.reports.html.structure import Structure
from tests.waiting import eventually
from tests.watching import Watching
from virt_admit.cli import main
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import NODE, VM, VMI
from virt_admit.rules import load_rules

pytestmark = pytest.mark.slow

RULE = "vm-running-and-run-strategy"


def vm(name, **spec):
    template = {"metadata": {}, "spec": {"evictionStrategy": "None", "domain": {"devices": {}}}}
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"runStrategy": "Always", "template": template, **spec},
    }


def vmi(name, migratable="False"):
    conditions = [
        {"type": "LiveMigratable", "status": migratable, "reason": "DisksNotLiveMigratable"}
    ]
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"evictionStrategy": "LiveMigrate"},
        "status": {"phase": "Running", "nodeName": "n0", "conditions": conditions},
    }


@pytest.fixture
def api():
    with FakeApi() as fake:
        for kind in {*load_rules().kinds, *(kind for rule in load_rules() for kind in rule.reads)}:
            fake.install(kind)
        fake.put(NODE, {"metadata": {"name": "n0"}})
        fake.put(VM, vm("bad", running=True))
        yield fake


@pytest.fixture
def served(api, tmp_path):
    """Start the watch in its own process."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(Watching(api.kubeconfig(tmp_path)))


FOUND = f'virt_admit_scan_findings{{action="deny",namespace="shop",rule="{RULE}"}}'
BLOCKERS = 'virt_admit_drain_blockers{node="n0"}'
DRAINABLE = 'virt_admit_node_drainable{node="n0"}'
COMPLETE = "virt_admit_scan_last_success_timestamp_seconds"


def test_changes_show_in_metrics_and_page(api, served):
    server = served()
    server.wait_for(FOUND, 1, 60)
    assert server.shows(f"deny {RULE}", "VirtualMachine/shop/bad")
    assert server.sample(BLOCKERS) == 0
    api.put(VMI, vmi("db"))
    server.wait_for(BLOCKERS, 1)
    assert server.sample(DRAINABLE) == 0
    server.wait_for('virt_admit_node_survivable{node="n0"}', 1)
    assert server.shows(
        "Drains are blocked",
        "1 of 1 node cannot be drained (1 VM): n0",
        "blocks the drain",
        "shop/db",
    )
    api.delete(VMI, "db", "shop")
    server.wait_for(BLOCKERS, 0)
    api.delete(VM, "bad", "shop")
    server.wait_for(FOUND, None)
    assert server.get("/healthz") == "ok\n"
    assert server.get("/readyz") == "ok\n"


def cordoned():
    taint = {
        "key": "node.kubernetes.io/unschedulable",
        "effect": "NoSchedule",
        "timeAdded": "2026-01-01T00:00:00Z",
    }
    return {"metadata": {"name": "n0"}, "spec": {"unschedulable": True, "taints": [taint]}}


def test_a_drain_from_its_beginning_to_its_end(api, served):
    moving = vmi("db", "True")
    moving["status"]["evacuationNodeName"] = "n0"
    api.put(NODE, cordoned())
    api.put(VMI, moving)
    server = served()
    started = 'virt_admit_drain_started_timestamp_seconds{by="cordon",node="n0"}'
    server.wait_for(started, 1767225600, 60)
    assert (
        server.sample('virt_admit_drain_last_progress_timestamp_seconds{node="n0"}') == 1767225600
    )
    assert server.sample('virt_admit_drain_vms{node="n0",state="marked"}') == 1
    assert server.sample('virt_admit_drain_stuck_vms{node="n0"}') == 0
    assert server.shows("Drains under way", "cordon", "2026-01-01 00:00:00 UTC")
    api.delete(VMI, "db", "shop")
    server.wait_for('virt_admit_drain_duration_seconds_count{by="cordon",result="emptied"}', 1)
    assert server.sample(started) is None
    assert not server.shows("Drains under way")


def test_the_downtime_of_a_vm(api, served):
    api.put(VM, vm("web"))
    api.put(VMI, vmi("web"))
    server = served()
    server.wait_for(BLOCKERS, 1, 60)
    api.delete(VMI, "web", "shop")
    server.wait_for(BLOCKERS, 0)
    eventually(
        lambda: (server.sample('virt_admit_vm_downtime_seconds_total{namespace="shop"}') or 0) > 1
    )


def test_lost_rights_keep_the_last_complete_figures(api, served):
    server = served()
    api.put(VMI, vmi("db"))
    server.wait_for(BLOCKERS, 1)
    api.forbidden.add(path_of(VMI))
    api.break_off()
    server.wait_for('virt_admit_informer_synced{kind="virtualmachineinstances.kubevirt.io"}', 0)
    server.wait_for(DRAINABLE, -1)
    assert server.sample(BLOCKERS) == 1
    assert server.sample(FOUND) == 1
    unknown = "virtualmachineinstances.kubevirt.io: their number and their findings are unknown"
    assert server.shows("Incomplete", "Not readable", unknown)
    time.sleep(1.5)
    lost = server.sample(COMPLETE)
    assert lost < time.time() - 1
    api.forbidden.clear()
    server.wait_for(DRAINABLE, 0, 60)
    eventually(lambda: server.sample(COMPLETE) > lost)
    assert not server.shows("Incomplete")


def test_the_time_moves_while_nothing_changes(served):
    server = served()
    server.wait_for(FOUND, 1, 60)
    before = eventually(lambda: server.sample(COMPLETE))
    eventually(lambda: server.sample(COMPLETE) > before)


def test_an_api_server_that_restarts(api, served):
    server = served()
    server.wait_for(FOUND, 1, 60)
    api.stop()
    eventually(
        lambda: server.shows(
            "Not current", "The API server sends no changes of", "VirtualMachine/shop/bad"
        )
    )
    assert server.sample(FOUND) == 1
    api.start()
    api.put(VM, vm("worse", running=True))
    server.wait_for(FOUND, 2, 60)
    eventually(lambda: not server.shows("Not current"))


def test_the_page_is_read_only_and_the_same_until_something_changes(api, served):
    server = served()
    server.wait_for(FOUND, 1, 60)
    with server.open("/") as first, server.open("/") as second:
        assert first.read() == second.read()
        headers = first.headers
    metas = Structure.of(server.get("/")).having("meta")
    (in_page,) = [
        one["content"] for one in metas if one.get("http-equiv") == "Content-Security-Policy"
    ]
    assert headers["Content-Security-Policy"] == f"{in_page}; frame-ancestors 'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    for method, status in (("POST", 405), ("PUT", 405), ("DELETE", 405), ("GET", 304)):
        with pytest.raises(urllib.error.HTTPError) as error:
            server.open("/", method, **{"If-None-Match": headers["ETag"]})
        with error.value as response:
            assert response.code == status
    api.put(VM, vm("worse", running=True))
    server.wait_for(FOUND, 2)
    with server.open("/", **{"If-None-Match": headers["ETag"]}) as changed:
        assert changed.status == 200


def test_names_in_the_page_are_harmless(api, served):
    api.put(VM, vm("<script>alert(1)</script>", running=True))
    server = served()
    server.wait_for(FOUND, 2)
    assert server.shows("VirtualMachine/shop/<script>alert(1)</script>")


def test_not_ready_before_everything_is_listed(api, served):
    api.broken[path_of(VM)] = b"{"
    server = served()
    time.sleep(1)
    with pytest.raises(urllib.error.HTTPError) as error:
        server.get("/readyz")
    with error.value as response:
        assert response.code == 503
    assert server.shows("Not judged yet")
    assert server.sample(FOUND) is None


def test_the_alerts_about_the_cluster_need_only_what_the_watch_serves(api, served):
    """VirtAdmitDrainBlocked fires for a node with a blocking VM, from the target that the
    ServiceMonitor selects.
    """
    groups = yaml.safe_load((MANIFESTS / "monitoring" / "alerts.yaml").read_text())["spec"][
        "groups"
    ]
    alerts = {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}
    server = served()
    api.put(VMI, vmi("db"))
    server.wait_for(BLOCKERS, 1)
    eventually(lambda: server.sample(COMPLETE))
    names = {sample.partition("{")[0] for sample in server.samples()}
    for alert in (
        "VirtAdmitDrainBlocked",
        "VirtAdmitNoFailover",
        "VirtAdmitScanStale",
        "VirtAdmitInformerNotSynced",
    ):
        assert set(re.findall(r"virt_admit_\w+", alerts[alert])) <= names, alert
    expression = re.fullmatch(r"max by \((\w+)\) \((\w+)\) > 0", alerts["VirtAdmitDrainBlocked"])
    label, name = expression.groups()
    assert [
        value
        for sample, value in server.samples().items()
        if sample.startswith(f"{name}{{{label}=")
    ] == [1]

    monitor = yaml.safe_load((MANIFESTS / "monitoring" / "servicemonitor-watch.yaml").read_text())[
        "spec"
    ]
    (labels,) = yaml.safe_load((MANIFESTS / "watch" / "kustomization.yaml").read_text())["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels["pairs"].items()
    objects = yaml.safe_load_all((MANIFESTS / "watch" / "workload.yaml").read_text())
    (service,) = [obj for obj in objects if obj["kind"] == "Service"]
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert endpoint["honorLabels"] is True  # else the label node would be that of the pod


@pytest.mark.parametrize(
    ("crowded", "terms", "said"),
    [
        (600, 10, "10 affinity terms; more than 3 are not searched"),
        (3, 5_000, "5,000 affinity terms; more than 100"),
    ],
    ids=["few terms of many VMs", "many terms of few VMs"],
)
def test_affinity_terms_that_are_too_many_together_keep_the_watch_current(
    api, served, crowded, terms, said
):
    """What is not searched is said and cannot be determined.

    A change shows as soon as without them.
    """
    for obj in test_many_terms.world(crowded, terms, 100, of=test_many_terms.broad):
        kind = kinds.of(obj)
        if path_of(kind) in api.objects:
            api.put(kind, dict(obj.data))
    server = served()
    server.wait_for(DRAINABLE, -1, 60)
    nodes = [
        value
        for name, value in server.samples().items()
        if name.startswith("virt_admit_node_drainable{")
    ]
    assert set(nodes) == {-1}
    assert server.shows("cannot be determined, so a drain may be blocked", said)
    api.put(VM, vm("worse", running=True))
    server.wait_for(FOUND, 2, 30)
    eventually(lambda: server.sample("virt_admit_scan_duration_seconds") < 15)
    assert server.get("/healthz") == "ok\n"
    assert server.get("/readyz") == "ok\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--policy", "strict", "--policy-configmap", "a/b"),
            "--policy and --policy-configmap exclude each other",
        ),
        (("--ops-bind", "nowhere"), "'nowhere' is not HOST:PORT"),
        (("--kubeconfig", "missing"), "no cluster is configured"),
    ],
)
def test_bad_settings(options, message, monkeypatch):
    monkeypatch.setattr("signal.signal", lambda *_: None)  # the handlers of this process stay
    result = CliRunner().invoke(main.virt_admit, ["watch", *options])
    assert result.exit_code == 1
    assert message in result.output
