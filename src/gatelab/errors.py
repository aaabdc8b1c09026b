"""The errors that gatelab raises. Each message gives the fact, the place and the remedy.

The docstrings give causes and remedies: ``gatelab explain NAME`` prints them, and they are a page of the documentation.
"""


class GatelabError(Exception):
    """Base class of all gatelab errors: ``except gatelab.errors.GatelabError`` catches every one of them.

    Look at the class of the error that you got: each has causes and remedies of its own. A traceback ends with the
    command that prints them.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.add_note(f"'gatelab explain {type(self).__name__}' prints common causes and remedies")


class InputError(GatelabError, ValueError):
    """An argument or the data do not fit the model, or do not fit each other.

    Common causes:

    - the examples have a different number of features, channels or pixels than the model takes: the message gives both;
    - labels are outside the classes, or NaN or infinite values are in the data or the weights: clean them first;
    - the model is in training mode, where batch-norm and dropout make examples depend on each other: call
      ``model.eval()``;
    - examples depend on each other in another way (``x - x.mean(0)``): then no quantity belongs to a single example;
    - two gate patterns come from different networks or examples: capture both at the same inputs;
    - the result would not fit in memory: use ``gatelab kernel`` to write it to disk.
    """


class OutOfRangeError(InputError, IndexError):
    """An index is out of range. Being an IndexError, it ends a Python loop over rows.

    Common causes:

    - an example, output or layer is counted from 1: count from 0, the last one is the number of them minus 1;
    - the index belongs to another data set, or to the data before a split: take it from the data that you pass.
    """


class UnsupportedModelError(GatelabError, TypeError):
    """The model contains an operation for which gatelab has no exact rule. The message names it and its line.

    Common causes and ways out:

    - LayerNorm, GroupNorm or attention over tokens before a gate: their statistics depend on the input. They may
      come after the last gate. Tangent kernels work for any model;
    - no exact path kernel: ``gatelab.path_features`` estimates it for every model that ``to_dgn`` converts;
    - control flow that depends on values (``if x.sum() > 0``), or random numbers in forward: take them out;
    - a compiled, scripted or quantised model: pass the original ``nn.Module``;
    - several outputs: choose one with ``output=``.

    ``print(gatelab.read(model, x).abilities())`` lists what gatelab can do with a model, and what prevents the rest.
    """


class TooManyPathsError(GatelabError, ValueError):
    """The call would enumerate more paths than its limit allows.

    The number of paths grows as width to the power of depth. ``neural_path_kernel``, ``top_paths`` and ``count_paths``
    do not enumerate paths. For a small network, raise the limit with ``max_paths=``.
    """


class PathCountOverflowError(GatelabError, OverflowError):
    """A raw path count does not fit in float64.

    The number of paths grows as width to the power of depth. Leave ``normalise=True``, the default: it divides by the
    number of paths and cannot overflow.
    """


class SupportTooLargeError(GatelabError, ValueError):
    """The call would visit more inputs than its limit allows.

    Exact sums over all inputs of a discrete distribution are for small regions. Use an ``Empirical`` distribution of a
    data set, or estimate from samples (``counted_events``).
    """


class DataError(GatelabError, OSError):
    """A data file is missing, truncated or corrupt, or cannot be downloaded or written.

    ``gatelab data`` lists the data sets found and the folders searched; ``gatelab data fetch NAME`` downloads
    and verifies one. Set ``GATELAB_DATA`` to folders of your own.
    """


class RunError(GatelabError, RuntimeError):
    """A run directory does not match the request, or cannot be written.

    Common causes:

    - the same directory with another configuration: the message names the difference; choose another ``--out``;
    - damage: ``gatelab verify DIR`` names the part, and ``--redo-damaged`` computes it again;
    - another process is working in the directory: wait for it, or choose another ``--out``;
    - the disk is full or the directory is read-only: free space, or choose another ``--out``.
    """


class StoreError(RunError):
    """A kernel on disk does not match the request, is damaged, or cannot be created.

    A store belongs to one model, its weights, its data and one kind of kernel. If the message names a difference,
    choose another ``-o``. If it names damage, ``gatelab verify`` lists the damaged parts, and the same command with
    ``--redo-damaged`` computes them again.
    """


class NotConvergedWarning(UserWarning):
    """An iteration stopped before it reached its tolerance; the result holds the residual.

    Allow more iterations (``max_iterations=``) or a larger ridge, or accept the residual if it is small enough for you.
    """
