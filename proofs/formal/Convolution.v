(** Convolutions: the binomial theorem and Vandermonde's identity have one proof. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Series.
Open Scope R_scope.

Definition conv (f g : nat -> R) (k : nat) : R := sum (S k) (fun j => f j * g (k - j)%nat).

(* The terms a^k / k! of exp a. *)
Definition power_term (a : R) (k : nat) : R := / INR (fact k) * a ^ k.

(* The terms a (a + 1) .. (a + k - 1) / k!, the coefficients of (1 - u)^-a. *)
Fixpoint rising (a : R) (k : nat) : R :=
  match k with O => 1 | S j => rising a j * ((a + INR j) / (INR j + 1)) end.

(* The first term of a sum is taken out. *)
Lemma sum_first n f : sum (S n) f = f O + sum n (fun j => f (S j)).
Proof. induction n as [|n IH]; [simpl; ring|]. simpl in *. rewrite IH. ring. Qed.

(* Recurrences of first order add up under convolution. *)
Lemma conv_step f g a b s :
  (forall k, INR (S k) * f (S k) = (a + s * INR k) * f k) ->
  (forall k, INR (S k) * g (S k) = (b + s * INR k) * g k) ->
  forall k, INR (S k) * conv f g (S k) = (a + b + s * INR k) * conv f g k.
Proof.
  intros Hf Hg k. unfold conv. rewrite <- sum_scal.
  rewrite (sum_ext (S (S k)) _ (fun j =>
    INR j * f j * g (S k - j)%nat + f j * (INR (S k - j) * g (S k - j)%nat))).
  - rewrite sum_plus, sum_first.
    change (sum (S (S k)) (fun j => f j * (INR (S k - j) * g (S k - j)%nat)))
      with (sum (S k) (fun j => f j * (INR (S k - j) * g (S k - j)%nat))
            + f (S k) * (INR (S k - S k) * g (S k - S k)%nat)).
    rewrite Nat.sub_diag. simpl (INR 0). rewrite !Rmult_0_l, Rmult_0_r, Rplus_0_l, Rplus_0_r.
    rewrite <- sum_plus, <- sum_scal. apply sum_ext. intros j Hj.
    rewrite Hf. replace (S k - S j)%nat with (k - j)%nat by lia.
    replace (S k - j)%nat with (S (k - j)) by lia. rewrite Hg, minus_INR by lia. ring.
  - intros j Hj. rewrite minus_INR by lia. ring.
Qed.

(* Such a recurrence has one solution for each beginning. *)
Lemma recurrence_unique (f g : nat -> R) a s :
  f O = g O -> (forall k, INR (S k) * f (S k) = (a + s * INR k) * f k) ->
  (forall k, INR (S k) * g (S k) = (a + s * INR k) * g k) -> forall k, f k = g k.
Proof.
  intros H0 Hf Hg k. induction k as [|k IH]; [exact H0|].
  apply (Rmult_eq_reg_l (INR (S k))); [|apply not_0_INR; lia]. rewrite Hf, Hg, IH. reflexivity.
Qed.

(* The recurrence of powers. *)
Lemma power_step a k : INR (S k) * power_term a (S k) = (a + 0 * INR k) * power_term a k.
Proof.
  unfold power_term. rewrite fact_simpl, mult_INR. simpl pow.
  assert (INR (fact k) <> 0) by apply INR_fact_neq_0.
  assert (INR (S k) <> 0) by (apply not_0_INR; lia).
  field. split; assumption.
Qed.

(* The binomial theorem. *)
Lemma power_conv a b k : conv (power_term a) (power_term b) k = power_term (a + b) k.
Proof.
  apply (recurrence_unique _ _ (a + b) 0).
  - unfold conv, power_term. simpl. field.
  - apply conv_step; apply power_step.
  - intros j. rewrite power_step. ring.
Qed.

(* The recurrence of rising powers. *)
Lemma rising_step a k : INR (S k) * rising a (S k) = (a + 1 * INR k) * rising a k.
Proof. rewrite S_INR. simpl rising. field. assert (0 <= INR k) by apply pos_INR. lra. Qed.

(* Vandermonde's identity. *)
Lemma rising_conv a b k : conv (rising a) (rising b) k = rising (a + b) k.
Proof.
  apply (recurrence_unique _ _ (a + b) 1).
  - unfold conv. simpl. ring.
  - apply conv_step; apply rising_step.
  - intros j. rewrite rising_step. ring.
Qed.

(* Rising powers of a positive number are positive. *)
Lemma rising_pos a k : 0 < a -> 0 < rising a k.
Proof.
  intros Ha. induction k as [|k IH]; simpl; [lra|]. assert (0 <= INR k) by apply pos_INR.
  apply Rmult_lt_0_compat; [exact IH|]. apply Rdiv_lt_0_compat; lra.
Qed.

(* (2k)! = 4^k k!^2 rising(1/2, k). *)
Lemma double_fact k : INR (fact (2 * k)) = 4 ^ k * (INR (fact k) * INR (fact k)) * rising (/ 2) k.
Proof.
  rewrite central_fact. replace (rising (/ 2) k) with (central k); [ring|].
  induction k as [|k IH]; [reflexivity|]. simpl. rewrite IH. f_equal. field.
  assert (0 <= INR k) by apply pos_INR. lra.
Qed.
