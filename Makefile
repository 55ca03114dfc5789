# bloomidx: an index access method for PostgreSQL
#
#   make, make install, make installcheck    as for any PGXS extension; PG_CONFIG=... chooses the server
#   make demo [ROWS=n]      searches of ids, log lines and jsonb documents, compared with PostgreSQL's own indexes; two minutes
#   make check              build and run all tests on throw-away servers; installs nothing but packages
#                             SUITES="unit regress"  only these suites    TESTS='0*'  only tests with matching names
#                             KEEP=1                 keep the directory with the servers and their logs
#   make matrix             make check with PostgreSQL 15, 17 and 18, in chroots of Debian 12, trixie and sid, and with an
#                             18 that is built with assertions; needs root
#                             PG_CONFIGS="/path/to/pg_config ..."  and with these servers, outside any chroot
#   make soak [MINUTES=20]  the long versions of the tests, repeatedly, with different seeds
#   make sanitize           make check's tests on a server, with bloomidx under AddressSanitizer and UBSan
#   make valgrind           make check's regression tests, with the server under valgrind
#                             SUPPRESSIONS=file      of valgrind; PostgreSQL's sources have src/tools/valgrind.supp
#   make coverage           which lines of src/ the tests execute; VERBOSE=1 shows the lines that they do not execute
#   make fuzz [MINUTES=20]  libFuzzer damages pages, guided by the code that the damages reach, with the sanitizers; MINUTES
#                             for each kind of page    KINDS="meta top"  only these kinds    PACK=1  add to the corpus
#   make unit               the tests of the pure C core alone; needs no PostgreSQL, but xxhash.h
#   make vectors            the test vectors of that core with many compilers, and on emulated processors
#   make model              verify the models of test/model with spin; VERBOSE=1 shows how sabotaged variants fail
#   make bench [SCALE=small]  the long comparison, with plots: updates bench/results, README.md and doc/; less than an hour
#                             small: five minutes, to bench/results-small    ROWS=n GROWTH="n n" REPEAT=n: see bench/compare
#   make report             update bench/results/results.md, README.md and doc/ from the figures in bench/results
#   make planner [ROWS=n]   whether the planner chooses the fastest plan
#   make layouts [ROWS=n]   only the part of make bench that compares the layouts, and the values of option keys
#   make dedup [ROWS=n]     only the part of make bench with INSERT ... ON CONFLICT DO NOTHING, compared with a unique B-tree
#                             and a hash exclusion constraint
#   make text-bench [ROWS=n]  log lines, jsonb attributes and tags, compared with GIN, in more detail than make bench
#   make dist               bloomidx-VERSION.tar.gz, and .zip as PGXN wants it, of the last commit
#   make build-bench [ROWS=n]  time and memory of CREATE INDEX
#   make lint               cppcheck            make indent, make indent-check    pg_bsd_indent
#
# On Debian and its like check, demo, bench, model, lint and indent install the packages that they need and do not find.

# The companions are SQL only: operator classes for types of other extensions.
EXTENSION = bloomidx bloomidx_trgm bloomidx_hstore bloomidx_intarray bloomidx_citext
MODULE_big = bloomidx
DATA = $(wildcard bloomidx--*.sql bloomidx_*--*.sql)
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c)))
REGRESS = $(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql)))
# whatever the encoding and the locale of the server's other databases are, SQL_ASCII and C with Debian's packages in a chroot
REGRESS_OPTS = --encoding=UTF8 --no-locale
PGFILEDESC = "bloomidx - Bloom filters for ranges of heap pages"

# xxHash is used as a header only; nothing to link.
#
# The server's headers have unused parameters, its macros compare signed with unsigned, and its tables of
# options are written without their last fields.
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers
ifdef WERROR
PG_CFLAGS += -Werror
endif

# Bitcode would let the JIT inline our functions, but none is ever called from an expression; so no clang.
override with_llvm = no

# Targets that are scripts.  They find or install PostgreSQL themselves, so they must not need pg_config here.
# PGXS also has a target "check", which only prints that it is not supported.
SCRIPTED = demo check matrix soak sanitize valgrind coverage fuzz bench report build-bench planner layouts dedup text-bench unit vectors model lint indent indent-check dist

ifneq ($(filter $(SCRIPTED),$(MAKECMDGOALS)),)

.PHONY: $(MAKECMDGOALS)

check:
	@test/check

matrix:
	@test/matrix

soak:
	@test/soak

sanitize:
	@test/sanitize

valgrind:
	@test/valgrind

coverage:
	@test/coverage

fuzz:
	@test/fuzz

unit:
	@test/unit/run

vectors:
	@test/vectors

model:
	@test/model/run

lint:
	@test/lint

indent:
	@test/indent

indent-check:
	@test/indent --check

dist: VERSION = $(shell sed -n "s/^default_version *= *'\(.*\)'.*/\1.0/p" bloomidx.control)
dist:
	git archive --prefix=bloomidx-$(VERSION)/ -o bloomidx-$(VERSION).tar.gz HEAD
	git archive --prefix=bloomidx-$(VERSION)/ -o bloomidx-$(VERSION).zip HEAD

demo:
	@bench/demo

bench:
	@bench/compare

build-bench:
	@bench/build

planner:
	@bench/planner

report:
	@bench/report bench/results

dedup:
	@SCENES=dedup bench/compare

layouts:
	@SCENES="lookup other" bench/compare

text-bench:
	@bench/text

# "make clean check": the other goals on their own, with PGXS
OTHERS = $(filter-out $(SCRIPTED),$(MAKECMDGOALS))
ifneq ($(OTHERS),)
$(OTHERS):
	@$(MAKE) --no-print-directory $@
endif

else

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifeq ($(wildcard $(PGXS)),)
$(error $(PG_CONFIG) leads to no PGXS: install postgresql-server-dev-NN (its name on Debian) or set PG_CONFIG)
endif
include $(PGXS)

$(OBJS): $(wildcard src/*.h src/*/*.h)

# PGXS's DOCS would install these where the documents of all extensions are, and leave some of them behind in uninstall.
documents = README.md src/README $(wildcard doc/*.md)
documents_dir = $(DESTDIR)$(docdir)/bloomidx

.PHONY: install-documents uninstall-documents
install: install-documents
install-documents:
	$(MKDIR_P) '$(documents_dir)'
	$(INSTALL_DATA) $(documents) '$(documents_dir)/'

uninstall: uninstall-documents
uninstall-documents:
	rm -f $(addprefix '$(documents_dir)/', $(notdir $(documents)))
	-rmdir '$(documents_dir)'

# For versions before 15, of which pg_regress does not set it; see sql/include/oracle.sql.
installcheck: export PG_ABS_SRCDIR = $(abspath $(srcdir))

endif
