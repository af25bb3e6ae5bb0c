"""Papers whose conclusions the studies check."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """Paper whose conclusions the studies check."""

    key: str  # in studies, claims and errata
    title: str
    authors: str  # with the venue, as printed
    short: str  # authors and year, next to the key where the title has no room
    url: str = ""  # of the text; empty if it is not published


PAPERS = (
    Paper(
        "P0",
        "Tailoring Differentially Private Bayesian Inference to Distance Between Distributions",
        "Bun, Farina, Gaboardi & Liu, poster",
        "Bun et al., poster",
    ),
    Paper(
        "P1",
        "Differentially Private Bayesian Inference",
        "anonymous draft on the exponential mechanism with global, local, varying and smooth sensitivity",
        "anonymous draft",
    ),
    Paper(
        "P2",
        "Bayesian Inference Via Partitioning Under Differential Privacy",
        "Amitai, Master's thesis, Duke University 2018",
        "Amitai 2018",
        "https://hdl.handle.net/10161/17061",
    ),
    Paper(
        "P3",
        "Rényi Differential Privacy Mechanisms for Posterior Sampling",
        "Geumlek, Song & Chaudhuri, NeurIPS 2017",
        "Geumlek et al. 2017",
        "https://arxiv.org/abs/1710.00892",
    ),
    Paper(
        "P4",
        "Differentially Private Bayesian Inference for Exponential Families",
        "Bernstein & Sheldon, NeurIPS 2018",
        "Bernstein & Sheldon 2018",
        "https://arxiv.org/abs/1809.02188",
    ),
    Paper(
        "P5",
        "Differentially Private Bayesian Linear Regression",
        "Bernstein & Sheldon, NeurIPS 2019",
        "Bernstein & Sheldon 2019",
        "https://arxiv.org/abs/1910.13153",
    ),
)
OTHER = Paper("other", "Other studies", "not about one of these papers", "")
"""Placeholder for studies that are not about one of `PAPERS`, such as those of other packages."""
