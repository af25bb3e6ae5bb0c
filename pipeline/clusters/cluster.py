"""Connections to Dask clusters: started from a profile, reached at its address, or of the user."""

import logging
import multiprocessing
import os
import re
import shlex
import ssl
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask
from distributed import Client, LocalCluster, Status, Worker, WorkerPlugin
from distributed.security import Security

from pipeline.blocks.one_thread import one_thread
from pipeline.clusters import rules
from pipeline.clusters.launch import Launch, available_cores, make_launch
from pipeline.clusters.logs import filtered_logs, without_refusals
from pipeline.clusters.profiles import Profile
from pipeline.clusters.user_cluster import ChosenCluster, UserCluster, open_client, released_thread
from pipeline.errors import BadInputError, command, counted
from pipeline.redact import format_error, redact_text, short_repr

_CONNECT_SECONDS = 10
_ASK_SECONDS = 5
_SILENT_SECONDS = 10  # time in seconds after which a cluster without workers is reported
_POLL_SECONDS = 0.5
# nannies restart lost workers, which the cluster would otherwise remove if their restarts take longer
_LOCAL_SETTINGS = {"distributed.deploy.lost-worker-timeout": "1000d"}
_HINTS = {
    "local": "see the messages above, and free memory or stop other processes",
    "ssh": "check on the hosts that dask starts with the remote_python of the profile",
    "batch": "check the queue with {queue}, the logs of finished jobs, and the script with: {check}",
    "kubernetes": "check the pods with: kubectl get pods",
    "other": "see the documentation of the cluster class",
    "address": "start one with: {worker}",
}
_QUEUES = {"sbatch": "squeue", "bsub": "bjobs", "condor_submit": "condor_q", "oarsub": "oarstat", "msub": "showq"}


class UnreachableSchedulerError(BadInputError):
    """Error for a cluster whose scheduler, or a worker that was asked, does not respond."""


class Environment(WorkerPlugin):
    """Plugin that sets environment variables in each worker before it loads a study."""

    name = "dpstudies-environment"

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = dict(env)

    def setup(self, worker: Worker) -> None:
        """Set the variables for the lifetime of the worker."""
        self._before = {name: os.environ.get(name) for name in self.env}
        os.environ.update(self.env)

    def teardown(self, worker: Worker) -> None:
        """Restore the previous values, since the worker may run in the user's process."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def connect(cluster: ChosenCluster) -> Iterator[Client]:
    """Start the cluster of a profile, or connect to it, and prepare its workers; stop a started cluster at the end.

    A client of the user is used, and left open.
    """
    launch = _launch_of(cluster)
    with _reach(cluster, launch) as client:
        if isinstance(cluster, UserCluster) and cluster.is_current:
            print(_describe_use(cluster, client), file=sys.stderr)
        try:
            if launch is not None and launch.plugin_env:
                client.register_plugin(Environment(launch.plugin_env))
            client.run(available_cores)
        except OSError as error:
            raise UnreachableSchedulerError(
                f"the connection to the scheduler or to a worker of {cluster.label} was lost: "
                f"{format_error(error)}; restart what has ended, and repeat the command"
            ) from error
        except Exception as error:
            raise BadInputError(
                f"workers of {cluster.label} cannot load dpstudies: {format_error(error)}; install the same version "
                "there"
            ) from error
        yield client


def _describe_use(cluster: UserCluster, client: Client) -> str:
    """Return the line that names the client which is used because no cluster was named."""
    threads = client.nthreads().values()
    return (
        f"computing on {cluster.label} at {redact_text(cluster.address)} (workers: {len(threads):,}, threads: "
        f"{sum(threads):,}); pass cluster='threads' for threads of this process"
    )


@contextmanager
def reach(cluster: ChosenCluster) -> Iterator[Client]:
    """Connect as in `connect`, but do not prepare the workers, which may have different code or none."""
    with _reach(cluster, _launch_of(cluster)) as client:
        yield client


def _launch_of(cluster: ChosenCluster) -> Launch | None:
    """Return the call that starts a cluster, or None for a scheduler that runs already."""
    return make_launch(cluster) if isinstance(cluster, Profile) and cluster.address is None else None


@contextmanager
def _reach(cluster: ChosenCluster, launch: Launch | None) -> Iterator[Client]:
    if isinstance(cluster, Profile):
        with _reach_profile(cluster, launch) as client:
            yield client
        return
    with filtered_logs(), released_thread(), open_client(cluster) as client:
        # settings that another run at the same time restores are not set again, since this run would restore them later
        is_set = all(dask.config.get(name, None) == value for name, value in _LOCAL_SETTINGS.items())
        with dask.config.set(_LOCAL_SETTINGS if isinstance(client.cluster, LocalCluster) and not is_set else {}):
            _await_worker(client, cluster)
            yield client


@contextmanager
def _reach_profile(profile: Profile, launch: Launch | None) -> Iterator[Client]:
    settings: dict[str, Any] = {
        "distributed.admin.low-level-log-length": 10,  # log entries kept per worker; Dask's default is 1,000
        # seconds of queued work per thread that an adaptive cluster aims at; tasks take about a second
        "distributed.adaptive.target-duration": "1s",
        # a task that terminates its worker fails immediately; pipeline.execution isolates its trials
        "distributed.scheduler.allowed-failures": 0,
    }
    if launch is None:  # the processes of a started cluster may take longer on a busy machine
        settings["distributed.comm.timeouts.connect"] = f"{_CONNECT_SECONDS}s"
    if profile.class_name == "LocalCluster":
        # methods may use multiprocessing, which daemonic processes cannot; workers end with this process all the same
        settings |= {**_LOCAL_SETTINGS, "distributed.worker.daemon": False}
        if not profile.kwargs.get("processes", True):
            # a worker in this process is silent only while the process is suspended, and nothing would restart it
            settings["distributed.scheduler.worker-ttl"] = None
    # thread limits are thread-local, so local workers depend on those of this thread
    with dask.config.set(settings), one_thread(), filtered_logs(), ExitStack() as stack:
        if launch is None:
            client = stack.enter_context(closing(_reach_address(profile)))
        else:
            cluster = _start(profile, launch)
            stack.callback(_close, cluster)
            client = stack.enter_context(Client(cluster, set_as_default=False))
        _await_worker(client, profile)
        yield client


@contextmanager
def reach_scheduler(cluster: ChosenCluster) -> Iterator[Client]:
    """Connect to the scheduler at the address of a cluster, with or without workers, to query its tasks."""
    timeout = {"distributed.comm.timeouts.connect": f"{_ASK_SECONDS}s"}
    with dask.config.set(timeout), filtered_logs():
        if isinstance(cluster, Profile):
            with closing(_reach_address(cluster, _ASK_SECONDS)) as client:
                yield client
            return
        with open_client(cluster) as client:
            yield client


def dashboard_address(client: Client) -> str:
    """Return the URL of the dashboard, with the loopback address if the scheduler runs in this process."""
    link = str(client.dashboard_link)
    if str(client.scheduler.address).startswith("inproc://"):
        return re.sub("//[^:/]+", "//127.0.0.1", link)
    return link


def requested_workers(profile: Profile, client: Client) -> int:
    """Return the number of requested workers of a cluster, at least 1; it is 1 for a scheduler at an address."""
    # clusters on Kubernetes have no attribute `plan`
    return max(1, profile.scale or 0, len(getattr(client.cluster, "plan", ())))


def most_threads(cluster: ChosenCluster, client: Client) -> int:
    """Return the larger of the current and the maximum number of worker threads of a cluster, at least 1.

    The maximum of a cluster of the user is unknown, and taken as twice the current number, so that it can grow.
    """
    threads = list(client.nthreads().values())
    if isinstance(cluster, UserCluster):
        return max(1, 2 * sum(threads))
    workers = max(requested_workers(cluster, client), cluster.adapt.get("maximum", 0))
    if "maximum_jobs" in cluster.adapt:
        workers = max(workers, cluster.adapt["maximum_jobs"] * make_launch(cluster).kwargs["processes"])
    return max(sum(threads), workers * max(threads, default=1))


def _await_worker(client: Client, cluster: ChosenCluster) -> None:
    """Wait for the first worker; warn if none joins soon, and raise BadInputError after `Profile.wait` seconds."""
    # an adaptive cluster, which a cluster of the user may be, starts workers only for tasks
    is_adaptive = not client.nthreads() if isinstance(cluster, UserCluster) else cluster.adapt
    wanted = [client.submit(os.getpid, pure=False)] if is_adaptive else []
    first = min(_SILENT_SECONDS, cluster.wait)
    try:
        with without_refusals():  # which `_has_worker` raises
            if _has_worker(client, cluster, first):
                return
            if first < cluster.wait:
                warnings.warn(
                    f"no worker has joined the cluster of {cluster.label} after {first:g} s; waiting up to "
                    f"{cluster.wait:g} s, Ctrl-C cancels; {_hint(cluster)}",
                    stacklevel=2,
                )
                if _has_worker(client, cluster, cluster.wait - first):
                    return
        raise BadInputError(
            f"no worker has joined the cluster of {cluster.label} (waited {cluster.wait:g} s): {_hint(cluster)}"
            f"{', or increase wait in the profile' if isinstance(cluster, Profile) else ''}"
        )
    finally:
        client.cancel(wanted)


def _has_worker(client: Client, cluster: ChosenCluster, seconds: float) -> bool:
    """Wait for a worker; return False after `seconds`, and raise BadInputError if every job was refused before."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            client.wait_for_workers(1, timeout=min(left, _POLL_SECONDS))
            has_joined = True
        except TimeoutError:
            has_joined = False
        jobs = list(getattr(client.cluster, "workers", {}).values())
        refusals = [job.refusal for job in jobs if getattr(job, "refusal", None) is not None]
        if refusals:
            number = f"{len(refusals)} of {counted(len(jobs), 'job')} of {cluster.label}"
            refused = f"the batch system refused {number}: {format_error(refusals[0])}"
            if has_joined:
                warnings.warn(refused, stacklevel=3)
            elif len(refusals) == len(jobs):
                raise BadInputError(f"{refused}; correct the profile")
        if has_joined:
            return True
    return False


def _with_refusals(factory: Any) -> Any:
    """Return a class of dask-jobqueue whose jobs keep the error of their submission, which the class only logs.

    Jobs state that they failed or were closed, without which their cluster does not close completely.
    """

    class Job(factory.job_cls):
        refusal: Exception | None = None

        async def start(self) -> None:
            try:
                await super().start()
            except Exception as error:
                self.refusal, self.status = error, Status.failed
                raise

        async def close(self) -> None:
            await super().close()
            self.status = Status.closed

    return type(factory.__name__, (factory,), {"job_cls": Job})


def _hint(cluster: ChosenCluster) -> str:
    """Return advice to print when no worker has joined a cluster."""
    if isinstance(cluster, UserCluster):
        return "start workers, such as with cluster.scale(2), or wait for them with client.wait_for_workers(1)"
    profile = cluster
    launch = None if profile.address is not None else make_launch(profile)
    kind = "address" if launch is None else launch.kind
    submit = shlex.split(launch.factory.job_cls.submit_command)[0] if launch is not None and kind == "batch" else ""
    return _HINTS[kind].format(
        worker=shlex.join(["dask", "worker", str(profile.address), *_tls_flags(profile)]),
        check=command("cluster", "check", profile.name, "--no-connect"),
        queue=_QUEUES.get(submit, "qstat"),
    )


def _tls_flags(profile: Profile) -> list[str]:
    """Return the options of ``dask`` for the TLS of an address, whose files have other paths on other machines."""
    files = ("--tls-ca-file", "CA.pem", "--tls-cert", "CERTIFICATE.pem", "--tls-key", "KEY.pem")
    return list(files) if str(profile.address).startswith("tls://") else []


def _reach_address(profile: Profile, seconds: float | None = None) -> Client:
    seconds = _CONNECT_SECONDS if seconds is None else seconds
    security = make_security(profile)
    try:
        with suppress(AssertionError):  # a busy scheduler may send more than the greeting, which `distributed` refuses
            return _connect(profile, security, seconds)
        return _connect(profile, security, seconds)
    except (OSError, ValueError, TypeError, AssertionError) as error:
        flags = _tls_flags(profile)
        is_anonymous = flags and "tls_client_cert" not in profile.security
        local = ["--dashboard-address", "127.0.0.1:0"]  # by default, the dashboard listens on all interfaces
        protocol = ["--protocol", "tls"] if flags else []
        scheduler = shlex.join(["dask", "scheduler", *_place_options(profile), *local, *protocol, *flags])
        remedy = (
            "its TLS needs a client certificate: add tls_client_cert and tls_client_key to the security"
            if is_anonymous
            else f"start one with '{scheduler}', or correct the address or security"
        )
        raise UnreachableSchedulerError(
            f"no scheduler responds at {redact_text(str(profile.address))} (waited {seconds} s): {remedy} of profile "
            f"{profile.name}"
        ) from error


def _place_options(profile: Profile) -> list[str]:
    """Return the options of a scheduler at the address of a profile; none for an address without host and port."""
    try:
        place = urlsplit(str(profile.address))
        return ["--host", place.hostname, "--port", str(place.port)] if place.hostname and place.port else []
    except ValueError:  # such as a port that is no number
        return []


def _connect(profile: Profile, security: Any, seconds: float) -> Client:
    """Return a client, or close it if it cannot connect, before the process ends."""
    client = Client.__new__(Client)
    try:
        client.__init__(profile.address, security=security, timeout=seconds, set_as_default=False)
    except Exception:
        with suppress(Exception):
            client.close()
        raise
    return client


def _start(profile: Profile, launch: Launch) -> Any:
    if reason := launch.obstacle:
        raise BadInputError(f"the cluster of profile {profile.name} cannot be started: {reason}")
    cluster = None
    try:
        factory = _with_refusals(launch.factory) if launch.kind == "batch" else launch.factory
        cluster = factory(*profile.args, **launch.kwargs)
        if profile.adapt:
            cluster.adapt(**profile.adapt)
        elif profile.scale is not None:
            cluster.scale(profile.scale)
    except Exception as error:
        if cluster is not None:
            _close(cluster)
        raise BadInputError(f"the cluster of profile {profile.name} did not start: {format_error(error)}") from error
    return cluster


def _close(cluster: Any) -> None:
    """Close a cluster, and ignore errors of Dask for rejected jobs, and for workers that start during the shutdown.

    Its local worker processes that have not ended are killed, since this process would wait for them at its end.
    """
    started = {getattr(worker, "pid", None) for worker in getattr(cluster, "workers", {}).values()}
    try:
        cluster.close()
    except (AssertionError, TimeoutError):
        logging.getLogger("distributed").debug("%s was closed incompletely", cluster, exc_info=True)
    for process in multiprocessing.active_children():
        if process.pid in started:
            process.kill()


_TLS_VERSION = rules.Rule("771 for TLS 1.2 or 772 for TLS 1.3", lambda value: value in (771, 772))
_PARTS = {"tls_ca_file": "CERTIFICATE", "tls_client_cert": "CERTIFICATE", "tls_client_key": "PRIVATE KEY"}
_RULES = {
    "require_encryption": rules.FLAG,
    "tls_ciphers": rules.TEXT,
    "tls_min_version": _TLS_VERSION,
    "tls_max_version": _TLS_VERSION,
    "extra_conn_args": rules.MAPPING,
}


def make_security(profile: Profile) -> Security | None:
    """Return the TLS credentials of a profile, or None if the profile has none."""
    if not profile.security:
        return None
    where = f"profile {profile.name}: security"
    rules.check_names(where, "key", profile.security, Security.__slots__)
    settings = {key: value for key, value in profile.security.items() if value is not None}
    rules.check_values(where, settings, _RULES)
    contents = {key: _read_pem(f"{where}: {key}", key, settings[key]) for key in _PARTS if key in settings}
    security = Security(**settings)
    if "tls_ca_file" in contents:
        requirement = f"{where}: tls_ca_file must be a certificate in PEM format"
        _check(requirement, lambda: ssl.create_default_context(cadata=contents["tls_ca_file"]))
    if "tls_ciphers" in settings:
        requirement = f"{where}: tls_ciphers must be a list of OpenSSL ciphers"
        _check(requirement, ssl.create_default_context().set_ciphers, settings["tls_ciphers"])
    requirement = f"{where}: tls_client_cert and tls_client_key must be a certificate and its private key"
    _check(requirement, security.get_connection_args, "client")
    return security


def _check(requirement: str, function: Callable[..., object], *args: object) -> None:
    """Call a function that loads credentials, and raise `BadInputError` if the call fails."""
    try:
        function(*args)
    except (OSError, ValueError) as error:  # TLS errors are subclasses of OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        raise BadInputError(f"{requirement}, got {reason}") from None


def _read_pem(where: str, key: str, pem: object) -> str:
    """Return the text of a certificate or of a key, which is given as text or as the path of a file."""
    wanted = f"{where} must be a file in PEM format"
    if not isinstance(pem, str):
        raise BadInputError(f"{wanted}, got {short_repr(pem, key)}")
    try:
        text = pem if "\n" in pem else Path(pem).read_text(encoding="ascii", errors="ignore")
    except FileNotFoundError:
        raise BadInputError(f"{wanted}; no file exists at {short_repr(pem, key)}") from None
    except (OSError, ValueError) as error:  # a path with a null character raises ValueError
        raise BadInputError(f"{wanted}, got {getattr(error, 'strerror', None) or error}") from None
    if f"{_PARTS[key]}-----" not in text:
        raise BadInputError(f"{wanted} with a {_PARTS[key].lower()}, got none")
    if "ENCRYPTED" in text:
        raise BadInputError(f"{wanted} without a passphrase, got an encrypted key")
    return text
