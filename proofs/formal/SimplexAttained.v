(** T12 is attained, by a regular simplex of n keys and the same queries. *)

Require Import Reals Lra Lia Psatz Arith.
Require Import Sum Softmax Vectors Simplex.
Open Scope R_scope.

(* x times the identity. *)
Definition identity (x : R) (c b : nat) : R := if Nat.eqb b c then x else 0.

(* The corners of a regular simplex about 0 in n coordinates, on the unit sphere. *)
Definition corner (n i b : nat) : R :=
  sqrt (INR n / (INR n - 1)) * ((if Nat.eqb b i then 1 else 0) - / INR n).

(* The identity multiplies each coordinate. *)
Lemma image_identity n x y c : (c < n)%nat -> image n (identity x) y c = x * y c.
Proof.
  intros Hc. unfold image, identity.
  rewrite (sum_ext n _ (fun b => if Nat.eqb b c then x * y b else 0)).
  - apply sum_pick, Hc.
  - intros b _. destruct (Nat.eqb b c); ring.
Qed.

(* Products of corners: 1 with itself, -1 / (n - 1) with another. *)
Lemma corner_dot n i j :
  (2 <= n)%nat -> (i < n)%nat -> (j < n)%nat ->
  dot n (corner n i) (corner n j) = if Nat.eqb j i then 1 else - / (INR n - 1).
Proof.
  intros Hn Hi Hj. assert (H2 : 2 <= INR n) by (apply (le_INR 2), Hn).
  unfold dot, corner. set (w := sqrt (INR n / (INR n - 1))).
  assert (Hw : w * w = INR n / (INR n - 1)).
  { apply sqrt_sqrt. apply Rmult_le_pos; [lra|]. left. apply Rinv_0_lt_compat. lra. }
  set (e := if Nat.eqb j i then 1 else 0).
  rewrite (sum_ext n _ (fun b => w * w *
    ((if Nat.eqb b i then e else 0) - / INR n * (if Nat.eqb b i then 1 else 0)
     - / INR n * (if Nat.eqb b j then 1 else 0) + / INR n * / INR n))).
  - rewrite sum_scal, sum_plus, !sum_minus, !sum_scal, sum_const.
    rewrite !(sum_pick n _ (fun _ => _)) by assumption. rewrite Hw. unfold e.
    destruct (Nat.eqb j i); field; lra.
  - intros b _. unfold e.
    destruct (Nat.eqb_spec b i), (Nat.eqb_spec b j), (Nat.eqb_spec j i);
      subst; try congruence; ring.
Qed.

(* T12, attained, where sigma is a singular value n times (n - 1 of them are used, for corners add
   up to 0). *)
Theorem T12_attained n sigma (zero := fun _ : nat => 0) :
  (2 <= n)%nat -> 0 <= sigma ->
  norm_le n n (cross n (identity sigma) (identity 1)) sigma /\
  (forall i, (i < n)%nat -> in_ball n (corner n i)) /\
  forall i, (i < n)%nat ->
    alpha n (rows n n n (identity sigma) zero (identity 1) zero (corner n) (corner n) zero zero i) i
    = 1 / (1 + (INR n - 1) * exp (- (sigma * INR n / (INR n - 1)))).
Proof.
  intros Hn Hs. assert (H2 : 2 <= INR n) by (apply (le_INR 2), Hn).
  assert (Hc : forall x c, (c < n)%nat ->
    image n (cross n (identity sigma) (identity 1)) x c = sigma * x c).
  { intros x c Hcn. rewrite <- (image_identity n sigma x c Hcn). unfold image. apply sum_ext.
    intros b Hb. f_equal. unfold cross, identity.
    rewrite (sum_ext n _ (fun e => if Nat.eqb e c then if Nat.eqb b e then sigma else 0 else 0)).
    - apply (sum_pick n c (fun e => if Nat.eqb b e then sigma else 0)), Hcn.
    - intros e _. rewrite (Nat.eqb_sym c e). destruct (Nat.eqb e c), (Nat.eqb b e); ring. }
  split; [|split].
  - intros x. assert (Hx := norm_facts n x). apply norm_bound; [apply Rmult_le_pos; lra|].
    unfold sq. rewrite (dot_ext n _ _ _ _ (Hc x) (Hc x)), dot_scal, dot_comm, dot_scal.
    fold (sq n x). rewrite <- (proj2 Hx). right. ring.
  - intros i Hi. apply norm_bound; [lra|]. unfold sq. rewrite corner_dot by assumption.
    rewrite Nat.eqb_refl. lra.
  - intros i Hi.
    assert (Hl : forall j, (j < n)%nat ->
      rows n n n (identity sigma) zero (identity 1) zero (corner n) (corner n) zero zero i j
      = if Nat.eqb j i then sigma else - (sigma / (INR n - 1))).
    { intros j Hj. unfold rows. rewrite logit_terms.
      assert (Z0 : forall x, dot n zero x = 0)
        by (intros; unfold dot, zero; rewrite (sum_ext n _ (fun _ => 0)), sum_const;
            intros; ring).
      rewrite Z0, (dot_comm n _ zero), Z0.
      rewrite (dot_ext n _ _ _ _ (fun c _ => eq_refl) (Hc (corner n j))), dot_scal.
      rewrite corner_dot by assumption. unfold zero.
      destruct (Nat.eqb j i); field; lra. }
    unfold alpha, Z. rewrite (Hl i Hi), Nat.eqb_refl.
    rewrite (sum_ext n _ (fun j =>
      if Nat.eqb j i then exp sigma else exp (- (sigma / (INR n - 1)))))
      by (intros j Hj; rewrite Hl by exact Hj; destruct (Nat.eqb j i); reflexivity).
    rewrite sum_one by exact Hi.
    replace (- (sigma / (INR n - 1)))
      with (sigma + - (sigma * INR n / (INR n - 1))) by (field; lra).
    rewrite exp_plus. assert (P1 := exp_pos sigma).
    assert (P2 := exp_pos (- (sigma * INR n / (INR n - 1)))).
    assert (0 <= (INR n - 1) * exp (- (sigma * INR n / (INR n - 1)))) by (apply Rmult_le_pos; lra).
    field. split; [lra|]. nra.
Qed.
