"""Block rows of a tile in slots of a memory: filled as they come, read when they are complete."""

from amaranth import *
from amaranth.lib import data
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2
from rtl.common.block_fifo import BlockFifo

from .component import AptComponent
from .softmax_words import key_block_bits


__all__ = ["SLOTS", "BlockRowSlots"]

#: Block rows that there is room for.
SLOTS = 4
#: A slot is never read while it is written; this keeps Yosys from comparing the addresses.
_NO_CHECK = {"no_rw_check": 1}


class BlockRowSlots(AptComponent):
    """Four slots, each for the computed blocks of a block row with their numbers.

    Blocks are written in the order in which they come, ``write_keys`` keys a cycle, and read in
    the same order, ``read_keys`` a cycle, once the block row is complete. A block row without any
    block is a word with ``none`` on either side, and takes a slot too. A word of the memory is
    ``slice_keys`` keys; with one key a cycle on a side, its place in the word goes by ``step``.

    The next block row's first word is read in the cycle after the last one's last, if it is
    complete and ``enable`` is high. A slot is free from the cycle ``freed`` on, which is the one
    after its last word was read.

    Parameters
    ----------
    params : :class:`AptParams`
        ``tile_k`` and ``vpu_lanes`` matter.
    lane : shape-like
        What is stored of a key.
    write_keys, read_keys : :class:`int`
        Keys a cycle: 1 or ``params.slice_keys``.
    note : shape-like or ``None``
        What is kept of a block row, besides, if anything.

    Members
    -------
    ready : :py:`Out(1)`
        A slot is free for the block row that is under way.
    claim : :py:`In(1)`
        The last word of a block row is accepted, in this cycle; it may come to ``i`` later.
    i : :py:`In(StructLayout)`
        ``valid``, ``end`` (last word of the block row), ``none``, ``key_block``, ``step`` (which
        word of the block) and ``lanes``. Only what was accepted with ``ready``.
    note : :py:`In(note)`
        Read in the cycle after a word with ``end``; not there without a note.
    advance : :py:`In(1)`
        The reading side moves.
    enable : :py:`In(1)`
        A word may be read; looked at where one is at hand.
    at_start : :py:`Out(1)`
        What can be read next is a block row's first word.
    taken : :py:`Out(1)`
        A block row's last word is being read (not registered).
    o : :py:`Out(StructLayout)`
        The word read: ``valid``, ``first`` and ``end`` of the block row, ``none``, ``key_block``,
        ``step``, ``lanes`` and ``note``. ``lanes`` and ``key_block`` come straight from memories:
        to be registered. They mean nothing with ``none``.
    freed : :py:`Out(1)`
        Pulse: a slot is free again.
    """

    def __init__(self, params, *, lane, write_keys, read_keys, note=None):
        self._lane, self._note = lane, note
        self._write_keys, self._read_keys = write_keys, read_keys
        super().__init__(params)

    def _step_bits(self, keys):
        return max(1, ceil_log2(self._params.block_cols // keys))

    def _ports(self, params):
        params.check_quad()
        for keys in (self._write_keys, self._read_keys):
            if keys not in (1, params.slice_keys):
                raise ValueError(f"Keys a cycle must be 1 or {params.slice_keys}, not {keys!r}")
        note = {} if self._note is None else {"note": self._note}
        common = {"end": 1, "none": 1, "key_block": key_block_bits(params)}
        return {
            "ready": Out(1),
            "claim": In(1),
            "i": In(data.StructLayout({
                "valid": 1, **common, "step": self._step_bits(self._write_keys),
                "lanes": data.ArrayLayout(self._lane, self._write_keys)})),
            **{name: In(shape) for name, shape in note.items()},
            "advance": In(1),
            "enable": In(1),
            "at_start": Out(1, init=1),
            "taken": Out(1),
            "o": Out(data.StructLayout({
                "valid": 1, "first": 1, **common, "step": self._step_bits(self._read_keys),
                "lanes": data.ArrayLayout(self._lane, self._read_keys), **note})),
            "freed": Out(1),
        }

    @property
    def latency(self):
        """Cycles from a block row's last word on ``i`` to its first on ``o``: written, noted and
        queued (two), read."""
        return 4

    @property
    def throughput(self):
        return f"{self._write_keys} keys a cycle in and {self._read_keys} out"

    def elaborate(self, platform):
        m = Module()
        params = self._params
        index_shape = range(max(2, params.key_blocks))

        # Complete block rows; there are as many places as slots.
        extent = {"last_block": index_shape, "none": 1}
        noted = self._note is not None
        entry = data.StructLayout({**extent, **({"note": self._note} if noted else {})})
        m.submodules.queue = queue = BlockFifo(entry, SLOTS)
        head = queue.o.p

        # Writing: which slot, and which of its blocks.
        write_slot = Signal(range(SLOTS))
        write_block = Signal(index_shape)
        closing = Signal()
        queued = Signal(entry)
        written = Signal(data.StructLayout(extent), reset_less=True)
        used = Signal(range(SLOTS + 1))
        close = self.i.valid & self.i.end
        m.d.comb += [
            self.ready.eq(~used[-1]),
            queue.i.valid.eq(closing),
            queue.i.payload.eq(queued),
            queued.last_block.eq(written.last_block),
            queued.none.eq(written.none),
        ]
        if noted:
            m.d.comb += queued.note.eq(self.note)
        m.d.sync += closing.eq(close)
        with m.If(close):
            m.d.sync += [
                write_slot.eq(write_slot + 1),
                write_block.eq(0),
                written.last_block.eq(write_block),
                written.none.eq(self.i.none),
            ]
        with m.Elif(self.i.valid & (self.i.step == params.block_cols // self._write_keys - 1)):
            m.d.sync += write_block.eq(write_block + 1)

        # Reading: the same two, and the word of the block.
        read_slot = Signal(range(SLOTS))
        read_block = Signal(index_shape)
        read_step = Signal(self._step_bits(self._read_keys))
        issue, last_step, last = Signal(), Signal(), Signal()
        m.d.comb += [
            issue.eq(queue.o.valid & self.enable & self.advance),
            last_step.eq(read_step == params.block_cols // self._read_keys - 1),
            last.eq(head.none | (last_step & (read_block == head.last_block))),
            self.taken.eq(issue & last),
            queue.o.ready.eq(self.taken),
        ]
        m.d.sync += self.freed.eq(self.taken)
        with m.If(issue):
            m.d.sync += [
                self.at_start.eq(last),
                read_step.eq(Mux(last | last_step, 0, read_step + 1)),
            ]
            with m.If(last):
                m.d.sync += [read_slot.eq(read_slot + 1), read_block.eq(0)]
            with m.Elif(last_step):
                m.d.sync += read_block.eq(read_block + 1)
        with m.If(self.claim & ~self.freed):
            m.d.sync += used.eq(used + 1)
        with m.Elif(self.freed & ~self.claim):
            m.d.sync += used.eq(used - 1)

        # What belongs to the word that is read.
        with m.If(self.advance):
            m.d.sync += self.o.valid.eq(issue)
        with m.If(issue):
            m.d.sync += [
                self.o.first.eq(self.at_start),
                self.o.end.eq(last),
                self.o.none.eq(head.none),
                self.o.step.eq(read_step),
            ]
            if noted:
                m.d.sync += self.o.note.eq(head.note)
        place = ((write_slot, write_block), (read_slot, read_block), issue)
        self._numbers(m, *place)
        self._words(m, *place, read_step)
        return m

    def _numbers(self, m, write, read, issue):
        """Numbers of the blocks, by slot and order."""
        m.submodules.numbers = numbers = Memory(
            shape=key_block_bits(self._params), depth=SLOTS << len(write[1]), init=[],
            attrs=_NO_CHECK)
        write_port, read_port = numbers.write_port(), numbers.read_port()
        m.d.comb += [
            write_port.addr.eq(Cat(write[1], write[0])),
            write_port.data.eq(self.i.key_block),
            write_port.en.eq(self.i.valid & ~self.i.none),
            read_port.addr.eq(Cat(read[1], read[0])),
            read_port.en.eq(issue),
            self.o.key_block.eq(read_port.data),
        ]

    def _words(self, m, write, read, issue, read_step):
        """One memory for each key of a word."""
        keys = self._params.slice_keys
        inner = ceil_log2(keys)
        parts = ceil_log2(self._params.block_cols // keys)
        widen = [step[inner:] if side == 1 else step[:parts] for side, step in
                 ((self._write_keys, self.i.step), (self._read_keys, read_step))]
        read_data = []
        for key in range(keys):
            memory = Memory(shape=self._lane, depth=SLOTS << len(write[1]) + parts, init=[],
                            attrs=_NO_CHECK)
            m.submodules[f"words_{key}"] = memory
            write_port, read_port = memory.write_port(), memory.read_port()
            one_key = self._write_keys == 1 and keys > 1
            m.d.comb += [
                write_port.addr.eq(Cat(widen[0][:parts], write[1], write[0])),
                write_port.data.eq(self.i.lanes[0 if self._write_keys == 1 else key]),
                write_port.en.eq(self.i.valid & ~self.i.none
                                 & (self.i.step[:inner] == key if one_key else 1)),
                read_port.addr.eq(Cat(widen[1][:parts], read[1], read[0])),
                read_port.en.eq(issue),
            ]
            read_data.append(Value.cast(read_port.data))
        if self._read_keys == 1 and keys > 1:
            m.d.comb += self.o.lanes.as_value().eq(Array(read_data)[self.o.step[:inner]])
        else:
            m.d.comb += self.o.lanes.as_value().eq(Cat(read_data))
