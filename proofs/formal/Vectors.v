(** Vectors of d real coordinates, matrices, and a head in normal form: queries A u + a and keys
    C v + c for u, v in unit balls. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum.
Open Scope R_scope.

Definition dot (d : nat) (x y : nat -> R) : R := sum d (fun c => x c * y c).
Definition sq (d : nat) (x : nat -> R) : R := dot d x x.
Definition norm (d : nat) (x : nat -> R) : R := sqrt (sq d x).
Definition in_ball (d : nat) (x : nat -> R) : Prop := norm d x <= 1.

(* The image of an r-vector under a matrix with r columns, and the product A^T C of two matrices
   with d rows. *)
Definition image (r : nat) (M : nat -> nat -> R) (x : nat -> R) (c : nat) : R :=
  sum r (fun b => M c b * x b).
Definition cross (d : nat) (A C : nat -> nat -> R) (a b : nat) : R :=
  sum d (fun c => A c a * C c b).

(* The largest singular value of an r by r' matrix is at most sigma. *)
Definition norm_le (r r' : nat) (M : nat -> nat -> R) (sigma : R) : Prop :=
  forall x, norm r (image r' M x) <= sigma * norm r' x.

(* A point of the affine image of a ball. *)
Definition point (r : nat) (A : nat -> nat -> R) (a u : nat -> R) (c : nat) : R :=
  image r A u c + a c.

(* The logit of a query A u + a and a key C v + c. *)
Definition logit (d r r' : nat) A a C c u v : R := dot d (point r A a u) (point r' C c v).

(* Only the first d coordinates matter. *)
Lemma dot_ext d x y x' y' :
  (forall c, (c < d)%nat -> x c = x' c) -> (forall c, (c < d)%nat -> y c = y' c) ->
  dot d x y = dot d x' y'.
Proof. intros Hx Hy. apply sum_ext. intros c Hc. rewrite Hx, Hy by exact Hc. reflexivity. Qed.

(* The product is symmetric. *)
Lemma dot_comm d x y : dot d x y = dot d y x.
Proof. apply sum_ext. intros. ring. Qed.

(* It is linear in the second vector. *)
Lemma dot_plus d x y z : dot d x (fun c => y c + z c) = dot d x y + dot d x z.
Proof. unfold dot. rewrite <- sum_plus. apply sum_ext. intros. ring. Qed.

(* The same for differences. *)
Lemma dot_minus d x y z : dot d x (fun c => y c - z c) = dot d x y - dot d x z.
Proof. unfold dot. rewrite <- sum_minus. apply sum_ext. intros. ring. Qed.

(* The same for multiples. *)
Lemma dot_scal d x s y : dot d x (fun c => s * y c) = s * dot d x y.
Proof. unfold dot. rewrite <- sum_scal. apply sum_ext. intros. ring. Qed.

(* Both in the first vector. *)
Lemma dot_minus_l d x y z : dot d (fun c => x c - y c) z = dot d x z - dot d y z.
Proof. unfold dot. rewrite <- sum_minus. apply sum_ext. intros. ring. Qed.

Lemma dot_scal_l d x s y : dot d (fun c => s * x c) y = s * dot d x y.
Proof. unfold dot. rewrite <- sum_scal. apply sum_ext. intros. ring. Qed.

(* Squares are not negative. *)
Lemma sq_nonneg d x : 0 <= sq d x.
Proof. apply sum_nonneg. intros. apply Rle_0_sqr. Qed.

(* Norms are not negative, and their squares are sq. *)
Lemma norm_facts d x : 0 <= norm d x /\ norm d x * norm d x = sq d x.
Proof. split; [apply sqrt_pos|apply sqrt_sqrt, sq_nonneg]. Qed.

(* A norm is at most b if its square is. *)
Lemma norm_bound d x b : 0 <= b -> sq d x <= b * b -> norm d x <= b.
Proof.
  intros Hb H. destruct (norm_facts d x) as [H0 H1].
  apply Rsqr_incr_0_var; [unfold Rsqr; lra|exact Hb].
Qed.

(* The other way round. *)
Lemma sq_bound d x b : norm d x <= b -> sq d x <= b * b.
Proof. intros H. destruct (norm_facts d x) as [H0 H1]. nra. Qed.

(* The product is at most the product of the norms. *)
Lemma dot_norm d x y : Rabs (dot d x y) <= norm d x * norm d y.
Proof.
  destruct (norm_facts d x) as [Hx Hx2]. destruct (norm_facts d y) as [Hy Hy2].
  assert (H := cauchy_schwarz d x y). fold (dot d x y) in H.
  change (dot d x y * dot d x y <= sq d x * sq d y) in H.
  assert (Hp : 0 <= norm d x * norm d y) by (apply Rmult_le_pos; assumption).
  apply Rsqr_incr_0_var; [|exact Hp]. rewrite <- Rsqr_abs. unfold Rsqr.
  replace (norm d x * norm d y * (norm d x * norm d y))
    with (norm d x * norm d x * (norm d y * norm d y)) by ring.
  rewrite Hx2, Hy2. exact H.
Qed.

(* The product is at most half the sum of the squares, one weighted with w, the other with 1/w. *)
Lemma dot_half d w x y : 0 < w -> 2 * Rabs (dot d x y) <= w * sq d x + sq d y / w.
Proof.
  intros Hw. assert (H := dot_norm d x y).
  destruct (norm_facts d x) as [Hx Hx2]. destruct (norm_facts d y) as [Hy Hy2].
  rewrite <- Hx2, <- Hy2.
  assert (Hs : 0 <= w * ((norm d x - norm d y / w) * (norm d x - norm d y / w)))
    by (apply Rmult_le_pos; [lra|apply Rle_0_sqr]).
  replace (w * ((norm d x - norm d y / w) * (norm d x - norm d y / w)))
    with (w * (norm d x * norm d x) + norm d y * norm d y / w - 2 * (norm d x * norm d y))
    in Hs by (field; lra).
  lra.
Qed.

(* The square of a sum or difference is at most twice the sum of the squares. *)
Lemma sq_diff d x y : sq d (fun c => x c - y c) <= 2 * sq d x + 2 * sq d y.
Proof.
  unfold sq, dot. rewrite <- !sum_scal, <- sum_plus. apply sum_le. intros c _.
  assert (H := Rle_0_sqr (x c + y c)). unfold Rsqr in H. nra.
Qed.

(* A matrix moves to the other side of a product as A^T C. *)
Lemma dot_cross d r r' A C u v :
  dot d (image r A u) (image r' C v) = dot r u (image r' (cross d A C) v).
Proof.
  unfold dot, image, cross.
  rewrite (sum_ext d _ (fun c => sum r (fun a => sum r' (fun b =>
    u a * (A c a * C c b) * v b)))).
  - rewrite sum_swap. apply sum_ext. intros a _. rewrite sum_swap, <- sum_scal.
    apply sum_ext. intros b _. rewrite <- sum_scal_r, <- sum_scal.
    apply sum_ext. intros c _. ring.
  - intros c _. rewrite <- sum_scal_r. apply sum_ext. intros a _. rewrite <- sum_scal.
    apply sum_ext. intros b _. ring.
Qed.

(* The normal form: u^T A^T C v, a term of the query alone and a term of the key alone. *)
Lemma logit_terms d r r' A a C c u v :
  logit d r r' A a C c u v
  = dot r u (image r' (cross d A C) v) + dot d (point r A a u) c + dot d a (image r' C v).
Proof.
  unfold logit. rewrite <- dot_cross. unfold dot, point. rewrite <- !sum_plus.
  apply sum_ext. intros. ring.
Qed.

(* Differences of images are images of differences. *)
Lemma image_minus r M x y c :
  image r M x c - image r M y c = image r M (fun b => x b - y b) c.
Proof. unfold image. rewrite <- sum_minus. apply sum_ext. intros. ring. Qed.
