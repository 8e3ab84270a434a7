#!/usr/bin/env python3
"""Write a random-weight Qwen3-Next checkpoint as a Hugging Face folder.

    make_checkpoint.py OUT --preset bench-1b [--seed 0] [--layers N] [--hidden N] ...

Tensor names, shapes, dtypes and the sharded layout are those of the released
Qwen3-Next BF16 files (per-expert tensors, fused in_proj_qkvz/in_proj_ba).
Needs numpy only.
One tensor is in memory at a time.

Same arguments => same bytes, on every machine and with every numpy: a tensor's
bits come from Philox keyed by (seed, tensor name), each 16-bit draw picking one
of 65536 quantiles, so neither tensor order nor numpy's samplers matter.

Scales keep activations O(1): projections have std 1/sqrt(fan_in), the embedding
std 1, norms are near their neutral value, logits have std 4. The router's rows are
alike in size, so the choice of experts is roughly balanced; its logits have std 4
and routed experts half the usual gain, so that a near-tie for the last expert, which
rounding decides, moves the result little (with std 1, bf16 against fp32 differs 4x
as much). GDN decay rates are spread from ~1e-4 to ~5 per token, so both long and
short memory are exercised.
"""
import argparse
import hashlib
import json
import math
import os
import shutil
import statistics
import struct
import sys

import numpy as np

PRESETS = {  # about 1.02e9 and 0.39e9 parameters
    "bench-1b": dict(hidden=1024, layers=12),
    "bench-400m": dict(hidden=512, layers=8),
}
DIMS = dict(  # name: (default, config.json key)
    vocab=(151936, "vocab_size"),
    hidden=(1024, "hidden_size"),
    layers=(12, "num_hidden_layers"),
    interval=(4, "full_attention_interval"),
    heads=(8, "num_attention_heads"),
    kv_heads=(2, "num_key_value_heads"),
    head_dim=(256, "head_dim"),
    key_heads=(8, "linear_num_key_heads"),
    value_heads=(16, "linear_num_value_heads"),
    key_dim=(128, "linear_key_head_dim"),
    value_dim=(128, "linear_value_head_dim"),
    conv=(4, "linear_conv_kernel_dim"),
    experts=(64, "num_experts"),
    top_k=(8, "num_experts_per_tok"),
    expert_size=(256, "moe_intermediate_size"),
    shared_size=(256, "shared_expert_intermediate_size"),
    max_positions=(262144, "max_position_embeddings"),
)
CHUNK = 1 << 23  # elements drawn at a time


def config_json(d, tied):
    cfg = {key: d[name] for name, (_, key) in DIMS.items()}
    cfg.update(
        architectures=["Qwen3NextForCausalLM"], model_type="qwen3_next", attention_bias=False,
        attention_dropout=0.0, bos_token_id=151643, eos_token_id=151645, decoder_sparse_step=1,
        hidden_act="silu", initializer_range=0.02, intermediate_size=5 * d["hidden"] // 2,
        mlp_only_layers=[], norm_topk_prob=True, output_router_logits=False,
        partial_rotary_factor=0.25, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=10000000,
        router_aux_loss_coef=0.001, tie_word_embeddings=tied, torch_dtype="bfloat16",
        transformers_version="4.57.0", use_cache=True, use_sliding_window=False)
    return dict(sorted(cfg.items()))


def attention(p, d):
    h, q, kv = d["hidden"], d["heads"] * d["head_dim"], d["kv_heads"] * d["head_dim"]
    yield p + "q_proj.weight", (2 * q, h), ("normal", 0, h ** -.5)  # query | gate, per head
    yield p + "k_proj.weight", (kv, h), ("normal", 0, h ** -.5)
    yield p + "v_proj.weight", (kv, h), ("normal", 0, h ** -.5)
    yield p + "o_proj.weight", (h, q), ("normal", 0, q ** -.5)
    yield p + "q_norm.weight", (d["head_dim"],), ("normal", 0, .1)
    yield p + "k_norm.weight", (d["head_dim"],), ("normal", 0, .1)


def delta_net(p, d):
    h, kd, vd = d["hidden"], d["key_heads"] * d["key_dim"], d["value_heads"] * d["value_dim"]
    nv = d["value_heads"]
    yield p + "dt_bias", (nv,), ("uniform", -4, 1)
    yield p + "A_log", (nv,), ("uniform", math.log(.01), math.log(4))
    yield p + "conv1d.weight", (2 * kd + vd, 1, d["conv"]), ("normal", 0, d["conv"] ** -.5)
    yield p + "in_proj_qkvz.weight", (2 * kd + 2 * vd, h), ("normal", 0, h ** -.5)
    yield p + "in_proj_ba.weight", (2 * nv, h), ("normal", 0, h ** -.5)
    yield p + "norm.weight", (d["value_dim"],), ("normal", 1, .1)
    yield p + "out_proj.weight", (h, vd), ("normal", 0, vd ** -.5)


def swiglu(p, h, inner, gain=1):
    yield p + "gate_proj.weight", (inner, h), ("normal", 0, h ** -.5)
    yield p + "up_proj.weight", (inner, h), ("normal", 0, h ** -.5)
    yield p + "down_proj.weight", (h, inner), ("normal", 0, gain * inner ** -.5)


def layer(p, d, full):
    h = d["hidden"]
    yield p + "input_layernorm.weight", (h,), ("normal", 0, .1)
    yield from attention(p + "self_attn.", d) if full else delta_net(p + "linear_attn.", d)
    yield p + "post_attention_layernorm.weight", (h,), ("normal", 0, .1)
    yield p + "mlp.gate.weight", (d["experts"], h), ("normal", 0, 4 * h ** -.5)
    for e in range(d["experts"]):
        yield from swiglu(f"{p}mlp.experts.{e}.", h, d["expert_size"], .5)
    yield from swiglu(p + "mlp.shared_expert.", h, d["shared_size"])
    yield p + "mlp.shared_expert_gate.weight", (1, h), ("normal", 0, h ** -.5)


def tensors(d, tied, mtp):
    """(name, shape, (law, a, b)) of every tensor, in the order of the file."""
    h = d["hidden"]
    yield "model.embed_tokens.weight", (d["vocab"], h), ("normal", 0, 1)
    for i in range(d["layers"]):
        yield from layer(f"model.layers.{i}.", d, (i + 1) % d["interval"] == 0)
    yield "model.norm.weight", (h,), ("normal", 0, .1)
    if not tied:
        yield "lm_head.weight", (d["vocab"], h), ("normal", 0, 4 * h ** -.5)
    if mtp:
        yield "mtp.fc.weight", (h, 2 * h), ("normal", 0, (2 * h) ** -.5)
        yield from layer("mtp.layers.0.", d, True)
        for n in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
            yield f"mtp.{n}.weight", (h,), ("normal", 0, .1)


def to_bf16(x):
    """float64 -> bfloat16 bits, round to nearest even."""
    b = np.asarray(x, np.float32).view(np.uint32)
    return ((b + 0x7FFF + ((b >> 16) & 1)) >> 16).astype(np.uint16)


def quantiles():
    inv = statistics.NormalDist().inv_cdf
    half = np.array([inv((i + .5) / 65536) for i in range(32768, 65536)])
    return np.concatenate([-half[::-1], half])


UNIFORM = (np.arange(65536) + .5) / 65536
NORMAL = quantiles()


def values(name, count, law, seed):
    """The tensor's bfloat16 bits, in pieces of at most CHUNK elements."""
    kind, a, b = law
    table = to_bf16(a + b * NORMAL if kind == "normal" else a + (b - a) * UNIFORM)
    key = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    bits = np.random.Philox(key=int.from_bytes(key, "little"))
    for at in range(0, count, CHUNK):
        n = min(CHUNK, count - at)
        draws = bits.random_raw((n + 3) // 4).astype("<u8", copy=False).view("<u2")[:n]
        yield table[draws].astype("<u2", copy=False)


def shards(items, limit):
    """Group tensors, in order, into files of at most limit bytes (one tensor at least)."""
    groups, size = [[]], 0
    for item in items:
        n = 2 * math.prod(item[1])
        if groups[-1] and size + n > limit:
            groups.append([])
            size = 0
        groups[-1].append(item)
        size += n
    return groups


def write_shard(path, group, seed):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, _ in group:
        n = 2 * math.prod(shape)
        header[name] = dict(dtype="BF16", shape=list(shape), data_offsets=[at, at + n])
        at += n
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape, law in group:
            for piece in values(name, math.prod(shape), law, seed):
                f.write(piece.data)


def write_tokenizer(src, out, vocab):
    """The tokenizer of src, with tokens made up for the ids beyond its own: every logit is then that of a token."""
    shutil.copyfile(os.path.join(src, "tokenizer_config.json"), os.path.join(out, "tokenizer_config.json"))
    with open(os.path.join(src, "tokenizer.json"), encoding="utf-8") as f:
        tokenizer = json.load(f)
    model = tokenizer["model"]
    taken = {*model["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])}
    model["vocab"].update((f"unused_{i}", i) for i in range(vocab) if i not in taken)
    with open(os.path.join(out, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(tokenizer, f, ensure_ascii=False)
    with open(os.path.join(out, "vocab.json"), "w", encoding="utf-8") as f:
        json.dump(model["vocab"], f, ensure_ascii=False)
    with open(os.path.join(out, "merges.txt"), "w", encoding="utf-8") as f:
        f.write("#version: 0.2\n")
        f.writelines((m if isinstance(m, str) else " ".join(m)) + "\n" for m in model["merges"])


def write_json(out, name, value):
    with open(os.path.join(out, name), "w") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def costs(d, tied):
    """Parameters: in all, and read for one decoded token (the embedding is one row, so left out)."""
    total = active = 0
    for name, shape, _ in tensors(d, tied, False):
        n = math.prod(shape)
        total += n
        if name == "model.embed_tokens.weight" and not tied:
            continue
        active += n * d["top_k"] / d["experts"] if ".mlp.experts." in name else n
    return total, int(active)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    ap.add_argument("out", help="folder to write")
    ap.add_argument("--preset", choices=PRESETS, default="bench-1b")
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--tied", action="store_true", help="no lm_head: the embedding is the head")
    ap.add_argument("--mtp", action="store_true", help="add one multi-token-prediction layer (mtp.*)")
    ap.add_argument("--shard-bytes", type=int, default=1 << 30)
    ap.add_argument("--tokenizer", default=os.path.join(here, "..", "..", "models", "demo"),
                    help="folder of tokenizer.json (the demo model's; ids beyond its vocabulary get tokens made up)")
    ap.add_argument("--no-tokenizer", action="store_true")
    ap.add_argument("--only-tokenizer", action="store_true", help="write nothing else")
    ap.add_argument("--dry-run", action="store_true", help="print the costs, write nothing")
    for name, (default, key) in DIMS.items():
        ap.add_argument("--" + name.replace("_", "-"), type=int, metavar="N", help=f"{key} ({default})")
    a = ap.parse_args()

    d = {n: default for n, (default, _) in DIMS.items()}
    d.update(PRESETS[a.preset])
    d.update({n: getattr(a, n) for n in DIMS if getattr(a, n) is not None})
    if d["value_heads"] % d["key_heads"] or d["heads"] % d["kv_heads"] or d["top_k"] > d["experts"]:
        sys.exit("value heads must be a multiple of key heads, heads of kv heads, and top_k <= experts")

    total, active = costs(d, a.tied)
    print(json.dumps(dict(parameters=total, active_parameters=active, decode_bytes_bf16=2 * active)))
    if a.dry_run:
        return
    os.makedirs(a.out, exist_ok=True)
    if not a.no_tokenizer:
        write_tokenizer(a.tokenizer, a.out, d["vocab"])
    if a.only_tokenizer:
        return
    groups = shards(tensors(d, a.tied, a.mtp), a.shard_bytes)
    weight_map, size = {}, 0
    for i, group in enumerate(groups, 1):
        name = f"model-{i:05}-of-{len(groups):05}.safetensors"
        write_shard(os.path.join(a.out, name), group, a.seed)
        weight_map.update((t[0], name) for t in group)
        size += sum(2 * math.prod(t[1]) for t in group)
    write_json(a.out, "model.safetensors.index.json",
               {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))})
    write_json(a.out, "config.json", config_json(d, a.tied))
    write_json(a.out, "generation_config.json", dict(
        bos_token_id=151643, do_sample=True, eos_token_id=[151645, 151643], pad_token_id=151643,
        temperature=0.7, top_k=20, top_p=0.8))


if __name__ == "__main__":
    main()
