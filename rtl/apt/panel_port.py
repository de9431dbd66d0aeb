"""What loader, storer and memory port share: kinds, commands, bursts, words of panels."""

from amaranth import Signal, signed
from amaranth.lib import data, enum

from golden.common.checks import ceil_div, ceil_log2


__all__ = ["ADDRESS_BITS", "BURST_BITS", "COUNT_BITS", "LARGEST_BURST", "LoadKind", "StoreKind",
           "burst", "check_burst_beats", "command", "k_address", "kv_address", "kv_part_bits",
           "kv_parts", "kv_write", "memory_request", "memory_write", "q_address", "q_write",
           "round_robin", "state_word", "v_address"]

#: Addresses count beats.
ADDRESS_BITS = 32
#: Words and beats of a tile.
COUNT_BITS = 16
#: Beats of the longest burst.
LARGEST_BURST = 256
#: Bits of a burst's number of beats, 1 to ``LARGEST_BURST``.
BURST_BITS = LARGEST_BURST.bit_length()


class LoadKind(enum.Enum, shape=3):
    """Panels that are read; the numbers are those of :class:`golden.apt.job.Region`."""

    Q = 0
    K = 1
    V = 2
    CODE = 3
    STATE = 4
    ROWS = 5


class StoreKind(enum.Enum, shape=2):
    """Panels that are written."""

    CODE = 0
    STATE = 1
    ROWS = 2
    O = 3  # noqa: E741


def command(kind):
    """A tile to move: its first beat's address, its words in the engine and its beats, both at
    least 1. ``buffer`` says where a loaded tile goes."""
    fields = {"kind": kind, "address": ADDRESS_BITS, "words": COUNT_BITS, "beats": COUNT_BITS}
    if kind is LoadKind:
        fields["buffer"] = 1
    return data.StructLayout(fields)


def burst():
    """Consecutive beats: 1 to ``LARGEST_BURST``."""
    return data.StructLayout({"address": ADDRESS_BITS, "beats": BURST_BITS})


def memory_request():
    """A burst that is read, or written with as many beats."""
    return data.StructLayout({"write": 1, "address": ADDRESS_BITS, "beats": BURST_BITS})


def check_burst_beats(burst_beats):
    """Require a power of two up to ``LARGEST_BURST``."""
    if not isinstance(burst_beats, int) or isinstance(burst_beats, bool):
        raise TypeError(f"Burst beats must be an integer, not {burst_beats!r}")
    if not 1 <= burst_beats <= LARGEST_BURST or burst_beats & (burst_beats - 1):
        raise ValueError(f"Burst beats must be a power of two in 1..{LARGEST_BURST}, "
                         f"not {burst_beats}")


# Addresses of the engine's memories: as a number they are the address itself, and a field that has
# one value only has no bits.

def k_address(params):
    """A word of K: ``step_keys`` keys of a block by ``qk_width`` channels, one segment."""
    return data.StructLayout({
        "chunk": ceil_log2(params.qk_chunks), "step": ceil_log2(params.block_steps), "lsb": 1,
        "key_block": ceil_log2(params.key_blocks), "buffer": 1})


def q_address(params):
    """A word of Q: the four rows of a block by ``qk_width`` channels, one segment."""
    return data.StructLayout({
        "chunk": ceil_log2(params.qk_chunks), "lsb": 1,
        "row_block": ceil_log2(params.row_blocks), "buffer": 1})


def v_address(params):
    """A word of V: ``pv_width`` columns of a key, one segment."""
    return data.StructLayout({
        "pass_": ceil_log2(params.column_passes), "lsb": 1, "key": params.key_bits, "buffer": 1})


def kv_address(params):
    """A word of K or, with ``v``, of V: both lie in one memory, their words are equally wide.
    ``word`` is a :func:`k_address` or :func:`v_address` as a number."""
    return data.StructLayout({
        "word": max(k_address(params).size, v_address(params).size), "v": 1})


def _kv_bits(params):
    """Bits of a word of K or V in a panel, whole bytes."""
    return 8 * ceil_div(params.pv_width * params.segment_bits, 8)


def kv_part_bits(params):
    """Bits of a part of such a word: as few as take a beat a cycle, so that the way from the
    loader to the copies of the memory is no wider than the port."""
    bits = _kv_bits(params)
    return next(part for part in range(min(params.beat_bits, bits), bits + 1) if bits % part == 0)


def kv_parts(params):
    """Parts of a word of K or V."""
    return _kv_bits(params) // kv_part_bits(params)


def memory_write(address, word):
    """A write that is always taken."""
    return data.StructLayout({"valid": 1, "address": address, "data": word})


def q_write(params):
    channels = data.ArrayLayout(signed(params.segment_bits), params.qk_width)
    return memory_write(q_address(params), data.ArrayLayout(channels, params.block_rows))


def kv_write(params):
    """A part of a word, the lowest first."""
    return data.StructLayout({
        "valid": 1, "address": kv_address(params), "part": ceil_log2(kv_parts(params)),
        "data": kv_part_bits(params)})


def state_word(params):
    """State of a row in a tile."""
    return data.StructLayout({"row": params.row_bits, "s": signed(params.state_bits)})


def round_robin(m, wanted, last):
    """The number of the next of the ``wanted`` bits after the number ``last``; undefined if there
    is none."""
    count = len(wanted)
    chosen = Signal.like(last, name="chosen")
    with m.Switch(last):
        for before in range(count):
            with m.Case(before):
                # Assigned from the least to the most eager: the last one counts.
                for distance in range(count, 0, -1):
                    with m.If(wanted[(before + distance) % count]):
                        m.d.comb += chosen.eq((before + distance) % count)
    return chosen
