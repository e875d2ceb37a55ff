"""Work that several processes share: the same results in the same order,
whatever happens to a process.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.cli.test_check import BOTH, FINE, UNSET
from tests.paths import ROOT
from tests.prefork import virt_admit
from virt_admit.cli import processes
from virt_admit.documents.batches import batches
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

PRELUDE = "import os, threading; from virt_admit.cli import processes; import click\n"


def python(code):
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_results_come_in_order_from_other_processes():
    code = "import time\ndef work(n): time.sleep(0.2 * (n == 0)); return n, os.getpid() != parent\n"
    code += (
        "parent = os.getpid(); print(str(list(processes.share(work, range(5), 3))).replace('(', "
        "'[')"
    )
    code += ".replace(')', ']').lower())"
    assert python(code) == [[n, True] for n in range(5)]


@pytest.mark.parametrize(
    ("items", "jobs", "threads"),
    [(5, 1, 0), (1, 4, 0), (0, 4, 0), (5, 4, 1)],
    ids=["-j 1", "one", "none", "a thread"],
)
def test_one_process_does_it_alone(items, jobs, threads):
    code = (
        f"done = threading.Event()\nfor _ in range({threads}): "
        "threading.Thread(target=done.wait).start()\n"
    )
    code += (
        f"print(list({{p for p in processes.share(lambda _: os.getpid(), range({items}), {jobs})}} "
        "- {os.getpid()}))\n"
    )
    code += "done.set()"
    assert python(code) == []


def test_a_process_that_the_system_ends_is_an_error():
    code = "import signal\ndef work(n): os.kill(os.getpid(), signal.SIGKILL) if n == 1 else None\n"
    code += "try: list(processes.share(work, range(4), 2)); print('null')\n"
    code += "except click.ClickException as error: print('\"' + error.message + '\"')"
    assert python(code) == "a process was ended, probably because memory is short. Use -j 1"


@pytest.mark.parametrize("number", [0, 2], ids=["first", "third"])
def test_this_process_does_the_work_if_the_system_refuses_another(number):
    code = f"forks = iter([os.fork] * {number}); real = os.fork\n"
    code += (
        "def fork():\n    one = next(forks, None)\n    if one is None: raise BlockingIOError(11, "
        "'no more processes')\n"
    )
    code += "    return real()\nos.fork = fork; me = os.getpid()\n"
    code += "print(sum(p != me for p in processes.share(lambda _: os.getpid(), range(9), 3)))"
    assert python(code) == 0


SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores Ctrl-C
def work(n):
    time.sleep(0.1)
    return "x" * 100_000
for number, _ in enumerate(processes.share(work, range(600), 3)):
    if number == 3: print("started", flush=True)
"""  # noqa: E501


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("whole_group", [True, False])
def test_no_process_outlives_the_first_one(sent, whole_group):
    command = [sys.executable, "-c", PRELUDE + SLOW]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as first:
        assert first.stdout.readline() == b"started\n"
        (os.killpg if whole_group else os.kill)(first.pid, sent)
        assert first.stdout.read() == b""  # a copy that lives would keep the pipe open
    assert first.returncode == -sent


def test_an_exception_of_the_work_is_raised():
    code = "def work(n): raise KeyError('x')\ntry: list(processes.share(work, range(4), 2))\n"
    code += "except KeyError: print('true')"
    assert python(code) is True


def test_batches_keep_the_order_and_their_least_size():
    assert list(batches([5, 1, 2, 9, 1], lambda item: item, 6)) == [[5, 1], [2, 9], [1]]
    assert list(batches([], lambda item: item, 6)) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files with more than two portions, two batches, and everything that a report can name."""
    folder = tmp_path_factory.mktemp("many")
    padding = "# " + "x" * 3000 + "\n"
    many = [
        text.replace("name: db", f"name: vm{n}") + padding
        for n in range(130)
        for text in (BOTH, FINE, UNSET)
    ]
    (folder / "many.yaml").write_text("---\n".join(many))
    (folder / "odd.yaml").write_text(
        "kind: [\n---\n" + BOTH + "  running: true\n---\n" + UNSET.replace("db", "{{ x }}")
    )
    (folder / "list.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1"}]})
    )
    (folder / "bytes.yaml").write_bytes(b"\xff")
    return folder


@pytest.mark.parametrize(
    "output", ["text", "json", "sarif", "junit", "github", "gitlab", "markdown", "html"]
)
def test_the_report_is_the_same(folder, output):
    def run(jobs):
        command = [virt_admit(), "check", "-j", str(jobs), "-o", output, "--strict", "."]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr

    code, out, err = run(1)
    assert code == 2
    assert out.count(b"vm-running-and-run-strategy") >= 130 or output == "html"
    assert (code, out, err) == run(3)


CLUSTER = str(ROOT / "examples" / "clusters" / "stuck.json")


@pytest.mark.parametrize(
    "verb",
    [
        ["scan", "-o", "json"],
        ["scan", "-o", "text"],
        ["drain", "--all", "-o", "json"],
        ["upgrade", "--from-start", "-o", "json"],
        ["upgrade", "--all-stops", "-o", "text"],
        ["outage", "--worst", "2", "-o", "json"],
        ["outage", "--worst", "1", "-o", "html"],
    ],
    ids=" ".join,
)
def test_the_answer_about_a_cluster_is_the_same(verb):
    def run(jobs):
        command = [virt_admit(), *verb, "--cluster", CLUSTER, "-j", str(jobs)]
        done = subprocess.run(command, capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr

    alone = run(1)
    assert alone[1]
    assert alone == run(3)


@pytest.mark.parametrize(
    ("asked", "small", "alone"), [(None, 3, True), (None, 2, False), (2, 3, False)]
)
def test_a_small_cluster_is_judged_by_one_process_unless_more_are_asked_for(asked, small, alone):
    code = "from virt_admit.model.kubernetes.cluster import Snapshot\n"
    code += "from virt_admit.model.kubernetes.objects import Object\n"
    code += "node = lambda n: {'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': n}}\n"
    code += "cluster = Snapshot(map(Object, map(node, 'abc')), complete=['*'])\n"
    code += f"processes.SMALL, processes.available = {small}, lambda: 2\n"
    code += f"found = processes.sharing(cluster, {asked})(lambda _: os.getpid(), range(4))\n"
    code += "print(str({each == os.getpid() for each in found} == {True}).lower())"
    assert python(code) is alone


def test_results_name_the_cluster_and_its_objects():
    node = Object({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
    other = Object(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "a"},
            "spec": {"unschedulable": True},
        }
    )
    cluster = Snapshot([node], complete=["*"])
    found = list(
        processes.share(lambda _: (cluster, node, other, kinds.NODE), range(2), 2, cluster)
    )
    for one in found:
        assert one[0] is cluster
        assert one[1] is node
        assert one[2].data == other.data
        assert one[3] is kinds.NODE


def test_a_live_cluster_decodes_no_object_for_a_result_that_copies_it():
    class Live:
        def get(self, *name):
            raise AssertionError(f"{name} is decoded in vain")

    written = processes._written(
        Object({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}), (Live(),)
    )
    assert processes._Reader(written, (Live(),)).load().name == "web"
