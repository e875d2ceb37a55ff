"""Pieces of sentences."""

import pytest

from tests.for_each import for_each
from virt_admit.model import messages
from virt_admit.model.commands import and_then, typed
from virt_admit.model.kubernetes.objects import Path
from virt_admit.rules import load_rules


@pytest.mark.parametrize(
    ("items", "width", "text"),
    [
        ([], 120, ""),
        (["a"], 120, "a"),
        (["a", "b"], 120, "a, b"),
        (list("abcde"), 120, "a, b, c, d, e"),
        (list("abcdefg"), 120, "a, b, c, d, e and 2 more"),
        (["shop/database", "shop/web"], 20, "shop/database and 1 more"),
        (["a-name-that-is-too-long"], 5, "a-name-that-is-too-long"),
    ],
)
def test_names(items, width, text):
    assert messages.names(items, width) == text


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (r"No enabled repositories\n: exit \"1\"", 'No enabled repositories : exit "1"'),
        (r"a path C:\\temp", r"a path C:\temp"),
        ("nothing  is\nescaped", "nothing is escaped"),
    ],
)
def test_the_escapes_of_a_quoted_string(said, text):
    assert messages.unescaped(said) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_count(number, text):
    assert messages.count(number, "node") == text


def test_the_first_text_that_fits_is_taken():
    rules = load_rules()
    at_admission, in_scans = (
        rules.by_id["vm-single-candidate-node"],
        rules.by_id["node-not-reporting"],
    )
    path, room = Path("spec", "x"), 256 - len("spec.x:  [virt-admit/vm-single-candidate-node]")
    assert at_admission.first_that_fits(path, "a" * room, "b") == "a" * room
    assert at_admission.first_that_fits(path, "a" * (room + 1), "b") == "b"
    assert at_admission.first_that_fits(path, "a" * 300, "b" * 300) == "b" * 300
    assert in_scans.first_that_fits(path, "a" * 480, "b") == "a" * 480


@for_each(
    "word, suggestion",
    [
        ("livemigrate", "LiveMigrate"),
        ("LiveMigrat", "LiveMigrate"),
        ("LiveMigrateIfPossibl", "LiveMigrateIfPossible"),
        ("Shutdown", "None"),
        ("Nonee", "None"),
        ("Evict", None),
        ("", None),
        ("o", None),
        (True, None),
        ("x" * 1_000_000, None),
    ],
)
def test_what_was_meant(word, suggestion):
    known = ("None", "LiveMigrate", "LiveMigrateIfPossible")
    assert messages.did_you_mean(word, known, {"shutdown": "None"}) == suggestion


@pytest.mark.parametrize(
    ("length", "text"), [(40, "abc: def ghi: jkl"), (11, "abc…hi: jkl"), (5, "a…jkl"), (1, "…")]
)
def test_the_end_of_a_failure_stays(length, text):
    found = messages.cut_middle("abc: def ghi: jkl", length)
    assert (found, len(found) <= length) == (text, True)


def test_what_a_server_answered_is_told_without_its_frame():
    why = "unable to attach volume pvc-1 to b: volume must be healthy to start migration"
    frame = (
        "Bad response statusCode [500]. Status [500 Internal Server Error]. Body: [{}] from [{}]"
    )
    url = f"http://longhorn-backend:9500/v1/volumes/pvc-1{'-x' * 20}?action=attach"
    for body in (
        f"message={why}, code=Server Error, detail=",
        f"code=Server Error, detail=, message={why}",
    ):
        said = f"rpc error: code = Internal desc = {frame.format(body, url)}"
        assert messages.cut_middle(said, 160) == f"Internal: {why}"
        assert messages.cut_middle(said, 60).endswith("healthy to start migration")
        assert len(messages.cut_middle(said, 60)) <= 60


def test_a_dump_in_an_error_gives_way_to_what_follows():
    state = "--- interfaces: - name: br1 state: up ipv4: enabled: false " * 9
    said = f"error on node b: failed probe 'ping' -> currentState: {state}: failed: timed out"
    assert (
        messages.cut_middle(said, 80) == "error on node b: failed probe 'ping': failed: timed out"
    )
    assert messages.scheduler_words(said, 80) == messages.cut_middle(said, 80)


def test_a_text_that_is_cut_in_its_middle_has_whole_words():
    text = (
        "no node that could take it has the frequency 1995312000, which KubeVirt chose at its start"
    )
    assert (
        messages.cut_middle(text, 60, parts=2)
        == "no node that could take it… KubeVirt chose at its start"
    )
    assert all(
        len(messages.cut_middle(text, length, parts=2)) <= length for length in range(1, 100)
    )
    features = "it lacks vmx-rdrand-exit,vmx-vmfunc,vmx-rdseed-exit,vmx-posted-intr"
    assert messages.cut_middle(features, 50).endswith("… vmx-rdseed-exit,vmx-posted-intr")


def test_a_shortened_error_keeps_its_server_and_the_folder_of_an_image():
    url = "https://minio.example.com/templates/rhel9.qcow2"
    said = (
        f'HTTP request errored: Get "{url}": tls: failed to verify certificate: x509: unknown '
        "authority"
    )
    found = messages.cut_middle(f"Unable to connect to http data source: {said}", 150)
    assert url in found
    assert found.endswith("x509: unknown authority")
    lock = "Is another process using the image [/var/run/kubevirt-private/vmi-disks/data/disk.img]?"
    assert messages.cut_middle(lock, 70).endswith("[/var/…/data/disk.img]?")
    texts = f"{said}. {lock}"
    assert all(len(messages.cut_middle(texts, length)) <= length for length in range(1, 260))


def test_an_error_that_begins_with_the_frame_of_a_call_begins_with_its_code():
    said = f"rpc error: code = DeadlineExceeded desc = volume pvc-1 {'x ' * 60}"
    assert messages.cut_middle(said, 80).startswith("DeadlineExceeded: volume pvc-1 x")


def test_a_text_that_is_cut_ends_with_a_whole_word():
    text = "the guest lacks it: its phase is Detaching, although its pod runs"
    assert messages.cut(text, 40) == "the guest lacks it: its phase is…"
    assert messages.cut(text, 48) == "the guest lacks it: its phase is Detaching…"
    assert messages.cut("abcdefgh", 5) == "abcd…"
    assert all(len(messages.cut(text, length)) <= length for length in range(1, 80))


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (80, "One thing is so. Another is not; it waits, because a third one fails"),
        (40, "One thing is so. Another is not"),
        (31, "One thing is so. Another is not"),
        (20, "One thing is so"),
        (10, "One thing…"),
    ],
)
def test_a_text_is_shortened_after_a_statement(length, text):
    whole = "One thing is so. Another is not; it waits, because a third one fails"
    assert messages.shorten(whole, length) == text


def test_the_figures_of_a_quota_are_cut_as_a_whole():
    said = "exceeded quota: q, requested: limits.memory=5Gi, used: limits.memory=5Gi, limited: x"
    assert messages.shorten(said, 82) == said.partition(", limited")[0]
    assert messages.shorten(said, 60) == "exceeded quota: q, requested: limits.memory=5Gi"
    assert messages.shorten(said, 30) == "exceeded quota: q"


def test_a_text_ends_with_one_mark():
    assert [messages.ended(text) for text in ("so", "so.", "so…")] == ["so.", "so.", "so…"]


def test_the_command_of_a_remedy():
    assert messages.command_of("stop it (or wait): virtctl stop a -n b") == "virtctl stop a -n b"
    assert messages.command_of("see: kubectl get pods; then wait") == "kubectl get pods"


TAINT = "node.example.com/uninitialized"
UNFIT = (
    "0/9 nodes are available: 1 Insufficient cpu, 3 node(s) had untolerated taint "
    "{node-role.kubernetes.io/control-plane: }, 4 node(s) didn't match Pod's node "
    f"affinity/selector, 1 node(s) had untolerated taint {{{TAINT}: true}}. preemption: 0/9 nodes "
    "are available: 1 No preemption victims found for incoming pod, 8 Preemption is not helpful "
    "for scheduling."
)


def test_the_reasons_of_the_scheduler_stay_whole():
    assert messages.scheduler_words(UNFIT, 400) == UNFIT.partition(". preemption")[0]
    short = messages.scheduler_words(UNFIT, 200)
    assert TAINT in short
    assert short.endswith(f"1 had untolerated taint {{{TAINT}: true}} and 1 more reason")
    assert (
        messages.scheduler_words(UNFIT, 70)
        == "0/9 nodes are available: 1 Insufficient cpu and 3 more reasons"
    )
    assert messages.scheduler_words("no words of it\nat all", 100) == "no words of it at all"
    claims = (
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 "
        "nodes are available"
    )
    assert messages.scheduler_words(claims, 200) == "0/2 nodes are available: 2 Insufficient cpu"
    assert len(messages.scheduler_words("x " * 200, 100)) <= 100
    many = (
        "0/4000 nodes are available: "
        f"{', '.join(f'1 had untolerated taint {{t-{i}: x}}' for i in range(4000))}."
    )
    assert messages.scheduler_words(many, 100).endswith("{t-0: x} and 3999 more reasons")


def test_what_the_api_server_forbids_keeps_its_name() -> None:
    name = "helper-pod-create-pvc-a6834c5a-9d81-4db2-a3da-ade89cc77d02"
    why = "violates a policy: volume data is a hostPath"
    text = f'failed to create volume pvc-a6834c5a: pods "{name}" is forbidden: {why}'
    assert messages.cut_middle(text, 150) == f'pods "{name}" is forbidden: {why}'
    longer = messages.cut_middle(f"{text}, {'x ' * 90}end", 150)
    assert longer.startswith(f'pods "{name}" is forbidden: ')
    assert len(longer) <= 150


def test_a_role_that_its_writer_may_not_grant_keeps_the_words_that_say_so():
    begin = 'clusterroles.rbac.authorization.k8s.io "kubevirt.io:admin" is forbidden: '
    user = 'user "system:serviceaccount:kubevirt:kubevirt-operator" (groups=["a" "b:c"]) is '
    grants, rules = "attempting to grant RBAC permissions not currently held:", '{Verbs:["get"]}'
    said = f"An error occurred during deployment: unable to update it: {begin}{user}{grants}\n"
    condition = "Synchronized is False (DeploymentFailed): "
    text = f"{condition}{said}{rules * 20}"

    assert messages.cut_middle(text, 300).startswith(f"{condition}{begin}{grants} {rules}")
    assert messages.cut_middle(text, 200).startswith(f"{begin}{grants} ")
    assert len(messages.cut_middle(text, 200)) <= 200


@for_each("text", ["a." * 50_000, "a" * 10**5, 'a "' * 30_000, "a is forbidden: " * 6_000])
def test_long_errors_are_cut_in_linear_time(text: str) -> None:
    assert len(messages.cut_middle(text, 150)) <= 150


def test_the_error_of_a_mount_is_kept_without_its_arguments():
    said = (
        'MountVolume.MountDevice failed for volume "pvc-1" : rpc error: code = Internal desc = '
        "mount failed: exit status 32 Mounting command: mount Mounting arguments: -t nfs -o "
        f"vers=4.1 None:/pvc-1 /var/lib/{'x' * 200} Output: mount.nfs: Failed to resolve server"
    )

    assert messages.cut_middle(said, 160).endswith("mount.nfs: Failed to resolve server")


def test_the_command_of_the_first_step_stands_before_further_ones():
    remedy = typed("change A", "kubectl edit a", "or change B; then start it: virtctl start c")
    assert remedy == "change A: kubectl edit a; or change B; then start it: virtctl start c"
    assert messages.command_of(remedy) == "kubectl edit a"
    assert messages.advice_of(remedy) == "Change A; or change B; then start it: virtctl start c"
    assert messages.ended(typed("change A", "kubectl edit a", "or change B")).endswith("B.")
    assert messages.command_of("change A; or change B") == ""


@pytest.mark.parametrize(
    ("remedy", "whole", "command"),
    [
        ("free memory", "free memory. Then start it: virtctl start a", "virtctl start a"),
        (
            "see it: kubectl logs b",
            "see it: kubectl logs b; then start it (virtctl start a)",
            "kubectl logs b",
        ),
    ],
)
def test_a_further_step_keeps_the_command_of_the_first_one(remedy, whole, command):
    assert and_then(remedy, "start it", "virtctl start a") == whole
    assert messages.command_of(whole) == command


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("it waits for shop/db.", True),
        ("it waits for shop/db: why", True),
        ("it waits for shop/db-2", False),
        ("it waits for shop/db.example", False),
        ("it waits for eshop/db", False),
    ],
)
def test_a_text_mentions_a_name_as_a_whole(text, said):
    assert messages.mentions(text, "shop/db") is said


def test_which_webhook_cannot_be_called_is_kept():
    said = (
        'Internal error occurred: failed calling webhook "default.machine.example.com": failed to '
        'call webhook: Post "https://hooks.old-system.svc:443/mutate-v1-machine?timeout=10s": '
        'service "hooks" not found'
    )
    assert messages.cut_middle(said, 160) == (
        "Internal error occurred: failed calling webhook default.machine.example.com at "
        'hooks.old-system.svc: service "hooks" not found'
    )
