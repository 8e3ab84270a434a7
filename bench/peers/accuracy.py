"""How far the log probabilities of each program are from fp32, for compare.py.

The tokens and their fp32 log probabilities come from reference.py. Each server reads the same ids and is asked for the
log probability of the same tokens, each after all the tokens before it; the figure is the mean absolute difference.
"""
import json
import math
import statistics
import urllib.request

import serving

LIKELIEST = 200  # asked of llama-server, which names no others; the tokens are among fp32's 20 likeliest


def post(url, payload):
    request = urllib.request.Request(url, json.dumps(payload).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def asked_llama(url, ids, prompt):
    """One request a token: llama-server gives no log probabilities of a prompt. Its cache holds what came before."""
    found = []
    for at in range(prompt, len(ids)):
        answer = post(url + "/completion", {"prompt": ids[:at], "n_predict": 1, "n_probs": LIKELIEST,
                                            "cache_prompt": True})
        # No list at all where the token it chose was an end.
        chosen = answer.get("completion_probabilities") or [{"top_logprobs": []}]
        found.append(next((t["logprob"] for t in chosen[0]["top_logprobs"] if t["id"] == ids[at]), math.nan))
    return found


def asked_troupe(url, ids, prompt, model):
    answer = post(url + "/v1/completions", {"model": model, "prompt": ids, "echo": True, "logprobs": 0,
                                            "max_tokens": 1, "temperature": 0})
    return answer["choices"][0]["logprobs"]["token_logprobs"][prompt:len(ids)]


def differences(asked, wanted):
    return [abs(a - b) for row, want in zip(asked, wanted) for a, b in zip(row, want)]


def summary(asked, reference, wanted="fp32"):
    found = differences(asked, reference[wanted])
    known = [d for d in found if not math.isnan(d)]
    return {"difference": round(statistics.fmean(known), 5), "largest": round(max(known), 5), "tokens": len(known),
            "not_among_likeliest": len(found) - len(known)}


def served(command, ask):
    port = serving.free_port()
    with open("accuracy.log", "ab") as log:
        url = f"http://127.0.0.1:{port}"
        with serving.running([part.replace("PORT", str(port)) for part in command], url, log):
            return ask(url)


def measure(run):
    o = run.options
    with open(o.reference, encoding="utf-8") as f:
        reference = json.load(f)
    prompt, ids, result, name = reference["prompt"], reference["ids"], {}, "accuracy"
    for kind, activations in (("bf16", "bf16"), ("bf16", "fp32"), ("fp8", "bf16")):
        command = [o.troupe, "serve", run.checkpoint(kind), "--listen", "127.0.0.1:PORT", "--model-name", name,
                   "--threads", str(o.threads), "--activations", activations]
        asked = served(command, lambda url: [asked_troupe(url, row, prompt, name) for row in ids])
        note = " with fp32 activations" if activations == "fp32" else ""
        result[f"Troupe {kind}{note}"] = summary(asked, reference)
        if kind == "fp8":
            # Of the arithmetic alone: from fp32 with the same FP8 weights.
            result["Troupe fp8"]["from_fp32_with_its_weights"] = summary(asked, reference, "fp32_fp8_weights")
    for kind in ("bf16", "q8_0", "q4_k_m"):
        command = [o.llama + "/llama-server", "-m", run.gguf(kind), "-t", str(o.threads), "-np", "1", "-c", "512",
                   "--host", "127.0.0.1", "--port", "PORT"]
        asked = served(command, lambda url: [asked_llama(url, row, prompt) for row in ids])
        result[f"llama.cpp {kind}"] = summary(asked, reference)
    result["Transformers bf16"] = summary(reference["transformers_bf16"], reference)
    return result
