"""Typical mistakes of new users: each is refused on one line that names the remedy, and leaves no file behind."""

import shlex

import pytest

from studies.commands import creating

SECRET = "48151.62342"
FILES = {
    "people.csv": f"income,age,region\n{SECRET},30,north\n2000,40,south\n",
    "text.csv": f"income\n{SECRET}\nabc\n",
    "thousands.csv": 'income\n"48,151"\n"2,000"\n',
    "missing.csv": f"income,age\n{SECRET},30\n,40\n",
    "semicolons.csv": f"income;age\n{SECRET};30\n",
    "only_names.csv": "income,age\n",
    "nothing.csv": "",
    "not_a_study.py": "STUDY = 3\n",
    "no_study.py": "x = 1\n",
    "syntax.py": "def f(:\n",
    "misspelt.py": "from pipeline import Study\n\nSTUDY = Study(label='x')\n",
}
MEAN, HISTOGRAM = (
    "mean people.csv --column income --epsilon 1 --yes",
    "histogram people.csv --column region --epsilon 1",
)
MISTAKES = {
    "run mine --store new.zarr": "or a .py file (did you mean the file mine.py?), or module:object",
    "run mine.zarr --store new.zarr": "unknown study 'mine.zarr'; allowed: hellinger-",
    "run mine.py": "Missing option '--store'; see 'dpstudies run --help'",
    "run gone.py --store new.zarr": "correct the path, or write an example with: dpstudies new study gone",
    "run noise.py:MECHANISM --store new.zarr": "audit a mechanism with: dpstudies audit noise.py:MECHANISM",
    "run not_a_study.py --store new.zarr": "must be a Study, got int; assign a pipeline.Study to STUDY",
    "run no_study.py --store new.zarr": "'dpstudies new study NAME' writes an example",
    "run syntax.py --store new.zarr": "syntax.py, line 1: SyntaxError: invalid syntax",
    "run misspelt.py --store new.zarr": "misspelt.py, line 3: TypeError: Study.__init__() got an unexpected keyword",
    "run people.csv --store new.zarr": "unknown study 'people.csv'",
    "run mine.py --store people.csv": "people.csv",
    "run mine.py --store new.zarr --trials 0": "trials must be >= 1, got 0",
    "run mine.py --store new.zarr --seed -1": "seed must be >= 0, got -1",
    "run mine.py --store new.zarr --set n=5,abc": "n must be an integer, got 'abc'",
    "run mine.py --store new.zarr --set tails=none": "unknown tails 'none'; allowed: heavy, light",
    "run mine.py --store new.zarr --set m=5": "unknown factor 'm'; allowed: algorithm, n, tails",
    "run mine.py --store new.zarr --panel mains": "did you mean main?",
    "run mine.py --store new.zarr --share 0/3": "a share must be K/M with 1 <= K <= M",
    "run mine.py --store new.zarr --cluster slrum": "did you mean slurm?",
    "run mine.py --store new.zarr --until small": "until must be",
    "report people.csv": "people.csv exists but is not a result store; choose another path",
    "report gone.zarr": "no result store at gone.zarr; run a study with --store gone.zarr first",
    "status mine.py": "mine.py exists but is not a result store",
    "merge gone.zarr --store new.zarr": "no result store at gone.zarr",
    "audit noise.py --epsilon 1": "MECHANISM is a mechanism; audit it with",
    "audit noise.py:WRONG --epsilon 1": "unknown object of noise.py 'WRONG'; allowed: MECHANISM",
    "audit noise.py:MECHANISM --epsilon 1": "give both, e.g. --prior 1:1 --n 100",
    "audit laplce --epsilon 1 --prior 1:1 --n 5": "did you mean laplace?",
    f"{MEAN}": "range must be given, got none; choose it without looking at the records",
    f"{MEAN} --range 200000": "a finite width, in numbers such as 1000 or -0.5, got '200000'; e.g. 0:200000",
    f"{MEAN} --range 0,200000": "range must be LOW:HIGH with LOW < HIGH and a finite width, in numbers",
    f"{MEAN} --range 0:9 --plot figure.pdf": "plot must be a .svg or .png file",
    f"{MEAN} --range 0:9 --budget 3": "--ledger must be given with --budget",
    "mean people.csv --column Income --range 0:9 --epsilon 1 --yes": "did you mean income? Allowed: income, age",
    "mean people.csv --column region --range 0:9 --epsilon 1 --yes": "column 'region' must be a finite number",
    "mean text.csv --column income --range 0:9 --epsilon 1 --yes": "in data row 2; convert that row or remove it",
    "mean thousands.csv --column income --range 0:9 --epsilon 1 --yes": "write 1000, not 1,000",
    "mean missing.csv --column income --range 0:9 --epsilon 1 --yes": "impute or remove missing values",
    "mean semicolons.csv --column income --range 0:9 --epsilon 1 --yes": "its fields must be separated by commas",
    "mean only_names.csv --column income --range 0:9 --epsilon 1 --yes": "must have at least one row, got none",
    "mean nothing.csv --column income --range 0:9 --epsilon 1 --yes": "must name every column, got an empty line",
    "mean gone.csv --column income --range 0:9 --epsilon 1 --yes": "no table at gone.csv; check the path",
    "count people.csv --where age --epsilon 1 --yes": "with a column of people.csv: income, age, region",
    "count people.csv --epsilon 1 --yes": "on a column of the file: income, age, region",
    "count people.csv --where Age>65 --epsilon 1 --yes": "did you mean age? Allowed: income, age, region",
    HISTOGRAM: "one of --categories, --edges and --range must be given, got none",
    f"{HISTOGRAM} --edges 1:2 --yes": "column 'region' must be a finite number",
    f"{HISTOGRAM} --edges= --yes": "edges must be ascending numbers, such as 1000 or -0.5, got ''; e.g. 0:20:40",
    f"{HISTOGRAM} --range= --yes": "range must be LOW:HIGH with LOW < HIGH and a finite width, in numbers",
    f"{HISTOGRAM} --range=-1e308:1e308 --yes": "a finite width, in numbers such as 1000 or -0.5, got '-1e308",
    f"{MEAN} --range=": "range must be LOW:HIGH with LOW < HIGH and a finite width, in numbers",
    "regress people.csv --target income --epsilon 1 --yes": "if it is text, give its public levels, --levels age=A,B",
    "regress people.csv --target income --features age --range income=0:9 --epsilon 1 --yes": "--range age=0:100",
    "partition people.csv --target income --coefficient age --partitions 9 --epsilon 1": "either --cutoffs or --prob",
    "new mechanism noise": "noise.py must not exist, because it would be overwritten; choose another name",
    "new study 2fast": "the name must be that of a new Python module",
    "infer people.csv --levels region": "unknown column 'value'; allowed: income, age, region",
    "serve gone.zarr": "gone.zarr",
    "site lab": "with the store of a study, got lab; compute one with: dpstudies run all --store lab",
    "site --output .": ". exists and is not a site; choose another folder with --output",
    "findings lab": "no result store at lab",
    "summarize gone.zarr": "no result store at gone.zarr",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistake_is_refused_on_one_line_with_a_remedy(command, tmp_path, line):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for kind, name in (("study", "mine"), ("mechanism", "noise")):
        getattr(creating, kind)(name)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    code, out, err = command(*shlex.split(line.replace("Age>65", "'Age>65'")))
    assert (code, err.count("\n")) == (2, 1), err
    assert err.startswith("dpstudies: ")
    assert MISTAKES[line] in err
    assert SECRET not in out + err
    assert "Traceback" not in err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
