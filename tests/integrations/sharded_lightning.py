"""A script that Lightning starts once for each process: FSDP2 with a method, stopped and resumed."""

import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

from hypersparse import GMP
from hypersparse.integrations.lightning import SparsityCallback

STEPS = 6  # of a process in two epochs


class Sharded(lightning.LightningModule):
    """A perceptron whose layers each process has a part of."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))

    def configure_model(self) -> None:
        """Shard the layers."""
        for layer in (self.net[0], self.net[2], self.net):
            fully_shard(layer, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        """The loss."""
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def fit(*callbacks: Any, checkpoint: Path | None = None) -> dict[str, Tensor]:
    """The whole weights after training."""
    inputs = torch.randn(48, 20, generator=torch.Generator().manual_seed(1))
    model = Sharded()
    trainer = lightning.Trainer(
        callbacks=[SparsityCallback(GMP(sparsity=0.8)), *callbacks],
        strategy=ModelParallelStrategy(
            data_parallel_size=2, tensor_parallel_size=1, process_group_backend="gloo", save_distributed_checkpoint=True
        ),
        accelerator="cpu",
        devices=2,
        max_epochs=4,
        logger=False,
        enable_checkpointing=bool(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(inputs, (inputs[:, 0] > 0).long()), batch_size=8), ckpt_path=checkpoint)
    return {name: weight.full_tensor().detach() for name, weight in model.named_parameters()}  # type: ignore[attr-defined]


def main(folder: Path) -> None:
    """Train, and train again from the middle."""
    saving = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=STEPS, save_top_k=-1)
    whole = fit(saving)
    resumed = fit(checkpoint=folder / f"step={STEPS}.ckpt")
    rank = torch.distributed.get_rank()
    torch.save({"whole": whole, "resumed": resumed}, folder / f"{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
