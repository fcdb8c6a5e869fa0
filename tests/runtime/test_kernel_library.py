"""How the kernel comes to be: built once, kept by the hash of its source, shipped in a wheel."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from hypersparse import models
from hypersparse.export.sparse_file import save_sparse
from hypersparse_runtime import SparseModel, compile_kernel, kernel_library
from hypersparse_runtime.compile_kernel import KernelError, build, file_name
from tests.runtime.networks import sparse_

ROOT = Path(compile_kernel.__file__).parents[1]


def test_a_kernel_is_named_by_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = file_name()
    copied = shutil.copytree(compile_kernel.SOURCES, tmp_path / "kernel")
    monkeypatch.setattr(compile_kernel, "SOURCES", copied)
    assert file_name() == name
    (copied / "kernel.c").write_text((copied / "kernel.c").read_text() + "\n")
    assert file_name() != name


def test_what_stops_a_build_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_kernel, "COMPILERS", ("no-such-compiler",))
    with pytest.raises(KernelError, match=r"No C compiler was found .* looked for no-such-compiler"):
        build(tmp_path / "kernel.so")
    monkeypatch.setattr(compile_kernel, "COMPILERS", ("false",))
    with pytest.raises(KernelError, match="could not be built with false"):
        build(tmp_path / "kernel.so")
    assert not list(tmp_path.iterdir())


def test_a_foreign_library_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "kernel.so"
    file.write_bytes(b"not a library")
    with pytest.raises(KernelError, match="cannot be loaded"):
        kernel_library.Kernel(file)


@pytest.mark.parametrize("spoiled", ["the folder", "the file", "a link", "nothing"])
def test_a_library_that_others_can_change_is_not_loaded(
    spoiled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is built in its place is: in the cache, or where the folder itself is open to others, beside it."""
    built: list[Path] = []

    def build_here(target: Path) -> Path:
        built.append(target)
        return target

    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(kernel_library, "SOURCES", tmp_path)  # as in a checkout, which ships none
    monkeypatch.setattr(kernel_library, "build", build_here)
    monkeypatch.setattr(kernel_library, "Kernel", lambda path: path)
    folder = kernel_library.cache_folder()
    kept = folder / file_name()
    if spoiled == "a link":
        kept.symlink_to(tmp_path / "elsewhere.so")
    else:
        kept.touch(mode=0o755)
    if spoiled == "the folder":
        folder.chmod(0o777)
    if spoiled == "the file":
        kept.chmod(0o775)
    loaded = kernel_library.load_kernel.__wrapped__()
    assert built == ([] if spoiled == "nothing" else [loaded])
    assert (loaded == kept) == (spoiled != "the folder")


def test_a_library_of_another_user_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kernel.so"
    file.touch(mode=0o755)
    assert kernel_library.is_private(file)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    assert not kernel_library.is_private(file)
    assert not kernel_library.is_private(tmp_path / "missing.so")


def test_the_peak_grows_with_the_vectors() -> None:
    kernel = kernel_library.load_kernel()
    peaks = [kernel.peak_gflops(level) for level in range(len(kernel.levels))]
    assert peaks[0] > 0.1
    assert max(peaks) >= peaks[0]


@pytest.mark.slow
def test_neon_computes_what_pytorch_does() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "neon"], capture_output=True, text=True, timeout=600, env=_environment(), check=False
    )
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("from PyTorch") == 15  # five networks, each in two layouts and one of those side by side


@pytest.mark.slow
def test_the_runtimes_own_wheel_predicts_without_torch(tmp_path: Path) -> None:
    """In an environment with numpy and nothing else, and without a compiler."""
    model = sparse_(models.build("resnet8", shape=(3, 32, 32), classes=10), 0.98)
    save_sparse(model, tmp_path / "model.hsp", input_shape=(3, 32, 32))
    images = torch.randn(3, 3, 32, 32)
    np.save(tmp_path / "images.npy", images.numpy())
    wheels = tmp_path / "wheels"
    _run(
        sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels), str(ROOT / "packaging" / "runtime")
    )
    (wheel,) = wheels.glob("hypersparse_runtime-*.whl")
    assert any(name.endswith(f"kernel/{file_name()}") for name in zipfile.ZipFile(wheel).namelist())
    assert wheel.stat().st_size < 500_000
    _run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    _run(python, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), str(wheel))
    code = (
        "import sys, numpy as np; from hypersparse_runtime import SparseModel\n"
        "model = SparseModel.load('model.hsp')\n"
        "assert model.engine == 'hypersparse' and 'torch' not in sys.modules\n"
        "np.save('outputs.npy', model(np.load('images.npy')))\n"
        "try: import torch\nexcept ImportError: print('no torch')"
    )
    assert _run(python, "-I", "-c", code, cwd=tmp_path, env={"PATH": "", "HOME": str(tmp_path)}).strip() == "no torch"
    with torch.no_grad():
        wanted = model(images).numpy()
    assert np.abs(np.load(tmp_path / "outputs.npy") - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_a_file_is_loaded(tmp_path: Path) -> None:
    model = sparse_(models.build("resnet8", shape=(3, 32, 32), classes=10), 0.98)
    save_sparse(model, tmp_path / "model.hsp", input_shape=(3, 32, 32), about={"classes": ["a"]})
    runtime = SparseModel.load(tmp_path / "model.hsp")
    assert runtime.about["classes"] == ["a"]
    assert runtime.input_shape == (3, 32, 32)
    assert runtime.output_shape == (10,)


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def _run(*command: str, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)
