from hypersparse.analysis.layers import LayerWeights, layer_weights
from hypersparse.runs.store import RunStore
from tests.runs.tiny import FINISHED, cut, run_of


def test_layers_of_a_finished_and_an_unfinished_run(store: RunStore) -> None:
    run = run_of(store, FINISHED)
    result = run.result()
    assert result is not None
    found = layer_weights(run)
    assert found[0] == LayerWeights("conv1", result["kept_by_layer"]["conv1.weight"], 36)
    assert sum(layer.kept for layer in found) == 249
    cut(run, epochs=3)
    assert layer_weights(run) == [
        LayerWeights(f"layer {number}", kept, None)
        for number, kept in enumerate(run.log()[2]["kept_by_layer"], start=1)
    ]
    run.cut_log(1)
    assert layer_weights(run) == []
