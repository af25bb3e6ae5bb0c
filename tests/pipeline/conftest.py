"""Fixtures: a complete store of the toy study, copies of it, and an object store."""

import os
import shutil
import subprocess
import sys
from itertools import count

import pytest

from tests.pipeline.helpers import compute_into
from tests.pipeline.toy import STUDY

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "mine", "AWS_DEFAULT_REGION": "us-east-1"}
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
def endpoint():
    """Start an S3 server that stops after the tests, or when they are killed, which closes its standard input."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", SERVER], text=True, **pipes) as process:
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture(scope="module")
def environment(endpoint):
    """Set the environment variables of the S3 server once per module, because s3fs reuses connections."""
    names = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint, **dict.fromkeys(names, os.devnull)}.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def bucket(environment):
    """Create an empty bucket, as a boto3 resource."""
    import boto3

    made = boto3.resource("s3").Bucket(f"studies-{next(_numbers)}")
    made.create()
    yield made
    made.meta.client.close()


@pytest.fixture
def url(bucket):
    return f"s3://{bucket.name}/some/folder/toy.zarr"
