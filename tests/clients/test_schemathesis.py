"""Schemathesis on our /openapi.json: no request makes a server error, and every answer is as described."""
import pathlib
import subprocess
import sys

import pytest

from server import call, wait_idle

CLIENT = "schemathesis"
EXAMPLES = 40
CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
          "response_headers_conformance", "negative_data_rejection", "unsupported_method", "allow_header_conformance"]


def test_the_description_names_every_path(url):
    described = call(url, "GET", "/openapi.json").json()
    assert described["openapi"].startswith("3.")
    assert set(described["paths"]) >= {"/v1/models", "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize",
                                       "/tokenizer_info", "/health", "/health/live", "/health/ready", "/health/progress",
                                       "/metrics", "/v1/troupe/state"}


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_answers_are_as_described(url, tmp_path, mode):
    done = subprocess.run(
        [pathlib.Path(sys.executable).with_name("schemathesis"), "run", url + "/openapi.json", "--checks", ",".join(CHECKS),
         "--max-examples", str(EXAMPLES), "--phases", "examples,coverage,fuzzing", "--mode", mode, "--seed", "1",
         "--continue-on-failure", "--suppress-health-check", "all", "--request-timeout", "30", "--no-color",
         "--generation-database", "none", "--warnings", "off"],
        capture_output=True, text=True, timeout=500, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-2000:]
    assert "passed" in done.stdout
    wait_idle(url, 60)
    assert call(url, "GET", "/health/ready").status == 200
