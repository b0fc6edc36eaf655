(** T2: what a spread s allows m of n items together. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax.
Open Scope R_scope.

(* The most that m of n items hold, and the least. *)
Definition most (n m s : R) : R := m / (m + (n - m) * exp (- s)).
Definition least (n m s : R) : R := m / (m + (n - m) * exp s).

(* The logits s on a set and 0 off it. *)
Definition two_level (A : nat -> bool) (s : R) (i : nat) : R := if A i then s else 0.

(* Denominators of both forms are positive. *)
Lemma level_pos n m c : 1 <= n -> 0 <= m <= n -> 0 < c -> 0 < m + (n - m) * c.
Proof. intros. destruct (Rle_lt_dec m 0); nra. Qed.

(* The number of items of a set, as a real. *)
Lemma card_range n A : 0 <= INR (card n A) <= INR n.
Proof. split; [apply pos_INR|apply le_INR, card_le]. Qed.

(* The sum of the exponentials on a set, and off it. *)
Definition part (n : nat) (A : nat -> bool) (l : nat -> R) : R :=
  sum n (fun i => if A i then exp (l i) else 0).

(* The mass of a set is its part of the denominator. *)
Lemma mass_part n A l : mass n A l = part n A l / Z n l.
Proof.
  unfold mass, part, Rdiv. rewrite <- sum_scal_r. apply sum_ext. intros i _.
  unfold alpha. destruct (A i); lra.
Qed.

(* Set and rest together are the denominator. *)
Lemma part_rest n A l : part n A l + part n (fun i => negb (A i)) l = Z n l.
Proof.
  unfold part, Z. rewrite <- sum_plus. apply sum_ext. intros i _.
  destruct (A i); simpl; ring.
Qed.

(* The rest has n - m items. *)
Lemma card_rest n A : INR (card n (fun i => negb (A i))) = INR n - INR (card n A).
Proof.
  induction n as [|n IH]; [simpl; ring|]. rewrite S_INR. simpl card. rewrite !plus_INR, IH.
  destruct (A n); simpl; ring.
Qed.

(* Every item off the set weighs at least e^-s times every item on it; summed over all pairs. *)
Lemma part_pairs n A l s :
  spread_le n l s ->
  part n A l * (INR n - INR (card n A)) * exp (- s)
  <= part n (fun i => negb (A i)) l * INR (card n A).
Proof.
  intros Hs. rewrite <- card_rest.
  assert (Hcard : forall B : nat -> bool,
    INR (card n B) = sum n (fun j => if B j then 1 else 0)) by (intros; rewrite sum_two; ring).
  rewrite !Hcard. unfold part.
  rewrite <- !sum_scal_r.
  rewrite (sum_ext n (fun i => (if A i then exp (l i) else 0) * _ * exp (- s))
    (fun i => sum n (fun j => if A i then if negb (A j) then exp (l i) * exp (- s) else 0 else 0))).
  2:{ intros i _. rewrite Rmult_assoc, <- sum_scal_r, <- sum_scal. apply sum_ext. intros j _.
      destruct (A i), (A j); simpl; ring. }
  rewrite (sum_ext n (fun j => (if negb (A j) then exp (l j) else 0) * _)
    (fun j => sum n (fun i => if A i then if negb (A j) then exp (l j) else 0 else 0))).
  2:{ intros j _. rewrite <- sum_scal. apply sum_ext. intros i _.
      destruct (A i), (A j); simpl; ring. }
  rewrite (sum_swap n n (fun j i => if A i then if negb (A j) then exp (l j) else 0 else 0)).
  apply sum_le. intros i Hi. apply sum_le. intros j Hj.
  destruct (A i), (A j); simpl; try lra.
  rewrite <- exp_plus. apply exp_mono. assert (H := Hs i j Hi Hj). lra.
Qed.

(* T2: m of n items hold at most m / (m + (n - m) e^-s). *)
Theorem T2_ceiling n A l s :
  (1 <= n)%nat -> spread_le n l s -> mass n A l <= most (INR n) (INR (card n A)) s.
Proof.
  intros Hn Hs. assert (H := part_pairs n A l s Hs). assert (Hp := part_rest n A l).
  assert (HZ := Z_pos n l Hn). assert (Hm := card_range n A). assert (H1 := INR_ge_1 n Hn).
  rewrite mass_part. unfold most. apply div_le; [exact HZ|apply level_pos; auto; apply exp_pos|].
  rewrite <- Hp. lra.
Qed.

(* Set and rest hold 1 together. *)
Lemma mass_rest n A l : (1 <= n)%nat -> mass n A l = 1 - mass n (fun i => negb (A i)) l.
Proof.
  intros Hn. rewrite !mass_part. assert (H := part_rest n A l). assert (HZ := Z_pos n l Hn).
  apply (Rmult_eq_reg_r (Z n l)); [|lra]. unfold Rdiv.
  rewrite Rmult_minus_distr_r, !Rmult_assoc, Rinv_l by lra. lra.
Qed.

(* What the set and the rest may hold, opposite ways. *)
Lemma most_least n m s : 1 <= n -> 0 <= m <= n -> 1 - most n (n - m) s = least n m s.
Proof.
  intros Hn Hm. unfold most, least. replace (n - (n - m)) with m by ring.
  assert (Hs := exp_pos s). rewrite exp_Ropp.
  assert (Hd := level_pos n m (exp s) Hn Hm Hs).
  field. repeat split; lra.
Qed.

(* T2, floor: they hold at least m / (m + (n - m) e^s). *)
Theorem T2_floor n A l s :
  (1 <= n)%nat -> spread_le n l s -> least (INR n) (INR (card n A)) s <= mass n A l.
Proof.
  intros Hn Hs. rewrite mass_rest by exact Hn.
  assert (H := T2_ceiling n (fun i => negb (A i)) l s Hn Hs).
  rewrite card_rest in H.
  rewrite <- (most_least _ _ s (INR_ge_1 n Hn) (card_range n A)). lra.
Qed.

(* A two-level row has its spread. *)
Lemma two_level_spread n A s : 0 <= s -> spread_le n (two_level A s) s.
Proof. intros Hs i j _ _. unfold two_level. destruct (A i), (A j); lra. Qed.

(* T2, attained: the set at the top and the rest at the bottom; for the floor the other way. *)
Theorem T2_attained n A s :
  (1 <= n)%nat -> 0 <= s ->
  (exists l, spread_le n l s /\ mass n A l = most (INR n) (INR (card n A)) s) /\
  (exists l, spread_le n l s /\ mass n A l = least (INR n) (INR (card n A)) s).
Proof.
  intros Hn Hs.
  assert (Top : forall B, mass n B (two_level B s) = most (INR n) (INR (card n B)) s).
  { intros B. rewrite mass_part. unfold part, Z, two_level.
    rewrite (sum_ext n _ (fun i => if B i then exp s else 0))
      by (intros i _; destruct (B i); reflexivity).
    rewrite (sum_ext n (fun j => exp _) (fun i => if B i then exp s else 1))
      by (intros i _; destruct (B i); [reflexivity|apply exp_0]).
    rewrite !sum_two. unfold most.
    assert (Hm := card_range n B). rewrite exp_Ropp. assert (Hp := exp_pos s).
    assert (Hd := level_pos (INR n) (INR n - INR (card n B)) (exp s) (INR_ge_1 n Hn)
      ltac:(lra) Hp).
    field. repeat split; lra. }
  split.
  - exists (two_level A s). split; [apply two_level_spread, Hs|apply Top].
  - exists (two_level (fun i => negb (A i)) s). split; [apply two_level_spread, Hs|].
    rewrite mass_rest, Top, card_rest by exact Hn.
    apply most_least; [apply INR_ge_1, Hn|apply card_range].
Qed.
