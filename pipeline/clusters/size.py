"""Sizes of clusters: requested workers, and maximum number of threads."""

from distributed import Client

from pipeline.clusters.launch import make_launch
from pipeline.clusters.profiles import Profile


def requested_workers(profile: Profile, client: Client) -> int:
    """Return the number of requested workers of a cluster, at least 1; it is 1 for a scheduler at an address."""
    # clusters on Kubernetes have no attribute `plan`
    return max(1, profile.scale or 0, len(getattr(client.cluster, "plan", ())))


def most_threads(profile: Profile, client: Client) -> int:
    """Return the larger of the current and the maximum number of worker threads of a cluster, at least 1.

    An adaptive cluster starts workers only for queued tasks, so the queue must contain enough tasks for all threads.
    All workers are assumed to have the same number of threads. A scheduler at an address is assumed not to grow.
    """
    threads = list(client.nthreads().values())
    workers = max(requested_workers(profile, client), profile.adapt.get("maximum", 0))
    if "maximum_jobs" in profile.adapt:
        workers = max(workers, profile.adapt["maximum_jobs"] * make_launch(profile).kwargs["processes"])
    return max(sum(threads), workers * max(threads, default=1))
