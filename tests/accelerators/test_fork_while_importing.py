"""A fork while another thread imports a module: the child can use it."""

from __future__ import annotations

import os

import pytest

from tests.accelerators.package.models import in_new_process

SLOW_MODULE = """
import pathlib, time
pathlib.Path(__file__).with_name("begun").touch()
time.sleep(0.5)
answer = 42
"""

FORKS = """
import os, pathlib, threading, time
import partita.accelerators.process.forking
folder = pathlib.Path(args[0])
sys.path.insert(0, str(folder))
def use():
    import slow
thread = threading.Thread(target=use)
thread.start()
while thread.is_alive() and not (folder / "begun").exists():
    time.sleep(0.001)
child = os.fork()
if child == 0:
    from slow import answer
    import another
    os._exit(answer)
import another
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
thread.join()
"""

FORKS_WHILE_IT_IS_IMPORTED = """
import partita.accelerators.process.forking
sys.path.insert(0, args[0])
import forker
assert forker.code == 7, forker.code
"""

FORKER = """
import os
child = os.fork()
if child == 0:
    import another
    os._exit(7)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

FORKS_WITH_A_MODULE_THAT_LOADS_WHEN_USED = """
import importlib.util, os, pathlib
import partita.accelerators.process.forking
sys.path.insert(0, args[0])
spec = importlib.util.find_spec("slow")
spec.loader = importlib.util.LazyLoader(spec.loader)
sys.modules["slow"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["slow"])
child = os.fork()
if child == 0:
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert not (pathlib.Path(args[0]) / "begun").exists(), "the fork loaded it"
assert sys.modules["slow"].answer == 42
"""

FORKS_WHILE_OURS_IS_IMPORTED = """
import os, signal, threading, time
begun = threading.Event()
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "partita.accelerators":
            begun.set()
            time.sleep(0.3)
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=lambda: pt.Graph)
thread.start()
assert begun.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(7 if pt.Graph is not None else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
thread.join()
"""

FORKS_BEFORE_A_MODULE_IS_THERE = """
import importlib.util, os, pathlib, signal, threading, time
from importlib.machinery import SourceFileLoader
import partita.accelerators.process.forking
begun = threading.Event()
class Slow(SourceFileLoader):
    def create_module(self, spec):
        begun.set()
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.5)
class Finder:
    def find_spec(self, name, path=None, target=None):
        file = str(pathlib.Path(args[0]) / "another.py")
        return importlib.util.spec_from_file_location(name, file, loader=Slow(name, file)) if name == "another" else None
sys.meta_path.insert(0, Finder())
def use():
    import another
thread = threading.Thread(target=use)
thread.start()
assert begun.wait(60) and "another" not in sys.modules
child = os.fork()
if child == 0:
    signal.alarm(60)
    import another
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
thread.join()
"""

FORKS_WITHOUT_PATIENCE = (
    "from partita.graph import fork_guard\nfork_guard.PATIENCE = 0.0\n" + FORKS_BEFORE_A_MODULE_IS_THERE
)

SCRIPTS = [
    FORKS,
    FORKS_WHILE_IT_IS_IMPORTED,
    FORKS_WITH_A_MODULE_THAT_LOADS_WHEN_USED,
    FORKS_WHILE_OURS_IS_IMPORTED,
    FORKS_BEFORE_A_MODULE_IS_THERE,
    FORKS_WITHOUT_PATIENCE,
]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_child_imports_what_it_likes(tmp_path, script) -> None:
    for name, text in {"slow": SLOW_MODULE, "another": "", "forker": FORKER}.items():
        (tmp_path / f"{name}.py").write_text(text)
    in_new_process(script, tmp_path)
