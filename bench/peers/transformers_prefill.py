#!/usr/bin/env python3
"""Prefill rate of Hugging Face Transformers in bf16, with its default form of the experts; prints one JSON object."""
import argparse
import json
import time

import torch
import transformers

WARM_TOKENS = 64

def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("checkpoint")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--prompt", type=int, default=512)
    ap.add_argument("--repetitions", type=int, default=3)
    a = ap.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(a.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        a.checkpoint, dtype=torch.bfloat16, attn_implementation="eager").eval()
    draw, rates = torch.Generator().manual_seed(0), []
    with torch.no_grad():
        for tokens in [WARM_TOKENS] + [a.prompt] * a.repetitions:
            ids = torch.randint(0, model.config.vocab_size, (1, tokens), generator=draw)
            began = time.perf_counter()
            model(ids, use_cache=True, logits_to_keep=1)
            rates.append(tokens / (time.perf_counter() - began))
    print(json.dumps(dict(tokens_per_s=rates[1:], torch=torch.__version__, transformers=transformers.__version__)))


if __name__ == "__main__":
    main()
