"""The official Python client of OpenAI's API."""
import json
import math

import openai
import pytest

from server import call, demo_eval, in_threads, Server, wait_idle, wait_until
from sse import stream

CLIENT = "openai"

SUM = [{"role": "user", "content": "How much is 60 + 39?"}]
SUM_ANSWER = "60 + 39: ones 0+9=9, tens 6+3=9, result 99"
STORY = [{"role": "user", "content": "Write a story about a frog."}]
END_OF_TURN = 4095  # <|im_end|> of the demo model


@pytest.fixture(scope="module")
def client(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=60)


def refused(error, parameter, *words):
    """A 400 as OpenAI's clients read it, which names the parameter."""
    assert error.status_code == 400
    body = error.body
    assert set(body) >= {"message", "type", "param", "code"}, body
    assert body["type"] == "invalid_request_error", body
    assert body["param"] == parameter, body
    for word in words:
        assert word in body["message"], body


# --- models --------------------------------------------------------------------------------------


def test_models_are_listed_and_described(client, model):
    listed = client.models.list().data
    assert [m.id for m in listed] == [model]
    assert listed[0].object == "model" and listed[0].created > 0 and listed[0].owned_by
    assert client.models.retrieve(model).id == model


def test_an_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-nonsense", messages=SUM)
    assert caught.value.body["code"] == "model_not_found" and "gpt-nonsense" in caught.value.body["message"]
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt-nonsense", prompt="a")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-nonsense")


# --- chat ----------------------------------------------------------------------------------------


def test_a_chat_answers_with_every_field(client, model):
    raw = client.chat.completions.with_raw_response.create(model=model, messages=SUM)
    body = json.loads(raw.text if isinstance(raw.text, str) else raw.text())
    assert body["object"] == "chat.completion" and body["id"].startswith("chatcmpl-") and body["model"] == model
    (choice,) = body["choices"]
    assert choice["index"] == 0 and choice["finish_reason"] == "stop" and choice["logprobs"] is None
    assert choice["message"]["role"] == "assistant" and choice["message"]["content"] == SUM_ANSWER
    assert "refusal" in choice["message"] and choice["message"]["refusal"] is None
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens"] > 10 and usage["completion_tokens"] > 10
    assert raw.headers.get("x-request-id")


def test_the_demo_models_answers_are_its_own(client, model):
    for case in [c for c in demo_eval() if c["margin"] > 0.5][::20]:
        answer = client.chat.completions.create(model=model, messages=case["messages"], temperature=0)
        assert answer.choices[0].message.content == case["output"], case["messages"]


def test_content_may_be_a_list_of_parts(client, model):
    parts = [{"type": "text", "text": "How much is 60 + 39?"}]
    answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": parts}])
    assert answer.choices[0].message.content == SUM_ANSWER
    two = [{"type": "text", "text": "How much is"}, {"type": "text", "text": "60 + 39?"}]
    assert client.chat.completions.create(model=model, messages=[{"role": "user", "content": two}]).choices == \
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "How much is\n60 + 39?"}]).choices


def test_an_image_is_refused_by_name(client, model):
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": parts}])
    assert "image_url" in caught.value.body["message"] and caught.value.body["param"].startswith("messages")


def test_a_stream_is_the_answer_in_pieces(client, model):
    chunks = list(client.chat.completions.create(
        model=model, messages=SUM, stream=True, stream_options={"include_usage": True}))
    assert {c.id for c in chunks} == {chunks[0].id} and chunks[0].id.startswith("chatcmpl-")
    assert all(c.object == "chat.completion.chunk" and c.model == model for c in chunks)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == SUM_ANSWER
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 10
    assert all(c.usage is None for c in chunks[:-1])
    assert len(chunks) > 10


def test_a_stream_without_include_usage_has_no_usage(client, model):
    chunks = list(client.chat.completions.create(model=model, messages=SUM, stream=True))
    assert all(c.choices and c.usage is None for c in chunks)


def test_events_are_framed_as_every_reader_expects(url, model):
    result = stream(url, "/v1/chat/completions", {"model": model, "messages": SUM, "stream": True})
    assert result.fields["content-type"].startswith("text/event-stream")
    assert result.done and b"\r" not in result.body
    events = result.body.decode().split("\n\n")
    assert events[-1] == "" and events[-2] == "data: [DONE]"
    assert all(e.startswith("data: ") and "\n" not in e for e in events[:-1])
    for event in result.events:
        assert "logprobs" in event["choices"][0] and "finish_reason" in event["choices"][0]


def test_several_choices_differ_and_repeat_with_the_seed(client, model):
    def ask(seed):
        answer = client.chat.completions.create(
            model=model, messages=STORY, n=3, seed=seed, temperature=1.8, max_completion_tokens=40)
        assert [c.index for c in answer.choices] == [0, 1, 2]
        return [c.message.content for c in answer.choices]
    first = ask(5)
    assert ask(5) == first
    assert len(set(first)) > 1, first
    assert ask(6) != first


def test_several_choices_stream_side_by_side(client, model):
    settings = dict(model=model, messages=STORY, n=3, seed=5, temperature=1.8, max_completion_tokens=40)
    whole = client.chat.completions.create(**settings)
    texts, ends = ["", "", ""], {}
    for chunk in client.chat.completions.create(stream=True, **settings):
        for choice in chunk.choices:
            assert choice.index not in ends, "a piece after the end of its choice"
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
    assert texts == [c.message.content for c in whole.choices]
    assert ends == {c.index: c.finish_reason for c in whole.choices}


@pytest.mark.parametrize("streaming", [False, True])
def test_stop_strings_end_the_answer_before_them(client, model, streaming):
    settings = dict(model=model, messages=SUM, stop=["never seen", ", tens"])
    if streaming:
        chunks = list(client.chat.completions.create(stream=True, **settings))
        text = "".join(c.choices[0].delta.content or "" for c in chunks)
        reason = chunks[-1].choices[0].finish_reason
    else:
        choice = client.chat.completions.create(**settings).choices[0]
        text, reason = choice.message.content, choice.finish_reason
    assert text == "60 + 39: ones 0+9=9" and reason == "stop"


def test_a_single_stop_string_and_null_are_accepted(client, model):
    one = client.chat.completions.create(model=model, messages=SUM, stop="result")
    assert one.choices[0].message.content == "60 + 39: ones 0+9=9, tens 6+3=9, "
    none = client.chat.completions.create(model=model, messages=SUM, stop=None)
    assert none.choices[0].message.content == SUM_ANSWER


def test_stop_token_ids_end_the_answer(client, url, model):
    (colon,) = call(url, "POST", "/tokenize", {"prompt": ":", "add_special_tokens": False}).json()["tokens"]
    answer = client.chat.completions.create(model=model, messages=SUM, extra_body={"stop_token_ids": [colon]})
    assert answer.choices[0].message.content == "60 + 39" and answer.choices[0].finish_reason == "stop"


def test_lengths(client, model):
    for name in ("max_completion_tokens", "max_tokens"):
        answer = client.chat.completions.create(model=model, messages=SUM, **{name: 3})
        assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 3
    more = client.chat.completions.create(model=model, messages=SUM, max_completion_tokens=80, extra_body={"ignore_eos": True})
    assert more.choices[0].finish_reason == "length" and more.usage.completion_tokens == 80
    assert more.choices[0].message.content.startswith(SUM_ANSWER)


def test_logprobs_of_a_chat(client, model):
    choice = client.chat.completions.create(model=model, messages=SUM, logprobs=True, top_logprobs=3).choices[0]
    tokens = choice.logprobs.content
    assert choice.logprobs.refusal is None
    assert bytes(b for t in tokens for b in t.bytes).decode().startswith(SUM_ANSWER)
    for token in tokens:
        assert -50 < token.logprob <= 0 and len(token.top_logprobs) == 3
        values = [t.logprob for t in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert token.logprob == values[0] and token.token == token.top_logprobs[0].token, "greedy takes the likeliest"
        assert sum(math.exp(v) for v in values) <= 1.0001
    plain = client.chat.completions.create(model=model, messages=SUM, logprobs=True).choices[0].logprobs.content
    assert [t.logprob for t in plain] == [t.logprob for t in tokens] and all(t.top_logprobs == [] for t in plain)


def test_logprobs_stream_too(client, model):
    whole = client.chat.completions.create(model=model, messages=SUM, logprobs=True, top_logprobs=2).choices[0]
    pieces = []
    for chunk in client.chat.completions.create(model=model, messages=SUM, logprobs=True, top_logprobs=2, stream=True):
        if chunk.choices[0].logprobs:
            pieces += chunk.choices[0].logprobs.content
    assert pieces == whole.logprobs.content


def test_fields_that_change_nothing_are_accepted(client, model):
    answer = client.chat.completions.create(
        model=model, messages=SUM, user="someone", metadata={"a": "b"}, store=False, logit_bias=None, seed=None,
        response_format={"type": "text"}, presence_penalty=0, frequency_penalty=0, extra_body={"repetition_penalty": 1.0})
    assert answer.choices[0].message.content == SUM_ANSWER


def test_logit_bias_bends_the_answer(client, url, model):
    free = client.chat.completions.create(model=model, messages=SUM, max_completion_tokens=1, logprobs=True)
    first = call(url, "POST", "/tokenize", {"prompt": free.choices[0].message.content, "add_special_tokens": False}).json()["tokens"][0]
    other = client.chat.completions.create(model=model, messages=SUM, max_completion_tokens=1, logit_bias={str(first): -100})
    assert other.choices[0].message.content != free.choices[0].message.content
    end = client.chat.completions.create(model=model, messages=SUM, logit_bias={str(END_OF_TURN): 100})
    assert end.choices[0].message.content == "" and end.choices[0].finish_reason == "stop"


def test_system_and_earlier_turns_count(client, model):
    turns = [{"role": "user", "content": "Remember: token=8553."},
             {"role": "assistant", "content": "I will remember token=8553."},
             {"role": "user", "content": "What is token?"}]
    assert client.chat.completions.create(model=model, messages=turns).choices[0].message.content == "token=8553"


# --- completions ---------------------------------------------------------------------------------


def ids_of(url, text):
    return call(url, "POST", "/tokenize", {"prompt": text, "add_special_tokens": False}).json()["tokens"]


PROMPT = "<|im_start|>user\nHow much is 60 + 39?<|im_end|>\n<|im_start|>assistant\n"


def test_every_form_of_prompt_gives_the_same_text(client, url, model):
    ids = ids_of(url, PROMPT)
    for prompt in (PROMPT, [PROMPT], ids, [ids]):
        answer = client.completions.create(model=model, prompt=prompt, max_tokens=60)
        assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
        (choice,) = answer.choices
        assert choice.text == SUM_ANSWER and choice.finish_reason == "stop" and choice.logprobs is None
        assert answer.usage.prompt_tokens == len(ids)


def test_several_prompts_and_choices_are_ordered_by_index(client, url, model):
    other = PROMPT.replace("60 + 39", "12 + 44")
    answer = client.completions.create(model=model, prompt=[PROMPT, other], n=2, max_tokens=60, temperature=0)
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    texts = [c.text for c in answer.choices]
    assert texts == [SUM_ANSWER] * 2 + ["12 + 44: ones 2+4=6, tens 1+4=5, result 56"] * 2
    assert answer.usage.prompt_tokens == len(ids_of(url, PROMPT)) + len(ids_of(url, other))
    batch = client.completions.create(model=model, prompt=[ids_of(url, PROMPT), ids_of(url, other)], max_tokens=60)
    assert [c.text for c in batch.choices] == [texts[0], texts[2]]


def test_completions_stream(client, model):
    chunks = list(client.completions.create(
        model=model, prompt=PROMPT, max_tokens=60, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == SUM_ANSWER
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens > 20


def test_echo_with_logprobs_scores_the_prompt(client, url, model):
    ids = ids_of(url, PROMPT + SUM_ANSWER)
    choice = client.completions.create(
        model=model, prompt=ids, echo=True, logprobs=2, max_tokens=1, temperature=0).choices[0]
    scores = choice.logprobs
    assert choice.text.startswith(PROMPT + SUM_ANSWER)
    assert len(scores.tokens) == len(scores.token_logprobs) == len(scores.top_logprobs) == len(scores.text_offset) == len(ids) + 1
    assert scores.token_logprobs[0] is None and scores.top_logprobs[0] is None
    assert all(-100 < v <= 0 for v in scores.token_logprobs[1:])
    assert all(len(t) in (2, 3) for t in scores.top_logprobs[1:])
    answer_at = len(ids_of(url, PROMPT))
    for value, top in zip(scores.token_logprobs[answer_at:-1], scores.top_logprobs[answer_at:-1]):
        assert value == max(top.values()), "the demo model's own answer is the likeliest at every place"
    assert scores.text_offset == sorted(scores.text_offset) and scores.text_offset[0] == 0
    for token, at, after in zip(scores.tokens, scores.text_offset, scores.text_offset[1:]):
        assert choice.text[at:after] == token


def test_echo_without_logprobs_and_logprobs_without_echo(client, model):
    echoed = client.completions.create(model=model, prompt=PROMPT, echo=True, max_tokens=60).choices[0]
    assert echoed.text == PROMPT + SUM_ANSWER and echoed.logprobs is None
    scored = client.completions.create(model=model, prompt=PROMPT, logprobs=1, max_tokens=60).choices[0]
    assert scored.text == SUM_ANSWER and len(scored.logprobs.tokens) == len(scored.logprobs.token_logprobs)
    assert all(v <= 0 for v in scored.logprobs.token_logprobs)


def test_text_and_tokens_translate_both_ways(url):
    for text in ("Hello, world", "<|im_start|>user\nZürich 東京 🦜<|im_end|>\n", ""):
        ids = call(url, "POST", "/tokenize", {"prompt": text, "add_special_tokens": False}).json()
        assert ids["count"] == len(ids["tokens"])
        assert call(url, "POST", "/detokenize", {"tokens": ids["tokens"]}).json()["prompt"] == text
    info = call(url, "GET", "/tokenizer_info").json()
    assert info["eos_token"] == "<|im_end|>" and "im_start" in info["chat_template"]


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, value", [
    ("temperature", 3), ("temperature", -1), ("temperature", "hot"), ("top_p", 1.5), ("top_p", -0.1), ("n", 0), ("n", 100000),
    ("max_completion_tokens", 0), ("max_completion_tokens", -5), ("max_completion_tokens", 1.5), ("max_tokens", "many"),
    ("presence_penalty", 9), ("frequency_penalty", -9), ("seed", "seven"), ("logit_bias", {"99999": 1}), ("logit_bias", [1]),
    ("stop", [""]), ("stop", 5), ("stream", "yes"), ("top_logprobs", 21), ("top_k", -7), ("min_p", 2),
    ("repetition_penalty", 0), ("stop_token_ids", [99999]), ("ignore_eos", "no"), ("stream_options", 3),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}),
    ("tools", [{"type": "function", "function": {"name": "f"}}]), ("modalities", ["audio"]), ("bananas", 1)])
def test_a_wrong_parameter_of_a_chat_is_refused_by_name(client, model, name, value):
    extra = {name: value, **({"logprobs": True} if name == "top_logprobs" else {})}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=SUM, extra_body=extra)
    refused(caught.value, caught.value.body["param"])
    assert caught.value.body["param"].startswith(name), caught.value.body


@pytest.mark.parametrize("name, value", [
    ("best_of", 3), ("suffix", "after"), ("logprobs", 99), ("logprobs", True), ("echo", 1), ("max_tokens", -1),
    ("prompt", []), ("prompt", [[]]), ("prompt", [1, "a"]), ("prompt", [-1]), ("prompt", [4096]), ("prompt", 7),
    ("prompt", None), ("temperature", []), ("bananas", 1)])
def test_a_wrong_parameter_of_a_completion_is_refused_by_name(client, model, name, value):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt="a", extra_body={name: value})
    assert caught.value.body["param"].startswith(name), caught.value.body


def test_top_logprobs_need_logprobs(client, model):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=SUM, top_logprobs=2)
    refused(caught.value, "top_logprobs")


@pytest.mark.parametrize("messages", [
    [], None, "hello", [{}], [{"role": "user"}], [{"role": "wizard", "content": "x"}], [{"role": "user", "content": 5}],
    [{"role": "user", "content": [{"type": "text"}]}], [7]])
def test_wrong_messages_are_refused(client, model, messages):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=messages)
    assert caught.value.body["param"].startswith("messages"), caught.value.body


def test_a_prompt_that_is_too_long_is_refused_with_the_numbers(client, model):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt=[5] * 3000, max_tokens=10)
    assert "2048" in caught.value.body["message"] and "30" in caught.value.body["message"], caught.value.body
    assert caught.value.body["code"] == "context_length_exceeded"


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"model": "demo", "messages": ' + b"[" * 100 + b"]" * 100 + b"}",
    b'{"model": "demo", "prompt": "\\ud800"}', b'{"model":"demo","prompt":"a","temperature":1e999}', b"{" * 100000])
def test_a_body_that_is_no_request_is_a_400(url, body):
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
        answer = call(url, "POST", path, body)
        assert answer.status == 400, (path, answer.status, answer.body)
        assert answer.json()["error"]["message"]


def test_unknown_paths_and_methods(url):
    assert call(url, "GET", "/v1/nothing").status == 404
    assert call(url, "GET", "/v1/nothing").json()["error"]["message"]
    wrong = call(url, "GET", "/v1/chat/completions")
    assert wrong.status == 405 and "POST" in wrong.fields["allow"]
    assert call(url, "POST", "/v1/models", {}).status == 405


def test_a_request_id_is_honoured(url, model):
    answer = call(url, "POST", "/v1/completions", {"model": model, "prompt": "a", "max_tokens": 1},
                  {"x-request-id": "mine-42"})
    assert answer.fields["x-request-id"] == "mine-42"
    evil = call(url, "POST", "/v1/completions", {"model": model, "prompt": "a", "max_tokens": 1}, {"x-request-id": "a" * 4000})
    assert evil.status in (200, 400) and len(evil.fields.get("x-request-id", "")) < 1000


def test_a_client_that_goes_away_is_cancelled(client, url, model):
    answers = client.chat.completions.create(
        model=model, messages=STORY, max_completion_tokens=1500, stream=True, extra_body={"ignore_eos": True})
    for index, _ in enumerate(answers):
        if index == 5:
            break
    answers.close()
    wait_idle(url, 5)


def test_a_key_is_asked_for(program, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-first\nsk-second\n")
    with Server(program, "--api-key-file", keys) as locked:
        for key in ("sk-first", "sk-second"):
            good = openai.OpenAI(base_url=locked.url + "/v1", api_key=key, max_retries=0)
            name = good.models.list().data[0].id
            assert good.chat.completions.create(model=name, messages=SUM).choices[0].message.content == SUM_ANSWER
        for key in ("sk-firs", "sk-first2", "x"):
            bad = openai.OpenAI(base_url=locked.url + "/v1", api_key=key, max_retries=0)
            with pytest.raises(openai.AuthenticationError) as caught:
                bad.chat.completions.create(model=name, messages=SUM)
            assert caught.value.body["code"] == "invalid_api_key" and key not in caught.value.body["message"]
        assert call(locked.url, "POST", "/v1/completions", {"model": name, "prompt": "a"}).status == 401
        assert call(locked.url, "GET", "/v1/models").status == 401
        assert call(locked.url, "GET", "/health").status == 200


def test_a_full_queue_is_a_rate_limit(program):
    with Server(program, "--queue", 2, "--sequences", 1) as small:
        busy = openai.OpenAI(base_url=small.url + "/v1", api_key="none", max_retries=0)
        name = busy.models.list().data[0].id
        long = dict(model=name, messages=STORY, max_completion_tokens=1900, stream=True, extra_body={"ignore_eos": True})

        def begin(_):  # headers come with the first token, so those in the queue wait here
            try:
                return busy.chat.completions.create(**long)
            except openai.RateLimitError as refused:
                return refused
        began = in_threads(8, begin)
        refused = [one for one in began if isinstance(one, openai.RateLimitError)]
        assert 1 <= len(refused) <= 6
        for one in refused:
            assert one.body["code"] == "queue_full" and int(one.response.headers["retry-after"]) >= 1
        for one in began:
            if one not in refused:
                one.close()
        wait_idle(small.url, 10)
        wait_until("it answers again", lambda: busy.chat.completions.create(model=name, messages=SUM).choices)
