"""Flag pairs of the mask blocks of a block row, counted key by key (APT 4.3)."""

from amaranth import *
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2
from rtl.common.arith import tree_sum

from .component import AptComponent
from .softmax_words import key_block_bits


__all__ = ["FlagCounts"]


class FlagCounts(AptComponent):
    """Code of a block row, codec ``block``: flags of the planes HP and V of each key block.

    A flag is set where the block has more elements of the plane than the threshold. As in
    :class:`~rtl.apt.mask_encoder.MaskEncoder` what is left of the threshold is counted down, and
    its sign is the flag. Blocks that do not come have none. One key a cycle; nothing stops.

    Parameters
    ----------
    params : :class:`AptParams`
        ``tile_k`` matters.

    Members
    -------
    k_hp, k_v : :py:`In(params.flag_count_bits)`
        Count thresholds; they hold still until a block row's ``done``.
    first, end : :py:`In(1)`
        The block row's first and last cycle; a block row without keys has both in one.
    valid : :py:`In(1)`
        A key is at ``hp`` and ``v``; keys of a block come in order and all of them.
    hp, v : :py:`In(params.block_rows)`
        Its elements in either plane.
    key_block : :py:`In(key_block_bits(params))`
        Its block.
    key : :py:`In(3)`
        Which of the block's keys it is.
    pairs : :py:`Out(2 * params.key_blocks)`
        Bit ``2k`` is the HP flag of block ``k`` and bit ``2k + 1`` its V flag.
    done : :py:`Out(1)`
        ``pairs`` are those of a complete block row, in this cycle.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "k_hp": In(params.flag_count_bits), "k_v": In(params.flag_count_bits),
            "first": In(1), "end": In(1), "valid": In(1),
            "hp": In(params.block_rows), "v": In(params.block_rows),
            "key_block": In(key_block_bits(params)), "key": In(ceil_log2(params.block_cols)),
            "pairs": Out(2 * params.key_blocks), "done": Out(1),
        }

    @property
    def stages(self):
        """Cycles from ``end`` to ``done``: count of the key, flags."""
        return 2

    latency = stages

    @property
    def throughput(self):
        return "one key a cycle"

    def elaborate(self, platform):
        m = Module()
        params = self._params

        first, end, valid = Signal(), Signal(), Signal()
        key_block = Signal.like(self.key_block, reset_less=True)
        key = Signal.like(self.key, reset_less=True)
        m.d.sync += [
            first.eq(self.first), end.eq(self.end), valid.eq(self.valid),
            key_block.eq(self.key_block), key.eq(self.key), self.done.eq(end),
        ]
        flags = Signal(2)
        for index, (plane, threshold) in enumerate(((self.hp, self.k_hp), (self.v, self.k_v))):
            count = Signal(range(params.block_rows + 1), name=f"count_{index}", reset_less=True)
            left = Signal(signed(params.flag_count_bits + 1), name=f"left_{index}",
                          reset_less=True)
            rest = Signal.like(left, name=f"rest_{index}")
            m.d.comb += [
                rest.eq(Mux(key == 0, threshold, left) - count),
                flags[index].eq(rest[-1]),
            ]
            m.d.sync += count.eq(tree_sum(plane))
            with m.If(valid):
                m.d.sync += left.eq(rest)
        ended = valid & (key == params.block_cols - 1)
        for block in range(params.key_blocks):
            pair = self.pairs[2 * block:2 * block + 2]
            with m.If(ended & (key_block == block)):
                m.d.sync += pair.eq(flags)
            with m.Elif(first):
                m.d.sync += pair.eq(0)

        return m
