from __future__ import annotations

from pathlib import Path

from strata_desktop.viewmodels.models_places import PLACES_FILE, ModelPlaces


def test_places_are_remembered(tmp_path: Path) -> None:
    places = ModelPlaces(tmp_path)
    assert places.all == (tmp_path / "models",)
    assert places.add(tmp_path / "größe 模型")
    assert not places.add(tmp_path / "größe 模型")
    assert ModelPlaces(tmp_path).all == (tmp_path / "models", tmp_path / "größe 模型")


def test_the_own_folder_is_there_already(tmp_path: Path) -> None:
    assert not ModelPlaces(tmp_path).add(tmp_path / "models")


def test_the_built_in_model_is_listed_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "program" / "built-in.gguf"
    places = ModelPlaces(tmp_path / "home", built_in=file)
    places.add(tmp_path / "more")
    assert places.all == (tmp_path / "home" / "models", file, tmp_path / "more")
    assert places.is_own(file)
    assert places.place_of(file) is None
    assert not places.add(file)
    assert not places.remove(file)


def test_a_place_is_forgotten_and_its_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    file = folder / "a.gguf"
    file.touch()
    places = ModelPlaces(tmp_path)
    places.add(folder)
    assert places.place_of(file) == folder
    assert places.remove(folder)
    assert not places.remove(folder)
    assert file.exists()
    assert ModelPlaces(tmp_path).added == ()


def test_files_of_the_own_folder_have_no_place_to_forget(tmp_path: Path) -> None:
    places = ModelPlaces(tmp_path)
    assert places.place_of(tmp_path / "models" / "a.gguf") is None
    assert places.place_of(tmp_path / "elsewhere.gguf") is None


def test_an_unreadable_file_is_kept_aside(tmp_path: Path) -> None:
    (tmp_path / PLACES_FILE).write_text("{ not json", encoding="utf-8")
    places = ModelPlaces(tmp_path)
    assert places.added == ()
    kept = (tmp_path / PLACES_FILE).with_suffix(".unreadable")
    assert kept.read_text(encoding="utf-8") == "{ not json"
    assert places.add(tmp_path / "x")
