"""Previews of clusters before they are started: arguments, job scripts and resources."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pipeline.clusters.launch import Launch, job_script, make_launch
from pipeline.clusters.profiles import Profile
from pipeline.errors import BadInputError
from pipeline.redact import format_error, redact, redact_text


def describe_launch(profile: Profile) -> dict[str, str]:
    """Return a description of the cluster of a profile as labelled lines, without secrets."""
    if profile.address is not None:
        security = {"security": _listed(redact(profile.security))} if profile.security else {}
        return {"reaches": redact_text(profile.address), **security}
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
        **({"args": ", ".join(map(str, redact(launch.args)))} if launch.args else {}),
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
            return redact_text(job_script(launch))
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
    """Return the reason why a cluster cannot be started from this machine, or "" if it can."""
    if profile.address is not None:
        return ""
    launch = make_launch(profile)
    if launch.kind == "batch":
        command = launch.factory.job_cls.submit_command.split()[0]
        if shutil.which(command) is None:
            return (
                f"{command} is not on the PATH of this machine; use a machine where jobs are submitted, or run --share "
                "without a cluster"
            )
    if launch.kind == "kubernetes":
        account = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
        config = Path(os.environ.get("KUBECONFIG", "~/.kube/config").split(os.pathsep)[0]).expanduser()
        if not config.exists() and not account.exists():
            return f"no Kubernetes configuration at {config}; use a machine with one"
    return ""
