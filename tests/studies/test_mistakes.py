"""Typical mistakes of new users: each is refused on one line that names the remedy, and leaves no file behind."""

import gzip
import re
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
    "latin.csv": b"income,region\n48151.62342,M\xfcnchen\n",
    "latin.py": b"# \xff\n",
    "latin.yaml": b"\xff\n",
    "latin.json": b"\xff\n",
    "half.csv.gz": gzip.compress(f"income\n{SECRET}\n".encode() * 99)[:40],
    "bytes.csv": bytes(range(256)),
    "open.csv": f'income,age\n"{SECRET},2\n',
    "headless.csv": f"{SECRET},30\n",
    "text.parquet": SECRET,
    "empty.zarr/zarr.json": "",
    "other.json": '{"a": 1}\n',
    "half.json": '{\n "release": ',
}
MEAN = "mean people.csv --column income --epsilon 1 --yes"
HISTOGRAM = "histogram people.csv --column region --epsilon 1"
MISTAKES = {
    "run mine --store new.zarr": "or a .py file (did you mean the file mine.py?), or module:object",
    "run hellinger-accurcy --store new.zarr": "did you mean hellinger-accuracy",
    "run absent_module:x --store new.zarr": "cannot load the study absent_module:x",
    "run mine.py --store nope://bucket/s.zarr": "a store must be a folder or the URL",
    "run mine.py --store /proc/absent/s.zarr": "cannot write to the store",
    f"run mine.py --store new.zarr --trials {'9' * 25}": "trials must be <= ",
    "run hellinger-accuracy --store new.zarr --trials 1000000000": "must have at most 10,000,000 blocks",
    "plan hellinger-accuracy --trials 1000000000": "must have at most 10,000,000 blocks",
    "plan hellinger-accuracy --set epsilon=0": "epsilon must be",
    "rn": "No such command 'rn'. Did you mean 'run'?; see 'dpstudies --help'\n",
    "cluster walk": "; see 'dpstudies cluster --help'\n",
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
    "run all --store lab --trials 5": "are for one study",
    "run all --store lab --panel default": "are for one study",
    "run all --store lab --set n=1": "are for one study",
    "run all --store lab --scale quik": "did you mean quick?",
    "run all --store lab --seed -1": "seed must be >= 0",
    "run all --store lab --cluster absent.yaml": "cannot read the cluster file",
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
    "mean people.csv --column income --range 0:9 --epsilon one": "--epsilon must be a number, got 'one'; see '",
    "mean bytes.csv --column income --range 0:9 --epsilon 1 --yes": "got a number, a date or no printable text; add a",
    "mean open.csv --column income --range 0:9 --epsilon 1 --yes": "cannot read open.csv: it is damaged, or has",
    "mean half.csv.gz --column income --range 0:9 --epsilon 1 --yes": "its compressed content is damaged or ends early",
    "mean text.parquet --column income --range 0:9 --epsilon 1 --yes": "as parquet: it is damaged, or has another",
    "mean empty.zarr --column income --range 0:9 --epsilon 1 --yes": "cannot read empty.zarr as zarr: it is not JSON",
    "mean http://a.b/c.csv --column income --range 0:9 --epsilon 1 --yes": "a .csv table must be a local file, got ",
    "count latin.csv --where region=x --epsilon 1 --yes": "data rows 1 to 1 of latin.csv: it is not UTF-8 text; check",
    "mean --release gone.json": "cannot read gone.json: No such file or directory; give the file that mean --json ",
    "mean --release other.json": "the release that mean --json prints, got no question; give the file with it",
    "mean --release latin.json": "got another file: it is not UTF-8 text; give the file with it",
    "regress --release half.json": "got another file: it is not JSON (line 2, column 13); give the file with it",
    "regress people.csv --missing maybe": "--missing: 'maybe' is not one of 'refuse', 'drop'; see 'dpstudies regress",
    "regress people.csv --target income --epsilon 1 --method best --yes": "data-augmentation, got best; choose one of",
    "infer headless.csv --levels region": "got a number, a date or no printable text; add a line of names",
    "infer latin.csv --levels region": "cannot read latin.csv as CSV: it is not UTF-8 text; the file must be UTF-8 ",
    "infer open.csv --levels age": "cannot read open.csv as CSV: EOF inside string starting at row 1; the file must be",
    "run latin.py --store new.zarr": "must be UTF-8 text, got another encoding at byte 3; save it as UTF-8",
    "run mine.py --store new.zarr --trials 2.5": "--trials must be an integer, got '2.5'; see 'dpstudies run --help'",
    "run mine.py --store new.zarr --cluster latin.yaml:x": "latin.yaml must be YAML: it is not UTF-8 text; correct it",
    "run mine.py --store new.zarr --cluster gone.yaml:x": "gone.yaml: No such file or directory; correct the path",
    "partition people.csv --target income --coefficient age --partitions 9 --epsilon 1": "either --cutoffs or --prob",
    "partition people.csv --yes": "Missing option '--target'",
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
def test_mistake_is_refused_on_one_line_with_a_remedy(refused, tmp_path, line):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    for kind, name in (("study", "mine"), ("mechanism", "noise")):
        getattr(creating, kind)(name)
    err = refused(*shlex.split(line.replace("Age>65", "'Age>65'")), message=MISTAKES[line])
    assert SECRET not in err
    assert "dpstudies_file" not in err
    assert "cannot load" in err or not re.search(r"[a-z](Error|Exception|Invalid|Warning)\b|Errno|codec", err)
