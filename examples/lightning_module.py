"""Lightning: a network that classifies handwritten digits and removes their noise.

The criterion is an attribute of the module. One callback attaches it to the optimizer, keeps what
it trains out of weight decay and gradient clipping, and takes care of logs and checkpoints.

    pip install ".[lightning,demo]"
    python examples/lightning_module.py

It trains for some seconds on a CPU and prints the coefficients and the test accuracy.
"""

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset, random_split

import trainonce
from trainonce.integrations.lightning import LossWeights


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
        self.classes, self.decoder = nn.Linear(32, 10), nn.Linear(32, 64)
        self.criterion = trainonce.CompositeLoss(["ce", "reconstruction"])

    def training_step(self, batch, batch_idx):
        images, labels = batch
        code = self.encoder(images + 0.5 * torch.randn_like(images))
        return self.criterion(
            ce=cross_entropy(self.classes(code), labels),
            reconstruction=mse_loss(self.decoder(code), images),
        )

    def test_step(self, batch, batch_idx):
        images, labels = batch
        right = self.classes(self.encoder(images)).argmax(1) == labels
        self.log("accuracy", right.float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3, weight_decay=0.1)
        steps = int(self.trainer.estimated_stepping_batches)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def main(steps=500):
    L.seed_everything(0, verbose=False)
    images, labels = load_digits(return_X_y=True)
    images = torch.as_tensor(images, dtype=torch.float32)
    images = (images - images.mean()) / images.std()  # so that both losses are of order 1
    train, test = random_split(TensorDataset(images, torch.as_tensor(labels)), [0.7, 0.3])
    module = Digits()
    trainer = L.Trainer(
        max_steps=steps,
        gradient_clip_val=1.0,
        callbacks=[LossWeights()],
        logger=False,  # with a logger the callback logs every loss and coefficient
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(train, batch_size=64, shuffle=True))
    print(module.criterion)
    (found,) = trainer.test(module, DataLoader(test, batch_size=512), verbose=False)
    print(f"test accuracy: {100 * found['accuracy']:.1f} %")


if __name__ == "__main__":
    main()
