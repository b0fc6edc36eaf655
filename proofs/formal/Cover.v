(** The cover: an affine image of a ball lies in the ellipsoid with shares w and 1 - w. *)

Require Import Reals Lra Lia Psatz Arith.
Require Import Sum Vectors.
Open Scope R_scope.

(* A root F of M M^T / w + a a^T / (1 - w): the columns of M and one more for a. *)
Definition shares (r : nat) (M : nat -> nat -> R) (a : nat -> R) (w : R) (c b : nat) : R :=
  if Nat.ltb b r then M c b / sqrt w else a c / sqrt (1 - w).

(* Every point M u + a with |u| <= 1 is F z with |z| <= 1. *)
Theorem cover r M a w u :
  0 < w < 1 -> in_ball r u ->
  exists z, in_ball (S r) z /\ forall c, point r M a u c = image (S r) (shares r M a w) z c.
Proof.
  intros Hw Hu. assert (H1 := sqrt_lt_R0 w ltac:(lra)).
  assert (H2 := sqrt_lt_R0 (1 - w) ltac:(lra)).
  assert (S1 := sqrt_sqrt w ltac:(lra)). assert (S2 := sqrt_sqrt (1 - w) ltac:(lra)).
  exists (fun b => if Nat.ltb b r then sqrt w * u b else sqrt (1 - w)). split.
  - apply norm_bound; [lra|]. unfold sq, dot. simpl sum.
    rewrite (sum_ext r _ (fun b => w * (u b * u b))).
    + rewrite sum_scal, Nat.ltb_irrefl, S2. apply sq_bound in Hu.
      change (w * sq r u + (1 - w) <= 1 * 1). nra.
    + intros b Hb. apply Nat.ltb_lt in Hb. rewrite Hb.
      transitivity (sqrt w * sqrt w * (u b * u b)); [ring|]. rewrite S1. reflexivity.
  - intros c. unfold point, image, shares. simpl sum. rewrite Nat.ltb_irrefl.
    replace (a c / sqrt (1 - w) * sqrt (1 - w)) with (a c) by (field; lra). f_equal.
    apply sum_ext. intros b Hb. apply Nat.ltb_lt in Hb. rewrite Hb. field. lra.
Qed.
