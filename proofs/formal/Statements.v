(** Every theorem, with its full statement. A theorem that is weakened elsewhere no longer closes
    its statement here. What the names in the statements mean stands in Definitions.v. *)

Require Import Reals.
Require Import Sum Softmax Vectors.
Require Import Energy Convolution Dispersion SetMass EntropyFloor EntropyShape NormRow
  Temperature Schedules Sink SoftCap Heads Rotation Gains Cover Budget Simplex SimplexAttained
  Tokens Kernel Capacity CapTokens Level RotaryTokens SphereMean Flat Steep SteepAttained.
Open Scope R_scope.

(** T1: one item *)

Theorem T1_ceiling :
  forall (n : nat) (l : nat -> R) (s : R) (i : nat),
    (i < n)%nat -> spread_le n l s -> alpha n l i <= 1 / (1 + (INR n - 1) * exp (- s)).
Proof. exact Dispersion.T1_ceiling. Qed.

Theorem T1_floor :
  forall (n : nat) (l : nat -> R) (s : R) (i : nat),
    (i < n)%nat -> spread_le n l s -> 1 / (1 + (INR n - 1) * exp s) <= alpha n l i.
Proof. exact Dispersion.T1_floor. Qed.

Theorem T1_attained :
  forall (n : nat) (s : R) (i : nat),
    (i < n)%nat ->
    0 <= s ->
    (exists l : nat -> R, spread_le n l s /\ alpha n l i = 1 / (1 + (INR n - 1) * exp (- s))) /\
    (exists l : nat -> R, spread_le n l s /\ alpha n l i = 1 / (1 + (INR n - 1) * exp s)).
Proof. exact Dispersion.T1_attained. Qed.

Theorem T1_published :
  forall (n : nat) (l : nat -> R) (s : R) (i : nat),
    (i < n)%nat ->
    0 <= s -> spread_le n l s -> exp (- s) / INR n <= alpha n l i <= exp s / INR n.
Proof. exact Dispersion.T1_published. Qed.

Theorem T1_published_strict :
  forall (n : nat) (l : nat -> R) (s : R) (i : nat),
    (i < n)%nat -> (2 <= n)%nat -> 0 < s -> spread_le n l s -> alpha n l i < exp s / INR n.
Proof. exact Dispersion.T1_published_strict. Qed.

(** T2: a set of items *)

Theorem T2_ceiling :
  forall (n : nat) (A : nat -> bool) (l : nat -> R) (s : R),
    (1 <= n)%nat -> spread_le n l s -> mass n A l <= most (INR n) (INR (card n A)) s.
Proof. exact SetMass.T2_ceiling. Qed.

Theorem T2_floor :
  forall (n : nat) (A : nat -> bool) (l : nat -> R) (s : R),
    (1 <= n)%nat -> spread_le n l s -> least (INR n) (INR (card n A)) s <= mass n A l.
Proof. exact SetMass.T2_floor. Qed.

Theorem T2_attained :
  forall (n : nat) (A : nat -> bool) (s : R),
    (1 <= n)%nat ->
    0 <= s ->
    (exists l : nat -> R, spread_le n l s /\ mass n A l = most (INR n) (INR (card n A)) s) /\
    (exists l : nat -> R, spread_le n l s /\ mass n A l = least (INR n) (INR (card n A)) s).
Proof. exact SetMass.T2_attained. Qed.

(** T3: entropy *)

Theorem T3_floor :
  forall (n : nat) (l : nat -> R) (s : R),
    (2 <= n)%nat ->
    spread_le n l s -> exists k : nat, (1 <= k <= n - 1)%nat /\ H_two n k s <= entropy n l.
Proof. exact EntropyFloor.T3_floor. Qed.

Theorem T3_attained :
  forall (n k : nat) (s : R),
    (1 <= k <= n)%nat ->
    0 <= s -> exists l : nat -> R, spread_le n l s /\ entropy n l = H_two n k s.
Proof. exact EntropyFloor.T3_attained. Qed.

Theorem T3_shape :
  forall (n k k' : nat) (s : R),
    (1 <= k <= k')%nat ->
    (k' <= n)%nat ->
    0 < s ->
    (INR k' <= turn (INR n) s -> H_two n k' s <= H_two n k s) /\
    (turn (INR n) s <= INR k -> H_two n k s <= H_two n k' s).
Proof. exact EntropyShape.T3_shape. Qed.

Theorem T3_closed :
  forall (n : nat) (l : nat -> R) (s : R),
    (1 <= n)%nat ->
    0 < s -> spread_le n l s -> ln (INR n) - (ratio s - 1 - ln (ratio s)) <= entropy n l.
Proof. exact EntropyShape.T3_closed. Qed.

(** T3': rows of bounded norm *)

Theorem T3_norm_ceiling :
  forall (n : nat) (l : nat -> R) (sigma : R) (i : nat),
    (2 <= n)%nat ->
    (i < n)%nat ->
    0 <= sigma ->
    norm n (centred n l) <= sigma ->
    alpha n l i <= 1 / (1 + (INR n - 1) * exp (- (sigma * sqrt (INR n / (INR n - 1))))).
Proof. exact NormRow.T3_norm_ceiling. Qed.

Theorem T3_norm_attained :
  forall (n : nat) (sigma : R) (i : nat),
    (2 <= n)%nat ->
    (i < n)%nat ->
    0 <= sigma ->
    let l := fun j : nat => sigma * corner n i j in
    norm n (centred n l) = sigma /\
    alpha n l i = 1 / (1 + (INR n - 1) * exp (- (sigma * sqrt (INR n / (INR n - 1))))).
Proof. exact NormRow.T3_norm_attained. Qed.

(** T4: the inverses of T1 *)

Theorem T4_spread :
  forall (n : nat) (l : nat -> R) (s : R) (i : nat) (p : R),
    (i < n)%nat ->
    (2 <= n)%nat ->
    0 < p < 1 ->
    spread_le n l s -> p <= alpha n l i -> Rmax 0 (ln ((INR n - 1) * p / (1 - p))) <= s.
Proof. exact Dispersion.T4_spread. Qed.

Theorem T4_length :
  forall (n : nat) (l : nat -> R) (s : R) (i : nat) (p : R),
    (i < n)%nat ->
    0 < p < 1 -> spread_le n l s -> p <= alpha n l i -> INR n <= 1 + exp s * ((1 - p) / p).
Proof. exact Dispersion.T4_length. Qed.

Theorem T4_attained :
  forall (n : nat) (s : R) (i : nat) (p : R),
    (i < n)%nat ->
    (2 <= n)%nat ->
    0 < p < 1 ->
    Rmax 0 (ln ((INR n - 1) * p / (1 - p))) <= s \/
    0 <= s /\ INR n <= 1 + exp s * ((1 - p) / p) ->
    exists l : nat -> R, spread_le n l s /\ p <= alpha n l i.
Proof. exact Dispersion.T4_attained. Qed.

(** T5: temperature *)

Theorem T5 :
  forall (n : nat) (l : nat -> R) (b b' : R),
    (1 <= n)%nat ->
    0 <= b <= b' ->
    entropy n (fun j : nat => b' * l j) <= entropy n (fun j : nat => b * l j).
Proof. exact Temperature.T5. Qed.

(** T6: logits scaled by c ln n *)

Theorem T6_ceiling :
  forall (n : nat) (l : nat -> R) (c d : R) (i : nat),
    (i < n)%nat ->
    0 <= c ->
    spread_le n l d ->
    alpha n (fun j : nat => c * ln (INR n) * l j) i <= scaled_ceiling (INR n) c d.
Proof. exact Schedules.T6_ceiling. Qed.

Theorem T6_attained :
  forall (n : nat) (c d : R) (i : nat),
    (i < n)%nat ->
    0 <= d ->
    exists l : nat -> R,
      spread_le n l d /\
      alpha n (fun j : nat => c * ln (INR n) * l j) i = scaled_ceiling (INR n) c d.
Proof. exact Schedules.T6_attained. Qed.

Theorem T6_above :
  forall n c d : R,
    1 <= n -> 1 < c * d -> 1 / (1 + Rpower n (1 - c * d)) <= scaled_ceiling n c d.
Proof. exact Schedules.T6_above. Qed.

Theorem T6_equal :
  forall n c d : R, 1 <= n -> c * d = 1 -> scaled_ceiling n c d = n / (2 * n - 1).
Proof. exact Schedules.T6_equal. Qed.

Theorem T6_below :
  forall n c d : R,
    1 <= n -> 0 <= c * d < 1 -> scaled_ceiling n c d <= Rpower n (- (1 - c * d)).
Proof. exact Schedules.T6_below. Qed.

(** T7: a sink *)

Theorem T7_whole :
  forall (n : nat) (l : nat -> R) (b : R), sum n (sunk n l b) + share n l b = 1.
Proof. exact Sink.T7_whole. Qed.

Theorem T7_ceiling :
  forall (n : nat) (l : nat -> R) (b lo hi : R) (i : nat),
    (i < n)%nat ->
    within n l lo hi -> sunk n l b i <= 1 / (1 + (INR n - 1) * exp (lo - hi) + exp (b - hi)).
Proof. exact Sink.T7_ceiling. Qed.

Theorem T7_attained :
  forall (n : nat) (b lo hi : R) (i : nat),
    (i < n)%nat ->
    lo <= hi ->
    exists l : nat -> R,
      within n l lo hi /\
      sunk n l b i = 1 / (1 + (INR n - 1) * exp (lo - hi) + exp (b - hi)).
Proof. exact Sink.T7_attained. Qed.

Theorem T7_share :
  forall (n : nat) (l : nat -> R) (b lo hi : R),
    within n l lo hi ->
    exp b / (exp b + INR n * exp hi) <= share n l b <= exp b / (exp b + INR n * exp lo).
Proof. exact Sink.T7_share. Qed.

Theorem T7_share_attained :
  forall (n : nat) (b x : R),
    share n (fun _ : nat => x) b = exp b / (exp b + INR n * exp x).
Proof. exact Sink.T7_share_attained. Qed.

(** T8: a soft cap *)

Theorem T8_spread :
  forall (n : nat) (z : nat -> R) (c d : R),
    (1 <= n)%nat ->
    0 < c ->
    spread_le n z d ->
    spread_le n (fun i : nat => c * tanh (z i / c)) (2 * c * tanh (d / (2 * c))) /\
    2 * c * tanh (d / (2 * c)) <= 2 * c.
Proof. exact SoftCap.T8_spread. Qed.

Theorem T8_attained :
  forall c d : R,
    0 < c -> c * tanh (d / 2 / c) - c * tanh (- (d / 2) / c) = 2 * c * tanh (d / (2 * c)).
Proof. exact SoftCap.T8_attained. Qed.

(** T9: a head without rotation *)

Theorem T9_spread :
  forall (d r r' : nat) (A : nat -> nat -> R) (a : nat -> R) (C : nat -> nat -> R)
      (c : nat -> R) (b : R),
    (forall u : nat -> R, in_ball r u -> norm r' (pull d C (point r A a u)) <= b) ->
    forall u v v' : nat -> R,
    in_ball r u ->
    in_ball r' v ->
    in_ball r' v' -> logit d r r' A a C c u v - logit d r r' A a C c u v' <= 2 * b.
Proof. exact Heads.T9_spread. Qed.

Theorem T9_attained :
  forall (d r r' : nat) (A : nat -> nat -> R) (a : nat -> R) (C : nat -> nat -> R)
      (c u : nat -> R),
    exists v v' : nat -> R,
      in_ball r' v /\
      in_ball r' v' /\
      logit d r r' A a C c u v - logit d r r' A a C c u v' =
      2 * norm r' (pull d C (point r A a u)).
Proof. exact Heads.T9_attained. Qed.

Theorem T9_sigma :
  forall (d r r' : nat) (A C : nat -> nat -> R) (c : nat -> R) (sigma : R),
    0 <= sigma ->
    norm_le r r' (cross d A C) sigma ->
    forall u v v' : nat -> R,
    in_ball r u ->
    in_ball r' v ->
    in_ball r' v' ->
    logit d r r' A (fun _ : nat => 0) C c u v - logit d r r' A (fun _ : nat => 0) C c u v' <=
    2 * sigma.
Proof. exact Heads.T9_sigma. Qed.

Theorem T9_sigma_attained :
  forall (d r r' : nat) (A C : nat -> nat -> R) (c : nat -> R) (sigma : R) (v : nat -> R),
    0 < sigma ->
    in_ball r' v ->
    norm r (image r' (cross d A C) v) = sigma ->
    exists u v' : nat -> R,
      in_ball r u /\
      in_ball r' v' /\
      logit d r r' A (fun _ : nat => 0) C c u v - logit d r r' A (fun _ : nat => 0) C c u v' =
      2 * sigma.
Proof. exact Heads.T9_sigma_attained. Qed.

Theorem T9_dual :
  forall (e r : nat) (M : nat -> nat -> R) (m y : nat -> R) (lambda : R) (u : nat -> R),
    0 <= lambda ->
    (forall x : nat -> R, sq e (image r M x) <= lambda * sq r x) ->
    (forall b : nat, (b < r)%nat -> lambda * y b - pull e M (image r M y) b = pull e M m b) ->
    in_ball r u -> sq e (point r M m u) <= lambda + sq e m + dot r (pull e M m) y.
Proof. exact Heads.T9_dual. Qed.

(** T10: a head with rotation *)

Theorem T10_logit :
  forall (m : nat) (s theta phi q k : nat -> R),
    (forall c : nat, (c < 2 * m)%nat -> s c <> 0) ->
    commutes m s theta ->
    commutes m s phi ->
    Rabs (dot (2 * m) (rotate theta q) (rotate phi k)) <=
    norm (2 * m) (scale (fun c : nat => / s c) q) * norm (2 * m) (scale s k).
Proof. exact Rotation.T10_logit. Qed.

Theorem T10_spread :
  forall (m : nat) (s theta phi phi' q k k' f : nat -> R) (Q K : R),
    (forall c : nat, (c < 2 * m)%nat -> s c <> 0) ->
    commutes m s theta ->
    commutes m s phi ->
    commutes m s phi' ->
    (forall p : nat,
     (p < m)%nat -> phi p = 0 /\ phi' p = 0 \/ f (2 * p)%nat = 0 /\ f (S (2 * p)) = 0) ->
    norm (2 * m) (scale (fun c : nat => / s c) q) <= Q ->
    norm (2 * m) (scale s k) <= K ->
    norm (2 * m) (scale s k') <= K ->
    dot (2 * m) (rotate theta q) (rotate phi (fun c : nat => k c + f c)) -
    dot (2 * m) (rotate theta q) (rotate phi' (fun c : nat => k' c + f c)) <=
    2 * (Q * K).
Proof. exact Rotation.T10_spread. Qed.

Theorem T10_cells :
  forall (r K : nat) (f : nat -> nat -> R) (form : nat -> (nat -> R) -> R)
      (lambda mu z : nat -> R),
    (forall b : nat, (b < r)%nat -> f (S K) b = - f 0%nat b) ->
    (forall j : nat,
     (j <= K)%nat ->
     0 <= lambda j /\
     0 <= mu j /\
     (forall y : nat -> R,
      form j y <= mu j * sq r y + lambda j * (dot r (f j) y * dot r (f (S j)) y))) ->
    in_ball r z ->
    exists j : nat,
      (j <= K)%nat /\ dot r (f j) z * dot r (f (S j)) z <= 0 /\ form j z <= mu j.
Proof. exact Rotation.T10_cells. Qed.

Theorem T10_branching :
  forall (h r K : nat) (f s : nat -> nat -> R) (lambda mu kappa : nat -> R)
      (bound : R) (L : nat -> nat -> R) (theta phi z k : nat -> R),
    (forall b : nat, (b < r)%nat -> f (S K) b = - f 0%nat b) ->
    (forall j : nat,
     (j <= K)%nat ->
     (forall c : nat, (c < 2 * h)%nat -> s j c <> 0) /\
     commutes h (s j) theta /\
     commutes h (s j) phi /\
     0 <= lambda j /\
     0 <= mu j /\
     norm (2 * h) (scale (s j) k) <= kappa j /\
     sqrt (mu j) * kappa j <= bound /\
     (forall y : nat -> R,
      sq (2 * h) (scale (fun c : nat => / s j c) (image r L y)) <=
      mu j * sq r y + lambda j * (dot r (f j) y * dot r (f (S j)) y))) ->
    in_ball r z -> Rabs (dot (2 * h) (rotate theta (image r L z)) (rotate phi k)) <= bound.
Proof. exact Rotation.T10_branching. Qed.

Theorem T10_commuting :
  forall (d : nat) (S T turn turn' : (nat -> R) -> nat -> R) (q k : nat -> R),
    (forall x y : nat -> R, dot d (T x) (S y) = dot d x y) ->
    (forall x : nat -> R, sq d (turn x) = sq d x) ->
    (forall x : nat -> R, sq d (turn' x) = sq d x) ->
    (forall c : nat, (c < d)%nat -> T (turn q) c = turn (T q) c) ->
    (forall c : nat, (c < d)%nat -> S (turn' k) c = turn' (S k) c) ->
    Rabs (dot d (turn q) (turn' k)) <= norm d (T q) * norm d (S k).
Proof. exact Rotation.T10_commuting. Qed.

Theorem T10_gains :
  forall (h : nat) (g g' theta phi : nat -> R) (G : R) (u v : nat -> R),
    gains_le h g g' theta phi G ->
    0 <= G ->
    in_ball (2 * h) u ->
    in_ball (2 * h) v ->
    Rabs (dot (2 * h) (rotate theta (scale g u)) (rotate phi (scale g' v))) <= G.
Proof. exact Gains.T10_gains. Qed.

Theorem T10_gains_attained :
  forall (h : nat) (g g' : nat -> R) (p c e : nat),
    (p < h)%nat ->
    c = (2 * p)%nat \/ c = S (2 * p) ->
    e = (2 * p)%nat \/ e = S (2 * p) ->
    in_ball (2 * h) (unit c) /\
    in_ball (2 * h) (unit e) /\
    (exists phi : nat -> R,
       Rabs
         (dot (2 * h) (rotate (fun _ : nat => 0) (scale g (unit c)))
            (rotate phi (scale g' (unit e)))) = Rabs (g c) * Rabs (g' e)).
Proof. exact Gains.T10_gains_attained. Qed.

(** Cover: an affine image of a ball in an ellipsoid *)

Theorem cover :
  forall (r : nat) (M : nat -> nat -> R) (a : nat -> R) (w : R) (u : nat -> R),
    0 < w < 1 ->
    in_ball r u ->
    exists z : nat -> R,
      in_ball (S r) z /\
      (forall c : nat, point r M a u c = image (S r) (shares r M a w) z c).
Proof. exact Cover.cover. Qed.

(** T11: layerwise QK norm *)

Theorem T11_total :
  forall (d m : nat) (g : nat -> nat) (s : R) (q : nat -> nat -> nat -> R)
      (k : nat -> nat -> R),
    (1 <= d)%nat ->
    0 < heads m g ->
    (forall a : nat, (a < m)%nat -> INR (g a) <= s) ->
    sum m (fun a : nat => sum (g a) (fun b : nat => sq d (q a b))) <= heads m g * INR d ->
    sum m (fun a : nat => sq d (k a)) <= INR m * INR d ->
    sum m (fun a : nat => sum (g a) (fun b : nat => modulus d (q a b) (k a))) <=
    sqrt (s * heads m g * INR m * INR d).
Proof. exact Budget.T11_total. Qed.

Theorem T11_equal :
  forall (d m g : nat) (q : nat -> nat -> nat -> R) (k : nat -> nat -> R),
    (1 <= d)%nat ->
    (1 <= m)%nat ->
    (1 <= g)%nat ->
    sum m (fun a : nat => sum g (fun b : nat => sq d (q a b))) <= INR m * INR g * INR d ->
    sum m (fun a : nat => sq d (k a)) <= INR m * INR d ->
    sum m (fun a : nat => sum g (fun b : nat => modulus d (q a b) (k a))) <=
    INR m * INR g * sqrt (INR d).
Proof. exact Budget.T11_equal. Qed.

Theorem T11_single :
  forall (d : nat) (H m : R) (q k : nat -> R),
    (1 <= d)%nat ->
    0 <= H ->
    0 <= m ->
    sq d q <= H * INR d ->
    sq d k <= m * INR d -> modulus d q k <= sqrt (H * m) * sqrt (INR d).
Proof. exact Budget.T11_single. Qed.

Theorem T11_apart :
  forall (d H m : nat) (q k : nat -> nat -> R),
    (1 <= d)%nat ->
    (1 <= m)%nat ->
    sum H (fun h : nat => sq d (q h)) <= INR H * INR d ->
    (forall h : nat, (h < H)%nat -> sq d (k h) <= INR m * INR d) ->
    sum H (fun h : nat => modulus d (q h) (k h)) <= INR H * sqrt (INR m * INR d).
Proof. exact Budget.T11_apart. Qed.

Theorem T11_attained :
  forall d m g : nat,
    let one := fun _ : nat => 1 in
    let H := INR m * INR g in
    (1 <= d)%nat ->
    (sum m (fun _ : nat => sum g (fun _ : nat => sq d one)) = H * INR d /\
     sum m (fun _ : nat => sq d one) = INR m * INR d /\
     sum m (fun _ : nat => sum g (fun _ : nat => modulus d one one)) = H * sqrt (INR d)) /\
    (sq d (fun c : nat => sqrt H * one c) = H * INR d /\
     sq d (fun c : nat => sqrt (INR m) * one c) = INR m * INR d /\
     modulus d (fun c : nat => sqrt H * one c) (fun c : nat => sqrt (INR m) * one c) =
     sqrt (H * INR m) * sqrt (INR d)) /\
    sum m
      (fun _ : nat =>
       sum g (fun _ : nat => modulus d one (fun c : nat => sqrt (INR m) * one c))) =
    H * sqrt (INR m * INR d).
Proof. exact Budget.T11_attained. Qed.

(** T12: n keys common to all queries *)

Theorem T12_ceiling :
  forall (n d r r' : nat) (A : nat -> nat -> R) (a : nat -> R)
      (C : nat -> nat -> R) (c : nat -> R) (u v : nat -> nat -> R)
      (f g : nat -> R) (sigma : R),
    (2 <= n)%nat ->
    0 <= sigma ->
    norm_le r r' (cross d A C) sigma ->
    (forall i : nat, (i < n)%nat -> in_ball r (u i)) ->
    (forall j : nat, (j < n)%nat -> in_ball r' (v j)) ->
    exists i : nat,
      (i < n)%nat /\
      alpha n (rows d r r' A a C c u v f g i) i <=
      1 / (1 + (INR n - 1) * exp (- (sigma * INR n / (INR n - 1)))).
Proof. exact Simplex.T12_ceiling. Qed.

Theorem T12_attained :
  forall (n : nat) (sigma : R),
    let zero := fun _ : nat => 0 in
    (2 <= n)%nat ->
    0 <= sigma ->
    norm_le n n (cross n (identity sigma) (identity 1)) sigma /\
    (forall i : nat, (i < n)%nat -> in_ball n (corner n i)) /\
    (forall i : nat,
     (i < n)%nat ->
     alpha n
       (rows n n n (identity sigma) zero (identity 1) zero (corner n) (corner n) zero zero i)
       i = 1 / (1 + (INR n - 1) * exp (- (sigma * INR n / (INR n - 1))))).
Proof. exact SimplexAttained.T12_attained. Qed.

Theorem T12_tokens :
  forall (d r r' : nat) (A : nat -> nat -> R) (a : nat -> R) (C : nat -> nat -> R)
      (c : nat -> R) (sigma : R) (n k : nat) (s : nat -> nat) (p : R),
    (2 <= k)%nat ->
    0 <= sigma ->
    norm_le r r' (cross d A C) sigma ->
    retrieves d r r' A a C c n k s p ->
    p <= 1 / (1 + (INR k - 1) * exp (- (sigma * INR k / (INR k - 1)))).
Proof. exact Tokens.T12_tokens. Qed.

(** T13: the kernel inequality, capacity, contexts *)

Theorem T13_orthonormal :
  forall (m r : nat) (U : nat -> nat -> R), orthonormal m r U -> contraction m r U.
Proof. exact Capacity.T13_orthonormal. Qed.

Theorem T13_norm :
  forall (r r' : nat) (M : nat -> nat -> R) (sigma : R),
    0 < sigma -> norm_le r r' M sigma -> singular r r r' M (fun _ : nat => sigma).
Proof. exact Capacity.T13_norm. Qed.

Theorem kernel_inequality :
  forall (n r : nat) (rho : nat -> R) (x : nat -> nat -> R),
    (forall c : nat, (c < r)%nat -> 0 <= rho c < 1) ->
    forall w : nat -> R,
    sum n (fun i : nat => w i * exp (sum r (fun c : nat => rho c * (x i c * x i c) / 2))) *
    sum n (fun i : nat => w i * exp (sum r (fun c : nat => rho c * (x i c * x i c) / 2))) *
    prod r (fun c : nat => sqrt (1 - rho c * rho c)) <=
    sum n
      (fun i : nat =>
       sum n (fun j : nat => w i * w j * exp (sum r (fun c : nat => x i c * x j c)))).
Proof. exact Kernel.kernel_inequality. Qed.

Theorem T13_harmonic :
  forall (n d r r' m : nat) (A : nat -> nat -> R) (a : nat -> R)
      (C : nat -> nat -> R) (c : nat -> R) (u v : nat -> nat -> R)
      (f g kappa bound : nat -> R) (t : R),
    (1 <= n)%nat ->
    0 < t ->
    singular m r r' (cross d A C) kappa ->
    (forall e : nat, (e < m)%nat -> kappa e <= bound e) ->
    (forall i : nat, (i < n)%nat -> in_ball r (u i)) ->
    (forall j : nat, (j < n)%nat -> in_ball r' (v j)) ->
    INR n * INR n <=
    exp (log_capacity m bound t) *
    sum n (fun i : nat => / alpha n (rows d r r' A a C c u v f g i) i).
Proof. exact Capacity.T13_harmonic. Qed.

Theorem T13_ceiling :
  forall (n d r r' m : nat) (A : nat -> nat -> R) (a : nat -> R)
      (C : nat -> nat -> R) (c : nat -> R) (u v : nat -> nat -> R)
      (f g bound : nat -> R) (t : R),
    (1 <= n)%nat ->
    0 < t ->
    spectrum_le d r r' m A C bound ->
    (forall i : nat, (i < n)%nat -> in_ball r (u i)) ->
    (forall j : nat, (j < n)%nat -> in_ball r' (v j)) ->
    exists i : nat,
      (i < n)%nat /\
      alpha n (rows d r r' A a C c u v f g i) i <= exp (log_capacity m bound t) / INR n.
Proof. exact Tokens.T13_ceiling. Qed.

Theorem T13_tokens :
  forall (d r r' m : nat) (A : nat -> nat -> R) (a : nat -> R)
      (C : nat -> nat -> R) (c bound : nat -> R) (t : R) (n k : nat)
      (s : nat -> nat) (p : R),
    0 < t ->
    0 < p ->
    spectrum_le d r r' m A C bound ->
    retrieves d r r' A a C c n k s p -> INR k * p <= exp (log_capacity m bound t).
Proof. exact Tokens.T13_tokens. Qed.

Theorem T13_largest :
  forall (m : nat) (bound : nat -> R) (top : R),
    (forall e : nat, (e < m)%nat -> bound e <= top) -> log_capacity m bound top = top.
Proof. exact Tokens.T13_largest. Qed.

Theorem T13_soft_cap :
  forall (n d r r' m : nat) (A : nat -> nat -> R) (a : nat -> R)
      (C : nat -> nat -> R) (c : nat -> R) (u v : nat -> nat -> R)
      (f g : nat -> R) (cap : R) (bound : nat -> R) (t p : R),
    (1 <= n)%nat ->
    0 < t ->
    1 / 2 <= p ->
    0 < cap ->
    spectrum_le d r r' m A C bound ->
    (forall i : nat, (i < n)%nat -> in_ball r (u i)) ->
    (forall j : nat, (j < n)%nat -> in_ball r' (v j)) ->
    (forall i : nat,
     (i < n)%nat ->
     let l := rows d r r' A a C c u v f g i in
     p <= alpha n (fun j : nat => cap * tanh (l j / cap)) i) ->
    INR n * p <= exp (log_capacity m bound t).
Proof. exact CapTokens.T13_soft_cap. Qed.

Theorem T13_level :
  forall (m : nat) (kappa : nat -> R) (s t : R),
    0 < s ->
    0 < t ->
    (forall c : nat, (c < m)%nat -> 0 <= kappa c) ->
    s =
    sum m
      (fun c : nat =>
       if Rle_lt_dec (kappa c) s then 0 else (kappa c - s) / (2 * kappa c - s)) ->
    log_capacity m kappa s <= log_capacity m kappa t.
Proof. exact Level.T13_level. Qed.

(** T13 under rotation *)

Theorem T13_turned :
  forall (h r r' : nat) (A : nat -> nat -> R) (a : nat -> R) (C : nat -> nat -> R)
      (c fixed : nat -> R) (phi : nat -> nat -> R) (scales : nat -> R)
      (n k : nat) (s : nat -> nat) (p : R),
    (forall e : nat, (e < 2 * h)%nat -> scales e <> 0) ->
    (forall j : nat, (j < n)%nat -> commutes h scales (phi j)) ->
    (forall j q : nat,
     (j < n)%nat ->
     (q < h)%nat -> phi j q = 0 \/ fixed (2 * q)%nat = 0 /\ fixed (S (2 * q)) = 0) ->
    (forall v : nat -> R,
     in_ball r' v -> in_ball (2 * h) (scale (fun e : nat => / scales e) (point r' C c v))) ->
    retrieves_turned h r r' A a C c fixed phi n k s p ->
    retrieves (2 * h) r (2 * h) A a (diagonal scales) fixed n k s p.
Proof. exact RotaryTokens.T13_turned. Qed.

Theorem T13_rotary :
  forall (h r r' m : nat) (A : nat -> nat -> R) (a : nat -> R)
      (C : nat -> nat -> R) (c fixed : nat -> R) (phi : nat -> nat -> R)
      (scales bound : nat -> R) (t : R) (n k : nat) (s : nat -> nat)
      (p : R),
    0 < t ->
    0 < p ->
    (forall e : nat, (e < 2 * h)%nat -> scales e <> 0) ->
    (forall j : nat, (j < n)%nat -> commutes h scales (phi j)) ->
    (forall j q : nat,
     (j < n)%nat ->
     (q < h)%nat -> phi j q = 0 \/ fixed (2 * q)%nat = 0 /\ fixed (S (2 * q)) = 0) ->
    (forall v : nat -> R,
     in_ball r' v -> in_ball (2 * h) (scale (fun e : nat => / scales e) (point r' C c v))) ->
    spectrum_le (2 * h) r (2 * h) m A (diagonal scales) bound ->
    retrieves_turned h r r' A a C c fixed phi n k s p ->
    INR k * p <= exp (log_capacity m bound t).
Proof. exact RotaryTokens.T13_rotary. Qed.

(** T13': a flat spectrum *)

Theorem T13_mean :
  forall (m : nat) (z : R), (1 <= m)%nat -> exists M : R, sphere_mean m z M.
Proof. exact SphereMean.T13_mean. Qed.

Theorem T13_sphere :
  forall (d r r' m : nat) (A : nat -> nat -> R) (a : nat -> R)
      (C : nat -> nat -> R) (c : nat -> R) (n k : nat) (s : nat -> nat)
      (p kappa radius M M' : R),
    (1 <= m)%nat ->
    0 < radius ->
    0 <= kappa ->
    0 < p ->
    sphere_mean m (radius * radius) M ->
    sphere_mean m (radius * sqrt kappa) M' ->
    spectrum_le d r r' m A C (fun _ : nat => kappa) ->
    retrieves d r r' A a C c n k s p -> INR k * p <= M * Rmax 1 (exp kappa / (M' * M')).
Proof. exact Flat.T13_sphere. Qed.

Theorem T13_flat :
  forall (d r r' m : nat) (A : nat -> nat -> R) (a : nat -> R)
      (C : nat -> nat -> R) (c : nat -> R) (n k : nat) (s : nat -> nat)
      (p kappa M : R),
    (1 <= m)%nat ->
    0 < kappa <= INR m ->
    0 < p ->
    sphere_mean m kappa M ->
    spectrum_le d r r' m A C (fun _ : nat => kappa) ->
    retrieves d r r' A a C c n k s p -> INR k * p <= exp kappa / M.
Proof. exact Flat.T13_flat. Qed.

(** T13'': a steep spectrum *)

Theorem T13_steep :
  forall (n d r r' m : nat) (A C : nat -> nat -> R) (c : nat -> R)
      (u v : nat -> nat -> R) (f kappa : nat -> R) (first second : R),
    (1 <= n)%nat ->
    singular (S m) r r' (cross d A C) kappa ->
    0 <= second <= first ->
    kappa m <= first ->
    (forall e : nat, (e < m)%nat -> kappa e <= second) ->
    (forall i : nat, (i < n)%nat -> in_ball r (u i)) ->
    (forall j : nat, (j < n)%nat -> in_ball r' (v j)) ->
    exists i : nat,
      (i < n)%nat /\
      alpha n (rows d r r' A (fun _ : nat => 0) C c u v f (fun _ : nat => 0) i) i <=
      1 /
      (1 + INR (Nat.div2 (n - 1)) * exp (- (2 * second)) +
       INR (Nat.div2 n) * exp (- (2 * first))).
Proof. exact Steep.T13_steep. Qed.

Theorem T13_steep_attained :
  forall (n : nat) (kappa : R),
    let zero := fun _ : nat => 0 in
    (1 <= n)%nat ->
    0 <= kappa ->
    cross 1 (fun _ _ : nat => kappa) (fun _ _ : nat => 1) 0 0 = kappa /\
    (forall j : nat, in_ball 1 (ends n j)) /\
    (forall i : nat,
     (i < n)%nat ->
     1 / (1 + INR (Nat.div2 (n - 1)) + INR (Nat.div2 n) * exp (- (2 * kappa))) <=
     alpha n
       (rows 1 1 1 (fun _ _ : nat => kappa) zero (fun _ _ : nat => 1) zero
          (ends n) (ends n) zero zero i) i).
Proof. exact SteepAttained.T13_steep_attained. Qed.
