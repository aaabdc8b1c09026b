import pytest
import torch
from safetensors.torch import save_file

from gatelab.errors import InputError
from gatelab.gates import GatePattern
from gatelab.gates.layer import GateKind, GateLayer
from gatelab.network import capture_gates
from gatelab.work.tensors import read_tensors
from tests import zoo


def pattern(n=7, seed=0) -> GatePattern:
    generator = torch.Generator().manual_seed(seed)
    return GatePattern(
        {
            "fc": torch.rand(n, 70, generator=generator) < 0.3,
            "conv": torch.rand(n, 2, 3, 4, generator=generator) < 0.5,
        }
    )


def test_layers_keep_order_shape_and_values():
    gates = {"b": torch.rand(4, 3) < 0.5, "a": torch.rand(4, 2, 5) < 0.5}
    p = GatePattern(gates)
    assert p.layers == ("b", "a")
    assert p.n == 4
    assert list(p) == ["b", "a"]
    assert "a" in p
    for name, expected in gates.items():
        assert torch.equal(p[name], expected)


def test_slicing_by_example():
    p = pattern()
    for index in (slice(2, 5), [0, 6, 1], torch.tensor([3, 3])):
        part = p[index]
        for name in p:
            assert torch.equal(part[name], p[name][index])


def test_flips_and_active_fraction_count_gates():
    p, q = pattern(seed=0), pattern(seed=1)
    assert p.flips(q) == {name: int((p[name] ^ q[name]).sum()) for name in p}
    assert p.flips(p) == {"fc": 0, "conv": 0}
    for name, fraction in p.active_fraction().items():
        assert fraction == pytest.approx(p[name].double().mean().item())


def test_equality_looks_at_every_bit():
    p = pattern()
    changed = {name: p[name].clone() for name in p}
    changed["conv"][-1, -1, -1, -1] ^= True
    assert p == pattern()
    assert p != GatePattern(changed)
    assert p != p[1:]
    assert p.select(["conv"]) != p


def test_save_and_load(tmp_path):
    p = capture_gates(zoo.cnn(), torch.randn(5, 4, 8, 8))
    p.save(tmp_path / "gates.safetensors")
    loaded = GatePattern.load(tmp_path / "gates.safetensors")
    assert loaded == p
    assert loaded.dtype == torch.float64
    assert loaded.layer("5").kind is GateKind.MAX_POOL
    assert not list(tmp_path.glob("*.partial"))


def test_load_refuses_other_files(tmp_path):
    (tmp_path / "noise").write_bytes(b"not a tensor file")
    with pytest.raises(InputError, match="noise is damaged"):
        GatePattern.load(tmp_path / "noise")
    save_file({"x": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="is not a gate pattern"):
        GatePattern.load(tmp_path / "other.safetensors")


def test_truncated_file_is_refused(tmp_path):
    pattern().save(tmp_path / "gates")
    data = (tmp_path / "gates").read_bytes()
    (tmp_path / "gates").write_bytes(data[:-9])
    with pytest.raises(InputError, match="is damaged"):
        GatePattern.load(tmp_path / "gates")


def test_a_changed_bit_is_refused(tmp_path):
    """Bits have no redundancy of their own: without a checksum another gate would be open."""
    pattern().save(tmp_path / "gates")
    data = bytearray((tmp_path / "gates").read_bytes())
    data[-1] ^= 1
    (tmp_path / "gates").write_bytes(bytes(data))
    with pytest.raises(InputError, match="checksum"):
        GatePattern.load(tmp_path / "gates")


def test_unknown_kinds_of_gates_are_refused(tmp_path):
    pattern().save(tmp_path / "gates")
    tensors, about = read_tensors(tmp_path / "gates")
    about["layers"] = about["layers"].replace("relu", "other")
    save_file(tensors, tmp_path / "gates", metadata={key: value for key, value in about.items() if key != "checksum"})
    with pytest.raises(InputError, match="other"):
        GatePattern.load(tmp_path / "gates")


def test_repr_shows_size_kind_and_activity():
    gates = capture_gates(zoo.leaky(), torch.randn(3, 5))
    text = str(gates)
    assert repr(gates) == "GatePattern: 3 examples, 2 layers, 7 gates each, bits"
    assert text.startswith(repr(gates))
    assert gates._repr_html_().count("<tr>") == 3
    assert "leaky_relu" in text
    assert "slope 0.1" in text
    assert "% on" in text


@pytest.mark.usefixtures("unchecked")
def test_mismatched_patterns_are_refused():
    p = pattern()
    with pytest.raises(InputError, match="n = 7, the other n = 6"):
        p.flips(pattern(n=6))
    with pytest.raises(InputError, match="different networks"):
        p.flips(p.select(["fc"]))
    with pytest.raises(InputError, match="layer 'fc': shape"):
        p.flips(GatePattern({"fc": torch.ones(7, 71, dtype=torch.bool), "conv": p["conv"]}))
    with pytest.raises(InputError, match="disagree on the number of examples"):
        GatePattern({"a": torch.ones(2, 3, dtype=torch.bool), "b": torch.ones(3, 3, dtype=torch.bool)})
    with pytest.raises(InputError, match="must be booleans"):
        GatePattern({"a": torch.ones(2, dtype=torch.bool)})
    with pytest.raises(InputError, match="no layer 'nope'"):
        p["nope"]
    with pytest.raises(InputError, match="at least one layer"):
        GatePattern({})
    with pytest.raises(InputError, match=r"pattern\[\[0\]\]"):
        p[3]


def test_patterns_are_immutable():
    p = pattern()
    p["fc"].fill_(False)
    assert p == pattern()
    with pytest.raises(AttributeError):
        p.layer("fc").words = torch.zeros(1)  # frozen
    assert isinstance(p.layer("fc"), GateLayer)


def test_indexed_patterns_can_be_saved(tmp_path):
    p = pattern()
    for index in (slice(None, None, 2), (0, 3), torch.tensor([5, 1]), torch.arange(7) > 3):
        p[index].save(tmp_path / "gates")
        assert GatePattern.load(tmp_path / "gates") == p[index]
    with pytest.raises(InputError, match="ambiguous"):
        p[torch.tensor(1)]
