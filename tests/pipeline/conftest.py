"""Fixtures: a complete store of the toy study, writable copies of it, and an object store."""

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
import sys
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print("http://%s:%d" % server.get_host_and_port(), flush=True)
sys.stdin.read()
"""
_numbers = count()


@pytest.fixture(scope="session")
def complete_store(tmp_path_factory):
    """Path of a complete store of the toy study, for reading only."""
    path = tmp_path_factory.mktemp("complete") / "toy.zarr"
    compute_into(path, STUDY)
    return path


@pytest.fixture
def store_copy(complete_store, tmp_path):
    """Path of a writable copy of the complete store."""
    return shutil.copytree(complete_store, tmp_path / "copy.zarr")


@pytest.fixture(scope="session")
def endpoint():
    """Start an S3 server that ends with the tests, or when its standard input closes."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", SERVER], text=True, **pipes) as process:
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture(scope="module")
def environment(endpoint):
    """Set the environment for the server, which all tests share since s3fs keeps its connections."""
    names = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint, **dict.fromkeys(names, os.devnull)}.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def bucket(environment):
    """Create an empty bucket; yield its boto3 resource."""
    import boto3

    made = boto3.resource("s3").Bucket(f"studies-{next(_numbers)}")
    made.create()
    yield made
    made.meta.client.close()


@pytest.fixture
def url(bucket):
    """URL for a store."""
    return f"s3://{bucket.name}/some/folder/toy.zarr"
