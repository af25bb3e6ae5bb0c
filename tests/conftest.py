"""A home of the tests' own: no test reads or writes the user's list of study files, or the cache of their modules."""

import atexit
import os
import shutil
import tempfile

if "DPSTUDIES_HOME" not in os.environ:  # set once, and inherited by xdist's workers and by processes that tests start
    os.environ["DPSTUDIES_HOME"] = tempfile.mkdtemp(prefix="dpstudies-tests-")
    atexit.register(shutil.rmtree, os.environ["DPSTUDIES_HOME"], ignore_errors=True)
