"""llm-comply's command line on the format openai-chat: everything but image input and tool calling."""
import json
import subprocess
import sys

import pytest

CLIENT = "llm-comply"
TESTS = ["chat-basic-response", "chat-system-prompt", "chat-multi-turn", "chat-streaming-response",
         "chat-streaming-usage", "chat-error-handling"]


@pytest.fixture(scope="module")
def verdicts(url, model):
    done = subprocess.run(
        [sys.executable, "-m", "llm_comply.cli", "--format", "openai-chat", "-u", url + "/v1", "-k", "none", "-m", model,
         "-f", ",".join(TESTS), "--json"], capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    return {r["id"]: r for r in json.loads(done.stdout)["results"]}


@pytest.mark.parametrize("name", TESTS)
def test_complies(verdicts, name):
    verdict = verdicts[name]
    assert verdict["status"] == "passed", verdict
    assert not verdict.get("warnings"), verdict
