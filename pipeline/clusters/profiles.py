"""Profiles of clusters: what ``cluster.yaml`` says of them, read strictly."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pipeline.errors import BadInputError, unknown

_DEFAULT_FILE = "cluster.yaml"
_KEYS = ("module", "class", "args", "kwargs", "address", "security", "scale", "adapt", "env", "wait")
_STARTED_ONLY = ("module", "args", "kwargs", "scale", "adapt", "env")
_ADAPT_KEYS = ("minimum", "maximum", "minimum_jobs", "maximum_jobs", "interval", "wait_count", "target_duration")


@dataclass(frozen=True)
class Profile:
    """How to get a cluster: start one of a class, or reach a scheduler at an address.

    Attributes
    ----------
    name : str
        Name of the profile.
    module, class_name : str
        Where the cluster's class is, such as ``distributed`` and ``LocalCluster``.
    args, kwargs : tuple, dict
        What it is called with.
    address : str or None
        Address of a running scheduler; then no cluster is started.
    security : dict
        Arguments of `distributed.Security`, for an address with TLS.
    scale : int or None
        Workers to ask for.
    adapt : dict
        Arguments of the cluster's ``adapt``.
    env : dict
        Environment of workers.
    wait : float
        Seconds to wait for a first worker.
    """

    name: str
    module: str = "distributed"
    class_name: str = "LocalCluster"
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    address: str | None = None
    security: Mapping[str, Any] = field(default_factory=dict)
    scale: int | None = None
    adapt: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    wait: float = 60

    @property
    def outlives_client(self) -> bool:
        """Whether tasks go on when the client is gone: only what we did not start do we not stop."""
        return self.address is not None


THREADS = Profile("threads", kwargs={"processes": False, "n_workers": 1})


def load_profile(choice: str | None) -> Profile:
    """Return the profile that ``--cluster`` names.

    Parameters
    ----------
    choice : str or None
        ``FILE``, ``FILE:PROFILE``, or the name of a profile in ``./cluster.yaml``; None for the built-in `THREADS`, for
        which no file is read. Of a file without a profile the only one is taken, or the one that its key ``default``
        names.

    Raises
    ------
    BadInputError
        If the file cannot be read, or holds a key that is not known.

    Examples
    --------
    >>> load_profile(None).name
    'threads'
    """
    if choice is None:
        return THREADS
    path, _, name = choice.partition(":")
    if re.fullmatch(r"[\w-]+", choice) and not Path(choice).exists():
        if not Path(_DEFAULT_FILE).exists():
            raise BadInputError(
                f"no file {choice}, and no {_DEFAULT_FILE} in this folder that could have a profile of that name; give "
                "FILE:PROFILE"
            )
        path, name = _DEFAULT_FILE, choice
    try:
        document = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise BadInputError(f"cannot read the cluster file {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} must be YAML: {' '.join(str(error).split())}") from error
    document = _mapping(document, path)
    _refuse_unknown(document, ("default", "profiles"), path)
    profiles = _mapping(document.get("profiles"), f"{path}: profiles")
    if not profiles:
        raise BadInputError(f"{path}: profiles must name at least one profile, got none")
    name = name or str(document.get("default", "")) or (next(iter(profiles)) if len(profiles) == 1 else "")
    if not name:
        raise BadInputError(f"{path} has several profiles: {', '.join(profiles)}; choose one with {path}:NAME")
    if name not in profiles:
        raise BadInputError(f"{path}: {unknown('profile', name, profiles)}")
    return _profile(name, _mapping(profiles[name], f"{path}: profile {name}"), f"{path}: profile {name}")


def _profile(name: str, given: Mapping[str, Any], where: str) -> Profile:
    _refuse_unknown(given, _KEYS, where)
    if ("address" in given) == ("class" in given):
        raise BadInputError(f"{where} must have either an address or a module and class, got {', '.join(given)}")
    address = given.get("address")
    if address is not None and not re.fullmatch(r"[a-z]+://.+:\d+", str(address)):
        raise BadInputError(f"{where}: address must be like tcp://127.0.0.1:8786, got {address!r}")
    for key in _STARTED_ONLY:
        if address is not None and key in given:
            raise BadInputError(f"{where}: {key} is for a cluster that is started, not for an address; remove it")
    if address is None and "security" in given:
        raise BadInputError(
            f"{where}: security is for an address; a class may take it in kwargs, as {{security: true}}"
        )
    if "scale" in given and "adapt" in given:
        raise BadInputError(f"{where} must have scale or adapt, got both")
    scale = given.get("scale")
    if scale is not None and (not isinstance(scale, int) or isinstance(scale, bool) or scale < 1):
        raise BadInputError(f"{where}: scale must be a whole number >= 1, got {scale!r}")
    wait = given.get("wait", Profile.wait)
    if not isinstance(wait, int | float) or isinstance(wait, bool) or not 0 < wait < float("inf"):
        raise BadInputError(f"{where}: wait must be a number of seconds > 0, got {wait!r}")
    if not isinstance(given.get("args", []), list):
        raise BadInputError(f"{where}: args must be a list, got {given['args']!r}")
    adapt = _mapping(given.get("adapt", {}), f"{where}: adapt")
    _refuse_unknown(adapt, _ADAPT_KEYS, f"{where}: adapt")
    if "adapt" in given and not {"maximum", "maximum_jobs"} & set(adapt):
        raise BadInputError(
            f"{where}: adapt must have a maximum of workers or maximum_jobs, as {{minimum: 0, maximum: 10}}, "
            f"got {', '.join(adapt) or 'nothing'}"
        )
    env = {str(key): str(value) for key, value in _mapping(given.get("env", {}), f"{where}: env").items()}
    return Profile(
        name,
        module=str(given.get("module", "distributed")),
        class_name=str(given.get("class", "")),
        args=tuple(given.get("args", ())),
        kwargs=_mapping(given.get("kwargs", {}), f"{where}: kwargs"),
        address=address,
        security=_mapping(given.get("security", {}), f"{where}: security"),
        scale=scale,
        adapt=adapt,
        env=env,
        wait=wait,
    )


def _refuse_unknown(given: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in allowed:
            raise BadInputError(f"{where}: {unknown('key', str(key), allowed)}")


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInputError(f"{where} must be a mapping, got {value!r}")
    return value
