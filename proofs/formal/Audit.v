(** What all theorems together assume. *)

Require Import Statements.

Definition everything :=
  (T1_ceiling, T1_floor, T1_attained, T1_published, T1_published_strict, T2_ceiling, T2_floor,
   T2_attained, T3_floor, T3_attained, T3_shape, T3_closed, T3_norm_ceiling, T3_norm_attained,
   T4_spread, T4_length, T4_attained, T5, T6_ceiling, T6_attained, T6_above, T6_equal,
   T6_below, T7_whole, T7_ceiling, T7_attained, T7_share, T7_share_attained, T8_spread,
   T8_attained, T9_spread, T9_attained, T9_sigma, T9_sigma_attained, T9_dual, T10_logit,
   T10_spread, T10_cells, T10_branching, T10_commuting, T10_gains, T10_gains_attained, cover,
   T11_total, T11_equal, T11_single, T11_apart, T11_attained, T12_ceiling, T12_attained,
   T12_tokens, T13_orthonormal, T13_norm, kernel_inequality, T13_harmonic, T13_ceiling,
   T13_tokens, T13_largest, T13_soft_cap, T13_level, T13_turned, T13_rotary, T13_mean,
   T13_sphere, T13_flat, T13_steep, T13_steep_attained).

Print Assumptions everything.
