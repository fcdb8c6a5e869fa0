"""Forward and backward passes of whole networks as a few fused kernels per layer."""
