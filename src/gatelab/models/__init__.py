"""Networks with gates, each a plain nn.Module."""

from gatelab.models.dgn import DeepGatedNetwork
from gatelab.models.init import bernoulli_, fans, glorot_, he_, initialise
from gatelab.models.mlp import mlp

__all__ = ["DeepGatedNetwork", "bernoulli_", "fans", "glorot_", "he_", "initialise", "mlp"]
