"""The comparison with others' code: what it does without a GPU, and that its candidates compute the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from workspace import PROJECT

SCRIPT = PROJECT / "benchmarks" / "one_gpu_speed.py"
sys.path.append(str(SCRIPT.parent))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)


def test_without_a_gpu_it_ends_with_one_sentence_and_writes_nothing(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = run("--out", str(tmp_path / "speed"))
    assert done.returncode == 1 and not done.stdout
    assert (
        done.stderr == "one_gpu_speed: torch finds no GPU here; allowed: --rehearse, on the CPU\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("grid", [(48, 96), (32, 64), (64, 64)])
def test_transforms_as_matrix_products_give_outputs_and_gradients_of_the_shipped_layer(
    grid: tuple[int, int],
) -> None:
    from afno import disagreement  # type: ignore[import-not-found]
    from afno_candidates import literal, with_products  # type: ignore[import-not-found]

    from scalewatt.workloads.afno import FourCastNet, SpectralLayer

    torch.manual_seed(0)
    net = FourCastNet(grid=grid, patch_size=8, embed_dim=16, depth=2, num_blocks=4)
    for module in net.modules():
        if isinstance(module, SpectralLayer):
            module.sparsity_threshold = 1e-4  # else fresh weights leave nothing to transform back
            for weight in (module.w1, module.w2):
                torch.nn.init.normal_(weight, std=0.3)
    fields = torch.randn(2, 20, *grid)
    products = with_products(net, grid[0] // 8, grid[1] // 8)
    assert disagreement(net, products, fields) < 1e-5
    assert disagreement(net, literal(net), fields) < 1e-4


def test_ratios_are_those_of_each_round_and_energies_stay_null_without_a_counter() -> None:
    from one_gpu_speed import Turn, ratios, summary  # type: ignore[import-not-found]

    turns = [Turn("ours", 20, 1.0, 40.0), Turn("plain", 10, 1.0, 40.0),
             Turn("ours", 30, 1.0, 45.0), Turn("plain", 10, 1.0, 50.0)]  # fmt: skip
    found = ratios(turns, "ours", "plain")
    assert found["speed_range"] == [2.0, 3.0] and found["speed"] == 2.5
    assert found["energy"] == pytest.approx((2 / 4 + 1.5 / 5) / 2)
    blind = [Turn(t.name, t.samples, t.seconds, None) for t in turns]
    assert ratios(blind, "ours", "plain")["energy"] is None
    assert summary(blind)["ours"]["joules_per_sample"] is None


@pytest.mark.long
def test_the_rehearsal_compares_profiles_and_overwrites_nothing(tmp_path: Path) -> None:
    out = tmp_path / "speed"
    out.mkdir()
    (out / "speed.json").write_text("mine")
    done = run("--rehearse", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert (out / "speed.json").read_text() == "mine"
    made = tmp_path / "speed-2"
    found: dict[str, Any] = json.loads((made / "speed.json").read_text())
    assert "rehearsal" in found["device"]
    parts = found["comparisons"]
    assert set(parts["fourcastnet"]["contenders"]) == {
        "literal, fp16", "ours, fp16", "ours, bf16", "products, bf16",
    }  # fmt: skip
    assert parts["fourcastnet"]["output_differences"]["ours, fp16"] < 1e-5
    assert parts["fourcastnet"]["output_differences"]["products, bf16"] < 0.05
    for part in parts.values():
        assert all(one["samples_per_s"] > 0 for one in part["contenders"].values())
        assert {turn["name"] for turn in part["turns"]} == set(part["contenders"])
    for shares in found["profiles"].values():
        assert sum(shares.values()) == pytest.approx(1)
    assert len(list(made.glob("*.trace.json.gz"))) == len(found["profiles"]) == 5
    assert "## Published, of another device" in (made / "speed.md").read_text()
