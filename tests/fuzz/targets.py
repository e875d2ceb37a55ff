"""What is fuzzed, and what must hold.

A target gets a ``Random``, makes one input of it, and raises if something is wrong.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import yaml
from click.testing import CliRunner, Result

from tests.fuzz import corpus
from tests.fuzz.corpus import Json, Scene
from tests.fuzz.hostile import hostile_names, wrong_types
from tests.fuzz.mutation import changed, changed_text, grown, shuffled
from tests.fuzz.snapshots import item_order, snapshots
from tests.fuzz.wire import wire
from tests.https.reviews import review as review_of
from tests.work import measured
from virt_admit.cli import main
from virt_admit.engine.admission_review import Request, Response, encode
from virt_admit.engine.decoding import MAX_BODY, ReviewError
from virt_admit.engine.review import answer, fix, judge, review
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy import parser
from virt_admit.policy.policy import Policy, PolicyError
from virt_admit.rules import Rules, load_rules
from virt_admit.serving.worker import review_limits

Target = Callable[[random.Random], None]

LONGEST = 20.0
"""Seconds that one input may take; two are usual for the largest, and machines are busy."""
MOST_WORK: Final = 5.0
"""Seconds of CPU of both endpoints together: 2 each at most,
and another process may share the core.
"""
MOST_MEMORY: Final = 100
"""MiB that a review may take."""
MOST_ANSWERED: Final = 60_000
"""Bytes of an answer without a patch."""
KEPT: Final = ("apiVersion", "kind")
NAMED: Final = (("apiVersion",), ("kind",), ("metadata", "namespace"))
"""What a request says about its object; longer names are refused."""


@cache
def rules() -> Rules:
    return load_rules()


@cache
def default_policy() -> Policy:
    return parser.load("default", rules())


def request(scene: Scene, operation: str = "") -> Request:
    obj, old = (
        Object(scene.obj, "shop"),
        Object(scene.old, "shop") if isinstance(scene.old, dict) else None,
    )
    operation = operation or ("UPDATE" if old is not None else "CREATE")
    return Request(
        operation=operation, kind=kinds.of(obj), obj=obj, old=old, namespace="shop", uid="1"
    )


def damaged(chance: random.Random) -> Scene:
    """A case with changes in the object, in the object before, and in the cluster."""
    scene = corpus.scene(chance)
    obj = changed(chance, scene.obj, corpus.objects(), KEPT)
    old = scene.old
    if chance.random() < 0.5:
        old = changed(chance, chance.choice([scene.old or scene.obj, obj]), corpus.objects(), KEPT)
    cluster = [changed(chance, each, corpus.objects(), KEPT) for each in scene.cluster]
    return Scene(obj, old, cluster)


def judged(found: Request, cluster: list[Json], *, unreadable: list[str] | None = None) -> Response:
    snapshot = Snapshot(map(Object, cluster), complete=["*"], unreadable=unreadable or [])
    return judge(found, rules(), snapshot, default_policy())


# --- targets --------------------------------------------------------------------------------------


def engine(chance: random.Random) -> None:
    """Every review of a damaged object in a damaged cluster is answered,
    without an error in a rule.
    """
    scene = damaged(chance)
    found = request(scene, chance.choice(["", "", "DELETE"]))
    response = judged(found, scene.cluster)
    assert not response.errors, response.errors
    encoded = json.loads(encode(found, response))
    assert encoded["response"]["uid"] == "1"
    assert encoded["response"]["allowed"] is response.allowed


def body(chance: random.Random) -> None:
    """Bytes that are almost a review are answered or refused with one line."""
    text = chance.choice(corpus.reviews())
    if chance.random() < 0.5:  # most damaged bytes are not even JSON
        text = json.dumps(changed(chance, json.loads(text), corpus.objects(), KEPT)).encode()
    else:
        text = changed_text(chance, text, corpus.reviews())
    refused = ""
    try:
        reply = answer(
            text, review, rules().at_admission, Snapshot(complete=["*"]), default_policy()
        )
        assert not reply.response.errors, reply.response.errors
        json.loads(reply.body)
    except ReviewError as error:
        refused = f"refused: {error}"
    assert "\n" not in refused


def key_order(chance: random.Random) -> None:
    """The order of keys does not matter."""
    scene = damaged(chance)
    other = Scene(*(shuffled(chance, part) for part in scene))
    assert verdicts(judged(request(scene), scene.cluster)) == verdicts(
        judged(request(other), other.cluster)
    )


def idle_metadata(chance: random.Random) -> None:
    """What the API server keeps in the metadata for itself does not matter."""
    scene = corpus.scene(chance)
    metadata = scene.obj.get("metadata")
    if not isinstance(metadata, dict) or scene.old is not None:
        return
    idle: Json = {"resourceVersion": "7", "selfLink": "/x"}
    if "managedFields" not in metadata:  # rules read from them when a field was set
        idle["managedFields"] = [{"manager": "kubectl"}]
    annotations = metadata.get("annotations") or {}
    if isinstance(annotations, dict):
        # one of another domain may name what moves a VM with External
        idle["annotations"] = annotations | {"kubectl.kubernetes.io/note": "x"}
    other = scene._replace(obj=scene.obj | {"metadata": metadata | idle})
    assert verdicts(judged(request(scene), scene.cluster)) == verdicts(
        judged(request(other), other.cluster)
    )


def less_seen(chance: random.Random) -> None:
    """A kind that cannot be read never turns an accepted object into a denied one."""
    scene = damaged(chance)
    found = request(scene)
    if not judged(found, scene.cluster).allowed:
        return
    known = [kind.resource for kind in rules().kinds] + [
        "nodes",
        "persistentvolumeclaims",
        "pods",
        "namespaces",
    ]
    blind = judged(found, scene.cluster, unreadable=chance.sample(known, chance.randint(1, 8)))
    assert blind.allowed, verdicts(blind)
    nothing = judge(found, rules(), Snapshot(), default_policy())
    assert nothing.allowed, verdicts(nothing)


def unchanged(chance: random.Random) -> None:
    """An object is never denied in an update that changes nothing,
    nor while it is being deleted.
    """
    scene = damaged(chance)
    same = judged(request(scene._replace(old=scene.obj)), scene.cluster)
    assert same.allowed, verdicts(same)
    metadata = scene.obj.get("metadata")
    if isinstance(metadata, dict):
        leaving = scene.obj | {"metadata": metadata | {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
        gone = judged(request(scene._replace(obj=leaving)), scene.cluster)
        assert gone.allowed, verdicts(gone)


def size(chance: random.Random) -> None:
    """A large object in a large cluster is answered in time, whatever makes it large."""
    scene = corpus.scene(chance)
    path, obj = grown(
        chance, scene.obj, chance.choice([100_000, 1_000_000, 2_000_000, 6_000_000]), NAMED
    )
    body = json.dumps(review_of(obj, scene.old), separators=(",", ":")).encode()
    more = {"Node": 500, "Pod": 500}
    crowd = [
        each
        for each in scene.cluster
        if each.get("kind") in ("VirtualMachine", "VirtualMachineInstance", *more)
    ]
    copies = [
        _named(each, number) for each in crowd for number in range(more.get(each["kind"], 2_000))
    ]
    cluster = Snapshot(map(Object, [*scene.cluster, *copies]), complete=["*"])
    with measured() as work:
        for decide in (review, fix):
            reply = answer(
                body, decide, rules().at_admission, cluster, default_policy(), review_limits()
            )
            assert not reply.response.errors, reply.response.errors
            assert reply.response.patch or len(reply.body) < MOST_ANSWERED
    what = f"{'.'.join(map(str, path))} of {kinds.of(Object(obj))}"
    assert work.seconds < MOST_WORK, f"{work.seconds:.1f} s for {what}"
    assert len(body) > MAX_BODY or work.mib < MOST_MEMORY, f"{work.mib} MiB for {what}"


def _named(data: Json, number: int) -> Json:
    """Another object like this one. A node and the pods and VMs of a number belong together."""
    metadata = data.get("metadata") or {}
    found = data | {"metadata": metadata | {"name": f"{metadata.get('name')}-{number}"}}
    status = data.get("status")
    if (
        data["kind"] == "VirtualMachineInstance"
        and isinstance(status, dict)
        and "nodeName" in status
    ):
        found["status"] = status | {"nodeName": f"{status['nodeName']}-{number % 100}"}
    return found


def verdicts(response: Response) -> list[tuple[str, str, str]]:
    return sorted((each.rule.id, each.finding.path, each.action.name) for each in response.verdicts)


def files(chance: random.Random) -> None:
    """``check`` of damaged text ends with a known code, in time, in every format;
    its JSON can be read.
    """
    text = changed_text(chance, chance.choice(corpus.manifests()), corpus.manifests())
    kind = chance.choice(["text", "json", "sarif", "junit", "github", "gitlab", "markdown", "html"])
    result = run(["check", "-o", kind, "-"], text)
    if kind in ("json", "sarif", "gitlab") and result.stdout:
        json.loads(result.stdout)


def policies(chance: random.Random) -> None:
    """A damaged policy is refused with lines that say where, or it can be used."""
    text = chance.choice(corpus.policies())
    if chance.random() < 0.5:  # most damaged texts are not even YAML
        others = [yaml.safe_load(each) for each in corpus.policies()]
        text = json.dumps(changed(chance, yaml.safe_load(text), others, KEPT)).encode()
    else:
        text = changed_text(chance, text, corpus.policies())
    policy, problems = Policy(), []
    try:
        policy = parser.parse(text, rules())
    except PolicyError as error:
        problems = error.problems
    for problem in problems:
        assert re.match(r"policy(:\d+){1,2}: .|policy: expected one document", problem), problem
    scene = corpus.scene(chance)
    response = judge(request(scene), rules(), Snapshot(map(Object, scene.cluster)), policy)
    assert not response.errors, response.errors


def fixes(chance: random.Random) -> None:
    """``check --fix`` leaves a file that has nothing more to fix,
    and writes nothing into one that it cannot read.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "a.yaml")
        text = chance.choice(corpus.manifests())
        file.write_bytes(
            changed_text(chance, text, corpus.manifests()) if chance.random() < 0.7 else text
        )
        before = file.read_bytes()
        first = run(["check", "--fix", str(file)])
        once = file.read_bytes()
        if first.exit_code == 2:
            assert once == before, "a file with an error was changed"
            return
        run(["check", "--fix", str(file)])
        assert file.read_bytes() == once, "a second --fix changes the file again"


def run(args: list[str], text: bytes | None = None) -> Result:
    """Run the command. Raises if it ends otherwise than users expect, or takes too long."""
    start = time.monotonic()
    result = CliRunner().invoke(main.virt_admit, args, input=text)
    seconds = time.monotonic() - start
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2), result.exit_code
    assert "Traceback" not in result.output
    assert seconds < LONGEST, f"{seconds:.0f} s"
    return result


TARGETS: Final[dict[str, Target]] = {
    target.__name__.replace("_", "-"): target
    for target in (
        *(
            engine,
            body,
            key_order,
            idle_metadata,
            less_seen,
            unchanged,
            size,
            files,
            policies,
            fixes,
            wire,
        ),
        *(snapshots, item_order, hostile_names, wrong_types),
    )
}


def case(name: str, seed: int) -> None:
    """Run one input of a target. The seed is all that is needed to repeat it."""
    TARGETS[name](random.Random(f"{name} {seed}"))
