# Tersegrad: build, check, install. `make help` lists what can be made; docs are in README.md.
#
# Sources are found by wildcard, so a new codec, subcommand or test is a new file and nothing here. Everything made lies
# in build/. Each variant (sanitizers, clang, fuzzing, other machines) is the same tree again under build/NAME.

.DEFAULT_GOAL := all
.SUFFIXES:
.SECONDARY:
.DELETE_ON_ERROR:
.PHONY: FORCE
# As many jobs as processors, unless the user said -j.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif

# ---- What the user may set -------------------------------------------------------------------------------------------

ifeq ($(origin CC),default)
CC := gcc
endif
CLANG ?= clang
WERROR ?= -Werror
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DATADIR ?= $(PREFIX)/share
FUZZ_SECONDS ?= 60
# Which groups of tests `make check` runs; empty means all. Their names: scripts/check.sh --list.
ONLY ?=
# V=1 shows the commands. CFLAGS and LDFLAGS are appended to ours.

# ---- Sources and flags -----------------------------------------------------------------------------------------------

VERSION := $(shell sed -n 's/^\#define TG_VERSION_TEXT "\(.*\)"/\1/p' include/tersegrad.h)
SONAME := libtersegrad.so.$(firstword $(subst ., ,$(VERSION)))

sources = $(sort $(wildcard $(addsuffix .c,$1)))
# What includes mpi.h or nccl.h is a module of its own, see below.
SOURCES := $(filter-out src/transport/mpi/% src/transport/nccl/%,$(call sources,src/* src/*/* src/*/*/*))
COMMAND := $(call sources,common/* predict/* train/* cli/* cli/*/*)
# Every file of these six folders is a program of its own, but for the replaying main() of the fuzz targets.
UNIT := $(call sources,tests/unit/*)
LAWS := $(call sources,tests/laws/*)
PAPERS := $(call sources,tests/papers/*)
RANKS := $(call sources,tests/mpi/*)
CARDS_TESTS := $(call sources,tests/cuda/*)
FUZZ := $(filter-out tests/fuzz/replay.c,$(call sources,tests/fuzz/*))
# What several tests share.
SUPPORT := $(call sources,tests/support/*)

# Bytes must be equal everywhere: no contraction, and never fast-math. -fno-math-errno makes sqrtf one instruction, so
# that the library needs no libm.
INCLUDES := -Iinclude -Isrc
PREPROCESS := -std=c11 -D_POSIX_C_SOURCE=200809L $(INCLUDES)
WARNINGS := -Wall -Wextra -Wpedantic -Wconversion
COMPILE := $(PREPROCESS) $(WARNINGS) -ffp-contract=off -fno-math-errno -fvisibility=hidden -fPIC -pthread
# Files that use an instruction set lie in a folder named for it; src/kernels/registry.c asks the machine before it calls
# them. For another kind of machine they are not compiled: $(call library_of,aarch64-linux-gnu) is what is.
AVX2 := -mavx2 -mbmi -mbmi2 -mf16c -mpopcnt
AVX512 := $(AVX2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi2
KERNELS_x86_64 := avx2 avx512
KERNELS_aarch64 := neon
kernels_not_of = $(filter-out $(KERNELS_$(firstword $(subst -, ,$1))),$(KERNELS_x86_64) $(KERNELS_aarch64))
library_of = $(filter-out $(patsubst %,src/kernels/%/%,$(kernels_not_of)),$(SOURCES))
MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null)
LIBRARY := $(call library_of,$(MACHINE))
# gcc for s390 computes float in double under -std=c11, unless told not to.
S390 := -fexcess-precision=fast
NATIVE := $(if $(filter s390%,$(MACHINE)),$(S390))
TEST_INCLUDES := -I. -Icli -Itests/support
# The command reads gzipped data with zlib and JSON with jansson, where they are when it is built; without them it refuses such files with a
# sentence. BLAS is looked for when `train` runs. A program for another machine has none of the three.
# Versions of make differ in what a backslash before a # means inside a function.
hash := \#
has = $(shell echo '$(hash)include <$1>' | $(CC) -E -x c - >/dev/null 2>&1 && echo yes)
ZLIB ?= $(call has,zlib.h)
JANSSON ?= $(call has,jansson.h)
ZLIB := $(ZLIB)
JANSSON := $(JANSSON)
COMMAND_FLAGS := $(if $(filter yes,$(ZLIB)),-DTRAIN_HAS_ZLIB) $(if $(filter yes,$(JANSSON)),-DCLI_HAS_JANSSON) -DTRAIN_HAS_DLOPEN
JANSSON_LIBRARY ?= -ljansson
COMMAND_LIBRARIES := $(if $(filter yes,$(ZLIB)),-lz) $(if $(filter yes,$(JANSSON)),$(JANSSON_LIBRARY))

# The checksum is xxHash's: its header is compiled into the library. Compilers for other machines do not look where the header of this one is,
# so they are given a folder that has this header and no other.
XXHASH ?= $(filter %/xxhash.h,$(shell echo '$(hash)include <xxhash.h>' | $(CC) -M -x c - 2>/dev/null))
XXHASH := $(XXHASH)
FOREIGN := build/foreign/include
$(FOREIGN)/xxhash.h:
	$(Q)mkdir -p $(@D) && ln -sf $(XXHASH) $@

# One module for each MPI that is here, compiled by its own mpicc: openmpi, mpich.
flavour = $(firstword $(shell command -v mpicc.$1 2>/dev/null) $(shell mpicc $2 >/dev/null 2>&1 && command -v mpicc))
OPENMPI_CC ?= $(call flavour,openmpi,--showme:version)
MPICH_CC ?= $(call flavour,mpich,-link_info)
MODULES := $(if $(OPENMPI_CC),build/mpi-openmpi.so) $(if $(MPICH_CC),build/mpi-mpich.so)

# The module for CUDA cards, where nvcc is: for all cards from Turing on (code for sm_80 runs on 8.6 and 8.9 too), and newer ones by way of PTX.
# ARCH=sm_90 compiles for one kind of card only, which is quicker. Bytes must be equal on every device: no contraction here either.
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA := $(sort $(wildcard src/device/cuda/*.cu))
CUDA_HEADERS := $(sort $(wildcard src/device/cuda/*.h src/device/cuda/*.cuh src/base/*.h src/codec/*.h src/kernels/*.h src/device/*.h src/device/cpu/*.h)) include/tersegrad.h
CARDS := $(if $(ARCH),-arch=$(ARCH),$(foreach n,75 80 90,-gencode arch=compute_$n,code=sm_$n) -gencode arch=compute_90,code=compute_90)
CUDA_COMPILE := -std=c++20 -O3 -fmad=false $(CARDS) $(INCLUDES) -D_POSIX_C_SOURCE=200809L \
    -Xcompiler -fPIC,-fvisibility=hidden,-ffp-contract=off,-Wall,-Wextra,-Wno-missing-field-initializers
CUDA_MODULE := $(if $(NVCC),build/libtersegrad_cuda.so)

# The module for NCCL, where its header and CUDA's are: Debian's libnccl-dev, or the PyPI package nvidia-nccl-cu13 (cu12) in .venv. NCCL itself is
# looked for when the module is used.
CUDA_HOME ?= $(patsubst %/include/cuda_runtime.h,%,$(firstword $(wildcard $(addsuffix /include/cuda_runtime.h,$(patsubst %/bin/nvcc,%,$(realpath $(NVCC))) /usr/local/cuda /usr))))
NCCL_INCLUDE ?= $(patsubst %/nccl.h,%,$(firstword $(wildcard /usr/include/nccl.h $(CUDA_HOME)/include/nccl.h .venv/lib/python3*/site-packages/nvidia/nccl/include/nccl.h)))
CUDART := $(firstword $(if $(CUDA_HOME),$(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/*/libcudart_static.a /usr/lib/*/libcudart_static.a)))
NCCL_MODULE := $(if $(and $(NVCC),$(NCCL_INCLUDE),$(CUDART)),build/nccl.so)

Q := $(if $(V),,@)
remember = @mkdir -p $(@D) && echo '$1' | cmp -s - $@ || echo '$1' >$@
say = $(if $(V),,@printf '%-4s %s\n' '$1' '$(patsubst build/%,%,$2)')

# ---- Variants --------------------------------------------------------------------------------------------------------

# $(call variant,NAME,FOLDER,COMPILER,compile flags,link flags,archiver of another machine): objects, library, command
# and test programs, and the targets NAME, NAME-unit, NAME-laws, NAME-papers, NAME-ranks and NAME-fuzz.
define variant
.PHONY: $1 $1-unit $1-laws $1-papers $1-ranks $1-fuzz
$1: $2/tersegrad
$1-unit: $(UNIT:%.c=$2/%)
$1-laws: $(LAWS:%.c=$2/%)
$1-papers: $(PAPERS:%.c=$2/%)
$1-ranks: $(RANKS:%.c=$2/%)
$1-fuzz: $(FUZZ:%.c=$2/%)

# Other flags than last time: compile everything again. Other sources: link again.
$2/flags: FORCE $(if $6,| $(FOREIGN)/xxhash.h)
	$(if $(XXHASH),,@echo "make: there is no xxhash.h: install libxxhash-dev, or run scripts/setup.sh build" >&2; exit 1)
	$$(call remember,$3 $(COMPILE) $4 $(WERROR) $(CFLAGS) $(if $6,,$(COMMAND_FLAGS)))
$2/sources: FORCE
	$$(call remember,$(call library_of,$(or $6,$(MACHINE))) $(COMMAND))

$2/obj/tests/%.o: FOLDERS := $(TEST_INCLUDES) $(if $6,-Itests/foreign)
$2/obj/tests/fuzz/%.o: FOLDERS := $(TEST_INCLUDES) $(if $6,,$(COMMAND_FLAGS))
$2/obj/cli/%.o $2/obj/common/%.o $2/obj/predict/%.o $2/obj/train/%.o: FOLDERS := -I. $(if $6,,$(COMMAND_FLAGS))
$2/obj/src/kernels/avx2/%.o: INSTRUCTIONS := $(AVX2)
$2/obj/cli/bench_compare.o: share/compare.py
$2/obj/src/kernels/avx512/%.o: INSTRUCTIONS := $(AVX512)
$2/obj/%.o: %.c $2/flags
	$$(call say,CC,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$3 $(COMPILE) $$(FOLDERS) $(if $6,-isystem $(FOREIGN)) $$(INSTRUCTIONS) $4 $(WERROR) $(CFLAGS) -MMD -MP -c -o $$@ $$<

$2/libtersegrad.a: $(patsubst %.c,$2/obj/%.o,$(call library_of,$(or $6,$(MACHINE)))) $2/sources
	$$(call say,AR,$$@)
	$$(Q)rm -f $$@ && $(or $6,$(AR)) rcs $$@ $$(filter %.o,$$^)

# The command without its main(), for the command itself and for tests.
$2/obj/command.a: $(patsubst %.c,$2/obj/%.o,$(filter-out cli/main.c,$(COMMAND))) $2/sources
	$$(Q)rm -f $$@ && $(or $6,$(AR)) rcs $$@ $$(filter %.o,$$^)

$2/tersegrad: $2/obj/cli/main.o $2/obj/command.a $2/libtersegrad.a
	$$(call say,LD,$$@)
	$$(Q)$3 $5 -pthread $(CFLAGS) $(LDFLAGS) -o $$@ $$^ $(if $6,,$(COMMAND_LIBRARIES)) -lm -ldl

# Test programs see hidden symbols and the command's functions: they link the archives.
$2/tests/unit/%: LIBRARIES := $(if $6,,-lcmocka)
$2/tests/fuzz/%: FUZZER := $(if $(findstring fuzzer,$4),-fsanitize=fuzzer)
$(if $(findstring fuzzer,$4),,$(FUZZ:%.c=$2/%): $2/obj/tests/fuzz/replay.o)
$2/tests/%: $2/obj/tests/%.o $(SUPPORT:%.c=$2/obj/%.o) $2/obj/command.a $2/libtersegrad.a
	$$(call say,LD,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$3 $5 -pthread $$(FUZZER) $(CFLAGS) $(LDFLAGS) -o $$@ $$^ $$(LIBRARIES) $(if $6,,$(COMMAND_LIBRARIES)) -lm -ldl

-include $(patsubst %.c,$2/obj/%.d,$(SOURCES) $(COMMAND) $(SUPPORT) $(UNIT) $(LAWS) $(PAPERS) $(RANKS) $(CARDS_TESTS) $(FUZZ))
endef

SANITIZE := -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all
DEBUG := -O1 -g -fno-omit-frame-pointer

$(eval $(call variant,release,build,$(CC),-O3 $(NATIVE)))
$(eval $(call variant,clang,build/clang,$(CLANG),-O3))
$(eval $(call variant,asan,build/asan,$(CC),$(DEBUG) -fno-var-tracking $(NATIVE) $(SANITIZE),$(SANITIZE)))
$(eval $(call variant,tsan,build/tsan,$(CC),-O2 -g $(NATIVE) -fsanitize=thread,-fsanitize=thread))
$(eval $(call variant,libfuzzer,build/fuzz,$(CLANG),$(DEBUG) -fsanitize=fuzzer-no-link $(SANITIZE),$(SANITIZE)))
$(eval $(call variant,aarch64,build/aarch64,aarch64-linux-gnu-gcc,-O2,-static,aarch64-linux-gnu-ar))
$(eval $(call variant,aarch64-clang,build/aarch64-clang,$(CLANG) --target=aarch64-linux-gnu,-O2,-static,aarch64-linux-gnu-ar))
$(eval $(call variant,s390x,build/s390x,s390x-linux-gnu-gcc,-O2 $(S390),-static,s390x-linux-gnu-ar))

# ---- Products --------------------------------------------------------------------------------------------------------

.PHONY: all clean help install uninstall
all: release build/libtersegrad.a build/libtersegrad.so $(MODULES) $(CUDA_MODULE) $(NCCL_MODULE)

build/libtersegrad.so.$(VERSION): $(LIBRARY:%.c=build/obj/%.o) build/sources
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,$(SONAME) -Wl,-z,defs -Wl,--as-needed -pthread $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) -ldl

build/libtersegrad.so: build/libtersegrad.so.$(VERSION)
	$(Q)ln -sf $(<F) build/$(SONAME)
	$(Q)ln -sf $(SONAME) $@

# One of them for the sanitizer that watches threads, where OpenMPI is.
WATCHED := $(if $(OPENMPI_CC),build/tsan/mpi-openmpi.so)
.PHONY: tsan-module
tsan-module: $(WATCHED)
build/mpi-openmpi.so $(WATCHED): MPICC = $(OPENMPI_CC)
build/mpi-mpich.so: MPICC = $(MPICH_CC)
$(WATCHED): MODULE_FLAGS = -g -fsanitize=thread
$(MODULES) $(WATCHED): $(wildcard src/transport/mpi/*.[ch]) src/base/status.c src/transport/ranks.c src/transport/ranks.h src/transport/mpi_module.h src/transport/transport.h include/tersegrad.h build/flags
	$(call say,MPI,$@)
	$(Q)mkdir -p $(@D) && $(MPICC) $(PREPROCESS) $(filter-out -Wpedantic,$(WARNINGS)) -fvisibility=hidden -fPIC -O2 $(WERROR) $(MODULE_FLAGS) $(CFLAGS) \
	    -shared $(LDFLAGS) -o $@ $(filter %.c,$^)

NCCL_FILES := $(wildcard src/transport/nccl/*.[ch]) src/base/status.c src/base/status.h src/transport/nccl_module.h src/transport/transport.h include/tersegrad.h
nccl_compile = $(CC) $(PREPROCESS) $(WARNINGS) -fvisibility=hidden -fPIC -O2 $(WERROR) $(CFLAGS) -shared -Wl,-z,defs $(LDFLAGS)
build/nccl.so: $(NCCL_FILES) build/flags
	$(call say,NCCL,$@)
	$(Q)mkdir -p $(@D) && $(nccl_compile) -isystem $(NCCL_INCLUDE) -isystem $(CUDA_HOME)/include -Wl,--exclude-libs,ALL -o $@ $(filter %.c,$^) $(CUDART) -lpthread -ldl -lrt

# The module has what it needs of the library in itself, and shows one symbol. Only the driver is needed where it runs.
.PHONY: cuda cuda-objects emulated
cuda-objects: $(CUDA:src/device/cuda/%.cu=build/cuda/%.o)
cuda: $(or $(CUDA_MODULE),no-nvcc)
no-nvcc:
	@echo 'make: there is no nvcc: install the CUDA toolkit, or set NVCC' >&2; exit 1
build/cuda/flags: FORCE
	$(call remember,$(NVCC) $(CUDA_COMPILE) $(CFLAGS))
build/cuda/%.o: src/device/cuda/%.cu $(CUDA_HEADERS) build/cuda/flags
	$(call say,NVCC,$@)
	$(Q)mkdir -p $(@D) && $(NVCC) $(CUDA_COMPILE) $(CFLAGS:%=-Xcompiler=%) -c -o $@ $<
build/libtersegrad_cuda.so: $(CUDA:src/device/cuda/%.cu=build/cuda/%.o) build/libtersegrad.a
	$(call say,LD,$@)
	$(Q)$(NVCC) -shared -cudart static -Xlinker --exclude-libs,ALL,-Bsymbolic,--gc-sections,-soname,$(@F) -o $@ $^ -lpthread -ldl

# The same sources for a card that is emulated on the CPU (tests/cuda), and law programs that find this module.
EMULATED := build/emulated
EMULATED_LAWS := arrays codecs devices feedback damage refusal residuals
EMULATE := -std=gnu++20 -O2 -g -ffp-contract=off -fPIC -fvisibility=hidden -Wall -Wextra -Wno-missing-field-initializers -Wno-unknown-pragmas $(INCLUDES) \
    -Itests/cuda
emulated: $(EMULATED)/libtersegrad_cuda.so $(EMULATED)/nccl.so $(EMULATED_LAWS:%=$(EMULATED)/tests/laws/%) $(EMULATED)/tests/coding $(CARDS_TESTS:%.c=$(EMULATED)/%)
$(EMULATED)/obj/%.o: src/device/cuda/%.cu $(CUDA_HEADERS) tests/cuda/cuda_runtime.h build/flags
	$(call say,CXX,$@)
	$(Q)mkdir -p $(@D) && $(CXX) $(EMULATE) $(WERROR) $(CFLAGS) -x c++ -c -o $@ $<
$(EMULATED)/obj/emulator.o: tests/cuda/emulator.cc tests/cuda/cuda_runtime.h build/flags
	$(call say,CXX,$@)
	$(Q)mkdir -p $(@D) && $(CXX) $(EMULATE) $(WERROR) $(CFLAGS) -c -o $@ $<
$(EMULATED)/libtersegrad_cuda.so: $(CUDA:src/device/cuda/%.cu=$(EMULATED)/obj/%.o) $(EMULATED)/obj/emulator.o build/libtersegrad.a
	$(call say,LD,$@)
	$(Q)$(CXX) -shared -Wl,--exclude-libs,ALL,-Bsymbolic,--gc-sections,-soname,$(@F) -o $@ $^ -pthread $(CFLAGS) $(LDFLAGS) -ldl
# The module for a fake of NCCL (tests/nccl).
$(EMULATED)/libnccl.so.2: tests/nccl/fake.c tests/nccl/nccl.h build/flags
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D) && $(nccl_compile) -Itests/nccl -Wl,-soname,$(@F) -o $@ $< -lpthread
$(EMULATED)/nccl.so: $(NCCL_FILES) $(EMULATED)/libnccl.so.2
	$(call say,LD,$@)
	$(Q)$(nccl_compile) -Itests/nccl -o $@ $(filter %.c,$^) $(EMULATED)/libnccl.so.2 -Wl,-rpath,'$$ORIGIN'
$(EMULATED)/tests/coding: tests/cuda/coding.cc $(CUDA:src/device/cuda/%.cu=$(EMULATED)/obj/%.o) $(EMULATED)/obj/emulator.o build/libtersegrad.a
	$(call say,CXX,$@)
	$(Q)mkdir -p $(@D) && $(CXX) $(EMULATE) $(WERROR) $(CFLAGS) -o $@ $^ -pthread $(LDFLAGS) -ldl -lm
$(EMULATED)/tests/%: build/obj/tests/%.o $(SUPPORT:%.c=build/obj/%.o) build/obj/command.a build/libtersegrad.a
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D) && $(CC) -pthread $(CFLAGS) $(LDFLAGS) -o $@ $^ $(COMMAND_LIBRARIES) -lm -ldl

# MPIs of less use than they are, for tests.
LEVELS := $(MODULES:build/mpi-%=build/tests/mpi/level-%)
.PHONY: levels
levels: $(LEVELS)
build/tests/mpi/level-openmpi.so: MPICC = $(OPENMPI_CC)
build/tests/mpi/level-mpich.so: MPICC = $(MPICH_CC)
build/tests/mpi/level-%.so: tests/mpi/level/level.c build/flags
	$(call say,MPI,$@)
	$(Q)mkdir -p $(@D) && $(MPICC) -std=gnu11 $(filter-out -Wpedantic,$(WARNINGS)) -fPIC -O2 $(WERROR) $(CFLAGS) -shared $(LDFLAGS) -o $@ $<

# Times of whole reductions, and of what they are compared with.
.PHONY: bench
bench: all build/bench/reduce build/bench/bypass build/bench/stacked.so $(if $(OPENMPI_CC),build/bench/dense-openmpi) $(if $(MPICH_CC),build/bench/dense-mpich)
build/bench/stacked.so: build/obj/bench/stacked.o build/libtersegrad.so
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $< -Lbuild -ltersegrad -Wl,-rpath,$(CURDIR)/build $(LDFLAGS) -o $@
build/bench/reduce build/bench/bypass: build/bench/%: build/obj/bench/%.o build/libtersegrad.a
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D) && $(CC) -pthread $(CFLAGS) $(LDFLAGS) -o $@ $^ -lm -ldl
-include $(wildcard build/obj/bench/*.d)
build/bench/dense-openmpi: MPICC = $(OPENMPI_CC)
build/bench/dense-mpich: MPICC = $(MPICH_CC)
build/bench/dense-%: bench/dense_mpi.c
	$(call say,MPI,$@)
	$(Q)mkdir -p $(@D) && $(MPICC) -std=gnu11 -O2 $(CFLAGS) -o $@ $<

# Makes plausible gradients for the tests.
build/gradient: build/obj/scripts/gradient.o
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lm

# Counts the instructions of the hot operations: recorded by `make instructions`, compared by `make check`.
build/bench/instructions: build/obj/bench/instructions.o build/libtersegrad.a
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -pthread $(CFLAGS) $(LDFLAGS) -o $@ $^ -lm
.PHONY: instructions
instructions: build/bench/instructions
	@bench/instructions.sh --record $< $(CC)

clean:
	rm -rf build

# ---- Install ---------------------------------------------------------------------------------------------------------

# The templates are filled in here and not when building, because PREFIX may differ from one call to the next.
CMAKEDIR := $(LIBDIR)/cmake/tersegrad
fill = sed -e 's|@VERSION@|$(VERSION)|g' -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@LIBDIR@|$(LIBDIR)|g' \
           -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|g' -e 's|@SONAME@|$(SONAME)|g' \
           -e "s|@LIBDIR_TO_INCLUDEDIR@|$$(realpath -ms --relative-to=$(LIBDIR) $(INCLUDEDIR))|g" $1 >$2

install: all
	$(Q)install -d $(addprefix $(DESTDIR),$(BINDIR) $(LIBDIR)/pkgconfig $(LIBDIR)/tersegrad $(CMAKEDIR) $(INCLUDEDIR) \
	    $(DATADIR)/man/man1 $(DATADIR)/bash-completion/completions $(DATADIR)/zsh/site-functions)
	$(Q)install -m 755 build/tersegrad $(DESTDIR)$(BINDIR)/tersegrad
	$(Q)install -m 644 include/tersegrad.h $(DESTDIR)$(INCLUDEDIR)/tersegrad.h
	$(Q)install -m 644 build/libtersegrad.a $(DESTDIR)$(LIBDIR)/libtersegrad.a
	$(Q)install -m 755 build/libtersegrad.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libtersegrad.so.$(VERSION)
	$(Q)$(if $(strip $(MODULES) $(CUDA_MODULE) $(NCCL_MODULE)),install -m 755 $(MODULES) $(CUDA_MODULE) $(NCCL_MODULE) $(DESTDIR)$(LIBDIR)/tersegrad/)
	$(Q)ln -sf libtersegrad.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(SONAME)
	$(Q)ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libtersegrad.so
	$(Q)$(call fill,packaging/tersegrad.pc.in,$(DESTDIR)$(LIBDIR)/pkgconfig/tersegrad.pc)
	$(Q)$(call fill,packaging/tersegrad-config.cmake.in,$(DESTDIR)$(CMAKEDIR)/tersegrad-config.cmake)
	$(Q)$(call fill,packaging/tersegrad-config-version.cmake.in,$(DESTDIR)$(CMAKEDIR)/tersegrad-config-version.cmake)
	$(Q)install -m 644 share/tersegrad.1 $(DESTDIR)$(DATADIR)/man/man1/tersegrad.1
	$(Q)install -m 644 share/tersegrad.bash $(DESTDIR)$(DATADIR)/bash-completion/completions/tersegrad
	$(Q)install -m 644 share/_tersegrad $(DESTDIR)$(DATADIR)/zsh/site-functions/_tersegrad
	@echo 'installed tersegrad $(VERSION) in $(DESTDIR)$(PREFIX)'

# With the same settings as install. Folders that are ours alone go too, once they are empty.
uninstall:
	$(Q)rm -f $(addprefix $(DESTDIR),$(BINDIR)/tersegrad $(INCLUDEDIR)/tersegrad.h $(LIBDIR)/libtersegrad.a \
	    $(LIBDIR)/libtersegrad.so $(LIBDIR)/$(SONAME) $(LIBDIR)/libtersegrad.so.$(VERSION) \
	    $(LIBDIR)/tersegrad/mpi-openmpi.so $(LIBDIR)/tersegrad/mpi-mpich.so \
	    $(LIBDIR)/tersegrad/libtersegrad_cuda.so $(LIBDIR)/tersegrad/nccl.so $(LIBDIR)/pkgconfig/tersegrad.pc \
	    $(CMAKEDIR)/tersegrad-config.cmake $(CMAKEDIR)/tersegrad-config-version.cmake \
	    $(DATADIR)/man/man1/tersegrad.1 $(DATADIR)/bash-completion/completions/tersegrad \
	    $(DATADIR)/zsh/site-functions/_tersegrad)
	$(Q)for folder in $(LIBDIR)/tersegrad $(CMAKEDIR); do rmdir "$(DESTDIR)$$folder" 2>/dev/null || :; done
	@echo 'removed tersegrad $(VERSION) from $(DESTDIR)$(PREFIX)'

# ---- Demonstration, checks, fuzzing ----------------------------------------------------------------------------------

# These set up what they need first. scripts/check.sh then comes back to this Makefile to build what each group of tests
# needs, so that what cannot be installed or built is one line of the report and not the end of it.
.PHONY: demo check check-ci check-all check-foreign check-cuda format fuzz python
demo:
	@scripts/setup.sh build && scripts/setup.sh --try train
	@$(MAKE) --no-print-directory -s release
	@scripts/demo.sh build/tersegrad $(DATA)

# `check` stays small: what takes long to run or to install is in `check-ci`.
SETUP_CHECK := build && scripts/setup.sh --try train check python
SETUP_CI := $(SETUP_CHECK) ci mpi browser torch nccl
# nvcc takes minutes for all kinds of cards: one group of tests compiles the module for one of them.
CHECK_MAKE := $(MAKE) NVCC=
check:
	@scripts/setup.sh $(SETUP_CHECK) $(if $(ONLY),ci mpi browser torch nccl)
	@MAKE='$(CHECK_MAKE)' scripts/check.sh $(or $(ONLY),check)
check-ci:
	@scripts/setup.sh $(SETUP_CI) foreign
	@MAKE='$(CHECK_MAKE)' scripts/check.sh ci
check-all:
	@scripts/setup.sh $(SETUP_CI)
	@LAWS=--all MAKE='$(CHECK_MAKE)' scripts/check.sh $(or $(ONLY),all)
check-foreign:
	@scripts/setup.sh build && scripts/setup.sh --try foreign
	@MAKE='$(CHECK_MAKE)' scripts/check.sh foreign

# Where there is a card. Installs nothing.
check-cuda:
	@scripts/check_cuda.sh

# The package, torch and what its tests need.
python:
	@scripts/setup.sh build python torch
	@.venv/bin/python -m pip -q --disable-pip-version-check install .

format:
	@scripts/setup.sh python
	@git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.cuh' | xargs .venv/bin/clang-format -i --style=file

fuzz:
	@scripts/setup.sh build fuzz
	@$(MAKE) --no-print-directory -s libfuzzer-fuzz
	@scripts/fuzz.sh $(FUZZ_SECONDS) $(notdir $(FUZZ:.c=))

# Flags for tools that read our sources: make print-PREPROCESS, print-AVX2.
print-%:
	@echo $($*)

help:
	@sed -n '/^##/s/^## \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

##   make                build/tersegrad and build/libtersegrad.{so,a}
##   make demo           set up, then train with several codecs and show a table; DATA=DIR for data of your own
##   make check          set up, build, and run what shows that the build can be trusted; ONLY="unit cli" picks groups
##   make check-ci       the rest: sanitizers, analysers, MPI, hosts, another compiler, other machines; .ci/run does both
##   make check-foreign  golden frames, unit tests and laws on aarch64 and big-endian s390x, under qemu-user
##   make check-cuda     where there is a CUDA card: the laws on it, NVIDIA's sanitizer, the benchmark
##   make check-all      all groups but the foreign ones, with the full product of the laws and messages beyond 2 GiB over MPI
##   make cuda           build/libtersegrad_cuda.so, the module for CUDA cards; ARCH=sm_90 for one kind of card only
##   make bench          build/bench/reduce, which times whole reductions; bench/network runs it over shaped links
##   make python         install the Python package, torch and what its tests need into .venv
##   make format         lay out the C and CUDA sources as .clang-format says
##   make fuzz           each fuzz target for FUZZ_SECONDS=60
##   make instructions   record anew how many instructions the hot operations take (bench/instructions.txt)
##   make install        honours PREFIX, DESTDIR, BINDIR, LIBDIR, INCLUDEDIR, DATADIR
##   make uninstall      the same settings; removes what install put there
##   make clean          remove build/
##   Variants: release clang asan tsan libfuzzer aarch64 aarch64-clang s390x, each also with -unit -laws -papers -ranks -fuzz appended.
##   Settings: CC, CLANG, CFLAGS, LDFLAGS, WERROR= (warnings stay warnings), V=1 (show commands).
