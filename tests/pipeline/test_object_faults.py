"""Tests of faults of an object store, and of object stores that cannot be used."""

import multiprocessing
import socket
import sys
import time
from itertools import cycle

import pytest

import pipeline
from pipeline.errors import BadInputError, ExecutionError, StoreAccessError
from pipeline.faults import ObjectStoreError, is_expired, is_transient
from pipeline.runs.verify import verify
from pipeline.store.files import object_clients
from pipeline.store.files.object_files import ObjectFiles
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import count_by_status
from tests.pipeline.helpers import COMMAND, TOY_FILE, assert_equal_arrays, refusal, run_python
from tests.pipeline.object_server import KEYS, ObjectServer, fault_once
from tests.pipeline.toy import STUDY

URL = "s3://studies/toy.zarr"
PANELS = ["table", "single"]
SECRETS = [*KEYS.values()][:2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    ["lost", "half", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("throttled", "broken", "slow"))],
)
def test_values_are_equal_if_every_ninth_request_has_a_fault(object_server, local_store, fault):
    faults = cycle([*[""] * 8, fault])
    object_server.choose_fault = lambda method, key: next(faults)
    store = pipeline.run(STUDY, URL, panels=PANELS)
    object_server.choose_fault = lambda method, key: ""
    assert_equal_arrays(URL, local_store)
    assert verify(store, sample=None).problems == ()
    assert "finished" in store.sessions[0]


@pytest.mark.parametrize("fault", ["lost", "unmet", "in conflict"])
@pytest.mark.parametrize("part", ["/sessions/000001.json", "single/status/c/"])
def test_conditional_write_with_a_fault(object_server, local_store, fault, part):
    """A write whose response is lost is found to be done; one that is refused once is not, and its task is repeated."""
    object_server.choose_fault = fault_once("PUT", part, fault)
    store = pipeline.run(STUDY, URL, panels=PANELS)
    assert_equal_arrays(URL, local_store)
    assert len(store.sessions) == 1


def test_probe_of_conditional_writes_accepts_lost_responses(object_server):
    for n_before in range(5):
        faults = iter([*[""] * n_before, "lost"])
        object_server.choose_fault = lambda method, key, faults=faults: next(faults, "")
        ObjectFiles(URL).require_fencing()
    assert object_server.objects == {}


@pytest.mark.slow
def test_expired_credentials_stop_a_run_which_is_resumed(object_server, local_store):
    """Work that was committed before the credentials expired is kept, and the message says what to renew."""
    object_server.choose_fault = lambda method, key: "expired" if method == "PUT" and "single/status/c/" in key else ""
    with pytest.raises(ExecutionError, match=r"\(ExpiredToken\): a message; renew the credentials"):
        pipeline.run(STUDY, URL, panels=PANELS)
    object_server.choose_fault = lambda method, key: ""
    pipeline.resume(URL)
    assert_equal_arrays(URL, local_store)


@pytest.mark.parametrize(
    ("fault", "transient", "expired"),
    [
        ("throttled", True, False),
        ("broken", True, False),
        ("lost", True, False),
        ("half", True, False),
        ("expired", False, True),
        ("denied", False, False),
    ],
)
def test_classes_of_errors(object_server, monkeypatch, fault, transient, expired):
    """Reads, writes and lists with the same fault raise errors of one class, without keys in text, chain or dump."""
    monkeypatch.setattr(object_clients.retried, "__kwdefaults__", {"waits": ()})
    object_server.objects["toy.zarr/k"] = b"content"
    files = ObjectFiles(URL)
    object_server.choose_fault = lambda method, key: fault
    for call in (lambda: files.read("k"), lambda: files.names("")):
        with pytest.raises(ObjectStoreError) as caught:
            call()
        assert (is_transient(caught.value), is_expired(caught.value)) == (transient, expired)
        assert caught.value.__cause__ is None
        assert not any(secret in repr(caught.value) + str(caught.value) for secret in SECRETS)


def test_unreadable_store_is_no_damage(object_server):
    pipeline.run(STUDY, URL, panels=PANELS)
    object_server.choose_fault = lambda method, key: "denied" if "single/status/c/" in key else ""
    with pytest.raises(StoreAccessError, match=r"HTTP status 403 \(AccessDenied\): a message; check the permissions"):
        count_by_status(ResultStore.open(URL), "single")


def test_no_key_is_stored_or_shown(object_server):
    store = pipeline.run(STUDY, URL, panels=PANELS)
    files = store.files
    shown = repr((store, files, files._objects)) + str(store.attributes) + str(store.sessions)
    for secret in SECRETS:
        assert secret not in shown
        assert not any(secret.encode() in content for content in object_server.objects.values())


# Bad input


def refused(store=URL):
    """Run a study with an invalid location of its store; return the one-line error, which must occur within seconds."""
    started = time.monotonic()
    with refusal() as caught:
        pipeline.run(STUDY, store, panels=PANELS)
    assert time.monotonic() - started < 30
    assert not any(secret in str(caught.value) for secret in SECRETS)
    return str(caught.value)


def deny_writes(method, key):
    return "denied" if method == "PUT" else ""


@pytest.mark.parametrize(
    ("text", "server", "variables"),
    [
        ("must have conditional writes", {"conditions": "ignored"}, {}),
        ("must have conditional writes", {"conditions": "unsupported"}, {}),
        ("must have conditional writes", {}, {"AWS_CONDITIONAL_PUT": "disabled"}),
        (
            "HTTP status 403 (InvalidAccessKeyId): a message; check the address",
            {},
            {"AWS_ACCESS_KEY_ID": "wrong"},
        ),
        (
            "cannot write to the store s3://studies/toy.zarr: HTTP status 403 (AccessDenied)",
            {"choose_fault": deny_writes},
            {},
        ),
        ("cannot be reached: HTTP status 404 (NoSuchBucket)", {"bucket": "other"}, {}),
    ],
)
def test_object_store_that_cannot_be_used_is_refused(object_server, local_store, monkeypatch, text, server, variables):
    for name, value in server.items():
        setattr(object_server, name, value)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert text in refused()
    if "conditions" in server:
        with pytest.raises(BadInputError, match=text):
            pipeline.compact(local_store, URL)
    assert object_server.objects == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("AWS_ENDPOINT_URL", "somewhere"),
        ("AWS_ENDPOINT_URL", ""),
        ("AWS_ENDPOINT_URL", "http://me:hush-hush@host"),
        ("AWS_ENDPOINT_URL", "http://host:99999"),
        ("AWS_ENDPOINT", "http://[::::1]"),
        ("AWS_SECRET_ACCESS_KEY", "hush-hush\n"),
    ],
)
def test_invalid_variables_of_the_environment_are_refused(environment, monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    assert f"the environment variable {name} must" in refused()


def test_invalid_configurations_are_refused(environment, monkeypatch):
    assert "Account must be specified; set its account and credentials" in refused("az://studies/toy.zarr")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/none")
    assert "set its account and credentials" in refused("gs://studies/toy.zarr")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_PROFILE", "absent")
    monkeypatch.setitem(sys.modules, "obstore.auth.boto3", None)
    assert "the profile in AWS_PROFILE requires boto3; pip install 'dpstudies[s3]'" in refused()


@pytest.mark.parametrize("listens", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_unreachable_endpoint(tmp_path, environment, listens):
    """If the endpoint refuses connections or does not respond, the command ends within seconds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        if not listens:
            server.close()
        words, variables = ("run", TOY_FILE, "--store", URL), {"AWS_ENDPOINT_URL": address}
        ended = run_python(*COMMAND, *words, seconds=30, cwd=tmp_path, env=variables)
    assert ended.returncode == 2
    assert f"the object store of {URL} cannot be reached: no complete response" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_changed_environment_is_used(environment, monkeypatch):
    """A client follows the environment, so that renewed keys and another address are used at once."""
    with ObjectServer() as first, ObjectServer() as second:
        for server in (first, second):
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.environment["AWS_ENDPOINT_URL"])
            ObjectFiles(URL).create("k", b"1")
            assert [*server.objects] == ["toy.zarr/k"]


def read_one(url):
    """Read an object, or return the text of the error."""
    try:
        return ObjectFiles(url).read("k")
    except BadInputError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_process_is_refused(object_server):
    """A forked process would wait for ever, because it lacks the threads of the client."""
    assert read_one(URL) is None
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert "forked after a request" in pool.apply_async(read_one, [URL]).get(timeout=20)


@pytest.mark.slow  # requires boto3, which the S3 server of slow tests requires as well
def test_profile_of_the_environment_is_used(object_server, monkeypatch, tmp_path):
    (tmp_path / "credentials").write_text(
        f"[lab]\naws_access_key_id = {KEYS['AWS_ACCESS_KEY_ID']}\naws_secret_access_key = x\n"
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert ObjectFiles(URL).create("k", b"1")
    monkeypatch.setenv("AWS_PROFILE", "absent")
    assert "cannot be used: The config profile (absent) could not be found" in refused()
