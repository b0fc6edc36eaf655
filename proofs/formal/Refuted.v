(** Near misses: variants of the theorems with one number, sign or factor wrong, each proved false.
    controls.sh makes these variants from Statements.v and checks that no proof accepts them. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax SetMass Dispersion EntropyFloor Sink SoftCap Vectors Heads Budget.
Require Import Simplex SimplexAttained.
Open Scope R_scope.

(* Rows of equal logits have no spread and equal coefficients. *)
Lemma flat n i : (1 <= n)%nat -> spread_le n (fun _ => 0) 0 /\ alpha n (fun _ => 0) i = / INR n.
Proof.
  intros Hn. split; [intros a b _ _; lra|]. unfold alpha, Z. rewrite sum_const, exp_0.
  assert (H := INR_ge_1 n Hn). field. lra.
Qed.

(* e is more than 1. *)
Lemma exp_1_gt : 1 < exp 1.
Proof. assert (H := exp_increasing 0 1 ltac:(lra)). rewrite exp_0 in H. exact H. Qed.

(* T1 with n for n - 1. *)
Theorem not_T1_ceiling :
  ~ forall (n : nat) (l : nat -> R) (s : R) (i : nat),
    (i < n)%nat -> spread_le n l s -> alpha n l i <= 1 / (1 + (INR n) * exp (- s)).
Proof.
  intros H. destruct (flat 1 0 ltac:(lia)) as [F E].
  specialize (H 1%nat (fun _ => 0) 0 O ltac:(lia) F). rewrite E in H.
  rewrite Ropp_0, exp_0 in H. simpl in H. lra.
Qed.

(* The floor of T1 with the sign of the spread lost. *)
Theorem not_T1_floor :
  ~ forall (n : nat) (l : nat -> R) (s : R) (i : nat),
    (i < n)%nat -> spread_le n l s -> 1 / (1 + (INR n - 1) * exp (- s)) <= alpha n l i.
Proof.
  intros H. destruct (flat 2 0 ltac:(lia)) as [F E].
  assert (F1 : spread_le 2 (fun _ => 0) 1) by (intros a b _ _; lra).
  specialize (H 2%nat (fun _ => 0) 1 O ltac:(lia) F1). rewrite E in H.
  assert (P := exp_1_gt). assert (Q := exp_inv 1). assert (R := exp_pos (Ropp 1)).
  simpl in H. replace (1 + (1 + 1 - 1) * exp (Ropp 1)) with (1 + exp (Ropp 1)) in H by ring.
  apply (Rmult_le_compat_r (1 + exp (Ropp 1))) in H; [|lra]. unfold Rdiv in H.
  rewrite Rmult_assoc, Rinv_l in H by lra. nra.
Qed.

(* T2 with all n items in the denominator for the n - m others. *)
Theorem not_T2_ceiling :
  ~ forall (n : nat) (A : nat -> bool) (l : nat -> R) (s : R),
    (1 <= n)%nat -> spread_le n l s -> mass n A l <= least (INR n) (INR (card n A)) s.
Proof.
  intros H. assert (Hi : (0 < 2)%nat) by lia.
  destruct (T1_attained 2 1 0 Hi ltac:(lra)) as [(l & Hl & E) _].
  specialize (H 2%nat (only 0) l 1 ltac:(lia) Hl).
  rewrite mass_only, card_only, E in H by lia. unfold least in H. simpl in H.
  assert (P := exp_1_gt). assert (Q := exp_inv 1). assert (R := exp_pos (Ropp 1)).
  replace (1 + (1 + 1 - 1) * exp (Ropp 1)) with (1 + exp (Ropp 1)) in H by ring.
  replace (1 + (1 + 1 - 1) * exp 1) with (1 + exp 1) in H by ring.
  apply (Rmult_le_compat_r ((1 + exp (Ropp 1)) * (1 + exp 1))) in H; [|nra].
  replace (1 / (1 + exp (Ropp 1)) * ((1 + exp (Ropp 1)) * (1 + exp 1))) with (1 + exp 1) in H
    by (field; lra).
  replace (1 / (1 + exp 1) * ((1 + exp (Ropp 1)) * (1 + exp 1))) with (1 + exp (Ropp 1)) in H
    by (field; lra). nra.
Qed.

(* T3 as a strict inequality. *)
Theorem not_T3_floor :
  ~ forall (n : nat) (l : nat -> R) (s : R),
    (2 <= n)%nat ->
    spread_le n l s -> exists k : nat, (1 <= k <= n - 1)%nat /\ H_two n k s < entropy n l.
Proof.
  intros H. destruct (T3_attained 2 1 1 ltac:(lia) ltac:(lra)) as (l & Hl & E).
  destruct (H 2%nat l 1 ltac:(lia) Hl) as (k & Hk & L). replace k with 1%nat in L by lia. lra.
Qed.

(* T4 with the odds lost. *)
Theorem not_T4_length :
  ~ forall (n : nat) (l : nat -> R) (s : R) (i : nat) (p : R),
    (i < n)%nat ->
    0 < p < 1 -> spread_le n l s -> p <= alpha n l i -> INR n <= 1 + exp s * (1 - p).
Proof.
  intros H. destruct (flat 2 0 ltac:(lia)) as [F E].
  specialize (H 2%nat (fun _ => 0) 0 O (/ 2) ltac:(lia) ltac:(lra) F). rewrite E, exp_0 in H.
  simpl in H. lra.
Qed.

(* T7 with the sink measured from the bottom. *)
Theorem not_T7_ceiling :
  ~ forall (n : nat) (l : nat -> R) (b lo hi : R) (i : nat),
    (i < n)%nat ->
    within n l lo hi -> sunk n l b i <= 1 / (1 + (INR n - 1) * exp (lo - hi) + exp (b - lo)).
Proof.
  intros H.
  assert (W : within 1 (fun _ => 0) (Ropp 1) 0) by (intros a _; lra).
  specialize (H 1%nat (fun _ => 0) 0 (Ropp 1) 0 O ltac:(lia) W).
  unfold sunk, Z in H. rewrite sum_const in H.
  replace (0 - Ropp 1) with 1 in H by ring. replace (Ropp 1 - 0) with (Ropp 1) in H by ring.
  rewrite exp_0 in H. simpl in H. assert (P := exp_1_gt).
  replace (1 + (1 - 1) * exp (Ropp 1) + exp 1) with (1 + exp 1) in H by ring.
  apply (Rmult_le_compat_r (1 + exp 1)) in H; [|lra].
  replace (1 / (1 + exp 1) * (1 + exp 1)) with 1 in H by (field; lra). lra.
Qed.

(* T8 with the factor 2 lost. *)
Theorem not_T8_spread :
  ~ forall (n : nat) (z : nat -> R) (c d : R),
    (1 <= n)%nat ->
    0 < c ->
    spread_le n z d ->
    spread_le n (fun i : nat => c * tanh (z i / c)) (c * tanh (d / (2 * c))) /\
    c * tanh (d / (2 * c)) <= 2 * c.
Proof.
  intros H. set (z := fun i : nat => if Nat.eqb i 0 then 1 / 2 else - (1 / 2)).
  assert (S1 : spread_le 2 z 1)
    by (intros a b _ _; unfold z; destruct (Nat.eqb a 0), (Nat.eqb b 0); lra).
  destruct (H 2%nat z 1 1 ltac:(lia) ltac:(lra) S1) as [Q _].
  specialize (Q 0%nat 1%nat ltac:(lia) ltac:(lia)). unfold z in Q. simpl in Q.
  assert (A := T8_attained 1 1 ltac:(lra)). rewrite A in Q.
  assert (P : 0 < tanh (1 / (2 * 1))).
  { rewrite tanh_exp. assert (E := exp_increasing 0 (1 / (2 * 1)) ltac:(lra)).
    rewrite exp_0 in E. apply Rdiv_lt_0_compat; nra. }
  lra.
Qed.

(* T9 with the factor 2 lost. *)
Theorem not_T9_sigma :
  ~ forall (d r r' : nat) (A C : nat -> nat -> R) (c : nat -> R) (sigma : R),
    0 <= sigma ->
    norm_le r r' (cross d A C) sigma ->
    forall u v v' : nat -> R,
    in_ball r u ->
    in_ball r' v ->
    in_ball r' v' ->
    logit d r r' A (fun _ : nat => 0) C c u v - logit d r r' A (fun _ : nat => 0) C c u v' <=
    sigma.
Proof.
  intros H. set (one := fun _ : nat => 1).
  assert (B : forall x, x * x = 1 -> in_ball 1 (fun _ => x))
    by (intros x Hx; apply norm_bound; [lra|]; unfold sq, dot; simpl; lra).
  specialize (H 1%nat 1%nat 1%nat (fun _ _ => 1) (fun _ _ => 1) (fun _ => 0) 1 ltac:(lra)).
  assert (N : norm_le 1 1 (cross 1 (fun _ _ => 1) (fun _ _ => 1)) 1).
  { intros x. right. rewrite Rmult_1_l. unfold norm. f_equal. unfold sq, dot, image, cross.
    simpl. ring. }
  specialize (H N one one (fun _ => Ropp 1) (B 1 ltac:(lra)) (B 1 ltac:(lra))
    (B (Ropp 1) ltac:(lra))).
  unfold logit, dot, point, image, one in H. simpl in H. lra.
Qed.

(* T11 with the number of groups lost. *)
Theorem not_T11_equal :
  ~ forall (d m g : nat) (q : nat -> nat -> nat -> R) (k : nat -> nat -> R),
    (1 <= d)%nat ->
    (1 <= m)%nat ->
    (1 <= g)%nat ->
    sum m (fun a : nat => sum g (fun b : nat => sq d (q a b))) <= INR m * INR g * INR d ->
    sum m (fun a : nat => sq d (k a)) <= INR m * INR d ->
    sum m (fun a : nat => sum g (fun b : nat => modulus d (q a b) (k a))) <=
    INR g * sqrt (INR d).
Proof.
  intros H. destruct (T11_attained 1 2 1 ltac:(lia)) as [(E1 & E2 & E3) _].
  specialize (H 1%nat 2%nat 1%nat (fun _ _ _ => 1) (fun _ _ => 1) ltac:(lia) ltac:(lia) ltac:(lia)
    (Req_le _ _ E1) (Req_le _ _ E2)).
  apply (Rle_trans _ _ _ (Req_le _ _ (eq_sym E3))) in H. simpl in H. rewrite sqrt_1 in H. lra.
Qed.

(* T12 with the spread sigma n / (n - 1) replaced by sigma. *)
Theorem not_T12_ceiling :
  ~ forall (n d r r' : nat) (A : nat -> nat -> R) (a : nat -> R) (C : nat -> nat -> R)
      (c : nat -> R) (u v : nat -> nat -> R) (f g : nat -> R) (sigma : R),
    (2 <= n)%nat ->
    0 <= sigma ->
    norm_le r r' (cross d A C) sigma ->
    (forall i : nat, (i < n)%nat -> in_ball r (u i)) ->
    (forall j : nat, (j < n)%nat -> in_ball r' (v j)) ->
    exists i : nat,
      (i < n)%nat /\
      alpha n (rows d r r' A a C c u v f g i) i <=
      1 / (1 + (INR n - 1) * exp (- (sigma))).
Proof.
  intros H. set (zero := fun _ : nat => 0).
  destruct (T12_attained 2 1 ltac:(lia) ltac:(lra)) as (N & B & E).
  destruct (H 2%nat 2%nat 2%nat 2%nat (identity 1) zero (identity 1) zero (corner 2) (corner 2)
    zero zero 1 ltac:(lia) ltac:(lra) N B B) as (i & Hi & L).
  apply (Rle_trans _ _ _ (Req_le _ _ (eq_sym (E i Hi)))) in L. simpl in L.
  replace (1 * (1 + 1) / (1 + 1 - 1)) with (1 + 1) in L by field.
  rewrite Ropp_plus_distr, exp_plus in L. set (x := exp (Ropp 1)) in *.
  assert (X : 0 < x) by apply exp_pos. assert (P := exp_1_gt). assert (Q := exp_inv 1). fold x in Q.
  replace (1 + (1 + 1 - 1) * (x * x)) with (1 + x * x) in L by ring.
  replace (1 + (1 + 1 - 1) * x) with (1 + x) in L by ring.
  apply (Rmult_le_compat_r ((1 + x * x) * (1 + x))) in L; [|nra].
  replace (1 / (1 + x * x) * ((1 + x * x) * (1 + x))) with (1 + x) in L by (field; nra).
  replace (1 / (1 + x) * ((1 + x * x) * (1 + x))) with (1 + x * x) in L by (field; nra). nra.
Qed.
