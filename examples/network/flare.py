"""Run the app as a FLARE job, in FLARE's simulator or in its POC mode: `python flare.py FOLDER SITE... [--poc]`."""

from __future__ import annotations

import argparse
from pathlib import Path

from nvflare.app_opt.flower.recipe import FlowerRecipe
from nvflare.recipe import PocEnv, SimEnv


def main() -> None:
    """Run one job, and wait for its end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the history and the model are, and the sites' data")
    parser.add_argument("sites", nargs="+", help="the names of the sites that are connected")
    parser.add_argument("--poc", action="store_true", help="as real processes")
    asked = parser.parse_args()
    # The server app runs in a folder of the job's own.
    folder = asked.folder.resolve()
    recipe = FlowerRecipe(
        name="network",
        flower_content=str(Path(__file__).resolve().parent),
        min_clients=len(asked.sites),
        # Ten seconds each, FLARE's own, are not enough where two cores start all processes.
        superlink_ready_timeout=120.0,
        configure_task_timeout=120,
        start_task_timeout=120,
        run_config={
            "history": str(folder / "history"),
            "model": str(folder / "model.safetensors"),
            "data": str(folder / "data"),
            "num-rounds": 2,
        },
    )
    env = (
        PocEnv(clients=asked.sites, num_clients=len(asked.sites))
        if asked.poc
        else SimEnv(clients=asked.sites, workspace_root=str(folder / "flare"))
    )
    recipe.execute(env).get_result()


if __name__ == "__main__":
    main()
