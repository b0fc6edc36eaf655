(** T1 and T4: what a spread s allows one of n items, and how much spread or how few items a
    coefficient takes. T1 is T2 for a set of one. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax SetMass.
Open Scope R_scope.

(* A set of one item. *)
Definition only (i j : nat) : bool := Nat.eqb j i.

(* It has one item. *)
Lemma card_only n i : (i < n)%nat -> INR (card n (only i)) = 1.
Proof.
  intros Hi. assert (H := sum_one n i 1 0 Hi). unfold only.
  assert (H2 := sum_two n (fun j => Nat.eqb j i) 1 0). simpl in H2. lra.
Qed.

(* It holds that item's coefficient. *)
Lemma mass_only n l i : (i < n)%nat -> mass n (only i) l = alpha n l i.
Proof.
  intros Hi. unfold mass, only. rewrite (sum_split n i) by exact Hi.
  rewrite Nat.eqb_refl, (sum_ext n _ (fun _ => 0)), sum_const; [ring|].
  intros j _. destruct (Nat.eqb j i); reflexivity.
Qed.

(* T1: a coefficient is at most 1 / (1 + (n - 1) e^-s). *)
Theorem T1_ceiling n l s i :
  (i < n)%nat -> spread_le n l s -> alpha n l i <= 1 / (1 + (INR n - 1) * exp (- s)).
Proof.
  intros Hi Hs. assert (H := T2_ceiling n (only i) l s ltac:(lia) Hs).
  rewrite mass_only, card_only in H by exact Hi. exact H.
Qed.

(* T1, floor: it is at least 1 / (1 + (n - 1) e^s). *)
Theorem T1_floor n l s i :
  (i < n)%nat -> spread_le n l s -> 1 / (1 + (INR n - 1) * exp s) <= alpha n l i.
Proof.
  intros Hi Hs. assert (H := T2_floor n (only i) l s ltac:(lia) Hs).
  rewrite mass_only, card_only in H by exact Hi. exact H.
Qed.

(* T1, published form: a coefficient lies between e^-s / n and e^s / n. *)
Theorem T1_published n l s i :
  (i < n)%nat -> 0 <= s -> spread_le n l s ->
  exp (- s) / INR n <= alpha n l i <= exp s / INR n.
Proof.
  intros Hi H0 Hs. assert (Hn : 1 <= INR n) by (apply INR_ge_1; lia).
  assert (Hlow := T1_floor n l s i Hi Hs). assert (Hup := T1_ceiling n l s i Hi Hs).
  assert (Hp := exp_pos s). assert (Hm := exp_pos (- s)). assert (He := exp_inv s).
  assert (H1 : 1 <= exp s) by (rewrite <- exp_0; apply exp_mono, H0).
  split.
  - apply Rle_trans with (2 := Hlow). apply div_le; nra.
  - apply Rle_trans with (1 := Hup). apply div_le; nra.
Qed.

(* T1, attained: by one item at the top and the rest at the bottom, and the other way round. *)
Theorem T1_attained n s i :
  (i < n)%nat -> 0 <= s ->
  (exists l, spread_le n l s /\ alpha n l i = 1 / (1 + (INR n - 1) * exp (- s))) /\
  (exists l, spread_le n l s /\ alpha n l i = 1 / (1 + (INR n - 1) * exp s)).
Proof.
  intros Hi Hs. destruct (T2_attained n (only i) s ltac:(lia) Hs) as [(l & Hl & H) (l' & Hl' & H')].
  rewrite mass_only, card_only in H, H' by exact Hi.
  split; [exists l; split; assumption|exists l'; split; assumption].
Qed.

(* The published form is never attained by a row with spread and two items. *)
Theorem T1_published_strict n l s i :
  (i < n)%nat -> (2 <= n)%nat -> 0 < s -> spread_le n l s -> alpha n l i < exp s / INR n.
Proof.
  intros Hi Hn H0 Hs. assert (H2 : 2 <= INR n) by (apply (le_INR 2), Hn).
  apply Rle_lt_trans with (1 := T1_ceiling n l s i Hi Hs).
  assert (Hp := exp_pos s). assert (Hm := exp_pos (- s)). assert (He := exp_inv s).
  assert (H1 : 1 < exp s) by (rewrite <- exp_0; apply exp_increasing, H0).
  assert (Hd : 0 < 1 + (INR n - 1) * exp (- s)) by nra.
  apply (Rmult_lt_reg_r (INR n * (1 + (INR n - 1) * exp (- s)))); [nra|].
  unfold Rdiv. field_simplify; try lra. nra.
Qed.

(* The algebra of T4: the ceiling of m of n items reaches p when the odds do. *)
Lemma reach n m s p :
  1 <= n -> 0 < m <= n -> 0 < p < 1 -> (p <= most n m s <-> (n - m) * p <= m * (1 - p) * exp s).
Proof.
  intros Hn Hm Hp. unfold most. assert (He := exp_pos s). rewrite exp_Ropp.
  assert (Hi := Rinv_0_lt_compat _ He). assert (Hx : exp s * / exp s = 1) by (apply Rinv_r; lra).
  assert (Hd : 0 < m + (n - m) * / exp s) by (assert (0 <= (n - m) * / exp s) by nra; lra).
  assert (Hq : m / (m + (n - m) * / exp s) * (m + (n - m) * / exp s) = m) by (field; split; nra).
  split; intros H.
  - apply (Rmult_le_compat_r _ _ _ (Rlt_le _ _ Hd)) in H. rewrite Hq in H.
    apply (Rmult_le_reg_r (/ exp s)); [exact Hi|].
    replace (m * (1 - p) * exp s * / exp s) with (m * (1 - p)) by (field; lra). nra.
  - apply (Rmult_le_reg_r _ _ _ Hd). rewrite Hq.
    apply (Rmult_le_compat_r (/ exp s)) in H; [|lra].
    replace (m * (1 - p) * exp s * / exp s) with (m * (1 - p)) in H by (field; lra). nra.
Qed.

(* T4: coefficient p takes a spread of at least ln ((n - 1) p / (1 - p)). *)
Theorem T4_spread n l s i p :
  (i < n)%nat -> (2 <= n)%nat -> 0 < p < 1 -> spread_le n l s -> p <= alpha n l i ->
  Rmax 0 (ln ((INR n - 1) * p / (1 - p))) <= s.
Proof.
  intros Hi Hn Hp Hs Ha. assert (H2 : 2 <= INR n) by (apply (le_INR 2), Hn).
  apply Rmax_lub; [assert (H := Hs i i Hi Hi); lra|].
  assert (H := Rle_trans _ _ _ Ha (T1_ceiling n l s i Hi Hs)).
  apply (reach (INR n) 1 s p) in H; try lra.
  rewrite <- (ln_exp s). apply ln_mono; [apply Rdiv_lt_0_compat; nra|].
  apply (Rmult_le_reg_r (1 - p)); [lra|]. unfold Rdiv.
  rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.

(* T4: spread s reaches coefficient p only while n <= 1 + e^s (1 - p) / p. *)
Theorem T4_length n l s i p :
  (i < n)%nat -> 0 < p < 1 -> spread_le n l s -> p <= alpha n l i ->
  INR n <= 1 + exp s * ((1 - p) / p).
Proof.
  intros Hi Hp Hs Ha. assert (H1 := INR_ge_1 n ltac:(lia)).
  assert (H := Rle_trans _ _ _ Ha (T1_ceiling n l s i Hi Hs)).
  apply (reach (INR n) 1 s p) in H; try lra.
  apply (Rmult_le_reg_r p); [lra|]. rewrite Rmult_plus_distr_r.
  replace (exp s * ((1 - p) / p) * p) with (exp s * (1 - p)) by (field; lra). lra.
Qed.

(* T4, attained: a spread that large, or so few items, let some row reach p. *)
Theorem T4_attained n s i p :
  (i < n)%nat -> (2 <= n)%nat -> 0 < p < 1 ->
  (Rmax 0 (ln ((INR n - 1) * p / (1 - p))) <= s \/ 0 <= s /\ INR n <= 1 + exp s * ((1 - p) / p)) ->
  exists l, spread_le n l s /\ p <= alpha n l i.
Proof.
  intros Hi Hn Hp H. assert (H2 : 2 <= INR n) by (apply (le_INR 2), Hn).
  assert (Hr : 0 <= s /\ (INR n - 1) * p <= 1 * (1 - p) * exp s).
  { destruct H as [H|[H0 H]].
    - split; [apply Rle_trans with (2 := H), Rmax_l|].
      apply (Rle_trans _ _ _ (Rmax_r _ _)) in H. apply exp_mono in H.
      rewrite exp_ln in H by (apply Rdiv_lt_0_compat; nra).
      apply (Rmult_le_compat_r (1 - p)) in H; [|lra]. unfold Rdiv in H.
      rewrite Rmult_assoc, Rinv_l in H by lra. lra.
    - split; [exact H0|]. apply (Rmult_le_compat_r p) in H; [|lra].
      rewrite Rmult_plus_distr_r in H.
      replace (exp s * ((1 - p) / p) * p) with (exp s * (1 - p)) in H by (field; lra). lra. }
  destruct (T1_attained n s i Hi (proj1 Hr)) as [(l & Hl & Ha) _].
  exists l. split; [exact Hl|]. rewrite Ha. apply (reach (INR n) 1 s p); lra.
Qed.
