"""What a diagnosis of a network says: layer by layer, in numbers and in words."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from gatelab.hierarchy.cells import Gap

_SMALL, _LARGE = 0.1, 0.5


@dataclass(frozen=True)
class LayerDiagnosis:
    """Theorem 2's assumptions at one layer of gates, or at the output, measured by what they do to its nodes.

    All gaps are RMS over values of z, regions and nodes, relative to the RMS of the true means given z: of focus to
    E[f^raw | z], of the activations to f(z), of broadness to E[g^raw | z], of the gradients to g(z). 1 means that an
    assumption is as wrong as the mean is large.

    Attributes:
        layer: the gate's name; "output" for the top.
        regions, nodes, values: regions that were measured, nodes in each, values of z_α.
        bits: entropy of z_α.
        focus: E[Σ w f_k(z_β) | z_α] against E[f^raw | z_α]: does z_α tell nothing about the child's nodes beyond z_β?
        broadness: E[Σ w g_j(z_α) | z_β] against E[g^raw | z_β], at this layer as the child.
        activations, gradients: decorrelation, Cov(f', f^raw | z) and Cov(f', g^raw | z).
        forward, backward: both causes together, Eq. 7: F and G̃ against the true conditional means.
        selectivity: node by event of z_α, the correlation with [z_α = a]; mean over regions.
        label_selectivity: node by label, the same with [y = a].
        disentanglement: Definition 3's score, if z_α consists of binary factors, else None.
        variance_score: the same, as a share of the nodes' variance over examples.
        entangled: relative distance of F and of G̃ of the matched nodes from disentangled (Definitions 3 and 4).
        inseparable: relative distance of the weights between matched nodes from separable (Definition 5).
    """

    layer: str
    regions: int
    nodes: int
    values: int
    bits: float
    focus: Gap
    broadness: Gap | None
    activations: Gap | None
    gradients: Gap | None
    forward: Gap
    backward: Gap | None
    selectivity: Float[Tensor, "c m"]
    label_selectivity: Float[Tensor, "c k"]
    disentanglement: float | None = None
    variance_score: float | None = None
    entangled: tuple[float, float] | None = None
    inseparable: float | None = None


@dataclass(frozen=True)
class Patches:
    """The places that excite a layer's nodes most: for each node, examples and regions, the strongest first."""

    layer: str
    strengths: Float[Tensor, "c k"]
    examples: Int[Tensor, "c k"]
    regions: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Diagnosis:
    """A network seen through a teacher: its layers from the input up, and the output.

    Attributes:
        layers: the measurements.
        updates: weight → relative error of Δw if f_k and g_j were uncorrelated given z_α (what the matrix form of
            Theorem 4 assumes), with its interval.
        patches: what excites each layer's nodes.
        examples, loss: how many examples, and their mean loss.
    """

    layers: tuple[LayerDiagnosis, ...]
    updates: dict[str, Gap]
    patches: tuple[Patches, ...]
    examples: int
    loss: float

    def words(self) -> list[str]:
        """Return sentences on where Theorem 2's assumptions break in this network, and by how much."""
        said = []
        for layer in self.layers:
            gaps = {
                "focus": layer.focus,
                "broadness": layer.broadness,
                "decorrelation of activations": layer.activations,
                "decorrelation of gradients": layer.gradients,
            }
            known = [f"{name} {gap}" for name, gap in gaps.items() if gap is not None]
            errors = [gap for gap in (layer.forward, layer.backward) if gap is not None]
            said.append(
                f"Layer {layer.layer}: {_degree(errors)} Eq. 7 misses f(z) by {layer.forward} of its length"
                + (f" and g(z) by {layer.backward}" if layer.backward is not None else "")
                + f". Gaps: {', '.join(known)}."
            )
        if self.updates:
            weight, gap = max(self.updates.items(), key=lambda pair: pair[1].value)
            said.append(
                f"Updates: taking f and g as uncorrelated given z changes Δ of '{weight}' by {gap} of its length, the "
                f"largest change among {len(self.updates)} weights."
            )
        return said


def _degree(errors: list[Gap]) -> str:
    """Grade the assumptions by the intervals of the forward and backward errors."""
    surely = max(gap.low for gap in errors)
    if all(gap.high < _SMALL for gap in errors):
        return "the assumptions nearly hold:"
    if surely > _LARGE:
        return "the assumptions break badly:"
    if surely > _SMALL:
        return "the assumptions break:"
    return (
        "the assumptions fail; these examples are too few to tell by how much:"
        if surely
        else "no error stands out from the noise:"
    )
