"""One Hypothesis profile, JAX on the CPU in float32, and fixtures that several files need."""

import os
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.pop("JAX_ENABLE_X64", None)

# Under --import-mode=importlib test files cannot see their helper modules otherwise.
sys.path.insert(0, str(Path(__file__).parent))

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "dispersion",
    deadline=None,  # a first call compiles
    suppress_health_check=[HealthCheck.too_slow],  # the machine may be shared
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("dispersion")


@pytest.fixture
def x64():
    """Float64 in JAX for one test; the package itself never switches it on."""
    import jax

    with jax.enable_x64(True):
        yield


@pytest.fixture
def site(monkeypatch):
    """A server of files on this machine, without waiting between tries and without a token."""
    from dispersion.checkpoint.remote import files
    from range_server import serving

    monkeypatch.setattr(files, "BACKOFF", 0.0)
    for name in ("HF_TOKEN", "HF_ENDPOINT", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as found:
        yield found


@pytest.fixture(scope="session")
def peak_memory():
    """The benchmarks' module of that name, where peaks of memory can be measured."""
    benchmarks = str(Path(__file__).parents[1] / "benchmarks")
    sys.path.insert(0, benchmarks)
    try:
        import peak_memory
    finally:
        sys.path.remove(benchmarks)
    if reason := peak_memory.available():
        pytest.skip(reason)
    return peak_memory
