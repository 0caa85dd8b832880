"""How far outputs and gradients of a network are from those of the literal one in float32."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gpu_speed.literal_network import literal
from scalewatt.training.network import Precision

_SCALES = (2.0**16, 2.0**12, 2.0**8, 2.0**4, 1.0)
"""Of the loss in fp16: the largest at which all gradients are finite, as a scaler would find it."""
Loss = Callable[[nn.Module, tuple[Tensor, ...]], Tensor]


class Parity:
    """A reference, and how far others are from it, each with the reference's weights for a moment."""

    def __init__(
        self, device: torch.device, network: nn.Module, fields: tuple[int, ...], loss: Loss
    ) -> None:
        """Take the weights of `network`, and random inputs and targets of the shape `fields`."""
        self.device, self._loss = device, loss
        self._weights = network.to(device).state_dict()
        self.found: dict[str, Any] = {}
        generator = torch.Generator(device).manual_seed(1)
        x, y = torch.randn((2, *fields), generator=generator, device=device)
        self._batch = x, y
        exact = Precision.of("fp32", device)
        exact.set_flags()
        self._output, self._gradients = self._passes(literal(network).to(device), exact, 1.0)

    def check(self, name: str, network: nn.Module, precision: Precision) -> None:
        """Note how far `network` is from the reference; its weights are then as before."""
        own = copy.deepcopy(network.state_dict())
        names = list(own)
        network.load_state_dict(dict(zip(names, self._weights.values(), strict=True)))
        try:
            for scale in _SCALES if precision.autocast == torch.float16 else (1.0,):
                output, gradients = self._passes(network, precision, scale)
                if all(bool(g.isfinite().all()) for g in gradients.values()):
                    break
            self.found[name] = self._distance(output, gradients)
        finally:
            network.load_state_dict(own)
            network.zero_grad(set_to_none=True)

    def _passes(
        self, network: nn.Module, precision: Precision, scale: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        network.zero_grad(set_to_none=True)
        outputs: list[Tensor] = []

        def kept(x: Tensor) -> Tensor:
            outputs.append(network(x))
            return outputs[0]

        with precision.computing(self.device):
            loss = self._loss(kept, self._batch)  # type: ignore[arg-type]
        (loss * scale).backward()
        gradients = {
            _bare(name): parameter.grad.float() / scale
            for name, parameter in network.named_parameters()
            if parameter.grad is not None
        }
        return outputs[0].detach().float(), gradients

    def _distance(self, output: Tensor, gradients: dict[str, Tensor]) -> dict[str, Any]:
        squares = {name: _squares(gradients[name], own) for name, own in self._gradients.items()}
        error, size = (sum(pair[i] for pair in squares.values()) for i in (0, 1))
        by_parameter = {name: (e / s) ** 0.5 for name, (e, s) in squares.items() if s > 0}
        worst = max(by_parameter, key=lambda name: by_parameter[name])
        e, s = _squares(output, self._output)
        return {
            "output_relative_l2": (e / s) ** 0.5,
            "output_largest": float((output - self._output).abs().max()),
            "gradient_relative_l2": (error / size) ** 0.5,
            "gradient_worst_parameter": worst,
            "gradient_worst_relative_l2": by_parameter[worst],
        }


def _squares(found: Tensor, expected: Tensor) -> tuple[float, float]:
    difference = (found.double() - expected.double()).square().sum()
    return float(difference), float(expected.double().square().sum())


def _bare(name: str) -> str:
    """Return a parameter's name without what DDP and the compiler put before it."""
    return name.replace("_orig_mod.", "").removeprefix("module.")
