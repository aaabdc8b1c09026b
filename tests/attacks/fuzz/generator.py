"""Random networks, each from one integer."""

from collections.abc import Callable
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.attacks.fuzz.activations import activation, adaptive_max_pooling, max_pooling, overwrites
from tests.attacks.fuzz.programs import Action, Fixed, Normed, Program, Shape, Shifted, Step, Weighted

MOST_UNITS = 60


FIRST_SOFT = 10_000  # from this seed on, half of the activations are smooth


def random_program(seed: int) -> Program:
    """Return the network of this seed."""
    return _Writer(seed).write()


class _Writer:
    """Writes a program block by block; ``self.shapes`` knows the shape of every variable for one example."""

    def __init__(self, seed: int):
        self.random = Random(seed)
        self.axes = self.random.choice((0, 0, 1, 2, 2))
        side = self.random.choice((4, 5, 6)) if self.axes == 2 else self.random.choice((5, 7, 8))
        shape = (self.random.choice((2, 3, 4)), *(side,) * self.axes)
        self.program = Program(seed, shape)
        self.shapes: dict[str, Shape] = {"x": shape}
        self.fresh = {"x": False}  # whether a variable may be overwritten: nothing saved it for a backward pass
        self.count = 0

    def write(self) -> Program:
        """Write blocks, then a head."""
        current = self.layer("x")
        for _ in range(self.random.choice((0, 1, 1, 2, 2, 3))):
            block = self.random.choice(
                (self.layer, self.layer, self.residual, self.dense, self.halves, self.fixed, self.pool, self.shared)
            )
            current = block(current)
        self.head(current)
        return self.program

    # Writing lines -------------------------------------------------------------------------------------------------

    def name(self, letter: str = "h") -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def shape_after(self, run: Callable[..., Tensor], *reads: str) -> Shape:
        return tuple(run(*(torch.zeros(1, *self.shapes[name], dtype=torch.float64) for name in reads)).shape[1:])

    def step(
        self, expression: str, reads: tuple[str, ...], action: Action, shape: Shape, target: str | None = None
    ) -> str:
        """Write one line that computes one variable."""
        target = target or self.name()
        self.program.steps.append(Step(reads, (target,), f"{target} = {expression}", action))
        self.shapes[target] = shape
        self.fresh[target] = isinstance(action, Weighted | Normed)
        return target

    def member(self, letter: str, made: str) -> str:
        name = self.name(letter)
        self.program.members[name] = made
        return name

    def linear_map(self, expression: str, run: Callable[..., Tensor], *reads: str) -> str:
        """Write a line without weights: ``expression`` holds {0}, {1}, … for what it reads."""
        return self.step(expression.format(*reads), reads, Fixed(run), self.shape_after(run, *reads))

    # Weights and gates ---------------------------------------------------------------------------------------------

    def weigh(self, source: str, channels: int | None = None, *, keep: bool = False) -> str:
        """Write a dense layer or a convolution; ``keep`` leaves the size of an image as it is."""
        before, *size = self.shapes[source]
        after = channels or self.random.choice((2, 3, 4))
        bias = self.random.random() < 0.5
        if not size:
            return self.dense_layer(source, before, after, bias)
        axes = len(size)
        kernel = self.random.choice((1, 3) if keep or min(size) < 5 else (1, 2, 3))
        dilation = 2 if kernel == 2 and self.random.random() < 0.3 else 1
        groups = self.random.choice([g for g in (1, 1, 2, before) if before % g == 0 and after % g == 0])
        stride = 1 if keep else self.random.choice((1, 1, 2))
        padding = kernel // 2 if keep or kernel > min(size) else self.random.choice((0, kernel // 2))
        mode = (
            self.random.choice(("zeros",) * 4 + ("reflect", "replicate", "circular"))
            if 0 < padding < min(size)
            else "zeros"
        )
        name = self.member(
            "conv",
            f"nn.Conv{axes}d({before}, {after}, {kernel}, stride={stride}, padding={padding}, dilation={dilation}, "
            f"groups={groups}, bias={bias}, padding_mode='{mode}')",
        )
        action = Weighted(
            f"{name}.weight",
            f"{name}.bias" if bias else None,
            stride,
            padding,
            dilation,
            groups,
            "constant" if mode == "zeros" else mode,
        )
        weight = torch.zeros(after, before // groups, *(kernel,) * axes, dtype=torch.float64)
        shape = self.shape_after(lambda signal: action.run(signal, weight, None), source)
        return self.step(f"self.{name}({source})", (source,), action, shape)

    def dense_layer(self, source: str, before: int, after: int, bias: bool) -> str:
        style = self.random.choice(("module",) * 8 + ("functional", "matmul"))
        if style == "module":
            name = self.member("fc", f"nn.Linear({before}, {after}, bias={bias})")
            action = Weighted(f"{name}.weight", f"{name}.bias" if bias else None)
            return self.step(f"self.{name}({source})", (source,), action, (after,))
        weight = self.member("w", f"nn.Parameter(torch.randn({after}, {before}) / 2)")
        offset = self.member("b", f"nn.Parameter(torch.randn({after}) / 2)") if bias else None
        added = f" + self.{offset}" if bias else ""
        functional = f"F.linear({source}, self.{weight}, {f'self.{offset}' if bias else None})"
        line = functional if style == "functional" else f"{source} @ self.{weight}.T{added}"
        return self.step(line, (source,), Weighted(weight, offset), (after,))

    def norm(self, source: str) -> str:
        axes = len(self.shapes[source]) - 1
        affine = self.random.random() < 0.7
        name = self.member("bn", f"nn.BatchNorm{max(axes, 1)}d({self.shapes[source][0]}, affine={affine})")
        return self.step(f"self.{name}({source})", (source,), Normed(name), self.shapes[source])

    def gate(self, source: str) -> str:
        in_place = self.fresh[source] and self.random.random() < 0.4
        call, module, action = activation(
            self.random, self.shapes[source][0], in_place=in_place, soft=self.program.seed >= FIRST_SOFT
        )
        if module is not None:
            call = f"self.{self.member('act', module)}({{v}})"
        target = source if overwrites(module or call) else None
        made = self.step(call.format(v=source), (source,), action, self.shapes[source], target)
        self.fresh[made] = False
        return made

    def layer(self, source: str) -> str:
        """Weights, perhaps batch-norm, a gate."""
        made = self.weigh(source)
        if self.random.random() < 0.35:
            made = self.norm(made)
        return self.gate(made)

    def shared(self, source: str) -> str:
        """One dense layer of equal widths, or one 3-wide convolution, used twice."""
        channels, *size = self.shapes[source]
        made = (
            f"nn.Conv{len(size)}d({channels}, {channels}, 3, padding=1)"
            if size
            else f"nn.Linear({channels}, {channels})"
        )
        name = self.member("twice", made)
        action = Weighted(f"{name}.weight", f"{name}.bias", padding=1 if size else 0)
        for _ in range(2):
            source = self.gate(self.step(f"self.{name}({source})", (source,), action, self.shapes[source]))
        return source

    # Blocks --------------------------------------------------------------------------------------------------------

    def residual(self, source: str) -> str:
        """A body that keeps the shape, and a skip around it."""
        channels = self.shapes[source][0]
        body = self.weigh(source, None, keep=True)
        if self.random.random() < 0.6:
            body = self.weigh(self.gate(body), channels, keep=True)
        elif self.shapes[body][0] != channels:
            body = self.weigh(body, channels, keep=True)
        if self.random.random() < 0.3:
            body = self.norm(body)
        return self.gate_perhaps(self.sum(body, source))

    def gate_perhaps(self, source: str) -> str:
        return self.gate(source) if self.random.random() < 0.6 else source

    def sum(self, one: str, other: str) -> str:
        if self.fresh[one] and self.random.random() < 0.4:
            self.program.steps.append(Step((one, other), (one,), f"{one} += {other}", Fixed(lambda a, b: a + b)))
            self.fresh[one] = True
            return one
        expression, run = self.random.choice(
            (
                ("{0} + {1}", lambda a, b: a + b),
                ("torch.add({0}, {1})", lambda a, b: a + b),
                ("{1} - {0}", lambda a, b: b - a),
                ("torch.add({0}, {1}, alpha=0.5)", lambda a, b: a + 0.5 * b),
                ("torch.stack([{0}, {1}]).sum(0)", lambda a, b: a + b),
            )
        )
        return self.linear_map(expression, run, one, other)

    def dense(self, source: str) -> str:
        """The signal and a layer that reads it, side by side."""
        if self.shapes[source][0] > 4:
            return self.layer(source)
        branch = self.gate(self.weigh(source, self.random.choice((1, 2)), keep=True))
        return self.linear_map("torch.cat([{0}, {1}], 1)", lambda a, b: torch.cat([a, b], 1), source, branch)

    def halves(self, source: str) -> str:
        """Channels taken apart, one part through a layer, and put together again."""
        channels = self.shapes[source][0]
        cut = channels // 2
        if not cut:
            return self.layer(source)
        style = self.random.choice(("slice", "split", "chunk"))
        first = self.linear_map(f"{{0}}[:, :{cut}]", lambda a: a[:, :cut], source)
        if style == "slice":
            second = self.linear_map(f"{{0}}[:, {cut}:]", lambda a: a[:, cut:], source)
        else:
            second = self.linear_map(f"{{0}}.split([{cut}, {channels - cut}], 1)[1]", lambda a: a[:, cut:], source)
        changed = self.gate(self.weigh(second, channels - cut, keep=True))
        return self.linear_map("torch.cat([{0}, {1}], dim=1)", lambda a, b: torch.cat([a, b], 1), changed, first)

    def pool(self, source: str) -> str:
        """A pooling of an image; a layer where there is none."""
        size = self.shapes[source][1:]
        if not size or min(size) < 2:
            return self.layer(source)
        if self.random.random() < 0.4:
            return self.average(source, len(size))
        make = adaptive_max_pooling if self.random.random() < 0.3 else max_pooling
        call, module, action = make(self.random, size)
        if self.random.random() < 0.5:
            call = f"self.{self.member('pool', module)}({{v}})"
        shape = self.shape_after(lambda q: action.run(q)[0], source)
        return self.step(call.format(v=source), (source,), action, shape)

    def average(self, source: str, axes: int) -> str:
        window = self.random.choice((2, 3) if min(self.shapes[source][1:]) > 2 else (2,))
        stride, padding = self.random.choice((1, 2)), self.random.choice((0, window // 2))
        ceil, include = self.random.random() < 0.3, self.random.random() < 0.5
        pool = (F.avg_pool1d, F.avg_pool2d)[axes - 1]
        call = f"F.avg_pool{axes}d({{0}}, {window}, {stride}, {padding}, {ceil}, {include})"
        return self.linear_map(call, lambda a: pool(a, window, stride, padding, ceil, include), source)

    def fixed(self, source: str) -> str:
        """A constant factor or shift, or a rearrangement, before the next layer."""
        options: list[tuple[str, Callable[[Tensor], Tensor]]] = [
            ("0.5 * {0}", lambda a: 0.5 * a),
            ("{0} / 4", lambda a: a / 4),
            ("-{0}", lambda a: -a),
            ("{0}.flip(1)", lambda a: a.flip(1)),
            ("{0}.roll(1, 1)", lambda a: a.roll(1, 1)),
        ]
        if self.axes and len(self.shapes[source]) > 1:
            options += [
                ("F.pad({0}, (1, 0))", lambda a: F.pad(a, (1, 0))),
                ("{0}.flip(-1)", lambda a: a.flip(-1)),
                ("{0}.transpose(-1, -2)", lambda a: a.transpose(-1, -2))
                if self.axes == 2
                else ("{0} * 2", lambda a: a * 2),
            ]
            if self.shapes[source][-1] > 1:
                options.append(("{0}[..., 1:]", lambda a: a[..., 1:]))
            if torch.Size(self.shapes[source]).numel() <= MOST_UNITS // 4:
                options.append(("F.interpolate({0}, scale_factor=2)", lambda a: F.interpolate(a, scale_factor=2)))
        if self.random.random() < 0.1:
            by = 0.25
            return self.layer(self.step(f"{source} + {by}", (source,), Shifted(by), self.shapes[source]))
        expression, run = self.random.choice(options)
        return self.layer(self.linear_map(expression, run, source))

    def head(self, source: str) -> None:
        """Flatten or pool over the image, then a dense layer; or end as an image, or behind a gate."""
        size = self.shapes[source][1:]
        if size:
            style = self.random.choice(("flatten", "flatten", "mean", "sum", "none"))
            axes = tuple(range(2, 2 + len(size)))
            if style == "none":
                source = self.weigh(source, 2)
            elif style in ("mean", "sum"):
                source = self.linear_map(f"{{0}}.{style}({axes})", lambda a: getattr(a, style)(axes), source)
            else:
                flat = self.random.choice(("{0}.flatten(1)", "torch.flatten({0}, 1)", "{0}.reshape({0}.shape[0], -1)"))
                source = self.linear_map(flat, lambda a: a.flatten(1), source)
        if len(self.shapes[source]) == 1:
            source = self.weigh(source, self.random.choice((1, 2, 3)))
        if self.random.random() < 0.1:
            source = self.gate(source)
        self.step(source, (source,), Fixed(lambda a: a), self.shapes[source], "y")
