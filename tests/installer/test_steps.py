"""Stamps: what is done stays done, what changed or vanished is done again."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from installer.console import Console
from installer.errors import InstallError
from installer.steps import Stamps, Step, digest_of, only_one, run_steps


class Workshop:
    """Steps that write a file each, and the order in which they worked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.worked: list[str] = []
        self.inputs = {"a": "1", "b": "1"}
        self.broken = ""

    def step(self, name: str) -> Step:
        def work(console: Console) -> None:
            self.worked.append(name)
            if self.broken == name:
                raise InstallError(f"{name} is broken")
            (self.folder / name).write_text("made")

        return Step(
            name=name,
            title=f"Step {name}",
            digest=lambda: digest_of([self.inputs[name]]),
            is_there=(self.folder / name).is_file,
            work=work,
        )

    def run(self, console: Console) -> int:
        return run_steps([self.step("a"), self.step("b")], Stamps(self.folder / "stamps"), console)


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def test_a_second_run_works_on_nothing_and_prints_nothing(
    workshop: Workshop, console: Console, screen: io.StringIO
) -> None:
    assert workshop.run(console) == 2
    first = screen.getvalue()
    assert "[1/2] Step a" in first
    assert "[2/2] Step b: done" in first
    assert workshop.run(console) == 0
    assert screen.getvalue() == first
    assert workshop.worked == ["a", "b"]


def test_a_changed_input_or_a_lost_result_is_done_again(
    workshop: Workshop, console: Console
) -> None:
    workshop.run(console)
    workshop.inputs["b"] = "2"
    assert workshop.run(console) == 1
    (workshop.folder / "a").unlink()
    assert workshop.run(console) == 1
    assert workshop.worked == ["a", "b", "b", "a"]


def test_the_run_after_a_failure_begins_at_the_step_that_failed(
    workshop: Workshop, console: Console
) -> None:
    workshop.broken = "b"
    with pytest.raises(InstallError, match="b is broken"):
        workshop.run(console)
    workshop.broken = ""
    assert workshop.run(console) == 1
    assert workshop.worked == ["a", "b", "b"]


def test_a_step_cut_off_in_a_redo_counts_as_not_done(workshop: Workshop, console: Console) -> None:
    workshop.run(console)
    workshop.inputs["a"] = "2"
    workshop.broken = "a"
    with pytest.raises(InstallError):
        workshop.run(console)
    # Its old result is still there and its input is the old one again: the stamp must not vouch.
    workshop.inputs["a"] = "1"
    workshop.broken = ""
    assert workshop.run(console) == 1


def test_an_unreadable_stamp_counts_as_none(workshop: Workshop, console: Console) -> None:
    workshop.run(console)
    (workshop.folder / "stamps" / "a").write_bytes(b"\xff\xfe\xff")
    assert workshop.run(console) == 1


def test_digest_depends_on_names_contents_and_absence(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("x")
    digests = {digest_of(files=[one]), digest_of(files=[two]), digest_of(["x"])}
    two.write_text("x")
    digests |= {digest_of(files=[two]), digest_of(["x", ""]), digest_of(["", "x"])}
    assert len(digests) == 6


def test_the_lock_keeps_a_second_installer_out_until_the_first_ends(
    tmp_path: Path, console: Console, screen: io.StringIO
) -> None:
    lock = tmp_path / "lock"
    holder_code = (
        "import io, pathlib, sys; from installer.console import Console; "
        "from installer.steps import only_one\n"
        f"with only_one(pathlib.Path({str(lock)!r}), Console(io.StringIO(), pathlib.Path('x'))):\n"
        "    print('held', flush=True); sys.stdin.readline()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", holder_code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        class Releasing(io.StringIO):
            def write(self, text: str) -> int:
                holder.stdin.write("go\n")
                holder.stdin.flush()
                return super().write(text)

        waiting = Releasing()
        with only_one(lock, Console(waiting, console.log_path)):
            assert "waiting for it to finish" in waiting.getvalue()
    assert holder.returncode == 0
    assert screen.getvalue() == ""
