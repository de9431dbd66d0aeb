"""Specifications, proofs and seeded faults: what ``python -m gen formal`` runs."""

import abc
import dataclasses
import importlib
import importlib.util
import pathlib
import types

from amaranth.hdl import Assert, Assume, Cover, Format, Module, Signal, Value


__all__ = ["Fault", "Proof", "Spec", "faulty_class"]


class Spec(abc.ABC):
    """Base of a specification: a component with properties around it.

    A subclass has :meth:`specify`, which drives the inputs of ``self.dut`` from free inputs
    (:meth:`free`), keeps a reference model, and calls :meth:`check`, :meth:`assume` and
    :meth:`cover`. These are evaluated at every clock edge, on the values before it. A reference
    model in the ``sync`` domain is reset together with the component: ``rst`` is free, too.

    Parameters
    ----------
    dut : component
        Made anew for each run; :meth:`module` adds it as a submodule.
    only : :class:`frozenset` or :class:`None`
        The properties to state; ``None`` states all properties and covers.
    """

    #: Names of all properties and covers; each must be used once.
    properties = ()
    covers = ()

    def __init__(self, dut, only=None):
        self.dut, self.only = dut, only
        self.ports = []

    def free(self, signal):
        """Let the solver choose ``signal`` in every cycle."""
        self.ports.append(signal)
        return signal

    def constant(self, m, name, shape):
        """A value that the solver chooses once."""
        value = self.free(Signal(shape, name=name))
        known = Signal(name=f"{name}_known", reset_less=True)
        before = Signal(shape, name=f"{name}_before", reset_less=True)
        m.d.sync += [known.eq(1), before.eq(value)]
        self.assume(m, ~known | (value == before))
        return value

    def check_holds(self, m, name, stream):
        """State that a stream offers the same payload until it is taken."""
        payload = Value.cast(stream.payload)
        stalled = Signal(name=f"{name}_stalled")
        before = Signal(len(payload), name=f"{name}_before")
        m.d.sync += [stalled.eq(stream.valid & ~stream.ready), before.eq(payload)]
        with m.If(stalled):
            self.check(m, name, stream.valid & (payload == before))

    def check(self, m, name, condition):
        """State a property; inside ``m.If`` it is stated for those cycles only."""
        if name not in self.properties:
            raise ValueError(f"Property must be one of {self.properties}, not {name!r}")
        if self.only is None or name in self.only:
            m.d.sync += Assert(condition, Format(name))

    def assume(self, m, condition):
        """Restrict the inputs."""
        m.d.sync += Assume(condition)

    def cover(self, m, name, condition):
        """State what must be reachable."""
        if name not in self.covers:
            raise ValueError(f"Cover must be one of {self.covers}, not {name!r}")
        if self.only is None:
            m.d.sync += Cover(condition, Format(name))

    @abc.abstractmethod
    def specify(self, m):
        """Add the properties to ``m``, of which ``self.dut`` is a submodule."""

    def module(self):
        """The component with its properties; ``self.ports`` then lists the free inputs."""
        m = Module()
        m.submodules.dut = self.dut
        self.specify(m)
        return m


@dataclasses.dataclass(frozen=True)
class Fault:
    """One changed piece of the component's source that breaks the property ``breaks``.

    ``old`` must occur once in the source of the component's module. ``depth`` is the depth at
    which it is caught at the latest (the proof's if not given).
    """

    breaks: str
    old: str
    new: str
    depth: int | None = None


@dataclasses.dataclass(frozen=True)
class Proof:
    """What is proved of one component at one (small) parameter set.

    ``component`` is ``module:Class``; ``build`` makes it from the class, so that arguments beside
    the parameter object can be given. ``inductive`` names the properties that hold by k-induction
    with ``induction_depth``; all are checked up to ``depth`` cycles.
    """

    name: str
    component: str
    build: object
    spec: type
    depth: int
    cover_depth: int
    inductive: tuple = ()
    induction_depth: int = 0
    faults: tuple = ()

    def __post_init__(self):
        known = set(self.spec.properties)
        for name in (*self.inductive, *(fault.breaks for fault in self.faults)):
            if name not in known:
                raise ValueError(f"Proof {self.name!r}: property must be one of "
                                 f"{self.spec.properties}, not {name!r}")


def faulty_class(path, fault=None):
    """The class ``module:Class``, from a source in which ``fault`` has been seeded if given."""
    module_name, _, class_name = path.partition(":")
    if fault is None:
        return getattr(importlib.import_module(module_name), class_name)
    source_path = pathlib.Path(importlib.util.find_spec(module_name).origin)
    source = source_path.read_text(encoding="utf-8")
    count = source.count(fault.old)
    if count != 1:
        raise ValueError(f"Fault must replace text that occurs once in {module_name}, but "
                         f"{fault.old!r} occurs {count} times")
    module = types.ModuleType(f"{module_name}_faulty")
    module.__package__ = module_name.rpartition(".")[0]
    module.__file__ = str(source_path)
    code = compile(source.replace(fault.old, fault.new), str(source_path), "exec")
    exec(code, module.__dict__)
    return getattr(module, class_name)
