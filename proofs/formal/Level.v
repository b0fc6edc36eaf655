(** T13, which t: the root of t = sum over kappa > t of (kappa - t) / (2 kappa - t) is the best. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax Energy.
Open Scope R_scope.

(* What one singular value adds to the right side. *)
Definition pull_of (t kappa : R) : R :=
  if Rle_lt_dec kappa t then 0 else (kappa - t) / (2 * kappa - t).

(* The factor of N as a difference of logarithms. *)
Lemma log_factor_split t kappa :
  0 < t -> t < kappa -> log_factor t kappa = ln kappa - / 2 * ln (t * (2 * kappa - t)).
Proof.
  intros Ht Hk. unfold log_factor. destruct (Rle_lt_dec kappa t) as [|_]; [lra|].
  replace ((kappa / t) ^ 2 / (2 * (kappa / t) - 1)) with (kappa * kappa * / (t * (2 * kappa - t)))
    by (field; lra).
  assert (P : 0 < t * (2 * kappa - t)) by (apply Rmult_lt_0_compat; lra).
  assert (Q := Rmult_lt_0_compat kappa kappa ltac:(lra) ltac:(lra)).
  rewrite (ln_mult (kappa * kappa) _ Q (Rinv_0_lt_compat _ P)), ln_Rinv, (ln_mult kappa) by lra.
  field.
Qed.

(* Each factor lies above its tangent at s. *)
Lemma log_factor_tangent s t kappa :
  0 < s -> 0 < t -> 0 <= kappa ->
  log_factor s kappa - pull_of s kappa * ((t - s) / s) <= log_factor t kappa.
Proof.
  intros Hs Ht Hk. destruct (Rle_lt_dec kappa s) as [Hks|Hks].
  - assert (E : log_factor s kappa = 0)
      by (unfold log_factor; destruct (Rle_lt_dec kappa s); [reflexivity|lra]).
    assert (E' : pull_of s kappa = 0)
      by (unfold pull_of; destruct (Rle_lt_dec kappa s); [reflexivity|lra]).
    rewrite E, E', Rmult_0_l, Rminus_0_r.
    replace 0 with (log_factor t 0)
      by (unfold log_factor; destruct (Rle_lt_dec 0 t); [reflexivity|lra]).
    apply log_factor_mono; lra.
  - assert (Q : 0 < s * (2 * kappa - s)) by (apply Rmult_lt_0_compat; lra).
    set (q := s * (2 * kappa - s)) in *.
    assert (Tangent : forall p, 0 < p -> ln p - ln q <= (p - q) * / q).
    { intros p Hp. assert (T := ln_tangent (p / q) ltac:(apply Rdiv_lt_0_compat; assumption)).
      unfold Rdiv in T. rewrite ln_mult, ln_Rinv in T by (try apply Rinv_0_lt_compat; assumption).
      replace ((p - q) * / q) with (p * / q - 1) by (field; lra). lra. }
    assert (E' : pull_of s kappa * ((t - s) / s) = (kappa - s) * (t - s) * / q)
      by (unfold pull_of, q; destruct (Rle_lt_dec kappa s); [lra|field; lra]).
    rewrite E', (log_factor_split s) by assumption. fold q.
    assert (Iq := Rinv_0_lt_compat q Q).
    destruct (Rle_lt_dec kappa t) as [Hkt|Hkt].
    + assert (E : log_factor t kappa = 0)
        by (unfold log_factor; destruct (Rle_lt_dec kappa t); [reflexivity|lra]).
      rewrite E. assert (T := Tangent (kappa * kappa) ltac:(apply Rmult_lt_0_compat; lra)).
      rewrite ln_mult in T by lra.
      assert ((kappa * kappa - q) * / q <= 2 * ((kappa - s) * (t - s)) * / q)
        by (apply Rmult_le_compat_r; [lra|unfold q; nra]). lra.
    + rewrite (log_factor_split t) by assumption.
      assert (T := Tangent (t * (2 * kappa - t)) ltac:(apply Rmult_lt_0_compat; lra)).
      assert ((t * (2 * kappa - t) - q) * / q <= 2 * ((kappa - s) * (t - s)) * / q)
        by (apply Rmult_le_compat_r; [lra|];
            assert (X := Rle_0_sqr (t - s)); unfold Rsqr in X; unfold q; lra). lra.
Qed.

(* T13: no level gives a smaller N than the root. *)
Theorem T13_level m kappa s t :
  0 < s -> 0 < t -> (forall c, (c < m)%nat -> 0 <= kappa c) ->
  s = sum m (fun c => if Rle_lt_dec (kappa c) s then 0 else (kappa c - s) / (2 * kappa c - s)) ->
  log_capacity m kappa s <= log_capacity m kappa t.
Proof.
  intros Hs Ht Hk Hroot. unfold log_capacity.
  assert (H : sum m (fun c => log_factor s (kappa c) - pull_of s (kappa c) * ((t - s) / s))
              <= sum m (fun c => log_factor t (kappa c)))
    by (apply sum_le; intros c Hc; apply log_factor_tangent; auto).
  rewrite sum_minus, sum_scal_r in H.
  change (sum m (fun c => pull_of s (kappa c))) with
    (sum m (fun c => if Rle_lt_dec (kappa c) s then 0 else (kappa c - s) / (2 * kappa c - s))) in H.
  rewrite <- Hroot in H. replace (s * ((t - s) / s)) with (t - s) in H by (field; lra). lra.
Qed.
