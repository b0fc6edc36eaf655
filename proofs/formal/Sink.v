(** T7: a sink, e^b in the denominator that no item receives. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax.
Open Scope R_scope.

(* The coefficient of item i, and the share of the sink. *)
Definition sunk (n : nat) (l : nat -> R) (b : R) (i : nat) : R := exp (l i) / (Z n l + exp b).
Definition share (n : nat) (l : nat -> R) (b : R) : R := exp b / (Z n l + exp b).

(* All logits lie in [lo, hi]. *)
Definition within (n : nat) (l : nat -> R) (lo hi : R) : Prop :=
  forall i, (i < n)%nat -> lo <= l i <= hi.

(* Coefficients and share add up to 1. *)
Theorem T7_whole n l b : sum n (sunk n l b) + share n l b = 1.
Proof.
  unfold sunk, share, Rdiv. rewrite sum_scal_r. fold (Z n l).
  assert (Hb := exp_pos b). assert (0 <= Z n l) by (apply sum_nonneg; intros; left; apply exp_pos).
  rewrite <- Rmult_plus_distr_r. apply Rinv_r. lra.
Qed.

(* T7: a coefficient is at most 1 / (1 + (n - 1) e^(lo - hi) + e^(b - hi)). *)
Theorem T7_ceiling n l b lo hi i :
  (i < n)%nat -> within n l lo hi ->
  sunk n l b i <= 1 / (1 + (INR n - 1) * exp (lo - hi) + exp (b - hi)).
Proof.
  intros Hi Hl. assert (Hn := INR_ge_1 n ltac:(lia)). destruct (Hl i Hi) as [Hlo Hhi].
  assert (HZ : exp (l i) + (INR n - 1) * exp lo <= Z n l).
  { rewrite <- (sum_one n i) by exact Hi. apply sum_le. intros j Hj.
    destruct (Nat.eqb_spec j i) as [->|_]; [lra|apply exp_mono, Hl, Hj]. }
  assert (Hli := exp_pos (l i)). assert (Hb := exp_pos b). assert (Hh := exp_pos hi).
  assert (He := exp_mono _ _ Hhi). assert (Hlp := exp_pos lo).
  replace (1 / (1 + (INR n - 1) * exp (lo - hi) + exp (b - hi)))
    with (exp hi / (exp hi + (INR n - 1) * exp lo + exp b)).
  - assert (0 <= (INR n - 1) * exp lo) by (apply Rmult_le_pos; lra).
    apply div_le; [lra|lra|]. nra.
  - unfold Rminus. rewrite !exp_plus, exp_Ropp. field.
    assert (0 <= (INR n - 1) * exp lo) by (apply Rmult_le_pos; lra). split; lra.
Qed.

(* T7, attained: one item at hi and the rest at lo. *)
Theorem T7_attained n b lo hi i :
  (i < n)%nat -> lo <= hi ->
  exists l, within n l lo hi /\
    sunk n l b i = 1 / (1 + (INR n - 1) * exp (lo - hi) + exp (b - hi)).
Proof.
  intros Hi H. assert (Hn := INR_ge_1 n ltac:(lia)).
  exists (fun j => if Nat.eqb j i then hi else lo). split.
  - intros j _. destruct (Nat.eqb j i); lra.
  - unfold sunk, Z. rewrite Nat.eqb_refl.
    rewrite (sum_ext n _ (fun j => if Nat.eqb j i then exp hi else exp lo))
      by (intros j _; destruct (Nat.eqb j i); reflexivity).
    rewrite sum_one by exact Hi. unfold Rminus. rewrite !exp_plus, exp_Ropp.
    assert (Hb := exp_pos b). assert (Hh := exp_pos hi). assert (Hl := exp_pos lo).
    assert (0 <= (INR n + - 1) * exp lo) by (apply Rmult_le_pos; lra). field. split; lra.
Qed.

(* T7: the share of the sink lies between those of rows at hi and at lo. *)
Theorem T7_share n l b lo hi :
  within n l lo hi ->
  exp b / (exp b + INR n * exp hi) <= share n l b <= exp b / (exp b + INR n * exp lo).
Proof.
  intros Hl. assert (Hb := exp_pos b). assert (Hn := pos_INR n).
  assert (Hh := exp_pos hi). assert (Hlo := exp_pos lo).
  assert (Hup : Z n l <= INR n * exp hi)
    by (rewrite <- sum_const; apply sum_le; intros; apply exp_mono, Hl; assumption).
  assert (Hdown : INR n * exp lo <= Z n l)
    by (rewrite <- sum_const; apply sum_le; intros; apply exp_mono, Hl; assumption).
  assert (0 <= INR n * exp lo) by (apply Rmult_le_pos; lra).
  assert (0 <= INR n * exp hi) by (apply Rmult_le_pos; lra).
  unfold share. split; apply div_le; try lra; apply Rmult_le_compat_l; lra.
Qed.

(* T7, attained: equal logits give exactly that share. *)
Theorem T7_share_attained n b x : share n (fun _ => x) b = exp b / (exp b + INR n * exp x).
Proof. unfold share, Z. rewrite sum_const. f_equal. ring. Qed.
