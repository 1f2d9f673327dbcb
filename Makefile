# Each target makes what it needs and can be run again; PYTHON=python3.12 chooses the interpreter.
.PHONY: help demo test check-all browser check-gpu check-arm soak bounds mutants lint docs page ep-wheel bench bench-partition bench-latency bench-compile bench-threads bench-precision bench-place bench-gpu clean
.NOTPARALLEL:

# What check-all installs as torch; for a smaller download, a build for the CPU alone can be named here.
export TORCH ?= torch ==2.13.0

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name what; do \
	    printf '  make %-15s %s\n' "$$name" "$$what"; done

demo:  ## partition a real model and show what happened (under three minutes the first time)
	@.ci/venv .venv
	@.venv/bin/python -m partita.demo

test:  ## ruff, mypy and all quick tests
	@.ci/run

check-all:  ## the same with the slow tests, and with torch (a large download)
	@.ci/run all

browser:  ## a Chromium for the tests of the report page (Debian or Ubuntu, as root); without one they are skipped
	@.ci/browser

check-gpu: .soak-venv  ## the tests of `opencl` and `cuda` on the drivers here; without a GPU few models (all of them: ARGS=--all-models)
	@.venv/bin/python -m pytest -q -m "" tests/accelerators/tvm/test_opencl*.py tests/accelerators/tvm/test_cuda.py $(ARGS)

# Groups of cases of tests/accelerators/tvm/arm.py, and the processors that they are compiled for.
LIGHT = squeezenet shufflenet resnet50 inception_v1 inception_v2 densenet121 bvlc_alexnet zfnet512 vgg19
CASES ?= sample nodes $(foreach name,$(LIGHT),zoo:$(name)) int8:squeezenet \
    tests/data/torch/bert.onnx tests/data/torch/vit.onnx
CPUS ?= neoverse-v1 neoverse-n1 cortex-a72
# Tests that run in the emulated Python, its compiler with them; THERE=tests/accelerators/tvm for all of them (days).
THERE ?= $(addprefix tests/accelerators/tvm/,test_pool.py test_cpu.py kernels/test_instructions.py)

check-arm: .soak-venv  ## graphs, ONNX's node tests and models compiled for Arm and run in qemu; as root on Debian 12 (hours)
	@.ci/arm
	@for cpu in $(CPUS); do \
	    emulated=$$([ $$cpu = neoverse-v1 ] && echo max || echo $$cpu); \
	    .venv/bin/python -W ignore -m tests.accelerators.tvm.arm make build/arm/$$cpu $$cpu $(CASES) && \
	    PYTHONPATH=. ARM_CPU=$$emulated build/arm/bin/python-arm -m tests.accelerators.tvm.arm check build/arm/$$cpu || exit 1; \
	done
	@PATH="$$PWD/build/arm/bin:$$PATH" PYTHONPATH=. build/arm/bin/python-arm -m tests.accelerators.tvm.arm package
	@.venv/bin/python -m pytest -q -m "" tests/accelerators/tvm/test_arm.py
	@PATH="$$PWD/build/arm/bin:$$PATH" PYTHONPATH=. build/arm/bin/python-arm -m pytest -q -p no:cacheprovider $(THERE)

soak: .soak-venv  ## attacks for an hour: random models, mutated files, kills, faults, forks, threads (ARGS="--minutes 5")
	@.venv/bin/python -m tests.soak $(ARGS)

bounds: .soak-venv  ## the core's tests with the lowest and with the newest versions that setup.cfg allows (twice some minutes)
	@.venv/bin/python -m tests.bounds --folder .venv-lowest $(ARGS)
	@.venv/bin/python -m tests.bounds --folder .venv-newest --highest $(ARGS)

.PHONY: .soak-venv
.soak-venv:
	@.ci/venv .venv dev,test

mutants:  ## change the code by chance, a place at a time: tests have to notice it (hours; ARGS="--count 30")
	@.ci/venv .venv dev,test
	@.venv/bin/python -m tests.mutants $(ARGS)

lint:  ## ruff and mypy alone
	@.ci/venv .venv dev,test
	@.venv/bin/python -m ruff check .
	@.venv/bin/python -m mypy .

docs:  ## the documentation as a site, in build/site; a warning is an error
	@.ci/venv .venv docs
	@NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict

page:  ## build the report page's program from its sources (needs npm); the result is kept in the repository
	@cd partita/page/web && npm ci --silent --no-fund --no-audit && npm run --silent check && npm run --silent build

ep-wheel:  ## the wheel onnxruntime-ep-partita, in build/: Partita as a provider for onnxruntime, with its libraries for two processors
	@.ci/venv .venv-wheel linker "setuptools>=77" wheel
	@cd packages/onnxruntime-ep-partita && ../../.venv-wheel/bin/python -m pip wheel -q --no-deps --no-build-isolation --wheel-dir ../../build .
	@rm -rf packages/onnxruntime-ep-partita/build

# OpenCL for the processor; it is not made for other machines.
POCL = 'pocl-binary-distribution >=3.0, <4; platform_system == "Linux" and platform_machine == "x86_64"'

# Options for one benchmark, as in: make bench-latency ARGS="--models bert --batch 1"
ARGS ?=

bench: .bench  ## all benchmarks against their peers, and their tables and plots in the documentation (under 40 minutes)
	@.venv-bench/bin/python -m benchmarks --publish $(ARGS)

bench-partition: .bench  ## partitioning: MXNet, OpenVINO, torch.fx, TVM
	@.venv-bench/bin/python -m benchmarks.partition --publish $(ARGS)

bench-latency: .bench  ## latency of fifteen models: onnxruntime, OpenVINO, torch, TVM
	@.venv-bench/bin/python -m benchmarks.latency --publish $(ARGS)

bench-compile: .bench  ## cold, from the cache, from an export: OpenVINO, onnxruntime
	@.venv-bench/bin/python -m benchmarks.compiling --publish $(ARGS)

bench-threads: .bench  ## twenty fresh processes, alone and beside a rival: onnxruntime (ten minutes)
	@.venv-bench/bin/python -m benchmarks.threads --publish $(ARGS)

bench-precision: .bench  ## quantized models, and bfloat16: onnxruntime, OpenVINO
	@.venv-bench/bin/python -m benchmarks.precision $(ARGS)

bench-place: .bench  ## placements by measured cost, end to end, and two models at once (about forty minutes)
	@.venv-bench/bin/python -m benchmarks.placing $(ARGS)

bench-gpu: .bench  ## latency on a GPU: torch, onnxruntime; without one the smallest model by OpenCL on the processor
	@.ci/venv .venv-bench onnxruntime,openvino,opencl matplotlib $(POCL)
	@.venv-bench/bin/python -m benchmarks.gpu --publish $(ARGS)

# The peers that share Partita's process; the others make environments of their own, .venv-bench-*.
.PHONY: .bench
.bench:
	@.ci/venv .venv-bench onnxruntime,openvino matplotlib

clean:  ## remove the environments, the caches and what was built
	rm -rf .venv .venv-all .venv-lowest .venv-newest .venv-bench* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
