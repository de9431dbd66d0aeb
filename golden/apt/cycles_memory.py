"""Cycle model of the loads on the memory port."""

from collections import deque
from typing import NamedTuple


__all__ = ["Loaded", "LoadCycles", "Memory"]

#: Beats of a burst, and those outstanding at which the next burst waits.
_BURST, _AHEAD = 64, 512
#: From a command to the request of its first burst, and between requests.
_REQUEST, _NEXT_REQUEST = 5, 2
#: Cycles of a tile beside its beats; from its last beat to where it is known that it is loaded.
_TILE, _LOADED = 1, 2


class Memory(NamedTuple):
    """What the engine's memory does."""

    latency: float = 30         #: cycles from a read request to its first beat
    beats_a_cycle: float = 1.0  #: on average
    bursts: int = 8             #: that may be under way


class Loaded(NamedTuple):
    """When a tile came."""

    first: int  #: its first beat, for Q, K and V the scale word
    end: int    #: all of it, to be used in the cycle after


class LoadCycles:
    """Loads one after another; their bursts are asked for ahead.

    Parameters
    ----------
    memory : :class:`Memory`
        Speed.
    params : :class:`~golden.apt.params.AptParams`
        Shape of the engine.
    """

    def __init__(self, memory, params):
        self._memory, self._beat_bits = memory, params.beat_bits
        self._request = self._free = 0
        self._bursts = deque()  # that are under way: (beats, end)

    def load(self, ordered, panel, tile, head=0):
        """:class:`Loaded` of a tile of ``panel`` whose command is given in cycle ``ordered``;
        ``head`` beats hold its scale word. Bursts end at multiples of their size; where the panel
        begins is not known, and taken to be at one."""
        memory, left = self._memory, panel.beats[tile]
        # A beat takes a cycle, or as many as words come out of it; padding counts.
        words = (left - head) * self._beat_bits / panel.word_bits
        a_beat = max(1 / memory.beats_a_cycle, words / left)
        self._request = max(self._request, ordered + _REQUEST)
        first, room = None, _BURST - panel.stride * tile % _BURST
        while left:
            beats = min(room, left)
            left, room = left - beats, _BURST
            while self._bursts and (len(self._bursts) >= memory.bursts
                                    or sum(size for size, _ in self._bursts) >= _AHEAD
                                    or self._bursts[0][1] <= self._request):
                self._request = max(self._request, self._bursts.popleft()[1])
            start = max(self._request + memory.latency, self._free)
            first = start if first is None else first
            self._free = start + beats * a_beat
            self._bursts.append((beats, self._free))
            self._request += _NEXT_REQUEST
        end = self._free - a_beat + _LOADED
        self._free += _TILE
        return Loaded(round(first), round(end))
