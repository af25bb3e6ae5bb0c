"""Tests that messages about clusters contain no secrets of a profile, and that other values stay readable."""

import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from distributed import Client

from pipeline.clusters.launch import Launch, describe_launch, launch_document, make_launch
from pipeline.clusters.profiles import Profile
from pipeline.errors import ExecutionError
from pipeline.execution import checks
from pipeline.execution.in_flight import TasksInFlight
from pipeline.faults import explain
from pipeline.redact import format_error, is_secret_name, redact, redact_text, short_repr

PEM = "-----BEGIN PRIVATE KEY-----\nhush\nhush\n-----END PRIVATE KEY-----\n"
SECRET_NAMES = """
    password PASSWORD passwd DB_PASS pass passphrase pwd PGPASSWORD SSHPASS secret client_secret token GITHUB_TOKEN
    sessionToken key MY_KEY AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY api_key apikey client_keys tls_client_key privatekey
    ACCOUNTKEY keyfile ssh_key_file --tls-key auth AUTHORIZATION DSN AZURE_STORAGE_CONNECTION_STRING sas credentials
    GOOGLE_APPLICATION_CREDENTIALS cookie
"""
PLAIN_NAMES = """
    author passenger bypass compass monkey keyboard hockey n_workers hosts account queue memory PATH interface passive
    module security username worker_options walltime image
"""


@pytest.mark.parametrize(("names", "secret"), [(SECRET_NAMES, True), (PLAIN_NAMES, False)], ids=["secret", "plain"])
def test_names(names, secret):
    assert [name for name in names.split() if is_secret_name(name) != secret] == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s3://me:hush@bucket/s.zarr", "s3://***@bucket/s.zarr"),
        ("cannot reach postgres://me:hu%40sh@host/db", "cannot reach postgres://***@host/db"),
        (
            "https://host/x?X-Amz-Signature=hush&part=1&token=hush",
            "https://host/x?X-Amz-Signature=***&part=1&token=***",
        ),
        ("export MY_KEY='hush hush'; echo done", "export MY_KEY=***; echo done"),
        ("export MY_KEY='hu'\"'\"'hush' B=2", "export MY_KEY=*** B=2"),
        ("--token=hush --nthreads 2", "--token=*** --nthreads 2"),
        ("worker --tls-key /home/me/hush.pem --nthreads 2", "worker --tls-key *** --nthreads 2"),
        ('{"password": "hush", "port": 1}', '{"password": ***, "port": 1}'),
        ("curl -H 'Authorization: Bearer hush' http://host", "curl -H 'Authorization: ***' http://host"),
        ("AccountName=me;AccountKey=hush==;End=1", "AccountName=me;AccountKey=***;End=1"),
        ("s3://me:hu/sh@bucket/s", "s3://***@bucket/s"),
        ("s3://me:hu'sh@bucket/s and 'x'", "s3://***@bucket/s and 'x'"),
        ('from s3://me:hu"sh@bucket to s3://me:hush@b', "from s3://***@bucket to s3://***@b"),
        ("cannot reach s3://me:hu sh@bucket/s", "cannot reach s3://***@bucket/s"),
        ("s3://me:12/hush@bucket", "s3://***@bucket"),
        ("tcp://127.0.0.1:8786 of me@host", "tcp://127.0.0.1:8786 of me@host"),
        ("tcp://127.0.0.1:8786, me@host", "tcp://127.0.0.1:8786, me@host"),
        ("s3://bucket/a: ask me@host", "s3://bucket/a: ask me@host"),
        ("TOKEN=hush,hush", "TOKEN=***"),
        ("TOKEN=hush,hush;hush&hush next", "TOKEN=*** next"),
        ("a=1,password=hush,hush,port=1", "a=1,password=***,port=1"),
        ("password=hush, port=1", "password=***, port=1"),
        ('{"password":hush,"port":1}', '{"password":***,"port":1}'),
        (
            "https://me.blob.core.windows.net/c/s?sv=2024-01-01&se=2026&sig=hush%2Fhush%3D",
            "https://me.blob.core.windows.net/c/s?sv=***&se=2026&sig=***",
        ),
        ("https://h/x?X-Amz-Credential=hush%2Fs3&key=hush", "https://h/x?X-Amz-Credential=***&key=***"),
        ("https://h/x?access_token=hush&X-Goog-Signature=hush", "https://h/x?access_token=***&X-Goog-Signature=***"),
        (f"key:\n{PEM}end", "key:\n***\nend"),
        ("#SBATCH --mem=15G -t 01:00:00", "#SBATCH --mem=15G -t 01:00:00"),
        ("source /opt/env/bin/activate; module load python", "source /opt/env/bin/activate; module load python"),
    ],
)
def test_text(text, wanted):
    assert redact_text(text) == wanted


def test_values_keep_their_structure():
    given = {
        "n_workers": 2,
        "interface": None,
        "arguments": ["--password", "hush", "--nthreads", 2],
        "connect_options": [{"username": "me", "password": "hush"}, {"client_keys": ["hush"]}],
        "env": [{"name": "API_TOKEN", "value": "hush"}, {"name": "PLAIN", "value": "seen"}],
        "tls": PEM,
    }
    assert redact(given) == {
        "n_workers": 2,
        "interface": None,
        "arguments": ["--password", "***", "--nthreads", 2],
        "connect_options": [{"username": "me", "password": "***"}, {"client_keys": "***"}],
        "env": [{"name": "API_TOKEN", "value": "***"}, {"name": "PLAIN", "value": "seen"}],
        "tls": "***\n",
    }


def test_objects_and_exceptions():
    class Credentials:
        def __repr__(self):
            return "Credentials(password='hush')"

    assert redact(Credentials()) == "Credentials(password=***)"
    assert format_error(OSError("cannot log in\nwith token=hush")) == "OSError: cannot log in with token=***"
    assert len(short_repr(["x" * 1000] * 1000)) < 800
    assert explain(ValueError("cannot log in\nwith token=hush")) == "ValueError: cannot log in with token=***"
    assert explain(PermissionError(13, "Permission denied", "s3://me:hush@b")).startswith("Permission denied: s3")
    assert "hush" not in explain(PermissionError(13, "Permission denied", "s3://me:hush@b"))


def test_representations_hide_arguments():
    assert "hush" not in repr(Launch(object, "other", {"x": "hush"}, {"y": "hush"}))
    assert "hush" not in repr(Profile("a", args=("hush",)))


def test_errors_of_workers_are_printed_without_secrets():
    def fail():
        raise RuntimeError("cannot log in with token=hush")

    with Client(processes=False, dashboard_address=None, n_workers=1) as client:
        in_flight = TasksInFlight(client)
        in_flight.submit(None, fail)
        with pytest.raises(ExecutionError, match=r"a worker failed: RuntimeError: cannot log in with token=\*\*\*$"):
            in_flight.wait()


def test_a_study_that_cannot_be_loaded_is_reported_without_secrets(monkeypatch):
    monkeypatch.setattr(checks, "get_worker", lambda: SimpleNamespace(address="tcp://h:1"))
    failure = RuntimeError("cannot log in with token=hush")
    monkeypatch.setattr(checks, "registered_task", Mock(side_effect=failure))
    assert "RuntimeError: cannot log in with token=***; install" in checks.load_study("run", {}, ())


SSH = {"hosts": ["h", "h"], "connect_options": {"username": "me", "password": "hush", "client_keys": ["/hush.pem"]}}
BATCH = {
    "cores": 1,
    "memory": "1GB",
    "job_script_prologue": ["export MY_KEY=hush", "login --password hush"],
    "job_extra_directives": ["--comment=token:hush"],
    "worker_extra_args": ["--tls-key", "/hush.pem", "--preload", "s3://me:hush@bucket/x.py"],
}
POD = {"containers": [{"name": "w", "env": [{"name": "DB_PASSWORD", "value": "hush"}]}]}
KUBERNETES = {"custom_cluster_spec": {"metadata": {"name": "a"}, "spec": {"worker": {"spec": POD}}}}


@pytest.mark.parametrize(
    "profile",
    [
        Profile("a", class_name="SSHCluster", kwargs=SSH, env={"MY_API_TOKEN": "hush", "SOME_KEY": "hush"}),
        Profile("a", "dask_jobqueue", "SLURMCluster", kwargs=BATCH, env={"SOME_SECRET": "it's hush"}),
        *(
            pytest.param(Profile("a", "dask_kubernetes.operator", "KubeCluster", **options), marks=pytest.mark.slow)
            for options in ({"kwargs": KUBERNETES}, {"kwargs": {"name": "a"}, "env": {"MY_KEY": "hush"}})
        ),
        Profile("a", kwargs={"preload": "https://me:hush@host/x.py", "env": {"A_PASSWORD": "hush"}}),
        Profile("a", address="tls://h:1", security={"tls_client_key": PEM, "tls_client_cert": PEM}),
        Profile("a", address="tls://h:1", security={"tls_client_key": "/home/me/hush.pem"}),
        Profile("a", address="tls://me:hush@h:1"),
    ],
    ids=lambda profile: profile.address or f"{profile.class_name} {', '.join(profile.kwargs)}",
)
def test_previews(profile):
    found = f"{describe_launch(profile)} {launch_document(profile)} {profile!r}"
    assert "***" in found
    # Cluster files may not contain such an address with a password.
    assert "hush" not in found.replace("address='tls://me:hush@h:1'", "")


def test_previews_show_other_values():
    assert "'username': 'me'" in str(describe_launch(Profile("a", class_name="SSHCluster", kwargs=SSH)))
    assert SSH["connect_options"]["password"] == "hush"


def test_cluster_receives_hidden_secrets():
    profile = Profile("a", "dask_jobqueue", "SLURMCluster", kwargs=BATCH, env={"SOME_SECRET": "it's hush"})
    prologue = make_launch(profile).kwargs["job_script_prologue"]
    assert prologue[-3:] == ["export SOME_SECRET='it'\"'\"'s hush'", "export MY_KEY=hush", "login --password hush"]


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize(
    "piece",
    [
        "x",
        "token",
        "a=b ",
        '"',
        "://",
        "-",
        "token= ",
        "'a",
        "-----BEGIN ",
        "key ",
        "token=a,",
        "://a:b",
        "token=,",
        "://a:b ",
    ],
)
def test_long_texts_take_linear_time(piece):
    """Redaction takes linear time: a text ten times as long takes about ten times as long, not a hundred times."""

    def seconds(n_pieces):
        text, times = piece * n_pieces, []
        for _ in range(3):
            start = time.process_time()
            redact_text(text)
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(20_000) < 40 * max(seconds(2_000), 2e-3)
