"""Q, K and V of chosen steps and layers, taken out of a sampling run."""

import dataclasses

import numpy as np

from golden.common.errors import UserError
from golden.common.files import writing_whole

from .model import HEAD_DIM, HEADS, STEPS, TOKENS, Dit, attention, initial_noise, trajectory


__all__ = ["Capture", "Recorder", "capture"]

_FIELDS = ("category", "style", "seed", "steps", "layers", "q", "k", "v")


class _Complete(Exception):
    """Everything was recorded: the rest of the run is not needed."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Capture:
    """Attention inputs of one guided pass a step.

    Parameters
    ----------
    category, style, seed : :class:`int`
        Labels and noise of the run.
    steps, layers : :class:`tuple` of :class:`int`
        What was captured, in rising order.
    q, k, v : array
        Float32 [steps, layers, heads, tokens, 64], in the order of ``steps`` and ``layers``.
    """

    category: int
    style: int
    seed: int
    steps: tuple
    layers: tuple
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray

    def at(self, step, layer, head):
        """``q, k, v`` [tokens, 64] of one head."""
        where = self.steps.index(step), self.layers.index(layer), head
        return self.q[where], self.k[where], self.v[where]

    def save(self, path):
        """Write an .npz file, whole or not at all."""
        with writing_whole(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **{name: getattr(self, name) for name in _FIELDS})

    @classmethod
    def load(cls, path):
        """Read what :meth:`save` wrote; :class:`~golden.common.errors.UserError` if it is not."""
        try:
            with open(path, "rb") as file, np.load(file) as stored:
                fields = {name: stored[name] for name in _FIELDS}
        except (KeyError, ValueError, EOFError) as error:
            raise UserError(f"{path} must be a file that `golden capture` wrote: "
                            f"{error}") from error
        for name in ("category", "style", "seed"):
            fields[name] = int(fields[name])
        for name in ("steps", "layers"):
            fields[name] = tuple(fields[name].tolist())
        shape = (len(fields["steps"]), len(fields["layers"]), HEADS, TOKENS, HEAD_DIM)
        for name in ("q", "k", "v"):
            if fields[name].shape != shape or fields[name].dtype != np.float32:
                raise UserError(f"{path}: {name} must be float32 of shape {shape}, not "
                                f"{fields[name].dtype} of shape {fields[name].shape}")
        return cls(**fields)


class Recorder:
    """An attention hook that keeps Q, K and V of guided passes and leaves the rest to another hook.

    Parameters
    ----------
    steps, layers : iterables of :class:`int`
        What to keep: every layer of ``layers`` in every step of ``steps``.
    attn : callable
        The attention that is computed (:func:`golden.dit.model.attention` by default).
    """

    def __init__(self, steps, layers, attn=attention):
        self.steps, self.layers = tuple(sorted(set(steps))), tuple(sorted(set(layers)))
        self._attn, self._kept = attn, {}

    @property
    def complete(self):
        """Whether everything was seen."""
        return len(self._kept) == len(self.steps) * len(self.layers)

    def __call__(self, q, k, v, *, step, layer, guided):
        if guided and step in self.steps and layer in self.layers:
            self._kept[step, layer] = q.copy(), k.copy(), v.copy()
        return self._attn(q, k, v, step=step, layer=layer, guided=guided)

    def capture(self, *, category, style, seed):
        """The :class:`Capture` of a finished run."""
        q, k, v = (np.array([[self._kept[step, layer][tensor] for layer in self.layers]
                             for step in self.steps]) for tensor in range(3))
        return Capture(category=category, style=style, seed=seed, steps=self.steps,
                       layers=self.layers, q=q, k=k, v=v)


class _StoppingRecorder(Recorder):
    def __call__(self, q, k, v, *, step, layer, guided):
        mixed = super().__call__(q, k, v, step=step, layer=layer, guided=guided)
        if self.complete:
            raise _Complete
        return mixed


def capture(*, category, style, seed, steps, layers, total_steps=STEPS, model=None, on_step=None):
    """Run the sampler until the last layer wanted of the last step wanted.

    ``on_step(done)`` is called after each whole step. Both label numbers, the noise of ``seed``
    and ``total_steps`` make the run; ``steps`` and ``layers`` say what to keep.
    """
    recorder = _StoppingRecorder(steps, layers)
    run = trajectory(model or Dit.load(), initial_noise(seed), category=category, style=style,
                     steps=total_steps, attn=recorder)
    try:
        for done, _ in enumerate(run, 1):
            if on_step is not None:
                on_step(done)
    except _Complete:
        pass
    return recorder.capture(category=category, style=style, seed=seed)
