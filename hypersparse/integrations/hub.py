"""`HubNetwork`: sparse networks on the Hugging Face Hub, by huggingface_hub's mixin."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor, nn

from hypersparse import zoo
from hypersparse.errors import RunError
from hypersparse.export.graph_module import to_module
from hypersparse.export.sparse_file import load_graph, save_graph
from hypersparse.extras import needed
from hypersparse.zoo.find_network import in_zoo
from hypersparse_runtime.graph import Graph

_hub = needed("huggingface_hub", "hub", "HubNetwork")
Mixin: Any = _hub.ModelHubMixin
NETWORK = "model.hsp"
TAGS = ["hypersparse", "sparse", "pruned", "image-classification"]
USE = """```python
from hypersparse.integrations.hub import HubNetwork

network = HubNetwork.from_pretrained("{name}")
outputs = network(images)  # normalized as network.about["normalisation"] says
```"""


class HubNetwork(nn.Module, Mixin, library_name="hypersparse", tags=TAGS):  # type: ignore[misc, call-arg]  # an extra
    """A network of a `.hsp` file with `save_pretrained`, `push_to_hub` and `from_pretrained`.

    A repository holds `model.hsp` and a model card with the metrics. Reading one runs no code.

    Args:
        graph: The network, as `hypersparse.export.sparse_file.load_graph` reads it.
        metrics: What was measured, such as `{"accuracy": 0.91}`; written into the model card.
    """

    def __init__(self, graph: Graph, *, metrics: Mapping[str, float] = MappingProxyType({})) -> None:
        super().__init__()
        self._hub_mixin_config = None  # no config.json: the file has all that is needed
        self.graph, self.metrics, self.about = graph, dict(metrics), dict(graph.about)
        self.network = to_module(graph)

    @classmethod
    def load(cls, source: str | Path, *, metrics: Mapping[str, float] = MappingProxyType({})) -> "HubNetwork":
        """The network in a `.hsp` file, or a network of the zoo by name, with the accuracy of its file."""
        if in_zoo(str(source)) is None:
            return cls(load_graph(source), metrics=metrics)
        known = zoo.entry(str(source))
        graph = load_graph(zoo.path_of(known.name))
        graph = replace(graph, about={**graph.about, "data": known.data})
        return cls(graph, metrics={"accuracy": known.test_accuracy, **metrics})

    def forward(self, images: Tensor) -> Tensor:
        """The outputs for a batch of normalized images."""
        outputs: Tensor = self.network(images)
        return outputs

    @property
    def kept(self) -> int:
        """The number of non-zero values in the network's arrays."""
        return sum(int(np.count_nonzero(array)) for array in self.graph.tensors.values())

    def _save_pretrained(self, save_directory: Path) -> None:
        save_graph(self.graph, Path(save_directory) / NETWORK)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> "HubNetwork":
        """Read a folder, or download the file of a repository; the mixin calls this."""
        folder = Path(model_id)
        if not folder.is_dir():
            known = ("revision", "cache_dir", "force_download", "token", "local_files_only")
            chosen = {name: options[name] for name in known if name in options}
            return cls(load_graph(_hub.hf_hub_download(repo_id=model_id, filename=NETWORK, **chosen)))
        if not (folder / NETWORK).exists():
            raise RunError(f"{folder} has no {NETWORK}; write one with HubNetwork.save_pretrained.")
        return cls(load_graph(folder / NETWORK))

    def generate_model_card(self, *args: Any, **options: Any) -> Any:
        """A model card with the metrics as `model-index`, the size and how to use it."""
        name = str(options.get("repo_id") or options.get("name") or "sparse-network")
        data = str(self.about.get("data", "unknown"))
        results = [
            _hub.EvalResult(
                task_type="image-classification",
                dataset_type=data,
                dataset_name=data,
                metric_type=metric,
                metric_value=value,
            )
            for metric, value in self.metrics.items()
        ]
        about = _hub.ModelCardData(
            library_name="hypersparse",
            tags=TAGS,
            model_name=name.rpartition("/")[2],
            eval_results=results or None,
        )
        return _hub.ModelCard(f"---\n{about.to_yaml()}\n---\n\n{self._text(name)}\n")

    def _text(self, name: str) -> str:
        measured = "\n".join(f"| {metric} | {value:.6g} |" for metric, value in self.metrics.items())
        facts = [
            "| | |",
            "| --- | --- |",
            f"| nonzero values | {self.kept:,} |",
            f"| input | {' x '.join(map(str, self.graph.input_shape))} |",
            f"| classes | {len(self.about.get('classes', ())) or 'unknown'} |",
            *([measured] if measured else []),
        ]
        return "\n".join(
            [f"# {name.rpartition('/')[2]}", "", "A sparse network.", "", *facts, "", USE.format(name=name)]
        )
