"""Architectures: from a checkpoint to attention heads in normal form.

Adding one is a short file here with a `FAMILY`, and its name in `registry`.
"""

from dispersion.architectures.plans import Family, FamilyInfo, LayerPlan, Plan
from dispersion.architectures.registry import families, plan, supported_model_types

__all__ = ["Family", "FamilyInfo", "LayerPlan", "Plan", "families", "plan", "supported_model_types"]
