"""The reviews beside this file came from a real kube-apiserver 1.36 while kubectl was at work, over the look-ups of
``examples/cluster.yaml``; each stands with our exact answer. ``python -m tests.contract.test_answers`` writes the answers
anew: the difference is what users will notice.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from webhook import engine, snapshots
from webhook.codec import loads
from webhook.policy_reader import load as load_policy
from webhook.rules import load_rules

HERE = Path(__file__).parent
RECORDINGS = sorted(HERE.glob("*.json"))
DECIDE = {"/validate": engine.review, "/mutate": engine.fix}


def answer(recording: dict[str, Any]) -> Any:
    """What we say today, by the out-of-the-box policy."""
    policy = load_policy("default", load_rules()).at(datetime.date(2026, 11, 21))
    cluster = snapshots.load(HERE.parents[1] / "examples" / "cluster.yaml")
    body = json.dumps(recording["review"]).encode()
    decide = DECIDE[recording["endpoint"]]
    return loads(engine.answer(body, decide, load_rules().at_admission, cluster, policy).body)


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
def test_the_answer_is_this_very_one(file: Path) -> None:
    recording = json.loads(file.read_text())
    assert answer(recording) == recording["answer"]


def test_there_are_recordings() -> None:
    assert len(RECORDINGS) > 10


if __name__ == "__main__":
    for file in RECORDINGS:
        recording = json.loads(file.read_text())
        file.write_text(json.dumps(recording | {"answer": answer(recording)}, indent=1, ensure_ascii=False) + "\n")
