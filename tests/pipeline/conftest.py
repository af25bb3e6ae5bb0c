"""Fixtures: a complete store of the toy study, copies of it, and object stores in memory and on servers."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from itertools import count
from urllib.request import Request, urlopen

import pytest
import typer
from threadpoolctl import threadpool_limits

from pipeline.store.files import object_clients
from studies import cli
from tests.conftest import parser_of
from tests.pipeline.helpers import blas_threads, compute_into
from tests.pipeline.object_server import KEYS, ObjectServer
from tests.pipeline.toy import STUDY

SERVER = """
import logging
import sys
from threading import Thread

from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

logging.getLogger("werkzeug").setLevel("ERROR")  # one line per request is slow
WSGIRequestHandler.protocol_version = "HTTP/1.1"  # keeps connections open
server = make_server("127.0.0.1", 0, create_backend_app("s3"), threaded=True)
Thread(target=server.serve_forever, daemon=True).start()
print(f"http://127.0.0.1:{server.server_port}", flush=True)
sys.stdin.read()
"""
_numbers = count()


@pytest.fixture(scope="session")
def complete_store(tmp_path_factory):
    """Return the path of a complete store of the toy study, which tests must not change."""
    path = tmp_path_factory.mktemp("complete") / "toy.zarr"
    compute_into(path, STUDY)
    return path


@pytest.fixture
def store_copy(complete_store, tmp_path):
    """Return the path of a copy of the complete store, which a test may change."""
    return shutil.copytree(complete_store, tmp_path / "copy.zarr")


@pytest.fixture(scope="session")
def local_store(tmp_path_factory):
    """Return the path of a store of two panels in a local folder, which tests must not change."""
    path = tmp_path_factory.mktemp("local") / "toy.zarr"
    compute_into(path, STUDY.configure(panels=["table", "single"]))
    return path


@pytest.fixture
def two_threads():
    """Set two BLAS threads in a thread that ends, so that this has the effect of a machine's default."""
    before = max(blas_threads())

    def set_default(number):
        other = threading.Thread(target=threadpool_limits, args=(number,))
        other.start()
        other.join()

    set_default(2)
    assert blas_threads() == {2}
    yield
    set_default(before)


@pytest.fixture
def dpstudies(monkeypatch, capsys):
    """Return a function that runs a command in this process and returns (exit code, output, errors).

    A command that takes longer than a number of seconds is interrupted, as by Ctrl-C.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers, show = [signal.getsignal(number) for number in numbers], warnings.showwarning
    monkeypatch.setattr(typer.main, "get_command", parser_of)

    def run(*words, seconds=60):
        monkeypatch.setattr(sys, "argv", ["dpstudies", *map(str, words)])
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            with pytest.raises(SystemExit) as stop:
                cli.main()
        finally:
            timer.cancel()
            for number, handler in zip(numbers, handlers, strict=True):
                signal.signal(number, handler)
            warnings.showwarning = show
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def endpoint():
    """Start an S3 server that stops after the tests, or when they are killed, which closes its standard input."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", SERVER], text=True, **pipes) as process:
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture
def environment(monkeypatch):
    """Remove the variables that configure object stores, and set keys, so that no client asks a metadata service."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for name, text in KEYS.items():
        monkeypatch.setenv(name, text)


@pytest.fixture
def bucket(environment, endpoint, monkeypatch):
    """Create an empty bucket on the S3 server, and return its name."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    name = f"studies-{next(_numbers)}"
    urlopen(Request(f"{endpoint}/{name}", method="PUT")).close()
    return name


@pytest.fixture
def memory_url():
    """Return the URL of a store in memory, for tests that do not depend on the server of objects."""
    return f"memory://studies-{next(_numbers)}/some/folder/toy.zarr"


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def url(request):
    """Return the URL of a store in memory or, in slow tests, on the S3 server."""
    if request.param == "memory":
        return request.getfixturevalue("memory_url")
    return f"s3://{request.getfixturevalue('bucket')}/some/folder/toy.zarr"


@pytest.fixture
def object_server(environment, monkeypatch):
    """Start a server of objects whose faults a test chooses, and set its address in the environment."""
    with ObjectServer() as server:
        for name, text in server.environment.items():
            monkeypatch.setenv(name, text)
        # a client of an earlier server with the same port keeps connections, whose threads still serve its objects
        object_clients._client.cache_clear()
        yield server
