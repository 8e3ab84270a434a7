#!/usr/bin/env python3
"""Write the block-FP8 twin of a bf16 checkpoint, in the form of the released Qwen FP8 checkpoints.

    make_fp8.py CHECKPOINT OUT [--head]

Each matrix of attention, delta net and experts becomes float8 e4m3, with one scale for each 128 x 128 block in a
tensor NAME_scale_inv beside it (bf16, as released): weight = e4m3 * scale. Embedding, norms, convolutions, routers,
gates of shared experts and the narrow GDN projections stay as they are, and so does lm_head, unless --head asks for
it: in a small model the head is half of what a decode step reads, and llama.cpp's q8_0 holds it in 8 bits too.
Needs numpy only. One tensor is in memory at a time.
"""
import argparse
import json
import math
import os
import re
import shutil
import struct
import sys

import numpy as np

BLOCK = 128
LARGEST = 448.0  # of e4m3
KEPT = re.compile(r"norm|conv1d|A_log|dt_bias|in_proj_ba|in_proj_[ab]\.|mlp\.gate\.|shared_expert_gate\.|embed_tokens")


def converted(name, dimensions, head):
    """Whether the matrix is to become FP8."""
    return dimensions >= 2 and not KEPT.search(name) and (head or "lm_head" not in name)


def widen(bits):
    """bfloat16 bits -> float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def encode(x):
    """float32 -> e4m3 bits, to the nearest, ties to even, at most the largest finite value."""
    bits = np.minimum(np.abs(x), np.float32(LARGEST)).view(np.uint32)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20).astype(np.int32) - (120 << 3)  # 3 bits of mantissa, bias 7
    small = np.rint(bits.view(np.float32) * 512).astype(np.int32)  # below 2^-6: multiples of 2^-9
    code = np.where(bits < 0x3C800000, small, normal)
    return (code | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)


def decode(code):
    """e4m3 bits -> float32 (finite ones)."""
    exponent, mantissa = (code >> 3) & 15, (code & 7).astype(np.float32)
    size = np.where(exponent == 0, mantissa / 512, np.ldexp(1 + mantissa / 8, exponent.astype(np.int32) - 7))
    return np.where(code & 0x80, -size, size).astype(np.float32)


def spread(scale, shape):
    """A scale for each element."""
    return scale.repeat(BLOCK, 0).repeat(BLOCK, 1)[:shape[0], :shape[1]]


def quantise(weight):
    """float32 matrix -> (e4m3 bits, scales as bfloat16 bits)."""
    rows, columns = (math.ceil(n / BLOCK) for n in weight.shape)
    padded = np.zeros((rows * BLOCK, columns * BLOCK), np.float32)
    padded[:weight.shape[0], :weight.shape[1]] = np.abs(weight)
    largest = padded.reshape(rows, BLOCK, columns, BLOCK).max((1, 3))
    # Rounded up, so that no element passes the largest value; an empty block's scale is 1.
    bits = (np.where(largest > 0, largest / np.float32(LARGEST), np.float32(1)).view(np.uint32) + 0xFFFF) >> 16
    scale = bits.astype(np.uint16)
    return encode(weight / spread(widen(scale), weight.shape)), scale


def dequantise(code, scale):
    return decode(code) * spread(widen(scale), code.shape)


def read_header(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        return json.loads(f.read(size)), 8 + size


def twin_header(header, head):
    """(header of the twin, its tensors in order as (name, source's entry, FP8?))."""
    out, tensors, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, entry in sorted(((n, e) for n, e in header.items() if n != "__metadata__"),
                              key=lambda item: item[1]["data_offsets"][0]):
        shape, fp8 = entry["shape"], converted(name, len(entry["shape"]), head)
        if fp8 and (entry["dtype"] != "BF16" or len(shape) != 2):
            sys.exit(f"{name} is {entry['dtype']} {shape}, expected a BF16 matrix")
        parts = [(name, "F8_E4M3", shape, 1), (name + "_scale_inv", "BF16", [math.ceil(n / BLOCK) for n in shape], 2)]
        for part, dtype, sizes, width in parts if fp8 else [(name, entry["dtype"], shape, 0)]:
            begin, end = entry["data_offsets"]
            length = math.prod(sizes) * width if fp8 else end - begin
            out[part] = dict(dtype=dtype, shape=sizes, data_offsets=[at, at + length])
            at += length
        tensors.append((name, entry, fp8))
    return out, tensors


def write_shard(source, path, head):
    header, start = read_header(source)
    out, tensors = twin_header(header, head)
    text = json.dumps(out, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = np.memmap(source, np.uint8, "r")
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, entry, fp8 in tensors:
            begin, end = entry["data_offsets"]
            raw = data[start + begin:start + end]
            if fp8:
                for part in quantise(widen(np.frombuffer(raw.tobytes(), "<u2")).reshape(entry["shape"])):
                    f.write(part.tobytes())
            else:
                f.write(raw.data)
    return {name: entry for name, entry in out.items() if name != "__metadata__"}, [t[0] for t in tensors if not t[2]]


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("checkpoint")
    ap.add_argument("out", help="folder to write")
    ap.add_argument("--head", action="store_true", help="lm_head too")
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    weight_map, size, kept = {}, 0, []
    for file in sorted(os.listdir(a.checkpoint)):
        source, path = os.path.join(a.checkpoint, file), os.path.join(a.out, file)
        if file.endswith(".safetensors"):
            tensors, plain = write_shard(source, path, a.head)
            weight_map.update((name, file) for name in tensors)
            size += sum(t["data_offsets"][1] - t["data_offsets"][0] for t in tensors.values())
            kept += plain
        elif file.endswith((".json", ".txt")) and file not in ("config.json", "model.safetensors.index.json"):
            shutil.copyfile(source, path)
    write_json(os.path.join(a.out, "model.safetensors.index.json"),
               {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))})
    with open(os.path.join(a.checkpoint, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    config["quantization_config"] = dict(
        activation_scheme="dynamic", fmt="e4m3", quant_method="fp8", weight_block_size=[BLOCK, BLOCK],
        modules_to_not_convert=sorted(n.removesuffix(".weight") for n in kept))
    # Last, so that a folder with a config is a whole one.
    write_json(os.path.join(a.out, "config.json"), config)
    print(json.dumps(dict(bytes=size)))


if __name__ == "__main__":
    main()
