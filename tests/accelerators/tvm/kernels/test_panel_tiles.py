"""Which tiles products of matrices are cut into."""

import pytest

from partita.accelerators.tvm.kernels.contraction.panels import (
    FEW,
    OPEN_ROWS,
    PAGE,
    PRODUCTS,
    UNROLLED,
    WAYS,
    PanelTile,
    best_tile,
    open_tile,
)
from partita.accelerators.tvm.machine.machine import Machine

MACHINES = {
    "avx512": Machine("cpu", "znver4", 1, 16, 32),
    "avx2": Machine("cpu", "znver1", 1, 8, 16),
    "neon": Machine("cpu", "generic", 1, 4, 32),
}


def cycles(tile: PanelTile, rows: int) -> float:
    """What so many rows take for each column, by the best of the tile's heights."""
    lower = [low for low in tile.heights() if low.rows <= rows]
    return min(low.down(rows) * low.fetched_cycles for low in lower) / tile.width


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("columns", [768, 2304, 3072])
def test_any_number_of_rows_takes_about_the_cycles_of_that_number(machine: Machine, columns: int) -> None:
    tile = open_tile(columns, machine)
    assert tile is not None
    ratios = []
    for rows in OPEN_ROWS:
        own = best_tile(rows, columns, machine, apart=4)
        assert own is not None
        fixed = own.down(rows) * own.across(columns) * own.fetched_cycles
        ratios.append(cycles(tile, rows) * tile.width * tile.across(columns) / fixed)
    assert max(ratios) < 1.25
    assert sum(ratios) / len(ratios) < 1.05


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("rows", [12, 14, 15, 28, 140, None])
def test_rows_that_push_one_another_out_of_the_cache_are_not_met_at_once(machine: Machine, rows: int | None) -> None:
    for apart in (PAGE, 3 * PAGE):
        tile = open_tile(32, machine) if rows is None else best_tile(rows, 32, machine, apart=apart)
        assert tile is not None
        assert tile.rows <= WAYS


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("rows", [17, 31, 37, 41, 74, 97])
def test_a_panel_is_fetched_for_several_rows(machine: Machine, rows: int) -> None:
    """Before the cost of fetching was counted, 37 rows were taken one by one, which took twice the time."""
    tile = best_tile(rows, 2304, machine, apart=4 * 768)
    assert tile is not None
    assert tile.rows >= FEW


@pytest.mark.parametrize("machine", [MACHINES["avx512"], MACHINES["neon"]], ids=["avx512", "neon"])
@pytest.mark.parametrize("columns", [768, 2304, 3072])
def test_eight_rows_fetch_a_panel_once(machine: Machine, columns: int) -> None:
    """Four by six twice starts as many products, and takes 1.15 times as long: BERT 1.3 times."""
    tile = best_tile(8, columns, machine, apart=4 * 768)
    assert tile is not None
    assert (tile.rows, tile.vectors) == (8, 3)


@pytest.mark.parametrize("rows", [7, 8, 13, 16, 64])
def test_a_panel_of_many_rows_is_no_single_vector(rows: int) -> None:
    """As seven or eight rows by one vector they waited for the panel at each step, and took 2.1 times as long (AVX2)."""
    tile = best_tile(rows, 768, MACHINES["avx2"], apart=4 * 768)
    assert tile is not None
    assert (tile.rows, tile.vectors) == (4, 3)


def test_columns_fewer_than_a_vector_have_no_tile() -> None:
    assert open_tile(15, MACHINES["avx512"]) is None
    assert open_tile(16, MACHINES["avx512"]) is not None


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_few_rows_fetch_a_panel_once(machine: Machine) -> None:
    """Two rows one by one took 1.6 times as long as together, and seven or eight as four and four 1.3 times (AVX-512)."""
    tile = open_tile(3072, machine)
    assert tile is not None
    assert [low.rows for low in tile.heights(is_fetched=True)] == list(range(1, tile.rows + 1))
    assert tile.rows >= (8 if machine.registers == 32 else 6)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_low_tile_has_more_steps_written_out_than_a_high_one(machine: Machine) -> None:
    """Code for tiles of all heights takes LLVM little longer than for the highest alone."""
    tile = open_tile(3072, machine)
    assert tile is not None
    heights = tile.heights(is_fetched=True)
    assert heights[0].few_steps == UNROLLED
    for low in heights:
        assert low.few_steps == UNROLLED or PRODUCTS <= low.few_steps * low.rows * low.vectors < PRODUCTS + low.rows * low.vectors
    assert sum(low.few_steps * low.rows * low.vectors for low in heights) < 2.5 * UNROLLED * tile.rows * tile.vectors
