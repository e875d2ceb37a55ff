"""The layout: sizes of files and functions that keep the project readable,
and few entries in each package.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.conftest import LONG_FILES
from tests.paths import ROOT

# A page of 100 columns: what 400 lines of 120 columns hold.
FILE_LINES = 480
CERTS_FILE_LINES = 360
FUNCTION_LINES = 60
COMMAND_LINES = 48
COMMAND_PARAMETERS = 8
PACKAGE_ENTRIES = 17
FOLDER_MODULES = 20
PACKAGE = "webhook/virt_admit/"


class Function(NamedTuple):
    """A function with the lines from ``def`` to its end, and its parameters."""

    place: str
    lines: int
    parameters: int
    is_command: bool


def sources() -> list[str]:
    """Return the paths of all Python files, also of new ones;
    hidden folders such as .venv are left out.
    """
    folders = [
        folder for folder in ROOT.iterdir() if folder.is_dir() and not folder.name.startswith(".")
    ]
    return sorted(
        str(file.relative_to(ROOT)) for folder in folders for file in folder.rglob("*.py")
    )


def line_count(path: str) -> int:
    return len((ROOT / path).read_text().splitlines())


class Source(NamedTuple):
    """What a file defines."""

    functions: list[Function]
    classes: list[str]
    """Those that are not part of another one."""


def source_of(path: str) -> Source:
    tree = ast.parse((ROOT / path).read_text())
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    return Source(list(functions(path, tree)), classes)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a node. Only they hold functions, and most nodes are expressions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


def functions(path: str, tree: ast.Module) -> Iterator[Function]:
    """Yield the functions of a file, also methods and nested ones."""
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            is_command = any("command(" in decorator for decorator in decorators)
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Function(f"{path}:{node.lineno} {node.name}", lines, count, is_command)


@pytest.fixture(scope="module")
def python() -> list[str]:
    return sources()


@pytest.fixture(scope="module")
def every_source(python: list[str]) -> dict[str, Source]:
    return {path: source_of(path) for path in python}


@pytest.fixture(scope="module")
def every_function(every_source: dict[str, Source]) -> list[Function]:
    return [function for source in every_source.values() for function in source.functions]


def test_no_python_file_is_too_long(python):
    assert len(python) > 300
    long = {path: line_count(path) for path in python if line_count(path) > FILE_LINES}
    assert not long, f"split by subject: {long}"


def test_no_file_of_the_certificates_is_too_long(python):
    files = [path for path in python if path.startswith("certs/")]
    assert len(files) > 20
    long = {path: line_count(path) for path in files if line_count(path) > CERTS_FILE_LINES}
    assert not long, f"one idea a file: {long}"


def test_no_function_is_too_long(every_function):
    long = [
        (function.place, function.lines)
        for function in every_function
        if function.lines > FUNCTION_LINES
    ]
    assert not long


def test_commands_are_short_and_take_few_parameters(every_function):
    commands = [
        function
        for function in every_function
        if function.is_command and function.place.startswith(f"{PACKAGE}cli/")
    ]
    assert len(commands) >= 14
    too_much = [
        function
        for function in commands
        if function.lines > COMMAND_LINES or function.parameters > COMMAND_PARAMETERS
    ]
    assert not too_much, "options that belong together are one frozen value (cli/options.py)"


def test_the_package_has_few_entries():
    entries = {entry.name for entry in (ROOT / PACKAGE).iterdir() if entry.name != "__pycache__"}
    assert {"rule.py", "rules", "model"} <= entries
    assert len(entries) <= PACKAGE_ENTRIES, sorted(entries)


def test_no_folder_has_too_many_modules():
    """A newcomer reads a folder as a table of contents.

    Rules are listed by their first word instead.
    """
    folders = [
        folder
        for folder in (ROOT / PACKAGE).rglob("*")
        if folder.is_dir() and "rules" not in folder.parts
    ]
    full = {
        str(folder.relative_to(ROOT)): len(modules)
        for folder in folders
        if len(modules := [file for file in folder.glob("*.py") if file.stem != "__init__"])
        > FOLDER_MODULES
    }
    assert not full


def test_a_module_of_facts_or_consequences_has_a_name_of_its_own():
    names = Counter(
        file.stem
        for package in ("model", "forecasts")
        for file in (ROOT / PACKAGE / package).rglob("*.py")
        if file.stem != "__init__"
    )
    assert len(names) > 80
    assert [name for name, count in names.items() if count > 1] == []


def test_a_class_of_the_product_has_a_name_of_its_own(every_source):
    """A name that means two things cannot be searched for.

    Each rule with parameters has its ``Params``.
    """
    names = Counter(
        name
        for path, source in every_source.items()
        if path.startswith((PACKAGE, "certs/"))
        for name in source.classes
    )
    assert len(names) > 300
    assert [
        name
        for name, count in names.items()
        if count > 1 and name != "Params" and not name.startswith("_")
    ] == []


def test_a_function_is_measured_without_its_decorators():
    source = "@click.command('x')\n@option\ndef one(a, *, b):\n    def two(c):\n        pass\n"
    assert [*functions("f.py", ast.parse(source))] == [
        Function("f.py:3 one", 3, 2, True),
        Function("f.py:4 two", 2, 1, False),
    ]


def test_the_long_files_exist() -> None:
    """The order of the tests names files.

    One that is renamed would run at the end of ``make test``.
    """
    assert [file for file in LONG_FILES if not (ROOT / file).is_file()] == []
