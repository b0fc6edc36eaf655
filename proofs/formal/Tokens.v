(** What T13 means for contexts: a share, a number of tokens, sinks and left-out keys, soft caps. *)

Require Import Reals Lra Lia Psatz Ranalysis4.
Require Import Sum Softmax Vectors SoftCap Simplex Energy Capacity.
Open Scope R_scope.

(* A head whose A^T C has singular values at most bound_0 .. bound_(m - 1). *)
Definition spectrum_le d r r' m A C (bound : nat -> R) : Prop :=
  exists kappa, singular m r r' (cross d A C) kappa /\
    forall e, (e < m)%nat -> kappa e <= bound e.

(* Numbers of at least p > 0 have inverses of at most 1 / p. *)
Lemma inverses n x p :
  0 < p -> (forall i, (i < n)%nat -> p <= x i) -> sum n (fun i => / x i) <= INR n * / p.
Proof.
  intros Hp H. rewrite <- sum_const. apply sum_le. intros i Hi.
  apply Rinv_le_contravar; [exact Hp|apply H, Hi].
Qed.

(* n tokens with coefficient p each: n p <= N. *)
Lemma everyone n (x : nat -> R) N p :
  (1 <= n)%nat -> 0 < p -> 0 <= N -> INR n * INR n <= N * sum n (fun i => / x i) ->
  (forall i, (i < n)%nat -> p <= x i) -> INR n * p <= N.
Proof.
  intros Hn Hp HN T H. assert (I := inverses n x p Hp H). assert (Hn1 := INR_ge_1 n Hn).
  apply (Rmult_le_compat_l N) in I; [|exact HN]. apply (Rle_trans _ _ _ T) in I.
  apply (Rmult_le_reg_l (INR n)); [lra|]. apply (Rmult_le_compat_r p) in I; [|lra].
  replace (N * (INR n * / p) * p) with (INR n * N) in I by (field; lra). lra.
Qed.

(* T13: of n tokens some gets at most N / n, at every level t > 0. *)
Theorem T13_ceiling n d r r' m A a C c u v f g bound t :
  (1 <= n)%nat -> 0 < t -> spectrum_le d r r' m A C bound ->
  (forall i, (i < n)%nat -> in_ball r (u i)) -> (forall j, (j < n)%nat -> in_ball r' (v j)) ->
  exists i, (i < n)%nat /\
    alpha n (rows d r r' A a C c u v f g i) i <= exp (log_capacity m bound t) / INR n.
Proof.
  intros Hn Ht HM Hu Hv. set (x := fun i => alpha n (rows d r r' A a C c u v f g i) i).
  destruct (argmin n x Hn) as (i & Hi & H). exists i. split; [exact Hi|].
  assert (Hn1 := INR_ge_1 n Hn).
  destruct HM as (kappa & HM & Hb).
  assert (E := everyone n x _ (x i) Hn (alpha_pos _ _ _ Hn) (Rlt_le _ _ (exp_pos _))
    (T13_harmonic n d r r' m A a C c u v f g kappa bound t Hn Ht HM Hb Hu Hv) H).
  apply (Rmult_le_reg_l (INR n)); [lra|]. fold (x i).
  replace (INR n * (exp (log_capacity m bound t) / INR n)) with (exp (log_capacity m bound t))
    by (field; lra). exact E.
Qed.

(* Distinct terms of a sum, none negative, add up to at most the sum. *)
Lemma sum_injective k n (s : nat -> nat) f :
  (forall i, (i < k)%nat -> (s i < n)%nat) ->
  (forall i j, (i < k)%nat -> (j < k)%nat -> s i = s j -> i = j) ->
  (forall j, (j < n)%nat -> 0 <= f j) -> sum k (fun i => f (s i)) <= sum n f.
Proof.
  revert f. induction k as [|k IH]; intros f Hs Hinj Hf; simpl; [apply sum_nonneg, Hf|].
  rewrite (sum_split n (s k)) by (apply Hs; lia).
  rewrite (sum_ext k _ (fun i => if Nat.eqb (s i) (s k) then 0 else f (s i))).
  - assert (H := IH (fun j => if Nat.eqb j (s k) then 0 else f j)).
    enough (sum k (fun i => if Nat.eqb (s i) (s k) then 0 else f (s i))
            <= sum n (fun j => if Nat.eqb j (s k) then 0 else f j)) by lra.
    apply H.
    + intros. apply Hs. lia.
    + intros. apply Hinj; try lia; assumption.
    + intros j Hj. destruct (Nat.eqb j (s k)); [lra|apply Hf, Hj].
  - intros i Hi. destruct (Nat.eqb_spec (s i) (s k)) as [E|_]; [|reflexivity].
    apply Hinj in E; lia.
Qed.

(* In some context of n keys, and sinks of any weight, the k distinct tokens s_0 .. s_(k - 1) get
   coefficient p each, from queries of their own. *)
Definition retrieves d r r' A a C c (n k : nat) (s : nat -> nat) (p : R) : Prop :=
  exists u v f g sink,
    (forall i, (i < k)%nat -> (s i < n)%nat) /\
    (forall i j, (i < k)%nat -> (j < k)%nat -> s i = s j -> i = j) /\
    (forall i, (i < k)%nat -> in_ball r (u i)) /\ (forall j, (j < n)%nat -> in_ball r' (v j)) /\
    (forall i, 0 <= sink i) /\
    forall i, (i < k)%nat -> let l := rows d r r' A a C c u v f g i in
      p <= exp (l (s i)) / (Z n l + sink i).

(* Without sinks and other keys they get no less. *)
Lemma restricted d r r' A a C c n k s p :
  (1 <= k)%nat -> retrieves d r r' A a C c n k s p ->
  exists u v f g,
    (forall i, (i < k)%nat -> in_ball r (u i)) /\ (forall j, (j < k)%nat -> in_ball r' (v j)) /\
    forall i, (i < k)%nat -> p <= alpha k (rows d r r' A a C c u v f g i) i.
Proof.
  intros Hk (u & v & f & g & sink & Hs & Hinj & Hu & Hv & Hsink & H).
  exists u, (fun j => v (s j)), f, (fun j => g (s j)). split; [exact Hu|split; [auto|]].
  intros i Hi. apply Rle_trans with (1 := H i Hi).
  set (l := rows d r r' A a C c u v f g i).
  change (exp (l (s i)) / (Z n l + sink i) <= exp (l (s i)) / Z k (fun j => l (s j))).
  assert (HZ : Z k (fun j => l (s j)) <= Z n l).
  { apply (sum_injective k n s (fun j => exp (l j)) Hs Hinj). intros. left. apply exp_pos. }
  assert (HZ0 := Z_pos k (fun j => l (s j)) Hk). assert (Hsi := Hsink i).
  assert (Hpos := exp_pos (l (s i))).
  apply div_le; [lra|lra|]. apply Rmult_le_compat_l; lra.
Qed.

(* T13, in any context: at most N / p tokens get coefficient p. *)
Theorem T13_tokens d r r' m A a C c bound t n k s p :
  0 < t -> 0 < p -> spectrum_le d r r' m A C bound -> retrieves d r r' A a C c n k s p ->
  INR k * p <= exp (log_capacity m bound t).
Proof.
  intros Ht Hp (kappa & HM & Hb) HR.
  destruct k as [|k]; [simpl; rewrite Rmult_0_l; left; apply exp_pos|].
  destruct (restricted d r r' A a C c n (S k) s p ltac:(lia) HR) as (u & v & f & g & Hu & Hv & H).
  apply (everyone (S k) (fun i => alpha (S k) (rows d r r' A a C c u v f g i) i)); auto;
    [lia|left; apply exp_pos|].
  apply (T13_harmonic (S k) d r r' m A a C c u v f g kappa bound t); auto. lia.
Qed.

(* N is at most e^kappa_1: the level t = kappa_1. *)
Theorem T13_largest m bound top :
  (forall e, (e < m)%nat -> bound e <= top) -> log_capacity m bound top = top.
Proof.
  intros H. unfold log_capacity. rewrite (sum_ext m _ (fun _ => 0)), sum_const; [ring|].
  intros e He. unfold log_factor. destruct (Rle_lt_dec (bound e) top) as [|Hgt]; [reflexivity|].
  assert (Hb := H e He). lra.
Qed.

(* tanh stays below the diagonal. *)
Lemma tanh_below x : 0 <= x -> tanh x <= x.
Proof.
  intros [Hx| <-]; [|rewrite (proj1 (proj2 (tanh_facts 0))); lra].
  set (h := fun y => y * cosh y - sinh y).
  assert (Hd : forall y, 0 <= y <= x ->
    derivable_pt_lim h y ((1 * cosh y + y * sinh y) - cosh y)).
  { intros y _. apply (derivable_pt_lim_minus (fun y => y * cosh y) sinh).
    - apply (derivable_pt_lim_mult id cosh);
        [apply derivable_pt_lim_id|apply derivable_pt_lim_cosh].
    - apply derivable_pt_lim_sinh. }
  destruct (MVT_cor2 h _ 0 x Hx Hd) as (y & E & Hy).
  assert (Hs : 0 <= sinh y).
  { unfold sinh. assert (exp (- y) <= exp y) by (apply exp_mono; lra). lra. }
  assert (Hc : 0 < cosh x)
    by (unfold cosh; assert (H := exp_pos x); assert (H' := exp_pos (- x)); lra).
  assert (H0 : h 0 = 0) by (unfold h; rewrite sinh_0; ring).
  assert (0 <= h x).
  { rewrite H0 in E. ring_simplify (1 * cosh y + y * sinh y - cosh y) in E.
    assert (0 <= y * sinh y) by (apply Rmult_le_pos; lra). nra. }
  unfold h in *. unfold tanh. apply (Rmult_le_reg_r (cosh x)); [exact Hc|].
  unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.

(* A soft cap never widens a gap, and keeps the order. *)
Lemma cap_gap c x y :
  0 < c -> c * tanh (y / c) <= c * tanh (x / c) -> c * tanh (x / c) - c * tanh (y / c) <= x - y.
Proof.
  intros Hc H. assert (Hic := Rinv_0_lt_compat c Hc).
  destruct (Rle_lt_dec y x) as [Hxy|Hxy].
  - assert (Hq : y / c <= x / c) by (apply Rmult_le_compat_r; lra).
    assert (H1 := tanh_step (x / c) (y / c) Hq).
    assert (H2 := tanh_below ((x / c - y / c) / 2) ltac:(lra)).
    replace (x - y) with (c * (2 * ((x / c - y / c) / 2))) by (field; lra). nra.
  - exfalso. apply (Rmult_le_reg_l c) in H; [|exact Hc]. revert H. apply Rlt_not_le.
    rewrite !tanh_exp. assert (Hq : x / c < y / c) by (apply Rmult_lt_compat_r; lra).
    apply exp_increasing in Hq. assert (P := exp_pos (x / c)).
    set (p := exp (x / c)) in *. set (q := exp (y / c)) in *.
    apply (Rmult_lt_reg_r ((p * p + 1) * (q * q + 1))); [apply Rmult_lt_0_compat; nra|].
    unfold Rdiv. field_simplify; nra.
Qed.

(* T13 under a soft cap: the bound of the logits before the cap holds for p >= 1/2. *)
Theorem T13_soft_cap n d r r' m A a C c u v f g cap bound t p :
  (1 <= n)%nat -> 0 < t -> 1 / 2 <= p -> 0 < cap -> spectrum_le d r r' m A C bound ->
  (forall i, (i < n)%nat -> in_ball r (u i)) -> (forall j, (j < n)%nat -> in_ball r' (v j)) ->
  (forall i, (i < n)%nat -> let l := rows d r r' A a C c u v f g i in
     p <= alpha n (fun j => cap * tanh (l j / cap)) i) ->
  INR n * p <= exp (log_capacity m bound t).
Proof.
  intros Hn Ht Hp Hcap (kappa & HM & Hb) Hu Hv H.
  apply (everyone n (fun i => alpha n (rows d r r' A a C c u v f g i) i)); auto;
    [lra|left; apply exp_pos|
     apply (T13_harmonic n d r r' m A a C c u v f g kappa bound t); assumption|].
  intros i Hi. apply Rle_trans with (1 := H i Hi). assert (Hpi := H i Hi). simpl in Hpi.
  set (l := rows d r r' A a C c u v f g i) in *. set (z := fun j => cap * tanh (l j / cap)) in *.
  assert (HZ := Z_pos n z Hn). assert (HZl := Z_pos n l Hn).
  (* the target is the largest of its row *)
  assert (Top : forall j, (j < n)%nat -> z j <= z i).
  { intros j Hj. destruct (Nat.eq_dec j i) as [->|Hne]; [lra|].
    assert (S := alpha_sum n z Hn). rewrite (sum_split n i) in S by exact Hi.
    assert (T := sum_term n j (fun e => if Nat.eqb e i then 0 else alpha n z e) Hj).
    simpl in T. destruct (Nat.eqb_spec j i) as [|_]; [contradiction|].
    assert (T' : alpha n z j <= alpha n z i).
    { assert (alpha n z j <= sum n (fun e => if Nat.eqb e i then 0 else alpha n z e)); [|lra].
      apply T. intros e _. destruct (Nat.eqb e i); [lra|left; apply alpha_pos, Hn]. }
    unfold alpha in T'. apply (Rmult_le_compat_r (Z n z)) in T'; [|lra].
    unfold Rdiv in T'. rewrite !Rmult_assoc, Rinv_l, !Rmult_1_r in T' by lra.
    destruct (Rle_lt_dec (z j) (z i)) as [|Hlt]; [assumption|].
    apply exp_increasing in Hlt. lra. }
  unfold alpha. apply div_le; [exact HZ|exact HZl|].
  unfold Z. rewrite <- !sum_scal. apply sum_le. intros j Hj. rewrite <- !exp_plus. apply exp_mono.
  assert (G := cap_gap cap (l i) (l j) Hcap (Top j Hj)). unfold z. lra.
Qed.
