"""Small trainings on the CPU whose results the figures show; they need JAX."""
