"""Tests that cluster files are validated: invalid keys and values are refused with a one-line message."""

import os
import subprocess
import sys
import tarfile
import zipfile
from functools import partial
from pathlib import Path

import pytest
import yaml

from pipeline.clusters.launch import launch_document, make_launch
from pipeline.clusters.profiles import THREADS, Profile, load_profile, profile_files
from pipeline.errors import BadInputError
from pipeline.runs.submission import recorded_choice
from tests.pipeline.helpers import refusal

SHIPPED = Path(__file__).parents[2] / "cluster.yaml"
LOCAL = {"class": "LocalCluster"}
BATCH = ("slurm", "pbs", "lsf", "sge")
# a few lines of YAML aliases, which expand to 10^10 values
BOMB = "\n".join(["a0: &a0 [x]", *(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 11))])


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "c.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return str(path)

    return write


def profiles(**named):
    return {"profiles": named}


def adapting(**adapt):
    return profiles(a={**LOCAL, "adapt": adapt})


def test_no_choice_reads_no_file(monkeypatch):
    def refuse(*_):
        raise AssertionError("a file was read")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert load_profile(None) is THREADS


def test_every_shipped_profile_parses():
    names = list(yaml.safe_load(SHIPPED.read_text())["profiles"])
    assert {"threads", "processes", "address", "ssh", "slurm", "pbs", "lsf", "sge", "kubernetes"} <= set(names)
    for name in names:
        assert load_profile(f"{SHIPPED}:{name}").name == name
    assert load_profile(str(SHIPPED)) == load_profile(f"{SHIPPED}:threads") == THREADS
    address = load_profile(f"{SHIPPED}:address")
    assert address.address == "tcp://127.0.0.1:8786"


@pytest.mark.slow  # the import of the extra `cluster` takes seconds
def test_every_shipped_class_is_installed():
    kinds = {name: make_launch(load_profile(f"{SHIPPED}:{name}")).kind for name in started()}
    assert kinds == {
        **dict.fromkeys(("threads", "processes"), "local"),
        **dict.fromkeys(BATCH, "batch"),
        "ssh": "ssh",
        "kubernetes": "kubernetes",
    }


def started():
    """Return the names of the shipped profiles that start a cluster of their own."""
    return [name for name, given in yaml.safe_load(SHIPPED.read_text())["profiles"].items() if "class" in given]


def test_name_selects_a_profile_of_the_current_folder(write, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match=r"unknown profile 'here'; .*; or pass FILE:PROFILE"):
        load_profile("here")
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(profiles(here=LOCAL, there=LOCAL)))
    assert load_profile("there").name == "there"
    with pytest.raises(BadInputError, match=r"unknown profile 'thre'; did you mean there"):
        load_profile("thre")
    (tmp_path / "there").write_text(yaml.safe_dump(profiles(only=LOCAL)))
    assert load_profile("there").name == "only"  # a file of that name has priority


def test_profiles_of_the_package_need_no_file_and_can_be_replaced(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    shipped = yaml.safe_load(SHIPPED.read_text())["profiles"]
    assert list(profile_files()) == list(shipped)
    assert all(load_profile(name) == load_profile(f"{SHIPPED}:{name}") for name in shipped)
    mine = {"class": "LocalCluster", "scale": 3}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(profiles(slurm=mine, mine=mine)))
    files = profile_files()
    assert list(files) == [*shipped, "mine"]
    assert {name for name, file in files.items() if file == "cluster.yaml"} == {"slurm", "mine"}
    assert load_profile("slurm").scale == load_profile("mine").scale == 3
    assert load_profile("pbs").class_name == "PBSCluster"
    assert recorded_choice("address", load_profile("address")) == f"{SHIPPED}:address"


@pytest.mark.slow
def test_wheel_contains_the_cluster_file_the_markers_of_type_hints_and_shipped_references(tmp_path):
    """The wheel contains the cluster file, which the repository keeps at its top level, and the `py.typed` files.

    It is built from the files of the source distribution, which must have all that the wheel needs.
    """

    def build(kind, folder):
        code = f"import sys; from hatchling.build import build_{kind} as build; print(build(sys.argv[1]))"
        words = [sys.executable, "-c", code, str(tmp_path)]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
        return tmp_path / done.stdout.split()[-1]

    with tarfile.open(build("sdist", SHIPPED.parent)) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("dpstudies-*/")
    with zipfile.ZipFile(build("wheel", unpacked)) as wheel:
        assert wheel.read("pipeline/clusters/cluster.yaml") == SHIPPED.read_bytes()
        assert {"mechanisms/py.typed", "pipeline/py.typed", "studies/py.typed"} <= set(wheel.namelist())
        references = SHIPPED.parent.glob("studies/benchmark/references/*.json.gz")
        assert {path.relative_to(SHIPPED.parent).as_posix() for path in references} <= set(wheel.namelist())


@pytest.mark.parametrize("choice", ["there", "cluster.yaml:there", "cluster.yaml", "../a:b/cluster.yaml:there", "x:y"])
def test_folder_name_may_contain_a_colon(tmp_path, monkeypatch, choice):
    """A profile is loaded from a folder with a colon in its name, and its recorded choice gives the same profile."""
    folder = tmp_path / "a:b"
    folder.mkdir()
    monkeypatch.chdir(folder)
    content = profiles(there={"address": "tcp://h:1"})
    for file in ("cluster.yaml", "x:y"):
        Path(file).write_text(yaml.safe_dump(content))
    profile = load_profile(choice)
    recorded = recorded_choice(choice, profile)
    monkeypatch.chdir(tmp_path)
    assert load_profile(recorded) == profile
    assert load_profile(str(folder / "cluster.yaml")) == profile
    with pytest.raises(BadInputError, match=r"cannot read the cluster file .*/a:b/absent\.yaml: No such file"):
        load_profile(f"{folder}/absent.yaml:there")


def test_every_key(write):
    given = {
        "module": "dask_jobqueue",
        "class": "SLURMCluster",
        "args": [1],
        "kwargs": {"cores": 2},
        "scale": 3,
        "env": {"X": 1},
        "wait": 5,
    }
    assert load_profile(write(profiles(a=given))) == Profile(
        "a", "dask_jobqueue", "SLURMCluster", (1,), {"cores": 2}, scale=3, env={"X": "1"}, wait=5
    )
    adaptive = load_profile(write(profiles(a={**LOCAL, "adapt": {"maximum": 2}})))
    assert (adaptive.module, adaptive.scale, adaptive.adapt) == ("distributed", None, {"maximum": 2})
    secure = load_profile(write(profiles(a={"address": "tls://h:1", "security": {"require_encryption": True}})))
    assert (secure.address, secure.security) == ("tls://h:1", {"require_encryption": True})


def test_choice_of_a_profile(write):
    assert load_profile(write(profiles(only=LOCAL))).name == "only"
    path = write({"default": "b", **profiles(a=LOCAL, b=LOCAL)})
    assert load_profile(path).name == "b"
    assert load_profile(f"{path}:a").name == "a"
    with refusal("unknown profile 'c'; allowed: a, b"):
        load_profile(f"{path}:c")
    assert load_profile(write(profiles(**{"a:b": LOCAL})) + ":a:b").name == "a:b"


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ("must be YAML", "profiles: ["),
        ("(line 3, column 1)", "profiles:\n  a: {env: {MY_KEY: 'hush'\n"),  # without a quote of the file
        ("must be a mapping with the key profiles, got 'text'", "text"),
        ("must be a mapping with the key profiles, got None", ""),
        ("must be YAML: special characters are not allowed", "a: \0"),
        ("must have at most 20 levels and 100,000 values", "[" * 20_000),
        ("must have at most 20 levels and 100,000 values", "a: " + "[" * 25 + "]" * 25),
        ("must have at most 20 levels and 100,000 values", "profiles: &a [*a]"),
        ("must have at most 20 levels and 100,000 values", BOMB),
        ("must have at most 1,000,000 characters", "#" * 1_000_001),
        ("unknown key 'profile'; did you mean profiles?", {"profile": {}}),
        ("profiles must contain at least one profile, got none", {"default": "a"}),
        ("profiles must contain at least one profile, got none", {"profiles": {}}),
        ("profiles must be a mapping, got ['a']", {"profiles": ["a"]}),
        ("has several profiles: a, b; choose one with", profiles(a=LOCAL, b=LOCAL)),
        ("unknown profile 'thread'; did you mean threads?", profiles(threads=LOCAL) | {"default": "thread"}),
        ("unknown profile 'c'; allowed: a", {"default": "c", **profiles(a=LOCAL)}),
        ("default must be text, in quotes where YAML reads it as another type, got 3", {"default": 3}),
        ("profile a must be a mapping, got 'x'", profiles(a="x")),
        ("profile a: unknown key 'adress'; did you mean address", profiles(a={"adress": "tcp://h:1"})),
        ("profile a: unknown key 'kwarg'; did you mean kwargs", profiles(a={**LOCAL, "kwarg": {}})),
        ("profile a must have either an address or", profiles(a={**LOCAL, "address": "tcp://h:1"})),
        ("profile a must have either an address or", profiles(a={"module": "distributed"})),
        ("profile a must have either an address or", profiles(a={})),
        ("must have scale or adapt, got both", profiles(a={**LOCAL, "scale": 1, "adapt": {"minimum": 1}})),
        ("scale must be an integer >= 1, got 0", profiles(a={**LOCAL, "scale": 0})),
        ("scale must be an integer >= 1, got 'two'", profiles(a={**LOCAL, "scale": "two"})),
        ("scale must be an integer >= 1, got True", profiles(a={**LOCAL, "scale": True})),
        ("address must be of the form tcp://", profiles(a={"address": 8786})),
        ("address must be of the form tcp://", profiles(a={"address": "127.0.0.1"})),
        ("address must be of the form tcp://", profiles(a={"address": "http://127.0.0.1:8787"})),
        ("without a user name, got 'tcp://***@h:1'", profiles(a={"address": "tcp://me:hush@h:1"})),
        ("module must be text, in quotes", profiles(a={**LOCAL, "module": 3})),
        ("class must be text, in quotes", profiles(a={"class": True})),
        ("kwargs must have names as keys, got 1", profiles(a={**LOCAL, "kwargs": {1: 2}})),
        ("kwargs applies to started clusters", profiles(a={"address": "tcp://h:1", "kwargs": {}})),
        ("module applies to started clusters", profiles(a={"address": "tcp://h:1", "module": "m"})),
        ("must not have security with a class; add it to kwargs", profiles(a={**LOCAL, "security": {}})),
        ("adapt: unknown key 'minimun'; did you mean minimum", profiles(a={**LOCAL, "adapt": {"minimun": 1}})),
        ("adapt must have maximum (workers) or maximum_jobs", profiles(a={**LOCAL, "adapt": {}})),
        ("or maximum_jobs, such as {minimum: 0, maximum: 10}, got minimum", adapting(minimum=1)),
        ("wait must be a number of seconds > 0, got 0", profiles(a={**LOCAL, "wait": 0})),
        ("wait must be a number of seconds > 0, got 'long'", profiles(a={**LOCAL, "wait": "long"})),
        ("wait must be a number of seconds > 0, got True", profiles(a={**LOCAL, "wait": True})),
        ("wait must be a number of seconds > 0, got nan", profiles(a={**LOCAL, "wait": float("nan")})),
        ("args must be a list, got 1", profiles(a={**LOCAL, "args": 1})),
        ("kwargs must be a mapping, got [1]", profiles(a={**LOCAL, "kwargs": [1]})),
        ("env must be a mapping, got 'X=1'", profiles(a={**LOCAL, "env": "X=1"})),
        ("env must be a mapping, got 'MY_KEY=***'", profiles(a={**LOCAL, "env": "MY_KEY=hush"})),
        ("env: X must be text or a number, in quotes", profiles(a={**LOCAL, "env": {"X": True}})),
        ("env: X must be text or a number", profiles(a={**LOCAL, "env": {"X": ["a"]}})),
        ("must have names of letters, digits and _, got 'X; ls'", profiles(a={**LOCAL, "env": {"X; ls": "a"}})),
        ("must have names of letters, digits and _, got 'True'", profiles(a={**LOCAL, "env": {True: 1}})),
        ("must have names of letters, digits and _, got 'None'", profiles(a={**LOCAL, "env": {None: None}})),
        ("adapt: maximum_jobs must be combined with minimum_jobs, got minimum", adapting(minimum=9, maximum_jobs=2)),
        ("adapt: maximum must be combined with minimum, got minimum_jobs", adapting(minimum_jobs=100, maximum=2)),
        ("adapt: interval must be", adapting(maximum=2, interval="")),
        ("adapt: interval must be", adapting(maximum=2, interval="1e400s")),
        ("NO_SUCH_VARIABLE has no value and is not set", profiles(a={**LOCAL, "env": {"NO_SUCH_VARIABLE": None}})),
        ("adapt must be a mapping, got 2", profiles(a={**LOCAL, "adapt": 2})),
        ("adapt: minimum must be an integer >= 0, got 'x'", adapting(minimum="x", maximum=2)),
        ("adapt: minimum must be an integer >= 0, got -1", adapting(minimum=-1, maximum=2)),
        ("adapt: maximum must be an integer >= 1, got 0", adapting(maximum=0)),
        ("adapt: maximum must be an integer >= 1, got 1.5", adapting(maximum=1.5)),
        ("adapt: minimum must be <= maximum, got 3 > 2", adapting(minimum=3, maximum=2)),
        ("got maximum and maximum_jobs", adapting(maximum=3, maximum_jobs=2)),
        ("adapt: unknown key 'maximum_cores'; did you mean", adapting(maximum_cores=3)),
        ("adapt: interval must be a number of seconds > 0, or text such as", adapting(maximum=1, interval="soon")),
        ("adapt: interval must be a number of seconds > 0", adapting(maximum=1, interval="-1s")),
        ("adapt: wait_count must be an integer >= 1, got 0", adapting(maximum=1, wait_count=0)),
        ("must not have storage_options; for access", profiles(a={**LOCAL, "storage_options": {"key": "hush"}})),
        ("security must be a mapping, got True", profiles(a={"address": "tcp://h:1", "security": True})),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals(write, message, content):
    with refusal(message, "c.yaml") as caught:
        load_profile(write(content))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("make", [Path.exists, Path.mkdir, lambda path: path.write_bytes(b"\xff\xfe\x00"), os.mkfifo])
def test_a_file_that_is_absent_a_folder_no_text_or_a_pipe(tmp_path, make):
    make(tmp_path / "c.yaml")
    with refusal("c.yaml"):
        load_profile(f"{tmp_path}/c.yaml")


def test_variable_without_a_value_is_read_from_this_process(write, monkeypatch):
    """A variable without a value in the profile, such as a secret, has its value in this process's environment."""
    monkeypatch.setenv("MY_SECRET", "hush")
    profile = load_profile(write(profiles(a={**LOCAL, "env": {"MY_SECRET": None, "X": 2}})))
    assert profile.env == {"MY_SECRET": "hush", "X": "2"}
    assert "hush" not in repr(profile)


# Classes and their arguments


def launching(class_name="LocalCluster", module="distributed", adapt=None, scale=None, **kwargs):
    return Profile("a", module, class_name, kwargs=kwargs, adapt=adapt or {}, scale=scale)


def batch(**kwargs):
    return launching("SLURMCluster", "dask_jobqueue", **{"cores": 4, "memory": "8GB", **kwargs})


SSH = {"class_name": "SSHCluster", "hosts": ["a", "b"]}
KUBE = {"class_name": "KubeCluster", "module": "dask_kubernetes.operator"}
with_kubernetes = partial(pytest.param, marks=pytest.mark.slow)  # the import of the extra `cluster` takes seconds


@pytest.mark.parametrize(
    ("message", "profile"),
    [
        (
            "must name an installed cluster class, got os.system, which is not a cluster class",
            Profile("a", "os", "system", args=("touch trace",)),
        ),
        ("got subprocess.Popen, which is not a cluster class", launching("Popen", "subprocess", args=["touch", "x"])),
        ("a cluster class has the methods scale, adapt, close", launching("Popen", "subprocess", args=["touch", "x"])),
        ("got distributed.Client, which is not a cluster class", launching("Client")),
        ("got distributed.deploy.Cluster, which is not a cluster class", launching("Cluster", "distributed.deploy")),
        ("must name an installed cluster class, got no_such_module.C", launching("C", "no_such_module")),
        ("must name an installed cluster class, got distributed.LocalClutser", launching("LocalClutser")),
        ("got .LocalCluster: ValueError: Empty module name", launching(module="")),
        ("got ..LocalCluster: TypeError", launching(module=".")),
        ("unknown argument 'thread_per_worker'; did you mean threads_per_worker", launching(thread_per_worker=1)),
        ("unknown argument 'no_such_argument'; see the Dask documentation", launching(no_such_argument=1)),
        ("threads_per_worker must be an integer >= 1, got 0", launching(threads_per_worker=0)),
        ("threads_per_worker must be an integer >= 1, got '2'", launching(threads_per_worker="2")),
        ("n_workers must be an integer >= 0, got -1", launching(n_workers=-1)),
        ("n_workers must be >= 1, or 0 with adapt or scale, got 0", launching(n_workers=0)),
        ("processes must be true or false, got 2", launching(processes=2)),
        ("memory_limit must be a size per worker such as 2GB", launching(memory_limit=4)),
        ("memory_limit must be a size per worker such as 2GB", launching(memory_limit="4 apples")),
        ("memory_limit must be a size per worker such as 2GB", launching(memory_limit=-0.5)),
        ("security must be true for temporary TLS credentials", launching(security=False)),
        (
            "temporary TLS credentials, the default; use protocol: tcp:// for none, got '***'",
            launching(security="-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----"),
        ),
        ("env must be a mapping, got 'DB_PASSWORD=***'", launching(env="DB_PASSWORD=hush")),
        ("adapt: maximum_jobs applies only to batch systems; use maximum", launching(adapt={"maximum_jobs": 2})),
        ("hosts must be a list of the scheduler's host and at least one", launching("SSHCluster", hosts=["a"])),
        ("hosts must be a list of the scheduler's host and at least one", launching("SSHCluster", hosts="a b")),
        ("an SSHCluster starts one worker per host; remove them", launching(**SSH, scale=2)),
        ("must not have scale or adapt, since an SSHCluster", launching(**SSH, adapt={"maximum": 2})),
        ("unknown argument 'host'; did you mean hosts", launching(**SSH, host="a")),
        ("cores must be an integer >= 1, got '8'", batch(cores="8")),
        ("processes must be an integer >= 1, got 0", batch(processes=0)),
        ("processes must be <= cores, got 8 > 4", batch(processes=8)),
        ("memory must be a size of at least 1 MB, such as 16GB, got 16", batch(memory=16)),
        ("memory must be a size of at least 1 MB, such as 16GB, got 'much'", batch(memory="much")),
        ('walltime must be text in quotes, such as "01:00:00", got 3600', batch(walltime=3600)),
        ("job_extra_directives must be a list of texts", batch(job_extra_directives="--exclusive")),
        ("worker_extra_args must be a list of texts", batch(worker_extra_args=["--nthreads", 2])),
        ("unknown argument 'que'; did you mean quiet or queue?", batch(que="short")),
        ("unknown argument 'core'; did you mean cores", launching("SLURMCluster", "dask_jobqueue", core=8)),
        ("You must specify how much cores and memory", launching("SLURMCluster", "dask_jobqueue")),
        with_kubernetes(
            "adapt: maximum_jobs applies only to batch systems", launching(**KUBE, adapt={"maximum_jobs": 2})
        ),
        *(
            with_kubernetes(
                f"adapt: unknown key {key!r}; allowed: minimum, maximum",
                launching(**KUBE, adapt={"minimum": 0, "maximum": 2, key: value}),
            )
            for key, value in {"interval": "2s", "wait_count": 3, "target_duration": "1s"}.items()
        ),
        with_kubernetes("n_workers must be an integer >= 0, got 1.5", launching(**KUBE, n_workers=1.5)),
        with_kubernetes("unknown argument 'imag'; did you mean image", launching(**KUBE, imag="i")),
        with_kubernetes("env must be a key of the profile, not of kwargs", launching(**KUBE, env={"X": "1"})),
        with_kubernetes("resources must be a mapping, got '2 GB'", launching(**KUBE, resources="2 GB")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused_classes_and_arguments(message, profile, tmp_path, monkeypatch):
    """No function that a profile names in place of a class is called."""
    monkeypatch.chdir(tmp_path)
    for act in (make_launch, launch_document):
        with refusal(message, "profile a"):
            act(profile)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "profile",
    [
        launching(n_workers=2, threads_per_worker=1, memory_limit="2GB", lifetime="1h", local_directory="/tmp"),
        launching(memory_limit=0, processes=True),
        launching(memory_limit=0.5),
        launching(memory_limit="auto", dashboard_address=None, interface="lo"),
        launching(n_workers=0, adapt={"minimum": 0, "maximum": 2}),
        launching(n_workers=0, scale=2),
        batch(queue="short", account="lab", interface="lo", log_directory="logs", death_timeout=60, walltime="01:00"),
        batch(adapt={"minimum_jobs": 0, "maximum_jobs": 2}),
        launching(**SSH, worker_class="distributed.Nanny", connect_options={"username": "me"}),
        with_kubernetes(launching(**KUBE, name="a", n_workers=2, image="i", adapt={"maximum": 2})),
    ],
    ids=lambda profile: f"{profile.class_name} {', '.join(profile.kwargs)}",
)
def test_accepted_arguments(profile):
    assert make_launch(profile).kwargs.items() >= {k: v for k, v in profile.kwargs.items() if "opt" not in k}.items()
