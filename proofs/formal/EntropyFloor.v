(** T3: the entropy of a row of spread s is at least that of some row with two levels. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax SetMass.
Open Scope R_scope.

(* A row with one logit replaced. *)
Definition upd (l : nat -> R) (i : nat) (x : R) (j : nat) : R := if Nat.eqb j i then x else l j.

(* The denominator of a convex combination of two weights of one item. *)
Lemma Z_upd n l i x y t :
  (i < n)%nat -> exp (l i) = t * exp x + (1 - t) * exp y ->
  Z n l = t * Z n (upd l i x) + (1 - t) * Z n (upd l i y).
Proof.
  intros Hi H. unfold Z. rewrite <- !sum_scal, <- sum_plus. apply sum_ext. intros j _.
  unfold upd. destruct (Nat.eqb_spec j i) as [->|_]; [exact H|ring].
Qed.

(* The coefficients are then a convex combination too, so one end has no more entropy. *)
Lemma entropy_one n l i x y t :
  (i < n)%nat -> 0 <= t <= 1 -> exp (l i) = t * exp x + (1 - t) * exp y ->
  entropy n (upd l i x) <= entropy n l \/ entropy n (upd l i y) <= entropy n l.
Proof.
  intros Hi Ht H. assert (Hn : (1 <= n)%nat) by lia.
  set (lx := upd l i x). set (ly := upd l i y).
  assert (Zl := Z_pos n l Hn). assert (Zx := Z_pos n lx Hn). assert (Zy := Z_pos n ly Hn).
  assert (HZ : Z n l = t * Z n lx + (1 - t) * Z n ly) by (apply Z_upd; assumption).
  set (cx := t * Z n lx / Z n l). set (cy := (1 - t) * Z n ly / Z n l).
  assert (Hc : cx + cy = 1) by (unfold cx, cy, Rdiv;
    rewrite <- Rmult_plus_distr_r, <- HZ; apply Rinv_r; lra).
  assert (Hcx : 0 <= cx)
    by (apply Rmult_le_pos; [apply Rmult_le_pos; lra|left; apply Rinv_0_lt_compat, Zl]).
  assert (Hcy : 0 <= cy)
    by (apply Rmult_le_pos; [apply Rmult_le_pos; lra|left; apply Rinv_0_lt_compat, Zl]).
  assert (Ha : forall j, alpha n l j = cx * alpha n lx j + cy * alpha n ly j).
  { intros j. unfold alpha, cx, cy.
    assert (He : exp (l j) = t * exp (lx j) + (1 - t) * exp (ly j)).
    { unfold lx, ly, upd. destruct (Nat.eqb_spec j i) as [->|_]; [exact H|ring]. }
    rewrite He. field. lra. }
  assert (Gx := gibbs n lx l Hn). assert (Gy := gibbs n ly l Hn).
  assert (E := entropy_Z n l Hn).
  rewrite (sum_ext n _ (fun j => cx * (alpha n lx j * l j) + cy * (alpha n ly j * l j)))
    in E by (intros; rewrite Ha; ring).
  rewrite sum_plus, !sum_scal in E.
  destruct (Rle_lt_dec (entropy n lx) (entropy n l)) as [|Lx]; [left; assumption|].
  destruct (Rle_lt_dec (entropy n ly) (entropy n l)) as [|Ly]; [right; assumption|].
  exfalso.
  assert (H1 : cx * entropy n lx <= cx * (ln (Z n l) - sum n (fun j => alpha n lx j * l j)))
    by (apply Rmult_le_compat_l; assumption).
  assert (H2 : cy * entropy n ly <= cy * (ln (Z n l) - sum n (fun j => alpha n ly j * l j)))
    by (apply Rmult_le_compat_l; assumption).
  replace cy with (1 - cx) in * by lra.
  assert (0 <= cx * (entropy n lx - entropy n l)) by (apply Rmult_le_pos; lra).
  assert (0 <= (1 - cx) * (entropy n ly - entropy n l)) by (apply Rmult_le_pos; lra).
  destruct (Rle_lt_dec cx 0); nra.
Qed.

(* A weight between those of two logits is a convex combination of them. *)
Lemma between x s : 0 <= x <= s -> exists t, 0 <= t <= 1 /\ exp x = t * exp s + (1 - t) * exp 0.
Proof.
  intros Hx. rewrite exp_0. destruct (Req_dec s 0) as [->|Hs].
  - exists 1. rewrite exp_0. replace x with 0 by lra. rewrite exp_0. lra.
  - assert (1 < exp s) by (rewrite <- exp_0; apply exp_increasing; lra).
    assert (1 <= exp x) by (rewrite <- exp_0; apply exp_mono; lra).
    assert (exp x <= exp s) by (apply exp_mono; lra).
    exists ((exp x - 1) / (exp s - 1)). split; [|field; lra].
    split; [apply Rmult_le_pos; [lra|left; apply Rinv_0_lt_compat; lra]|].
    apply (Rmult_le_reg_r (exp s - 1)); [lra|]. unfold Rdiv.
    rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.

(* Logits in [0, s] move to 0 or s one after the other, and the entropy does not grow. *)
Lemma to_vertices n l s m :
  (m <= n)%nat -> (forall i, (i < n)%nat -> 0 <= l i <= s) ->
  exists A : nat -> bool,
    entropy n (fun j => if Nat.ltb j m then two_level A s j else l j) <= entropy n l.
Proof.
  intros Hm Hl. induction m as [|m IH].
  - exists (fun _ => true). right. apply entropy_ext. intros j _.
    destruct (Nat.ltb_spec j 0); [lia|reflexivity].
  - destruct IH as (A & HA); [lia|].
    set (l' := fun j => if Nat.ltb j m then two_level A s j else l j) in *.
    assert (Hm' : l' m = l m) by (unfold l'; destruct (Nat.ltb_spec m m); [lia|reflexivity]).
    destruct (between (l m) s (Hl m ltac:(lia))) as (t & Ht & He). rewrite <- Hm' in He.
    assert (Step : forall b : bool,
      entropy n (upd l' m (if b then s else 0)) <= entropy n l' ->
      exists B : nat -> bool,
        entropy n (fun j => if Nat.ltb j (S m) then two_level B s j else l j) <= entropy n l).
    { intros b Hb. exists (fun j => if Nat.eqb j m then b else A j).
      apply Rle_trans with (2 := HA). apply Rle_trans with (2 := Hb). right.
      apply entropy_ext. intros j _. unfold upd, l', two_level.
      destruct (Nat.eqb_spec j m), (Nat.ltb_spec j m), (Nat.ltb_spec j (S m));
        try lia; reflexivity. }
    destruct (entropy_one n l' m s 0 t ltac:(lia) Ht He) as [H|H].
    + apply (Step true), H.
    + apply (Step false), H.
Qed.

(* The entropy of a row with two levels. *)
Lemma entropy_two n A s :
  (1 <= card n A)%nat -> entropy n (two_level A s) = H_two n (card n A) s.
Proof.
  intros Hk. assert (Hc := card_le n A). assert (Hn : (1 <= n)%nat) by lia.
  set (k := INR (card n A)). assert (Hk1 : 1 <= k) by (apply INR_ge_1, Hk).
  assert (Hkn : k <= INR n) by (apply le_INR, Hc).
  set (w := (INR n - k) * exp (- s)).
  assert (Hw : 0 <= w) by (apply Rmult_le_pos; [lra|left; apply exp_pos]).
  rewrite <- (entropy_shift n _ (- s)), entropy_Z by exact Hn.
  assert (HZ : Z n (fun j => two_level A s j + - s) = k + w).
  { unfold Z. rewrite (sum_ext n _ (fun j => if A j then 1 else exp (- s))).
    - rewrite sum_two. fold k. unfold w. ring.
    - intros j _. unfold two_level. destruct (A j);
        [rewrite <- exp_0|]; f_equal; ring. }
  unfold alpha. rewrite HZ.
  rewrite (sum_ext n _ (fun j => if A j then 0 else exp (- s) / (k + w) * - s)).
  - rewrite sum_two. fold k. unfold H_two. fold k. fold w.
    replace (k + w) with (k * (1 + w / k)) by (field; lra).
    assert (0 <= w / k) by (apply Rmult_le_pos; [lra|left; apply Rinv_0_lt_compat; lra]).
    rewrite ln_mult by lra.
    replace ((INR n - k) * (exp (- s) / (k * (1 + w / k)) * - s))
      with (- (s * (w / k) / (1 + w / k))); [ring|].
    unfold w in *. field. split; [|lra]. unfold Rdiv in *. nra.
  - intros j _. unfold two_level. destruct (A j).
    + replace (s + - s) with 0 by ring. ring.
    + rewrite Rplus_0_l. reflexivity.
Qed.

(* No row has more entropy than n equal logits. *)
Lemma entropy_le_ln n l : (1 <= n)%nat -> entropy n l <= ln (INR n).
Proof.
  intros Hn. assert (H := gibbs n l (fun _ => 0) Hn).
  unfold Z in H. rewrite sum_const, exp_0 in H.
  rewrite (sum_ext n _ (fun _ => 0)), sum_const in H by (intros; ring).
  rewrite Rmult_1_r, Rmult_0_r, Rminus_0_r in H. exact H.
Qed.

(* T3, attained: every two-level value is the entropy of a row of that spread. *)
Theorem T3_attained n k s :
  (1 <= k <= n)%nat -> 0 <= s -> exists l, spread_le n l s /\ entropy n l = H_two n k s.
Proof.
  intros Hk Hs. set (A := fun i => Nat.ltb i k).
  assert (Hc : forall m, (m <= n)%nat -> card m A = Nat.min m k).
  { induction m as [|m IH]; intros Hm; [reflexivity|]. simpl card. rewrite IH by lia.
    unfold A. destruct (Nat.ltb_spec m k); lia. }
  assert (Hn : card n A = k) by (rewrite Hc by lia; lia).
  exists (two_level A s). split; [apply two_level_spread, Hs|].
  rewrite entropy_two by lia. rewrite Hn. reflexivity.
Qed.

(* T3: with n >= 2 items, some k in 1 .. n - 1 has H_k below the entropy of the row. *)
Theorem T3_floor n l s :
  (2 <= n)%nat -> spread_le n l s ->
  exists k, (1 <= k <= n - 1)%nat /\ H_two n k s <= entropy n l.
Proof.
  intros Hn Hs. destruct (argmin n l ltac:(lia)) as (i & Hi & Hmin).
  assert (H0 : 0 <= s) by (assert (H := Hs i i Hi Hi); lra).
  rewrite <- (entropy_shift n l (- l i)) by lia.
  set (l' := fun j => l j + - l i).
  destruct (to_vertices n l' s n ltac:(lia)) as (A & HA).
  { intros j Hj. unfold l'. assert (H1 := Hmin j Hj). assert (H2 := Hs j i Hj Hi). lra. }
  rewrite (entropy_ext n _ (two_level A s)) in HA
    by (intros j Hj; destruct (Nat.ltb_spec j n); [reflexivity|lia]).
  destruct (Nat.eq_dec (card n A) 0) as [Hz|Hz]; [|destruct (Nat.eq_dec (card n A) n) as [Hf|Hf]].
  3:{ exists (card n A). assert (H := card_le n A). split; [lia|].
      rewrite <- entropy_two by lia. exact HA. }
  all: exists 1%nat; split; [lia|];
    destruct (T3_attained n 1 s ltac:(lia) H0) as (u & _ & <-);
    apply Rle_trans with (2 := HA), Rle_trans with (1 := entropy_le_ln n u ltac:(lia)), Req_le.
  - assert (Hall : forall m, card m A = 0%nat -> forall j, (j < m)%nat -> A j = false).
    { clear. induction m as [|m IH]; intros H j Hj; [lia|]. simpl in H.
      destruct (A m) eqn:E; [simpl in H; lia|]. destruct (Nat.eq_dec j m) as [->|]; [exact E|].
      apply IH; [exact H|lia]. }
    rewrite (entropy_ext n _ (fun _ => 0 + 0)), entropy_Z by
      (try lia; intros j Hj; unfold two_level; rewrite (Hall n Hz j Hj); ring).
    unfold Z. rewrite sum_const, Rplus_0_r, exp_0.
    rewrite (sum_ext n _ (fun _ => 0)), sum_const by (intros; ring).
    rewrite Rmult_1_r, Rmult_0_r, Rminus_0_r. reflexivity.
  - rewrite entropy_two, Hf by lia. unfold H_two. rewrite Rminus_diag_eq by reflexivity.
    assert (1 <= INR n) by (apply INR_ge_1; lia).
    replace (0 * exp (- s) / INR n) with 0 by (field; lra).
    rewrite Rplus_0_r, ln_1. field.
Qed.
