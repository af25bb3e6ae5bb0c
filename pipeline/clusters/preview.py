"""What a profile would start, to be looked at first: arguments, job scripts, resources. Starts nothing."""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pipeline.clusters.cluster import Launch, Profile, job_script, make_launch
from pipeline.errors import BadInputError

_SECRET = re.compile("password|passphrase|secret|token", re.IGNORECASE)


def describe_launch(profile: Profile) -> dict[str, str]:
    """Say what a profile starts, as lines by their heads, without secrets; starts nothing.

    Parameters
    ----------
    profile : Profile
        A profile.

    Raises
    ------
    BadInputError
        If the cluster's class is not installed, or does not take the arguments.

    Examples
    --------
    >>> from pipeline.clusters.cluster import THREADS
    >>> describe_launch(THREADS)["workers"]
    'n_workers: 1'
    """
    if profile.address is not None:
        # paths of keys, no keys
        return {"reaches": profile.address, **({"security": _listed(profile.security)} if profile.security else {})}
    launch = make_launch(_masked(profile))
    if profile.adapt:
        workers = f"adapt to the work, {_listed(profile.adapt)}"
    elif profile.scale is not None:
        workers = f"scale: {profile.scale}"
    else:
        workers = (
            _listed({name: launch.kwargs[name] for name in ("n_workers", "hosts") if name in launch.kwargs})
            or "as many as the class decides"
        )
    environment = {**launch.plugin_env, **launch.kwargs.get("env", {})}
    hidden = ("env", "job_script_prologue") if launch.kind != "other" else ()
    return {
        "starts": f"{profile.module}.{profile.class_name}",
        **({"args": ", ".join(map(str, launch.args))} if launch.args else {}),
        "arguments": _listed({name: value for name, value in launch.kwargs.items() if name not in hidden}),
        "workers": workers,
        "environment": "as in the job script" if launch.kind == "batch" else _listed(environment) or "as this process",
    }


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def _masked(profile: Profile) -> Profile:
    """Return a profile fit to be shown: screens and logs are read by others."""

    def mask(values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: "***" if _SECRET.search(str(name)) else mask(value) if isinstance(value, Mapping) else value
            for name, value in values.items()
        }

    return replace(profile, kwargs=mask(profile.kwargs), env=mask(profile.env))


def launch_document(profile: Profile) -> str:
    """Return the job script that a batch system gets, or the resource that Kubernetes gets; empty for other clusters.

    Secrets are masked. Nothing is started or submitted.

    Raises
    ------
    BadInputError
        If the class is not installed, or does not take the arguments.
    """
    if profile.address is not None:
        return ""
    launch = make_launch(_masked(profile))
    try:
        if launch.kind == "batch":
            return job_script(launch)
        if launch.kind == "kubernetes":
            return yaml.safe_dump(_cluster_resource(launch, profile), sort_keys=False)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise BadInputError(f"the cluster of profile {profile.name} would not start: {reason}") from error
    return ""


def _cluster_resource(launch: Launch, profile: Profile) -> Any:
    from dask_kubernetes.operator import make_cluster_spec

    custom = launch.kwargs.get("custom_cluster_spec")
    if custom is not None:
        return yaml.safe_load(Path(custom).read_text()) if isinstance(custom, str) else custom
    taken = (
        "name",
        "image",
        "n_workers",
        "resources",
        "env",
        "worker_command",
        "scheduler_service_type",
        "idle_timeout",
    )
    given = {name: launch.kwargs[name] for name in taken if name in launch.kwargs}
    workers = {} if profile.scale is None else {"n_workers": profile.scale}
    return make_cluster_spec(**{"name": "dask-USER-ID", "n_workers": 0, **given, **workers})


def obstacle(profile: Profile) -> str:
    """Say why a cluster cannot be started from this machine; empty where it can be tried.

    Examples
    --------
    >>> from pipeline.clusters.cluster import THREADS
    >>> obstacle(THREADS)
    ''
    """
    if profile.address is not None:
        return ""
    launch = make_launch(profile)
    if launch.kind == "batch":
        command = launch.factory.job_cls.submit_command.split()[0]
        if shutil.which(command) is None:
            return f"{command} is not on the PATH of this machine; check again where jobs are submitted"
    if launch.kind == "kubernetes":
        account = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
        config = Path(os.environ.get("KUBECONFIG", "~/.kube/config").split(os.pathsep)[0]).expanduser()
        if not config.exists() and not account.exists():
            return f"there is no Kubernetes configuration at {config}; check again where there is"
    return ""
