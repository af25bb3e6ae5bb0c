"""Calls that start clusters, built from profiles with checked arguments.

Worker processes use one BLAS, OpenMP and numba thread per worker thread, since trials run in parallel. By default,
local clusters and dashboards listen on the loopback interface, and clusters use temporary TLS credentials if they
support them: every client of a scheduler can run code as the scheduler's user.
"""

import copy
import importlib
import importlib.util
import inspect
import logging
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import dask
import yaml
from distributed import LocalCluster, Nanny, SpecCluster, SSHCluster, Worker
from distributed.deploy.cluster import Cluster
from distributed.security import Security

from pipeline.clusters import rules
from pipeline.clusters.profiles import Profile
from pipeline.errors import BadInputError
from pipeline.redact import format_error, redact, redact_text

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
_HERE = "127.0.0.1:0"
_EXTRA = ("asyncssh", "dask_jobqueue", "dask_kubernetes")
_COMMON_RULES = {
    "interface": rules.TEXT,
    "host": rules.TEXT,
    "protocol": rules.TEXT,
    "security": rules.Rule(
        "true for temporary TLS credentials, the default; use protocol: tcp:// for none", lambda value: value is True
    ),
}
_LOCAL_RULES = {
    **_COMMON_RULES,
    "n_workers": rules.COUNT,
    "threads_per_worker": rules.POSITIVE,
    "processes": rules.FLAG,
    "memory_limit": rules.MEMORY_LIMIT,
    "lifetime": rules.DURATION,
    "lifetime_stagger": rules.DURATION,
    "env": rules.MAPPING,
    "preload": rules.TEXT_OR_TEXTS,
    "scheduler_kwargs": rules.MAPPING,
}
_SSH_RULES = {
    "hosts": rules.Rule(
        "a list of the scheduler's host and at least one host of workers",
        lambda value: rules.TEXTS.accepts(value) and len(value) > 1,
    ),
    "scheduler_options": rules.MAPPING,
    "worker_options": rules.MAPPING,
    "remote_python": rules.TEXT_OR_TEXTS,
}
_BATCH_RULES = {
    **_COMMON_RULES,
    "cores": rules.POSITIVE,
    "processes": rules.POSITIVE,
    "memory": rules.SIZE,
    # without quotes YAML reads 01:00:00 as 3,600, which a batch system interprets as minutes
    "walltime": rules.Rule('text in quotes, such as "01:00:00"', rules.TEXT.accepts),
    "n_workers": rules.COUNT,
    "queue": rules.TEXT,
    "account": rules.TEXT,
    "python": rules.TEXT,
    "job_script_prologue": rules.TEXTS,
    "job_extra_directives": rules.TEXTS,
    "worker_extra_args": rules.TEXTS,
    "scheduler_options": rules.MAPPING,
}
_KUBERNETES_RULES = {
    "name": rules.TEXT,
    "namespace": rules.TEXT,
    "image": rules.TEXT,
    "n_workers": rules.COUNT,
    "worker_command": rules.TEXT_OR_TEXTS,
    "resources": rules.MAPPING,
}


@dataclass(frozen=True)
class Launch:
    """Call that starts a cluster, after the positional arguments of its profile: class and keyword arguments."""

    factory: Any
    kind: str  # "local", "ssh", "batch" (any class of dask-jobqueue), "kubernetes" or "other"
    kwargs: dict[str, Any] = field(repr=False)
    # set in workers by a plugin, for classes without an argument
    plugin_env: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def obstacle(self) -> str:
        """Reason why the cluster cannot be started from this machine, or an empty string."""
        if self.kind == "batch":
            command = self.factory.job_cls.submit_command.split()[0]
            if shutil.which(command) is None:
                return (
                    f"{command} is not on the PATH of this machine; use a machine where jobs are submitted, or run "
                    "--share without a cluster"
                )
        if self.kind == "kubernetes":
            account = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
            config = Path(os.environ.get("KUBECONFIG", "~/.kube/config").split(os.pathsep)[0]).expanduser()
            if not config.exists() and not account.exists():
                return f"no Kubernetes configuration at {config}; use a machine with one"
        return ""


def make_launch(profile: Profile) -> Launch:
    """Return the call that starts the cluster of a profile, without executing it."""
    where = f"profile {profile.name}"
    factory = _find_class(profile)
    kwargs = copy.deepcopy(dict(profile.kwargs))
    env = {**ONE_THREAD, **profile.env}
    if factory is LocalCluster:
        _check_arguments(where, kwargs, _LOCAL_RULES, LocalCluster, Nanny, Worker)
        _check_growth(profile, factory)
        return _local_launch(profile, kwargs, env)
    if factory is SSHCluster:
        _check_arguments(where, kwargs, _SSH_RULES, SSHCluster, SpecCluster)
        if profile.adapt or profile.scale is not None:
            raise BadInputError(
                f"{where} must not have scale or adapt, since an SSHCluster starts one worker per host; remove them"
            )
        for options in ("scheduler_options", "worker_options"):
            kwargs[options] = {"dashboard_address": _HERE, **kwargs.get(options, {})}
        kwargs.setdefault("silence_logs", logging.WARNING)
        return Launch(factory, "ssh", kwargs, env)
    if hasattr(factory, "job_cls"):
        _check_arguments(where, kwargs, _BATCH_RULES, factory, factory.job_cls)
        _check_growth(profile, factory, "_jobs")
        return _batch_launch(profile, factory, kwargs, env)
    if profile.module.startswith("dask_kubernetes"):
        _check_arguments(where, kwargs, _KUBERNETES_RULES, factory)
        _check_growth(profile, factory)
        kwargs.setdefault("quiet", True)
        if "env" in kwargs:
            raise BadInputError(f"{where}: env must be a key of the profile, not of kwargs; move it")
        # the scheduler, which the operator queries, reads its target duration from an environment variable
        env["DASK_DISTRIBUTED__ADAPTIVE__TARGET_DURATION"] = "1s"
        if "custom_cluster_spec" in kwargs:  # the custom spec defines the pods, and the class ignores env
            return Launch(factory, "kubernetes", kwargs, env)
        return Launch(factory, "kubernetes", {**kwargs, "env": env})
    _check_growth(profile, factory)
    return Launch(factory, "other", kwargs, env)


def _find_class(profile: Profile) -> Any:
    """Return the cluster class of a profile without calling it."""
    requirement = (
        f"profile {profile.name} must name an installed cluster class, got {profile.module}.{profile.class_name}"
    )
    try:
        cluster_class = getattr(importlib.import_module(profile.module), profile.class_name)
        if cluster_class is SSHCluster and importlib.util.find_spec("asyncssh") is None:
            raise ModuleNotFoundError("No module named 'asyncssh'", name="asyncssh")
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        missing = (getattr(error, "name", None) or "").partition(".")[0]
        hint = "; pip install 'dpstudies[cluster]'" if missing in _EXTRA else ""
        raise BadInputError(f"{requirement}: {format_error(error)}{hint}") from error
    if cluster_class is SSHCluster:
        return cluster_class  # a function
    # some classes have the methods of Dask's cluster class without deriving from it
    methods = ("scale", "adapt", "close")
    if (
        not inspect.isclass(cluster_class)
        or cluster_class is Cluster
        or not all(hasattr(cluster_class, method) for method in methods)
    ):
        raise BadInputError(
            f"{requirement}, which is not a cluster class: a cluster class has the methods {', '.join(methods)}"
        )
    return cluster_class


def _check_arguments(where: str, kwargs: Mapping[str, Any], allowed: Mapping[str, rules.Rule], *takers: Any) -> None:
    """Raise `BadInputError` for arguments that no class or function in `takers` accepts, and for invalid values."""
    names = [name for taker in takers for name in _parameters(taker)]
    rules.check_names(where, "argument", kwargs, list(dict.fromkeys(names)))
    rules.check_values(where, kwargs, allowed)


@cache
def _parameters(taker: Any) -> tuple[str, ...]:
    """Return the names of the arguments of a function, or of a class and its bases."""
    functions = [getattr(base, "__init__") for base in taker.__mro__[:-1]] if inspect.isclass(taker) else [taker]  # noqa: B009
    return tuple(
        name
        for function in functions
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self" and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    )


def _check_growth(profile: Profile, factory: Any, *ends: str) -> None:
    """Raise `BadInputError` for keys of `adapt` that the cluster class does not accept."""
    for name in profile.adapt:
        if name.endswith("_jobs") and "_jobs" not in ends:
            raise BadInputError(
                f"profile {profile.name}: adapt: {name} applies only to batch systems; use {name.removesuffix('_jobs')}"
            )
    parameters = inspect.signature(factory.adapt).parameters.values()
    if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
        allowed = [parameter.name for parameter in parameters if parameter.name != "self"]
        rules.check_names(f"profile {profile.name}: adapt", "key", profile.adapt, allowed)


def _local_launch(profile: Profile, kwargs: dict[str, Any], env: Mapping[str, str]) -> Launch:
    if kwargs.get("n_workers") == 0 and not profile.adapt and profile.scale is None:
        raise BadInputError(f"profile {profile.name}: n_workers must be >= 1, or 0 with adapt or scale, got 0")
    in_process = not kwargs.get("processes", True)
    defaults = {
        "dashboard_address": _HERE,
        "worker_dashboard_address": _HERE,
        "silence_logs": logging.WARNING,
        "threads_per_worker": available_cores() if in_process else 1,
    }
    kwargs = {**defaults, **kwargs}
    if in_process:
        return Launch(LocalCluster, "local", kwargs, dict(profile.env))
    # this is the first preload module, so that the user's modules can override its settings
    preload = kwargs.get("preload", [])
    kwargs["preload"] = ["pipeline.clusters.preload", *([preload] if isinstance(preload, str) else preload)]
    kwargs["env"] = {**env, **kwargs.get("env", {})}
    if not {"protocol", "security"} & kwargs.keys() and "://" not in kwargs.get("host", ""):
        kwargs["security"] = True
    return Launch(LocalCluster, "local", kwargs)


def _batch_launch(profile: Profile, factory: Any, kwargs: dict[str, Any], env: Mapping[str, str]) -> Launch:
    """Return the launch for a batch system, after adding environment and dashboard addresses to its arguments."""
    section = kwargs.get("config_name") or factory.job_cls.config_name

    def setting(name: str, default: Any) -> Any:
        stated = kwargs.get(name)
        return dask.config.get(f"jobqueue.{section}.{name.replace('_', '-')}", default) if stated is None else stated

    exports = [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    launch = Launch(
        factory,
        "batch",
        {
            **kwargs,
            "silence_logs": kwargs.get("silence_logs", logging.WARNING),
            "job_script_prologue": [*exports, *setting("job_script_prologue", [])],
            "worker_extra_args": ["--dashboard-address", _HERE, *setting("worker_extra_args", [])],
            "scheduler_options": {"dashboard_address": _HERE, **setting("scheduler_options", {})},
        },
    )
    try:
        job = _example_job(launch)
    except (TypeError, ValueError) as error:
        raise BadInputError(
            f"profile {profile.name} must have arguments that {profile.class_name} accepts: {format_error(error)}"
        ) from error
    if job.worker_processes > job.worker_cores:
        raise BadInputError(
            f"profile {profile.name}: processes must be <= cores, got {job.worker_processes} > {job.worker_cores}"
        )
    # the class assigns workers to jobs by this number, but does not store its computed value
    launch.kwargs["processes"] = job.worker_processes
    return launch


def _example_job(launch: Launch) -> Any:
    """Return a job object of a batch system, as used for its script, without submitting it or starting a scheduler."""
    of_the_cluster = inspect.signature(launch.factory).parameters.keys() - {"config_name", "interface", "protocol"}
    of_the_job = {name: value for name, value in launch.kwargs.items() if name not in of_the_cluster}
    if launch.kwargs.get("security"):
        files = {f"tls_worker_{part}": f"FOLDER/{part}" for part in ("cert", "key")}
        of_the_job |= {"protocol": "tls://", "security": Security(tls_ca_file="FOLDER/ca_file", **files)}
    scheme = "tls" if launch.kwargs.get("security") else "tcp"
    return launch.factory.job_cls(f"{scheme}://SCHEDULER:PORT", name="NAME", **of_the_job)


def available_cores() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_launch(profile: Profile) -> dict[str, str]:
    """Return a description of the cluster of a profile as labelled lines, without secrets."""
    if profile.address is not None:
        security = {"security": _listed(redact(profile.security))} if profile.security else {}
        return {"address": redact_text(profile.address), **security}
    launch = make_launch(profile)
    if profile.adapt:
        workers = f"adapt to the work, {_listed(profile.adapt)}"
    elif profile.scale is not None:
        workers = f"scale: {profile.scale}"
    else:
        workers = (
            _listed(redact({name: launch.kwargs[name] for name in ("n_workers", "hosts") if name in launch.kwargs}))
            or "number chosen by the class"
        )
    environment = _listed(redact({**launch.plugin_env, **launch.kwargs.get("env", {})})) or "as this process"
    hidden = ("env", "job_script_prologue") if launch.kind != "other" else ()
    return {
        "starts": f"{profile.module}.{profile.class_name}",
        **({"args": ", ".join(map(str, redact(profile.args)))} if profile.args else {}),
        "arguments": _listed(redact({name: value for name, value in launch.kwargs.items() if name not in hidden})),
        "workers": workers,
        "environment": "as in the job script" if launch.kind == "batch" else environment,
    }


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def launch_document(profile: Profile) -> str:
    """Return the job script or Kubernetes resource of a profile without secrets, or "" for other clusters."""
    if profile.address is not None:
        return ""
    launch = make_launch(replace(profile, env=redact(profile.env)))
    try:
        if launch.kind == "batch":
            return redact_text(_example_job(launch).job_script())
        if launch.kind == "kubernetes":
            return yaml.safe_dump(redact(_cluster_resource(launch, profile)), sort_keys=False)
    except Exception as error:
        raise BadInputError(f"the cluster of profile {profile.name} would not start: {format_error(error)}") from error
    return ""


def _cluster_resource(launch: Launch, profile: Profile) -> Any:
    from dask_kubernetes.operator import make_cluster_spec

    custom = launch.kwargs.get("custom_cluster_spec")
    if custom is not None:
        return yaml.safe_load(Path(custom).read_text()) if isinstance(custom, str) else custom
    taken = launch.kwargs.keys() & inspect.signature(make_cluster_spec).parameters.keys()
    settings = {name: launch.kwargs[name] for name in taken}
    workers = {} if profile.scale is None else {"n_workers": profile.scale}
    return make_cluster_spec(**{"name": "dask-USER-ID", "n_workers": 0, **settings, **workers})


def obstacle(profile: Profile) -> str:
    """Return the reason why a cluster cannot be started from this machine, or "" if it can."""
    return "" if profile.address is not None else make_launch(profile).obstacle
