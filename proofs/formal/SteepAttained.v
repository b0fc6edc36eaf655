(** T13'' is attained in one dimension: half of the keys at each end of a segment. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax Vectors Simplex Steep.
Open Scope R_scope.

(* ceil(n/2) keys at 1 and the rest at -1. *)
Definition ends (n j b : nat) : R := if Nat.leb j (Nat.div2 (n - 1)) then 1 else -1.

(* The first h of n numbers. *)
Lemma card_first n h : (h < n)%nat -> card n (fun j => Nat.leb j h) = S h.
Proof.
  intros Hh. enough (H : forall k, (k <= n)%nat -> card k (fun j => Nat.leb j h) = Nat.min k (S h))
    by (rewrite H by lia; lia).
  induction k as [|k IH]; intros Hk; [reflexivity|]. simpl card. rewrite IH by lia.
  destruct (Nat.leb_spec k h); lia.
Qed.

(* T13'', attained: with kappa_2 = 0 every key gets at least
   1 / (1 + (ceil(n/2) - 1) + floor(n/2) e^(-2 kappa)). *)
Theorem T13_steep_attained n kappa (zero := fun _ : nat => 0) :
  (1 <= n)%nat -> 0 <= kappa ->
  cross 1 (fun _ _ => kappa) (fun _ _ => 1) 0%nat 0%nat = kappa /\
  (forall j, in_ball 1 (ends n j)) /\
  forall i, (i < n)%nat ->
    1 / (1 + INR (Nat.div2 (n - 1)) + INR (Nat.div2 n) * exp (- (2 * kappa)))
    <= alpha n (rows 1 1 1 (fun _ _ => kappa) zero (fun _ _ => 1) zero (ends n) (ends n)
                  zero zero i) i.
Proof.
  intros Hn Hk. assert (Hh := halves n Hn).
  set (near := Nat.div2 (n - 1)) in *. set (far := Nat.div2 n) in *.
  split; [unfold cross; simpl; ring|split].
  - intros j. apply norm_bound; [lra|]. unfold sq, dot, ends. simpl.
    destruct (Nat.leb j _); lra.
  - intros i Hi. set (T := fun j => Nat.leb j near).
    assert (Hrow : forall j,
      rows 1 1 1 (fun _ _ => kappa) zero (fun _ _ => 1) zero (ends n) (ends n) zero zero i j
      = if T j then (if T i then kappa else - kappa) else (if T i then - kappa else kappa)).
    { intros j. unfold rows, logit, dot, point, image, ends, zero. fold near. simpl.
      unfold T. destruct (Nat.leb i near), (Nat.leb j near); ring. }
    unfold alpha, Z. rewrite Hrow.
    rewrite (sum_ext n _ (fun j => if T j then exp (if T i then kappa else - kappa)
                                   else exp (if T i then - kappa else kappa)))
      by (intros j _; rewrite Hrow; destruct (T j); reflexivity).
    assert (HC : card n T = S near) by (apply card_first; lia).
    rewrite sum_two. change (card n (fun i => T i)) with (card n T). rewrite HC.
    assert (F : INR far = INR n - 1 - INR near).
    { replace far with (n - 1 - near)%nat by lia. rewrite !minus_INR by lia. simpl. ring. }
    rewrite S_INR. replace (INR n - (INR near + 1)) with (INR far) by lra.
    assert (G : INR far <= INR near + 1).
    { rewrite <- S_INR. apply le_INR. unfold near, far in *. clear - Hn.
      destruct n as [|n]; [lia|]. replace (S n - 1)%nat with n by lia.
      enough (H : (Nat.div2 n <= Nat.div2 (S n) <= S (Nat.div2 n))%nat) by apply H.
      induction n as [|n IH]; [simpl; lia|]. simpl in *. destruct n; simpl in *; lia. }
    replace (- (2 * kappa)) with (- kappa + - kappa) by ring. rewrite exp_plus.
    assert (E := exp_inv kappa). set (p := exp kappa) in *. set (q := exp (- kappa)) in *.
    assert (Hp : 0 < p) by apply exp_pos. assert (Hq : 0 < q) by apply exp_pos.
    assert (Hqp : q <= p) by (apply exp_mono; lra).
    assert (N := pos_INR near). assert (N' := pos_INR far).
    assert (0 <= INR far * (q * q)) by (apply Rmult_le_pos; nra).
    assert (X : p * (INR far * (q * q)) = INR far * q)
      by (transitivity (INR far * q * (p * q)); [ring|rewrite E; ring]).
    assert (0 <= (INR near + 1 - INR far) * (p - q)) by (apply Rmult_le_pos; lra).
    assert (0 < (INR near + 1) * p) by (apply Rmult_lt_0_compat; lra).
    assert (0 < (INR near + 1) * q) by (apply Rmult_lt_0_compat; lra).
    assert (0 <= INR far * p) by (apply Rmult_le_pos; lra).
    assert (0 <= INR far * q) by (apply Rmult_le_pos; lra).
    destruct (T i); fold p q; apply div_le; lra.
Qed.
