(** T3, which k: H_k falls up to a turning point and rises after it; a closed floor below all. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax SetMass EntropyFloor.
Open Scope R_scope.

(* D = s / (1 - e^-s), and the turning point n (D - 1) / (e^s - 1). *)
Definition ratio (s : R) : R := s / (1 - exp (- s)).
Definition turn (n s : R) : R := n * (ratio s - 1) / (exp s - 1).

(* The denominator of the row with k items at the top, that of the turning point. *)
Definition level (n k s : R) : R := n * exp (- s) + k * (1 - exp (- s)).
Definition lowest (n s : R) : R := ratio s * (n * exp (- s)).

(* e^-s < 1 and D > 0 for s > 0. *)
Lemma ratio_pos s : 0 < s -> 0 < exp (- s) < 1 /\ 0 < ratio s.
Proof.
  intros Hs. assert (H : exp (- s) < exp 0) by (apply exp_increasing; lra). rewrite exp_0 in H.
  split; [split; [apply exp_pos|exact H]|]. apply Rdiv_lt_0_compat; lra.
Qed.

(* H_k through the denominator z alone: ln z + B / z and a constant. *)
Lemma H_two_level n k s :
  (1 <= k <= n)%nat -> 0 < s ->
  0 < level (INR n) (INR k) s /\
  H_two n k s = ln (level (INR n) (INR k) s) + lowest (INR n) s / level (INR n) (INR k) s
                + (s - ratio s).
Proof.
  intros Hk Hs. destruct (ratio_pos s Hs) as [He Hd].
  assert (K1 : 1 <= INR k) by (apply INR_ge_1; lia).
  assert (KN : INR k <= INR n) by (apply le_INR; lia).
  unfold H_two, lowest, ratio. set (z := level (INR n) (INR k) s).
  assert (Ez : z = INR k + (INR n - INR k) * exp (- s)) by (unfold z, level; ring).
  set (e := exp (- s)) in *.
  assert (W : 0 <= (INR n - INR k) * e) by (apply Rmult_le_pos; lra).
  assert (Hz : 0 < z) by lra. split; [exact Hz|].
  assert (Er : 1 + (INR n - INR k) * e / INR k = z / INR k) by (rewrite Ez; field; lra).
  rewrite Er.
  assert (El : ln (INR k) + ln (z / INR k) = ln z).
  { rewrite <- ln_mult; [|lra|apply Rdiv_lt_0_compat; lra]. f_equal. field. lra. }
  rewrite El.
  assert (En : INR n * e = z - INR k * (1 - e)) by (rewrite Ez; ring).
  assert (Ew : (INR n - INR k) * e = z - INR k) by (rewrite Ez; ring).
  rewrite Ew, En. field. repeat split; lra.
Qed.

(* ln z + B / z falls for z <= B and rises for z >= B. *)
Lemma fall_and_rise b z z' :
  0 < z <= z' ->
  (z' <= b -> ln z' + b / z' <= ln z + b / z) /\ (b <= z -> ln z + b / z <= ln z' + b / z').
Proof.
  intros Hz. assert (Hi := Rinv_0_lt_compat z ltac:(lra)).
  assert (Hi' := Rinv_0_lt_compat z' ltac:(lra)).
  assert (L : ln (z' / z) = ln z' - ln z)
    by (unfold Rdiv; rewrite ln_mult, ln_Rinv by lra; ring).
  assert (L' : ln (z / z') = ln z - ln z')
    by (unfold Rdiv; rewrite ln_mult, ln_Rinv by lra; ring).
  assert (T := ln_tangent (z' / z) ltac:(apply Rdiv_lt_0_compat; lra)).
  assert (T' := ln_tangent (z / z') ltac:(apply Rdiv_lt_0_compat; lra)).
  assert (D : b / z - b / z' = b * (z' - z) * / z * / z') by (field; lra).
  assert (Q : 0 <= (z' - z) * / z * / z') by (repeat apply Rmult_le_pos; lra).
  split; intros Hb.
  - assert (S : z' / z - 1 = z' * ((z' - z) * / z * / z')) by (field; lra).
    assert (z' * ((z' - z) * / z * / z') <= b * ((z' - z) * / z * / z'))
      by (apply Rmult_le_compat_r; lra). lra.
  - assert (S : z / z' - 1 = - (z * ((z' - z) * / z * / z'))) by (field; lra).
    assert (b * ((z' - z) * / z * / z') <= z * ((z' - z) * / z * / z'))
      by (apply Rmult_le_compat_r; lra). lra.
Qed.

(* The turning point in terms of denominators. *)
Lemma turn_level n k s :
  0 < s -> (k <= turn n s <-> level n k s <= lowest n s) /\
           (turn n s <= k <-> lowest n s <= level n k s).
Proof.
  intros Hs. destruct (ratio_pos s Hs) as [He Hd].
  assert (Ei := exp_inv s). assert (Ep := exp_pos s).
  assert (E1 : 0 < exp s - 1) by nra.
  assert (Et : turn n s * (1 - exp (- s)) = lowest n s - n * exp (- s)).
  { unfold turn, lowest. replace (1 - exp (- s)) with (exp (- s) * (exp s - 1)) by nra.
    field. lra. }
  unfold level. split; split; intros H; nra.
Qed.

(* T3: H_k falls in k up to the turning point and rises after it. *)
Theorem T3_shape n k k' s :
  (1 <= k <= k')%nat -> (k' <= n)%nat -> 0 < s ->
  (INR k' <= turn (INR n) s -> H_two n k' s <= H_two n k s) /\
  (turn (INR n) s <= INR k -> H_two n k s <= H_two n k' s).
Proof.
  intros Hk Hk' Hs.
  destruct (H_two_level n k s ltac:(lia) Hs) as [Z0 E].
  destruct (H_two_level n k' s ltac:(lia) Hs) as [Z0' E'].
  rewrite E, E'. destruct (ratio_pos s Hs) as [He _].
  assert (Hkk : INR k <= INR k') by (apply le_INR; lia).
  assert (Hzz : level (INR n) (INR k) s <= level (INR n) (INR k') s) by (unfold level; nra).
  destruct (fall_and_rise (lowest (INR n) s) _ _ (conj Z0 Hzz)) as [Fall Rise].
  split; intros H; apply turn_level in H; try exact Hs.
  - assert (F := Fall H). lra.
  - assert (F := Rise H). lra.
Qed.

(* T3, closed floor: H >= ln n - (D - 1 - ln D), D = s / (1 - e^-s). *)
Theorem T3_closed n l s :
  (1 <= n)%nat -> 0 < s -> spread_le n l s ->
  ln (INR n) - (ratio s - 1 - ln (ratio s)) <= entropy n l.
Proof.
  intros Hn Hs Hl. destruct (ratio_pos s Hs) as [He Hd].
  destruct (Nat.eq_dec n 1) as [->|Hn1].
  - assert (T := ln_tangent (ratio s) Hd). change (INR 1) with 1. rewrite ln_1.
    assert (entropy 1 l = 0); [|lra].
    unfold entropy, alpha, Z. simpl. rewrite !Rplus_0_l.
    assert (P := exp_pos (l O)). replace (exp (l O) / exp (l O)) with 1 by (field; lra).
    rewrite ln_1. ring.
  - destruct (T3_floor n l s ltac:(lia) Hl) as (k & Hk & H).
    destruct (H_two_level n k s ltac:(lia) Hs) as [Z0 E]. rewrite E in H.
    assert (N1 := INR_ge_1 n Hn). set (z := level (INR n) (INR k) s) in *.
    assert (B0 : 0 < lowest (INR n) s)
      by (apply Rmult_lt_0_compat; [exact Hd|apply Rmult_lt_0_compat; lra]).
    assert (T := ln_tangent (lowest (INR n) s / z) ltac:(apply Rdiv_lt_0_compat; lra)).
    unfold Rdiv in T. rewrite ln_mult, ln_Rinv in T; try lra; [|apply Rinv_0_lt_compat, Z0].
    assert (EB : ln (lowest (INR n) s) = ln (ratio s) + ln (INR n) - s).
    { unfold lowest. rewrite !ln_mult, ln_exp; try lra. apply Rmult_lt_0_compat; lra. }
    unfold Rdiv in H. lra.
Qed.
