"""Runs in MLflow: one MLflow run each, found by its tag when training resumes."""

import time
from collections.abc import Mapping
from typing import Any

from hypersparse.errors import OptionError
from hypersparse.extras import needed
from hypersparse.integrations.tracker import OpenTracker
from hypersparse.recipe import flatten
from hypersparse.training.concurrency.concurrent_runs import Job

EXPERIMENT = "hypersparse"
TAG = "hypersparse.run"  # <label>/seed-<n>
MOST_PARAMETERS = 100  # MLflow takes at most so many in one call


class MlflowTracker:
    """A run of the experiment `hypersparse` on a tracking server or in a folder."""

    def __init__(self, job: Job, uri: str) -> None:
        mlflow = needed("mlflow", "mlflow", "`--track mlflow`")
        self._entities = mlflow.entities
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        name = f"{job.folder.parent.name}/{job.folder.name}"
        experiment = self._experiment()
        found = self._client.search_runs([experiment], filter_string=f"tags.`{TAG}` = '{name}'", max_results=1)
        if found:
            self._id = found[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
        else:
            self._id = self._client.create_run(experiment, run_name=name, tags={TAG: name}).info.run_id
            self._describe(job)
        steps = [metric.step for metric in self._client.get_metric_history(self._id, "loss")]
        self.epochs = max(steps, default=-1) + 1

    def write(self, entry: Mapping[str, Any], values: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        metrics = [self._entities.Metric(name, value, now, entry["epoch"]) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics, tags=[self._entities.RunTag("phase", entry["phase"])])

    def close(self) -> None:
        """Mark the run as ended for now."""
        self._client.set_terminated(self._id)

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(EXPERIMENT)
        return str(found.experiment_id if found else self._client.create_experiment(EXPERIMENT))

    def _describe(self, job: Job) -> None:
        values = {**flatten(job.recipe.to_mapping()), "seed": job.seed}
        parameters = [self._entities.Param(name, str(value)) for name, value in values.items()]
        self._client.log_batch(self._id, params=parameters[:MOST_PARAMETERS])


def at(uri: str) -> OpenTracker:
    """Trackers at a tracking URI such as http://localhost:5000, which is tried at once."""
    mlflow = needed("mlflow", "mlflow", "`--track mlflow`")
    try:
        mlflow.MlflowClient(tracking_uri=uri).search_experiments(max_results=1)
    except Exception as error:  # of its many kinds of stores, each with errors of its own
        reason = str(error).partition("\n")[0]
        raise OptionError(f"`--track mlflow:{uri}` cannot be used: {reason}") from None
    return lambda job: MlflowTracker(job, uri)
