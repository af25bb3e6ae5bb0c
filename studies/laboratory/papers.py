"""The five papers, with the assignment of studies, claims and figures to them."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """A paper and the studies that reproduce it.

    Attributes
    ----------
    key : str
        Key in the sources of claims.
    title, authors : str
        Title and authors as printed, with the venue.
    studies : tuple of str
        Studies whose claims and figures belong to the paper, unless they name another one.
    """

    key: str
    title: str
    authors: str
    studies: tuple[str, ...]


PAPERS = (
    Paper(
        "P0",
        "Tailoring Differentially Private Bayesian Inference to Distance Between Distributions",
        "Bun, Farina, Gaboardi & Liu, poster",
        ("hellinger-accuracy", "hellinger-distribution", "hellinger-limits", "hellinger-sensitivity", "privacy-audit"),
    ),
    Paper(
        "P1",
        "Differentially Private Bayesian Inference",
        "anonymous draft on the exponential mechanism with global, local, varying and smooth sensitivity",
        (),
    ),
    Paper(
        "P2",
        "Bayesian Inference Via Partitioning Under Differential Privacy",
        "Amitai, Master's thesis, Duke University 2018",
        ("partition-probability", "partition-quantile"),
    ),
    Paper(
        "P3",
        "Rényi Differential Privacy Mechanisms for Posterior Sampling",
        "Geumlek, Song & Chaudhuri, NeurIPS 2017",
        ("renyi-curves", "renyi-utility", "renyi-logistic", "renyi-audit"),
    ),
    Paper(
        "P4",
        "Differentially Private Bayesian Inference for Exponential Families",
        "Bernstein & Sheldon, NeurIPS 2018",
        ("calibration", "gibbs-traces"),
    ),
)
OTHER = Paper("other", "Other studies", "registered by other packages", ())
"""Placeholder for studies that are not about one of the five papers."""


def paper_of(study: str, text: str) -> Paper:
    """Return the paper that a text names first, or else that of its study.

    Parameters
    ----------
    study : str
        Name of the study.
    text : str
        Source of a claim, or title of a figure.

    Examples
    --------
    >>> paper_of("privacy-audit", "P1, section 1.2.2").title
    'Differentially Private Bayesian Inference'
    >>> paper_of("calibration", "check of this study").key, paper_of("mine", "").key
    ('P4', 'other')
    """
    named = re.search(r"\bP\d\b", text)
    for paper in PAPERS:
        if paper.key == named.group() if named else study in paper.studies:
            return paper
    return OTHER


def is_of_paper(source: str) -> bool:
    """Return whether a claim is a conclusion of a paper itself, not of this laboratory.

    Examples
    --------
    >>> is_of_paper("P3, section 5.1"), is_of_paper("this laboratory, on P3's conclusion")
    (True, False)
    """
    return re.match(r"P\d,", source) is not None
