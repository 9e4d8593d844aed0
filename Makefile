# A thin front: CMake builds (CMakeLists.txt, CMakePresets.json), scripts in tools/, tests/ and bench/ do the rest.
# `make help` lists what there is.
PREFIX ?= /usr/local
BUILD := build/release

.PHONY: all demo site release test test-peers bench bench-umap bench-rl bench-attention bench-model bench-cuda device install clean help

all:
	@cmake --preset release -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	@cmake --build --preset release --parallel $$(nproc 2>/dev/null || echo 2)

demo:
	@tools/setup.sh demo
	@tools/demo.sh

site:
	@tools/setup.sh bench
	@tools/site.sh

release:
	@tools/release.sh

test:
	@tools/setup.sh test
	@tests/run_all.sh

test-peers:
	@tools/setup.sh bench
	@tests/peers/run.sh

bench:
	@tools/setup.sh bench
	@bench/run.sh softmax

bench-umap:
	@tools/setup.sh bench
	@bench/run.sh umap

bench-rl:
	@tools/setup.sh bench
	@bench/run.sh ops --only '^(?!attention|matmul)'

bench-attention:
	@tools/setup.sh bench
	@bench/run.sh ops --only '^(attention|matmul)'

bench-model:
	@tools/setup.sh bench
	@bench/run.sh model

bench-cuda:
	@bench/run.sh cuda

device:
	@tools/device/pack.sh

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	@cmake -E rm -rf build

help:
	@echo "make            build the library, the program and the examples in $(BUILD)"
	@echo "make demo       set up, build, train a digit classifier with Napier and look at its probabilities"
	@echo "make site       the documentation as a site, in build/site/html; fetches PyTorch (5.5 GB), as do test-peers and bench"
	@echo "make release    all files of a release of the last commit, which has a tag: sources, wheels, packages; uploads nothing"
	@echo "make test       set up and run every test: about 5 GB below build/, less than an hour on two processors"
	@echo "make test-peers the same against umap-learn and others, each in an environment of its own"
	@echo "make bench      set up and measure against other libraries, each in an environment of its own"
	@echo "make bench-umap the same for maps: umap-learn and uwot"
	@echo "make bench-rl   the same for the functions for RL: PyTorch and TRL"
	@echo "make bench-attention  the same for attention and products: PyTorch"
	@echo "make bench-model  the same for Qwen3: transformers, and prompts shared against unshared"
	@echo "make bench-cuda the same on a GPU: PyTorch, torch.compile, Triton, Liger-Kernel and quack"
	@echo "make device     one archive of tests and benchmarks for a machine with a GPU and nothing else; needs nvcc"
	@echo "make install    install to PREFIX ($(PREFIX)); DESTDIR is honoured"
	@echo "make clean      remove build/"
