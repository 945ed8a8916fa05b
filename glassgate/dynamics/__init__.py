"""Analyses of trained networks with any cell: Jacobians, fixed points, Lyapunov exponents, relevance, state search."""

from glassgate.dynamics.explanations import Relevance, contribution, relevance
from glassgate.dynamics.exponents import Lyapunov, lyapunov
from glassgate.dynamics.jacobians import Trajectory, jacobian, survival, trajectory
from glassgate.dynamics.matches import Index, Match, search
from glassgate.dynamics.points import FixedPoints, fixed_points
from glassgate.dynamics.separate import SeparateLayer, separate

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
