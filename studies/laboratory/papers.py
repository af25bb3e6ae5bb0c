"""The five papers whose conclusions the studies check."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """A paper.

    Attributes
    ----------
    key : str
        Key in studies, claims and errata.
    title, authors : str
        Title and authors as printed, with the venue.
    """

    key: str
    title: str
    authors: str


PAPERS = (
    Paper(
        "P0",
        "Tailoring Differentially Private Bayesian Inference to Distance Between Distributions",
        "Bun, Farina, Gaboardi & Liu, poster",
    ),
    Paper(
        "P1",
        "Differentially Private Bayesian Inference",
        "anonymous draft on the exponential mechanism with global, local, varying and smooth sensitivity",
    ),
    Paper(
        "P2",
        "Bayesian Inference Via Partitioning Under Differential Privacy",
        "Amitai, Master's thesis, Duke University 2018",
    ),
    Paper(
        "P3",
        "Rényi Differential Privacy Mechanisms for Posterior Sampling",
        "Geumlek, Song & Chaudhuri, NeurIPS 2017",
    ),
    Paper(
        "P4",
        "Differentially Private Bayesian Inference for Exponential Families",
        "Bernstein & Sheldon, NeurIPS 2018",
    ),
)
OTHER = Paper("other", "Other studies", "registered by other packages")
"""Placeholder for studies that are not about one of the five papers."""
