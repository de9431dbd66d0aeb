"""Packs flag pairs into the words of a tile's code; the last stage of the mask encoder."""

from amaranth import *
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from golden.apt.params import CODE_BITS

from .flag_grid import CODE_PAIRS, FlagGrid


__all__ = ["FlagPacker"]


class FlagPacker(wiring.Component):
    """Queues of finished flags, and the packer behind them.

    Pushes cannot wait: whoever makes the flags starts a word only while :attr:`room` is up, which
    leaves space for the flags of that word and of the one before.

    Members
    -------
    room : :py:`Out(1)`
        Flags of one more word are welcome.
    valid, pairs, ends : :py:`In`
        Push the first ``ends`` of the flag pairs of a word.
    row_valid, row_word : :py:`In`
        Push a word of row flags. Codec ``rowcol`` only.
    o : :py:`Out(stream.Signature(16))`
        The code, row flags first. ``o.valid`` comes 2 cycles after the push that completes a word.
    """

    def __init__(self, params):
        self._params = params
        self._grid = FlagGrid(params, params.vpu_lanes)
        super().__init__({
            "room": Out(1),
            "valid": In(1),
            "pairs": In(2 * self._grid.most_ends),
            "ends": In(range(self._grid.most_ends + 1)),
            "row_valid": In(1),
            "row_word": In(CODE_BITS),
            "o": Out(stream.Signature(CODE_BITS)),
        })

    def elaborate(self, platform):
        m = Module()
        params, grid, group = self._params, self._grid, self._grid.group
        most_groups = grid.most_ends // group
        same_groups = len(set(grid.ends) - {0}) == 1

        # One block row (one tile's columns) of flags, and what may be under way: two words.
        pairs_width = len(self.pairs)
        entry = pairs_width + (0 if same_groups else len(self.ends))
        depth = sum(count > 0 for count in grid.ends) + 2
        m.submodules.queue = queue = fifo.SyncFIFO(width=entry, depth=depth)
        m.d.comb += [
            queue.w_data.eq(self.pairs if same_groups else Cat(self.pairs, self.ends)),
            queue.w_en.eq(self.valid),
        ]
        room = queue.level <= depth - 2

        free = Signal()  # the output register may be loaded
        m.d.comb += free.eq(~self.o.valid | self.o.ready)
        code = Signal(CODE_BITS, reset_less=True)
        m.d.comb += self.o.p.eq(code)
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)

        # The group at hand.
        step = Signal()
        groups = Signal(2 * group)
        last_group = Signal()
        if most_groups == 1:
            m.d.comb += [groups.eq(queue.r_data), last_group.eq(1)]
        else:
            number = Signal(range(most_groups))
            count = most_groups if same_groups else queue.r_data[pairs_width:]
            m.d.comb += [
                groups.eq(queue.r_data[:pairs_width].word_select(number, 2 * group)),
                last_group.eq((number + 1) * group == count if not same_groups
                              else number == most_groups - 1),
            ]
            with m.If(step):
                m.d.sync += number.eq(Mux(last_group, 0, number + 1))
        m.d.comb += queue.r_en.eq(step & last_group)

        # Groups enter the word at the top; the last word may be short, and moves down.
        complete = Signal()
        word = Signal(CODE_BITS)
        rows, cols = params.flag_grid
        short = 2 * (rows * cols % CODE_PAIRS)
        per_word = CODE_PAIRS // group
        counted = params.row_code_words or short  # the place in the code must be known
        if counted:
            index = Signal(range(max(params.code_words, 2)))
            last_word = Signal()
            m.d.comb += last_word.eq(index == params.code_words - 1)
        if per_word == 1:
            m.d.comb += [word.eq(groups), complete.eq(1)]
        else:
            earlier = Signal(CODE_BITS - 2 * group, reset_less=True)
            taken = Signal(range(per_word))
            full = Signal(CODE_BITS)
            m.d.comb += full.eq(Cat(earlier, groups))
            with m.If(step):
                m.d.sync += [earlier.eq(full[2 * group:]), taken.eq(Mux(complete, 0, taken + 1))]
            m.d.comb += [complete.eq(taken == per_word - 1), word.eq(full)]
            if short:
                with m.If(last_word):
                    m.d.comb += [
                        complete.eq(taken == short // (2 * group) - 1),
                        word.eq(full >> (CODE_BITS - short)),
                    ]

        load = Signal()
        if params.row_code_words:
            depth = params.row_code_words + 2
            m.submodules.row_queue = row_queue = fifo.SyncFIFO(width=CODE_BITS, depth=depth)
            in_rows = Signal()
            m.d.comb += [
                row_queue.w_data.eq(self.row_word),
                row_queue.w_en.eq(self.row_valid),
                self.room.eq(room & (row_queue.level <= depth - 2)),
                in_rows.eq(index < params.row_code_words),
                row_queue.r_en.eq(in_rows & free),
                step.eq(~in_rows & queue.r_rdy & (free | ~complete)),
                load.eq(Mux(in_rows, row_queue.r_rdy & free, step & complete)),
            ]
            with m.If(load):
                m.d.sync += code.eq(Mux(in_rows, row_queue.r_data, word))
        else:
            m.d.comb += [
                self.room.eq(room),
                step.eq(queue.r_rdy & (free | ~complete)),
                load.eq(step & complete),
            ]
            with m.If(load):
                m.d.sync += code.eq(word)
        with m.If(load):
            m.d.sync += self.o.valid.eq(1)
            if counted:
                m.d.sync += index.eq(Mux(last_word, 0, index + 1))
        return m
