"""A review is freed when its answer is, without the garbage collector."""

import gc
import json

import pytest

from tests.bench import big_vm
from tests.https.reviews import review, vm
from virt_admit.engine import review as engine
from virt_admit.model.kubernetes.cluster import NOTHING
from virt_admit.policy.parser import load
from virt_admit.rules import load_rules
from virt_admit.serving.worker import review_limits

BODIES = {
    "create": review(big_vm(10_000)),
    "update": review(big_vm(10_000), vm("big")),
    "denied": review(vm(running=True)),
    "deleted": review(None, vm(), operation="DELETE"),
}


@pytest.mark.parametrize("decide", [engine.review, engine.fix])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_no_object_of_a_review_leads_back_to_itself(body, decide):
    text, every = json.dumps(body).encode(), load_rules()
    rules, policy = every.at_admission, load("default", every)
    engine.answer(text, decide, rules, NOTHING, policy, review_limits())  # imports and caches
    while gc.collect():  # what other tests have left may need several rounds
        pass
    gc.disable()
    try:
        found = []
        for _ in range(3):  # a thread that another test has left makes garbage of its own
            engine.answer(text, decide, rules, NOTHING, policy, review_limits())
            found.append(gc.collect())
        assert min(found) == 0
    finally:
        gc.enable()
