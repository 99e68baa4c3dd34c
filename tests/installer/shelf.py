"""A folder of small wheels that pip takes for its index, and the sources of a tiny project."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

PYPROJECT = """\
[build-system]
requires = ["tinytool==1.0"]
build-backend = "backend"
backend-path = ["."]

[project]
name = "tinyproject"
version = "1.0"
dependencies = ["tinydep==1.0"]

[project.optional-dependencies]
dev = ["tinytest==1.0"]
"""

BACKEND = '''\
"""A build backend of the standard library alone; it "compiles" by writing a file."""
import base64, hashlib, os, pathlib, zipfile

ROOT = pathlib.Path(__file__).parent


def build_editable(folder, config_settings=None, metadata_directory=None):
    import tinytool  # a build requirement: fails unless it was installed before

    cpu = ROOT / "kernels" / "cpu"
    pathlib.Path(os.environ["ZIG_GLOBAL_CACHE_DIR"]).mkdir(parents=True, exist_ok=True)
    (cpu / "libtiny.so").write_bytes((cpu / "tiny.c").read_bytes())
    files = {
        "tinyproject.pth": str(ROOT) + "\\n",
        "tinyproject-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: tinyproject\\n"
        "Version: 1.0\\nRequires-Dist: tinydep==1.0\\n",
        "tinyproject-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: t\\n"
        "Root-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    record = ""
    for name, text in files.items():
        digest = hashlib.sha256(text.encode()).digest()
        code = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        record += f"{name},sha256={code},{len(text)}\\n"
    files["tinyproject-1.0.dist-info/RECORD"] = record + "tinyproject-1.0.dist-info/RECORD,,\\n"
    name = "tinyproject-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return name
'''


def write_wheel(folder: Path, name: str, version: str, files: dict[str, bytes]) -> Path:
    """Write a wheel that pip installs."""
    info = f"{name}-{version}.dist-info"
    whole = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
    }
    record = io.StringIO()
    for path, content in whole.items():
        code = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.write(f"{path},sha256={code},{len(content)}\n")
    record.write(f"{info}/RECORD,,\n")
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in {**whole, f"{info}/RECORD": record.getvalue().encode()}.items():
            archive.writestr(path, content)
    return wheel


@dataclass(frozen=True)
class Shelf:
    """The folder of wheels that pip sees instead of an index."""

    folder: Path

    def put(self, name: str, version: str = "1.0", **files: bytes) -> Path:
        """Add a package; a keyword `a__b` becomes the file a/b.py."""
        paths = {key.replace("__", "/") + ".py": content for key, content in files.items()}
        return write_wheel(self.folder, name, version, paths or {f"{name}.py": b"VALUE = 1\n"})

    def put_model(self, content: bytes, file_name: str = "tiny.gguf") -> Path:
        """Add the package with a model file."""
        return write_wheel(
            self.folder,
            "tinymodel",
            "1.0",
            {f"tinymodel/{file_name}": content, "tinymodel/__init__.py": b""},
        )
