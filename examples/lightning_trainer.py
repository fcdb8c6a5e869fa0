"""Two lines make this Lightning script sparse: the import and the callback."""

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hypersparse import GMP
from hypersparse.integrations.lightning import SparsityCallback


class Classifier(lightning.LightningModule):
    """A perceptron for 8 x 8 digits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        inputs, labels = batch
        return nn.functional.cross_entropy(self.net(inputs), labels)

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        inputs, labels = batch
        self.log("val_accuracy", (self.net(inputs).argmax(1) == labels).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
training = DataLoader(TensorDataset(images[:1437], labels[:1437]), batch_size=64, shuffle=True)
held_out = DataLoader(TensorDataset(images[1437:], labels[1437:]), batch_size=64)

lightning.seed_everything(0)
model = Classifier()
trainer = lightning.Trainer(
    max_epochs=12,
    callbacks=[SparsityCallback(GMP(sparsity=0.9))],
    logger=False,
    enable_checkpointing=False,
    accelerator="cpu",
)
trainer.fit(model, training, held_out)

(result,) = trainer.validate(model, held_out, verbose=False)
weights = [module.weight for module in model.net if isinstance(module, nn.Linear)]
kept, total = sum(int(weight.count_nonzero()) for weight in weights), sum(weight.numel() for weight in weights)
print(f"{kept} of {total} weights kept, accuracy {result['val_accuracy']:.3f}")
