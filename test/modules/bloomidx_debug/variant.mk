# bloomidx as an extension $(VARIANT), compiled with assertions, pauses and $(VARIANT_FLAGS).

TOP = ../../..

EXTENSION = $(VARIANT)
MODULE_big = $(VARIANT)
DATA_built = $(VARIANT)--1.0.sql $(VARIANT).control
OBJS = $(patsubst $(TOP)/src/%.c,%.o,$(wildcard $(TOP)/src/*.c $(TOP)/src/*/*.c))
EXTRA_CLEAN = $(DATA_built)
PG_CPPFLAGS = -DBX_DEBUG_PAUSES -DUSE_ASSERT_CHECKING -DBX_LIBRARY='"$$libdir/$(VARIANT)"' $(VARIANT_FLAGS)
override with_llvm = no

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

$(OBJS): %.o: $(TOP)/src/%.c $(wildcard $(TOP)/src/*.h $(TOP)/src/*/*.h)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(CPPFLAGS) -c -o $@ $<

$(VARIANT)--1.0.sql: $(TOP)/bloomidx--1.0.sql
	sed 's/"CREATE EXTENSION bloomidx"/"CREATE EXTENSION $(VARIANT)"/' $< > $@

$(VARIANT).control: $(TOP)/bloomidx.control
	sed 's,\$$libdir/bloomidx,$$libdir/$(VARIANT),' $< > $@
