(** T6: logits of bounded spread d, multiplied by c ln n. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax Dispersion.
Open Scope R_scope.

(* The ceiling 1 / (1 + (n - 1) n^(-c d)). *)
Definition scaled_ceiling (n c d : R) : R := 1 / (1 + (n - 1) * Rpower n (- (c * d))).

(* T6: a coefficient of such a row is at most that; attained. *)
Theorem T6_ceiling n l c d i :
  (i < n)%nat -> 0 <= c -> spread_le n l d ->
  alpha n (fun j => c * ln (INR n) * l j) i <= scaled_ceiling (INR n) c d.
Proof.
  intros Hi Hc Hs. assert (Hn : 1 <= INR n) by (apply INR_ge_1; lia).
  assert (Hln : 0 <= ln (INR n)) by (rewrite <- ln_1; apply ln_mono; lra).
  assert (H := T1_ceiling n (fun j => c * ln (INR n) * l j) (c * ln (INR n) * d) i Hi).
  unfold scaled_ceiling, Rpower.
  replace (- (c * d) * ln (INR n)) with (- (c * ln (INR n) * d)) by ring.
  apply H. intros a b Ha Hb. rewrite <- Rmult_minus_distr_l.
  apply Rmult_le_compat_l; [apply Rmult_le_pos; assumption|]. apply Hs; assumption.
Qed.

(* T6, attained: by one item d above the rest. *)
Theorem T6_attained n c d i :
  (i < n)%nat -> 0 <= d ->
  exists l, spread_le n l d /\
    alpha n (fun j => c * ln (INR n) * l j) i = scaled_ceiling (INR n) c d.
Proof.
  intros Hi Hd. exists (fun j => if Nat.eqb j i then d else 0). split.
  - intros a b _ _. destruct (Nat.eqb a i), (Nat.eqb b i); lra.
  - unfold alpha, Z. rewrite Nat.eqb_refl.
    rewrite (sum_ext n _ (fun j => if Nat.eqb j i then exp (c * ln (INR n) * d) else 1)).
    + rewrite sum_one by exact Hi. unfold scaled_ceiling, Rpower.
      replace (- (c * d) * ln (INR n)) with (- (c * ln (INR n) * d)) by ring.
      rewrite exp_Ropp. assert (Hp := exp_pos (c * ln (INR n) * d)).
      assert (H1 := INR_ge_1 n ltac:(lia)). field. repeat split; lra.
    + intros j _. destruct (Nat.eqb j i); [reflexivity|]. rewrite Rmult_0_r, exp_0. reflexivity.
Qed.

(* n times n^-x is n^(1 - x). *)
Lemma power_less n x : 0 < n -> n * Rpower n (- x) = Rpower n (1 - x).
Proof.
  intros Hn. rewrite <- (Rpower_1 n Hn) at 1. rewrite <- Rpower_plus. f_equal.
Qed.

(* T6 for c d > 1: at least 1 / (1 + n^-(c d - 1)), which tends to 1. *)
Theorem T6_above n c d :
  1 <= n -> 1 < c * d -> 1 / (1 + Rpower n (1 - c * d)) <= scaled_ceiling n c d.
Proof.
  intros Hn _. unfold scaled_ceiling. assert (Hp := power_less n (c * d) ltac:(lra)).
  assert (H0 : 0 < Rpower n (- (c * d))) by apply exp_pos.
  assert (H1 : 0 < Rpower n (1 - c * d)) by apply exp_pos.
  assert (0 <= (n - 1) * Rpower n (- (c * d))) by (apply Rmult_le_pos; lra).
  apply div_le; lra.
Qed.

(* T6 for c d = 1: exactly n / (2 n - 1), which tends to 1/2. *)
Theorem T6_equal n c d : 1 <= n -> c * d = 1 -> scaled_ceiling n c d = n / (2 * n - 1).
Proof.
  intros Hn H. unfold scaled_ceiling. rewrite H, Rpower_Ropp, Rpower_1 by lra. field. lra.
Qed.

(* T6 for c d < 1: at most n^-(1 - c d), which tends to 0. *)
Theorem T6_below n c d :
  1 <= n -> 0 <= c * d < 1 -> scaled_ceiling n c d <= Rpower n (- (1 - c * d)).
Proof.
  intros Hn H. unfold scaled_ceiling. set (x := c * d) in *.
  replace (- (1 - x)) with (Ropp 1 + x) by ring.
  rewrite Rpower_plus, Rpower_Ropp, Rpower_Ropp, Rpower_1 by lra.
  assert (Hx : 1 <= Rpower n x).
  { unfold Rpower. rewrite <- exp_0. apply exp_mono, Rmult_le_pos; [lra|].
    rewrite <- ln_1. apply ln_mono; lra. }
  set (y := Rpower n x) in *.
  replace (/ n * y) with (y / n) by (unfold Rdiv; ring).
  replace (1 / (1 + (n - 1) * / y)) with (y / (y + (n - 1))) by (field; lra).
  apply div_le; nra.
Qed.
