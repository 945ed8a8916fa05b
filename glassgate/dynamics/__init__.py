"""Analyses of trained networks with any cell: Jacobians, fixed points, Lyapunov exponents, relevance, state search."""

from glassgate.dynamics.explanations import Relevance as Relevance
from glassgate.dynamics.explanations import contribution as contribution
from glassgate.dynamics.explanations import relevance as relevance
from glassgate.dynamics.exponents import Lyapunov as Lyapunov
from glassgate.dynamics.exponents import lyapunov as lyapunov
from glassgate.dynamics.jacobians import Trajectory as Trajectory
from glassgate.dynamics.jacobians import jacobian as jacobian
from glassgate.dynamics.jacobians import survival as survival
from glassgate.dynamics.jacobians import trajectory as trajectory
from glassgate.dynamics.matches import Index as Index
from glassgate.dynamics.matches import Match as Match
from glassgate.dynamics.matches import search as search
from glassgate.dynamics.points import FixedPoints as FixedPoints
from glassgate.dynamics.points import fixed_points as fixed_points
from glassgate.dynamics.separate import SeparateLayer as SeparateLayer
from glassgate.dynamics.separate import separate as separate

__all__ = [
    "FixedPoints",
    "Index",
    "Lyapunov",
    "Match",
    "Relevance",
    "SeparateLayer",
    "Trajectory",
    "contribution",
    "fixed_points",
    "jacobian",
    "lyapunov",
    "relevance",
    "search",
    "separate",
    "survival",
    "trajectory",
]
