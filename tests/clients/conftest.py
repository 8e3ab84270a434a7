"""Options, fixtures and the closing line of the client tests; tests/clients/run calls pytest once per file."""
import importlib.metadata
import pathlib
import subprocess

import pytest

from server import Server, call


def pytest_addoption(parser):
    parser.addoption("--program", required=True, help="path of the troupe program; each file starts its own server")
    parser.addoption("--screenshots", help="folder for the pictures of the page")
    parser.addoption("--requests", type=int, default=300, help="requests of the soak")


@pytest.fixture(scope="session")
def program(request):
    return pathlib.Path(request.config.getoption("--program")).resolve()


@pytest.fixture(scope="module")
def server(request, program):
    """The file's Server, started with the file's SERVER_ARGUMENTS; it must end with 0 after SIGTERM."""
    with Server(program, *getattr(request.module, "SERVER_ARGUMENTS", [])) as running:
        yield running


@pytest.fixture(scope="module")
def url(server):
    return server.url


@pytest.fixture(scope="module")
def model(url):
    return call(url, "GET", "/v1/models").json()["data"][0]["id"]


@pytest.fixture
def say(request):
    """Prints a measured figure whether or not output is captured."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def print_now(*texts):
        with capture.global_and_fixture_disabled():
            print("\n   ", *texts, end="", flush=True)
    return print_now


def client_version(client):
    """`client`: a distribution of PyPI, or a command that prints its version."""
    if isinstance(client, str):
        return f"{client} {importlib.metadata.version(client)}"
    done = subprocess.run(client, capture_output=True, text=True, check=True)
    return (done.stdout or done.stderr).splitlines()[0]


def pytest_terminal_summary(terminalreporter, config):
    # A file names its client in CLIENT; without one it is ours.
    modules = {item.module for item in getattr(terminalreporter, "_session_items", [])}
    names = [client_version(m.CLIENT) if hasattr(m, "CLIENT") else "our own client" for m in modules]
    stats = terminalreporter.stats
    counts = {name: len(stats.get(name, [])) for name in ("passed", "failed", "error", "skipped")}
    failed = counts["failed"] + counts["error"]
    terminalreporter.write_line(
        f"client: {', '.join(names) or 'none'}: {counts['passed']} passed, {failed} failed, {counts['skipped']} skipped")


def pytest_collection_finish(session):
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter:
        reporter._session_items = session.items
