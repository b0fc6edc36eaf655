"""Checkpoints at addresses: the same answers, and no byte that was not asked for."""

import json
import pickle
import socket
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from checkpoints import refused, write_checkpoint, write_safetensors
from dispersion import (
    ArgumentError,
    CheckpointError,
    UnsafeFileError,
    UnsupportedError,
    audit,
    demo,
)
from dispersion.checkpoint import open_checkpoint, open_tensors
from dispersion.checkpoint.remote import files
from dispersion.checkpoint.remote.tensors import RemoteReader
from range_server import once, redirect, serving

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(site, monkeypatch):
    """The site as the hub, with one model whose files are at a revision and at its commit."""
    monkeypatch.setenv("HF_ENDPOINT", site.url)
    for revision in ("main", "v1", COMMIT):
        site.add_folder(demo.path("headwise"), f"/me/mine/resolve/{revision}")
    site.headers["X-Repo-Commit"] = COMMIT
    return site


def qwen(layers=3, heads=4, key_heads=2, head_dim=64, width=256, vocab=64):
    """A model whose query and key tensors dwarf its header."""
    rng = np.random.default_rng(1)
    shapes = {"model.embed_tokens.weight": (vocab, width), "model.norm.weight": (width,)}
    for i in range(layers):
        at = f"model.layers.{i}."
        shapes |= {
            at + "input_layernorm.weight": (width,),
            at + "post_attention_layernorm.weight": (width,),
            at + "self_attn.q_proj.weight": (heads * head_dim, width),
            at + "self_attn.k_proj.weight": (key_heads * head_dim, width),
            at + "self_attn.v_proj.weight": (key_heads * head_dim, width),
            at + "self_attn.o_proj.weight": (width, heads * head_dim),
            at + "self_attn.q_norm.weight": (head_dim,),
            at + "self_attn.k_norm.weight": (head_dim,),
            at + "mlp.down_proj.weight": (width, 2 * width),
            at + "mlp.up_proj.weight": (2 * width, width),
            at + "mlp.gate_proj.weight": (2 * width, width),
        }
    config = {
        "model_type": "qwen3",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "head_dim": head_dim,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e4,
        "vocab_size": vocab,
        "tie_word_embeddings": True,
    }
    arrays = {name: rng.standard_normal(s, dtype=np.float32) for name, s in shapes.items()}
    return arrays, config


def read_by(tensor):
    name = tensor.rpartition(".layers.")[2]
    return any(word in name for word in ("q_proj", "k_proj", "q_norm", "k_norm", "input_layernorm"))


@pytest.mark.parametrize("name", ["plain", "headwise", "layerwise"])
def test_an_address_gives_the_answers_of_the_folder(site, name):
    found = audit(site.add_folder(demo.path(name)))
    local = audit(demo.path(name))
    assert found.heads == local.heads
    assert found.skipped == local.skipped
    assert found.model == local.model


@pytest.mark.parametrize("shards", [1, 3])
def test_only_headers_and_what_the_logits_need_is_read(site, tmp_path, shards):
    arrays, config = qwen()
    folder = write_checkpoint(tmp_path / "model", arrays, config, shards=shards)
    found = audit(site.add_folder(folder))
    assert found.heads == audit(folder).heads
    headers = sum(
        8 + int.from_bytes(path.read_bytes()[:8], "little") for path in folder.glob("*.safetensors")
    )
    texts = sum(path.stat().st_size for path in folder.glob("*.json"))
    wanted = sum(array.nbytes for name, array in arrays.items() if read_by(name))
    missing = len(b"no such file") if shards > 1 else 0
    # Every byte once: config, index, headers and the tensors. Nothing of it is slack.
    assert site.sent == headers + texts + wanted + missing
    assert site.sent <= 1.02 * (headers + texts + wanted)
    assert wanted > 0.9 * site.sent
    assert len(site.asked) <= 2 + 2 * shards + 5 * 3 + (shards > 1)


def test_layers_that_are_not_asked_for_are_not_read(site, tmp_path):
    arrays, config = qwen()
    folder = write_checkpoint(tmp_path / "model", arrays, config)
    address = site.add_folder(folder)
    found = audit(address, layers=[1])
    assert found.heads == audit(folder, layers=[1]).heads
    length = int.from_bytes(site.files["/model/model.safetensors"][:8], "little")
    header = json.loads(site.files["/model/model.safetensors"][8 : 8 + length])
    spans = {
        tuple(8 + length + at for at in entry["data_offsets"]): name
        for name, entry in header.items()
    }
    read = {
        spans[asked.range[0], asked.range[1] + 1]
        for asked in site.asked
        if asked.range and asked.range[0] >= 8 + length
    }
    assert read == {name for name in arrays if ".layers.1." in name and read_by(name)}


def test_real_token_ids_read_the_embedding_once(site):
    address = site.add_folder(demo.path("headwise"))
    found = audit(address, inputs="vocabulary")
    assert found.heads == audit(demo.path("headwise"), inputs="vocabulary").heads
    spans = [asked.range for asked in site.asked if asked.range]
    assert len(spans) == len(set(spans))


@pytest.mark.parametrize("file", ["model.safetensors", "model.safetensors.index.json"])
def test_a_file_may_be_named_itself(site, tmp_path, file):
    arrays, config = qwen(layers=1)
    folder = write_checkpoint(tmp_path / "model", arrays, config, shards=1 + ("index" in file))
    address = f"{site.add_folder(folder)}/{file}"
    assert audit(address).heads == audit(folder).heads


def test_rows_are_those_of_the_folder(site, tmp_path):
    arrays = {
        "a.0.w": np.arange(60.0).reshape(12, 5),
        "a.1.w": np.zeros((0, 3)),
        "scalar": np.array(2.5),
    }
    address = site.add_folder(write_checkpoint(tmp_path / "m", arrays))
    found = open_checkpoint(address)
    np.testing.assert_array_equal(found.read("a.0.w"), arrays["a.0.w"])
    np.testing.assert_array_equal(found.read("a.0.w", slice(3, 7)), arrays["a.0.w"][3:7])
    assert found.read("a.0.w", slice(4, 4)).shape == (0, 5)
    assert found.read("a.1.w").shape == (0, 3)
    assert found.read("scalar") == 2.5
    assert not found.read("a.0.w").flags.writeable
    assert found.info("a.0.w").file == f"{address}/model.safetensors"
    message = refused(CheckpointError, "has no tensor", found.read, "a.0.x")
    assert "a.0.w" in message


def test_what_was_fetched_goes_with_its_layer(site, tmp_path):
    arrays = {f"a.{i}.w": np.full((4, 4), float(i)) for i in range(3)}
    found = open_checkpoint(site.add_folder(write_checkpoint(tmp_path / "m", arrays)))
    first = found.read("a.0.w")
    assert isinstance(found.reader, RemoteReader)
    for i in (0, 1, 1, 2, 1):
        found.read(f"a.{i}.w")
        assert [name for name, _, _ in found.reader._kept] == [f"a.{i}.w"]
    np.testing.assert_array_equal(first, arrays["a.0.w"])  # arrays outlive it
    spans = [asked.range for asked in site.asked if asked.range][2:]
    assert len(spans) == 4  # layers 0, 1, 2, and 1 again


def test_it_can_be_sent_to_another_process(site, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    found = open_checkpoint(site.add_folder(demo.path("headwise")))
    name = "model.layers.0.self_attn.q_proj.weight"
    values = found.read(name)
    packed = pickle.dumps(found)
    assert b"hf_secret" not in packed
    assert len(packed) < 20_000  # no weights in it
    np.testing.assert_array_equal(pickle.loads(packed).read(name), values)


def test_the_hub_gives_the_files_of_one_commit(hub):
    found = audit("hf://me/mine@v1")
    assert found.heads == audit(demo.path("headwise")).heads
    assert found.source == "hf://me/mine@v1"
    assert found.provenance["commit"] == COMMIT
    first, *others = hub.paths()
    assert first == "/me/mine/resolve/v1/config.json"
    assert {path.rpartition("/")[0] for path in others} == {f"/me/mine/resolve/{COMMIT}"}


def test_without_a_revision_the_hub_gives_main(hub):
    audit("hf://me/mine")
    assert hub.paths()[0] == "/me/mine/resolve/main/config.json"


def test_a_revision_that_is_not_there(hub):
    message = refused(CheckpointError, "config.json is missing", audit, "hf://me/mine@v7")
    assert "hf://me/mine@v7/config.json" in message
    assert message.endswith("Check the model's name, the revision and the folder.")


def test_a_made_up_commit_pins_nothing(hub):
    hub.headers["X-Repo-Commit"] = "../../../other/model/resolve/main"
    audit("hf://me/mine")
    assert {path.rpartition("/")[0] for path in hub.paths()} == {"/me/mine/resolve/main"}


def test_the_token_goes_to_the_hub_only(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with serving() as elsewhere:
        elsewhere.files = dict(hub.files)
        for path in list(hub.files):
            if path.endswith(".safetensors"):
                hub.odd[path] = redirect(elsewhere.url + path)
        found = audit("hf://me/mine")
        assert found.heads == audit(demo.path("headwise")).heads
        assert all(each.headers["Authorization"] == "Bearer hf_secret" for each in hub.asked)
        assert elsewhere.asked
        assert not any("Authorization" in each.headers for each in elsewhere.asked)
        # The signed address is asked again and not the hub.
        assert len(hub.asked) == 2


def test_other_servers_get_no_token_even_if_they_lead_to_the_hub(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with serving() as other:
        for path in hub.files:
            other.odd[path] = redirect(hub.url + path)
        audit(f"{other.url}/me/mine/resolve/main")
        assert not any("Authorization" in each.headers for each in [*other.asked, *hub.asked])
        assert hub.asked


def test_an_address_that_expires_is_looked_up_again(hub):
    with serving() as elsewhere:
        elsewhere.files = dict(hub.files)
        count = 0

        def expires(handler):
            nonlocal count
            count += 1
            return handler.answer(403, b"expired") if count == 3 else False

        for path in hub.files:
            if path.endswith(".safetensors"):
                hub.odd[path] = redirect(elsewhere.url + path)
                elsewhere.odd[path] = expires
        assert audit("hf://me/mine").heads == audit(demo.path("headwise")).heads
        assert len(hub.asked) == 3


def test_addresses_that_are_good_for_one_range_are_looked_up_each_time(hub):
    with serving() as elsewhere:
        elsewhere.files = dict(hub.files)

        def signed(handler):
            return f"{elsewhere.url}{handler.path}?only={handler.headers['Range']}"

        def checked(handler):
            fits = handler.path.endswith(f"?only={handler.headers['Range']}")
            return False if fits else handler.answer(403, b"signed for another range")

        for path in hub.files:
            if path.endswith(".safetensors"):
                hub.odd[path], elsewhere.odd[path] = redirect(signed), checked
        assert audit("hf://me/mine").heads == audit(demo.path("headwise")).heads
        assert len(elsewhere.asked) == 7 + files.MOST_EXPIRED


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_model_names_the_token(hub, monkeypatch, status):
    path = "/me/mine/resolve/main/config.json"
    hub.odd[path] = lambda handler: handler.answer(status, b"no")
    refused(CheckpointError, "set HF_TOKEN", audit, "hf://me/mine")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    message = refused(CheckpointError, "accept the model's terms", audit, "hf://me/mine")
    assert "hf_secret" not in message
    assert len(hub.asked) == 2


def test_a_forbidden_file_elsewhere_names_no_token(site):
    address = site.add_folder(demo.path("headwise"))
    site.odd["/model/config.json"] = lambda handler: handler.answer(403, b"no")
    message = refused(CheckpointError, "may not be read (HTTP 403)", audit, address)
    assert "HF_TOKEN" not in message


@pytest.mark.parametrize("token", ["two words", "line\x07", "schlüssel"])
def test_a_token_that_is_none_is_refused_and_not_shown(hub, monkeypatch, token):
    monkeypatch.setenv("HF_TOKEN", token)
    message = refused(CheckpointError, "HF_TOKEN must be one word", audit, "hf://me/mine")
    assert token not in message
    assert hub.asked == []


def test_pickles_are_not_even_asked_for(site, tmp_path):
    address = site.add_folder(demo.path("headwise"))
    refused(UnsafeFileError, "is a pickle", audit, f"{address}/pytorch_model.bin")
    assert site.asked == []
    index = {"weight_map": {"a": "pytorch_model.bin"}}
    site.files["/model/model.safetensors.index.json"] = json.dumps(index).encode()
    refused(UnsafeFileError, "is a pickle", audit, f"{address}/model.safetensors.index.json")
    assert "/model/pytorch_model.bin" not in site.paths()
    site.files["/model/model.safetensors"] = pickle.dumps({"a": [1.0] * 1000})
    refused(UnsafeFileError, "is a pickle", audit, address)


@pytest.mark.parametrize("file", ["w.npz", "w.npy"])
def test_other_formats_are_refused_by_name(site, file):
    refused(UnsupportedError, "only safetensors and GGUF", audit, f"{site.url}/m/{file}")
    assert site.asked == []


def test_weight_files_are_local(site):
    refused(ArgumentError, "must be local", open_tensors, f"{site.url}/wq.safetensors?key=abc")


def test_without_the_package_the_command_is_named(site, monkeypatch):
    monkeypatch.setitem(sys.modules, "urllib3", None)
    message = refused(CheckpointError, "urllib3", audit, f"{site.url}/model")
    assert message.endswith("pip install 'urllib3>=2.2'")


def test_local_audits_do_not_load_the_package():
    code = (
        "import sys, socket\nfrom dispersion import audit, demo\naudit(demo.path('headwise'))\n"
        "assert 'dispersion.checkpoint.remote' not in sys.modules\n"
        "assert 'urllib3' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_listens(site):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        refused(CheckpointError, "no connection", audit, f"http://127.0.0.1:{port}/model")


def test_a_broken_read_goes_on_where_it_stopped(site, tmp_path):
    arrays, config = qwen(layers=1)
    folder = write_checkpoint(tmp_path / "model", arrays, config)
    address = site.add_folder(folder)
    length = int.from_bytes(site.files["/model/model.safetensors"][:8], "little")
    seen = []

    def breaks(handler):
        first, last = handler.wanted
        if first < 8 + length or last - first < 1000 or seen:
            return False
        seen.append((first, last))
        data = site.files["/model/model.safetensors"]
        more = {"Content-Range": f"bytes {first}-{last}/{len(data)}", "ETag": '"one"'}
        return handler.answer(206, data[first : last + 1], more, only=777)

    site.odd["/model/model.safetensors"] = breaks
    assert audit(address).heads == audit(folder).heads
    assert any(asked.range == (seen[0][0] + 777, seen[0][1]) for asked in site.asked)


def test_a_busy_server_is_asked_again(site):
    address = site.add_folder(demo.path("headwise"))
    busy = once(lambda handler: handler.answer(503, b"later", {"Retry-After": "0"}))
    site.odd["/model/model.safetensors"] = busy
    assert audit(address).heads == audit(demo.path("headwise")).heads


def test_an_index_that_names_a_shard_that_is_missing(site, tmp_path):
    arrays, config = qwen(layers=1)
    address = site.add_folder(write_checkpoint(tmp_path / "model", arrays, config, shards=2))
    del site.files["/model/model-00002-of-00002.safetensors"]
    refused(CheckpointError, "is missing, but", audit, address)


def test_a_folder_without_weights_or_configuration(site, tmp_path):
    write_safetensors(tmp_path / "other.safetensors", {"a": np.zeros(2)})
    address = site.add_folder(tmp_path)
    refused(CheckpointError, "config.json is missing", audit, address)
    site.files["/model/config.json"] = b'{"model_type": "llama"}'
    refused(CheckpointError, "must hold model.safetensors or", audit, address)
    refused(CheckpointError, "does not exist (HTTP 404)", audit, f"{address}/gone.safetensors")


def test_a_proxy_is_used_where_the_environment_has_one(site, monkeypatch):
    site.add_folder(demo.path("headwise"))
    monkeypatch.setenv("http_proxy", site.url.replace("http://", "http://me:secret@"))
    monkeypatch.setenv("no_proxy", "")
    assert audit("http://nowhere.invalid/model").heads == audit(demo.path("headwise")).heads
    assert all(asked.headers["Host"] == "nowhere.invalid" for asked in site.asked)
    assert all("Proxy-Authorization" in asked.headers for asked in site.asked)
    site.odd["/model/config.json"] = redirect("http://nowhere.invalid:8/other")
    refused(CheckpointError, "is missing", audit, "http://nowhere.invalid/model")
    site.odd["/model/config.json"] = redirect("https://127.0.0.1/x")
    refused(CheckpointError, "a loopback address", audit, "http://nowhere.invalid/model")
    monkeypatch.setenv("http_proxy", "socks5://me:secret@127.0.0.1:1")
    message = refused(CheckpointError, "a proxy must be", audit, "http://nowhere.invalid/model")
    assert "secret" not in message


def test_8_bit_floats_come_with_their_scales(site, tmp_path):
    """Without its scale a stored code is no weight."""
    rng = np.random.default_rng(0)
    name = "model.layers.0.self_attn.q_proj.weight"
    arrays = {
        name: rng.standard_normal((8, 6)).astype(ml_dtypes.float8_e4m3fn),
        name + "_scale_inv": np.array([[2.0**-7], [3.0]], dtype=np.float32),
    }
    config = {"model_type": "llama"}
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [4, 6]}
    folder = write_checkpoint(tmp_path / "m", arrays, config)
    site.add_folder(folder, "/m")
    there, here = open_checkpoint(site.url + "/m"), open_checkpoint(folder)
    expected = arrays[name].astype(float) * np.repeat([2.0**-7, 3.0], 4)[:, None]
    for found in (there, here):
        assert found.names == (name,)
        assert np.array_equal(found.read(name), expected)
    del arrays[name + "_scale_inv"]
    site.add_folder(write_checkpoint(tmp_path / "n", arrays, config), "/n")
    refused(UnsupportedError, "scale", open_checkpoint(site.url + "/n").read, name)


def test_workers_read_the_same_address(site, tmp_path):
    site.add_folder(write_checkpoint(tmp_path / "m", *qwen()), "/m")
    found = audit(site.url + "/m", jobs=2)
    assert found.heads == audit(tmp_path / "m", jobs=1).heads
