"""Pages of every report: structure, escaping, bounds, owners,
and that nothing else pays for them.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.paths import EXAMPLES
from tests.reports.findings.formats.reports import RULE, both_keys, scanned
from tests.reports.html.structure import Structure
from virt_admit.cli import main
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.drain import html as drain_html
from virt_admit.reports.findings import html as findings_html
from virt_admit.reports.findings.report import Report
from virt_admit.reports.html import owners, page, svg
from virt_admit.reports.html.causes import (
    MOST_CAUSES,
    MOST_ITEMS,
    CauseItem,
    PageCause,
    bounded,
    grouped,
)
from virt_admit.reports.html.levels import BAD, GOOD
from virt_admit.reports.html.page import Page, PageVerdict, Table

ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'\x1b[31m\u202eevil\u2066"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
CLUSTER = str(EXAMPLES / "cluster.yaml")


def vmi(name, namespace="shop", node="worker-1", migratable="True", labels=None):
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"evictionStrategy": "LiveMigrate"},
        "status": {
            "phase": "Running",
            "nodeName": node,
            "conditions": [
                {"type": "LiveMigratable", "status": migratable, "reason": "DisksNotLiveMigratable"}
            ],
        },
    }


def node(name, memory="64Gi"):
    conditions = [{"type": "Ready", "status": "True"}]
    status = {
        "allocatable": {"cpu": "32", "memory": memory, "pods": "110"},
        "conditions": conditions,
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def snapshot(*objects):
    return Snapshot([Object(obj) for obj in objects], ["*"])


def run(*arguments):
    return CliRunner().invoke(main.virt_admit, arguments, standalone_mode=False)


@pytest.fixture
def cluster(tmp_path):
    """A snapshot of a cluster with VMs of two namespaces."""
    items = [
        node("worker-1"),
        node("worker-2"),
        vmi("db", migratable="False", labels={"team": "red"}),
        vmi("web", "front"),
    ]
    data = {
        "apiVersion": "virt-admit.io/v1alpha1",
        "kind": "Snapshot",
        "serverVersion": "v1.36.3",
        "complete": ["*"],
    }
    (tmp_path / "cluster.json").write_text(json.dumps(data | {"items": items}))
    return str(tmp_path / "cluster.json")


COMMANDS = {
    "check": ("check", str(EXAMPLES / "03-both-keys.yaml")),
    "scan": ("scan",),
    "drain": ("drain", "--all"),
    "explain": ("explain", str(EXAMPLES / "07-health-check.yaml")),
    "explain vm": ("explain", "vm/db"),
    "explain node": ("explain", "node/worker-1"),
    "upgrade": ("upgrade", "--node-minutes", "0"),
}


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_writes_one_page_and_the_same_bytes_again(verb, cluster, tmp_path):
    first, second = tmp_path / "a.html", tmp_path / "b.html"
    codes = {
        run(*COMMANDS[verb], "--cluster", cluster, "-o", f"html={file}").return_value
        for file in (first, second)
    }
    assert len(codes) == 1
    assert first.read_bytes() == second.read_bytes()
    found = Structure.of(first.read_text())
    assert found.is_complete, found.errors
    assert "snapshot" in found.text
    assert "v1.36.3" in found.text
    assert found.text.index("Evidence") > found.text.index("virt-admit")


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_exit_code_is_that_of_json(verb, cluster, tmp_path):
    as_json = run(*COMMANDS[verb], "--cluster", cluster, "-o", "json").return_value
    assert (
        run(*COMMANDS[verb], "--cluster", cluster, "-o", f"html={tmp_path / 'a'}").return_value
        == as_json
    )


def test_the_policy_of_a_page_admits_only_its_own_style_and_script():
    text = page.render(findings_html.page(scanned(both_keys())))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (source,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


def assert_harmless(text):
    found = Structure.of(text)
    assert found.is_complete, found.errors
    assert not RAW.search(text)
    assert "alert(1)" in found.text  # it is shown
    assert not found.having("img")


def test_hostile_texts_of_findings_are_shown_and_harmless():
    assert_harmless(
        page.render(findings_html.page(scanned(both_keys(name=ATTACK, namespace=ATTACK)), ATTACK))
    )


def test_hostile_texts_of_drains_are_shown_and_harmless():
    attacked = vmi(ATTACK, ATTACK, ATTACK, "False")
    attacked["status"]["conditions"][0]["reason"] = ATTACK
    cluster = snapshot(node(ATTACK), attacked)
    assert_harmless(
        page.render(
            drain_html.page(plan(cluster), drain_html.placed(cluster), [("cluster", ATTACK)])
        )
    )


def test_endless_names_are_cut():
    text = page.render(findings_html.page(scanned(both_keys(name="n" * 10_000))))
    assert "n" * 200 in text
    assert "n" * 2_001 not in text


def test_an_object_that_cannot_be_shown_is_a_row_that_says_so():
    good, bad = (
        scanned(both_keys(name="good")).results[0],
        scanned(both_keys(name="bad")).results[0],
    )
    bad = bad._replace(response=None)
    found = findings_html.page(_lenient(good, bad))
    words = {(cause.word, cause.items[0].name) for cause in found.causes}
    assert ("error", "VirtualMachine/shop/bad") in words
    assert ("deny", "VirtualMachine/shop/good") in words
    assert found.verdict.word == "Incomplete"


def _lenient(*results):
    class Lenient(Report):
        crashed = False
        missing_data = ""

        def summary(self):
            return "2 objects"

    return Lenient(results)


def test_equal_causes_are_one_row_with_all_their_objects():
    results = [
        result for name in ("a", "b", "c") for result in scanned(both_keys(name=name)).results
    ]
    (denied,) = [
        cause
        for cause in findings_html.page(Report(tuple(results))).causes
        if cause[1:3] == ("deny", RULE)
    ]
    assert [item.name for item in denied.items] == [f"VirtualMachine/shop/{name}" for name in "abc"]
    vms = [vmi(f"vm-{number}", migratable="False") for number in range(30)]
    causes = drain_html.page(plan(snapshot(node("worker-1"), *vms)), None).causes
    assert [len(cause.items) for cause in causes if cause.word == "blocks the drain"] == [30]


def test_texts_that_differ_in_names_and_numbers_are_one_cause():
    causes = [
        (PageCause(BAD, "deny", "r", f"claim {name}-disk7 of {name}", "", (CauseItem(name),)), name)
        for name in ("x-1", "yy")
    ]
    (one,) = grouped(causes)
    assert one.text == "For example: claim x-1-disk7 of x-1"
    other = (PageCause(BAD, "deny", "r", "claim of another cause", "", (CauseItem("z"),)), "z")
    assert len(list(grouped([*causes, other]))) == 2


def test_what_is_left_out_is_counted():
    items = tuple(CauseItem(f"vm-{number}") for number in range(MOST_ITEMS + 5))
    rows = tuple((f"node-{number}", number) for number in range(page.MOST_ROWS + 1))
    text = page.render(
        Page(
            title="Test",
            subject="",
            verdict=PageVerdict(GOOD, "Yes", ""),
            causes=(PageCause(GOOD, "migrates", "", "reason", "", items),),
            tables=(Table("Nodes", ("Node", "VMs"), rows),),
        )
    )
    assert "5 objects are only counted here" in text
    assert "20,005 objects" in text
    assert "The first 1,000 of 1,001 rows" in text
    many = [
        PageCause(GOOD, "migrates", "", f"cause {number}", "", items[:2])
        for number in range(MOST_CAUSES + 3)
    ]
    shown, _ = bounded(many)
    assert shown[-1].text == "3 further causes"
    assert sum(cause.number for cause in shown) == 2 * len(many)


def test_memory_moves_with_the_vms():
    web = vmi("web")
    web["spec"]["domain"] = {"devices": {}, "memory": {"guest": "8Gi"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "virt-launcher-web", "namespace": "shop"},
        "spec": {
            "nodeName": "worker-1",
            "containers": [{"resources": {"requests": {"memory": "9Gi"}}}],
        },
        "status": {"phase": "Running"},
    }
    cluster = snapshot(node("worker-1"), node("worker-2"), web, pod)
    figures = {
        figure.title: figure
        for figure in drain_html.page(plan(cluster, "worker-1"), drain_html.placed(cluster)).figures
    }
    assert {"Nodes and VMs", "Memory before and after"} == figures.keys()
    assert "9Gi of 64Gi" in figures["Memory before and after"].svg


def test_pages_by_owner(cluster, tmp_path):
    folder = tmp_path / "pages"
    assert (
        run(
            "drain",
            "--all",
            "--cluster",
            cluster,
            "-o",
            f"html={folder}",
            "--pages-by",
            "namespace",
        ).return_value
        == 1
    )
    assert {file.name for file in folder.iterdir()} == {
        "index.html",
        "owner-shop.html",
        "owner-front.html",
    }
    index = (folder / "index.html").read_text()
    assert 'href="owner-shop.html"' in index
    shop = (folder / "owner-shop.html").read_text()
    assert "shop/db" in shop
    assert "front/web" not in shop
    for file in folder.iterdir():
        assert Structure.of(file.read_text()).is_complete


@pytest.mark.parametrize("verb", ["scan", "drain", "upgrade", "explain"])
def test_pages_by_label(verb, cluster, tmp_path):
    folder = tmp_path / "pages"
    run(*COMMANDS[verb], "--cluster", cluster, "-o", f"html={folder}", "--pages-by", "label=team")
    names = {file.name for file in folder.iterdir()}
    assert "index.html" in names
    if verb != "explain":  # the example's health check selects no node of this cluster
        assert "owner-red.html" in names
        assert owners.file_name("") in names


@pytest.mark.parametrize("owner", ["", "../x", "index", "a/b", "A", ".", "x" * 300, ATTACK])
def test_files_of_owners_stay_in_the_folder(owner):
    assert re.fullmatch(r"(owner|other)-[a-z0-9.-]{1,110}\.html", owners.file_name(owner))
    assert owners.file_name(owner) != owners.file_name(owner + "y")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("-o", "html=x", "--pages-by", "team"), "Use namespace or label=KEY"),
        (("-o", "html", "--pages-by", "namespace"), "needs a folder"),
        (("--pages-by", "label=a"), "needs a folder"),
        (("-o", "xml"), "unknown output format xml"),
    ],
)
@pytest.mark.parametrize("verb", ["scan", "drain"])
def test_wrong_usage(verb, flags, message, cluster):
    result = run(*COMMANDS[verb], "--cluster", cluster, *flags)
    assert message in str(getattr(result.exception, "message", ""))


def test_a_file_that_cannot_be_written_is_one_line(cluster, tmp_path):
    (tmp_path / "file").write_text("")
    drained = ("drain", "--all", "--cluster", cluster)
    assert "No such file" in run(*drained, "-o", f"html={tmp_path}/none/x").exception.message
    pages = run(*drained, "-o", f"html={tmp_path}/file", "--pages-by", "namespace")
    assert "File exists" in pages.exception.message


def test_check_without_a_page_does_not_import_jinja():
    forbidden = ("jinja2", "markupsafe", "virt_admit.reports.html")
    code = (
        "import sys; from click.testing import CliRunner; from virt_admit.cli import main; "
        f"CliRunner().invoke(main.virt_admit, ['check', {str(EXAMPLES / '03-both-keys.yaml')!r}]); "
        f"print([name for name in {forbidden!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_the_templates_are_in_the_package():
    folder = Path(page.__file__).parent / "templates"
    assert {file.name for file in folder.iterdir()} == {"page.html", "page.css", "page.js"}


def test_a_page_says_when_its_data_was_read():
    bare = Page(title="Drain", subject="", verdict=PageVerdict(GOOD, "Yes", "All."))
    assert "<time" not in page.render(bare)
    two = dataclasses.replace(
        bare,
        evidence=(("time of b", "2027-03-02T00:00:00Z"), ("time of a", "2027-03-01T11:00:00Z")),
    )
    assert '<time datetime="2027-03-01T11:00:00Z">2027-03-01 11:00:00 UTC</time>' in page.render(
        two
    )


def test_long_labels_of_a_picture_fit_into_their_column():
    text = svg.bars([svg.Bar("W" * 60, (), ""), svg.Bar("worker-1", (), "")])
    long, short = re.findall(r'<text x="220"[^>]*>', text)
    assert 'textLength="216"' in long
    assert "textLength" not in short


def test_times_of_an_axis():
    assert [svg.clock(seconds) for seconds in (0, 40, 300, 9000, 90000)] == [
        "0",
        "40 s",
        "5 min",
        "2 h 30 min",
        "1 d 1 h",
    ]
