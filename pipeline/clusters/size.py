"""Sizes of clusters: the workers that were requested, and the threads that an adaptive cluster may grow to."""

from distributed import Client

from pipeline.clusters.launch import make_launch
from pipeline.clusters.profiles import Profile


def requested_workers(profile: Profile, client: Client) -> int:
    """Return the number of workers that the cluster of a profile was asked for, at least 1.

    A scheduler at an address was asked by someone else: 1.

    Examples
    --------
    >>> from pipeline.clusters.cluster import THREADS, connect
    >>> with connect(THREADS) as client:
    ...     requested_workers(THREADS, client)
    1
    """
    # clusters of Kubernetes have no plan
    return max(1, profile.scale or 0, len(getattr(client.cluster, "plan", ())))


def most_threads(profile: Profile, client: Client) -> int:
    """Return the largest number of worker threads that the cluster of a profile has or may grow to, at least 1.

    An adaptive cluster starts workers only for tasks that are queued, so the queue must hold enough for this number.
    Workers are taken to be alike. A scheduler at an address has what it has now.

    Parameters
    ----------
    profile : Profile
        The profile from which the cluster was started.
    client : distributed.Client
        A client of the cluster, from `pipeline.clusters.cluster.connect`.

    Examples
    --------
    >>> from pipeline.clusters.cluster import connect
    >>> profile = Profile("p", kwargs={"processes": False, "threads_per_worker": 2}, adapt={"minimum": 1, "maximum": 4})
    >>> with connect(profile) as client:
    ...     most_threads(profile, client)
    8
    """
    threads = list(client.nthreads().values())
    workers = max(requested_workers(profile, client), profile.adapt.get("maximum", 0))
    if "maximum_jobs" in profile.adapt:
        workers = max(workers, profile.adapt["maximum_jobs"] * make_launch(profile).kwargs["processes"])
    return max(sum(threads), workers * max(threads, default=1))
