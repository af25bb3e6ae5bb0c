"""Cluster profiles, and a strict reader of cluster files."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pipeline.clusters import rules
from pipeline.errors import BadInputError, require_known, unknown, unreadable_reason
from pipeline.redact import redact_text, short_repr

_LOCAL_FILE = "cluster.yaml"
_MOST_BYTES, _MOST_LEVELS, _MOST_VALUES = 10**6, 20, 10**5  # limits on the size of a cluster file
_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://[^@/\s]+:\d{1,5}")
_TEXT_OR_NUMBER = rules.Rule(
    "text or a number, in quotes where YAML reads it as another type",
    lambda value: isinstance(value, str | int | float) and not isinstance(value, bool),
)
_RULES = {
    "module": rules.TEXT,
    "class": rules.TEXT,
    "args": rules.LIST,
    "kwargs": rules.MAPPING,
    "address": rules.Rule(
        "of the form tcp://127.0.0.1:8786, with tls:// for TLS and without a user name",
        lambda value: isinstance(value, str) and _ADDRESS.fullmatch(value) is not None,
    ),
    "security": rules.MAPPING,
    "scale": rules.POSITIVE,
    "adapt": rules.MAPPING,
    "env": rules.MAPPING,
    "wait": rules.SECONDS,
}
_STARTED_ONLY = ("module", "args", "kwargs", "scale", "adapt", "env")
_ADAPT_RULES = {
    "minimum": rules.COUNT,
    "maximum": rules.POSITIVE,
    "minimum_jobs": rules.COUNT,
    "maximum_jobs": rules.POSITIVE,
    "interval": rules.DURATION,
    "wait_count": rules.POSITIVE,
    "target_duration": rules.DURATION,
}


@dataclass(frozen=True)
class Profile:
    """Cluster to be started from a class, or address of a running scheduler."""

    name: str
    module: str = "distributed"
    class_name: str = "LocalCluster"  # of the cluster in `module`
    args: tuple[Any, ...] = field(default=(), repr=False)
    kwargs: Mapping[str, Any] = field(default_factory=dict, repr=False)
    address: str | None = None  # of a running scheduler; no cluster is started
    # arguments of `distributed.Security`, for TLS
    security: Mapping[str, Any] = field(default_factory=dict, repr=False)
    scale: int | None = None  # requested workers
    adapt: Mapping[str, Any] = field(default_factory=dict)  # arguments of the ``adapt`` method of the cluster
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # of workers
    wait: float = 60  # maximum time in seconds to wait for the first worker

    @property
    def label(self) -> str:
        """Phrase for messages."""
        return f"profile {self.name}"

    @property
    def outlives_process(self) -> bool:
        """True if the scheduler continues after this process has ended."""
        return self.address is not None


THREADS = Profile("threads", kwargs={"processes": False, "n_workers": 1})


def load_profile(choice: str | None) -> Profile:
    """Return the profile for a ``--cluster`` option (``FILE``, ``FILE:PROFILE`` or a name), by default `THREADS`."""
    if choice is None:
        return THREADS
    if _ADDRESS.fullmatch(choice):
        raise BadInputError(
            f"a cluster must be a profile, got the address {choice}; name a profile with this address in "
            f"{_LOCAL_FILE}, or in Python pass a client of it"
        )
    path, name = split_choice(choice)
    if not path:
        raise BadInputError(f"{unknown('profile', name, profile_files())}; or pass FILE:PROFILE")
    profiles, default = _read_profiles(path)
    name = name or default or (next(iter(profiles)) if len(profiles) == 1 else "")
    if not name:
        raise BadInputError(f"{path} has several profiles: {', '.join(profiles)}; choose one with {path}:NAME")
    require_known("profile", [name], profiles, f"{path}: ")
    return _profile(name, profiles[name], f"{path}: profile {name}")


def profile_files() -> dict[str, str]:
    """Return the cluster file of each profile by name; ``./cluster.yaml`` adds to the profiles of this package."""
    files = [str(_shipped_file()), *([_LOCAL_FILE] if Path(_LOCAL_FILE).exists() else [])]
    return {name: file for file in files for name in _read_profiles(file)[0]}


def _shipped_file() -> Path:
    """Return the path of the cluster file of this package, which a checkout keeps at its top level."""
    installed = Path(__file__).with_name(_LOCAL_FILE)
    return installed if installed.exists() else Path(__file__).parents[2] / _LOCAL_FILE


def split_choice(choice: str) -> tuple[str, str]:
    """Return file and profile name of a ``--cluster`` option, or "" for an absent one; both may contain colons."""
    if re.fullmatch(r"[\w-]+", choice) and not Path(choice).exists():
        return profile_files().get(choice, ""), choice
    colons = [match.start() for match in re.finditer(":", choice)]
    splits = [(choice, ""), *((choice[:k], choice[k + 1 :]) for k in reversed(colons))]
    existing = [split for split in splits if Path(split[0]).is_file()]
    return existing[0] if existing else splits[min(1, len(colons))]


def _read_profiles(path: str) -> tuple[dict[str, Any], str]:
    """Return the profiles of a cluster file by name, and the name of the default profile or an empty string."""
    document = _read(path)
    rules.check_names(path, "key", document, ("default", "profiles"))
    rules.check_values(path, document, {"default": rules.TEXT, "profiles": rules.MAPPING})
    profiles = {str(key): entry for key, entry in document.get("profiles", {}).items()}
    if not profiles:
        raise BadInputError(f"{path}: profiles must contain at least one profile, got none")
    return profiles, document.get("default", "")


def _read(path: str) -> dict[str, Any]:
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise BadInputError(f"the cluster file {path} must be a regular file; choose another --cluster")
        with open(path, encoding="utf-8") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise BadInputError(f"the cluster file {path} must have at most {_MOST_BYTES:,} characters, got more")
        document = yaml.safe_load(text)
        _refuse_large(document)
    except OSError as error:
        raise BadInputError(
            f"cannot read the cluster file {path}: {error.strerror}; correct the path before the colon"
        ) from error
    except BadInputError:
        raise
    except RecursionError:
        raise BadInputError(
            f"{path} must have at most {_MOST_LEVELS} levels and {_MOST_VALUES:,} values, got more"
        ) from None
    except (yaml.YAMLError, ValueError) as error:  # the text of these errors quotes the file, which may contain secrets
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        if isinstance(error, UnicodeError):
            problem = unreadable_reason(error)
        raise BadInputError(
            f"{path} must be YAML: {' '.join(redact_text(problem).split())}{place}; correct it"
        ) from None
    if not isinstance(document, dict):
        raise BadInputError(f"{path} must be a mapping with the key profiles, got {short_repr(document)}; add it")
    return document


def _refuse_large(document: Any) -> None:
    """Raise `RecursionError` for content with too many levels or values, which a few YAML aliases can create."""
    stack, n_values = [(document, 0)], 0
    while stack:
        value, level = stack.pop()
        n_values += 1
        if level > _MOST_LEVELS or n_values > _MOST_VALUES:
            raise RecursionError
        if isinstance(value, Mapping | list):
            items = value.values() if isinstance(value, Mapping) else value
            stack += ((item, level + 1) for item in items)


def _profile(name: str, entry: Any, where: str) -> Profile:
    if not isinstance(entry, Mapping):
        raise BadInputError(f"{where} must be a mapping, got {short_repr(entry)}")
    if "storage_options" in entry:
        raise BadInputError(
            f"{where} must not have storage_options; for access to an object store, set environment variables such as "
            "AWS_ENDPOINT_URL or FSSPEC_S3_ANON in this process, and env in the profile for the workers"
        )
    rules.check_names(where, "key", entry, tuple(_RULES))
    rules.check_values(where, entry, _RULES)
    if ("address" in entry) == ("class" in entry):
        raise BadInputError(f"{where} must have either an address or a module and class, got {', '.join(entry)}")
    for key in _STARTED_ONLY:
        if "address" in entry and key in entry:
            raise BadInputError(f"{where}: {key} applies to started clusters, not to an address; remove it")
    if "class" in entry and "security" in entry:
        raise BadInputError(
            f"{where} must not have security with a class; add it to kwargs, such as {{security: true}}"
        )
    if "scale" in entry and "adapt" in entry:
        raise BadInputError(f"{where} must have scale or adapt, got both")
    if "adapt" in entry:
        _check_adapt(f"{where}: adapt", entry["adapt"])
    return Profile(
        name,
        module=entry.get("module", "distributed"),
        class_name=entry.get("class", ""),
        args=tuple(entry.get("args", ())),
        kwargs=_with_text_keys(entry.get("kwargs", {}), f"{where}: kwargs"),
        address=entry.get("address"),
        security=_with_text_keys(entry.get("security", {}), f"{where}: security"),
        scale=entry.get("scale"),
        adapt=entry.get("adapt", {}),
        env=_environment(entry.get("env", {}), f"{where}: env"),
        wait=entry.get("wait", Profile.wait),
    )


def _check_adapt(where: str, adapt: Mapping[str, Any]) -> None:
    rules.check_names(where, "key", adapt, tuple(_ADAPT_RULES))
    rules.check_values(where, adapt, _ADAPT_RULES)
    limits = [key for key in ("maximum", "maximum_jobs") if key in adapt]
    if len(limits) != 1:
        raise BadInputError(
            f"{where} must have maximum (workers) or maximum_jobs, such as {{minimum: 0, maximum: 10}}, "
            f"got {' and '.join(limits) or ', '.join(adapt) or 'nothing'}"
        )
    least = limits[0].replace("max", "min")
    other = "minimum" if least == "minimum_jobs" else "minimum_jobs"
    if other in adapt:  # in Dask, this minimum would override the maximum
        raise BadInputError(f"{where}: {limits[0]} must be combined with {least}, got {other}")
    if adapt.get(least, 0) > adapt[limits[0]]:
        raise BadInputError(f"{where}: {least} must be <= {limits[0]}, got {adapt[least]} > {adapt[limits[0]]}")


def _environment(variables: Mapping[Any, Any], where: str) -> dict[str, str]:
    """Return environment variables as text; a missing value is taken from the environment of this process."""
    env = {}
    for name, value in variables.items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise BadInputError(
                f"{where} must have names of letters, digits and _, got {short_repr(str(name))}; put a name in quotes "
                "where YAML reads it as another type"
            )
        if value is None:
            if name not in os.environ:
                raise BadInputError(
                    f"{where}: {name} has no value and is not set in this process; set it or add a value"
                )
            value = os.environ[name]
        rules.check_values(where, {name: value}, {name: _TEXT_OR_NUMBER})
        env[name] = str(value)
    return env


def _with_text_keys(settings: Mapping[Any, Any], where: str) -> Mapping[str, Any]:
    for key in settings:
        if not isinstance(key, str):
            raise BadInputError(f"{where} must have names as keys, got {short_repr(key)}")
    return settings
