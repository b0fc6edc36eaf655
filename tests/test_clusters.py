"""Layers on a Dask cluster with processes of its own."""

import gc
import json
import os
import signal
import sys
import warnings

import pytest

from checkpoints import write_checkpoint
from dispersion import audit
from dispersion.cli import main
from dispersion.clusters import executor_at
from dispersion.errors import ArgumentError
from test_tasks import ASKED, LAYERS, tensors

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    config = {
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "max_position_embeddings": 4096,
    }
    return write_checkpoint(tmp_path_factory.mktemp("cluster") / "model", tensors(), config)


@pytest.fixture(scope="module")
def cluster():
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(processes=True, **options) as found:
            yield found


def test_a_cluster_gives_the_same_numbers(model, cluster):
    with executor_at(cluster.scheduler_address) as executor:
        found = audit(model, ASKED, executor=executor)
    assert found.heads == audit(model, ASKED).heads


def test_the_command_line_finds_a_cluster(model, cluster, capsys):
    arguments = ["check", str(model), "--length", "64", "--quiet", "--json", "-"]
    assert main([*arguments, "--scheduler", cluster.scheduler_address]) == 0
    shared = json.loads(capsys.readouterr().out)
    assert main(arguments) == 0
    assert shared["heads"] == json.loads(capsys.readouterr().out)["heads"]


def test_an_audit_outlives_a_worker_of_the_cluster(model, cluster):
    killed = []
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        pids = client.run(os.getpid)

        def kill(done, total):
            if done == 1 and not killed:
                killed.append(next(iter(pids.values())))
                os.kill(killed[0], signal.SIGKILL)

        with executor_at(cluster.scheduler_address) as executor:
            found = audit(model, ASKED, executor=executor, progress=kill)
    assert killed
    assert killed[0] != os.getpid()
    assert found.heads == audit(model, ASKED).heads


def test_nobody_at_an_address(monkeypatch):
    monkeypatch.setattr("dispersion.clusters._SECONDS", 0.5)
    needed = pytest.raises(ArgumentError, match="scheduler must be the address")
    with needed, executor_at("tcp://127.0.0.1:9"):
        pass


@pytest.mark.parametrize("address", ["", "nowhere", "gopher://x:1", "tcp://127.0.0.1:notaport"])
def test_strange_addresses(address, monkeypatch):
    monkeypatch.setattr("dispersion.clusters._SECONDS", 0.5)
    with pytest.raises(ArgumentError, match="scheduler") as caught, executor_at(address):
        pass
    assert "\n" not in str(caught.value)


def test_no_half_made_client_is_left_to_the_collector(monkeypatch):
    """Collected while another client starts, it would wait for that one's lock for ever."""
    monkeypatch.setattr("dispersion.clusters._SECONDS", 0.5)
    for address in ("tcp://127.0.0.1:9", "nowhere"):
        with pytest.raises(ArgumentError, match="scheduler"), executor_at(address):
            pass
        assert not [x for x in gc.get_objects() if type(x) is distributed.Client]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ArgumentError, match="pip install"), executor_at("tcp://127.0.0.1:8786"):
        pass


@pytest.mark.parametrize(
    "options", [["--jobs", "2"], ["--inputs", "vocabulary"]], ids=["jobs", "vocabulary"]
)
def test_what_does_not_go_with_a_cluster(model, options, capsys):
    assert main(["check", str(model), "--scheduler", "tcp://127.0.0.1:9", *options]) == 2
    assert "--scheduler" in capsys.readouterr().err
