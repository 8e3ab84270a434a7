#!/usr/bin/env python3
"""Convert a checkpoint of make_checkpoint.py for llama.cpp.

    to_gguf.py LLAMA_CPP CHECKPOINT OUT.gguf

llama.cpp's converter knows a tokenizer by the hash of what it makes of a test text, and so refuses the demo model's,
which has the pre-tokenizer of Qwen and a small vocabulary. It is told here.
"""
import os
import runpy
import sys


def main():
    llama, checkpoint, out = sys.argv[1:]
    sys.path[:0] = [llama, os.path.join(llama, "gguf-py")]
    from conversion.base import TextModel
    TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
    sys.argv = ["convert_hf_to_gguf.py", checkpoint, "--outtype", "bf16", "--no-mtp", "--outfile", out]
    runpy.run_path(os.path.join(llama, "convert_hf_to_gguf.py"), run_name="__main__")


if __name__ == "__main__":
    main()
