(** Finite sums and products over 0 .. n-1, and the few rules about them that the proofs use. *)

Require Import Reals Lra Lia Psatz.
Open Scope R_scope.

Fixpoint sum (n : nat) (f : nat -> R) : R :=
  match n with O => 0 | S k => sum k f + f k end.

Fixpoint prod (n : nat) (f : nat -> R) : R :=
  match n with O => 1 | S k => prod k f * f k end.

(* How many of the first n numbers a set holds. *)
Fixpoint card (n : nat) (A : nat -> bool) : nat :=
  match n with O => O | S k => ((if A k then 1 else 0) + card k A)%nat end.

(* Sums of equal terms are equal. *)
Lemma sum_ext n f g : (forall i, (i < n)%nat -> f i = g i) -> sum n f = sum n g.
Proof.
  induction n as [|n IH]; intros H; simpl; [reflexivity|].
  rewrite IH, H by (intros; try apply H; lia); reflexivity.
Qed.

(* A sum grows with its terms. *)
Lemma sum_le n f g : (forall i, (i < n)%nat -> f i <= g i) -> sum n f <= sum n g.
Proof.
  induction n as [|n IH]; intros H; simpl; [lra|].
  apply Rplus_le_compat; [apply IH; intros; apply H|apply H]; lia.
Qed.

(* A sum of sums is the sum of both. *)
Lemma sum_plus n f g : sum n (fun i => f i + g i) = sum n f + sum n g.
Proof. induction n as [|n IH]; simpl; [|rewrite IH]; ring. Qed.

(* The same for differences. *)
Lemma sum_minus n f g : sum n (fun i => f i - g i) = sum n f - sum n g.
Proof. induction n as [|n IH]; simpl; [|rewrite IH]; ring. Qed.

(* A common factor on the left leaves the sum. *)
Lemma sum_scal n c f : sum n (fun i => c * f i) = c * sum n f.
Proof. induction n as [|n IH]; simpl; [|rewrite IH]; ring. Qed.

(* A common factor on the right leaves the sum. *)
Lemma sum_scal_r n c f : sum n (fun i => f i * c) = sum n f * c.
Proof. induction n as [|n IH]; simpl; [|rewrite IH]; ring. Qed.

(* n equal terms. *)
Lemma sum_const n c : sum n (fun _ => c) = INR n * c.
Proof. induction n as [|n IH]; [simpl; ring|]. rewrite S_INR. simpl. rewrite IH. ring. Qed.

(* Two sums may change places. *)
Lemma sum_swap n m f :
  sum n (fun i => sum m (fun j => f i j)) = sum m (fun j => sum n (fun i => f i j)).
Proof.
  induction n as [|n IH]; simpl.
  - rewrite sum_const. ring.
  - rewrite IH, <- sum_plus. reflexivity.
Qed.

(* Terms that are not negative have such a sum. *)
Lemma sum_nonneg n f : (forall i, (i < n)%nat -> 0 <= f i) -> 0 <= sum n f.
Proof.
  intros H. replace 0 with (sum n (fun _ => 0)) by (rewrite sum_const; ring).
  apply sum_le, H.
Qed.

(* Positive terms, at least one of them, have a positive sum. *)
Lemma sum_pos n f : (1 <= n)%nat -> (forall i, (i < n)%nat -> 0 < f i) -> 0 < sum n f.
Proof.
  destruct n as [|n]; intros Hn H; [lia|]. simpl.
  assert (0 <= sum n f) by (apply sum_nonneg; intros; left; apply H; lia).
  assert (0 < f n) by (apply H; lia). lra.
Qed.

(* One term of its own, all others equal. *)
Lemma sum_one n i a b :
  (i < n)%nat -> sum n (fun j => if Nat.eqb j i then a else b) = a + (INR n - 1) * b.
Proof.
  intros Hi. induction n as [|n IH]; [lia|]. rewrite S_INR. simpl.
  destruct (Nat.eqb_spec n i) as [->|Hne].
  - rewrite (sum_ext i _ (fun _ => b)), sum_const; [ring|].
    intros j Hj. destruct (Nat.eqb_spec j i); [lia|reflexivity].
  - rewrite IH by lia. ring.
Qed.

(* A term is taken out of a sum. *)
Lemma sum_split n i f :
  (i < n)%nat -> sum n f = f i + sum n (fun j => if Nat.eqb j i then 0 else f j).
Proof.
  intros Hi. induction n as [|n IH]; [lia|]. simpl.
  destruct (Nat.eqb_spec n i) as [->|Hne].
  - rewrite (sum_ext i (fun j => if Nat.eqb j i then 0 else f j) f); [ring|].
    intros j Hj. destruct (Nat.eqb_spec j i); [lia|reflexivity].
  - rewrite IH by lia. ring.
Qed.

(* One term alone. *)
Lemma sum_pick n i f : (i < n)%nat -> sum n (fun j => if Nat.eqb j i then f j else 0) = f i.
Proof.
  intros Hi. rewrite (sum_split n i) by exact Hi. rewrite Nat.eqb_refl.
  rewrite (sum_ext n _ (fun _ => 0)), sum_const; [ring|].
  intros j _. destruct (Nat.eqb j i); reflexivity.
Qed.

(* A term is at most the sum of terms that are not negative. *)
Lemma sum_term n i f : (i < n)%nat -> (forall j, (j < n)%nat -> 0 <= f j) -> f i <= sum n f.
Proof.
  intros Hi H. rewrite (sum_split n i f Hi).
  enough (0 <= sum n (fun j => if Nat.eqb j i then 0 else f j)) by lra.
  apply sum_nonneg. intros j Hj. destruct (Nat.eqb j i); [lra|apply H, Hj].
Qed.

(* Two values, one on a set and one off it. *)
Lemma sum_two n (A : nat -> bool) a b :
  sum n (fun i => if A i then a else b) = INR (card n A) * a + (INR n - INR (card n A)) * b.
Proof.
  induction n as [|n IH]; [simpl; ring|]. rewrite S_INR. simpl sum. simpl card. rewrite IH.
  destruct (A n); rewrite plus_INR; simpl; ring.
Qed.

(* A set holds at most all n. *)
Lemma card_le n A : (card n A <= n)%nat.
Proof. induction n as [|n IH]; simpl; [lia|]. destruct (A n); lia. Qed.

(* Of n terms some is at most their average. *)
Lemma some_below_average n f c :
  (1 <= n)%nat -> sum n f <= INR n * c -> exists i, (i < n)%nat /\ f i <= c.
Proof.
  induction n as [|n IH]; intros Hn H; [lia|]. rewrite S_INR in H. simpl in H.
  destruct (Rle_lt_dec (f n) c) as [Hc|Hc]; [exists n; split; [lia|exact Hc]|].
  destruct n as [|n]; [simpl in H; lra|].
  destruct IH as (i & Hi & Hf); [lia|lra|]. exists i. split; [lia|exact Hf].
Qed.

(* Some term is the smallest. *)
Lemma argmin n (l : nat -> R) :
  (1 <= n)%nat -> exists i, (i < n)%nat /\ forall j, (j < n)%nat -> l i <= l j.
Proof.
  induction n as [|n IH]; intros Hn; [lia|]. destruct n as [|n].
  - exists O. split; [lia|]. intros j Hj. replace j with O by lia. lra.
  - destruct IH as (i & Hi & H); [lia|]. destruct (Rle_lt_dec (l i) (l (S n))) as [Hc|Hc].
    + exists i. split; [lia|]. intros j Hj. destruct (Nat.eq_dec j (S n)) as [->|]; [exact Hc|].
      apply H. lia.
    + exists (S n). split; [lia|]. intros j Hj. destruct (Nat.eq_dec j (S n)) as [->|]; [lra|].
      apply Rle_trans with (l i); [lra|]. apply H. lia.
Qed.

(* One step of the Cauchy-Schwarz inequality. *)
Lemma cauchy_step S F G a b :
  0 <= F -> 0 <= G -> S * S <= F * G -> 2 * S * (a * b) <= F * (b * b) + G * (a * a).
Proof.
  intros HF HG H.
  assert (Hq : 0 <= F * (b * b) + G * (a * a)) by nra.
  apply Rsqr_incr_0_var; [|exact Hq]. unfold Rsqr.
  assert (0 <= (F * (b * b) - G * (a * a)) * (F * (b * b) - G * (a * a))) by apply Rle_0_sqr.
  assert (S * S * (a * b * (a * b)) <= F * G * (a * b * (a * b)))
    by (apply Rmult_le_compat_r; [apply Rle_0_sqr|exact H]).
  nra.
Qed.

(* The Cauchy-Schwarz inequality. *)
Lemma cauchy_schwarz n f g :
  sum n (fun i => f i * g i) * sum n (fun i => f i * g i)
  <= sum n (fun i => f i * f i) * sum n (fun i => g i * g i).
Proof.
  induction n as [|n IH]; simpl; [lra|].
  assert (HF : 0 <= sum n (fun i => f i * f i))
    by (apply sum_nonneg; intros; apply Rle_0_sqr).
  assert (HG : 0 <= sum n (fun i => g i * g i))
    by (apply sum_nonneg; intros; apply Rle_0_sqr).
  assert (Hs := cauchy_step _ _ _ (f n) (g n) HF HG IH). nra.
Qed.

(* A product of positive factors is positive. *)
Lemma prod_pos n f : (forall i, (i < n)%nat -> 0 < f i) -> 0 < prod n f.
Proof.
  induction n as [|n IH]; intros H; simpl; [lra|].
  apply Rmult_lt_0_compat; [apply IH; intros; apply H|apply H]; lia.
Qed.

(* A product grows with its factors. *)
Lemma prod_le n f g :
  (forall i, (i < n)%nat -> 0 < f i <= g i) -> prod n f <= prod n g.
Proof.
  induction n as [|n IH]; intros H; simpl; [lra|].
  assert (0 < prod n f) by (apply prod_pos; intros; apply H; lia).
  assert (0 < f n <= g n) by (apply H; lia).
  apply Rmult_le_compat; try lra. apply IH. intros. apply H. lia.
Qed.
