"""The demo model's held-out prompts over HTTP, alone and with 16 in flight: the same tokens and logprobs, bit for bit."""
import random
import threading

from server import call, demo_eval, in_threads, metrics, wait_idle
from sse import stream

IN_FLIGHT = 16
PROMPT_LENGTHS = [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 511, 512, 513, 575, 576,
                  577, 1023, 1024, 1025, 1500]


def in_flight(count, work, workers=IN_FLIGHT):
    """Runs work(0) … work(count-1), so many at a time; each worker takes the next."""
    results, lock, left = [None] * count, threading.Lock(), iter(range(count))

    def worker(_):
        while True:
            with lock:
                index = next(left, None)
            if index is None:
                return
            results[index] = work(index)
    in_threads(workers, worker)
    return results


def chat(url, model, messages, streaming):
    """(text, finish reason, [(token bytes, logprob, top)])"""
    body = {"model": model, "messages": messages, "logprobs": True, "top_logprobs": 2}
    if not streaming:
        answer = call(url, "POST", "/v1/chat/completions", body)
        assert answer.status == 200, answer.body
        (choice,) = answer.json()["choices"]
        return choice["message"]["content"], choice["finish_reason"], values(choice["logprobs"]["content"])
    result = stream(url, "/v1/chat/completions", {**body, "stream": True})
    assert result.status == 200 and result.done, result.body
    tokens = [t for e in result.events for c in e["choices"] if c["logprobs"] for t in c["logprobs"]["content"]]
    (finish,) = result.finishes()
    return result.text(), finish, values(tokens)


def values(tokens):
    return [(t["bytes"], t["logprob"], [(o["bytes"], o["logprob"]) for o in t["top_logprobs"]]) for t in tokens]


def test_eval_prompts_alone_and_together(url, model, say):
    cases = demo_eval()
    alone = [chat(url, model, c["messages"], streaming=False) for c in cases]
    together = in_flight(len(cases), lambda i: chat(url, model, cases[i]["messages"], streaming=i % 2 == 0))
    differ = [i for i in range(len(cases)) if alone[i] != together[i]]
    assert differ == [], (cases[differ[0]], alone[differ[0]], together[differ[0]])
    wrong = [c for c, (text, _, _) in zip(cases, alone) if c["margin"] >= 0.1 and text != c["output"]]
    assert wrong == [], wrong[:2]
    same = sum(text == c["output"] for c, (text, _, _) in zip(cases, alone))
    say(f"{same} of {len(cases)} answers equal the reference, {sum(len(t) for _, _, t in alone)} tokens compared bit for bit")
    wait_idle(url)


def test_prompts_around_every_edge_alone_and_together(url, model):
    rng = random.Random(3)
    prompts = [[rng.randrange(300, 4000) for _ in range(n)] for n in PROMPT_LENGTHS]

    def complete(index):
        body = {"model": model, "prompt": prompts[index], "max_tokens": 70, "ignore_eos": True, "temperature": 0,
                "logprobs": 2, "echo": True}
        answer = call(url, "POST", "/v1/completions", body, timeout=120)
        assert answer.status == 200, answer.body
        (choice,) = answer.json()["choices"]
        assert len(choice["logprobs"]["token_logprobs"]) == len(prompts[index]) + 70
        return choice
    alone = [complete(i) for i in range(len(prompts))]
    order = list(range(len(prompts))) * 2
    rng.shuffle(order)
    together = in_flight(len(order), lambda i: complete(order[i]))
    for index, choice in zip(order, together):
        assert choice == alone[index], f"a prompt of {PROMPT_LENGTHS[index]} tokens"
    wait_idle(url)


def test_sampled_answers_alone_and_together(url, model):
    def complete(index):
        body = {"model": model, "prompt": [301 + index] * (1 + 7 * index), "max_tokens": 40, "ignore_eos": True,
                "temperature": 1.3, "top_p": 0.95, "seed": index, "logprobs": 1, "n": 2}
        answer = call(url, "POST", "/v1/completions", body)
        assert answer.status == 200, answer.body
        return answer.json()["choices"]
    alone = [complete(i) for i in range(24)]
    assert in_flight(24, complete) == alone
    wait_idle(url)


def test_too_little_memory_for_all_changes_no_answer(url, model, say):
    """The demo model's 1024 blocks of 64 tokens hold 40 of these requests to their end; 64 run at once."""
    def complete(index):
        body = {"model": model, "prompt": [300 + 11 * (index % 8) + i % 97 for i in range(600 + 20 * (index % 8))],
                "max_tokens": 1000, "ignore_eos": True, "temperature": 0.8, "seed": index % 8, "logprobs": 0}
        answer = call(url, "POST", "/v1/completions", body, timeout=600)
        assert answer.status == 200, answer.body
        (choice,) = answer.json()["choices"]
        return choice
    alone = [complete(i) for i in range(8)]
    assert all(len(c["logprobs"]["tokens"]) == 1000 for c in alone)
    assert metrics(url)["troupe_preemptions_total"] == 0
    together = in_flight(64, complete, workers=64)
    assert [i for i in range(64) if together[i] != alone[i % 8]] == []
    wait_idle(url)
    after = metrics(url)
    say(f"{after['troupe_preemptions_total']:.0f} preemptions, {after['troupe_recomputed_tokens_total']:.0f} tokens recomputed")
    assert after["troupe_preemptions_total"] > 0, "it fitted after all, so nothing was tried"
    assert after["troupe_pool_imbalances_total"] == 0
