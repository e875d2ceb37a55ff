"""The reviews beside this file came from a real kube-apiserver 1.36 while kubectl was at work, over
the look-ups of ``examples/cluster.yaml``; each stands with our exact answer.
``python -m tests.contract.test_answers`` writes the answers again: the difference is what users
will notice.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from tests.for_each import for_each
from tests.paths import EXAMPLES
from virt_admit.engine import review
from virt_admit.kube import snapshots
from virt_admit.model.kubernetes.json_codec import loads
from virt_admit.policy.parser import load as load_policy
from virt_admit.rules import load_rules

HERE = Path(__file__).parent
RECORDINGS = sorted(HERE.glob("*.json"))
DECIDE = {"/validate": review.review, "/mutate": review.fix}


def answer(recording: dict[str, Any]) -> Any:
    """What we say today, by the out-of-the-box policy."""
    policy = load_policy("default", load_rules()).at(datetime.date(2026, 11, 21))
    cluster = snapshots.load(EXAMPLES / "cluster.yaml")
    body = json.dumps(recording["review"]).encode()
    decide = DECIDE[recording["endpoint"]]
    return loads(review.answer(body, decide, load_rules().at_admission, cluster, policy).body)


@for_each("file", RECORDINGS)
def test_the_answer_is_this_very_one(file: Path) -> None:
    recording = json.loads(file.read_text())
    assert answer(recording) == recording["answer"]


def test_there_are_recordings() -> None:
    assert len(RECORDINGS) > 10


if __name__ == "__main__":
    for file in RECORDINGS:
        recording = json.loads(file.read_text())
        file.write_text(
            json.dumps(recording | {"answer": answer(recording)}, indent=1, ensure_ascii=False)
            + "\n"
        )
