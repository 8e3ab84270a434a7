"""lm-eval's model class local-completions: token-id batches with echo and logprobs, through the server's tokenizer."""
import os

import pytest

from server import DEMO, demo_eval

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OPENAI_API_KEY"] = "none"

from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.openai_completions import LocalCompletionsAPI  # noqa: E402

CLIENT = "lm_eval"


def prompt_of(case):
    turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in case["messages"])
    return turns + "<|im_start|>assistant\n"


def cases():
    """One of each task that the demo model gets right, with the end of another case's answer as the wrong one.

    lm-eval counts white space at the end of a context to the continuation, and a chat prompt ends with a line break
    that the model never chooses itself: so the context takes in the first word of the answer.
    """
    by_task = {}
    for case in demo_eval():
        if case["correct"] and " " in case["expected"]:
            by_task.setdefault(case["task"], []).append(case)
    found = []
    for same in by_task.values():
        first, right = same[0]["expected"].split(" ", 1)
        others = [c["expected"].split(" ", 1)[1] for c in same if c["expected"].split(" ", 1)[1] != right]
        if others:
            found.append((prompt_of(same[0]) + first, f" {right}<|im_end|>", f" {others[0]}<|im_end|>"))
    return found


@pytest.fixture(scope="module", params=["remote", "huggingface"])
def evaluated(request, url, model):
    more = {"tokenizer": str(DEMO)} if request.param == "huggingface" else {}
    return LocalCompletionsAPI(model=model, base_url=url + "/v1/completions", tokenizer_backend=request.param,
                               batch_size=4, num_concurrent=1, max_retries=1, **more)


def score(evaluated, pairs):
    instances = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
    return evaluated.loglikelihood(instances, disable_tqdm=True)


def test_it_finds_the_servers_tokenizer(url, model):
    found = LocalCompletionsAPI(model=model, base_url=url + "/v1/completions")
    assert found.tokenizer_backend == "remote"


def test_right_answers_are_likelier_than_wrong_ones(evaluated):
    tasks = cases()
    assert len(tasks) >= 8
    scores = score(evaluated, [(p, right) for p, right, _ in tasks] + [(p, wrong) for p, _, wrong in tasks])
    right, wrong = scores[:len(tasks)], scores[len(tasks):]
    for task, (good, greedy), (bad, bad_greedy) in zip(tasks, right, wrong):
        assert good > bad, task
        assert not bad_greedy, task
    assert sum(greedy for _, greedy in right) >= len(tasks) - 1, "what it answers greedily is scored as greedy"


def test_a_batch_gives_the_scores_of_single_requests(evaluated, url, model):
    pairs = [(p, right) for p, right, _ in cases()][:8]
    alone = LocalCompletionsAPI(model=model, base_url=url + "/v1/completions", tokenizer_backend="remote", batch_size=1)
    together = LocalCompletionsAPI(model=model, base_url=url + "/v1/completions", tokenizer_backend="remote", batch_size=4,
                                   num_concurrent=3)
    assert score(together, pairs) == score(alone, pairs) == score(evaluated, pairs)


def test_it_generates_until_a_stop_string(evaluated):
    case = next(c for c in demo_eval() if c["task"] == "add" and "result" in c["output"])
    instance = Instance("generate_until", {}, (prompt_of(case), {"until": [", result"], "max_gen_toks": 64}), 0)
    (text,) = evaluated.generate_until([instance], disable_tqdm=True)
    assert text == case["output"].split(", result")[0]
