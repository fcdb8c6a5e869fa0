"""ViT-Tiny and a BERT of four layers for the inference benchmark, with random masks of one sparsity in every layer."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

TOKEN_MODELS = ("vit-tiny", "bert-4")
IMAGE, PATCH, CLASSES = 224, 16, 1000
TOKENS, VOCABULARY = 128, 2048  # an embedding takes as long for 30,522 words as for these


class Block(nn.Module):
    """A layer of an encoder: attention and two linear layers, with the norms before (ViT) or behind (BERT)."""

    def __init__(self, width: int, heads: int, *, norm_first: bool) -> None:
        super().__init__()
        self.heads, self.norm_first = heads, norm_first
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def attention(self, x: Tensor) -> Tensor:
        """Attention of all tokens to all others."""
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        made = functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        out: Tensor = self.out(made.transpose(1, 2).reshape(batch, tokens, width))
        return out

    def mlp(self, x: Tensor) -> Tensor:
        """Both linear layers."""
        made: Tensor = self.narrow(functional.gelu(self.wide(x)))
        return made

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.norms
        if self.norm_first:
            x = x + self.attention(first(x))
            return x + self.mlp(second(x))
        x = first(x + self.attention(x))
        made: Tensor = second(x + self.mlp(x))
        return made


class ViTTiny(nn.Module):
    """ViT-Tiny/16 for images of 224x224: 12 layers, width 192, 3 heads, 5.7 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 192, PATCH, stride=PATCH)
        self.first = nn.Parameter(0.02 * torch.randn(1, 1, 192))
        self.places = nn.Parameter(0.02 * torch.randn(1, (IMAGE // PATCH) ** 2 + 1, 192))
        self.blocks = nn.Sequential(*(Block(192, 3, norm_first=True) for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        made: Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return made


class Bert(nn.Module):
    """BERT-Small: 4 layers, width 512, 8 heads, for 128 tokens, with a classifier on the first."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, 512), nn.Embedding(TOKENS, 512)
        self.norm = nn.LayerNorm(512)
        self.blocks = nn.Sequential(*(Block(512, 8, norm_first=False) for _ in range(4)))
        self.pool, self.head = nn.Linear(512, 512), nn.Linear(512, 2)

    def forward(self, x: Tensor) -> Tensor:
        made = self.norm(self.words(x) + self.places(torch.arange(x.shape[1], device=x.device)))
        made = self.blocks(made)[:, 0]
        out: Tensor = self.head(torch.tanh(self.pool(made)))
        return out


def is_bert(model: str) -> bool:
    """Whether a model takes token numbers."""
    return model == TOKEN_MODELS[1]


def shape_of(model: str) -> tuple[int, ...]:
    """The shape of one input."""
    return (TOKENS,) if is_bert(model) else (3, IMAGE, IMAGE)


def build(model: str, sparsity: float) -> nn.Module:
    """The network in evaluation mode; its linear layers and its patches have random masks of this sparsity."""
    torch.manual_seed(0)
    module = Bert() if is_bert(model) else ViTTiny()
    with torch.no_grad():
        for each in module.modules():
            if sparsity and isinstance(each, nn.Linear | nn.Conv2d) and each is not module.head:
                prune_(each.weight, sparsity)
    return module.eval()


def prune_(weight: Tensor, sparsity: float) -> None:
    """Keep a random share of exactly that many weights, and the scale of what they give."""
    kept = max(1, round((1 - sparsity) * weight.numel()))
    mask = torch.zeros(weight.numel())
    mask[torch.randperm(weight.numel())[:kept]] = (weight.numel() / kept) ** 0.5
    weight *= mask.reshape(weight.shape)


def draw_inputs(model: str, count: int) -> NDArray[np.float32]:
    """Random images, or random token numbers as the runtime takes them."""
    rng = np.random.default_rng(0)
    if is_bert(model):
        return rng.integers(0, VOCABULARY, size=(count, TOKENS)).astype(np.float32)
    return rng.normal(size=(count, *shape_of(model))).astype(np.float32)
