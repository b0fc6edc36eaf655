(** What T12 and T13 mean for contexts: a share, a number of tokens, sinks and left-out keys. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax Vectors Simplex Energy Capacity.
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

(* T12, in any context: k >= 2 tokens with coefficient p each. *)
Theorem T12_tokens d r r' A a C c sigma n k s p :
  (2 <= k)%nat -> 0 <= sigma -> norm_le r r' (cross d A C) sigma ->
  retrieves d r r' A a C c n k s p ->
  p <= 1 / (1 + (INR k - 1) * exp (- (sigma * INR k / (INR k - 1)))).
Proof.
  intros Hk Hs HM HR.
  destruct (restricted d r r' A a C c n k s p ltac:(lia) HR) as (u & v & f & g & Hu & Hv & H).
  destruct (T12_ceiling k d r r' A a C c u v f g sigma Hk Hs HM Hu Hv) as (i & Hi & B).
  apply Rle_trans with (1 := H i Hi), B.
Qed.
