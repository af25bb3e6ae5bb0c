"""Advice on the wording of docstrings, comments, messages and documents: phrases that technical English seldom uses.

    python tests/language/advise.py [PATH ...]

The advice does not fail any check, since a sentence that follows every rule may be worse than one that does not. Words
alone are checked by codespell with `glossary.txt`, and the mood of docstrings by ruff's rule D401.
"""

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("mechanisms", "pipeline", "studies", "tests", ".github")
FILES = [
    path
    for path in (*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))))
    if path.suffix in (".py", ".md") and path != Path(__file__)
]
OPENING = re.compile(r"(What|How|Where|Whether|Who|When|Which|That|Of|It|They|Those)\b(?!ever)")
UNIT = r"(row|cell|trial|block|task|draw|data set|record|point|setting|panel|iteration|chunk|worker|mechanism|study)"
COUNTED = r"(line|column|value|time|second|request|byte|draw|trial|uniform|nat|step|iteration|record|call|millisecond)"
PHRASES = {
    r"\bwhole numbers?\b": "integer",
    r"\bpieces? of work\b": "work item, block",
    r"\bgo(es)? on\b|\bgoing on\b|\bwent on\b": "continue, resume",
    r"\bone's own\b": "custom, your own X",
    r"\b(is|are) told\b": "is reported, printed, recorded",
    r"\blooked for\b": "searched",
    r"\bin vain\b|\ba hair\b|\bat its word\b|\bsigns of life\b|\b(its|their) own affair\b": "say it literally",
    rf"\b{COUNTED}s? an? {UNIT}\b": "X per Y",
    r"\b(is|are) wanted\b|\bwhat is given\b|\bwhat there is\b": "is requested, is specified",
    r"\bhow many\b": "number of",
    r"\bmethods? more\b": "additional methods",
    r"\bwhat (ends|became|becomes|comes|goes|lies|stands|holds|makes|is|was)\b": "name the thing",
}
ANY_PHRASE = re.compile("|".join(PHRASES), re.IGNORECASE)


def prose(path: Path) -> list[tuple[int, str, bool]]:
    """Return the prose of a file, without code in backticks, as tuples (line, text, whether it opens a docstring)."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        outside_code = re.sub(r"^```.*?^```", lambda match: "\n" * match.group().count("\n"), source, flags=re.M | re.S)
        sentences = [(number, line, False) for number, line in enumerate(outside_code.splitlines(), 1)]
    else:
        sentences = _prose_of_code(source)
    return [(line, re.sub(r"`[^`]*`", "", text), opens) for line, text, opens in sentences]


def _prose_of_code(source: str) -> list[tuple[int, str, bool]]:
    found = [
        (token.start[0], token.string.lstrip("# "), False)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        node.body[0].value for node in ast.walk(tree) if isinstance(node, documented) and ast.get_docstring(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            lines = [line for line in node.value.splitlines() if not line.lstrip().startswith((">>>", "..."))]
            found += [(node.lineno, line, node in docstrings and i == 0) for i, line in enumerate(lines)]
    return found


def complaints(text: str, opens: bool) -> list[str]:
    """Return one message for each phrase in a text that should be replaced by a standard wording."""
    found = []
    if ANY_PHRASE.search(text):
        matches = ((re.search(phrase, text, re.IGNORECASE), better) for phrase, better in PHRASES.items())
        found = [f"{match.group()!r}: {better}" for match, better in matches if match]
    if opens and (match := OPENING.match(text)):
        found.append(f"opens with {match.group()!r}: imperative verb or noun phrase")
    return found


def main(paths: list[Path]) -> None:
    """Print the advice on each file, one line per phrase."""
    for path in paths:
        for line, text, opens in prose(path):
            for complaint in complaints(text, opens):
                print(f"{path}:{line}: {complaint}")


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]] or FILES)
