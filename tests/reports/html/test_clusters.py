"""Pages about several clusters: the matrix, each cause once, clusters that cannot be read."""

from __future__ import annotations

import json

import pytest

from tests.reports.html.structure import Structure
from tests.reports.html.test_pages import ATTACK, RAW, node, run, vmi
from virt_admit.reports.html import clusters, page
from virt_admit.reports.html.causes import CauseItem, PageCause
from virt_admit.reports.html.levels import BAD, GOOD, SEVERE
from virt_admit.reports.html.page import Figure, Page, PageVerdict, Tile

VERBS = {
    "drain": ("drain", "--all"),
    "upgrade": ("upgrade", "--node-minutes", "0"),
    "scan": ("scan",),
}


@pytest.fixture
def two(tmp_path):
    """Snapshots of two clusters.

    A VM of the first one cannot migrate. A third path does not exist.
    """
    for name, migratable in (("east", "False"), ("west", "True")):
        items = [
            node("worker-1"),
            node("worker-2"),
            vmi("db", migratable=migratable),
            vmi("web", f"only-{name}"),
        ]
        data = {
            "apiVersion": "virt-admit.io/v1alpha1",
            "kind": "Snapshot",
            "complete": ["*"],
            "items": items,
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    return [str(tmp_path / f"{name}.json") for name in ("east", "west", "away")]


def options(paths):
    return [word for path in paths for word in ("--cluster", path)]


@pytest.mark.parametrize("verb", VERBS)
def test_one_page_with_a_matrix_and_the_exit_code_of_text(verb, two, tmp_path):
    files = [tmp_path / "a.html", tmp_path / "b.html"]
    codes = {
        run(*VERBS[verb], *options(two[:2]), "-o", f"html={file}").return_value for file in files
    }
    assert codes == {run(*VERBS[verb], *options(two[:2])).return_value}
    assert files[0].read_bytes() == files[1].read_bytes()
    found = Structure.of(files[0].read_text())
    assert found.is_complete, found.errors
    matrix = found.text.partition("Clusters")[2]
    assert matrix.index("east.json") < matrix.index("west.json")
    assert found.text.index("Clusters") < found.text.index("Evidence")


@pytest.mark.parametrize("verb", VERBS)
def test_a_cluster_that_cannot_be_read_is_said(verb, two, tmp_path):
    file = tmp_path / "page.html"
    assert run(*VERBS[verb], *options([two[1], two[2]]), "-o", f"html={file}").return_value == 2
    text = Structure.of(file.read_text()).text
    assert "cannot be read" in text
    assert "away.json: No such file or directory" in text
    assert ("Incomplete" if verb == "scan" else "Cannot be read: ") in text


@pytest.mark.parametrize("form", ["markdown", "junit", "github", "sarif"])
def test_other_formats_of_scan_say_it_too(form, two):
    done = run("scan", *options(two[1:]), "-o", form)
    assert done.return_value == 2
    assert "away.json: No such file or directory" in done.stdout


def test_pages_by_owner_join_the_clusters(two, tmp_path):
    folder = tmp_path / "pages"
    run("drain", "--all", *options(two), "-o", f"html={folder}", "--pages-by", "namespace")
    names = {file.name for file in folder.iterdir()}
    assert names == {
        "index.html",
        "owner-shop.html",
        "owner-only-east.html",
        "owner-only-west.html",
    }
    both = Structure.of((folder / "owner-shop.html").read_text())
    assert both.is_complete
    assert "Drain of 3 clusters" in both.text
    assert "shop/db" in both.text
    east = Structure.of((folder / "owner-only-east.html").read_text()).text
    assert "west.json" not in east
    assert "away.json: No such file or directory" in east
    index = Structure.of((folder / "index.html").read_text())
    assert {
        link["href"] for link in index.having("a") if link["href"].startswith("owner")
    } == names - {"index.html"}


def single(word, level, *names):
    causes = (
        (
            PageCause(
                BAD, "blocks", "", "PVC is not shared", "Share it.", tuple(map(CauseItem, names))
            ),
        )
        if names
        else ()
    )
    return Page(
        title="Drain",
        subject="",
        verdict=PageVerdict(level, word, "text"),
        tiles=(Tile(BAD, 2, "blocked"),),
        causes=causes,
    )


def test_counts_are_added_and_equal_causes_joined():
    parts = [
        clusters.ClusterPart("a", single("No", BAD, "x", "y")),
        clusters.ClusterPart("b", single("No", BAD, "z")),
    ]
    found = clusters.combine("Drain", parts)
    assert found.title == "Drain of 2 clusters"
    (cause,) = found.causes
    assert [item.name for item in cause.items] == ["a: x", "a: y", "b: z"]
    assert found.tiles[0] == Tile(BAD, 4, "blocked")


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ([("a", single("Yes", GOOD)), ("b", single("No", BAD))], "No"),
        ([("a", single("Yes", GOOD)), ("b", None)], "Incomplete"),
        ([("a", single("No", BAD)), ("b", None)], "No"),
        ([("a", single("Yes", GOOD)), ("b", single("Yes, at a cost", SEVERE))], "Yes, at a cost"),
        ([("a", None)], "Incomplete"),
    ],
)
def test_the_verdict_is_the_worst(parts, word):
    named = [
        clusters.ClusterPart(name, one, error="" if one else "no route") for name, one in parts
    ]
    found = clusters.combine("Drain", named).verdict
    assert found.word == word
    assert ("Cannot be read: " in found.text) == any(one is None for _, one in parts)


def test_pictures_are_bounded_and_the_rest_is_said():
    figure = Figure("Nodes", "caption", page.Markup("<svg></svg>"))
    many = [
        clusters.ClusterPart(
            f"c{number}",
            Page(title="x", subject="", verdict=PageVerdict(GOOD, "Yes", ""), figures=(figure,)),
        )
        for number in range(25)
    ]
    found = clusters.combine("Drain", many)
    assert len(found.figures) == 20
    assert ("Pictures", ("The first 20 of 25 pictures are shown.",)) in found.notes


def test_hostile_names_of_clusters_are_harmless():
    parts = [
        clusters.ClusterPart(ATTACK, single("No", BAD, ATTACK)),
        clusters.ClusterPart(f"{ATTACK}2", error=ATTACK),
    ]
    text = page.render(clusters.combine("Drain", parts))
    found = Structure.of(text)
    assert found.is_complete
    assert not RAW.search(text)
    assert "alert(1)" in found.text
