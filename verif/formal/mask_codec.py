"""Proofs of mask encoder and mask decoder on small tiles with short edges.

Inputs, stalls, thresholds, commands and resets are the solver's choice. The references below are
written from the equations and share nothing with the components but the parameters.
"""

from amaranth import *
from amaranth.lib import fifo, wiring

from gen.proofs import Fault, Proof, Spec
from golden.apt.params import AptParams
from rtl.apt.mask_decoder import MaskDecoder


__all__ = ["PROOFS"]

#: Cycles after which something must have happened: more than the longest latency of these tiles.
_PATIENCE = 8


class _MaskSpec(Spec):
    """Pieces of the specifications below."""

    def drive(self, m, name, stream):
        """Free input stream that keeps the rule: an offer stands until it is taken.

        Returns the signal that says when a payload is taken.
        """
        valid = self.free(Signal(name=f"{name}_valid"))
        payload = self.free(Signal(len(Value.cast(stream.payload)), name=f"{name}_payload"))
        waiting = Signal(name=f"{name}_waiting")
        earlier = Signal.like(payload, name=f"{name}_earlier", reset_less=True)
        m.d.comb += [stream.valid.eq(valid), Value.cast(stream.payload).eq(payload)]
        m.d.sync += [waiting.eq(valid & ~stream.ready), earlier.eq(payload)]
        self.assume(m, ~waiting | (valid & (payload == earlier)))
        taken = Signal(name=f"{name}_taken")
        m.d.comb += taken.eq(valid & stream.ready)
        return taken

    def sink(self, m, stream):
        """Free ``ready`` on an output; returns the signal that says when a payload is taken."""
        taken, ready = Signal(name="o_taken"), self.free(Signal(name="o_ready"))
        m.d.comb += [stream.ready.eq(ready), taken.eq(stream.valid & ready)]
        return taken

    def holds(self, m, stream):
        """State that an output holds while it is stalled."""
        stalled, earlier = Signal(), Signal(len(Value.cast(stream.payload)), reset_less=True)
        m.d.sync += [stalled.eq(stream.valid & ~stream.ready), earlier.eq(stream.payload)]
        with m.If(stalled):
            self.check(m, "the output holds while it is stalled",
                       stream.valid & (Value.cast(stream.payload) == earlier))

    def constant(self, m, name, width):
        """An input that the solver chooses once."""
        value = self.free(Signal(width, name=name))
        earlier, later = Signal(width, reset_less=True), Signal(reset_less=True)
        m.d.sync += [earlier.eq(value), later.eq(1)]
        self.assume(m, ~later | (value == earlier))
        return value

    def queue(self, m, name, width, push, data, pop):
        """What is expected, oldest first; deep enough for all that the component may hold."""
        m.submodules[name] = queue = fifo.SyncFIFO(width=width, depth=16)
        m.d.comb += [queue.w_en.eq(push), queue.w_data.eq(data), queue.r_en.eq(pop)]
        return queue

    def patience(self, m, name, condition):
        """State that ``condition`` never lasts for more than ``_PATIENCE`` cycles."""
        count = Signal(range(_PATIENCE + 2))
        m.d.sync += count.eq(Mux(condition, Mux(count <= _PATIENCE, count + 1, count), 0))
        self.check(m, name, count <= _PATIENCE)

    def position(self, m, name, step, width):
        """Word in the row and row in the tile of a stream of words."""
        params = self.dut.params
        words = -(-params.tile_k // width)
        word, row = Signal(range(words), name=f"{name}_word"), Signal(2, name=f"{name}_row")
        last_word, last = Signal(name=f"{name}_last_word"), Signal(name=f"{name}_last")
        m.d.comb += [last_word.eq(word == words - 1),
                     last.eq(last_word & (row == params.tile_q - 1))]
        with m.If(step):
            m.d.sync += word.eq(Mux(last_word, 0, word + 1))
            with m.If(last_word):
                m.d.sync += row.eq(Mux(last, 0, row + 1))
        return word, row, last


class EncoderSpec(_MaskSpec):
    """Every code is the model's, for any thresholds."""

    properties = ("the code equals the model's", "nothing comes that was not encoded",
                  "the output holds while it is stalled", "the encoder never gets stuck")
    covers = ("two codes that differ", "the input waits for a stalled output")

    def specify(self, m):
        dut, params = self.dut, self.dut.params
        taken, given = self.drive(m, "i", dut.i), self.sink(m, dut.o)
        self.holds(m, dut.o)
        word, row, last = self.position(m, "i", taken, params.vpu_lanes)

        # The tile so far, and with the word that is being taken.
        planes = []
        for name, bits in (("hp", dut.i.p.hp), ("v", dut.i.p.hp | dut.i.p.lp)):
            plane = []
            for r in range(params.tile_q):
                plane.append([])
                for k in range(params.tile_k):
                    stored, now = (Signal(name=f"{kind}_{name}_{r}_{k}") for kind in ("old", "now"))
                    here = taken & (row == r) & (word == k // params.vpu_lanes)
                    m.d.comb += now.eq(Mux(here, bits[k % params.vpu_lanes], stored))
                    m.d.sync += stored.eq(now)
                    plane[r].append(now)
            planes.append(plane)
        expected = self._code(m, planes)
        # All words of a code are complete with the tile's last element: see the parameters.
        index, last_index = Signal(range(max(params.code_words, 2))), Signal()
        m.d.comb += last_index.eq(index == params.code_words - 1)
        with m.If(given):
            m.d.sync += index.eq(Mux(last_index, 0, index + 1))
        queue = self.queue(m, "expected", len(expected), taken & last, expected,
                           given & last_index)
        with m.If(dut.o.valid):
            self.check(m, "nothing comes that was not encoded", queue.r_rdy)
            with m.If(queue.r_rdy):
                self.check(m, "the code equals the model's",
                           dut.o.payload == queue.r_data.word_select(index, 16))
        self.patience(m, "the encoder never gets stuck", dut.o.ready & dut.i.valid & ~dut.i.ready)
        self.patience(m, "the encoder never gets stuck", dut.o.ready & queue.r_rdy & ~dut.o.valid)

        first = Signal(16, reset_less=True)
        with m.If(given):
            m.d.sync += first.eq(dut.o.payload)
        self.cover(m, "two codes that differ", given & (first != dut.o.payload) & (first != 0)
                   & (dut.o.payload != 0))
        self.cover(m, "the input waits for a stalled output", dut.i.valid & ~dut.i.ready)

    def _code(self, m, planes):
        """The words of a tile's code, first word lowest."""
        dut, params = self.dut, self.dut.params
        rows, keys = range(params.tile_q), range(params.tile_k)
        kinds = ("k_row", "k_col") if params.codec == "rowcol" else ("k",)
        limits = {}
        for name in (f"{kind}_{plane}" for kind in kinds for plane in ("hp", "v")):
            limits[name] = self.constant(m, name, len(getattr(dut, name)))
            m.d.comb += getattr(dut, name).eq(limits[name])

        def flags(kind, rows, keys):
            for plane, name in zip(planes, ("hp", "v"), strict=True):
                bits = [plane[row][key] for row in rows for key in keys]
                yield sum(bits[1:], bits[0]) > limits[f"{kind}_{name}"]

        if params.codec == "rowcol":
            sections = [[flag for row in rows for flag in flags("k_row", [row], keys)],
                        [flag for key in keys for flag in flags("k_col", rows, [key])]]
        else:
            high, wide = params.block_rows, params.block_cols
            sections = [[flag for top in rows[::high] for left in keys[::wide]
                         for flag in flags("k", rows[top:top + high], keys[left:left + wide])]]
        return Cat(Cat(*section, Const(0, -len(section) % 16)) for section in sections)


class DecoderSpec(_MaskSpec):
    """Every mask is the model's, for any code and command."""

    properties = ("the masks equal the model's", "no mask comes without code and command",
                  "the output holds while it is stalled", "the decoder never gets stuck")
    covers = ("a refreshed tile with HP and LP elements", "an empty tile between two others",
              "a second tile without a gap")

    def specify(self, m):
        dut, params = self.dut, self.dut.params
        code_taken, given = self.drive(m, "i", dut.i), self.sink(m, dut.o)
        self.holds(m, dut.o)
        tile_taken = self.drive(m, "tiles", dut.tiles)
        command = dut.tiles.p
        self.assume(m, ~dut.tiles.valid | ((command.rows <= params.tile_q)
                                           & (command.keys <= params.tile_k)))
        word, row, last = self.position(m, "o", given, params.lanes)

        # A code is whole when its last word is taken. With one word a tile the decoder may have
        # used part of it before that, while it is offered.
        count = params.code_words
        index = Signal(range(max(count, 2)))
        collected = Signal(16 * count)
        whole = Signal()
        with m.If(code_taken):
            m.d.sync += index.eq(Mux(index == count - 1, 0, index + 1))
        if count == 1:
            m.d.comb += [collected.eq(dut.i.p), whole.eq(dut.i.valid)]
        else:
            first = Signal(16 * (count - 1), reset_less=True)
            with m.If(code_taken & (index != count - 1)):
                m.d.sync += first.eq(Cat(first[16:], dut.i.p))
            m.d.comb += [collected.eq(Cat(first, dut.i.p)),
                         whole.eq(dut.i.valid & (index == count - 1))]
        done = given & last
        codes = self.queue(m, "codes", 16 * count, code_taken & (index == count - 1), collected,
                           done)
        code, have_code = Signal(16 * count), Signal()
        m.d.comb += [code.eq(Mux(codes.r_rdy, codes.r_data, collected)),
                     have_code.eq(codes.r_rdy | whole)]
        tiles = self.queue(m, "commands", len(Value.cast(command)), tile_taken,
                           Value.cast(command), done)
        refresh = tiles.r_data[0]
        rows = tiles.r_data[1:1 + len(command.rows)]
        keys = tiles.r_data[1 + len(command.rows):]

        # The masks at this place, from the equations.
        hp, lp = [], []
        for lane in range(params.lanes):
            flags = Array(self._flags(code, r, w * params.lanes + lane)
                          for r in range(params.tile_q) for w in range(params.slots))
            pair = Signal(2, name=f"flags_{lane}")
            inside = Signal(name=f"inside_{lane}")
            m.d.comb += [
                pair.eq(flags[row * params.slots + word]),
                inside.eq((row < rows) & (word * params.lanes + lane < keys)),
            ]
            hp.append(pair[0] & inside)
            lp.append((pair[1] | refresh) & ~pair[0] & inside)
        with m.If(dut.o.valid):
            self.check(m, "no mask comes without code and command", have_code & tiles.r_rdy)
            with m.If(have_code & tiles.r_rdy):
                self.check(m, "the masks equal the model's",
                           (dut.o.p.hp == Cat(hp)) & (dut.o.p.lp == Cat(lp)))
        fed = (codes.r_rdy & tiles.r_rdy) | (dut.i.valid & dut.tiles.valid)
        self.patience(m, "the decoder never gets stuck", fed & dut.o.ready & ~dut.o.valid)

        any_hp, any_lp, any_set, ended, full = (Signal(name=name) for name in (
            "any_hp", "any_lp", "any_set", "ended", "full"))
        with m.If(given):
            m.d.sync += [any_hp.eq(~last & (any_hp | dut.o.p.hp.any())),
                         any_lp.eq(~last & (any_lp | dut.o.p.lp.any())),
                         any_set.eq(dut.o.p.hp.any() | dut.o.p.lp.any())]
        self.cover(m, "a refreshed tile with HP and LP elements",
                   done & refresh & any_hp & any_lp & (rows == params.tile_q))
        with m.If(done & any_set & (rows != 0)):
            m.d.sync += full.eq(1)
        empty = Signal()
        m.d.sync += [ended.eq(done), empty.eq(empty | (done & full & (rows == 0)))]
        self.cover(m, "an empty tile between two others", done & empty & (rows != 0))
        self.cover(m, "a second tile without a gap", ended & given & (rows != 0) & any_set)

    def _flags(self, code, row, key):
        """Flag pair of an element; what is beyond the tile is not inside anyway."""
        params = self.dut.params
        if key >= params.tile_k:
            return Const(0, 2)
        if params.codec == "block":
            across = -(-params.tile_k // params.block_cols)
            index = row // params.block_rows * across + key // params.block_cols
            return code[2 * index:2 * index + 2]
        row_pair, column_pair = code[2 * row:2 * row + 2], code[16 + 2 * key:16 + 2 * key + 2]
        return (row_pair | column_pair if params.rowcol_decode == "or"
                else row_pair & column_pair)


class CodecSpec(_MaskSpec):
    """Encoder and decoder in a row, thresholds 0: no element is lost and none is demoted."""

    properties = ("decode(encode(M)) contains M",)
    covers = ("more elements come out than went in",)

    def specify(self, m):
        dut, params = self.dut, self.dut.params
        m.submodules.decoder = decoder = MaskDecoder(params)
        wiring.connect(m, dut.o, decoder.i)
        m.d.comb += [decoder.tiles.valid.eq(1), decoder.tiles.p.rows.eq(params.tile_q),
                     decoder.tiles.p.keys.eq(params.tile_k)]
        taken, given = self.drive(m, "i", dut.i), self.sink(m, decoder.o)
        word, _, _ = self.position(m, "i", taken, params.vpu_lanes)
        inside = Mux(word == params.vpu_words - 1,
                     (1 << (params.tile_k - 1) % params.vpu_lanes + 1) - 1, -1)
        hp, v = dut.i.p.hp & inside, (dut.i.p.hp | dut.i.p.lp) & inside
        lanes = params.lanes
        queue = self.queue(m, "expected", 2 * lanes, taken, Cat(hp[:lanes], v[:lanes]), given)
        want_hp, want_v = queue.r_data[:lanes], queue.r_data[lanes:]
        got_hp, got_v = decoder.o.p.hp, decoder.o.p.hp | decoder.o.p.lp
        with m.If(decoder.o.valid):
            self.check(m, "decode(encode(M)) contains M", queue.r_rdy
                       & ~(want_hp & ~got_hp).any() & ~(want_v & ~got_v).any())
        self.cover(m, "more elements come out than went in",
                   given & want_v.any() & (got_v & ~want_v).any())


_BLOCK = AptParams(lanes=2, vpu_lanes=2, tile_q=3, tile_k=3, block_rows=2, block_cols=2,
                   window_qk=1, window_pv=1)
_ROWCOL = AptParams(lanes=2, vpu_lanes=2, tile_q=2, tile_k=3, codec="rowcol", window_qk=1,
                    window_pv=1)

_ENCODER_FAULTS = (
    Fault("nothing comes that was not encoded", "accept.eq(self.i.valid & self.i.ready)",
          "accept.eq(self.i.ready)"),
    Fault("the output holds while it is stalled",
          "wiring.connect(m, packer.o, wiring.flipped(self.o))",
          "m.d.comb += [self.o.valid.eq(packer.o.valid), self.o.p.eq(packer.o.p), "
          "packer.o.ready.eq(1)]"),
    Fault("the encoder never gets stuck", "self.i.ready.eq(packer.room)",
          "self.i.ready.eq(packer.room & ~self.i.p.hp.all())"),
)
_DECODER_FAULTS = (
    Fault("no mask comes without code and command",
          "go.eq(advance & held & buffer.available)", "go.eq(advance & held)"),
    Fault("the output holds while it is stalled", "advance.eq(~self.o.valid | self.o.ready)",
          "advance.eq(1)"),
    Fault("the decoder never gets stuck", "go.eq(advance & held & buffer.available)",
          "go.eq(advance & held & buffer.available & self.tiles.valid)"),
)


def _proofs():
    for name, params in (("block", _BLOCK), ("rowcol", _ROWCOL)):
        def build(cls, params=params):
            return cls(params)
        tile = params.tile_q * params.vpu_words
        threshold = ("first_of_block.eq(last_of_block)", "first_of_block.eq(last_row)")
        if params.codec == "rowcol":
            threshold = ("c_first.eq(word == 0)", "c_first.eq(0)")
        yield Proof(
            name=f"mask_encoder_{name}", component="rtl.apt.mask_encoder:MaskEncoder", build=build,
            spec=EncoderSpec, depth=16, cover_depth=5 * tile + 12,
            inductive=("the output holds while it is stalled",), induction_depth=2,
            faults=(Fault("the code equals the model's", *threshold), *_ENCODER_FAULTS))
        yield Proof(
            name=f"mask_decoder_{name}", component="rtl.apt.mask_decoder:MaskDecoder", build=build,
            spec=DecoderSpec, depth=16, cover_depth=3 * tile + 12,
            inductive=("the output holds while it is stalled",), induction_depth=2,
            faults=(Fault("the masks equal the model's", "(row < tile_rows)",
                          "(row <= tile_rows)"), *_DECODER_FAULTS))
        yield Proof(
            name=f"mask_codec_{name}", component="rtl.apt.mask_encoder:MaskEncoder", build=build,
            spec=CodecSpec, depth=24, cover_depth=24,
            faults=(Fault("decode(encode(M)) contains M", "planes[0].eq(self.i.p.hp & inside)",
                          "planes[0].eq(self.i.p.lp & inside)"),))


PROOFS = list(_proofs())
