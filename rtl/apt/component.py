"""What every component of the APT engine has in common: its parameters."""

from amaranth.lib import wiring

from golden.apt.params import AptParams


__all__ = ["AptComponent"]


class AptComponent(wiring.Component):
    """Base of the components that are made for one :class:`AptParams`.

    A subclass states its members in ``_ports(params)``, as a dict; ``params`` has been checked by
    then.

    Parameters
    ----------
    params : :class:`AptParams`
        Parameters of the engine.
    """

    def __init__(self, params):
        if not isinstance(params, AptParams):
            raise TypeError(f"Params must be an AptParams, not {params!r}")
        self._params = params
        super().__init__(self._ports(params))

    @property
    def params(self):
        return self._params
