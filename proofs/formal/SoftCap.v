(** T8: logits c tanh(z / c) after a soft cap c. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax.
Open Scope R_scope.

(* tanh as a quotient in e^x. *)
Lemma tanh_exp x : tanh x = (exp x * exp x - 1) / (exp x * exp x + 1).
Proof.
  unfold tanh, sinh, cosh. rewrite exp_Ropp. assert (H := exp_pos x). field. split; nra.
Qed.

(* tanh is odd, 0 at 0, and below 1. *)
Lemma tanh_facts x : tanh (- x) = - tanh x /\ tanh 0 = 0 /\ tanh x < 1.
Proof.
  rewrite !tanh_exp, exp_Ropp, exp_0. assert (H := exp_pos x). split; [field; split; nra|].
  split; [field|]. apply (Rmult_lt_reg_r (exp x * exp x + 1)); [nra|].
  unfold Rdiv. rewrite Rmult_assoc, Rinv_l by nra. lra.
Qed.

(* tanh does not fall. *)
Lemma tanh_mono x y : x <= y -> tanh x <= tanh y.
Proof.
  intros H. rewrite !tanh_exp. apply exp_mono in H. assert (Hx := exp_pos x).
  apply div_le; nra.
Qed.

(* The steepest step of a given width is the one about 0. *)
Lemma tanh_step a b : b <= a -> tanh a - tanh b <= 2 * tanh ((a - b) / 2).
Proof.
  intros H. rewrite !tanh_exp.
  assert (He : exp ((a - b) / 2) * exp ((a - b) / 2) = exp a / exp b).
  { rewrite <- exp_plus. replace ((a - b) / 2 + (a - b) / 2) with (a + - b) by field.
    rewrite exp_plus, exp_Ropp. reflexivity. }
  rewrite He. set (u := exp a) in *. set (v := exp b) in *.
  assert (Hu : 0 < u) by apply exp_pos. assert (Hv : 0 < v) by apply exp_pos.
  assert (Huv : v <= u) by (apply exp_mono, H).
  replace ((u * u - 1) / (u * u + 1) - (v * v - 1) / (v * v + 1))
    with (2 * (u - v) * (u + v) / ((u * u + 1) * (v * v + 1))) by (field; split; nra).
  replace (2 * ((u / v - 1) / (u / v + 1))) with (2 * (u - v) / (u + v)).
  - apply div_le; [apply Rmult_lt_0_compat; nra|lra|].
    assert (0 <= (u * v - 1) * (u * v - 1)) by apply Rle_0_sqr.
    assert ((u + v) * (u + v) <= (u * u + 1) * (v * v + 1)) by nra.
    assert (0 <= 2 * (u - v)) by lra. nra.
  - field. split; lra.
Qed.

(* T8: a spread d before the cap leaves at most 2 c tanh(d / 2c), and that is at most 2 c. *)
Theorem T8_spread n z c d :
  (1 <= n)%nat -> 0 < c -> spread_le n z d ->
  spread_le n (fun i => c * tanh (z i / c)) (2 * c * tanh (d / (2 * c))) /\
  2 * c * tanh (d / (2 * c)) <= 2 * c.
Proof.
  intros Hn Hc Hd. split.
  - assert (H0 : 0 <= d) by (assert (H := Hd O O ltac:(lia) ltac:(lia)); lra).
    assert (Hpos : 0 <= tanh (d / (2 * c))).
    { rewrite <- (proj1 (proj2 (tanh_facts 0))). apply tanh_mono, Rmult_le_pos; [lra|].
      left. apply Rinv_0_lt_compat. lra. }
    intros i j Hi Hj. assert (Hij := Hd i j Hi Hj). rewrite <- Rmult_minus_distr_l.
    destruct (Rle_lt_dec (z j) (z i)) as [H|H].
    + assert (Ht := tanh_step (z i / c) (z j / c)
        ltac:(apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, Hc|exact H])).
      assert (Hm : tanh ((z i / c - z j / c) / 2) <= tanh (d / (2 * c))).
      { apply tanh_mono. replace ((z i / c - z j / c) / 2) with ((z i - z j) / (2 * c))
          by (field; lra).
        apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; lra|exact Hij]. }
      nra.
    + assert (tanh (z i / c) <= tanh (z j / c)).
      { apply tanh_mono, Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, Hc|lra]. }
      nra.
  - assert (H := proj2 (proj2 (tanh_facts (d / (2 * c))))). nra.
Qed.

(* T8, attained: by logits d/2 and -d/2. *)
Theorem T8_attained c d :
  0 < c -> c * tanh (d / 2 / c) - c * tanh (- (d / 2) / c) = 2 * c * tanh (d / (2 * c)).
Proof.
  intros Hc. replace (- (d / 2) / c) with (- (d / 2 / c)) by (field; lra).
  rewrite (proj1 (tanh_facts (d / 2 / c))).
  replace (d / (2 * c)) with (d / 2 / c) by (field; lra). ring.
Qed.
