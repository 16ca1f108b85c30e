"""Child processes: what they import, what they are sent, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attacks
from tasks import has_ended, until
from unspool import processes
from unspool.errors import InputError, ServiceError
from unspool.processes import Channel, Child, ChildEndedError, ChildMemoryError, ChildOverdueError


def echo(channel: Channel) -> None:
    """Send back what is received.

    An exception is raised, a number is slept, "path" is answered with the module path.
    """
    while True:
        message = channel.receive()
        if isinstance(message, Exception):
            raise message
        if isinstance(message, float):
            time.sleep(message)
        channel.send(
            (sys.path, dict(os.environ), sys.flags.isolated) if message == "path" else message
        )


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    """A child that runs `echo`: the folder of this file is on its path, as that of any library
    is.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with closing(Child(f"{__name__}:echo")) as started:
        yield started


@settings(max_examples=50, deadline=None)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_message_arrives_as_it_was_sent(value: object) -> None:
    assert processes.pickle.loads(processes._dump(value)) == value


def test_a_child_answers_and_read_only_mappings_travel(child: Child) -> None:
    message = {"metadata": MappingProxyType({"a": 1})}
    child.send(message)
    assert child.receive(60) == message


def test_an_error_of_a_child_is_raised_in_its_parent(child: Child) -> None:
    child.send(InputError("limit is 0; give 1 to 1000"))
    with pytest.raises(InputError, match="limit is 0"):
        child.receive(60)


def test_a_child_without_memory_is_reported_as_such(child: Child) -> None:
    child.send(MemoryError())
    with pytest.raises(ChildMemoryError):
        child.receive(60)


def test_a_child_that_sends_nothing_in_time_is_killed(child: Child) -> None:
    child.send("ready")
    assert child.receive() == "ready"
    child.send(3600.0)
    with pytest.raises(ChildOverdueError):
        child.receive(0.3)
    assert child._process.wait(60) == -signal.SIGKILL


def test_a_killed_child_ends_the_wait(child: Child) -> None:
    child.send("ready")
    assert child.receive() == "ready"
    child.kill()
    with pytest.raises(ChildEndedError):
        child.receive()


def test_a_child_that_cannot_start_is_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with (
        closing(Child(f"{__name__}:echo")) as broken,
        pytest.raises(ServiceError, match="did not start"),
    ):
        broken.receive()


def test_a_child_imports_nothing_from_the_current_folder_or_pythonpath(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "executed"
    here, named = attacks.plant(tmp_path / "here", log), attacks.plant(tmp_path / "named", log)
    monkeypatch.chdir(here)
    monkeypatch.setenv("PYTHONPATH", f"{named}{os.pathsep}")
    monkeypatch.setenv("PYTHONSTARTUP", str(here / "json.py"))
    monkeypatch.setattr(
        sys, "path", ["", ".", str(here), str(named), *sys.path, str(Path(__file__).parent)]
    )
    with closing(Child(f"{__name__}:echo")) as started:
        started.send("path")
        path, environment, isolated = started.receive(60)  # type: ignore[misc]
    assert not log.exists(), log.read_text()
    assert isolated
    assert not {"", ".", str(here), str(named)} & set(path)
    assert {name for name in environment if name.startswith("PYTHON")} <= {
        "PYTHONSAFEPATH",
        "PYTHONUTF8",
    }


def test_the_standard_library_comes_before_all_other_folders(child: Child) -> None:
    child.send("path")
    path, _, _ = child.receive(60)  # type: ignore[misc]
    standard = path.index(str(Path(os.__file__).parent))
    assert standard < min(
        path.index(str(Path(__file__).parent)),
        *(path.index(entry) for entry in path if entry.endswith("site-packages")),
    )


def test_user_site_packages_stay_usable(tmp_path: Path) -> None:
    """Also through the .pth files in them, and in the same order as in the parent."""
    base = tmp_path / "base"
    site = Path(
        subprocess.check_output(
            [sys.executable, "-c", "import site; print(site.getusersitepackages())"],
            env={**os.environ, "PYTHONUSERBASE": str(base)},
            text=True,
        ).strip()
    )
    (tmp_path / "linked").mkdir(parents=True)
    site.mkdir(parents=True)
    (site / "linked.pth").write_text(f"{tmp_path / 'linked'}\n")
    (tmp_path / "linked" / "child_of_user.py").write_text(
        "def run(channel):\n    channel.send('from the user site')\n"
    )
    code = (
        "import site, sys; site.ENABLE_USER_SITE = True\n"
        "from unspool.processes import Child\n"
        "child = Child('child_of_user:run'); print(child.receive(60)); child.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONUSERBASE": str(base)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "from the user site\n", done.stderr


def test_a_library_user_keeps_the_module_path(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import sys\nbefore = sys.path[:]\nimport unspool\nprint(sys.path == before, sys.path[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mine", "-m", "unspool"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", str(tmp_path)]


@pytest.mark.skipif(
    sys.platform == "win32",
    reason="Windows does not tell a process that its parent has ended; run it elsewhere",
)
def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = (
        f"import sys, time; sys.path.append({str(Path(__file__).parent)!r}); "
        f"sys.path.append({str(Path(__file__).parent.parent)!r})\n"
        "from unspool.processes import Child\n"
        "child = Child('test_processes:echo'); child.send('a'); child.receive(); "
        "child.send(3600.0)\n"
        "print(child.pid, flush=True); time.sleep(3600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    until(lambda: has_ended(pid))
