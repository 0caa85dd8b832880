"""Stands for snakemake-executor-plugin-slurm if it is not installed, and refuses to start."""

# ruff: noqa: UP045 - Snakemake makes no option of `int | None`
from dataclasses import dataclass, field
from typing import Any, Optional

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
)
_HELP = {"help": "Setting of snakemake-executor-plugin-slurm, which is not installed."}


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Those of the profiles, so that Snakemake reads these and comes to the refusal."""

    init_seconds_before_status_checks: Optional[int] = field(default=None, metadata=_HELP)
    delete_logfiles_older_than: Optional[int] = field(default=None, metadata=_HELP)
    qos: Optional[str] = field(default=None, metadata=_HELP)
    reservation: Optional[str] = field(default=None, metadata=_HELP)


class Executor(RemoteExecutor):
    """Refuses to start."""

    def __init__(self, *_: Any) -> None:
        raise WorkflowError(
            "the executor scalewatt-slurm needs snakemake-executor-plugin-slurm: "
            "pip install 'scalewatt[workflow]'"
        )

    def run_job(self, job: Any) -> None:
        """Never called."""

    async def check_active_jobs(self, active_jobs: Any) -> Any:
        """Never called."""


def get_job_wildcards(job: Any) -> str:
    """Never called."""
    raise NotImplementedError
