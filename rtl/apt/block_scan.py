"""Finds the blocks of a tile that QK works on, one after the other, in the tile's code."""

from amaranth import *
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_div, ceil_log2

from .component import AptComponent
from .qk_words import block_entry, qk_tile


__all__ = ["BlockScan"]


def _lowest(m, value, name):
    """The lowest set bit of ``value`` alone."""
    alone = Signal(len(value), name=name)
    m.d.comb += alone.eq(Cat(value[0], *(value[index] & ~value[:index].any()
                                         for index in range(1, len(value)))))
    return alone


def _position(alone):
    """Where the only set bit is; 0 if there is none."""
    return Cat(Cat(alone[index] for index in range(len(alone)) if index >> bit & 1).any()
               for bit in range(ceil_log2(len(alone))))


class BlockScan(AptComponent):
    """Blocks of a tile, block row by block row, in each in the order of keys.

    A block row's flags come as a word: pair ``k``, bits ``2k`` (HP) and ``2k + 1`` (V), of key
    block ``k``. They are masked by what the tile has (no block without a key, no block row without
    a row), and then gone through in two levels: groups of up to 8 key blocks that have any, and
    the blocks of a group. So one block comes out a cycle, and of a block row without any one
    entry that says so. All ``params.row_blocks`` words of a tile are taken.

    Parameters
    ----------
    params : :class:`AptParams`
        The tile matters.

    Members
    -------
    start : :py:`In(1)`
        Starts a tile; only while ``busy`` is 0.
    tile : :py:`In(qk_tile(params))`
        The tile, with ``start``.
    code : :py:`In(stream.Signature(2 * params.key_blocks))`
        Flag pairs of a block row.
    o : :py:`Out(stream.Signature(block_entry(params)))`
        Blocks. Not registered: few gates away from registers.
    busy : :py:`Out(1)`
        Words of the tile are awaited or entries left.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "start": In(1),
            "tile": In(qk_tile(params)),
            "code": In(stream.Signature(2 * params.key_blocks)),
            "o": Out(stream.Signature(block_entry(params))),
            "busy": Out(1),
        }

    @property
    def latency(self):
        """Cycles from ``start`` to ``o.valid``, the code at hand."""
        return 3

    @property
    def throughput(self):
        return "a block, or a block row without blocks, a cycle"

    def elaborate(self, platform):
        m = Module()
        params = self._params
        blocks = params.key_blocks
        size = min(8, blocks)
        groups = ceil_div(blocks, size)

        # The tile, and the block row whose flags come next.
        taking = Signal()
        row = Signal(range(params.row_blocks))
        rows = Signal(params.row_count_bits, reset_less=True)
        inside = Signal(blocks, reset_less=True)
        all_hp, all_valid = Signal(reset_less=True), Signal(reset_less=True)
        with m.If(self.start):
            m.d.sync += [
                taking.eq(1),
                row.eq(0),
                rows.eq(self.tile.rows),
                inside.eq(Cat(self.tile.keys > params.block_cols * k for k in range(blocks))),
                all_hp.eq(self.tile.dense),
                all_valid.eq(self.tile.dense | self.tile.refresh),
            ]
        with m.Elif(self.code.valid & self.code.ready):
            m.d.sync += [taking.eq(row != params.row_blocks - 1), row.eq(row + 1)]

        # Its flags, masked. Those of block rows beyond the tile are let go.
        beyond = Signal()
        row_free = Signal()
        valid, hp = Signal(groups * size), Signal(groups * size)
        m.d.comb += [
            beyond.eq(row * params.block_rows >= rows),
            self.code.ready.eq(taking & (beyond | row_free)),
        ]
        for k in range(blocks):
            flags = self.code.payload.bit_select(2 * k, 2)
            m.d.comb += [
                valid[k].eq(inside[k] & (flags.any() | all_valid)),
                hp[k].eq(flags[0] | all_hp),
            ]

        # First register: the block row that comes next, with the groups that have a block.
        next_there = Signal()
        next_row = Signal.like(row, reset_less=True)
        next_any = Signal(groups, reset_less=True)
        next_valid, next_hp = (Signal(groups * size, name=f"next_{name}", reset_less=True)
                               for name in ("valid", "hp"))
        with m.If(row_free):
            m.d.sync += [
                next_there.eq(taking & self.code.valid & ~beyond),
                next_row.eq(row),
                next_any.eq(Cat(valid.word_select(group, size).any()
                                for group in range(groups))),
                next_valid.eq(valid),
                next_hp.eq(hp),
            ]

        # Second register: the block row at hand. Its group at hand, less the blocks that are
        # done, and the groups that are left.
        there, begin, none = Signal(), Signal(reset_less=True), Signal(reset_less=True)
        this_row = Signal.like(row, reset_less=True)
        group = Signal(max(1, ceil_log2(groups)), reset_less=True)
        left, high = Signal(size, reset_less=True), Signal(size, reset_less=True)
        rest_any = Signal(groups, reset_less=True)
        rest_valid, rest_hp = (Signal(groups * size, name=f"rest_{name}", reset_less=True)
                               for name in ("valid", "hp"))

        block = _lowest(m, left, "block")
        still_left = Signal(size)
        group_done, end, free = Signal(), Signal(), Signal()
        m.d.comb += [
            still_left.eq(left & ~block),
            group_done.eq(~still_left.any()),
            end.eq(group_done & ~rest_any.any()),
            free.eq(~there | (self.o.ready & end)),
            row_free.eq(~next_there | free),
            self.o.valid.eq(there),
            self.o.p.row_block.eq(this_row),
            self.o.p.key_block.eq(Cat(_position(block), group)),
            self.o.p.hp.eq((block & high).any()),
            self.o.p.begin.eq(begin),
            self.o.p.end.eq(end),
            self.o.p.none.eq(none),
            self.busy.eq(taking | next_there | there),
        ]

        def load_group(name, has_any, valid, hp):
            """Statements that take the first group with a block, and leave the rest."""
            chosen = _lowest(m, has_any, f"{name}_group")

            def pick(flags):
                return Cat(Cat(flags[index::size] & chosen).any() for index in range(size))

            return [group.eq(_position(chosen)), left.eq(pick(valid)), high.eq(pick(hp)),
                    rest_any.eq(has_any & ~chosen)]

        from_next = load_group("next", next_any, next_valid, next_hp)
        from_rest = load_group("rest", rest_any, rest_valid, rest_hp)
        with m.If(free):
            m.d.sync += [
                there.eq(next_there),
                begin.eq(1),
                none.eq(~next_any.any()),
                this_row.eq(next_row),
                rest_valid.eq(next_valid),
                rest_hp.eq(next_hp),
                *from_next,
            ]
        with m.Elif(self.o.ready):
            m.d.sync += [begin.eq(0), left.eq(still_left)]
            with m.If(group_done):
                m.d.sync += from_rest
        return m
