#!/usr/bin/env python3
"""The log probabilities that others are compared with, from Transformers; writes a JSON file.

    reference.py CHECKPOINT OUT.json [--sequences 4] [--prompt 16] [--tokens 48]

In fp32, from the bf16 weights, it continues a few random prompts, drawing each token from the 20 likeliest, and notes
each token's log probability. Then it asks itself for the same tokens twice more: in bf16, and in fp32 with weights
that went through make_fp8.py's FP8 and back. Needs 5 GB of memory.
"""
import argparse
import json

import torch
import transformers

import make_fp8

TOP = 20


def load(checkpoint, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=dtype, attn_implementation="eager", experts_implementation="eager")
    return model.eval()


def write(model, ids, count):
    """Continues ids by count tokens; (all ids, log probability of each new one)."""
    draw, cache, step, found = torch.Generator().manual_seed(0), None, ids, []
    for _ in range(count):
        out = model(step, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = out.past_key_values
        logprobs = out.logits[:, -1].float().log_softmax(-1)
        top = logprobs.topk(TOP)
        step = top.indices.gather(1, torch.multinomial(top.values.exp(), 1, generator=draw))
        found.append(logprobs.gather(1, step))
        ids = torch.cat((ids, step), 1)
    return ids, torch.cat(found, 1)


def read(model, ids, count):
    """Log probability of each of the last count tokens."""
    logits = model(ids, logits_to_keep=count + 1).logits[:, :-1].float()
    return logits.log_softmax(-1).gather(2, ids[:, -count:, None])[..., 0]


def through_fp8(model):
    """Rounds the matrices in place as make_fp8.py does with --head."""
    for name, parameter in model.named_parameters():
        if make_fp8.converted(name, parameter.dim(), True):
            for matrix in parameter.flatten(0, -3) if parameter.dim() > 2 else [parameter]:
                code, scale = make_fp8.quantise(matrix.numpy())
                matrix.copy_(torch.from_numpy(make_fp8.dequantise(code, scale)))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("checkpoint")
    ap.add_argument("out")
    ap.add_argument("--sequences", type=int, default=4)
    ap.add_argument("--prompt", type=int, default=16)
    ap.add_argument("--tokens", type=int, default=48)
    a = ap.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with torch.no_grad():
        model = load(a.checkpoint, torch.float32)
        prompts = torch.randint(0, model.config.vocab_size, (a.sequences, a.prompt),
                                generator=torch.Generator().manual_seed(0))
        ids, fp32 = write(model, prompts, a.tokens)
        again = (read(model, ids, a.tokens) - fp32).abs().max().item()
        through_fp8(model)
        fp8 = read(model, ids, a.tokens)
        del model
        bf16 = read(load(a.checkpoint, torch.bfloat16), ids, a.tokens)
    report = dict(torch=torch.__version__, transformers=transformers.__version__, ids=ids.tolist(), prompt=a.prompt,
                  fp32=fp32.tolist(), fp32_fp8_weights=fp8.tolist(), transformers_bf16=bf16.tolist(),
                  largest_difference_of_two_fp32_runs=again)
    with open(a.out, "w", encoding="utf-8") as f:
        json.dump(report, f)
        f.write("\n")
    print(json.dumps({"largest_difference_of_two_fp32_runs": again}))


if __name__ == "__main__":
    main()
