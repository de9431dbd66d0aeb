"""Walks a job's tiles: what to load and to store, and what to do with each tile."""

from amaranth import *
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import In, Out

from golden.apt.job import JOB_WORDS, REGIONS_AT, Region, whole_tile
from golden.apt.thresholds import BlockThresholds

from .component import AptComponent
from .logit_scale import SCALE_SHIFT_BITS, factor_layout
from .panel_port import ADDRESS_BITS, COUNT_BITS, LoadKind, StoreKind, command


__all__ = ["SHIFT_BITS", "TILES_BITS", "TileWalker", "tile_layout"]

#: Bits of a number of tiles.
TILES_BITS = 16
#: Bits of ``o_shift``.
SHIFT_BITS = 4

#: In which order a tile's regions are gone through; what the tile is told to be comes before V.
_ORDER = (Region.Q, Region.ROWS_IN, Region.CODE_IN, Region.STATE_IN, Region.K, Region.STATE_OUT,
          Region.CODE_OUT, Region.ROWS_OUT, Region.O, Region.V)
#: Regions that begin anew with each query tile, and those that go on from tile to tile; of the
#: others a query tile has one.
_BY_KEY = (Region.K, Region.V)
_BY_TILE = (Region.CODE_IN, Region.CODE_OUT, Region.STATE_IN, Region.STATE_OUT)
_STORED = (Region.STATE_OUT, Region.CODE_OUT, Region.ROWS_OUT, Region.O)


def _settings_layout(params):
    """What all tiles of a job share."""
    count = params.flag_count_bits
    return data.StructLayout({
        "dense": 1, "refresh": 1, "has_state": 1,
        "code_prune": 16, "code_quant": 16, "scale": factor_layout(SCALE_SHIFT_BITS),
        **{name: count for name in BlockThresholds._fields}, "shift": SHIFT_BITS,
    })


def tile_layout(params):
    """What a tile is: its size, its place, and the settings of its head."""
    return data.StructLayout({
        "rows": params.row_count_bits, "keys": params.key_count_bits,
        "first": 1, "last": 1,  # key tile of its query tile
        **{name: field.shape for name, field in _settings_layout(params)},
    })


class TileWalker(AptComponent):
    """Goes through the tiles of jobs, query tile by query tile and in each by key tiles.

    A tile's loads are ordered once the tile two before it is *listed* (its element lists and
    state are complete), those of its V once PV of the tile two before it is done; so two buffers
    of everything are enough. Masks are not loaded for a dense step, nor state where there is
    none. Addresses go on from job to job word by word in a memory of the job's own words.

    About five cycles a region: 40 to 60 a tile.

    Parameters
    ----------
    params : :class:`AptParams`
        Shape of the engine.

    Members
    -------
    job : :py:`In(stream.Signature(32))`
        Words of jobs, see :mod:`golden.apt.job`.
    accepted : :py:`Out(stream.Signature(...))`
        For each job its query tiles, and whether it is refused: then nothing else happens.
    load : :py:`Out(stream.Signature(command(LoadKind)))`
        Loads in order; tiles of K, V and state of tiles, and tiles of Q and state of rows, go to
        either buffer in turn.
    store : :py:`Out(stream.Signature(command(StoreKind)))`
        Stores in order.
    tile : :py:`Out(stream.Signature(tile_layout(params)))`
        Tiles in order, each after its loads but V's have been ordered.
    listed, pv_done : :py:`In(1)`
        Pulses: the oldest tile that was not, is.
    """

    def _ports(self, params):
        params.check_quad()
        return {
            "job": In(stream.Signature(32)),
            "accepted": Out(stream.Signature(data.StructLayout(
                {"query_tiles": TILES_BITS, "refused": 1}))),
            "load": Out(stream.Signature(command(LoadKind))),
            "store": Out(stream.Signature(command(StoreKind))),
            "tile": Out(stream.Signature(tile_layout(params))),
            "listed": In(1), "pv_done": In(1),
        }

    @property
    def throughput(self):
        return "a tile in 60 cycles, without waiting"

    def _settings(self, m, word, number):
        """Scalars of the job at hand, taken as its words pass."""
        params = self._params
        tile = Signal(_settings_layout(params), name="settings", reset_less=True)
        query_tiles, key_tiles = Signal(TILES_BITS), Signal(TILES_BITS)
        last_rows, last_keys = Signal(16), Signal(16)
        with m.If(word.valid & word.ready):
            with m.Switch(number):
                with m.Case(0):
                    m.d.sync += [tile.dense.eq(word.p[0]), tile.refresh.eq(word.p[1]),
                                 tile.has_state.eq(word.p[2]), tile.shift.eq(word.p[8:])]
                with m.Case(1):
                    m.d.sync += Cat(query_tiles, key_tiles).eq(word.p)
                with m.Case(2):
                    m.d.sync += Cat(last_rows, last_keys).eq(word.p)
                with m.Case(3):
                    m.d.sync += Cat(tile.code_prune, tile.code_quant).eq(word.p)
                with m.Case(4):
                    m.d.sync += [tile.scale.mantissa.eq(word.p), tile.scale.shift.eq(word.p[16:])]
                with m.Case(5):
                    m.d.sync += [tile.k_hp.eq(word.p), tile.k_v.eq(word.p[16:])]
        bad = Signal()
        m.d.comb += bad.eq((query_tiles == 0) | (key_tiles == 0)
                           | (last_rows == 0) | (last_rows > params.tile_q)
                           | (last_keys == 0) | (last_keys > params.tile_k)
                           | ~tile.scale.mantissa[-1] | (tile.scale.shift < 31)
                           | ~(tile.dense | tile.has_state))
        return tile, query_tiles, key_tiles, last_rows, last_keys, bad

    def elaborate(self, platform):
        m = Module()
        params = self._params
        number_bits = (JOB_WORDS - 1).bit_length()
        number = Signal(number_bits)
        m.submodules.words = words = memory.Memory(shape=32, depth=JOB_WORDS, init=[])
        write, read = words.write_port(), words.read_port()
        tile, query_tiles, key_tiles, last_rows, last_keys, bad = self._settings(
            m, self.job, number)

        # Credits: tiles that may be begun, and V tiles that may be loaded.
        credits, v_credits = Signal(2, init=2), Signal(2, init=2)
        take, take_v = Signal(), Signal()
        m.d.sync += [credits.eq(credits + self.listed - take),
                     v_credits.eq(v_credits + self.pv_done - take_v)]

        # The tile at hand.
        query, key = Signal(TILES_BITS), Signal(TILES_BITS)
        last_query, last_key = Signal(), Signal()
        buffer, query_buffer = Signal(), Signal()
        m.d.comb += [
            last_query.eq(query + 1 == query_tiles),
            last_key.eq(key + 1 == key_tiles),
        ]

        # The region at hand.
        place = Signal(range(len(_ORDER)))
        region = Signal(range(len(Region)))
        stored, wanted, fresh, tail = Signal(), Signal(), Signal(), Signal()
        full_words, full_beats = Signal(COUNT_BITS), Signal(COUNT_BITS)
        first_key, first_query = Signal(), Signal()
        m.d.comb += [first_key.eq(key == 0), first_query.eq(query == 0)]
        with m.Switch(place):
            for index, one in enumerate(_ORDER):
                words, beats = whole_tile(one, params)
                with m.Case(index):
                    m.d.comb += [
                        region.eq(one),
                        stored.eq(one in _STORED),
                        full_words.eq(words),
                        full_beats.eq(beats),
                        fresh.eq(first_key if one in _BY_KEY else
                                 first_key & first_query if one in _BY_TILE else first_query),
                        tail.eq(last_key if one in _BY_KEY else
                                0 if one in (Region.CODE_IN, Region.CODE_OUT) else last_query),
                    ]
                    conditions = {Region.Q: first_key, Region.ROWS_IN: first_key & tile.has_state,
                                  Region.CODE_IN: ~tile.dense, Region.STATE_IN: tile.has_state,
                                  Region.ROWS_OUT: last_key, Region.O: last_key}
                    m.d.comb += wanted.eq(conditions.get(one, 1))

        address, stride_end = Signal(ADDRESS_BITS), Signal(ADDRESS_BITS)
        tile_words, tile_beats = Signal(COUNT_BITS), Signal(COUNT_BITS)
        field = Signal(2)
        m.d.comb += [
            read.addr.eq(REGIONS_AT + Cat(field, region)),
            write.addr.eq(number),
            write.data.eq(self.job.p),
            self.load.p.kind.eq(region), self.load.p.address.eq(address),
            self.load.p.beats.eq(tile_beats), self.load.p.words.eq(tile_words),
            self.load.p.buffer.eq(Mux((region == Region.Q) | (region == Region.ROWS_IN),
                                      query_buffer, buffer)),
            self.store.p.kind.eq(region - Region.CODE_OUT), self.store.p.address.eq(address),
            self.store.p.beats.eq(tile_beats), self.store.p.words.eq(tile_words),
            *(getattr(self.tile.p, name).eq(getattr(tile, name))
              for name, _ in _settings_layout(params)),
            self.tile.p.rows.eq(Mux(last_query, last_rows, params.tile_q)),
            self.tile.p.keys.eq(Mux(last_key, last_keys, params.tile_k)),
            self.tile.p.first.eq(first_key),
            self.tile.p.last.eq(last_key),
            self.accepted.p.query_tiles.eq(query_tiles),
            self.accepted.p.refused.eq(bad),
        ]

        with m.FSM():
            with m.State("JOB"):
                m.d.comb += [self.job.ready.eq(1), write.en.eq(self.job.valid)]
                with m.If(self.job.valid):
                    m.d.sync += number.eq(number + 1)
                    with m.If(number == JOB_WORDS - 1):
                        m.d.sync += [query.eq(0), key.eq(0)]
                        m.next = "ACCEPT"
            with m.State("ACCEPT"):
                m.d.comb += self.accepted.valid.eq(1)
                with m.If(self.accepted.ready):
                    m.next = "TILE"
                    with m.If(bad):
                        m.next = "JOB"
            with m.State("TILE"):
                m.d.comb += take.eq(credits != 0)
                m.d.sync += place.eq(0)
                with m.If(take):
                    m.next = "REGION"
            with m.State("REGION"):
                m.d.comb += field.eq(Mux(fresh, 0, 3))
                with m.If(region == Region.V):
                    m.next = "ANNOUNCE"
                with m.Elif(wanted):
                    m.next = "ADDRESS"
                with m.Else():
                    m.d.sync += place.eq(place + 1)
            with m.State("ANNOUNCE"):
                m.d.comb += self.tile.valid.eq(1)
                with m.If(self.tile.ready):
                    m.next = "V"
            with m.State("V"):
                m.d.comb += [field.eq(Mux(fresh, 0, 3)), take_v.eq(v_credits != 0)]
                with m.If(take_v):
                    m.next = "ADDRESS"
            with m.State("ADDRESS"):
                m.d.comb += field.eq(1)
                m.d.sync += address.eq(read.data)
                m.next = "STRIDE"
            with m.State("STRIDE"):
                m.d.comb += field.eq(2)
                m.d.sync += stride_end.eq(address + read.data)
                m.next = "COUNT"
            with m.State("COUNT"):
                m.d.comb += [write.addr.eq(REGIONS_AT + Cat(C(3, 2), region)),
                             write.data.eq(stride_end), write.en.eq(1)]
                m.d.sync += [tile_words.eq(Mux(tail, read.data[:16], full_words)),
                             tile_beats.eq(Mux(tail, read.data[16:], full_beats))]
                m.next = "ORDER"
            with m.State("ORDER"):
                m.d.comb += [self.load.valid.eq(~stored), self.store.valid.eq(stored)]
                with m.If(Mux(stored, self.store.ready, self.load.ready)):
                    m.d.sync += place.eq(place + 1)
                    m.next = "REGION"
                    with m.If(region == Region.V):
                        m.d.sync += [buffer.eq(~buffer), key.eq(Mux(last_key, 0, key + 1))]
                        m.next = "TILE"
                        with m.If(last_key):
                            m.d.sync += [query_buffer.eq(~query_buffer), query.eq(query + 1)]
                            with m.If(last_query):
                                m.next = "JOB"

        return m
