"""What a decode step must read and what a prompt's token must compute, as bounds for compare.py."""
import json
import os

import gguf


def routed(config, sequences):
    """Share of the experts that a step uses on average, when each sequence draws its own at random."""
    return 1 - (1 - config["num_experts_per_tok"] / config["num_experts"]) ** sequences


def read_config(checkpoint):
    with open(os.path.join(checkpoint, "config.json"), encoding="utf-8") as f:
        return json.load(f)


def gguf_step(path, config, sequences):
    """Bytes of a GGUF file's weights that a decode step reads: all but the embedding, and the experts used."""
    total = 0
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name != "token_embd.weight":
            total += int(tensor.n_bytes) * (routed(config, sequences) if "_exps" in tensor.name else 1)
    return total


def state_step(config, sequences, context):
    """Bytes of state and keys and values that a step moves: fp32 delta-net state read and written, 16-bit KV read."""
    layers = config["num_hidden_layers"]
    full = layers // config["full_attention_interval"]
    state = (layers - full) * config["linear_num_value_heads"] * config["linear_key_head_dim"] * \
        config["linear_value_head_dim"] * 4 * 2
    kv = full * config["num_key_value_heads"] * config["head_dim"] * 2 * 2 * context
    return sequences * (state + kv)


def prefill_flops(path, config):
    """Multiplications and additions of the weights for one token of a prompt, which needs no head."""
    total = 0
    for tensor in gguf.GGUFReader(path).tensors:
        if len(tensor.shape) >= 2 and tensor.name not in ("token_embd.weight", "output.weight"):
            total += 2 * int(tensor.n_elements) * (routed(config, 1) if "_exps" in tensor.name else 1)
    return total
