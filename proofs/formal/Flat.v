(** T13': the capacity of a spectrum that nowhere exceeds kappa, in m dimensions. M is the mean of
    SphereMean.v, which is Gamma(m/2) (2/z)^(m/2 - 1) I_(m/2 - 1)(z). *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax Vectors SphereMean Sphere Simplex Energy Capacity Tokens.
Open Scope R_scope.

(* A bound on energies bounds the number of tokens. *)
Lemma tokens_from_energy d r r' m A a C c n k s p kappa N :
  0 < p -> 0 <= N -> energy_at_least k m kappa N -> singular m r r' (cross d A C) kappa ->
  retrieves d r r' A a C c n k s p -> INR k * p <= N.
Proof.
  intros Hp HN HE HM HR. destruct k as [|k]; [simpl; rewrite Rmult_0_l; exact HN|].
  destruct (restricted d r r' A a C c n (S k) s p ltac:(lia) HR) as (u & v & f & g & Hu & Hv & H).
  apply (everyone (S k) (fun i => alpha (S k) (rows d r r' A a C c u v f g i) i)); auto; [lia|].
  apply (harmonic (S k) d r r' m A a C c u v f g kappa N); auto. lia.
Qed.

(* T13', any kappa: at most N / p tokens get p, N = M(r^2) max(1, e^kappa / M(r sqrt kappa)^2), for
   every radius r > 0. *)
Theorem T13_sphere d r r' m A a C c n k s p kappa radius M M' :
  (1 <= m)%nat -> 0 < radius -> 0 <= kappa -> 0 < p ->
  sphere_mean m (radius * radius) M -> sphere_mean m (radius * sqrt kappa) M' ->
  spectrum_le d r r' m A C (fun _ => kappa) -> retrieves d r r' A a C c n k s p ->
  INR k * p <= M * Rmax 1 (exp kappa / (M' * M')).
Proof.
  intros Hm HR Hk Hp HM HM' (true & HS & Hb) HT.
  apply (tokens_from_energy d r r' m A a C c n k s p true); auto.
  - apply Rmult_le_pos; [|apply Rle_trans with (2 := Rmax_l 1 _); lra].
    apply Rle_trans with (2 := mean_beginning m (radius * radius) M 0 Hm HM).
    simpl. rewrite Rplus_0_l. apply mean_term_nonneg, Hm.
  - apply (sphere_bound k m true radius); auto. intros e He. split; [apply HS, He|apply Hb, He].
Qed.

(* T13', kappa <= m: at most N / p tokens get p, N = e^kappa / M(kappa). *)
Theorem T13_flat d r r' m A a C c n k s p kappa M :
  (1 <= m)%nat -> 0 < kappa <= INR m -> 0 < p -> sphere_mean m kappa M ->
  spectrum_le d r r' m A C (fun _ => kappa) -> retrieves d r r' A a C c n k s p ->
  INR k * p <= exp kappa / M.
Proof.
  intros Hm Hk Hp HM HS HT.
  assert (Hs := sqrt_sqrt kappa ltac:(lra)). assert (H0 := sqrt_lt_R0 kappa ltac:(lra)).
  assert (H := T13_sphere d r r' m A a C c n k s p kappa (sqrt kappa) M M Hm H0 ltac:(lra) Hp).
  rewrite Hs in H. specialize (H HM HM HS HT). apply Rle_trans with (1 := H).
  assert (M1 : 1 <= M).
  { apply Rle_trans with (2 := mean_beginning m kappa M 0 Hm HM). unfold mean_term. simpl.
    right. field. }
  assert (B := mean_bound m kappa M Hm HM).
  assert (B2 : M * M <= exp kappa).
  { replace kappa with (kappa / 2 + kappa / 2) by field. rewrite exp_plus.
    assert (L : exp (kappa * kappa / (2 * INR m)) <= exp (kappa / 2)).
    { apply exp_mono. apply div_le; nra. }
    apply Rmult_le_compat; lra. }
  rewrite Rmax_right.
  - right. field. lra.
  - apply (Rmult_le_reg_r (M * M)); [nra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by nra. lra.
Qed.
