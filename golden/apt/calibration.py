"""Calibration of a model for the APT engine: what the host sets for every head at every step.

A calibration is a JSON file. It says for each layer, head and step the two thresholds and the
refresh bit, and for the model the count thresholds of the mask encoder and the number of dense
steps (numerics 4.2 to 4.5); the rest of it tells how these came about. Layers and steps are those
that were profiled.
"""

import dataclasses
import json

import numpy as np

from golden.common.errors import UserError

from .attend import Step
from .params import AptParams
from .tafa import threshold_code
from .thresholds import THRESHOLDS, check_thresholds


__all__ = ["FORMAT", "SHAPE_FIELDS", "Calibration", "Refresh", "refresh_bits"]

#: First entry of a file.
FORMAT = "tilewright calibration 1"
#: Parameters that count thresholds depend on.
SHAPE_FIELDS = ("tile_q", "tile_k", "codec", "rowcol_decode", "block_rows", "block_cols")
#: The two thresholds of a head, in the order of :attr:`golden.apt.attend.Step.codes`.
_NAMES = ("prune", "quant")


@dataclasses.dataclass(frozen=True)
class Refresh:
    """Steps at which a head is refreshed, bool ``[layers, heads, steps]``, by their cause."""

    periodic: np.ndarray
    driven: np.ndarray

    @property
    def bits(self):
        """The refresh bit of each head and step."""
        return self.periodic | self.driven


def refresh_bits(sigma, steps, dense_steps, every, drop):
    """The :class:`Refresh` of heads with deviations ``[layers, heads, steps]`` (numerics A7).

    A head is refreshed ``every`` so many steps (0: never), and where its deviation has dropped by
    more than ``drop`` times its range since the last refresh. Dense steps, those below
    ``dense_steps``, are refreshes too; so is the first step.
    """
    sigma = np.asarray(sigma, np.float64)
    width = sigma.max(-1) - sigma.min(-1)
    periodic, driven = np.zeros((2, *sigma.shape), bool)
    last_step, last_sigma = np.full(sigma.shape[:-1], steps[0]), sigma[..., 0]
    for index, step in enumerate(steps):
        fresh = np.full(sigma.shape[:-1], index == 0 or step < dense_steps)
        periodic[..., index] = ~fresh & (every > 0) & (step - last_step >= every)
        dropped = last_sigma - sigma[..., index] > drop * width
        driven[..., index] = ~fresh & ~periodic[..., index] & dropped
        fresh |= periodic[..., index] | driven[..., index]
        last_step = np.where(fresh, step, last_step)
        last_sigma = np.where(fresh, sigma[..., index], last_sigma)
    return Refresh(periodic, driven)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """Settings of every head at every step.

    Parameters
    ----------
    shape : :class:`dict`
        The parameters :data:`SHAPE_FIELDS`.
    steps, layers : :class:`tuple` of :class:`int`
        Steps and layers, in rising order.
    sigma : array ``[layers, heads, steps]``
        Deviation of the probabilities.
    theta : array ``[2, layers, heads, steps]``
        Prune and quant thresholds, of probabilities.
    refresh : bool array ``[layers, heads, steps]``
        Refresh bits.
    dense_steps : :class:`int`
        Steps below this are dense, at least 1.
    counts : :class:`tuple`
        Count thresholds of the mask encoder.
    alpha, beta : arrays ``[2, layers, heads]``
        The rule behind ``theta``; NaN where there is none.
    report : :class:`dict`
        What was profiled, wanted and achieved.
    """

    shape: dict
    steps: tuple
    layers: tuple
    sigma: np.ndarray
    theta: np.ndarray
    refresh: np.ndarray
    dense_steps: int
    counts: tuple
    alpha: np.ndarray
    beta: np.ndarray
    report: dict = dataclasses.field(default_factory=dict)

    @property
    def heads(self):
        """Heads of a layer."""
        return self.sigma.shape[1]

    @property
    def codes(self):
        """Codes of the thresholds, -log2 as Q5.11, ``[2, layers, heads, steps]``."""
        return threshold_code(self.theta)

    def _where(self, layer, head, step):
        for name, value, known in (("layer", layer, self.layers), ("step", step, self.steps),
                                   ("head", head, range(self.heads))):
            if value not in known:
                raise UserError(f"The calibration has no {name} {value}; it has "
                                f"{', '.join(map(str, known))}")
        return self.layers.index(layer), head, self.steps.index(step)

    def thresholds(self, layer, head, step):
        """The prune and the quant threshold of a head at a step, of probabilities."""
        return tuple(self.theta[(slice(None), *self._where(layer, head, step))].tolist())

    def step(self, layer, head, step):
        """The :class:`golden.apt.attend.Step` of a head at a step."""
        where = self._where(layer, head, step)
        codes = threshold_code(self.theta[(slice(None), *where)]).tolist()
        return Step(tuple(codes), step < self.dense_steps, bool(self.refresh[where]), self.counts)

    def document(self):
        """The file as a dict of plain numbers, lists and dicts."""
        def plain(array):
            return np.where(np.isnan(array), None, array).tolist()

        return {
            "format": FORMAT, "shape": self.shape, "steps": list(self.steps),
            "layers": list(self.layers), "heads": self.heads, "dense_steps": self.dense_steps,
            "counts": self.counts._asdict(), **self.report,
            "sigma_min": self.sigma.min(-1).tolist(), "sigma_max": self.sigma.max(-1).tolist(),
            "sigma": self.sigma.tolist(),
            **{part: dict(zip(_NAMES, map(plain, getattr(self, part)), strict=True))
               for part in ("alpha", "beta", "theta", "codes")},
            "refresh": self.refresh.astype(int).tolist(),
        }

    def text(self):
        """The file: JSON with an entry a line."""
        entries = [f"{json.dumps(name)}: {json.dumps(value)}"
                   for name, value in self.document().items()]
        return "{\n" + ",\n".join(entries) + "\n}\n"

    @classmethod
    def load(cls, path, params=None):
        """Read a file; :class:`~golden.common.errors.UserError` in one line if it is not one.

        With ``params`` its tiles and codec must be these parameters'.
        """
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
        except ValueError as error:
            raise UserError(f"{path} must be a calibration file: {error}") from error
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise UserError(f"{path} must be a calibration file, with \"format\": \"{FORMAT}\"")
        try:
            loaded = cls._of(document)
        except KeyError as error:
            raise UserError(f"{path}: entry {error} is missing") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{path}: {error}") from error
        for name in SHAPE_FIELDS if params is not None else ():
            if loaded.shape[name] != getattr(params, name):
                raise UserError(f"{path} is for {name} {loaded.shape[name]}, "
                                f"not {getattr(params, name)}")
        return loaded

    @classmethod
    def _of(cls, document):
        shape = {name: document["shape"][name] for name in SHAPE_FIELDS}
        params = AptParams(**shape, lanes=2, window_qk=1, window_pv=1)  # which checks the shape
        steps, layers = (_numbers(document[name], name) for name in ("steps", "layers"))
        size = len(layers), _positive(document, "heads"), len(steps)
        sigma = _array(document["sigma"], "sigma", size)
        theta = np.stack([_array(document["theta"][name], f"theta of {name}", size)
                          for name in _NAMES])
        if not (theta > 0).all() or not (theta <= 1).all():
            raise ValueError("thresholds must be above 0 and at most 1")
        codes = np.stack([_array(document["codes"][name], f"codes of {name}", size)
                          for name in _NAMES])
        if (codes != threshold_code(theta)).any():
            raise ValueError("codes must be -log2 of the thresholds, Q5.11")
        pairs = [np.stack([_array(document[part][name], f"{part} of {name}", size[:2], finite=False)
                           for name in _NAMES]) for part in ("alpha", "beta")]
        refresh = _array(document["refresh"], "refresh", size)
        if not np.isin(refresh, (0, 1)).all():
            raise ValueError("refresh must consist of 0 and 1")
        known = {"format", "shape", "steps", "layers", "heads", "dense_steps", "counts",
                 "sigma_min", "sigma_max", "sigma", "alpha", "beta", "theta", "codes", "refresh"}
        return cls(shape=shape, steps=steps, layers=layers, sigma=sigma, theta=theta,
                   refresh=refresh.astype(bool),
                   dense_steps=_positive(document, "dense_steps"),
                   counts=_counts(document["counts"], params), alpha=pairs[0], beta=pairs[1],
                   report={name: value for name, value in document.items() if name not in known})


def _numbers(values, name):
    if not (isinstance(values, list) and values and all(type(value) is int for value in values)
            and values == sorted(set(values))):
        raise ValueError(f"{name} must be integers in rising order")
    return tuple(values)


def _array(values, name, size, *, finite=True):
    try:
        array = np.array(values, np.float64)
    except (TypeError, ValueError):
        array = None
    if array is None or array.shape != size or (finite and not np.isfinite(array).all()):
        raise ValueError(f"{name} must be numbers of shape {list(size)}")
    return array


def _positive(document, name):
    value = document[name]
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, not {value!r}")
    return value


def _counts(values, params):
    kind = THRESHOLDS[params.codec]
    if not isinstance(values, dict) or set(values) != set(kind._fields) or not all(
            type(value) is int and value >= 0 for value in values.values()):
        raise ValueError(f"counts must be integers {', '.join(kind._fields)}")
    return check_thresholds(kind(**values), params)
