"""The rows of compare.py's table: what is measured, on which sides, and what bounds it."""
import dataclasses
import typing

import sides

OURS = "Troupe"


@dataclasses.dataclass
class Side:
    program: str
    weights: str
    measure: typing.Callable  # () -> figures
    note: str = ""            # which of the program's sides, where there is more than one

    @property
    def label(self):
        return " ".join(filter(None, (self.program, self.weights, self.note)))


@dataclasses.dataclass
class Row:
    name: str
    title: str
    sides: list
    unit: str = "tokens/s"
    against: dict = dataclasses.field(default_factory=dict)  # label -> label that its ratio is to
    goal: typing.Optional[float] = None   # of the first ratio
    sequences: int = 1
    context: float = 0        # tokens before the one decoded, in the middle of the run
    bound: str = ""           # "bandwidth", "peak" or nothing
    threads: int = 1
    quick: bool = False


def ratios(measured, to):
    """Ours, the first, over each of the others."""
    return {measured[0].label: to} if to else {}


def decode_row(run, name, title, sequences, kinds, goal, **more):
    o = run.options
    threads, prompt, output = o.threads, 16 if sequences > 1 else 1, 32 if sequences > 1 else 64

    def llama(kind):
        if sequences == 1:
            return sides.llama_bench(run, kind, threads, o.repetitions, output=output)
        return sides.llama_batched(run, kind, threads, o.repetitions, sequences, prompt, output)

    def ours(kind):
        return sides.troupe_bench(run, kind, threads, o.repetitions, prompt, output, sequences)

    measured = [Side(OURS, kinds[0], lambda: ours(kinds[0]))]
    measured += [Side("llama.cpp", kind, lambda kind=kind: llama(kind)) for kind in kinds[1:]]
    return Row(name, title, measured, against=ratios(measured, measured[1].label), goal=goal, sequences=sequences,
               context=prompt + output / 2, bound="bandwidth", threads=threads, **more)


def prefill_row(run, name, title, prompt, goal, threads, repetitions, transformers=False, **more):
    measured = [Side(OURS, "bf16", lambda: sides.troupe_bench(run, "bf16", threads, repetitions, prompt, 0)),
                Side("llama.cpp", "bf16",
                     lambda: sides.llama_bench(run, "bf16", threads, repetitions, prompt=prompt))]
    if transformers:
        measured.append(Side("Transformers", "bf16", lambda: sides.transformers_prefill(run, threads, 1, prompt)))
    return Row(name, title, measured, against=ratios(measured, "best"), goal=goal, bound="peak", threads=threads,
               **more)


def deep_row(run, name, title, depth):
    threads, output = run.options.threads, 32
    measured = [Side(OURS, "bf16", lambda: sides.troupe_bench(run, "bf16", threads, 1, depth, output)),
                Side("llama.cpp", "bf16",
                     lambda: sides.llama_bench(run, "bf16", threads, 1, output=output, depth=depth))]
    return Row(name, title, measured, against=ratios(measured, measured[1].label), context=depth + output / 2,
               bound="bandwidth", threads=threads)


def single_row(run):
    """Decode with one thread, where decode_row has all."""
    measured = [Side(OURS, "bf16", lambda: sides.troupe_bench(run, "bf16", 1, run.options.repetitions, 1, 64)),
                Side("llama.cpp", "bf16",
                     lambda: sides.llama_bench(run, "bf16", 1, run.options.repetitions, output=64))]
    return Row("decode-1-thread", "decode, 1 sequence, 1 thread", measured,
               against=ratios(measured, measured[1].label), context=32, bound="bandwidth")


def busy_row(run):
    """Ratio: all threads over one thread, of the same program."""
    def side(program, threads):
        def measure():
            if program == OURS:
                return sides.troupe_bench(run, "bf16", threads, 2, 1, 24)
            return sides.llama_bench(run, "bf16", threads, 2, output=24)
        note = "1 thread" if threads == 1 else f"{threads} threads"
        return Side(program, "bf16", lambda: sides.beside_busy_core(run, measure), note)

    measured = [side(program, threads) for program in (OURS, "llama.cpp") for threads in (run.options.threads, 1)]
    return Row("busy-core", "decode, one core taken by another process", measured, goal=0.95,
               against={measured[0].label: measured[1].label, measured[2].label: measured[3].label})


def start_row(run, name, title, unit, what):
    llama = Side("llama.cpp", "bf16", lambda: sides.llama_start(run, what))
    again = Side(OURS, "bf16", lambda: sides.troupe_start(run, what), "again")
    first = Side(OURS, "bf16", lambda: sides.troupe_first_start(run, what), "first")
    measured = [again, first, llama] if what == "seconds" else [again, llama]
    if what != "seconds":
        again.note = ""
    return Row(name, title, measured, unit=unit, goal=1.0 if what == "seconds" else None, quick=what == "seconds",
               against={side.label: llama.label for side in measured[:-1]})


def all_rows(run):
    o = run.options
    yield decode_row(run, "decode-1", "decode, 1 sequence", 1, ["bf16", "bf16"], 1.08, quick=True)
    yield decode_row(run, "decode-4", "decode, 4 sequences", 4, ["bf16", "bf16"], 1.3)
    yield decode_row(run, "decode-8", "decode, 8 sequences", 8, ["bf16", "bf16"], 1.6, quick=True)
    yield decode_row(run, "decode-16", "decode, 16 sequences", 16, ["bf16", "bf16"], 2.0)
    yield prefill_row(run, "prefill-512", "prefill, 512 tokens", 512, 1.4, o.threads, o.repetitions, True, quick=True)
    yield prefill_row(run, "prefill-2048", "prefill, 2048 tokens", 2048, 2.2, o.threads, 1)
    yield deep_row(run, "decode-4k", "decode after 4096 tokens", 4096)
    yield deep_row(run, "decode-16k", "decode after 16384 tokens", 16384)
    yield single_row(run)
    yield prefill_row(run, "prefill-512-thread", "prefill, 512 tokens, 1 thread", 512, None, 1, 1)
    yield decode_row(run, "fp8-1", "decode in 8 bits, 1 sequence", 1, ["fp8", "q8_0", "q4_k_m"], 1.2, quick=True)
    yield decode_row(run, "fp8-8", "decode in 8 bits, 8 sequences", 8, ["fp8", "q8_0", "q4_k_m"], 1.5)
    if o.threads > 1:
        yield busy_row(run)
    yield start_row(run, "start", "start to ready", "s", "seconds")
    yield start_row(run, "memory", "resident after loading", "MiB", "memory")
