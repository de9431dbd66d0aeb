"""Sum of products written with ``*``, and a balanced tree of adders."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from golden.common.checks import ceil_log2


__all__ = ["ProductTree"]


def _register(m, advance, values, name):
    registers = []
    for k, value in enumerate(values):
        register = Signal(value.shape(), name=f"{name}_{k}", reset_less=True)
        with m.If(advance):
            m.d.sync += register.eq(value)
        registers.append(register)
    return registers


class _Products(wiring.Component):
    # Apart from the tree: Yosys folds products and adders of one module into one sum.

    def __init__(self, width, count, registered):
        self._width = width
        self._registered = registered
        operands = data.ArrayLayout(signed(width), count)
        super().__init__({"advance": In(1), "a": In(operands), "b": In(operands),
                          "p": Out(data.ArrayLayout(signed(2 * width), count))})

    def elaborate(self, platform):
        m = Module()
        products = []
        for k in range(len(self.p)):
            product = Signal(signed(2 * self._width), name=f"product_{k}")
            m.d.comb += product.eq(self.a[k] * self.b[k])
            products.append(product)
        if self._registered:
            products = _register(m, self.advance, products, "p")
        m.d.comb += [out.eq(product) for out, product in zip(self.p, products, strict=True)]
        return m


class _AdderTree(wiring.Component):
    def __init__(self, width, count, registers):
        self._width = width
        self._registers = registers  # how many follow the terms (level 0) and each level
        super().__init__({"advance": In(1), "p": In(data.ArrayLayout(signed(width), count)),
                          "total": Out(signed(width + ceil_log2(count)))})

    def elaborate(self, platform):
        m = Module()
        terms = list(self.p)
        for level, registers in enumerate(self._registers):
            if level:
                pairs = []
                for k in range(len(terms) // 2):
                    pair = Signal(signed(self._width + level), name=f"level{level}_{k}")
                    m.d.comb += pair.eq(terms[2 * k] + terms[2 * k + 1])
                    pairs.append(pair)
                terms = pairs + terms[2 * len(pairs):]
            for number in range(registers):
                terms = _register(m, self.advance, terms, f"level{level}_r{number}")
        m.d.comb += self.total.eq(terms[0])
        return m


class ProductTree(wiring.Component):
    """``total = sum(a[k] * b[k])``, the plain way: multiplications, then pairwise additions.

    The first of the registers holds the products, the last the sum, others stand evenly between
    the levels of the tree; one register alone holds the sum. They follow when ``advance`` is
    high, one sum a cycle, ``stages`` of such cycles after its operands.

    Parameters
    ----------
    width : :class:`int`
        Width of a signed operand.
    count : :class:`int`
        Number of products.
    stages : :class:`int`
        Registers from operands to sum, at least 1.

    Members
    -------
    advance : :py:`In(1)`
        Whether the registers take what is in front of them.
    a, b : :py:`In(data.ArrayLayout(signed(width), count))`
        Operands.
    total : :py:`Out(signed(2 * width + ceil_log2(count)))`
        Sum.
    """

    def __init__(self, width, count, stages):
        for name, value in (("Width", width), ("Count", count), ("Stages", stages)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise TypeError(f"{name} must be a positive integer, not {value!r}")
        self._width = width
        self._count = count
        self._stages = stages
        operands = data.ArrayLayout(signed(width), count)
        super().__init__({"advance": In(1), "a": In(operands), "b": In(operands),
                          "total": Out(signed(2 * width + ceil_log2(count)))})

    @property
    def width(self):
        return self._width

    @property
    def count(self):
        return self._count

    @property
    def stages(self):
        return self._stages

    def elaborate(self, platform):
        m = Module()

        # Registers after the products (entry 0) and after each level of the tree.
        levels = ceil_log2(self._count)
        registers = [0] * (levels + 1)
        for k in range(self._stages):
            registers[levels * k // (self._stages - 1) if self._stages > 1 else levels] += 1
        m.submodules.products = products = _Products(self._width, self._count, registers[0] > 0)
        registers[0] = max(0, registers[0] - 1)
        m.submodules.tree = tree = _AdderTree(2 * self._width, self._count, registers)
        m.d.comb += [
            products.advance.eq(self.advance),
            products.a.eq(self.a),
            products.b.eq(self.b),
            tree.advance.eq(self.advance),
            tree.p.eq(products.p),
            self.total.eq(tree.total),
        ]

        return m
