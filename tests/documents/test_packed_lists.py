"""Lists of many objects: their members are packed while the file is read,
and nothing else changes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from virt_admit.documents import plain_yaml, reader, tree, yaml_reader
from virt_admit.documents.reader import Document

MORE = 1.5
"""How many times the memory of separate documents, in YAML, a List may take."""


def vm(name: str) -> dict[str, Any]:
    disks = [{"name": f"disk{n}", "disk": {"bus": "virtio"}} for n in range(4)]
    volumes = [
        {"name": f"disk{n}", "persistentVolumeClaim": {"claimName": f"{name}-{n}"}}
        for n in range(4)
    ]
    spec = {
        "domain": {"devices": {"disks": disks}, "resources": {}},
        "volumes": volumes,
        "terminationGracePeriodSeconds": 0,
    }
    meta = {"name": name, "namespace": "shop", "labels": {}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": meta,
        "spec": {"template": {"spec": spec}},
    }


def text(form: str, holder: dict[str, Any]) -> str:
    return (
        json.dumps(holder, indent=2)
        if form == "json"
        else yaml.dump(holder, Dumper=yaml.CSafeDumper, sort_keys=False)
    )


def repeated(form: str, number: int, separate: bool = False) -> str:
    """Return the text of so many VMs, in a List or as separate documents.

    The text of one is repeated: to dump thousands takes longer than to check them.
    """
    one = text(form, vm("NAME"))
    head, between, tail = "", "---\n", ""
    if form == "json":
        head, between, tail = '{"apiVersion": "v1", "kind": "List", "items": [', ",\n", "]}"
    elif not separate:
        head, between = "apiVersion: v1\nkind: List\nitems:\n", ""
        one = "- " + one.replace("\n", "\n  ").rstrip(" ")
    return head + between.join(one.replace("NAME", f"vm{n}") for n in range(number)) + tail


def described(content: str) -> list[Any]:
    """Return everything that is known of each document."""
    return [
        (
            each.data,
            each.line,
            each.is_object,
            each.duplicates,
            each.span,
            *map(each.location, PATHS),
        )
        if isinstance(each, Document)
        else str(each)
        for each in reader.parse(content.encode(), "file")
    ]


NEVER = re.compile("(?!)")
PATHS: Any = (
    ("metadata", "name"),
    ("metadata", "labels", "absent"),
    ("spec", "template", "spec", "volumes", 2, "persistentVolumeClaim", "claimName"),
)
TWICE = (
    "{'kind': 'List', 'apiVersion': 'v1', 'items': [{'kind': 'A', 'apiVersion': 'v1', 'a': 1, 'a': "
    "2}, {'kind': 'B'}]}"
)
TEXTS = {
    "List": {
        "apiVersion": "v1",
        "items": [vm("a"), vm("b"), 5, [vm("d")], None, {}],
        "kind": "List",
    },
    "typed": {
        "kind": "VirtualMachineList",
        "apiVersion": "kubevirt.io/v1",
        "items": [{"metadata": {"name": "a"}}],
    },
    "List in a List": {
        "kind": "List",
        "apiVersion": "v1",
        "items": [{"kind": "List", "apiVersion": "v1", "items": [vm("a")]}],
    },
    "Template": {
        "kind": "Template",
        "apiVersion": "v1",
        "objects": [vm("a")],
        "parameters": [{"name": "A"}],
    },
    "items of another kind": {
        "kind": "Thing",
        "apiVersion": "v1",
        "items": [vm("a")],
        "spec": {"kind": "List"},
    },
    "two fields": {"kind": "List", "apiVersion": "v1", "objects": [{"a": 1}], "items": [vm("a")]},
}


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("name", TEXTS)
def test_packing_changes_nothing(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = text(form, TEXTS[name])
    packed = described(content)
    monkeypatch.setattr(tree, "_HOLDER_KIND", NEVER)
    assert packed == described(content)
    assert packed


@pytest.mark.parametrize(
    "content",
    [
        TWICE.replace("'", '"'),
        (
            '{"kind": "List", "apiVersion": "v1", "items": [{"kind": "A", "apiVersion": "v1"}, '
            '{"a": NaN}]}'
        ),
        (
            '{"kind": "List", "apiVersion": "v1", "items": [{"kind": "A", "apiVersion": "v1"}, '
            '{"a": }]}'
        ),
        (
            '{"kind": "List", "apiVersion": "v1", "items": [], "items": [{"kind": "A", '
            '"apiVersion": "v1"}]}'
        ),
        "kind: List\napiVersion: v1\nitems:\n- &a {kind: A, apiVersion: v1}\n- *a\n",
        "kind: List\napiVersion: v1\nitems:\n- {kind: A, apiVersion: v1}\n- {kind: }}\n",
    ],
)
def test_errors_and_duplicates_stay(content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = described(content)
    monkeypatch.setattr(tree, "_HOLDER_KIND", NEVER)
    assert packed == described(content)


@pytest.mark.parametrize(("form", "separate"), [("json", False), ("yaml", False), ("yaml", True)])
def test_the_repeated_text_is_that_of_the_vms(form: str, separate: bool) -> None:
    machines = [vm("vm0"), vm("vm1")]
    one = {"apiVersion": "v1", "kind": "List", "items": machines}
    assert list(yaml.safe_load_all(repeated(form, 2, separate))) == (
        machines if separate else [one]
    )


def test_members_are_packed() -> None:
    content = text("yaml", TEXTS["List"])
    (value,) = [each.value for each in yaml_reader.YamlReader(pack=True).documents(content)]
    assert isinstance(value["items"][0], tree.PackedMember)
    assert isinstance(value["items"][0].positions, plain_yaml.OffsetPositions)


@pytest.fixture(scope="module")
def peaks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """MiB that a process takes to read the same VMs, as a List and as separate documents."""
    folder = tmp_path_factory.mktemp("peaks")
    contents = {
        "list.json": repeated("json", 3_000),
        "list.yaml": repeated("yaml", 3_000),
        "separate.yaml": repeated("yaml", 3_000, separate=True),
    }
    return {name: peak(folder / name, content) for name, content in contents.items()}


def peak(file: Path, content: str) -> int:
    file.write_text(content)
    return mib(
        "from virt_admit.cli.sources import read_sources; found = read_sources(sys.argv[1:], "
        "keep=False)",
        str(file),
    )


def mib(code: str, *arguments: str) -> int:
    """Return the MiB that a new Python process takes for this code.

    It says so itself: wait4 counts the parent, too.
    """
    code = (
        f"import sys\n{code}\n"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return int(done.stderr) >> 10


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_list_takes_hardly_more_memory_than_separate_documents(
    form: str, peaks: dict[str, int]
) -> None:
    assert peaks[f"list.{form}"] <= peaks["separate.yaml"] * MORE, peaks


CHECK = """
from virt_admit.cli.commands.check import command
command.main(sys.argv[1:], standalone_mode=False)
"""
MOST = 256
"""MiB for ``check`` of 10,000 VMs. Fewer are checked here:
each of the further ones takes the same.
"""


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_check_of_ten_thousand_vms_takes_a_quarter_of_a_gib(form: str, tmp_path: Path) -> None:
    def taken(number: int) -> int:
        file = tmp_path / f"{number}.{form}"
        file.write_text(repeated(form, number))
        return mib(CHECK, "-q", "-j", "1", str(file))

    few, many = taken(300), taken(4_000)  # of more than 250, fields are left out
    assert few + (many - few) * (10_000 - 300) / (4_000 - 300) <= MOST
