"""guidellm's concurrent profile. 0.3.1 is its newest release that does without PyTorch."""
import json
import pathlib
import subprocess
import sys

import pytest

from server import DEMO, wait_idle

CLIENT = "guidellm"
REQUESTS = 24
STREAMS = 4


@pytest.mark.parametrize("kind", ["text_completions", "chat_completions"])
def test_concurrent_profile(url, model, tmp_path, say, kind):
    report = tmp_path / "report.json"
    done = subprocess.run(
        [pathlib.Path(sys.executable).with_name("guidellm"), "benchmark", "run", "--target", url, "--model", model,
         "--processor", DEMO, "--data", "prompt_tokens=48,output_tokens=24,samples=64", "--rate-type", "concurrent",
         "--rate", str(STREAMS), "--max-requests", str(REQUESTS), "--output-path", report, "--disable-progress"],
        capture_output=True, text=True, timeout=240, cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
             "GUIDELLM__PREFERRED_ROUTE": kind})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    requests = benchmark["requests"]
    assert len(requests["errored"]) == 0 and len(requests["incomplete"]) == 0, requests["errored"][:1]
    assert len(requests["successful"]) == REQUESTS
    assert all(r["output_tokens"] == 24 for r in requests["successful"]), "ignore_eos and max_tokens give the length"
    metrics = benchmark["metrics"]
    say(f"{kind}: {metrics['output_tokens_per_second']['successful']['mean']:.0f} tokens/s, first token p50 "
        f"{metrics['time_to_first_token_ms']['successful']['percentiles']['p50']:.0f} ms")
    wait_idle(url)
